"""Bounds that no plan can beat, from bundles on brokers before and after a run. Pure.

Load rebalancing (at most k bundles move, minimize the highest score) is NP-hard, so nothing here is a plan: these are
lower bounds for every plan, also with unequal brokers and policies. Removal bound: Aggarwal, Motwani, Zhu, "The load
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
class Pools:
    """Brokers that policies allow for bundles: ``of`` is int32 (N,) into the rows of ``allowed``, bool (G, B)."""

    of: IntArray
    allowed: BoolArray


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
    pools: Pools

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

    def may_stay(self) -> BoolArray:
        """Whether policies allow the first owner of each bundle, bool (N,)."""
        allowed: BoolArray = self.pools.allowed[self.pools.of, self.first]
        return allowed


def everywhere(bundles: int, brokers: int) -> Pools:
    """Pools without policies: all bundles may be on all brokers."""
    return Pools(np.zeros(bundles, dtype=np.int32), np.ones((1, brokers), dtype=np.bool_))


# --- further moves for a bundle that fits on no broker as it is
# The removal bound takes the largest bundle off a broker without asking for room. Either such a broker keeps it and
# gives more of its smaller ones, or some other broker gives bundles of its own until there is room.

SOURCES_AT_MOST = 8
LARGEST_AT_MOST = 8
"""Number of overfull brokers to examine, and of the largest bundles of each: any of them gives a floor."""


def fewest_displaced(sizes: FloatArray, owner: IntArray, room: FloatArray) -> int:
    """The removal bound (``bounds.fewest_removed``), and the further moves that the largest bundles of one broker need.

    ``sizes`` is float64 (N,), ``owner`` int32 (N,) into ``room``, float64 (B,) in the same unit. 0 where each bundle of
    an overfull broker fits somewhere as it is; N + 1 where no plan at all fits.
    """
    too_much = np.bincount(owner, sizes, room.size) * (1 - ROUNDING) - at_most(room)
    leaving = sizes[(too_much > 0)[owner]]
    if leaving.max(initial=0.0) <= -too_much.min(initial=0.0):
        return 0
    falling = _falling(sizes, owner, too_much)
    number = falling.needed(falling.too_much)
    if np.isinf(number).any():  # less than no room
        return sizes.size + 1
    full = np.flatnonzero(number > 0)
    fullest = full[np.argsort(-falling.too_much[full], kind="stable")][:SOURCES_AT_MOST]
    more = [falling.more(source, number) for source in fullest.tolist()]
    return int(min(number.sum() + max(more, default=0.0), sizes.size + 1))


@dataclass(frozen=True, eq=False)
class _Falling:
    """Bundles broker by broker, from the largest down: their sizes, and ``before``, float64 (N + 1,), the sum of those
    before each. A broker's are those from ``start`` to ``stop``, (B,); ``too_much``, (B,), is its traffic beyond its
    room.
    """

    sizes: FloatArray
    before: FloatArray
    start: IntArray
    stop: IntArray
    too_much: FloatArray

    def needed(self, amount: FloatArray) -> FloatArray:
        """Number of its largest bundles that make up ``amount``, by broker, float64 (B,); infinite if too few."""
        return self._first(self.start, amount, self.stop)

    def more(self, source: int, number: FloatArray) -> float:
        """Moves beyond ``number``, those that each broker needs for itself, float64 (B,), for the largest of this one.

        With or without any of its ``k`` largest: the cheaper way is a floor for each ``k``.
        """
        start, stop = int(self.start[source]), int(self.stop[source])
        most = 0.0
        for index in range(start, min(stop, start + LARGEST_AT_MOST)):
            keeps = self._first(np.array([index + 1]), self.too_much[[source]], np.array([stop]))[0] - number[source]
            makes_room = self.needed(self.sizes[index] * (1 - ROUNDING) + self.too_much) - number
            makes_room[source] = np.inf
            most = max(most, float(min(keeps, makes_room.min())))
        return most

    def _first(self, start: IntArray, amount: FloatArray, stop: IntArray) -> FloatArray:
        """Number of bundles from ``start`` on that make up ``amount``; infinite where that is beyond ``stop``."""
        end = np.searchsorted(self.before, self.before[start] + amount)
        return np.where(end <= stop, np.maximum(end - start, 0), np.inf)


def _falling(sizes: FloatArray, owner: IntArray, too_much: FloatArray) -> _Falling:
    order = np.lexsort((-sizes, owner))
    bounds = np.searchsorted(owner[order], np.arange(too_much.size + 1)).astype(np.int32)
    before = np.concatenate(([0.0], np.cumsum(sizes[order])))
    return _Falling(sizes[order], before, bounds[:-1], bounds[1:], too_much)


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

HALVINGS = 30
"""Steps of the search for a peak: to below a millionth of a point of its range."""

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
    choose the number. A third floor stands beside both: the leaving bundles, and those that the largest of one broker
    displace (:func:`fewest_displaced`).
    """
    least = fewest_removed(sizes, owner, room)
    free = room - np.bincount(owner, sizes, room.size)
    too_much = float(at_least(-free[free < 0].sum()))
    if not (least and too_much > 0):
        return least
    displacing = fewest_displaced(sizes, owner, room)
    beside, instead = _arrivals(sizes, free[free > 0])
    giving_too = np.concatenate(([0.0], np.cumsum(instead)))
    arriving = np.searchsorted(np.concatenate(([0.0], np.cumsum(beside))), too_much - giving_too)
    possible = arriving <= beside.size
    floors = np.maximum(arriving, least + np.arange(arriving.size))[possible]
    arrived = int(floors.min(initial=least if not possible.any() else np.iinfo(np.int64).max))
    return max(arrived, displacing)


def fewest_removed(sizes: FloatArray, owner: IntArray, room: FloatArray) -> int:
    """The removal bound: from each broker the largest bundles go until the rest fits, whatever their destination."""
    over = np.bincount(owner, sizes, room.size) > at_most(room)
    on = over[owner]
    owner, remaining = _largest_first(sizes[on], owner[on], room.size)
    return int(np.count_nonzero(remaining > at_most(room)[owner]))


def best_peak(placement: BundleHistory, moves: int) -> float:
    """Lowest peak, in points, that any plan of at most ``moves`` moves can reach from the first owners.

    The highest of five floors: the highest remainder after the best removals; the level to which all traffic would fill
    its allowed brokers, pool by pool; the largest bundle on the broker where it costs least; the highest score of a
    broker without traffic; and the lowest peak for which :func:`fewest_moves` does not need more moves.
    """
    floors = (_idle(placement), _removal(placement, moves), *_levels(placement), *_largest(placement))
    return _by_moves(placement, moves, max(floors))


def _by_moves(placement: BundleHistory, moves: int, low: float) -> float:
    """Highest peak, from ``low`` on, that no plan of at most ``moves`` moves can reach."""
    high = placement.peak(placement.first)
    for _ in range(HALVINGS if high > low else 0):
        middle = (low + high) / 2
        needs_more = fewest_moves(placement.sizes, placement.first, placement.room(middle)) > moves
        low, high = (middle, high) if needs_more else (low, middle)
    return low


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


def _idle(placement: BundleHistory) -> float:
    return float(placement.idle[placement.present].max())


def _removal(placement: BundleHistory, moves: int) -> float:
    """Level by removals: each removed bundle ends one level of its broker; the ``moves`` highest levels can end."""
    owner, remaining = _largest_first(placement.sizes, placement.first, placement.idle.size)
    levels = np.sort(placement.idle[owner] + placement.slope[owner] * remaining)[::-1]
    return float(levels[moves]) if moves < levels.size else -np.inf


def _levels(placement: BundleHistory) -> list[float]:
    """For each pool: the level of the load that must stay on its brokers, spread as evenly as water."""
    pools, bound = placement.pools, placement.may_stay()
    levels = []
    for brokers in pools.allowed:
        confined = ~(pools.allowed & ~brokers).any(axis=1)
        load = placement.sizes[bound & confined[pools.of]].sum()
        levels.append(_water_level(placement, brokers & placement.present, float(load)))
    return levels


def _water_level(placement: BundleHistory, brokers: BoolArray, load: float) -> float:
    """Level at which these brokers together carry the load: the least of those of the k idlest alone, for any k."""
    if not (brokers.any() and load > 0):
        return -np.inf
    order = np.argsort(placement.idle[brokers])
    idle = placement.idle[brokers][order]
    carries = 1 / np.maximum(placement.slope[brokers][order], NO_SLOPE)
    return float(((load + np.cumsum(idle * carries)) / np.cumsum(carries)).min())


def _largest(placement: BundleHistory) -> list[float]:
    """Score of each pool's largest bundle alone on the broker where it makes the fewest points."""
    pools, bound = placement.pools, placement.may_stay()
    points = []
    for pool, brokers in enumerate(pools.allowed):
        size = placement.sizes[bound & (pools.of == pool)].max(initial=0.0)
        there = brokers & placement.present
        points.append(
            float((placement.idle[there] + placement.slope[there] * size).min(initial=np.inf)) if size else -np.inf
        )
    return points
