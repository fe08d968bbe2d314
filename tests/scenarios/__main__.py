"""What lbd does in each shipped scenario, beside what Pulsar did: the table of decision 0007.

    python -m tests.scenarios [--seeds 5] [SCENARIO…]

A day and a month take long, and are left out unless named. Figures are the least and the most over the seeds.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lbd.simulate.scenario import load, shipped
from tests.scenarios.runs import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.scenarios.runs import Run

LONG = {"day", "month", "hundred-new"}


def spread(values: Iterable[float | None], form: str = "g") -> str:
    """The least and the most, or the one value that all have; - where there is none."""
    known = sorted({format(value, form) for value in values if value is not None}, key=float)
    return " to ".join(known[:: max(len(known) - 1, 1)]) or "-"


STOCK = ("profile", "stock")


def row(name: str, seeds: int) -> str:
    """One scenario: what lbd did, what AvgShedder's own rule does within lbd's guardrails, and what was published."""
    mine = told([run(name, seed) for seed in range(1, seeds + 1)])
    pulsars = told([run(name, seed, STOCK) for seed in range(1, seeds + 1)])
    return f"{name}: {mine}\n    profile: stock: {pulsars}\n    Pulsar: {' '.join(load(name).stock.split())}"


def told(runs: Sequence[Run]) -> str:
    """The figures of a scenario's runs."""
    cards = [one.card for one in runs]
    figures = (
        f"moves {spread(card.moves for card in cards)} in {spread(card.rounds for card in cards)} rounds",
        f"twice {spread(card.bundles_moved_twice for card in cards)}",
        f"gap {spread((card.first.gap_points for card in cards), '.0f')}",
        f"in the end {spread((card.last.gap_points for card in cards), '.0f')}",
        f"first move at minute {spread((one.minutes[0] for one in runs if one.moves), '.0f')}",
        f"{spread((card.first_move_after_seconds for card in cards), '.0f')} s after reports showed 40 points",
        f"balanced after {spread((card.minutes_to_balance for card in cards), '.0f')} min",
    )
    return "; ".join(figures)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="SCENARIO")
    parser.add_argument("--seeds", type=int, default=5)
    chosen = parser.parse_args()
    for name in chosen.names or [name for name in shipped() if name not in LONG]:
        print(row(name, chosen.seeds))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
