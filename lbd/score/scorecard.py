"""The scorecard of a run: how even the brokers were, for how long not, and what that cost in moves. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lbd.score.bounds import best_peak
from lbd.score.evenness import Evenness, evenness, gaps, mean_evenness, thrashing
from lbd.score.redundant import redundant_moves
from lbd.score.trace import Moved, Seen, Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.model import FloatArray

__all__ = ["Evenness", "Moved", "Scorecard", "Seen", "Trace", "evenness", "scorecard"]


@dataclass(frozen=True)
class Scorecard:
    """What a run comes to. Scores are the true ones, in points.

    ``first``, ``last``, ``mean``: how even the brokers were at the first and at the last look, and on average;
    ``unmoved``: on average, had nothing moved.
    ``minutes_over_low``, ``minutes_over_high``: how long the gap was at or above the thresholds.
    ``minutes_to_balance``: from the first moment at or above the low threshold until it was below for good; 0 where it
    always was, None where it ended above.
    ``first_move_after_seconds``: from the first report that showed the high threshold until the next bundle landed.
    ``moves``: landed unloads; ``rounds``: in how many bouts with a minute between them.
    ``splits``: bundles that were split, by lbd or by the brokers.
    ``peak_points``: the highest score of the last owners, under the heaviest load since the last move.
    ``fewest_moves``: what any plan would have needed at least, from the first owners to as low a peak
    (:func:`lbd.score.bounds.fewest_moves`).
    ``redundant_moves``: at least so many of the moves could have been left out, for as low a peak
    (:func:`lbd.score.redundant.redundant_moves`).
    ``fewest_moves_as_even``, ``redundant_moves_as_even``: the same for as low a peak and as high a lowest score.
    ``best_peak_points``: the lowest peak that any plan of as many moves could have reached
    (:func:`lbd.score.bounds.best_peak`).
    ``bundles_moved_twice``: bundles that moved more than once.
    ``traffic_moved``: what the moved bundles carried, as a fraction of what the cluster carries on average.
    ``thrashing``: how much a broker went back and forth, a fraction (:func:`lbd.score.evenness.thrashing`), what the
    load did by itself included. ``thrashing_unmoved``: the same had nothing moved.
    ``policy_violations``: moves to where policies do not let the bundle be.
    ``unserved_bundle_seconds``: for how long nobody served a bundle, over all bundles, for moves and for brokers lost.
    ``turn_p50_seconds``, ``turn_p99_seconds``: what half, and all but one in a hundred, of the turns took at most.

    The bounds, the peaks, redundant moves and what is ``unmoved`` are None where bundles changed hands without lbd;
    of these all but ``peak_points`` and what is ``unmoved`` also where some were split.
    """

    hours: float
    turns: int
    first: Evenness
    last: Evenness
    mean: Evenness
    unmoved: Evenness | None
    minutes_over_low: float
    minutes_over_high: float
    minutes_to_balance: float | None
    first_move_after_seconds: float | None
    moves: int
    rounds: int
    splits: int
    peak_points: float | None
    fewest_moves: int | None
    redundant_moves: int | None
    fewest_moves_as_even: int | None
    redundant_moves_as_even: int | None
    best_peak_points: float | None
    bundles_moved_twice: int
    traffic_moved: float
    thrashing: float
    thrashing_unmoved: float | None
    policy_violations: int
    unserved_bundle_seconds: float
    turn_p50_seconds: float
    turn_p99_seconds: float


ROUND_SECONDS = 60.0
"""Moves with less than a minute between them belong to one round."""


def scorecard(trace: Trace, low_threshold: float, high_threshold: float) -> Scorecard:
    """The scorecard of a run with at least one look; thresholds in points."""
    points, unmoved, seconds = trace.points(), trace.unmoved(), trace.seconds()
    gap = gaps(points)
    found = trace.bounded
    took = np.quantile([one.took_seconds for one in trace.seen], (0.5, 0.99), method="inverted_cdf")
    return Scorecard(
        hours=trace.seen[-1].seconds / 3600,
        turns=len(trace.seen),
        first=evenness(trace.seen[0].points),
        last=evenness(trace.seen[-1].points),
        mean=mean_evenness(points),
        unmoved=None if unmoved is None else mean_evenness(unmoved),
        minutes_over_low=_minutes_over(seconds, gap, low_threshold),
        minutes_over_high=_minutes_over(seconds, gap, high_threshold),
        minutes_to_balance=_minutes_to_balance(seconds, gap, low_threshold),
        first_move_after_seconds=_first_move(trace),
        moves=len(trace.moves),
        rounds=_rounds(trace.moves),
        splits=len(trace.splits),
        peak_points=None if trace.placement is None else trace.placement.peak(trace.placement.last),
        fewest_moves=trace.fewest_moves,
        redundant_moves=None if found is None else redundant_moves(found, len(trace.moves)),
        fewest_moves_as_even=trace.fewest_moves_as_even,
        redundant_moves_as_even=None if found is None else redundant_moves(found, len(trace.moves), as_even=True),
        best_peak_points=None if found is None else best_peak(found, len(trace.moves)),
        bundles_moved_twice=sum(number > 1 for number in Counter(move.bundle for move in trace.moves).values()),
        traffic_moved=_traffic_moved(trace),
        thrashing=thrashing(points),
        thrashing_unmoved=None if unmoved is None else thrashing(unmoved),
        policy_violations=sum(not move.allowed for move in trace.moves),
        unserved_bundle_seconds=trace.unserved_bundle_seconds,
        turn_p50_seconds=float(took[0]),
        turn_p99_seconds=float(took[1]),
    )


def _minutes_over(seconds: FloatArray, gap: FloatArray, threshold: float) -> float:
    """Each look holds until the next one."""
    return float(np.diff(seconds)[gap[:-1] >= threshold].sum()) / 60


def _minutes_to_balance(seconds: FloatArray, gap: FloatArray, threshold: float) -> float | None:
    over = np.flatnonzero(gap >= threshold)
    if not over.size:
        return 0.0
    if over[-1] == gap.size - 1:
        return None
    return float(seconds[over[-1] + 1] - seconds[over[0]]) / 60


def _rounds(moves: Sequence[Moved]) -> int:
    times = sorted(move.seconds for move in moves)
    return bool(times) + sum(later - earlier >= ROUND_SECONDS for earlier, later in pairwise(times))


def _traffic_moved(trace: Trace) -> float:
    carried = sum(one.throughput for one in trace.seen) / len(trace.seen)
    return sum(move.throughput for move in trace.moves) / carried if carried else 0.0


def _first_move(trace: Trace) -> float | None:
    """Moves of a round that had begun before are none that follow it."""
    shown = trace.shown_at_seconds
    after = () if shown is None else (move.seconds - shown for move in trace.moves)
    return min((seconds for seconds in after if seconds >= 0), default=None)
