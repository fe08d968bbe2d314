"""``lbd drain`` and ``lbd fill``: a broker that is to own nothing, and one that is to get its share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from lbd.cli import drain_text as text
from lbd.cli.asking import by, handing, new_id, one_line, process, reason_of, say
from lbd.cli.drain_progress import Shown as Progress
from lbd.cli.drain_words import drain_words, left_words
from lbd.cli.operate import stands_by
from lbd.cli.options import api_option, format_option, override_option, settings_options, timeout_option
from lbd.cli.render import json_out, plain
from lbd.cli.times import duration
from lbd.errors import ObserveError, UsageError
from lbd.record.control import FAILED, REFUSED, DrainRequest, FillRequest
from lbd.record.drains import Drains
from lbd.record.status import running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lbd.api.client import Client
    from lbd.api.shapes import DrainPlan
    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.record.control import Answer
    from lbd.record.drains import Work

POLL_SECONDS = 0.5


@click.command("drain")
@click.argument("broker")
@click.option("--apply", "applies", is_flag=True, help="Drain it: move everything off, and prove that it owns nothing.")
@click.option("--release", is_flag=True, help="End its drain; what was moved stays where it is.")
@click.option(
    "--for", "seconds", callback=duration, metavar="DURATION", help="90m, 2h, ...; default drain.expires_hours."
)
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever meets the drain.")
@override_option
@click.option("--all", "everything", is_flag=True, help="Print every bundle.")
@timeout_option
@api_option
@format_option
@settings_options
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
    everything: bool,
) -> None:
    """Tell whether the others can do without BROKER (host:port), and where its bundles would go; with --apply move all
    of them off, several at once, and prove that it owns nothing.

    Until --release, its end or its restart the broker is in no pair, average or destination, and what Pulsar places on
    it is moved off again. A running lbd does it; Ctrl-C only ends the watching. Asked again, it goes on.
    Exit code 0 it can be spared or owns nothing, 4 refused or some bundles must stay, 5 a move failed or no answer.

    \b
    Example: lbd drain broker-3:8080 --apply --for 2h --reason "new disk"
    """
    if release and (applies or override is not None or seconds is not None):
        raise UsageError("--release ends a drain; --apply, --for and --override begin one")
    _check_apply(applies, override, seconds, reason)
    passes, settings = reason_of(override), read().settings
    elsewhere = _elsewhere(settings, api_url)
    if release:
        ctx.exit(_release(settings, broker, one_line(reason), form, elsewhere))
    if not applies:
        ctx.exit(_show_drain(settings, broker, form, elsewhere, everything=everything))
    name, now = new_id()
    asked = DrainRequest(name, broker, seconds, one_line(reason), passes, by(), now, now + timeout_seconds)
    ctx.exit(_apply(settings, asked, form, elsewhere))


@click.command("fill")
@click.argument("broker")
@click.option("--apply", "applies", is_flag=True, help="Move the slices, and prove where each bundle landed.")
@override_option
@click.option("--all", "everything", is_flag=True, help="Print every bundle.")
@timeout_option
@api_option
@format_option
@settings_options
@click.pass_context
def fill(
    ctx: click.Context,
    read: Read,
    form: str,
    broker: str,
    override: str | None,
    timeout_seconds: float,
    api_url: str | None,
    *,
    applies: bool,
    everything: bool,
) -> None:
    """Tell which bundles would bring BROKER (host:port) up to the cluster's mean, a slice of each broker above it; with
    --apply move them.

    Exit code 0 told or all landed, 4 refused, 5 a move failed or landed elsewhere, or no answer.

    \b
    Example: lbd fill broker-3:8080 --apply
    """
    _check_apply(applies, override, None, "")
    passes, settings = reason_of(override), read().settings
    elsewhere = _elsewhere(settings, api_url)
    if not applies:
        ctx.exit(_show_fill(settings, broker, form, elsewhere, everything=everything))
    name, now = new_id()
    ctx.exit(_apply(settings, FillRequest(name, broker, passes, by(), now, now + timeout_seconds), form, elsewhere))


def _check_apply(applies: bool, override: str | None, seconds: float | None, reason: str) -> None:
    if not applies and (override is not None or seconds is not None or reason):
        raise UsageError("--override, --for and --reason go with --apply; without it nothing is done")


def _elsewhere(settings: Settings, api_url: str | None) -> Client | None:
    """What asks the lbd whose API was named."""
    if api_url is None:
        return None
    from lbd.cli import remote  # noqa: PLC0415 - only who asks elsewhere needs what it loads

    return remote.client(api_url, settings)


def _show_drain(settings: Settings, broker: str, form: str, elsewhere: Client | None, *, everything: bool) -> int:
    found = _looked("drain", settings, broker, elsewhere)
    _show(found, form, text.drain_sentence(found, broker, time.time()), everything=everything)
    return REFUSED if found.cannot_spare or found.hold is not None or found.stay else 0


def _show_fill(settings: Settings, broker: str, form: str, elsewhere: Client | None, *, everything: bool) -> int:
    found = _looked("fill", settings, broker, elsewhere)
    _show(found, form, text.fill_sentence(found, broker), everything=everything)
    return REFUSED if found.hold is not None else 0


def _looked(kind: str, settings: Settings, broker: str, elsewhere: Client | None) -> DrainPlan:
    if elsewhere is not None:
        from lbd.cli import drain_remote  # noqa: PLC0415 - see _elsewhere

        return drain_remote.shown(elsewhere, kind, broker)
    from lbd.daemon.draining import showing  # noqa: PLC0415 - a wrong usage is told without NumPy

    look = showing.show_drain if kind == "drain" else showing.show_fill
    return showing.plan_of(look(settings, broker))


def _show(found: DrainPlan, form: str, sentence: str, *, everything: bool) -> None:
    if form == "json":
        json_out(found)
    else:
        text.show(found, everything=everything)
    say(form, sentence)


def _release(settings: Settings, broker: str, reason: str, form: str, elsewhere: Client | None) -> int:
    """As with a pause, removing the order ends it, whether a lbd runs or not."""
    now = time.time()
    if elsewhere is not None:
        from lbd.cli import drain_remote  # noqa: PLC0415 - see _elsewhere

        in_force = drain_remote.drained(elsewhere)
        found = drain_remote.release(elsewhere, broker, by(), reason)
        leader = drain_remote.stands_by(elsewhere)
    else:
        drains = Drains(settings.state_dir)
        in_force, found = drains.in_force(now), drains.release(broker)
        leader = stands_by(settings.state_dir, running(settings.state_dir))
    if form == "json":
        json_out({"released": found})
    if found is not None:
        say(form, f"Released: {drain_words(found, now)}.")
    else:
        known = f"; drained are {', '.join(sorted(in_force))}" if in_force else ""
        say(form, f"Nothing to release: {broker} is not drained{known}.")
    if leader is not None:
        say(form, f"It holds here only; {leader}: release it there.")
    return 0


def _apply(settings: Settings, request: DrainRequest | FillRequest, form: str, elsewhere: Client | None) -> int:
    """Begin it and watch it to its end."""
    pid = running(settings.state_dir) if elsewhere is None else None
    if elsewhere is not None:
        work = _by_api(elsewhere, request, form)
    elif pid is None:
        work = _here(settings, request, form)
    else:
        work = _there(settings, request, form, pid)
    if work is None:
        return FAILED
    if isinstance(work, int):
        return work
    if form == "json":
        json_out(work)
    else:
        for left in work.left[: text.LINES]:
            say(form, left_words(left))
    say(form, work.sentence)
    return work.exit_code


def _by_api(asked: Client, request: DrainRequest | FillRequest, form: str) -> Work | int | None:
    """In the lbd whose API was named."""
    from lbd.cli import drain_remote  # noqa: PLC0415 - see _elsewhere

    begun = drain_remote.begin(asked, request)
    click.echo(plain(begun.sentence), err=True)
    try:
        with Progress() as progress:
            return drain_remote.watched(asked, request, begun, progress)
    except KeyboardInterrupt:
        _interrupted(request, form, "it goes on in that lbd; lbd status --api tells how far it is")
        return None


def _here(settings: Settings, request: DrainRequest | FillRequest, form: str) -> Work | int | None:
    """In this process, where no lbd runs."""
    from lbd.daemon import byhand  # noqa: PLC0415 - a running lbd is asked without the parts that act

    try:
        with Progress() as progress, byhand.draining(settings, lambda found: _begun(found, form), progress) as work:
            answer, found = work(request)
    except KeyboardInterrupt:
        _interrupted(request, form, "what was in flight was brought to its end; the next lbd run goes on with a drain")
        return None
    return answer.exit_code or found


def _there(settings: Settings, request: DrainRequest | FillRequest, form: str, pid: int) -> Work | int | None:
    """In the running lbd."""
    with handing(settings) as hand_over:
        answer = hand_over(request)
    _begun(answer, form)
    if answer.exit_code:
        return answer.exit_code
    try:
        with Progress() as progress:
            return _watched(settings.state_dir, request, progress)
    except KeyboardInterrupt:
        _interrupted(request, form, f"it goes on in {process(pid)}; lbd status tells how far it is")
        return None


def _begun(answer: Answer, form: str) -> None:
    """What is only begun is told beside its end, which stdout is for."""
    click.echo(plain(answer.sentence), err=answer.exit_code == 0 or form == "json")


def _interrupted(request: DrainRequest | FillRequest, form: str, told: str) -> None:
    ends = f"; lbd drain {request.broker} --release ends it" if isinstance(request, DrainRequest) else ""
    say(form, f"No longer watched: {told}{ends}.")


def _watched(state_dir: Path, request: DrainRequest | FillRequest, progress: Callable[[Work], None]) -> Work:
    """How it ended. Raises :class:`ObserveError` when nobody works on it any more."""
    drains = Drains(state_dir)
    while True:
        works = drains.works()
        work = works.drains.get(request.broker) if isinstance(request, DrainRequest) else works.fill
        if work is not None and work.broker == request.broker and (work.ended_at or request.at) >= request.at:
            progress(work)
            if work.ended_at is not None:
                return work
        if running(state_dir) is None:
            drains_on = f"the next one goes on with the drain of {request.broker}"
            after = drains_on if isinstance(request, DrainRequest) else f"ask for the filling of {request.broker} again"
            raise ObserveError(f"{state_dir}: lbd has stopped; {after}")
        time.sleep(POLL_SECONDS)
