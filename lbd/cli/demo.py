"""``lbd demo``."""

from __future__ import annotations

import errno
import math
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console

from lbd.cli import demo_picture
from lbd.cli.demo_picture import Lines, Picture
from lbd.cli.options import Number
from lbd.cli.status_text import fitted, room
from lbd.config import ApiSettings, Settings
from lbd.demo import SPEED, stage
from lbd.errors import UsageError
from lbd.simulate.scenario import load, settled, shipped
from lbd.text import duration_text
from lbd.threads import begin_after

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.demo import Stage
    from lbd.simulate.scenario import Scenario

LONGEST_SECONDS = 3600
WANTED = ApiSettings()
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(epilog=f"Scenarios: {', '.join(shipped())}.")
@click.option(
    "--scenario",
    default="demo",
    show_default=True,
    metavar="NAME|FILE",
    help="Scenario to run: a shipped one or a YAML file.",
)
@click.option("--seconds", default=60.0, show_default=True, type=Number(1, LONGEST_SECONDS), help="How long to run.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of the scenario.")
@click.option("--serve", is_flag=True, help="Go on living afterwards, to try other commands.")
def demo(scenario: str, seconds: float, seed: int, *, serve: bool) -> None:
    """Watch lbd balance a simulated cluster: no Java, no network, nothing to set up.

    The daemon is the real one. It speaks HTTP with simulated brokers on loopback, whose responses are those of Pulsar;
    only time runs twelve times as fast. On a terminal the demo is a live picture, elsewhere one line per event.

    With --serve it then goes on at the pace of this machine's clock. Each simulated day of 24 minutes the bundles of
    another broker are busy, so lbd has something to move again and again.

    \b
    Example: lbd demo --serve
    """
    with _ending_quietly():
        chosen = load(scenario)
        _check(chosen, scenario, seconds)
        settings = settled(chosen, Settings(interval_seconds=15, api=ApiSettings(enabled=serve)), {})
        with stage(chosen, settings, seed, seconds) as running:
            _show(running, " ".join(chosen.about.split()), seconds, serve=serve)


def _check(chosen: Scenario, name: str, seconds: float) -> None:
    """Raise :class:`UsageError` if the demo would not show what the scenario is about."""
    longest = LONGEST_SECONDS * SPEED
    if chosen.hours * 3600 > longest:
        raise UsageError(
            f"{name}: lasts {duration_text(chosen.hours * 3600)} of the cluster's time, and a demo at most "
            f"{duration_text(longest)}; run it with: lbd simulate {name}"
        )
    first, shown = chosen.first_event_minutes, seconds * SPEED / 60
    if first is not None and first >= shown:
        enough_seconds = math.ceil(first * 60 / SPEED) + 30
        raise UsageError(
            f"{name}: nothing happens before minute {first:g} of the cluster's time, and {seconds:g} seconds show "
            f"{shown:g} minutes; wanted --seconds {enough_seconds} or more"
        )


def _show(running: Stage, about: str, seconds: float, *, serve: bool) -> None:
    """Show the demo until its time is over; with ``serve`` until it is stopped."""
    console, summarized = Console(highlight=False), threading.Event()
    ends_at = time.monotonic() + seconds
    shown = Picture(running, console, about, ends_at) if can_draw(console) else Lines(running, about)

    def over() -> None:
        if not serve:
            running.end()
            return
        summarized.set()
        running.live_on()
        shown.close()
        _go_on(running)

    cancelled = begin_after(seconds, over, "demo-end")
    try:
        running.run()
    finally:
        _end_only_once()
        cancelled.set()
        shown.close()
    if not summarized.is_set():
        _print_scorecard(running)
        click.echo(fitted(demo_picture.NEXT, room()))


def can_draw(console: Console) -> bool:
    """Whether the picture can be drawn: on a terminal that moves its cursor, with the characters of bars."""
    return console.is_terminal and not console.is_dumb_terminal and console.encoding.startswith("utf")


def _go_on(running: Stage) -> None:
    """Print the scorecard and commands to try, then a line for each further turn."""
    try:
        _print_scorecard(running)
        served = running.cluster.admin_urls[0], str(running.settings.state_dir), running.api, WANTED
        click.echo(fitted(demo_picture.serving(*served), room()))
    except OSError:
        running.end()  # nobody reads on
    else:
        Lines(running)


def _print_scorecard(running: Stage) -> None:
    """Print the scorecard, computed from the true state of the cluster."""
    card = demo_picture.card(running.truth.scorecard(running.settings), running.progress.gaps)
    console = Console(highlight=False)
    console.print(card, soft_wrap=not console.is_terminal)


def _end_only_once() -> None:
    """Ignore further signals: the rest takes a moment, and only an undisturbed end cleans everything up."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _ending_quietly() -> Iterator[None]:
    """Ctrl-C while the demo starts or stops is no error, and leaves nothing behind."""
    handled = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]  # as nohup leaves it
    before = [(number, signal.signal(number, signal.default_int_handler)) for number in handled]
    try:
        yield
    except KeyboardInterrupt:
        click.echo("Ended before it had begun.", err=True)
    except OSError as error:
        if error.errno != errno.EIO:  # the terminal is gone
            raise
    finally:
        for number, handler in before:
            signal.signal(number, handler)
