"""Bounds that no plan can beat, from bundles on brokers before and after a run. Pure.

Load rebalancing is NP-hard, so nothing here is a plan: these are lower bounds for every plan, also with unequal brokers
and policies. Removal bound: Aggarwal, Motwani, Zhu, "The load
rebalancing problem", SPAA 2003.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray, IntArray


NO_SLOPE = 1e-12
"""Points per unit of traffic below which traffic costs a broker nothing: it has room for any."""

ROUNDING = 1e-9
"""Tolerance for sums of the same sizes in another order, which differ in their last bits."""


def at_most(limit: FloatArray) -> FloatArray:
    """The limit with a tolerance up, of any shape."""
    return limit * (1 + ROUNDING) + ROUNDING


def at_least(limit: FloatArray) -> FloatArray:
    """The limit with a tolerance down, of any shape."""
    return limit * (1 - ROUNDING) - ROUNDING


@dataclass(frozen=True, eq=False)
class BundleHistory:
    """One load, and the first and last owner of each bundle.

    ``sizes`` is float64 (N,), the traffic of each bundle in any one unit; ``first`` and ``last`` are int32 (N,) into
    the brokers. A broker has ``idle`` points without traffic and ``slope`` points for each unit of it, both float64
    (B,). ``present`` is bool (B,): the brokers that are there, before as after.
    """

    sizes: FloatArray
    first: IntArray
    last: IntArray
    idle: FloatArray
    slope: FloatArray
    present: BoolArray

    def carried(self, owner: IntArray) -> FloatArray:
        """Traffic of each broker under these owners, float64 (B,)."""
        return np.bincount(owner, self.sizes, self.idle.size).astype(np.float64)

    def peak(self, owner: IntArray) -> float:
        """Highest score under these owners, in points, which may exceed 100."""
        return float(self._scores(owner).max())

    def trough(self, owner: IntArray) -> float:
        """Lowest score under these owners, in points."""
        return float(self._scores(owner).min())

    def _scores(self, owner: IntArray) -> FloatArray:
        points: FloatArray = (self.idle + self.slope * self.carried(owner))[self.present]
        return points

    def room(self, level: float) -> FloatArray:
        """Traffic with which each broker stays at the level (points), float64 (B,); none on one that is away."""
        spare = level - self.idle
        fits = np.maximum(spare, 0.0) / np.maximum(self.slope, NO_SLOPE)
        free = (self.slope < NO_SLOPE) & (spare >= 0)
        return np.where(self.present, np.where(free, np.inf, fits), 0.0)

    def need(self, level: float) -> FloatArray:
        """Traffic with which each broker reaches the level (points), float64 (B,); none for one that is away, or that
        traffic costs nothing: its score is fixed.
        """
        costly = self.present & (self.slope >= NO_SLOPE)
        return np.where(costly, np.maximum(level - self.idle, 0.0) / np.maximum(self.slope, NO_SLOPE), 0.0)


# --- fewest bundles that brokers below the level take in


@dataclass(frozen=True, eq=False)
class IntakeBound:
    """Fewest bundles that brokers take in; N + 1 where all bundles are not enough.

    ``nothing``: each broker, int64 (B,), where it gives nothing; ``something``: where it gives something, too.
    ``together``: the number of different bundles that all of them take in from elsewhere, in either case.
    """

    nothing: IntArray
    something: IntArray
    together: tuple[int, int]

    def fewest(self, removed: int) -> int:
        """Fewest moves of a plan in which ``removed`` bundles leave overfull brokers.

        A bundle that an underfull broker gives is a move more, and may save it arrivals: for each number of such
        brokers the largest floor counts, and the plan may choose the number.
        """
        saved = np.sort(self.nothing - self.something)[::-1]
        arriving = self.nothing.sum() - np.concatenate(([0], np.cumsum(saved)))
        giving = np.arange(arriving.size)
        leaving = giving + np.maximum(removed, np.where(giving > 0, self.together[1], self.together[0]))
        return int(np.maximum(arriving, leaving).min())


def least_taken(sizes: FloatArray, owner: IntArray, room: FloatArray, need: FloatArray) -> IntakeBound:
    """Number of the largest bundles that fit with which each broker reaches its ``need``, for each broker by itself.

    ``sizes`` is float64 (N,), ``owner`` int32 (N,) into ``room`` and ``need``, both float64 (B,) in the same unit. A
    broker that gives nothing takes only bundles that fit beside all it has.
    """
    carried = np.bincount(owner, sizes, room.size)
    missing = np.maximum(at_least(need) - carried, 0.0)
    low = missing > 0
    needed = np.zeros((2, room.size), dtype=np.int64)
    if not low.any():
        return IntakeBound(needed[0], needed[1], (0, 0))
    falling, most = np.sort(sizes)[::-1], np.stack((room - carried, room))[:, low]
    reached = np.concatenate(([0.0], np.cumsum(falling)))
    needed[:, low] = _bundles_needed(falling, reached, most, missing[low])
    together = _bundles_needed(falling, reached, most.max(axis=1), missing.sum())
    return IntakeBound(needed[0], needed[1], (int(together[0]), int(together[1])))


def _bundles_needed(falling: FloatArray, reached: FloatArray, most: FloatArray, missing: FloatArray) -> IntArray:
    """Number of bundles, from the first that is not larger than ``most`` on, that make up ``missing``, for each.

    ``reached`` is float64 (N + 1,), the sum of those before each.
    """
    start = np.searchsorted(-falling, -at_most(most))
    end = np.searchsorted(reached, (reached[start] + missing) * (1 - ROUNDING))
    return np.where(end <= falling.size, np.maximum(end - start, 1), falling.size + 1)


# --- bounds

MOST_ARRIVALS = 1000
"""Arrivals of a broker that are examined; the last stands for all that could follow."""


def fewest_moves_between(sizes: FloatArray, owner: IntArray, room: FloatArray, need: FloatArray) -> int:
    """:func:`fewest_moves`, where no broker may carry less than its ``need`` either, float64 (B,).

    Underfull brokers need their number of arrivals (:func:`lbd.score.bounds.least_taken`).
    """
    taken = least_taken(sizes, owner, room, need)
    return max(fewest_moves(sizes, owner, room), taken.fewest(fewest_removed(sizes, owner, room)))


def fewest_moves(sizes: FloatArray, owner: IntArray, room: FloatArray) -> int:
    """Fewest bundles that must change brokers until none carries more than its room.

    ``sizes`` is float64 (N,), ``owner`` int32 (N,) into ``room``, float64 (B,) in the same unit. A plan may need more
    moves, never fewer.

    Two floors are combined. The leaving bundles are at least those of :func:`fewest_removed`. The arriving ones are at
    least those that brokers with room need to take in the excess of others: one that gives nothing takes only bundles
    that fit beside all it has; one that gives something, too, may be filled to the brim by one arrival, but each bundle
    that it gives is a further leaving move. For each number of such brokers the larger floor counts; the plan may
    choose the number.
    """
    least = fewest_removed(sizes, owner, room)
    free = room - np.bincount(owner, sizes, room.size)
    too_much = float(at_least(-free[free < 0].sum()))
    if not (least and too_much > 0):
        return least
    beside, instead = _arrivals(sizes, free[free > 0])
    giving_too = np.concatenate(([0.0], np.cumsum(instead)))
    arriving = np.searchsorted(np.concatenate(([0.0], np.cumsum(beside))), too_much - giving_too)
    possible = arriving <= beside.size
    floors = np.maximum(arriving, least + np.arange(arriving.size))[possible]
    return int(floors.min(initial=least if not possible.any() else np.iinfo(np.int64).max))


def fewest_removed(sizes: FloatArray, owner: IntArray, room: FloatArray) -> int:
    """The removal bound: from each broker the largest bundles go until the rest fits, whatever their destination."""
    over = np.bincount(owner, sizes, room.size) > at_most(room)
    on = over[owner]
    owner, remaining = _largest_first(sizes[on], owner[on], room.size)
    return int(np.count_nonzero(remaining > at_most(room)[owner]))


def _arrivals(sizes: FloatArray, free: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Largest intake of brokers with this room, from the largest bundle on: by each arrival beside all they have, and
    the surplus of the first one if they give something, too. Both float64, falling.
    """
    falling = np.sort(sizes[sizes > 0])[::-1]
    reached = np.concatenate(([0.0], np.cumsum(falling)))
    start = np.searchsorted(-falling, -at_most(free))
    stop = np.minimum(np.searchsorted(reached, reached[start] + free), np.minimum(start + MOST_ARRIVALS, falling.size))
    number = stop - start
    positions = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number - start, number)
    beside = falling[positions]
    filled = number > 0
    last = (np.cumsum(number) - 1)[filled]
    whole = number[filled] == MOST_ARRIVALS
    rest = free[filled] - (reached[stop[filled] - 1] - reached[start[filled]])
    beside[last] = np.where(whole, np.maximum(rest, 0.0), np.clip(beside[last], 0.0, np.maximum(rest, 0.0)))
    first = np.where(filled, falling[np.minimum(start, max(falling.size - 1, 0))], 0.0) if falling.size else 0.0 * free
    return np.sort(beside)[::-1], np.sort(np.maximum(free - first, 0.0))[::-1]


def _largest_first(sizes: FloatArray, owner: IntArray, brokers: int) -> tuple[IntArray, FloatArray]:
    """Bundles from the largest down, broker by broker: the owner, and its load before that bundle is taken."""
    order = np.lexsort((-sizes, owner))
    sizes, owner = sizes[order], owner[order]
    start = np.searchsorted(owner, np.arange(brokers))
    before = np.concatenate(([0.0], np.cumsum(sizes)))
    taken = before[:-1] - before[start][owner]
    return owner, np.bincount(owner, sizes, brokers)[owner] - taken
