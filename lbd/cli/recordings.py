"""``lbd record`` and ``lbd replay``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lbd.cli.options import Number, assignment, format_option, recording_header, settings_options
from lbd.cli.render import plain
from lbd.decide.strategies import STRATEGIES
from lbd.errors import ObserveError
from lbd.operations.parts import observing
from lbd.place.placements import PLACEMENTS
from lbd.replay import Replayed
from lbd.replay import replay as run_replay
from lbd.replay import rounds as rounds_of
from lbd.store import recording
from lbd.text import DAY_SECONDS, counted

if TYPE_CHECKING:
    from lbd.cli.options import Read


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rounds", type=click.IntRange(min=1), help="Number of rounds to record.  [default: until Ctrl-C]")
@click.option(
    "--interval",
    "interval_seconds",
    type=Number(0, DAY_SECONDS, min_open=True),
    help="Seconds between rounds.  [default: interval_seconds]",
)
@settings_options
def record(read: Read, file: Path, rounds: int | None, interval_seconds: float | None) -> None:
    """Record load reports to FILE (.jsonl or .jsonl.gz), as the brokers send them.

    \b
    Example: lbd record --rounds 60 monday.jsonl.gz
    """
    settings = read().settings
    interval = interval_seconds or settings.interval_seconds
    header = recording_header(file, settings, interval, "lbd record")
    with observing(settings, keep_raw=True) as observer:
        first = observer.observe()
        with recording.create(file, header) as writer:
            writer.round(first.snapshot.taken_at, first.raw)
            written = 1 + _further(observer, writer, interval, rounds)
    click.echo(f"{counted(written, 'round')} of {counted(len(first.raw), 'broker')} in {file}", err=True)


def _further(observer: Any, writer: recording.RecordingWriter, interval: float, rounds: int | None) -> int:  # noqa: ANN401
    """Rounds after the first. A failed round is reported and skipped; Ctrl-C is the normal end."""
    written, planned = 0, time.monotonic()
    try:
        while rounds is None or written < rounds - 1:
            planned += interval
            time.sleep(max(0.0, planned - time.monotonic()))
            try:
                observation = observer.observe()
            except ObserveError as error:
                click.echo(f"round left out: {error}", err=True)
                continue
            writer.round(observation.snapshot.taken_at, observation.raw)
            written += 1
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    return written


@click.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--strategy", type=click.Choice(list(STRATEGIES)), help="Strategy to run.  [default: the one of the recording]"
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the strategy, for example hit_count_low=4.",
)
@click.option(
    "--profile",
    type=click.Choice(["stock", "live"]),
    default="stock",
    show_default=True,
    help="stock: exactly as Pulsar; live: with lbd's own rules.",
)
@click.option(
    "--placement",
    type=click.Choice(list(PLACEMENTS)),
    help="Placement for moves without a destination.  [default: none]",
)
@format_option
def replay(
    files: tuple[Path, ...],
    strategy: str | None,
    overrides: tuple[str, ...],
    profile: str,
    placement: str | None,
    form: str,
) -> None:
    """Run a strategy over recordings, and print the unloads of each round.

    \b
    Example: lbd replay --strategy threshold-shedder --placement least-resource-usage-with-weight monday.jsonl.gz
    """
    settings = dict(map(assignment, overrides))
    rounds = unloads = 0
    for file in files:
        stock = profile == "stock"
        for replayed in run_replay(rounds_of(file), strategy, settings, stock=stock, placement=placement):
            _print_replay(replayed, form)
            rounds, unloads = rounds + 1, unloads + len(replayed.decision.unloads)
    click.echo(f"{counted(rounds, 'round')}, {counted(unloads, 'unload')}", err=True)


def _print_replay(replayed: Replayed, form: str) -> None:
    unloads = sorted(replayed.decision.unloads, key=lambda unload: unload.bundle)
    if form == "json":
        moves = [{"bundle": u.bundle, "source": u.source, "destination": u.destination} for u in unloads]
        line = msgspec.json.encode({"id": replayed.id, "round": replayed.round, "unloads": moves})
        sys.stdout.write(line.decode() + "\n")
        return
    for unload in unloads:
        move = f"{unload.bundle} {unload.source} -> {unload.destination or '(the broker chooses)'} ({unload.reason})"
        click.echo(plain(f"{replayed.id} round {replayed.round}: {move}"))
