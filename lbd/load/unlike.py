"""Brokers unlike the others by more than the error of the fit: another kind of machine, or a neighbour. Pure.

A difference counts only if it is large, and larger than chance makes the largest difference among equal brokers. Chance
is the standard error of each broker's own fit, times the factor by which the brokers are spread beyond it: samples
whose noise lasts for minutes say less than independent ones, and that shows in all brokers alike.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray


UNLIKE = 0.25
"""Difference from the others' median slope, as a fraction of it, that makes another kind of machine."""

NEIGHBOUR_POINTS = 10.0
"""Background above the others' median that is a neighbour's: equal brokers are a few points apart."""

CHANCE = 0.002
"""Share of clusters of equal brokers with one that is called unlike, if errors were normal. They have longer tails: of
1,800 simulated clusters twelve had one (regardless of the error every fourth had), five of them among 300 whose noise
lasts for ten minutes.
"""

INTERVAL_ERRORS = 1.96
"""Standard errors in half of a 95 % interval."""

HALF_OF_NORMAL = 1.349
"""Standard deviations of the shortest interval that holds half of normal values."""


def times_of_others(slope: FloatArray, half_width: FloatArray, own: BoolArray) -> FloatArray:
    """Each slope over that of the others, float64 (B,); NaN for those that may be like the others.

    ``half_width``, (B,), is half of a slope's 95 % interval. A NaN slope is unknown. ``own``, bool (B,), are slopes of
    a broker's own samples: the rest are shared, so they count among the others and are never unlike.
    """
    others = _others(slope)
    times = np.divide(slope, others, out=np.full(slope.size, np.nan), where=others > 0)
    return np.where((np.abs(times - 1) > UNLIKE) & _beyond_chance(slope, half_width, own), times, np.nan)


def points_of_neighbours(background: FloatArray, half_width: FloatArray) -> FloatArray:
    """Points of each background above that of the others, float64 (B,); NaN for those without a clear neighbour.

    ``half_width``, (B,), is half of a background's 95 % interval. A NaN background is unknown.
    """
    above = background - _others(background)
    clear = _beyond_chance(background, half_width, np.isfinite(background))
    return np.where((above > NEIGHBOUR_POINTS) & clear, above, np.nan)


def _others(values: FloatArray) -> FloatArray:
    """Median of the known values of all others, for each, float64 (B,), NaN where there is none.

    Of two in the middle it is the nearer one: with three brokers a single unlike one does not make the others so.
    """
    finite, medians = np.isfinite(values), np.full(values.size, np.nan)
    for row in np.flatnonzero(finite).tolist():
        rest = np.sort(np.delete(values, row)[np.delete(finite, row)])
        middle = rest[(rest.size - 1) // 2 : rest.size // 2 + 1]
        if middle.size:
            medians[row] = middle[np.argmin(np.abs(middle - values[row]))]
    return medians


def _beyond_chance(values: FloatArray, half_width: FloatArray, own: BoolArray) -> BoolArray:
    """Whether each value of its ``own`` is further from the others than chance explains, bool (B,)."""
    usable = np.isfinite(values) & np.isfinite(half_width)
    number, own = int(usable.sum()), own & usable
    if number < 2:
        return np.zeros(values.size, dtype=np.bool_)
    error = half_width / INTERVAL_ERRORS
    usual = float(np.median(error[own])) if own.any() else 0.0
    chance = np.hypot(np.maximum(error, usual), usual / number**0.5)  # a fit may look better than it is by luck
    beyond, measurable = values - _others(values), own & (chance > 0)
    spread = max(_spread(beyond[measurable] / chance[measurable]), 1.0)
    limit = NormalDist().inv_cdf(1 - CHANCE / (2 * number)) * spread
    unlike: BoolArray = own & (np.abs(beyond) > limit * chance)
    return unlike


def _spread(values: FloatArray) -> float:
    """Standard deviation of normal values whose denser half is as narrow as that of these.

    The other half may be machines of another kind.
    """
    half = values.size // 2
    if half < 2:
        return 0.0
    ordered = np.sort(values)
    return float(np.min(ordered[half - 1 :] - ordered[: ordered.size - half + 1])) / HALF_OF_NORMAL
