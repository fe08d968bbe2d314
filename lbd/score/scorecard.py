"""The scorecard of a run: how even the brokers were, for how long not, and what that cost in moves. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.model import FloatArray


@dataclass(frozen=True, eq=False)
class Seen:
    """The truth at one moment, ``seconds`` after the beginning.

    ``points`` is float64 (B,), the score of each broker that is there; ``throughput`` is what all carry, bytes/s.
    """

    seconds: float
    points: FloatArray
    throughput: float


@dataclass(frozen=True)
class Moved:
    """A bundle that landed; ``throughput`` in bytes/s, in + out."""

    seconds: float
    bundle: str
    source: str
    destination: str
    throughput: float


@dataclass(frozen=True)
class Trace:
    """A run. ``shown_at_seconds`` is when reports first showed the high threshold; see :func:`bounds.fewest_moves`."""

    seen: tuple[Seen, ...]
    moves: tuple[Moved, ...]
    shown_at_seconds: float | None = None
    fewest_moves: int | None = None


@dataclass(frozen=True)
class Evenness:
    """How even the brokers are: points between the highest and the lowest, their standard deviation, max / mean."""

    gap_points: float
    std_points: float
    max_over_mean: float


@dataclass(frozen=True)
class Scorecard:
    """What a run comes to.

    ``minutes_over_low`` and ``minutes_over_high``: how long the gap was at or above the thresholds.
    ``minutes_to_balance``: from the first moment at or above the low threshold until it was below for good; 0 where it
    always was, None where it ended above. ``traffic_moved`` is a fraction of what the cluster carries on average.
    ``first_move_after_seconds`` counts from the first report that showed the high threshold. ``fewest_moves`` is what
    any plan would have needed from the first owners to a highest score as low as at the end.
    """

    hours: float
    turns: int
    first: Evenness
    last: Evenness
    minutes_over_low: float
    minutes_over_high: float
    minutes_to_balance: float | None
    moves: int
    rounds: int
    fewest_moves: int | None
    bundles_moved_twice: int
    traffic_moved: float
    first_move_after_seconds: float | None


ROUND_SECONDS = 60.0
"""Moves with less than a minute between them belong to one round."""


def scorecard(trace: Trace, low_threshold: float, high_threshold: float) -> Scorecard:
    """The scorecard of a run with at least one look; thresholds in points."""
    gaps = [float(np.ptp(one.points)) for one in trace.seen]
    return Scorecard(
        hours=trace.seen[-1].seconds / 3600,
        turns=len(trace.seen),
        first=evenness(trace.seen[0].points),
        last=evenness(trace.seen[-1].points),
        minutes_over_low=_minutes_over(trace.seen, gaps, low_threshold),
        minutes_over_high=_minutes_over(trace.seen, gaps, high_threshold),
        minutes_to_balance=_minutes_to_balance(trace.seen, gaps, low_threshold),
        moves=len(trace.moves),
        rounds=_rounds(trace.moves),
        fewest_moves=trace.fewest_moves,
        bundles_moved_twice=sum(number > 1 for number in Counter(move.bundle for move in trace.moves).values()),
        traffic_moved=_traffic_moved(trace),
        first_move_after_seconds=_first_move(trace),
    )


def evenness(points: FloatArray) -> Evenness:
    """Of scores, float64 (B,); max / mean of an idle cluster is 1."""
    mean = float(points.mean())
    return Evenness(float(np.ptp(points)), float(points.std()), float(points.max()) / mean if mean > 0 else 1.0)


def _minutes_over(seen: Sequence[Seen], gaps: Sequence[float], threshold: float) -> float:
    """Each look holds until the next one."""
    spans = zip(pairwise(seen), gaps, strict=False)
    return sum(later.seconds - now.seconds for (now, later), gap in spans if gap >= threshold) / 60


def _minutes_to_balance(seen: Sequence[Seen], gaps: Sequence[float], threshold: float) -> float | None:
    over = [at for at, gap in enumerate(gaps) if gap >= threshold]
    if not over:
        return 0.0
    if over[-1] == len(gaps) - 1:
        return None
    return (seen[over[-1] + 1].seconds - seen[over[0]].seconds) / 60


def _rounds(moves: Sequence[Moved]) -> int:
    times = sorted(move.seconds for move in moves)
    return bool(times) + sum(later - earlier >= ROUND_SECONDS for earlier, later in pairwise(times))


def _traffic_moved(trace: Trace) -> float:
    carried = sum(one.throughput for one in trace.seen) / len(trace.seen)
    return sum(move.throughput for move in trace.moves) / carried if carried else 0.0


def _first_move(trace: Trace) -> float | None:
    if trace.shown_at_seconds is None or not trace.moves:
        return None
    return max(trace.moves[0].seconds - trace.shown_at_seconds, 0.0)
