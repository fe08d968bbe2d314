"""What a landed bundle took off its source and put on its destination, beside what was predicted.

    python -m tests.bench.landings

``tests/data/landings.csv`` holds twelve landings on three real brokers of 4.2.4 (two cores in all, 0.4 of a core each;
messages/s in + out, points of live CPU in the 20 s before and 8 to 50 s after). Nothing is learned before a landing:
all is predicted from the two brokers of one round.
"""

from __future__ import annotations

import csv
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.scoring import Weights, scores
from lbd.model import RESOURCES, Slopes, Unload
from lbd.permit.predicted import Predictor
from tests.builders import bundle, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Callable

LANDINGS = Path(__file__).parents[1] / "data" / "landings.csv"
A, B = "a:80", "b:80"
IDLE_POINTS = 10.0
"""Points of a broker without traffic: less than the 12 to 13 that the empty ones had. Not measured on its own."""

HALF_POWER = 0.5
"""Power of a curve where an empty destination shows none."""

UPPER = 1.5
"""Upper end over the middle, as ``lbd.permit.predicted.OWN_USAGE_MARGIN``."""


@dataclass(frozen=True)
class Landing:
    """One row: messages/s that moved, and of both brokers before; points before and after."""

    moved: float
    source_rate: float
    destination_rate: float
    source: tuple[float, float]
    destination: tuple[float, float]


@dataclass(frozen=True)
class Prediction:
    """Points that the source loses, that the destination gains, and the most that it gains."""

    fall: float
    rise: float
    upper: float


def landings() -> list[Landing]:
    """All twelve."""
    with LANDINGS.open(encoding="utf-8") as file:
        rows = [{name: float(value) for name, value in row.items() if name != "run"} for row in csv.DictReader(file)]
    return [
        Landing(
            row["moved_msg_rate"],
            row["source_msg_rate"],
            row["destination_msg_rate"],
            (row["source_before"], row["source_after"]),
            (row["destination_before"], row["destination_after"]),
        )
        for row in rows
    ]


def by_lbd(landing: Landing) -> Prediction:
    """What lbd predicts while nothing is learned."""
    loads = {
        A: report(landing.source[0], {bundle(1): stats(landing.source_rate / 2)}),
        B: report(landing.destination[0], {bundle(2): stats(landing.destination_rate / 2)}),
    }
    now, unknown = snapshot(loads), np.full((2, len(RESOURCES)), np.nan)
    slopes = Slopes(unknown, unknown, half_width=unknown, sources=("unknown", "unknown"))
    move = Unload(bundle(1), A, B, landing.moved, landing.moved * 100)
    predictor = Predictor(now, scores(now.brokers, Weights()), slopes, Weights())
    rise = predictor.rise(move, landing.destination[0]).points
    return Prediction(predictor.fall(move), rise, rise)


def by_share(landing: Landing) -> Prediction:
    """AvgShedder's assumption: the bundle's share of its source's score, on both sides."""
    share = landing.source[0] * landing.moved / landing.source_rate
    return Prediction(share, share, share)


def by_line(landing: Landing) -> Prediction:
    """The slope of the line through both brokers."""
    apart, more = landing.source[0] - landing.destination[0], landing.source_rate - landing.destination_rate
    points = landing.moved * apart / more
    return Prediction(points, points, UPPER * points)


def by_curve(landing: Landing) -> Prediction:
    """Idle points and a power of the traffic through both brokers, which flattens."""
    source, destination = landing.source[0] - IDLE_POINTS, landing.destination[0] - IDLE_POINTS
    power = HALF_POWER
    if landing.destination_rate > 0:
        power = math.log(source / destination) / math.log(landing.source_rate / landing.destination_rate)
    scale = source / landing.source_rate**power
    fall = source - scale * (landing.source_rate - landing.moved) ** power
    rise = scale * ((landing.destination_rate + landing.moved) ** power - landing.destination_rate**power)
    return Prediction(fall, rise, UPPER * rise)


RULES: dict[str, Callable[[Landing], Prediction]] = {
    "share of the source (AvgShedder)": by_share,
    "lbd, nothing learned": by_lbd,
    "line through both": by_line,
    "idle + curve through both": by_curve,
}


def main() -> None:
    """Print the table, as Markdown."""
    found = landings()
    falls = [landing.source[0] - landing.source[1] for landing in found]
    rises = [landing.destination[1] - landing.destination[0] for landing in found]
    print(f"found on average: source -{statistics.fmean(falls):.1f}, destination +{statistics.fmean(rises):.1f}\n")
    print("| predicted by | source: mean | median error | destination: mean | median error | within the upper end |")
    print("|---|---|---|---|---|---|")
    for name, rule in RULES.items():
        predictions = [rule(landing) for landing in found]
        source_errors = [abs(it.fall - fall) for it, fall in zip(predictions, falls, strict=True)]
        errors = [abs(it.rise - rise) for it, rise in zip(predictions, rises, strict=True)]
        covered = sum(it.upper >= rise for it, rise in zip(predictions, rises, strict=True))
        means = statistics.fmean(it.fall for it in predictions), statistics.fmean(it.rise for it in predictions)
        print(
            f"| {name} | {means[0]:.1f} | {statistics.median(source_errors):.1f} | {means[1]:.1f} "
            f"| {statistics.median(errors):.1f} | {covered} of {len(found)} |"
        )


if __name__ == "__main__":
    main()
