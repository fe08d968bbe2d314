"""A straight line through points of which some are wrong: the weighted Theil-Sen estimator. Pure.

The slope is the median of the slopes between any two points, each weighted by how far they are apart (Theil 1950, Sen
1968; weights: Jaeckel 1972). Points that a neighbour's load lifts do not bend it while they are less than a quarter or
so. Pairs are only made within a group, so that groups share a slope and keep intercepts of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lbd.model import FloatArray

    IndexArray = NDArray[np.intp]

MOST_POINTS = 128
"""Of a group; of more, as many are taken evenly: the pairs of 128 points place a slope within 2 % where traffic varies
by ten times the noise."""

NORMAL = 1.4826
"""Standard deviations in a median absolute deviation, for normal noise."""

WIDTH = 1.96 * 1.0472**0.5
"""Standard errors on either side of 95 %; the variance is that of least squares times pi / 3."""


FAR_OFF = 3.5
REFINED = 2
"""Times that points further off than so many deviations are left out, and the line is drawn anew: points that are wrong
at one end of x only would bend it by a seventh or so."""

ROUNDING = 1e-9
"""Points on a line exactly are not far off it."""

FEWEST_FREE = 6
"""Points beyond one for each intercept and one for the slope: fewer are no evidence, however well a line fits."""

FLAT_SHARE = 0.01
"""Of the largest x of a group: where all are within it, their differences are rounding, and tell nothing."""


@dataclass(frozen=True)
class Line:
    """A slope; half of the width of its 95 % interval; and the noise: the standard deviation of what is left.

    The interval takes noise for normal and independent from point to point. ``half_width`` is infinite, and ``slope``
    0, where x tells nothing: it does not vary, or there are too few points.
    """

    slope: float
    half_width: float
    noise: float


UNKNOWN = Line(0.0, np.inf, np.inf)


def line(groups: Sequence[tuple[FloatArray, FloatArray]]) -> Line:
    """The common slope of some groups of points, each ``(x, y)`` float64 (n,) in the order of time."""
    most = max(MOST_POINTS // max(int(len(groups) ** 0.5), 1), 16)
    thin = [(_evenly(x, most), _evenly(y, most)) for x, y in groups]
    found = _line([(x, y) for x, y in thin if _varies(x)])
    before = thin
    for _ in range(REFINED):
        near = [_near(x, y, found) for x, y in thin]
        if all(x.size == kept.size for (x, _), (kept, _) in zip(before, near, strict=True)):
            break
        found, before = _line([(x, y) for x, y in near if _varies(x)]), near
    return found


def _line(groups: Sequence[tuple[FloatArray, FloatArray]]) -> Line:
    points = sum(x.size for x, _ in groups)
    free = points - len(groups) - 1
    if free < FEWEST_FREE:
        return UNKNOWN
    rises = [_pairs(x, y) for x, y in groups]
    slope = weighted_median(np.concatenate([one[0] for one in rises]), np.concatenate([one[1] for one in rises]))
    left = np.concatenate([_left(x, y, slope) for x, y in groups])
    noise = robust_deviation(left) * (points / free) ** 0.5
    spread = sum(float(((x - x.mean()) ** 2).sum()) for x, _ in groups)
    return Line(slope, WIDTH * noise / spread**0.5, noise)


def _left(x: FloatArray, y: FloatArray, slope: float) -> FloatArray:
    """What the line does not explain, around the middle of its group."""
    found: FloatArray = y - slope * x - np.median(y - slope * x)
    return found


def _near(x: FloatArray, y: FloatArray, found: Line) -> tuple[FloatArray, FloatArray]:
    """The points of a group that are not far off the line."""
    if not x.size:
        return x, y
    near = np.abs(_left(x, y, found.slope)) <= FAR_OFF * found.noise + ROUNDING
    return x[near], y[near]


def weighted_median(values: FloatArray, weights: FloatArray) -> float:
    """The smallest value, float64 (K,), up to which there is half of the weight, float64 (K,); 0 without any."""
    if not values.size:
        return 0.0
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def robust_deviation(values: FloatArray) -> float:
    """The standard deviation that normal values with this median absolute deviation would have."""
    return float(NORMAL * np.median(np.abs(values - np.median(values))))


def _varies(x: FloatArray) -> bool:
    return x.size > 2 and bool(np.ptp(x) > FLAT_SHARE * np.abs(x).max())


def _evenly(values: FloatArray, most: int) -> FloatArray:
    if values.size <= most:
        return values
    return values[np.linspace(0, values.size - 1, most).astype(np.intp)]


@cache
def _both(size: int) -> tuple[IndexArray, IndexArray]:
    """Any two of so many, once; at most :data:`MOST_POINTS`, so few sizes are kept."""
    return np.triu_indices(size, 1)


def _pairs(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slope between any two points whose x differ, and how far these are apart."""
    first, second = _both(x.size)
    run, rise = x[second] - x[first], y[second] - y[first]
    apart = np.abs(run)
    told = apart > 0
    return rise[told] / run[told], apart[told]
