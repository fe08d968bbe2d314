"""least-moves beside AvgShedder, TransferShedder and ThresholdShedder: the published experiments, and the seeded suite.

    python -m tests.bench least [--each N] [--last N] [--few] [--minutes N] [--suite-only] [--chart FILE]

A plan's efficiency is the fewest moves that any plan needs for the peak reached, by the moves made; "as even" for that
peak and the lowest score reached. What is reached is the gap of the last look, and the peak by the lowest that as many
moves can reach. ``--each`` takes N clusters of each kind instead of all forty, none with a number above ``--last``: the
higher, the more brokers. ``--few`` leaves out all but AvgShedder, lbd's default and least-moves; with ``--minutes`` the
tables are made of what had ended by then; ``--suite-only`` leaves out the experiments; ``--chart`` draws the suite.
Clients are those that the moves disconnect, of numbers that the suite assumes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.compare.side_by_side import ComparisonRequest, Contender, over_scenario
from lbd.config import Settings
from lbd.simulate.scenario import load
from tests.bench import as_even
from tests.bench.chart import drawn
from tests.bench.suite import CANDIDATES, FEW, HEAD, duel, row, runs, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.bench.suite import Ran

SEEDS = 3
SCENARIOS = (
    "uniform-heterogeneous", "on-off-consumer", "cold-start", "two-lost", "steady", "spike", "scale-in", "scale-out",
    "heterogeneous", "empty-broker", "pip-364", "background", "rolling-restart", "too-big",
)  # fmt: skip
"""Experiments A to J of AvgShedder's author, and what else is shipped and ends within minutes."""


@dataclass(frozen=True)
class Chosen:
    """What is run: see the module. ``minutes`` is when no further cluster is waited for."""

    each: int
    last: int
    minutes: float
    few: bool
    skip_experiments: bool
    chart: Path | None


def main(chosen: Chosen) -> None:
    """Print both tables, as Markdown, and before the second each run as it ends."""
    names = FEW if chosen.few else tuple(CANDIDATES)
    for line in () if chosen.skip_experiments else experiments(names):
        print(line, flush=True)
    found = list(_told(runs(chosen.each, names, chosen.last), chosen.minutes))
    lines = [*table(found), "", duel(found), "", *as_even.table(found)]
    print(f"\n{len(found) // len(names)} clusters", *lines, sep="\n")
    if chosen.chart is not None:
        chosen.chart.write_text(drawn(found), encoding="utf-8")


def _told(clusters: Iterator[list[Ran]], minutes: float) -> Iterator[Ran]:
    """The runs of these clusters, each told when it has ended, until the time is over."""
    until = time.monotonic() + 60 * minutes
    for ran in clusters:
        for one in ran:
            print(
                f"{one.kind} {one.number}, {one.candidate}: {' | '.join(row([one.card]))} | {one.clients}", flush=True
            )
        yield from ran
        if time.monotonic() > until:
            return


def experiments(names: Sequence[str]) -> Iterator[str]:
    """A row for each scenario and candidate: of three seeds."""
    yield f"| scenario | strategy | {' | '.join(HEAD)} |"
    yield "|---" * (len(HEAD) + 2) + "|"
    candidates = tuple(
        Contender(name, str(own["strategy"]), _own(own)) for name, own in CANDIDATES.items() if name in names
    )
    asked = ComparisonRequest(candidates, Settings(), {}, lambda *_: None)
    for name in SCENARIOS:
        found = [over_scenario(asked, name, load(name), seed).runs for seed in range(1, SEEDS + 1)]
        for at, candidate in enumerate(candidates):
            yield f"| {name} | {candidate.label} | {' | '.join(row([one[at].card for one in found]))} |"


def _own(settings: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in settings.items() if key != "strategy"}
