"""``lbd status``, ``lbd pause`` and ``lbd resume``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from lbd.cli import status_text as text
from lbd.cli.options import api_option, duration, format_option, remote_options, settings_options, settings_to_look
from lbd.cli.render import json_out
from lbd.cli.request import api_client, by, orders_client, print_note, process, reason_option
from lbd.errors import ObserveError, UsageError
from lbd.store.control import Control, Pause
from lbd.store.drains import drains_in_force
from lbd.store.orders import Orders
from lbd.store.status import after_its_end, document, in_force, read_status, running, unwritable

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.store.status import Status


WATCHED_EVERY_SECONDS = 2.0


@click.command("status")
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@remote_options
def status(read: Read, form: str, api_url: str | None, *, watch: bool) -> None:
    """Show whether lbd runs, what its last turn saw and did, moves in flight, drains and a pause.

    Exit code 3 if no lbd runs on the state directory, or if its last turn is older than three intervals and half a
    minute.

    \b
    Example: lbd status --format json
    """
    settings = settings_to_look(read)
    if not watch:
        _show(settings, form, api_url)
        return
    if form == "json":
        raise UsageError("--watch: shows text; wanted it without --format json")
    try:
        while True:
            click.clear()
            try:
                _show(settings, form, api_url)
            except ObserveError as error:
                click.echo(str(error), err=True)
            time.sleep(WATCHED_EVERY_SECONDS)
    except KeyboardInterrupt:
        return


def _show(settings: Settings, form: str, api_url: str | None) -> None:
    """Print the status. Raises :class:`ObserveError` where no lbd runs, or where its last turn is late."""
    now, pid = time.time(), None
    if (client := api_client(settings, api_url)) is not None:
        from lbd.cli import remote  # noqa: PLC0415 - loaded only for --api

        last, pause, now, drains = remote.status(client)
        pid, where = last.pid, api_url
    else:
        pid = running(settings.state_dir)
        last, where = _last_turn(settings.state_dir, pid), process(pid or 0)
        last, pause = in_force(last, Control(settings.state_dir), now)
        drains = drains_in_force(settings.state_dir, now)
    if form == "json":
        json_out(document(last, pid, pause, now, drains))
    else:
        text.show_status(last, pid, pause, now, drains)
    age = text.freshness(last, pid, now)
    if pid is None:
        raise ObserveError(f"{settings.state_dir}: no lbd runs on this state directory; {age}")
    if last.late(now):
        untold = "" if api_url else _untold(settings.state_dir)
        raise ObserveError(f"{where}: {age}{untold}")


def _untold(state_dir: Path) -> str:
    """The note for a late status: if the disk is the cause, turns continue and the log says so."""
    trouble = unwritable(state_dir)
    return f"; {state_dir} {trouble}, so later turns cannot be shown: see lbd's log" if trouble else ""


def _last_turn(state_dir: Path, pid: int | None) -> Status:
    try:
        last = read_status(state_dir)
    except UsageError as error:
        raise ObserveError(f"{process(pid)} runs, but {error}" if pid is not None else str(error)) from error
    return last if pid is not None else after_its_end(last, state_dir)


@click.command("pause")
@api_option
@click.option(
    "--for",
    "seconds",
    callback=duration,
    metavar="DURATION",
    help="How long: 90s, 15m, 2h, ...  [default: until lbd resume]",
)
@reason_option
@click.option("--for-next", is_flag=True, help="If no lbd runs here, pause the next one that starts.")
@format_option
@settings_options
def pause(read: Read, form: str, seconds: float | None, reason: str, api_url: str | None, *, for_next: bool) -> None:
    """Stop all moves, also over restarts. lbd keeps observing and counting.

    Exit code 3 if no lbd runs on the state directory; nothing is paused then without --for-next.

    \b
    Example: lbd pause --for 2h --reason "broker upgrade"
    """
    settings, now = read().settings, time.time()
    state_dir = settings.state_dir
    order = Pause(now, now + seconds if seconds is not None else None, reason, by())
    pid: int | None
    if (client := orders_client(settings, api_url)) is not None:
        from lbd.cli import remote  # noqa: PLC0415 - loaded only for an API

        order, replaced, pid = remote.pause(client, order)
        leader = remote.remote_leader(client)
    else:
        pid = running(state_dir)
        if pid is None and not for_next:
            problem = "no lbd runs on this state directory, and nothing was paused; --for-next pauses the next one"
            raise ObserveError(f"{state_dir}: {problem}")
        (order, replaced), leader = orders_here(settings).pause(order), None
    if form == "json":
        json_out({"paused": order, "replaced": replaced, "running": pid})
    print_note(form, f"Paused {text.pause_text(order, now)}.")
    if replaced is not None:
        print_note(form, f"This replaces the pause {text.pause_text(replaced, now, in_force=False)}.")
    if pid is None:
        print_note(form, f"No lbd is running on {state_dir}; the pause holds for the next one.")
    if leader is not None:
        print_note(form, f"It holds here, and for all once this lbd leads; {leader}.")


@click.command("resume")
@reason_option
@remote_options
def resume(read: Read, form: str, reason: str, api_url: str | None) -> None:
    """End a pause, and the holds of bundles that are not served, or that moved while lbd was away (changed-hands).

    \b
    Example: lbd resume --reason "upgrade is done"
    """
    settings, now = read().settings, time.time()
    state_dir = settings.state_dir
    pid: int | None
    if (client := orders_client(settings, api_url)) is not None:
        from lbd.cli import remote  # noqa: PLC0415 - loaded only for an API

        holds = remote.ended_by_resume(client)
        in_force, pid = remote.resume(client, by(), reason)
        last = None
    else:
        control = orders_here(settings)
        in_force, holds = control.paused(now), _ended_by_resume(state_dir)
        last, pid = control.go_on(now, by(), reason), running(state_dir)
    if form == "json":
        json_out({"ended": in_force, "holds": holds, "running": pid})
    if in_force is not None:
        print_note(form, f"Ended the pause {text.pause_text(in_force, now, in_force=False)}.")
    elif last is not None:
        print_note(form, f"Nothing was paused: the pause {text.pause_text(last, now)}.")
    elif not holds:
        print_note(form, "Nothing was paused.")
    for hold in holds:
        print_note(form, f"Ended the hold {hold}.")
    if pid is None:
        print_note(form, f"No lbd is running on {state_dir}.")


def orders_here(settings: Settings) -> Control:
    """The orders of the state directory, as a command may change them where no lbd takes them."""
    return Control(settings.state_dir, Orders(settings.state_dir, shared=settings.leader.enabled))


def _ended_by_resume(state_dir: Path) -> list[str]:
    """The holds that a resume ends, as of the last turn, as far as is known."""
    try:
        return read_status(state_dir).ended_by_resume
    except UsageError:
        return []
