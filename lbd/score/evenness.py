"""How even brokers are at a moment, and over a run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.model import FloatArray

NEAR = 0.1
"""A broker is near the mean within so much of it, up or down."""


@dataclass(frozen=True)
class Evenness:
    """How even the scores of brokers are.

    ``gap_points``: the highest minus the lowest (the range). ``std_points``: their standard deviation.
    ``max_over_mean``: the highest over their mean. ``variation``: the standard deviation over their mean (coefficient
    of variation). ``near_mean``: the fraction of brokers within 10 % of the mean. The last three have no unit.
    """

    gap_points: float
    std_points: float
    max_over_mean: float
    variation: float
    near_mean: float


def evenness(points: FloatArray) -> Evenness:
    """Of scores, float64 (B,). An idle cluster is even."""
    return mean_evenness(points[None, :])


def mean_evenness(points: FloatArray) -> Evenness:
    """The mean over all looks of each figure; float64 (T, B), NaN for a broker that is away at that look."""
    mean = np.nanmean(points, axis=1)
    over = np.where(mean > 0, mean, np.inf)
    std = np.nanstd(points, axis=1)
    peak = np.where(mean > 0, np.nanmax(points, axis=1) / over, 1.0)
    near = np.abs(points - mean[:, None]) <= NEAR * mean[:, None]
    share = near.sum(axis=1) / np.isfinite(points).sum(axis=1)
    figures = (gaps(points), std, peak, std / over, share)
    return Evenness(*(float(figure.mean()) for figure in figures))


def gaps(points: FloatArray) -> FloatArray:
    """The highest minus the lowest score of each look, float64 (T,), in points."""
    found: FloatArray = np.nanmax(points, axis=1) - np.nanmin(points, axis=1)
    return found


def thrashing(points: FloatArray) -> float:
    """How much the most restless broker went back and forth, as a fraction of how far apart brokers ever were.

    Of float64 (T, B). A broker's distance from the mean of all is followed from look to look; what it rose in all and
    what it fell in all are added up, and the smaller of the two counts twice: a trend is discounted. Two brokers that
    change places four times make 4 (400 %), a ramp 0; a distance below a point counts as one. The idea is CockroachDB's
    (trend-discounted total variation, pkg/kv/kvserver/asim/history), the formula a simpler one. What the load itself
    does counts as well, as far as it does not do it on all brokers.
    """
    away = points - np.nanmean(points, axis=1, keepdims=True)
    steps = np.diff(away, axis=0)
    rose, fell = np.nansum(np.maximum(steps, 0), axis=0), np.nansum(np.maximum(-steps, 0), axis=0)
    span = max(float(np.nanmax(away) - np.nanmin(away)), 1.0)
    return float(2 * np.minimum(rose, fell).max()) / span
