"""``lbd drain`` and ``lbd fill``: plan, start and follow a drain or a fill, and print it.

Progress is a bar on a terminal and lines elsewhere, on stderr.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from lbd.cli import INTERRUPTED
from lbd.cli.completion import brokers
from lbd.cli.options import Command, duration, override_option, remote_options, timeout_option
from lbd.cli.render import amount, bar, json_out, plain, table
from lbd.cli.request import (
    api_client,
    by,
    full_name,
    lbd_client,
    orders_client,
    override_reason,
    print_note,
    print_result,
    reaching,
    reason_option,
)
from lbd.cli.status_text import console, drain_text, progress_text, remaining_text
from lbd.errors import ObserveError, UsageError
from lbd.store.control import REFUSED, DrainRequest, FillRequest, RequestResult, new_id
from lbd.store.drains import Drains
from lbd.store.orders import Orders
from lbd.text import counted, duration_text

if TYPE_CHECKING:
    from lbd.api.client import Client
    from lbd.api.shapes import DrainPlan
    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.store.drains import Work


LINE_EVERY_SECONDS, WAIT_EVERY_SECONDS = 10.0, 60.0
"""Time between two lines while bundles move, and while the order waits for the same reason."""


def respect_rest_option(command: Command) -> Command:
    """``--respect-rest``: what was moved lately stays."""
    words = "Leave bundles that were moved lately (cool-down) or often. Without it all bundles move."
    return click.option("--respect-rest", is_flag=True, help=words)(command)


class DrainProgressBar:
    """A progress bar of one drain or fill, on stderr; stdout has the result."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
            console=Console(stderr=True, highlight=False),
        )
        self._terminal = sys.stderr.isatty()
        self._task = self._bar.add_task("", total=None, detail="", visible=False)
        self._printed_at, self._printed = -LINE_EVERY_SECONDS, ""

    def __enter__(self) -> Self:
        if self._terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            self._bar.stop()

    def __call__(self, work: Work) -> None:
        """Show progress; the caller reports the end."""
        if self._terminal:
            eta = f"{duration_text(work.eta_seconds)} left" if work.eta_seconds is not None else ""
            detail = plain(f"waits: {work.held}" if work.held else eta)
            about = f"{work.kind} {plain(work.broker)}"
            self._bar.update(
                self._task, total=work.total, completed=work.tried, detail=detail, description=about, visible=True
            )
        elif work.ended_at is None and self._due(work):
            self._printed_at, self._printed = time.monotonic(), _reason(work)
            click.echo(progress_text(work), err=True)

    def _due(self, work: Work) -> bool:
        """Whether a line is due: regularly, and when waiting starts or ends."""
        every = WAIT_EVERY_SECONDS if work.held else LINE_EVERY_SECONDS
        return _reason(work) != self._printed or time.monotonic() - self._printed_at >= every


def _reason(work: Work) -> str:
    """The reason for which it waits, without its detail: that counts seconds; empty where it does not wait."""
    return work.held.partition(":")[0]


# --- plans as text

LINES = 20
"""Bundles that are listed; ``--all`` lists every one."""


def show(plan: DrainPlan, *, everything: bool) -> None:
    """Print scores now and predicted, the destination of each bundle, and the bundles that stay."""
    out = console()
    scores = table("broker", ">score", ">then", "", ">given")
    for broker in sorted(plan.brokers, key=lambda each: -each.predicted):
        number = sum(unload.destination == broker.id for unload in plan.unloads)
        then = broker.predicted
        row = amount(broker.score, digits=1), amount(then, digits=1), bar(then, "green"), str(number)
        scores.add_row(Text(plain(broker.id)), *row)
    out.print(scores)
    most = len(plan.unloads) if everything else LINES
    if plan.unloads:
        rows = table("unload", "from", "to", ">msg/s", ">MB/s", ">clients")
        for unload in plan.unloads[:most]:
            ends = plain(unload.bundle), plain(unload.source), plain(unload.destination or "")
            rows.add_row(*ends, amount(unload.msg_rate), amount(unload.throughput, 1e6, 1), f"{unload.clients:,}")
        out.print(rows)
    if (more := len(plan.unloads) - most) > 0:
        out.print(Text(f"and {counted(more, 'bundle')} more (--all)", "dim"))
    for stay in plan.stay[: None if everything else LINES]:
        detail = f": {stay.detail}" if stay.detail else ""
        out.print(Text(plain(f"stays: {stay.bundle}: {stay.reason}{detail}"), "yellow"))
    if not everything and (more := len(plan.stay) - LINES) > 0:
        out.print(Text(f"and {counted(more, 'bundle')} more stay (--all)", "dim"))


def drain_sentence(plan: DrainPlan, broker: str, now: float) -> str:
    """Whether the other brokers have room, and how long the drain would take."""
    drained = f"Drained: {drain_text(plan.drain, now)}. " if plan.drain is not None else ""
    if plan.hold is not None:
        return f"{drained}Refused: {plan.hold.reason}: {plan.hold.detail}."
    if plan.cannot_spare:
        return f"{drained}Refused: {plan.cannot_spare}."
    top = max(plan.brokers, key=lambda row: row.predicted)
    holds = f"The cluster can do without {broker}: {top.id} would be the highest with {top.predicted:.1f} points"
    if plan.stay:
        first = plan.stay[0]
        why = f"{first.bundle}: {first.reason}{first.detail and f': {first.detail}'}"
        holds = f"{broker} would not be empty: {counted(len(plan.stay), 'bundle')} would stay; the first: {why}"
    never = f"{counted(len(plan.last), 'bundle')} last that turns never move (guardrails.topic_costs)"
    last = f"; {never}" if plan.last else ""
    return f"{drained}{holds}{last}. {pace_text(plan)}"


def fill_sentence(plan: DrainPlan, broker: str) -> str:
    """The traffic that the broker would get."""
    if plan.hold is not None:
        return f"Refused: {plan.hold.reason}: {plan.hold.detail}."
    own = next(row for row in plan.brokers if row.id == broker)
    mean = sum(row.score for row in plan.brokers) / len(plan.brokers)
    if not plan.unloads:
        return f"{broker} has {own.score:.1f} points, the mean is {mean:.1f}: nothing that would help may move."
    effect = f"{broker} would go from {own.score:.1f} to {own.predicted:.1f} points, the mean is {mean:.1f}."
    return f"{effect} {pace_text(plan)}"


def pace_text(plan: DrainPlan) -> str:
    """Number of moves, pace and duration."""
    number = len(plan.unloads)
    if not number:
        return "There is nothing to move."
    once, them = (f", {min(plan.at_once, number)} at once", "them") if number > 1 else ("", "it")
    waits = plan.shown_in_seconds
    shown = f" Reports show the last moves in {waits:.0f} s at most; --apply waits for that." if waits else ""
    clients = counted(sum(unload.clients for unload in plan.unloads), "client")
    moves = f"{counted(number, 'bundle')}{once}, with {clients}"
    return f"{moves}: about {duration_text(plan.eta_seconds)}; --apply moves {them}.{shown}"


# --- commands


@click.command("drain")
@click.argument("broker", shell_complete=brokers)
@click.option("--apply", "applies", is_flag=True, help="Move all bundles off, and verify that the broker owns nothing.")
@click.option("--release", is_flag=True, help="End the drain, or else the fill. Moved bundles stay where they are.")
@click.option(
    "--for",
    "seconds",
    callback=duration,
    metavar="DURATION",
    help="How long the drain lasts: 90m, 2h, ...  [default: 24h]",
)
@reason_option
@override_option
@respect_rest_option
@click.option("--all", "everything", is_flag=True, help="Print every bundle.")
@timeout_option
@remote_options
@click.pass_context
def drain(
    ctx: click.Context,
    read: Read,
    form: str,
    broker: str,
    seconds: float | None,
    reason: str,
    override: str | None,
    timeout_seconds: float,
    api_url: str | None,
    *,
    applies: bool,
    release: bool,
    respect_rest: bool,
    everything: bool,
) -> None:
    """Show whether the other brokers have room for the bundles of BROKER, and where each would go.

    BROKER is host:port, or the host alone.

    With --apply, move all of them off, several at once, and verify that BROKER owns nothing. Rests and budgets of
    balancing do not hold a drain; policies and capacity do. Until --release, until --for is over or until it restarts,
    the broker is in no pair, average or destination, and bundles that Pulsar places on it are moved off again. A
    running lbd does the work; Ctrl-C only ends the watching. The same command resumes it, and keeps its end.
    Exit code 0 there is room or it owns nothing, 4 refused or some bundles must stay, 5 a move failed or no response.

    \b
    Example: lbd drain broker-3:8080 --apply --for 2h --reason "new disk"
    """
    if release and (applies or override is not None or seconds is not None or respect_rest):
        raise UsageError("--release ends a drain or a fill; --apply, --for, --override and --respect-rest begin one")
    _check_apply(applies or release, override, seconds, reason, respect_rest=respect_rest)
    passes, settings = override_reason(override), read().settings
    elsewhere = api_client(settings, api_url)
    if release:
        ctx.exit(_release(settings, broker, reason, form, orders_client(settings, api_url)))
    broker = full_name(broker, settings, api_url)
    if not applies:
        plan = _looked("drain", settings, broker, elsewhere)
        print_result(form, plan, drain_sentence(plan, broker, time.time()), lambda: show(plan, everything=everything))
        ctx.exit(REFUSED if plan.cannot_spare or plan.hold is not None or plan.stay else 0)
    name, now = new_id()
    times = now, now + timeout_seconds
    request = DrainRequest(name, broker, seconds, reason, passes, by(), *times, respect_rest=respect_rest)
    ctx.exit(_apply(settings, request, form, api_url))


@click.command("fill")
@click.argument("broker", shell_complete=brokers)
@click.option("--apply", "applies", is_flag=True, help="Move the bundles, and verify where each landed.")
@reason_option
@override_option
@respect_rest_option
@click.option("--all", "everything", is_flag=True, help="Print every bundle.")
@timeout_option
@remote_options
@click.pass_context
def fill(
    ctx: click.Context,
    read: Read,
    form: str,
    broker: str,
    reason: str,
    override: str | None,
    timeout_seconds: float,
    api_url: str | None,
    *,
    applies: bool,
    respect_rest: bool,
    everything: bool,
) -> None:
    """Show which bundles would bring BROKER up to the cluster's mean, taken from each broker above it.

    BROKER is host:port, or the host alone.

    With --apply, move them. Exit code 0 shown or all landed, 4 refused, 5 a move failed or landed elsewhere, or no
    response.

    \b
    Example: lbd fill broker-3:8080 --apply --reason "new machine"
    """
    _check_apply(applies, override, None, reason, respect_rest=respect_rest)
    passes, settings = override_reason(override), read().settings
    elsewhere, broker = api_client(settings, api_url), full_name(broker, settings, api_url)
    if not applies:
        plan = _looked("fill", settings, broker, elsewhere)
        print_result(form, plan, fill_sentence(plan, broker), lambda: show(plan, everything=everything))
        ctx.exit(REFUSED if plan.hold is not None else 0)
    name, now = new_id()
    times = now, now + timeout_seconds
    request = FillRequest(name, broker, passes, by(), *times, respect_rest=respect_rest, reason=reason)
    ctx.exit(_apply(settings, request, form, api_url))


def _check_apply(
    applies: bool, override: str | None, seconds: float | None, reason: str, *, respect_rest: bool
) -> None:
    if not applies and (override is not None or seconds is not None or reason or respect_rest):
        raise UsageError("--override, --for, --reason and --respect-rest go with --apply; without it nothing is done")
    if override is not None and respect_rest:
        raise UsageError("--override passes the rests that --respect-rest keeps; name one of them")


def _looked(kind: str, settings: Settings, broker: str, elsewhere: Client | None) -> DrainPlan:
    if elsewhere is not None:
        from lbd.cli import remote  # noqa: PLC0415 - loaded only for an API

        return remote.remote_drain_plan(elsewhere, kind, broker)
    from lbd.operations import drain as showing  # noqa: PLC0415 - usage errors need no NumPy

    look = showing.show_drain if kind == "drain" else showing.show_fill
    return showing.plan_json(look(settings, broker))


def _release(settings: Settings, broker: str, reason: str, form: str, client: Client | None) -> int:
    """End the drain or the fill: in the lbd that takes orders, else in the store, whether an lbd runs or not."""
    from lbd.api.shapes import Released  # noqa: PLC0415 - usage errors need no API

    now = time.time()
    if client is not None:
        from lbd.cli import remote  # noqa: PLC0415 - loaded only for an API

        in_force = remote.drained(client)
        released = remote.release(client, broker, by(), reason)
    else:
        drains = Drains(settings.state_dir, Orders(settings.state_dir, shared=settings.leader.enabled))
        in_force = drains.in_force(now)
        released = Released.of(drains.release_by_name(broker))
    if form == "json":
        json_out(released)
    if released.released is not None:
        print_note(form, f"Released: {drain_text(released.released, now)}.")
    elif released.filled is not None:
        print_note(form, f"Ended: the fill of {released.broker}, ordered by {released.filled.by}.")
    else:
        drained = f"; drained are {', '.join(sorted(in_force))}" if in_force else ""
        print_note(form, f"Nothing to release: {broker} is not drained{drained}.")
    return 0


def _apply(settings: Settings, request: DrainRequest | FillRequest, form: str, api_url: str | None) -> int:
    """Start the drain or fill and follow it to its end."""
    client = lbd_client(settings, api_url)
    work = _here(settings, request, form) if client is None else _there(client, request, form, api_url)
    if work is None:
        return INTERRUPTED
    if isinstance(work, int):
        return work
    print_result(form, work, work.sentence, lambda: _show_left(work))
    return work.exit_code


def _show_left(work: Work) -> None:
    for bundle in work.left[:LINES]:
        click.echo(remaining_text(bundle))


def _there(client: Client, request: DrainRequest | FillRequest, form: str, api_url: str | None) -> Work | int | None:
    """Run it in an lbd that runs."""
    from lbd.cli import remote  # noqa: PLC0415 - loaded only for an API

    started = remote.begin(client, request)
    if isinstance(started, RequestResult):
        _print_started(started, form)
        return started.exit_code
    click.echo(plain(started.sentence), err=True)
    try:
        with DrainProgressBar() as progress:
            return remote.watched(client, request, started, progress)
    except KeyboardInterrupt:
        there = reaching(api_url)
        ends = f"lbd drain {request.broker} --release{there} ends it"
        print_note(
            form, f"No longer watched: it goes on in {client.name}; lbd status{there} tells how far it is; {ends}."
        )
        return None
    except ObserveError as error:
        raise ObserveError(f"{error}; the next lbd goes on with the {request.kind} of {request.broker}") from error


def _here(settings: Settings, request: DrainRequest | FillRequest, form: str) -> Work | int | None:
    """Run it in this process, because no lbd runs."""
    from lbd.daemon import standalone  # noqa: PLC0415 - a running lbd needs no parts that act

    try:
        with (
            DrainProgressBar() as progress,
            standalone.draining(settings, lambda failed: _print_started(failed, form), progress) as work,
        ):
            answer, failed = work(request)
    except KeyboardInterrupt:
        ends = f"the next lbd run goes on with it; lbd drain {request.broker} --release ends it"
        rest = ends if request.kind == "drain" else "the fill is over"
        print_note(form, f"No longer watched: what was in flight was brought to its end; {rest}.")
        return None
    return answer.exit_code or failed


def _print_started(answer: RequestResult, form: str) -> None:
    """Report the start on stderr; stdout is for the end."""
    click.echo(plain(answer.sentence), err=answer.exit_code == 0 or form == "json")
