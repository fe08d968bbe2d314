"""The effect of settings on the next week: differences by day, and an interval for their mean there. Pure.

Settings are compared with the present ones on the same days with the same deals of noise, so a day's own load is in
both and goes out of the difference. How much days differ says how far the next week may be from those that were seen.
The days are drawn again in blocks (moving block bootstrap: Künsch 1989), twice in each draw: as many as were seen, for
how wrong their mean may be, and as many as a week has, for how far a week may be from it. The next week happens once:
its days are those of one deal, whose chance the mean over deals does not show. The ends are widened as
Student's are, because few days show too little of how they differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.model import FloatArray


DAYS_AHEAD = 7
BLOCK_DAYS = 2
DRAWS = 2000

COVERAGE = 0.9
"""Fraction of weeks like those in history that the interval is to hold. In simulation it holds 80 to 90 of a hundred
with six days in a row, where each day may be like the one before, and 88 to 93 with twenty
(``tests/learn/test_prediction.py``); of eight unseen weeks of simulated clusters all 60 (docs/results/calibrate.md)."""

LUCK = 0.05
"""At most this share of histories, in which no settings are better, may have better ones by luck; of the ones simulated
0 to 4 of a hundred have, and 0 to 22 without this rule (docs/results/calibrate.md)."""

FEWEST_DAYS = 4
"""With fewer days nothing is claimed of another week: of four the interval holds 71 to 86 of a hundred."""


@dataclass(frozen=True)
class PredictedEffect:
    """Excess over the present settings, a day: ``mean`` over the days in history, and the ends of the interval for the
    mean of the next week. ``days`` is the number of independent days that this is built on, and ``luck`` how far from
    nothing the best mean of all that were tried may be by chance.
    """

    mean: float
    low: float
    high: float
    days: float
    luck: float


def effect(differences: FloatArray, tried: int = 1) -> PredictedEffect:
    """The effect out of the differences in each deal of noise, float64 (D, n), of days in the order of time.

    ``tried`` is how many settings these are the best of: each of them may be the lucky one (Bonferroni).

    Days without any difference show how often days differ (:func:`days_that_may_differ`), but not by how much: the
    interval has no ends.
    """
    by_day, size = differences.mean(axis=0), differences.shape[1]
    if size < 2 or not differences.any():
        return PredictedEffect(float(by_day.mean()) if size else 0.0, -np.inf, np.inf, float(size), np.inf)
    random, days = np.random.default_rng(size), independent_days(by_day)
    ahead, past = (
        _means(values, number, random) for values, number in ((differences, DAYS_AHEAD), (by_day[None], size))
    )
    ends = (1 - COVERAGE) / 2, (1 + COVERAGE) / 2
    widen = (size / (size - 1) * size / days) ** 0.5 * _student(size - 1, ends[1]) / NormalDist().inv_cdf(ends[1])
    low, high = np.quantile((ahead - past) * widen, ends)
    luck = _student(size - 1, 1 - LUCK / tried) * float(by_day.std(ddof=1)) / days**0.5
    mean = float(by_day.mean())
    return PredictedEffect(mean, mean + float(low), mean + float(high), days, luck)


def days_that_may_differ(days: float) -> int:
    """Most days of the next week that may differ where none of ``days`` did: at most 3 / n do, in 19 worlds of 20 (rule
    of three: Hanley and Lippman-Hand 1983).
    """
    return ceil(DAYS_AHEAD * min(3 / days, 1.0))


def independent_days(differences: FloatArray) -> float:
    """The number of independent days that say as much as these, where each may be like the one before."""
    size, off = differences.size, differences - differences.mean()
    power = float((off**2).sum())
    if size < 3 or power == 0:
        return float(size)
    alike = min(max(float((off[1:] * off[:-1]).sum()) / power + 1 / size, 0.0), 0.9)  # by 1 / n too low
    return max(size * (1 - alike) / (1 + alike), 1.0)


def _means(values: FloatArray, number: int, random: np.random.Generator) -> FloatArray:
    """Means of ``number`` values of a row, drawn in blocks of neighbours, float64 (DRAWS,); the first value follows the
    last.
    """
    rows, size = values.shape
    begins = random.integers(0, size, (DRAWS, -(-number // BLOCK_DAYS)))
    drawn = (begins[:, :, None] + np.arange(BLOCK_DAYS)).reshape(DRAWS, -1)[:, :number] % size
    means: FloatArray = values[random.integers(0, rows, (DRAWS, 1)), drawn].mean(axis=1)
    return means


def _student(free: int, share: float) -> float:
    """A quantile of Student's distribution (Fisher's expansion)."""
    z = NormalDist().inv_cdf(share)
    second, third = 5 * z**5 + 16 * z**3 + 3 * z, 3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z
    return z + (z**3 + z) / (4 * free) + second / (96 * free**2) + third / (384 * free**3)
