"""least-moves beside AvgShedder, TransferShedder and ThresholdShedder: the published experiments, and the seeded suite.

    python -m tests.bench least [--each N] [--last N] [--two] [--chart FILE]

A plan's efficiency is the fewest moves that any plan needs for the peak reached, by the moves made; what is reached is
the gap of the last look, and the peak by the lowest that as many moves can reach. ``--each`` takes N clusters of each
kind instead of all forty, none with a number above ``--last``: the higher, the more brokers. ``--two`` leaves out all
but AvgShedder and least-moves; ``--chart`` draws the suite as SVG.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lbd.compare.candidates import Candidate
from lbd.compare.side_by_side import Asked, over_scenario
from lbd.config import Settings
from lbd.simulate.scenario import load
from tests.bench import as_even
from tests.bench.chart import drawn
from tests.bench.suite import CANDIDATES, HEAD, TWO, duel, row, runs, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SEEDS = 3
SCENARIOS = (
    "uniform-heterogeneous", "on-off-consumer", "cold-start", "two-lost", "steady", "spike", "scale-in", "scale-out",
    "heterogeneous", "empty-broker", "pip-364", "background", "rolling-restart", "too-big",
)  # fmt: skip
"""Experiments A to J of AvgShedder's author, and what else is shipped and ends within minutes."""


def main(each: int, last: int, chart: Path | None, *, two: bool) -> None:
    """Print both tables, as Markdown."""
    names = TWO if two else tuple(CANDIDATES)
    for line in experiments(names):
        print(line, flush=True)
    found = runs(each, names, last)
    lines = [*table(found), "", duel(found), "", *as_even.table(found)]
    print(f"\n{len(found) // len(names)} clusters", *lines, sep="\n")
    if chart is not None:
        chart.write_text(drawn(found), encoding="utf-8")


def experiments(names: Sequence[str]) -> Iterator[str]:
    """A row for each scenario and candidate: of three seeds."""
    yield f"| scenario | strategy | {' | '.join(HEAD)} |"
    yield "|---" * (len(HEAD) + 2) + "|"
    candidates = tuple(
        Candidate(name, str(own["strategy"]), _own(own)) for name, own in CANDIDATES.items() if name in names
    )
    asked = Asked(candidates, Settings(), {}, time.perf_counter, lambda *_: None)
    for name in SCENARIOS:
        found = [over_scenario(asked, name, load(name), seed).runs for seed in range(1, SEEDS + 1)]
        for at, candidate in enumerate(candidates):
            yield f"| {name} | {candidate.label} | {' | '.join(row([one[at].card for one in found]))} |"


def _own(settings: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in settings.items() if key != "strategy"}
