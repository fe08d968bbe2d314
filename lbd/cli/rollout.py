"""``lbd rollout``: have a running lbd drain one broker after the other, restart each by a command, and follow it."""

from __future__ import annotations

import shlex
import subprocess
import time
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from lbd.api.shapes import RolloutPlan, RolloutResponse
from lbd.cli import INTERRUPTED
from lbd.cli.completion import brokers as active
from lbd.cli.options import duration, remote_options, timeout_option
from lbd.cli.render import amount, json_out, plain, table
from lbd.cli.request import (
    api_client,
    by,
    full_name,
    lbd_client,
    one_line,
    print_note,
    print_result,
    reaching,
    read,
    reason_option,
    send_command,
)
from lbd.cli.status_text import console
from lbd.errors import ObserveError, RefusedError, UsageError
from lbd.pulsar.paths import host_port
from lbd.store.control import REFUSED, RequestResult, RolloutRequest, new_id
from lbd.text import counted, duration_text

if TYPE_CHECKING:
    from lbd.api.client import Client
    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.store.rollouts import Rollout


POLL_SECONDS = 1.0
BACK_WITHIN_SECONDS = 900.0
KNOWN_WITHIN_SECONDS = 30.0
"""Behind one address a standby may answer, which reads of a rollout a moment later than it begins or ends."""


@click.command("rollout")
@click.argument("brokers", nargs=-1, metavar="[BROKER]...", shell_complete=active)
@click.option("--all", "everything", is_flag=True, help="Restart all active brokers.")
@click.option("--dry-run", is_flag=True, help="Show order, moves, time and peak scores. Changes nothing.")
@click.option("--wait", "waits", is_flag=True, help="Wait until somebody else restarts each broker.  [default]")
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="Run this on this machine to restart a broker: {broker} is host:port, {host} the host.",
)
@click.option(
    "--back-within",
    "back_seconds",
    callback=duration,
    metavar="DURATION",
    help="Stop if a broker takes longer to come back.  [default: 15m]",
)
@click.option("--stop", is_flag=True, help="Stop the rollout that is under way: its drain is released.")
@reason_option
@timeout_option
@remote_options
@click.pass_context
def rollout(
    ctx: click.Context,
    read: Read,
    form: str,
    brokers: tuple[str, ...],
    command: str | None,
    back_seconds: float | None,
    reason: str,
    timeout_seconds: float,
    api_url: str | None,
    *,
    everything: bool,
    dry_run: bool,
    waits: bool,
    stop: bool,
) -> None:
    """Restart each BROKER, or all of them, one after the other, the one that leads last, without a storm of moves.

    Each is drained, then restarted by --exec or by somebody else (--wait), and waited for until it is healthy and its
    load report can be trusted. No bundle moves more than twice. At the end the last one is filled. A running lbd does
    the work, and another one goes on with it after a failover; only COMMAND is run here. Ctrl-C ends the watching; the
    same command goes on. It stops, and releases its drain, when a broker does not come back, another one goes, or the
    others have no room. Exit code 0 all are restarted, 4 refused or stopped, 5 a broker did not come back, another one
    left, or a move failed.

    \b
    Example: lbd rollout --all --exec "ssh {host} systemctl restart pulsar-broker"
    """
    _check(brokers, command, everything=everything, dry_run=dry_run, waits=waits, stop=stop)
    settings = read().settings
    names = tuple(full_name(broker, settings, api_url) for broker in brokers)
    if dry_run:
        ctx.exit(_show(settings, names, form, api_url))
    client = lbd_client(settings, api_url)
    if client is None:
        raise ObserveError(f"{settings.state_dir}: no lbd runs there, and a rollout needs one for hours; start lbd run")
    name, now = new_id()
    request = RolloutRequest(
        name,
        names,
        command is not None,
        BACK_WITHIN_SECONDS if back_seconds is None else back_seconds,
        reason,
        by(),
        now,
        now + timeout_seconds,
        stop=stop,
    )
    ctx.exit(_run(client, request, command, form, reaching(api_url)))


def _check(
    brokers: tuple[str, ...], command: str | None, *, everything: bool, dry_run: bool, waits: bool, stop: bool
) -> None:
    if stop and (brokers or everything or dry_run or command is not None or waits):
        raise UsageError("--stop ends the rollout that is under way; it takes no broker, --exec, --wait or --dry-run")
    if not stop and bool(brokers) == everything:
        raise UsageError("name the brokers to restart, or give --all")
    if command is not None and (waits or not command.strip()):
        raise UsageError("--exec wants a command, and goes without --wait")
    if command is not None:
        _words(command, "host:1")


def _words(command: str, broker: str) -> list[str]:
    """The command for one broker. Raises :class:`UsageError`."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--exec {command!r}: {error}") from error
    address = host_port(broker)
    if address is None:
        raise UsageError(f"--exec is not run for {broker!r}: wanted host:port, the host without a hyphen at its start")
    host = address[0]
    return [word.replace("{broker}", broker).replace("{host}", host) for word in words]


def _run(client: Client, request: RolloutRequest, command: str | None, form: str, there: str) -> int:
    """Begin it and follow it; ``there`` are the words by which a further command reaches the same lbd."""
    answer = read(send_command(client, request), RequestResult)
    if answer.exit_code or request.stop:
        print_note(form, answer.sentence)
        return answer.exit_code
    click.echo(plain(answer.sentence), err=True)
    try:
        rollout = _followed(client, command, request, answer.id)
    except KeyboardInterrupt:
        print_note(form, f"No longer watched: it goes on in {client.name}; lbd rollout --stop{there} ends it.")
        return INTERRUPTED
    print_result(form, rollout, rollout.sentence)
    return rollout.exit_code


def _followed(client: Client, command: str | None, request: RolloutRequest, name: str) -> Rollout:
    """The rollout of this id (``name``) at its end; the command restarts each broker that is handed over, once."""
    summary = refusal = ""
    restarted, known_at = set[str](), time.monotonic()
    while True:
        view = read(client.get("rollout"), RolloutResponse)
        rollout = view.rollout if view.rollout is not None and view.rollout.id == name else None
        if rollout is None and time.monotonic() - known_at > KNOWN_WITHIN_SECONDS:
            raise ObserveError(f"that lbd does not know of this rollout: {view.summary}")
        if rollout is not None:
            known_at = time.monotonic()
            if rollout.ended_at is not None:
                return rollout
            summary = _noted(view.summary, summary)
            due = rollout.phase == "restart" and rollout.gone_at is None and rollout.broker not in restarted
            if command is not None and due:
                why = _hand_over(client, request, name, rollout.broker)
                if why:
                    refusal = _noted(f"{rollout.broker} is not restarted yet: {why}", refusal)
                else:
                    restarted.add(rollout.broker)
                    _restart_or_stop(client, request, command, name, rollout.broker)
        time.sleep(POLL_SECONDS)


def _noted(words: str, before: str) -> str:
    """Print a note, unless it is the same as before; returns it."""
    if words != before:
        click.echo(plain(words), err=True)
    return words


def _hand_over(client: Client, request: RolloutRequest, rollout: str, broker: str) -> str:
    """Why a broker must not be restarted now, empty where it is to be.

    Progress that was read may be old, from a standby or a leader that was replaced, and a person may have ended the
    rollout: the lbd that leads says whether the broker is due.
    """
    try:
        answer = read(client.command(_order(request, restarts=broker, target=rollout)), RequestResult)
    except RefusedError as error:
        return str(error)
    return answer.sentence if answer.exit_code else ""


def _restart_or_stop(client: Client, request: RolloutRequest, command: str, rollout: str, broker: str) -> None:
    """Run the command; where it fails the rollout is stopped."""
    why = _restart(command, broker)
    if why:
        click.echo(plain(why), err=True)
        send_command(client, _order(request, reason=one_line(why), stop=True, target=rollout))


def _order(request: RolloutRequest, **others: Any) -> RolloutRequest:  # noqa: ANN401 - of each field its own
    """A further order about a rollout, by the command that requested it."""
    name, now = new_id()
    times = {"at": now, "expires_at": now + request.expires_at - request.at}
    return replace(request, id=name, brokers=(), executes=False, claim=request.id, **times, **others)


def _restart(command: str, broker: str) -> str:
    """Run the command and return why it failed, empty if it did not."""
    words = _words(command, broker)
    shown = shlex.join(words)
    click.echo(plain(f"runs: {shown}"), err=True)
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, check=False)  # noqa: S603 - the operator's own command
    except OSError as error:
        return f"{shown}: {error.strerror or error}"
    return f"{shown} ended with {done.returncode}" if done.returncode else ""


def _show(settings: Settings, names: tuple[str, ...], form: str, api_url: str | None) -> int:
    plan = _plan(settings, names, api_url)
    if form == "json":
        json_out(plan)
    else:
        rows = table("broker", ">bundles", ">clients", ">about", "highest then", ">points")
        for step in plan.steps:
            cells = f"{step.bundles:,}", f"{step.clients:,}", duration_text(step.eta_seconds)
            rows.add_row(plain(step.broker), *cells, plain(step.top or ""), amount(step.peak, digits=1))
        console().print(rows)
    refusals = [f"{step.broker}: {step.refused}" for step in plan.steps if step.refused is not None]
    refusals += [plan.refused] if plan.refused is not None else []
    for refusal in refusals:
        print_note(form, f"Refused: {refusal}.")
    clients = f"{counted(plan.clients, 'client')} reconnect"
    most = f"{counted(plan.bundles, 'bundle')} move once, or twice at most; {clients}"
    moves = duration_text(plan.moves_seconds)
    print_note(form, f"{counted(len(plan.steps), 'broker')}, in this order: {most} each time.")
    trusted = f"up to {duration_text(plan.trusted_after_seconds)} after each start until the broker's reports count"
    total = duration_text(plan.total_seconds)
    print_note(form, f"About {total} in all, and the restarts themselves: {moves} of moves, and {trusted}.")
    return REFUSED if refusals else 0


def _plan(settings: Settings, names: tuple[str, ...], api_url: str | None) -> RolloutPlan:
    if (client := api_client(settings, api_url)) is not None:
        query: dict[str, Any] = {"broker": list(names)}
        return read(client.get("rollout", "plan", **query), RolloutPlan)
    from lbd.operations.rollout import show_rollout  # noqa: PLC0415 - usage errors need no NumPy

    return show_rollout(settings, names)
