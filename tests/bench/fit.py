"""The model's CPU beside the published charts: apache/pulsar #22946 and its author's book, chapters 4 and 5.

    python -m tests.bench fit

For each experiment one background is fitted to all of its brokers, with the model's own slope; what the model is off by
then stands beside the published points, and beside it the slope that would fit best. Points were read off charts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.simulate.cluster import cluster, points_at, rates_at
from lbd.simulate.scenario import Scenario

if TYPE_CHECKING:
    from lbd.model import FloatArray


@dataclass(frozen=True)
class Chart:
    """One experiment: MiB/s in and points of each of its brokers, of this capacity, at one time or several."""

    name: str
    published: tuple[tuple[float, float], ...]
    capacity: float = 1.0


CHARTS = (
    Chart("E, before the move", ((105, 63.0), (82.3, 54.0), (89.5, 49.4), (52.2, 45.6), (45.4, 38.5))),
    Chart("H, before the fifth joins", ((94, 68.6), (73, 65.8), (70, 62.4), (69, 64.8))),
    Chart("D, two brokers lost", ((144, 83), (104, 72), (61, 48))),
    Chart("D, after its first round", ((49, 41), (127, 82), (112, 72))),
    Chart("D, after its second round", ((118, 74), (80, 62), (125, 92))),
    Chart("A and I, the strong broker", ((47, 17.1), (62, 19), (139, 27.3)), capacity=3),
)


@dataclass(frozen=True)
class Fit:
    """A background for a whole experiment (points), how far off each broker is then, and the slope that fits best."""

    background: float
    off: tuple[float, ...]
    best_slope: float

    @property
    def worst(self) -> float:
        """The largest error, in points."""
        return max(map(abs, self.off))


def fit(chart: Chart) -> Fit:
    """The model is asked, not its formula: a cluster with just these brokers and this traffic."""
    traffic, points = (np.array(column) for column in zip(*chart.published, strict=True))
    carried = _modelled(chart, traffic)
    background = float((points - carried).mean())
    off = background + carried - points
    return Fit(background, tuple(off.tolist()), float(np.polyfit(traffic, points, 1)[0]))


def _modelled(chart: Chart, traffic: FloatArray) -> FloatArray:
    """What the traffic adds to each broker, in points, float64 (B,)."""
    ids = [f"b{at}" for at in range(traffic.size)]
    scenario = Scenario.model_validate(
        {
            "about": chart.name,
            "brokers": [{"id": one, "capacity": chart.capacity} for one in ids],
            "load": [
                {"name": one, "brokers": [one], "mib_per_second": mib, "bundles": 1}
                for one, mib in zip(ids, traffic.tolist(), strict=True)
            ],
        }
    )
    world, state = cluster(scenario, 1)
    return points_at(world, state.owner, rates_at(world, 0), 0)


def main() -> None:
    """Print the table."""
    slope = Scenario.model_fields["points_per_mib"].default
    print(f"{'experiment':28} {'MiB/s: published -> model, points':85} background  worst  slope used, best")
    for chart in CHARTS:
        found = fit(chart)
        pairs = zip(chart.published, found.off, strict=True)
        told = ", ".join(f"{mib:g}: {points:g} -> {points + off:.1f}" for (mib, points), off in pairs)
        used = f"{slope / chart.capacity:.2f}, {found.best_slope:.2f}"
        print(f"{chart.name:28} {told:85} {found.background:5.1f} {found.worst:6.1f}  {used:>10}")
