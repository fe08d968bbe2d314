"""Simulated runs as a person reads them: what was moved and when, the scorecard, and what the last turn said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from lbd.cli import render
from lbd.score.figures import EVENNESS, FIGURES, WHEN
from lbd.score.spread import figures, spread
from lbd.score.transfers import clock, transfers
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lbd.config import Settings
    from lbd.score.scorecard import Scorecard
    from lbd.score.trace import Trace
    from lbd.simulate.finished import Finished


def as_text(runs: Sequence[Finished]) -> None:
    """Print one run in full, or of several how far they differ."""
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else render.WIDE)
    first = runs[0]
    seeds = f"seed {first.seed}" if len(runs) == 1 else f"seeds {first.seed} to {runs[-1].seed}"
    console.print(Text(f"{first.name}, {seeds}: {' '.join(first.scenario.about.split())}", "bold"))
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
    console.print(Text(f"In the end: {run.sentence}", "bold"))


def _several(console: Console, runs: Sequence[Finished]) -> None:
    found = render.table(
        (f"of {len(runs)} runs", "left"), ("median", "right"), ("lowest", "right"), ("highest", "right"), ("", "left")
    )
    spreads = spread([run.card for run in runs])
    for figure in FIGURES:
        one = spreads[figure.name]
        rare = f"in {one.runs} of them" if one.runs < len(runs) else ""
        found.add_row(figure.label, *map(figure.told, (one.median, one.lowest, one.highest)), rare)
    console.print(found)


def _moves(trace: Trace) -> object:
    found = render.table(("at", "right"), ("from", "left"), ("to", "left"), ("bundles", "right"), ("MB/s", "right"))
    for one in transfers(trace):
        ends = (render.plain(one.source), render.plain(one.destination))
        found.add_row(one.clock, *ends, str(one.bundles), render.amount(one.throughput, 1e6, 1))
    return found


def _splits(trace: Trace) -> object:
    found = render.table(("at", "right"), ("split", "left"), ("on", "left"), ("parts", "right"), ("by", "left"))
    for one in trace.splits:
        found.add_row(clock(one.seconds), render.plain(one.bundle), render.plain(one.owner), str(one.parts), one.by)
    return found


def _evenness(card: Scorecard) -> object:
    found = render.table(("scores", "left"), *((when, "right") for when in WHEN.values()))
    known = figures(card)
    for figure in EVENNESS:
        found.add_row(figure.label, *(figure.told(known[f"{section}.{figure.name}"]) for section in WHEN))
    return found


def _moving(card: Scorecard) -> Iterator[str]:
    compared = ""
    if card.moves and card.fewest_moves is not None:
        compared = (
            f", at least {card.fewest_moves} needed for as low a peak and {card.redundant_moves} redundant, "
            f"{card.fewest_moves_as_even} and {card.redundant_moves_as_even} for as high a lowest score, too"
        )
    yield (
        f"moves: {card.moves} in {counted(card.rounds, 'round')}{compared}; "
        f"bundles moved twice: {card.bundles_moved_twice}; traffic moved: {card.traffic_moved:.1%}"
    )
    if card.splits:
        yield f"bundles split: {card.splits}"
    if card.peak_points is not None and card.moves:
        best = card.best_peak_points
        told = "" if best is None else f"; no plan of as many moves gets below {best:.1f}"
        yield f"peak since the last move: {card.peak_points:.1f} points{told}"


def _times(card: Scorecard, settings: Settings) -> Iterator[str]:
    low, high = settings.avg_shedder.low_threshold, settings.avg_shedder.high_threshold
    yield f"apart by {low:g} points: {card.minutes_over_low:.0f} min; by {high:g}: {card.minutes_over_high:.0f} min"
    if card.minutes_to_balance is None:
        yield f"balanced: not in {card.hours:g} h"
    elif card.minutes_to_balance:
        yield f"balanced: after {card.minutes_to_balance:.0f} min"
    if card.first_move_after_seconds is not None:
        yield f"first move: {card.first_move_after_seconds:.0f} s after reports first showed {high:g} points"


def _costs(run: Finished) -> Iterator[str]:
    card = run.card
    unmoved = "" if card.thrashing_unmoved is None else f" (the load alone: {card.thrashing_unmoved:.0%})"
    yield (
        f"thrashing: {card.thrashing:.0%}{unmoved}; policy violations: {card.policy_violations}; "
        f"unserved: {card.unserved_bundle_seconds:,.1f} bundles x seconds"
    )
    yield (
        f"{counted(card.turns, 'turn')}, which took {run.turn_seconds:.1f} s of this machine: half of them at most "
        f"{card.turn_p50_seconds * 1000:.1f} ms, 99 of 100 at most {card.turn_p99_seconds * 1000:.1f} ms"
    )
