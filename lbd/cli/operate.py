"""``lbd status``, ``pause`` and ``resume``: what people on call do with a running lbd."""

from __future__ import annotations

import time

import click
import msgspec

from lbd.cli import operate_text as text
from lbd.cli.asking import by, one_line, process, say
from lbd.cli.options import format_option, loaded, settings_options
from lbd.cli.render import json_out
from lbd.cli.times import duration
from lbd.errors import ObserveError, UsageError
from lbd.record.control import Control, Pause
from lbd.record.drains import told_of
from lbd.record.status import read_status, running


@click.command("status")
@format_option
@settings_options
@click.pass_context
def status(ctx: click.Context, config_file: str | None, admin_urls: tuple[str, ...], form: str) -> None:
    """Tell whether lbd runs, what its last turn saw and did, what is under way, and who paused it.

    Exit code 3 when none runs on the state directory, or its last turn is more than three intervals old.

    \b
    Example: lbd status --format json
    """
    state_dir, now = loaded(ctx, config_file, admin_urls).settings.state_dir, time.time()
    pid = running(state_dir)
    try:
        found = read_status(state_dir)
    except UsageError as error:
        raise (error if pid is None else ObserveError(f"{process(pid)} runs, but {error}")) from error
    pause, drains = Control(state_dir).paused(now), told_of(state_dir, now)
    if form == "json":
        extra = {"running": pid, "late": found.late(now), "age_seconds": round(now - found.at, 1), "paused": pause}
        drained = [{"drain": drain, "work": work} for drain, work in drains]
        json_out({**msgspec.to_builtins(found), **extra, "drains": drained})
    else:
        text.show_status(found, pid, pause, now, drains)
    if pid is None:
        raise ObserveError(f"{state_dir}: no lbd runs on this state directory; {text.freshness(found, pid, now)}")
    if found.late(now):
        raise ObserveError(f"{process(pid)}: {text.freshness(found, pid, now)}")


@click.command("pause")
@click.option(
    "--for", "seconds", callback=duration, metavar="DURATION", help="90s, 15m, 2h, ...; else until lbd resume."
)
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever meets the pause.")
@format_option
@settings_options
@click.pass_context
def pause(
    ctx: click.Context,
    config_file: str | None,
    admin_urls: tuple[str, ...],
    form: str,
    seconds: float | None,
    reason: str,
) -> None:
    """Keep lbd from moving anything, also over restarts; it goes on observing and counting.

    \b
    Example: lbd pause --for 2h --reason "broker upgrade"
    """
    state_dir, now = loaded(ctx, config_file, admin_urls).settings.state_dir, time.time()
    wanted = Pause(now, now + seconds if seconds is not None else None, one_line(reason), by())
    replaced, pid = Control(state_dir).pause(wanted), running(state_dir)
    if form == "json":
        json_out({"paused": wanted, "replaced": replaced, "running": pid})
    say(form, f"Paused {text.pause_words(wanted, now)}.")
    if replaced is not None:
        say(form, f"This replaces the pause {text.pause_words(replaced, now, in_force=False)}.")
    if pid is None:
        say(form, f"No lbd is running on {state_dir}; the pause holds for the next one.")


@click.command("resume")
@format_option
@settings_options
@click.pass_context
def resume(ctx: click.Context, config_file: str | None, admin_urls: tuple[str, ...], form: str) -> None:
    """End a pause.

    \b
    Example: lbd resume
    """
    state_dir, now = loaded(ctx, config_file, admin_urls).settings.state_dir, time.time()
    control = Control(state_dir)
    in_force = control.paused(now)
    found, pid = control.resume(), running(state_dir)
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
