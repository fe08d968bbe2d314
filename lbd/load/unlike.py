"""Which brokers are unlike the others by more than the error of the fit: another kind of machine, or a neighbour. Pure.

A difference is told of only if it is large, and larger than chance makes the largest difference of so many brokers
alike. Chance is the standard error of each broker's own fit, times how much the brokers are spread beyond it: samples
whose noise lasts for minutes say less than as many independent ones, and that shows in all brokers alike.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray


UNLIKE = 0.25
"""A slope that differs from the others' median by more than this fraction is that of another kind of machine."""

NEIGHBOUR_POINTS = 10.0
"""Background above the others' median by more than this is a neighbour's: brokers alike are a few points apart."""

CHANCE = 0.002
"""Of clusters whose brokers are alike, so many would have one that is called unlike if errors were normal. They have
longer tails: of 1,800 simulated clusters twelve had one (without a look at the error every fourth had), five of them
among 300 whose noise lasts for ten minutes."""

INTERVAL_ERRORS = 1.96
"""Standard errors in half of a 95 % interval."""

HALF_OF_NORMAL = 1.349
"""Standard deviations of the shortest interval that holds half of normal values."""


def times_of_others(slope: FloatArray, half_width: FloatArray, own: BoolArray) -> FloatArray:
    """How many times that of the others each slope is, float64 (B,); NaN of those that may be like the others.

    ``half_width``, (B,), is half of a slope's 95 % interval. A slope that is NaN is not known. ``own``, bool (B,), are
    those that a broker's own samples show: the rest are shared, so they count among the others and are never unlike.
    """
    others = _others(slope)
    times = np.divide(slope, others, out=np.full(slope.size, np.nan), where=others > 0)
    return np.where((np.abs(times - 1) > UNLIKE) & _beyond_chance(slope, half_width, own), times, np.nan)


def points_of_neighbours(background: FloatArray, half_width: FloatArray) -> FloatArray:
    """Points above that of the others of each background, float64 (B,); NaN of those without a clear neighbour.

    ``half_width``, (B,), is half of a background's 95 % interval. A background that is NaN is not known.
    """
    above = background - _others(background)
    clear = _beyond_chance(background, half_width, np.isfinite(background))
    return np.where((above > NEIGHBOUR_POINTS) & clear, above, np.nan)


def _others(values: FloatArray) -> FloatArray:
    """For each the median of what is known of all others, float64 (B,), NaN where nothing is.

    Of two in the middle it is the nearer one: of three brokers one that is unlike does not make the others so.
    """
    known, medians = np.isfinite(values), np.full(values.size, np.nan)
    for row in np.flatnonzero(known).tolist():
        rest = np.sort(np.delete(values, row)[np.delete(known, row)])
        middle = rest[(rest.size - 1) // 2 : rest.size // 2 + 1]
        if middle.size:
            medians[row] = middle[np.argmin(np.abs(middle - values[row]))]
    return medians


def _beyond_chance(values: FloatArray, half_width: FloatArray, own: BoolArray) -> BoolArray:
    """Whether each value of its ``own`` is further from the others than chance explains, bool (B,)."""
    known = np.isfinite(values) & np.isfinite(half_width)
    number, own = int(known.sum()), own & known
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
    """The standard deviation that normal values would have whose denser half lies as close together as that of these.

    The other half may be machines of another kind.
    """
    half = values.size // 2
    if half < 2:
        return 0.0
    ordered = np.sort(values)
    return float(np.min(ordered[half - 1 :] - ordered[: ordered.size - half + 1])) / HALF_OF_NORMAL
