"""What a replay of one window is worth, in the figures that settings are chosen by. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.learn.window import LONGEST_SILENCE_SECONDS
from lbd.permit.budget import DAY_SECONDS, HOUR_SECONDS
from lbd.score.evenness import gaps, thrashing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lbd.learn.closed_loop import Course
    from lbd.model import FloatArray


STRETCH_SECONDS = 600.0
"""Gaps are between means of ten minutes: the range of single samples of twelve brokers is three deviations of their
noise wherever the bundles are, and no settings mend that."""


@dataclass(frozen=True)
class Figures:
    """One replay. Gaps are between the highest and the lowest mean score of ten minutes (:data:`STRETCH_SECONDS`), in
    points, over the rounds of the window.

    ``days`` is the time that was seen: of a silence only its beginning counts. ``worst_hour_gap`` is the
    largest mean of an hour. ``minutes_over`` is how long the gap was at or above the present low threshold.
    ``moved_twice`` are bundles moved more than once, of ``bundles`` in all. ``thrashing`` is a fraction
    (:func:`lbd.score.evenness.thrashing`).
    """

    days: float
    moves: int
    bundles: int
    mean_gap: float
    p95_gap: float
    worst_hour_gap: float
    minutes_over: float
    moved_twice: int
    thrashing: float


def figures(course: Course, over_points: float) -> Figures:
    """The figures of a replay."""
    found = gap_figures(course.at, course.points, over_points)
    moved = Counter(one.bundle for one in course.moves)
    twice = sum(number > 1 for number in moved.values())
    return Figures(moves=len(course.moves), bundles=course.bundles, moved_twice=twice, **found)


def gap_figures(at: FloatArray, points: FloatArray, over_points: float) -> dict[str, float]:
    """Those of the figures that scores alone tell."""
    seen = np.isfinite(points).sum(axis=1) > 1
    at, points = at[seen], points[seen]
    if not at.size:
        return dict.fromkeys(("days", "mean_gap", "p95_gap", "worst_hour_gap", "minutes_over", "thrashing"), 0.0)
    means, stretch = _means(at, points)
    gap = gaps(means)[stretch]
    lasts = np.minimum(np.diff(at, append=at[-1]), LONGEST_SILENCE_SECONDS)
    hours = ((at - at[0]) // HOUR_SECONDS).astype(np.int64)
    hourly = np.bincount(hours, gap) / np.maximum(np.bincount(hours), 1)
    return {
        "days": float(lasts.sum()) / DAY_SECONDS,
        "mean_gap": float(gap.mean()),
        "p95_gap": float(np.quantile(gap, 0.95)),
        "worst_hour_gap": float(hourly.max()),
        "minutes_over": float(lasts[gap >= over_points].sum()) / 60,
        "thrashing": thrashing(means) if len(means) > 1 else 0.0,
    }


def _means(at: FloatArray, points: FloatArray) -> tuple[FloatArray, NDArray[np.int64]]:
    """Mean scores of each stretch of ten minutes, (S, B), NaN of brokers away; and the stretch of each round, (T,)."""
    number = ((at - at[0]) // STRETCH_SECONDS).astype(np.int64)
    begins = np.flatnonzero(np.diff(number, prepend=-1))
    known = np.isfinite(points)
    total = np.add.reduceat(np.where(known, points, 0.0), begins, axis=0)
    count = np.add.reduceat(known.astype(np.int64), begins, axis=0)
    means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return means, np.searchsorted(begins, np.arange(at.size), side="right") - 1


def pooled(found: Sequence[Figures]) -> Figures:
    """Several windows as one: times and moves added up, gaps weighed by their time, the worst of the worst."""
    weights = np.array([max(one.days, 1e-9) for one in found])
    gaps_of = ([one.mean_gap for one in found], [one.p95_gap for one in found])
    mean, p95 = (float(np.average(values, weights=weights)) for values in gaps_of)
    return Figures(
        days=sum(one.days for one in found),
        moves=sum(one.moves for one in found),
        bundles=max(one.bundles for one in found),
        mean_gap=mean,
        p95_gap=p95,
        worst_hour_gap=max(one.worst_hour_gap for one in found),
        minutes_over=sum(one.minutes_over for one in found),
        moved_twice=sum(one.moved_twice for one in found),
        thrashing=max(one.thrashing for one in found),
    )
