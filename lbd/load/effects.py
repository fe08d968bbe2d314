"""Measured effects of moves on their brokers: CPU points lost or gained beside the traffic. Pure.

Two samples before and after a move say more about the cost of traffic than usage over traffic does: a neighbour's usage
is in both, and cancels out of their difference. A line through samples (``fit.py``) needs eight of them. A broker at
its limit does not show its relief, and a busy one shows too little.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.estimate import CPU, driving
from lbd.load.fit import SATURATED_PERCENT
from lbd.load.samples import MOST_SAMPLES, usual

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lbd.load.estimate import Measure
    from lbd.load.samples import BrokerSamples
    from lbd.model import FloatArray

    IndexArray = NDArray[np.intp]

SAMPLE_POINTS = 2.0
"""Standard deviation of a sample: balanced brokers on real clusters vary by this."""

DEVIATIONS = 1.96
"""Deviations to either end of a 95 % interval."""

BUSY_PERCENT = 75.0
"""Usage above which a loss shows nothing: work that comes close together costs less. On 4.0.8 the first three of ten
bundles took 5 points off a broker at 80, the next three 20, and the last four 47.
"""

LEAST_SHARE = 0.05
"""Share of the traffic before or after; a smaller change is lost in the variation of traffic."""


JUMP_SHARE = 0.2
"""Share of the traffic, from one sample to the next. Brokers may still list a bundle that has left them, with no
traffic (on 4.0.8): the list alone does not prove a move.
"""


@dataclass(frozen=True)
class Effect:
    """Percent of CPU per unit of driving traffic, by a broker's own moves, and the standard deviation of that.

    ``deviation`` is infinite, and ``slope`` 0, where nothing moved.
    """

    slope: float
    deviation: float

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of 95 %; the upper one counts from 0, as usage that fell with more traffic has another cause."""
        off = DEVIATIONS * self.deviation
        return self.slope - off, max(self.slope, 0.0) + off


NONE = Effect(0.0, np.inf)


def effect(own: BrokerSamples, measure: Measure) -> Effect:
    """Combine all moves between a broker's samples, each weighted by its inverse variance."""
    carried = driving(own.carried, measure)[:, CPU]
    changes = [_change(own, carried, before, after) for before, after in _around(own, carried)]
    usable = np.array([change for change in changes if change is not None]).reshape(-1, 3)
    traffic, points, variance = usable.T
    weight = float((traffic**2 / variance).sum())
    if not weight > 0:
        return NONE
    return Effect(float((traffic * points / variance).sum()) / weight, weight**-0.5)


def together(effects: FloatArray) -> Effect:
    """Combine the effects of several brokers' moves, float64 (n, 2): slopes and deviations."""
    slope, deviation = effects[np.isfinite(effects).all(axis=1)].T
    weight = deviation**-2.0
    total = float(weight.sum())
    return Effect(float((weight * slope).sum()) / total, total**-0.5) if total > 0 else NONE


def _around(own: BrokerSamples, carried: FloatArray) -> Iterator[tuple[IndexArray, IndexArray]]:
    """Trusted samples before and after each time that bundles came or went, or traffic jumped."""
    jumps = np.abs(np.diff(carried)) > JUMP_SHARE * np.maximum(carried[1:], carried[:-1])
    trusted = own.trusted
    number = np.cumsum(~trusted) + np.concatenate(([0], np.cumsum(jumps)))[: own.at.size]
    return pairwise(np.split(np.flatnonzero(trusted), np.flatnonzero(np.diff(number[trusted])) + 1))


def _change(
    own: BrokerSamples, carried: FloatArray, before: IndexArray, after: IndexArray
) -> tuple[float, float, float] | None:
    """Traffic and points of one change, and the variance of the points; None where it is too little."""
    last, first = before[::-1][:MOST_SAMPLES].tolist(), after[:MOST_SAMPLES].tolist()
    (was, earlier), (became, later) = usual([own.used[row] for row in last]), usual([own.used[row] for row in first])
    there, here = np.mean([carried[row] for row in last[:earlier]]), np.mean([carried[row] for row in first[:later]])
    cpu = own.used[:, CPU]
    points, moved = float(became[CPU] - was[CPU]), float(here - there)
    is_little = not abs(moved) > LEAST_SHARE * max(here, there)
    is_busy = max(was[CPU], became[CPU]) >= (SATURATED_PERCENT if moved > 0 else BUSY_PERCENT)
    if is_little or is_busy or not np.isfinite(points):
        return None
    return moved, points, _variance(earlier, cpu[last[1::-1]]) + _variance(later, cpu[first[:2]])


def _variance(alike: int, nearest: FloatArray) -> float:
    """Variance of the mean of ``alike`` samples, in points; ``nearest`` are the two next to the change, in order.

    Usage that falls by itself is that of a JVM that warms up: the usage without the move is unknown.
    """
    fell = float(nearest[0] - nearest[1]) if alike == 1 and nearest.size > 1 else 0.0
    noise = max(SAMPLE_POINTS, fell / 2**0.5)
    return noise**2 / alike
