"""``lbd status``, ``pause``, ``resume`` and ``unload``: what people on call do with a running lbd."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
import msgspec

from lbd.cli import operate_text as text
from lbd.cli.asking import asked, by, new_id, one_line, process, reason_of, say
from lbd.cli.options import format_option, loaded, settings_options
from lbd.cli.render import json_out
from lbd.cli.times import duration
from lbd.errors import ObserveError, UsageError
from lbd.pulsar.paths import bounds
from lbd.record.control import Control, Pause, UnloadRequest
from lbd.record.status import read_status, running

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.record.control import Answer


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
    pause = Control(state_dir).paused(now)
    if form == "json":
        extra = {"running": pid, "late": found.late(now), "age_seconds": round(now - found.at, 1), "paused": pause}
        json_out({**msgspec.to_builtins(found), **extra})
    else:
        text.show_status(found, pid, pause, now)
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


@click.command("unload")
@click.argument("bundle")
@click.option("--to", "destination", required=True, metavar="BROKER", help="host:port of the broker to own it.")
@click.option("--override", metavar="REASON", help="Pass limits such as cool-downs and a pause; safety rules stay.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=1),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="Wait so long for a running lbd to answer.",
)
@format_option
@settings_options
@click.pass_context
def unload(
    ctx: click.Context,
    config_file: str | None,
    admin_urls: tuple[str, ...],
    form: str,
    bundle: str,
    destination: str,
    override: str | None,
    timeout_seconds: float,
) -> None:
    """Move BUNDLE (tenant/namespace/0xLLLLLLLL_0xUUUUUUUU) to a broker at once, and prove that it landed there.

    A running lbd does it with its own checks and journal; with none running this command does it itself.
    Exit code 0 landed, 4 refused, 5 failed, landed elsewhere, or no answer in time.

    \b
    Example: lbd unload public/default/0x00000000_0x40000000 --to broker-3:8080
    """
    bounds(bundle)
    settings = loaded(ctx, config_file, admin_urls).settings
    request = _request(bundle, destination, override, timeout_seconds)
    pid = running(settings.state_dir)
    answer = _by_hand(settings, request) if pid is None else asked(settings.state_dir, request, pid)
    if form == "json":
        json_out(answer)
    say(form, answer.sentence)
    ctx.exit(answer.exit_code)


def _request(bundle: str, destination: str, override: str | None, timeout_seconds: float) -> UnloadRequest:
    reason = reason_of(override)
    name, now = new_id()
    return UnloadRequest(name, bundle, one_line(destination), reason, by(), now, now + timeout_seconds)


def _by_hand(settings: Settings, request: UnloadRequest) -> Answer:
    from lbd.daemon import byhand  # noqa: PLC0415 - a running lbd is asked without the parts that act

    return byhand.unload(settings, request)
