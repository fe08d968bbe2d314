"""``lbd simulate``: run lbd on a simulated cluster, print the scorecard, write a page of charts and a recording."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import TextColumn
from rich.text import Text

from lbd.cli import render
from lbd.cli.options import (
    LONGEST_HOURS,
    Number,
    assignment,
    format_option,
    new_directory,
    recording_header,
    settings_options,
)
from lbd.cli.progress import passing
from lbd.decide.strategies import STRATEGIES
from lbd.errors import UsageError
from lbd.score.scorecard import EVENNESS, FIGURES, WHEN, clock, figures, spread, transfers
from lbd.simulate.run import Finished, estimated_bytes, finish, load_reports
from lbd.simulate.scenario import load, settled, shipped
from lbd.store import recording
from lbd.text import HOUR_SECONDS, counted, duration_text, minutes_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.score.scorecard import Scorecard, Trace
    from lbd.simulate.run import Turned
    from lbd.simulate.scenario import Scenario


def write_page(path: Path, text: str) -> None:
    """Write the page of a report, and print where it is."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--report: {path}: cannot be written: {error.strerror}") from error
    click.echo(f"report: {path}", err=True)


@contextmanager
def recorder(
    path: Path | None, name: str, scenario: Scenario, settings: Settings, seed: int
) -> Iterator[Callable[[Turned], None]]:
    """A callable that records each turn's reports. The expected file size is printed after the first one."""
    if path is None:
        yield lambda _: None
        return
    rounds = int(scenario.hours * 3600 // settings.interval_seconds) + 1
    source = f"lbd simulate {name} --seed {seed}"
    header = recording_header(path, settings, settings.interval_seconds, source)
    with recording.create(path, header) as writer:

        def keep(turned: Turned) -> None:
            assert turned.record.observation is not None
            snapshot = turned.record.observation.snapshot
            if turned.seconds == 0:
                packed = path.suffix == ".gz"
                size = _amount(estimated_bytes(snapshot, rounds, packed=packed))
                less = " or less" if packed else ""
                click.echo(f"recording {counted(rounds, 'round')} in {path}: about {size}{less}", err=True)
            writer.round(snapshot.taken_at, load_reports(snapshot))

        yield keep


def _amount(size: int) -> str:
    factor, unit = (1e9, "GB") if size >= 1e9 else (1e6, "MB")
    return f"{size / factor:,.1f} {unit}" if size >= 1e5 else f"{size / 1e3:,.0f} kB"


# --- runs as text


def as_text(runs: Sequence[Finished]) -> None:
    """Print one run in full, or the spread of several."""
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else render.WIDE)
    first = runs[0]
    seeds = f"seed {first.seed}" if len(runs) == 1 else f"seeds {first.seed} to {runs[-1].seed}"
    console.print(Text(f"{first.label}, {seeds}: {' '.join(first.scenario.about.split())}", "bold"))
    if first.scenario.stock:
        console.print(Text(f"Pulsar alone: {' '.join(first.scenario.stock.split())}", "dim"))
    (_one if len(runs) == 1 else _several)(console, runs)


def _one(console: Console, runs: Sequence[Finished]) -> None:
    (run,) = runs
    if run.trace.moves:
        console.print(_moves(run.trace))
    if run.trace.splits:
        console.print(_splits(run.trace))
    console.print(_evenness(run.card))
    for line in (*_moving(run.card), *_times(run.card, run.settings), *_costs(run)):
        console.print(Text(line))
    console.print(Text(run.conclusion, "bold"))


def _several(console: Console, runs: Sequence[Finished]) -> None:
    rows = render.table(f"of {len(runs)} runs", ">median", ">lowest", ">highest", "")
    spreads = spread([run.card for run in runs])
    for figure in FIGURES:
        over = spreads[figure.name]
        rare = f"in {over.runs} of them" if over.runs < len(runs) else ""
        rows.add_row(figure.label, *map(figure.text, (over.median, over.lowest, over.highest)), rare)
    console.print(rows)


def _moves(trace: Trace) -> object:
    rows = render.table(">at", "from", "to", ">bundles", ">MB/s")
    for move in transfers(trace):
        ends = (render.plain(move.source), render.plain(move.destination))
        rows.add_row(move.clock, *ends, str(move.bundles), render.amount(move.throughput, 1e6, 1))
    return rows


def _splits(trace: Trace) -> object:
    rows = render.table(">at", "split", "on", ">parts", "by")
    for split in trace.splits:
        ends = render.plain(split.bundle), render.plain(split.owner)
        rows.add_row(clock(split.seconds), *ends, str(split.parts), split.by)
    return rows


def _evenness(card: Scorecard) -> object:
    rows = render.table("true scores", *(f">{when}" for when in WHEN.values()))
    values = figures(card)
    for figure in EVENNESS:
        rows.add_row(figure.label, *(figure.text(values[f"{section}.{figure.name}"]) for section in WHEN))
    return rows


def _moving(card: Scorecard) -> Iterator[str]:
    compared = ""
    if card.moves and card.fewest_moves is not None:
        compared = (
            f", at least {card.fewest_moves} needed for as low a peak, and {card.fewest_moves_as_even} for as high a "
            "lowest score, too"
        )
    yield (
        f"moves: {card.moves} in {counted(card.rounds, 'round')}{compared}; "
        f"bundles moved twice: {card.bundles_moved_twice}; traffic moved: {card.traffic_moved:.1%}"
    )
    if card.splits:
        yield f"bundles split: {card.splits}"
    if card.peak_points is not None and card.moves:
        yield f"peak since the last move: {card.peak_points:.1f} points"


def _times(card: Scorecard, settings: Settings) -> Iterator[str]:
    low, high = settings.avg_shedder.low_threshold, settings.avg_shedder.high_threshold
    over_low, over_high = (minutes_text(minutes * 60) for minutes in (card.minutes_over_low, card.minutes_over_high))
    yield f"apart by {low:g} points: {over_low}; by {high:g}: {over_high}"
    if card.minutes_to_balance is None:
        yield f"balanced: not in {duration_text(card.hours * HOUR_SECONDS)}"
    elif card.minutes_to_balance:
        yield f"balanced: after {minutes_text(card.minutes_to_balance * 60)}"
    if card.first_move_after_seconds is not None:
        yield f"first move: {duration_text(card.first_move_after_seconds)} after reports first showed {high:g} points"


def _costs(run: Finished) -> Iterator[str]:
    card = run.card
    unmoved = "" if card.thrashing_unmoved is None else f" (the load alone: {card.thrashing_unmoved:.0%})"
    yield (
        f"thrashing: {card.thrashing:.0%}{unmoved}; policy violations: {card.policy_violations}; "
        f"unserved: {card.unserved_bundle_seconds:,.1f} bundles x seconds"
    )


# --- command

FILE = click.Path(path_type=Path)


@click.command(epilog=f"Scenarios: {', '.join(shipped())}.")
@click.argument("scenario")
@click.option("--strategy", type=click.Choice(list(STRATEGIES)), help="Strategy to run.  [default: of the settings]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Try a setting; key as in config show.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of the scenario.")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=1, help="Number of runs, from that seed on; prints the spread."
)
@click.option(
    "--hours", type=Number(0, LONGEST_HOURS, min_open=True), help="Simulated hours.  [default: of the scenario]"
)
@click.option("--report", type=FILE, metavar="DIR", help="Write a page of charts of the first run to a new directory.")
@click.option(
    "--record", type=FILE, metavar="FILE", help="Write the load reports (.jsonl or .jsonl.gz) for lbd replay."
)
@format_option
@settings_options
def simulate(
    read: Read,
    scenario: str,
    strategy: str | None,
    overrides: tuple[str, ...],
    seed: int,
    seeds: int,
    hours: float | None,
    report: Path | None,
    record: Path | None,
    form: str,
) -> None:
    """Run lbd on a simulated cluster, turn after turn in simulated time, and score the result.

    SCENARIO is one of those listed below, or a YAML file. No real cluster is contacted. Your settings override those of
    the scenario; a turn runs each minute unless interval_seconds is set.

    \b
    Example: lbd simulate scale-out --set avg_shedder.hit_count_low=4 --report scale-out
    """
    chosen = load(scenario)
    if hours is not None:
        chosen = chosen.model_copy(update={"hours": hours})
    tried = dict(map(assignment, overrides)) | ({"strategy": strategy} if strategy else {})
    settings = settled(chosen, read().settings, tried)
    if settings.split.enabled and chosen.auto_bundle_split:
        click.echo(f"Note: {UNSPLIT}", err=True)
    if record is not None and seeds > 1:
        raise UsageError(f"--record keeps one run, --seeds {seeds} makes {seeds}: wanted one of the two")
    if report is not None:
        new_directory(report, "--report")
    with recorder(record, scenario, chosen, settings, seed) as keep:
        runs = [_run(scenario, chosen, settings, run_seed, keep) for run_seed in range(seed, seed + seeds)]
    if report is not None:
        from lbd.simulate.report import page  # noqa: PLC0415 - only a report needs it

        write_page(report / "index.html", page(runs))
    (_as_json if form == "json" else as_text)(runs)


UNSPLIT = "split.enabled: lbd splits nothing, for the scenario's brokers do (auto_bundle_split)"


def _run(name: str, scenario: Scenario, settings: Settings, seed: int, keep: Callable[[Turned], None]) -> Finished:
    """One run; on a terminal with a bar of the simulated hours."""
    with passing(TextColumn("{task.completed:.0f} of {task.total:g} h")) as progress:
        task = progress.add_task(f"{name}, seed {seed}", total=scenario.hours)

        def follow(turned: Turned) -> None:
            keep(turned)
            progress.update(task, completed=turned.seconds / 3600)

        return finish(name, scenario, settings, seed, follow)


def _as_json(runs: list[Finished]) -> None:
    first = runs[0]
    document = {"scenario": first.label}
    if len(runs) == 1:
        trace = {
            "moves": [asdict(move) for move in first.trace.moves],
            "splits": [asdict(split) for split in first.trace.splits],
        }
        render.json_out(
            {**document, "seed": first.seed, **trace, "scorecard": asdict(first.card), "sentence": first.sentence}
        )
        return
    cards = [{"seed": run.seed, "scorecard": asdict(run.card), "sentence": run.sentence} for run in runs]
    figures = spread([run.card for run in runs])
    render.json_out({**document, "runs": cards, "spread": {name: asdict(over) for name, over in figures.items()}})
