"""``lbd demo``."""

from __future__ import annotations

import errno
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console

from lbd.api.settings import ApiSettings
from lbd.cli import demo_text
from lbd.cli.demo_shown import Lines, Picture
from lbd.cli.options import Number
from lbd.config import Settings
from lbd.demo.stage import stage
from lbd.simulate.scenario import load, shipped
from lbd.simulate.settings import settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.demo.stage import Stage

LONGEST_SECONDS = 3600
WANTED = ApiSettings()
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(epilog=f"Scenarios: {', '.join(shipped())}.")
@click.option("--scenario", default="demo", show_default=True, metavar="NAME|FILE", help="Shipped, or one of your own.")
@click.option("--seconds", default=60.0, show_default=True, type=Number(1, LONGEST_SECONDS), help="How long.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="The same seed, the same cluster."
)
@click.option("--serve", is_flag=True, help="Keep it up afterwards, to try other commands on it.")
def demo(scenario: str, seconds: float, seed: int, *, serve: bool) -> None:
    """Watch lbd balance a simulated cluster: no Java, no network, nothing to set up.

    The daemon is the real one, and speaks HTTP with brokers on loopback, each of which answers as Pulsar's do; only the
    time of both runs twelve times as fast. On a terminal it is drawn, elsewhere told line by line.

    \b
    Example: lbd demo --serve
    """
    with _ending_quietly():
        chosen = load(scenario)
        settings = settled(chosen, Settings(interval_seconds=15, api=ApiSettings(enabled=serve)), {})
        with stage(chosen, settings, seed, seconds) as found:
            _show(found, " ".join(chosen.about.split()), seconds, serve=serve)


def _show(found: Stage, about: str, seconds: float, *, serve: bool) -> None:
    """Until the time is over; with ``serve`` until somebody ends it."""
    console, told = Console(highlight=False), threading.Event()
    drawn = console.is_terminal and not console.is_dumb_terminal and console.encoding.startswith("utf")
    ends_at = time.monotonic() + seconds
    shown = Picture(found, console, about, ends_at) if drawn else Lines(found, about)

    def over() -> None:
        if not serve:
            found.end()
            return
        told.set()
        found.slow_down()
        shown.close()
        _go_on(found)

    timer = threading.Timer(seconds, over)
    timer.start()
    try:
        found.run()
    finally:
        _end_only_once()
        timer.cancel()
        shown.close()
    if not told.is_set():
        _tell(found)
        click.echo(demo_text.NEXT)


def _go_on(found: Stage) -> None:
    """The scorecard, what can be tried now, and a line for each turn from now on."""
    try:
        _tell(found)
        click.echo(demo_text.serving(found.cluster.admin_urls[0], str(found.settings.state_dir), found.api, WANTED))
    except OSError:
        found.end()  # nobody reads on
    else:
        Lines(found)


def _tell(found: Stage) -> None:
    """The scorecard, of what is true of the cluster."""
    Console(highlight=False, soft_wrap=True).print(demo_text.card(found.truth.scorecard(found.settings)))


def _end_only_once() -> None:
    """What is left is over in a moment, and leaves nothing behind only if it is let."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _ending_quietly() -> Iterator[None]:
    """Who ends it while it starts or stops is no error, and nothing is left behind."""
    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]  # as nohup leaves it
    before = [(number, signal.signal(number, signal.default_int_handler)) for number in heard]
    try:
        yield
    except KeyboardInterrupt:
        click.echo("Ended before it had begun.", err=True)
    except OSError as error:
        if error.errno != errno.EIO:  # the terminal is gone: nobody is there to be told
            raise
    finally:
        for number, handler in before:
            signal.signal(number, handler)
