"""``lbd status``, ``pause`` and ``resume``: what people on call do with a running lbd."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from lbd.cli import operate_text as text
from lbd.cli.asking import by, one_line, process, say
from lbd.cli.options import api_option, format_option, settings_options
from lbd.cli.render import json_out
from lbd.cli.times import duration
from lbd.errors import ObserveError, UsageError
from lbd.record.control import Control, Pause
from lbd.record.drains import told_of
from lbd.record.left_open import after_its_end
from lbd.record.status import document, read_status, running, standby_words, unwritable

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.cli.options import Read
    from lbd.record.status import Status


@click.command("status")
@api_option
@format_option
@settings_options
def status(read: Read, form: str, api_url: str | None) -> None:
    """Tell whether lbd runs, what its last turn saw and did, what is under way, and who paused it.

    Exit code 3 when none runs on the state directory, or its last turn is more than three intervals (and half a minute)
    old.

    \b
    Example: lbd status --format json
    """
    settings, now, pid = read().settings, time.time(), None
    if api_url is not None:
        from lbd.cli import remote  # noqa: PLC0415 - only who asks elsewhere needs what it loads

        found, pause, now, drains = remote.status(remote.client(api_url, settings))
        pid, where = found.pid, api_url
    else:
        pid = running(settings.state_dir)
        found, where = _last_turn(settings.state_dir, pid), process(pid or 0)
        pause, drains = Control(settings.state_dir).paused(now), told_of(settings.state_dir, now)
    if form == "json":
        json_out(document(found, pid, pause, now, drains))
    else:
        text.show_status(found, pid, pause, now, drains)
    told = text.freshness(found, pid, now)
    if pid is None:
        raise ObserveError(f"{settings.state_dir}: no lbd runs on this state directory; {told}")
    if found.late(now):
        untold = "" if api_url else _untold(settings.state_dir)
        raise ObserveError(f"{where}: {told}{untold}")


def _untold(state_dir: Path) -> str:
    """What to do about a late turn, where the disk is why: the turns go on, and say so in the log."""
    trouble = unwritable(state_dir)
    return f"; {state_dir} {trouble}, so later turns cannot be shown: see lbd's log" if trouble else ""


def _last_turn(state_dir: Path, pid: int | None) -> Status:
    try:
        found = read_status(state_dir)
    except UsageError as error:
        raise (error if pid is None else ObserveError(f"{process(pid)} runs, but {error}")) from error
    return found if pid is not None else after_its_end(found, state_dir)


@click.command("pause")
@api_option
@click.option(
    "--for", "seconds", callback=duration, metavar="DURATION", help="90s, 15m, 2h, ...; else until lbd resume."
)
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever meets the pause.")
@format_option
@settings_options
def pause(read: Read, form: str, seconds: float | None, reason: str, api_url: str | None) -> None:
    """Keep lbd from moving anything, also over restarts; it goes on observing and counting.

    \b
    Example: lbd pause --for 2h --reason "broker upgrade"
    """
    settings, now = read().settings, time.time()
    state_dir = settings.state_dir
    wanted = Pause(now, now + seconds if seconds is not None else None, one_line(reason), by())
    pid: int | None
    if api_url is not None:
        from lbd.cli import remote  # noqa: PLC0415 - only who asks elsewhere needs what it loads

        asked = remote.client(api_url, settings)
        wanted, replaced, pid = remote.pause(asked, wanted)
        leader = remote.stands_by(asked)
    else:
        replaced, pid = Control(state_dir).pause(wanted), running(state_dir)
        leader = stands_by(state_dir, pid)
    if form == "json":
        json_out({"paused": wanted, "replaced": replaced, "running": pid})
    say(form, f"Paused {text.pause_words(wanted, now)}.")
    if replaced is not None:
        say(form, f"This replaces the pause {text.pause_words(replaced, now, in_force=False)}.")
    if pid is None:
        say(form, f"No lbd is running on {state_dir}; the pause holds for the next one.")
    if leader is not None:
        say(form, f"It holds here, and for all once this lbd leads; {leader}: pause that one, too.")


@click.command("resume")
@api_option
@format_option
@settings_options
def resume(read: Read, form: str, api_url: str | None) -> None:
    """End a pause.

    \b
    Example: lbd resume
    """
    settings, now = read().settings, time.time()
    state_dir = settings.state_dir
    pid: int | None
    if api_url is not None:
        from lbd.cli import remote  # noqa: PLC0415 - only who asks elsewhere needs what it loads

        asked = remote.client(api_url, settings)
        in_force, pid = remote.resume(asked, by())
        found, leader = None, remote.stands_by(asked)
    else:
        control = Control(state_dir)
        in_force = control.paused(now)
        found, pid = control.resume(), running(state_dir)
        leader = stands_by(state_dir, pid)
    if form == "json":
        json_out({"ended": in_force, "running": pid})
    if in_force is not None:
        say(form, f"Ended the pause {text.pause_words(in_force, now, in_force=False)}.")
    elif found is not None:
        say(form, f"Nothing was paused: the pause {text.pause_words(found, now)}.")
    else:
        say(form, "Nothing was paused.")
    if pid is None:
        say(form, f"No lbd is running on {state_dir}.")
    if leader is not None:
        say(form, f"It holds here only; {leader}: resume that one.")


def stands_by(state_dir: Path, pid: int | None) -> str | None:
    """Who leads, where the lbd that runs here does not, as its last turn tells it."""
    if pid is None:
        return None
    try:
        return standby_words(read_status(state_dir))
    except UsageError:  # it has ended no turn yet
        return None
