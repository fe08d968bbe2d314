"""What a calibration claims of the next week, against what that week was like.

    python -m tests.bench claims [--week SHAPE:SEED]... [--noise POINTS] [--deals N]

Two weeks of a simulated cluster under the defaults (``weeks.py``), of which the first is the history. Of some fixed
settings it is claimed, by replays of it with the fitted load, how much more a day they would have than the defaults of
moves and of minutes above the thresholds, with the interval for the next week. Found is what the second week comes to
under them, by the simulation's own slopes, from the placement with which the defaults began it.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.learn.choose import DEALS, MEASURES, MOVES, OVER_HIGH, OVER_LOW, PRESENT, SettingsCandidate
from lbd.learn.prediction import effect
from lbd.learn.replay import Apart, figures, replay
from lbd.learn.window import OF_BROKERS, OF_BUNDLES, dealt
from lbd.text import DAY_SECONDS
from tests.bench.learn import learned
from tests.bench.weeks import DAY_MINUTES, SETTINGS, day, week

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.learn.replay import Figures
    from lbd.learn.window import Window
    from lbd.load.estimate import LoadModel

DEFAULTS = AvgShedderSettings()
APART = Apart(DEFAULTS.low_threshold, DEFAULTS.high_threshold)
ALLOWED = SETTINGS.guardrails.max_unloads_per_turn
TRIED = (
    SettingsCandidate("2 moves a turn", DEFAULTS, 2),
    SettingsCandidate("low 18 x 8", DEFAULTS.model_copy(update={"low_threshold": 18.0}), ALLOWED),
    SettingsCandidate("low 15 x 20", DEFAULTS.model_copy(update={"hit_count_low": 20}), ALLOWED),
)
WEEKS = ("regions:11", "cron:11", "cron:12", "batches:11")
DAYS = 7
SHOWN = MOVES, OVER_LOW, OVER_HIGH


def days(own: Window, candidate: SettingsCandidate, model: LoadModel, first: int) -> list[Figures]:
    """The figures of each day of a week from ``first`` on, out of one replay of it."""
    course, begins = replay(own, candidate.under(SETTINGS), model), float(own.at[0])
    spans = ((begins + number * DAY_SECONDS, begins + (number + 1) * DAY_SECONDS) for number in range(first, DAYS))
    return [figures(course.since(*span), APART) for span in spans]


def lines(shape: str, seed: int, noise_points: float, deals: int) -> Iterator[str]:
    """A line of the table for each of the settings."""
    both = week(shape, seed, 2 * DAYS, noise_points)
    end = DAYS * DAY_MINUTES
    known = both.kept.change_round < end
    rounds = {name: getattr(both.kept, name)[:end] for name in ("at", *OF_BROKERS)}
    history = replace(both.kept, **rounds, **{name: getattr(both.kept, name)[known] for name in OF_BUNDLES})
    fitted = learned(day(history, number) for number in range(1, DAYS))
    following, present = both.kept.from_round(end), SettingsCandidate(PRESENT, DEFAULTS, ALLOWED)
    claimed, found = {}, {}
    for one in (present, *TRIED):
        dealt_days = [days(dealt(history, deal), one, fitted, 1) for deal in range(deals)]
        claimed[one.name] = {
            name: np.array([[of(own) for own in deal] for deal in dealt_days]).mean(axis=0)
            for name, of in MEASURES.items()
        }
        of_week = days(following, one, both.model, 0)
        found[one.name] = {name: float(np.mean([of(own) for own in of_week])) for name, of in MEASURES.items()}
    for one in TRIED:
        cells = []
        for name in SHOWN:
            expected = effect(claimed[one.name][name] - claimed[PRESENT][name])
            ends = f"{expected.low:+.1f} to {expected.high:+.1f}"
            cells += [f"{expected.mean:+.1f} ({ends})", f"{found[one.name][name] - found[PRESENT][name]:+.1f}"]
        yield f"| {shape} | {seed} | {one.name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench claims", description=__doc__)
    parser.add_argument("--week", action="append", metavar="SHAPE:SEED", help="again for more")
    parser.add_argument("--noise", type=float, default=1.5, metavar="POINTS", help="of a sample of CPU")
    parser.add_argument("--deals", type=int, default=DEALS, metavar="N", help="replays of each, with noise dealt anew")
    asked = parser.parse_args(sys.argv[2:])
    heads = " | ".join(f"{name}: claimed | found" for name in SHOWN)
    print(f"| shape | seed | settings | {heads} |")
    print("|---|---|---|" + "---|---|" * len(SHOWN))
    for one in asked.week or WEEKS:
        shape, _, seed = one.partition(":")
        for line in lines(shape, int(seed), asked.noise, asked.deals):
            print(line, flush=True)
