"""Scores of brokers over time, from history and from memory: the gap, the mean and one broker's line. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.charts.chart import thinned
from lbd.score.gap import gaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.model import BoolArray, FloatArray

MOST_POINTS = 300
"""Points of a line, about: a screen of a thousand pixels shows no more, and a phone reads 10 kB."""

HOLE_SECONDS = 1200.0
"""Rounds that are further apart are not joined by a line. Brokers renew their reports every 15 minutes at the latest
(``loadBalancerReportUpdateMaxIntervalMinutes``), and each new sample is stored."""


@dataclass(frozen=True, eq=False)
class Scores:
    """``points`` float64 (T, B) of ``brokers`` in the rounds ``at``, float64 (T,) epoch seconds, ascending; NaN: not
    known. ``counted``, bool (T, B), is False where a broker was drained; None: all count.
    """

    at: FloatArray
    brokers: Sequence[str]
    points: FloatArray
    counted: BoolArray | None = None

    def of(self, broker: str) -> FloatArray:
        """One broker's score, (T,); NaN where it gave no report."""
        unreported: FloatArray = np.full(self.at.size, np.nan)
        return self.points[:, self.brokers.index(broker)] if broker in self.brokers else unreported

    def gap(self) -> FloatArray:
        """The highest score minus the lowest, (T,); NaN where fewer than two are known."""
        return gaps(self._points())

    def mean(self) -> FloatArray:
        """The mean score, (T,); NaN where none is known."""
        points = self._points()
        number = np.isfinite(points).sum(axis=1)
        return np.where(number > 0, np.nansum(points, axis=1) / np.maximum(number, 1), np.nan)

    def _points(self) -> FloatArray:
        """The scores of the brokers that count, (T, B)."""
        return self.points if self.counted is None else np.where(self.counted, self.points, np.nan)


class ScoreLine(msgspec.Struct, frozen=True):
    """A line of a chart: epoch seconds, and points; null breaks the line.

    ``lowest`` and ``highest`` are its extremes in points, null where no point is known.
    """

    at: list[float]
    points: list[float | None]
    lowest: float | None = None
    highest: float | None = None


def score_line(at: FloatArray, points: FloatArray) -> ScoreLine:
    """The line of values (T,) at times (T,): about ``MOST_POINTS``, the lowest and highest of each stretch.

    It is broken where rounds are missing.
    """
    parts = np.split(np.arange(at.size), np.flatnonzero(np.diff(at) > HOLE_SECONDS) + 1)
    times, values = list[float](), list[float | None]()
    for part in parts:
        if times:
            times.append(times[-1] + 1.0)
            values.append(None)
        x, y = thinned(at[part], points[part], max(2, MOST_POINTS * part.size // max(at.size, 1)))
        times += np.round(x, 1).tolist()
        values += [round(value, 2) if np.isfinite(value) else None for value in y.tolist()]
    drawn = [value for value in values if value is not None]
    return ScoreLine(times, values, min(drawn, default=None), max(drawn, default=None))
