"""``lbd status``, ``pause``, ``resume`` and ``unload``: what people on call do with a running lbd."""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING

import click
import msgspec

from lbd.cli import operate_text as text
from lbd.cli.options import format_option, loaded, settings_options
from lbd.cli.render import json_out, plain
from lbd.cli.times import duration, spoken
from lbd.errors import ObserveError, UsageError
from lbd.files import user_name
from lbd.pulsar.paths import bounds
from lbd.record.control import FAILED, Answer, Control, Pause, UnloadRequest
from lbd.record.status import read_status, running

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.config import Settings


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
        raise (error if pid is None else ObserveError(f"{_process(pid)} runs, but {error}")) from error
    pause = Control(state_dir).paused(now)
    if form == "json":
        extra = {"running": pid, "late": found.late(now), "age_seconds": round(now - found.at, 1), "paused": pause}
        json_out({**msgspec.to_builtins(found), **extra})
    else:
        text.show_status(found, pid, pause, now)
    if pid is None:
        raise ObserveError(f"{state_dir}: no lbd runs on this state directory; {text.freshness(found, pid, now)}")
    if found.late(now):
        raise ObserveError(f"{_process(pid)}: {text.freshness(found, pid, now)}")


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
    wanted = Pause(now, now + seconds if seconds is not None else None, _one_line(reason), _by())
    replaced, pid = Control(state_dir).pause(wanted), running(state_dir)
    if form == "json":
        json_out({"paused": wanted, "replaced": replaced, "running": pid})
    _say(form, f"Paused {text.pause_words(wanted, now)}.")
    if replaced is not None:
        _say(form, f"This replaces the pause {text.pause_words(replaced, now, in_force=False)}.")
    if pid is None:
        _say(form, f"No lbd is running on {state_dir}; the pause holds for the next one.")


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
        _say(form, f"Ended the pause {text.pause_words(in_force, now, in_force=False)}.")
    elif found is not None:
        _say(form, f"Nothing was paused: the pause {text.pause_words(found, now)}.")
    else:
        _say(form, "Nothing was paused.")
    if pid is None:
        _say(form, f"No lbd is running on {state_dir}.")


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
    answer = _by_hand(settings, request) if pid is None else _ask(settings.state_dir, request, pid)
    if form == "json":
        json_out(answer)
    _say(form, answer.sentence)
    ctx.exit(answer.exit_code)


def _request(bundle: str, destination: str, override: str | None, timeout_seconds: float) -> UnloadRequest:
    reason = _one_line(override) if override is not None else None
    if reason == "":
        raise UsageError("--override: the reason is empty; say why limits may be passed")
    now = time.time()
    name = f"{int(now * 1000):x}-{os.getpid():x}-{secrets.token_hex(4)}"
    return UnloadRequest(name, bundle, _one_line(destination), reason, _by(), now, now + timeout_seconds)


def _by_hand(settings: Settings, request: UnloadRequest) -> Answer:
    from lbd.daemon import byhand  # noqa: PLC0415 - a running lbd is asked without the parts that act

    return byhand.unload(settings, request)


def _ask(state_dir: Path, request: UnloadRequest, pid: int) -> Answer:
    control, seconds = Control(state_dir), request.expires_at - request.at
    control.ask(request)
    click.echo(f"Asked {_process(pid)}; waiting up to {spoken(seconds)} for its answer.", err=True)
    answered = False
    try:
        answer = control.wait(request.id, seconds, time.sleep, time.monotonic)
        answered = answer is not None
    finally:
        untouched = not answered and control.withdraw(request.id)
    if answer is not None:
        return answer
    so_far = "withdrew the request, nothing was done" if untouched else "it is under way, see lbd history"
    return Answer(FAILED, f"No answer from {_process(pid)} in {spoken(seconds)}: {so_far}.", id=request.id)


def _say(form: str, sentence: str) -> None:
    """Words go to stderr where stdout carries JSON."""
    click.echo(plain(sentence), err=form == "json")


def _one_line(words: str) -> str:
    return " ".join(plain(words).split())


def _by() -> str:
    """Who asks: behind sudo, the person."""
    return _one_line(os.environ.get("SUDO_USER") or user_name(os.getuid()))


def _process(pid: int) -> str:
    return f"lbd (process {pid or '?'})"
