"""least-moves beside AvgShedder over simulated clusters, seed by seed.

    python -m tests.bench least

Medians over the seeds. A plan's efficiency is the fewest moves that any plan needs for the peak reached, by the moves
made; what is reached is the gap of the last look, and the peak by the lowest that as many moves can reach.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from lbd.compare.candidates import Candidate
from lbd.compare.side_by_side import Asked, over_scenario
from lbd.config import Settings
from lbd.simulate.scenario import load

if TYPE_CHECKING:
    from lbd.score.scorecard import Scorecard

SEEDS = 3
SCENARIOS = (
    "heterogeneous", "uniform-heterogeneous", "day", "scale-out", "empty-broker", "cold-start", "pip-364", "background",
    "steady", "spike", "on-off-consumer", "hundred-new",
)  # fmt: skip
STRATEGIES = ("avg-shedder", "least-moves")


def main() -> None:
    """Print the table, as Markdown."""
    print("| scenario | strategy | moves | fewest | twice | traffic moved | gap, points | peak / best | over 15, min |")
    print("|---|---|---|---|---|---|---|---|---|")
    asked = Asked(
        tuple(Candidate(name, name, {}) for name in STRATEGIES), Settings(), {}, time.perf_counter, lambda *_: None
    )
    for name in SCENARIOS:
        runs = [over_scenario(asked, name, load(name), seed).runs for seed in range(1, SEEDS + 1)]
        for at, strategy in enumerate(STRATEGIES):
            print(f"| {name} | {strategy} | {_cells([one[at].card for one in runs])} |", flush=True)


def _cells(cards: list[Scorecard]) -> str:
    median = statistics.median
    over = [one.peak_points / one.best_peak_points for one in cards if one.peak_points and one.best_peak_points]
    fewest = [one.fewest_moves for one in cards if one.fewest_moves is not None]
    return " | ".join(
        (
            f"{median(one.moves for one in cards):g}",
            f"{median(fewest):g}" if fewest else "-",
            f"{median(one.bundles_moved_twice for one in cards):g}",
            f"{median(one.traffic_moved for one in cards):.0%}",
            f"{median(one.last.gap_points for one in cards):.1f}",
            f"{median(over):.2f}" if over else "-",
            f"{median(one.minutes_over_low for one in cards):.0f}",
        )
    )
