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
"""Points for a unit of traffic on a broker that traffic costs nothing: it has room for all there is."""

ROUNDING = 1e-9
"""Sums of the same sizes in another order differ in their last bits; also a sum of all from which one is taken."""


def at_most(limit: FloatArray) -> FloatArray:
    """What counts as no more than a limit, of any shape."""
    return limit * (1 + ROUNDING) + ROUNDING


def at_least(limit: FloatArray) -> FloatArray:
    """What counts as no less than a limit, of any shape."""
    return limit * (1 - ROUNDING) - ROUNDING


@dataclass(frozen=True, eq=False)
class Pools:
    """Which brokers policies let bundles be on: ``of`` is int32 (N,) into the rows of ``allowed``, bool (G, B)."""

    of: IntArray
    allowed: BoolArray


@dataclass(frozen=True, eq=False)
class BundleHistory:
    """One load, and who owned it at first and at last.

    ``sizes`` is float64 (N,), the traffic of each bundle in any one unit; ``first`` and ``last`` are int32 (N,) into
    the brokers. A broker has ``idle`` points without traffic and ``slope`` points for each unit of it, both float64
    (B,). ``present`` is bool (B,): those that are there, before as after.
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
        """The highest score under these owners, in points; a machine's 100 do not end it."""
        return float(self._scores(owner).max())

    def trough(self, owner: IntArray) -> float:
        """The lowest score under these owners, in points."""
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

    def wanted(self, level: float) -> FloatArray:
        """Traffic with which each broker reaches the level (points), float64 (B,); none of one that is away, or that
        traffic costs nothing: its score is what it is.
        """
        costly = self.present & (self.slope >= NO_SLOPE)
        return np.where(costly, np.maximum(level - self.idle, 0.0) / np.maximum(self.slope, NO_SLOPE), 0.0)

    def may_stay(self) -> BoolArray:
        """Whether each bundle was at first where policies let it be, bool (N,)."""
        allowed: BoolArray = self.pools.allowed[self.pools.of, self.first]
        return allowed


def everywhere(bundles: int, brokers: int) -> Pools:
    """No policies: all bundles may be on all brokers."""
    return Pools(np.zeros(bundles, dtype=np.int32), np.ones((1, brokers), dtype=np.bool_))


# --- further moves for a bundle that fits on no broker as it is
# The removal bound takes the largest bundle off a broker without asking for room. Either such a broker keeps it and
# gives more of its smaller ones, or some other broker gives bundles of its own until there is room.

SOURCES_AT_MOST = 8
LARGEST_AT_MOST = 8
"""So many brokers that are too full are looked at, and so many of the largest bundles of each: any is a floor."""


def fewest_displaced(sizes: FloatArray, owner: IntArray, room: FloatArray) -> int:
    """The removal bound (``bounds.fewest_removed``), and what the largest bundles of one broker need beyond it.

    ``sizes`` is float64 (N,), ``owner`` int32 (N,) into ``room``, float64 (B,) in the same unit. 0 where each bundle of
    a broker that is too full fits somewhere as it is; N + 1 where no plan at all fits.
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
    before each. A broker's are those from ``start`` to ``stop``, (B,); ``too_much``, (B,), is what is beyond its room.
    """

    sizes: FloatArray
    before: FloatArray
    start: IntArray
    stop: IntArray
    too_much: FloatArray

    def needed(self, wanted: FloatArray) -> FloatArray:
        """How many of its largest each broker gives for so much, float64 (B,); infinite where all are not enough."""
        return self._first(self.start, wanted, self.stop)

    def more(self, source: int, number: FloatArray) -> float:
        """Moves beyond ``number``, those that each broker needs for itself, float64 (B,), for the largest of this one.

        With or without any of its ``k`` largest: the cheaper way is a floor for each ``k``.
        """
        start, stop = int(self.start[source]), int(self.stop[source])
        most = 0.0
        for at in range(start, min(stop, start + LARGEST_AT_MOST)):
            keeps = self._first(np.array([at + 1]), self.too_much[[source]], np.array([stop]))[0] - number[source]
            makes_room = self.needed(self.sizes[at] * (1 - ROUNDING) + self.too_much) - number
            makes_room[source] = np.inf
            most = max(most, float(min(keeps, makes_room.min())))
        return most

    def _first(self, start: IntArray, wanted: FloatArray, stop: IntArray) -> FloatArray:
        """How many from ``start`` on make up what is wanted; infinite where that is beyond ``stop``."""
        end = np.searchsorted(self.before, self.before[start] + wanted)
        return np.where(end <= stop, np.maximum(end - start, 0), np.inf)


def _falling(sizes: FloatArray, owner: IntArray, too_much: FloatArray) -> _Falling:
    order = np.lexsort((-sizes, owner))
    at = np.searchsorted(owner[order], np.arange(too_much.size + 1)).astype(np.int32)
    before = np.concatenate(([0.0], np.cumsum(sizes[order])))
    return _Falling(sizes[order], before, at[:-1], at[1:], too_much)


# --- the least that brokers below the level take in


@dataclass(frozen=True, eq=False)
class IntakeBound:
    """Bundles that brokers take in at least; N + 1 where all bundles are not enough.

    ``nothing``: each broker, int64 (B,), where it gives nothing; ``something``: where it gives something, too.
    ``together``: so many different ones all of them take in from elsewhere, in either case.
    """

    nothing: IntArray
    something: IntArray
    together: tuple[int, int]

    def fewest(self, removed: int) -> int:
        """The fewest moves of a plan in which so many bundles leave brokers that carry too much.

        What a broker that carries too little gives is a move more, and may save it arrivals: for each number of such
        brokers the largest floor counts, and the plan may choose the number.
        """
        saved = np.sort(self.nothing - self.something)[::-1]
        arriving = self.nothing.sum() - np.concatenate(([0], np.cumsum(saved)))
        giving = np.arange(arriving.size)
        leaving = giving + np.maximum(removed, np.where(giving > 0, self.together[1], self.together[0]))
        return int(np.maximum(arriving, leaving).min())


def least_taken(sizes: FloatArray, owner: IntArray, room: FloatArray, wanted: FloatArray) -> IntakeBound:
    """How many of the largest bundles that fit bring each broker to ``wanted``, for each broker by itself.

    ``sizes`` is float64 (N,), ``owner`` int32 (N,) into ``room`` and ``wanted``, both float64 (B,) in the same unit.
    A broker that gives nothing takes only what fits beside all it has.
    """
    carried = np.bincount(owner, sizes, room.size)
    missing = np.maximum(at_least(wanted) - carried, 0.0)
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
    """How many from the first on that is not larger than ``most`` make up what is ``missing``, as many as of ``most``.

    ``reached`` is float64 (N + 1,), the sum of those before each.
    """
    start = np.searchsorted(-falling, -at_most(most))
    end = np.searchsorted(reached, (reached[start] + missing) * (1 - ROUNDING))
    return np.where(end <= falling.size, np.maximum(end - start, 1), falling.size + 1)


# --- bounds

HALVINGS = 30
"""Of the range in which a peak is searched: below a millionth of a point."""

MOST_ARRIVALS = 1000
"""Of a broker so many are looked at one by one; the last of them stands for all that could follow."""


def fewest_moves_between(sizes: FloatArray, owner: IntArray, room: FloatArray, wanted: FloatArray) -> int:
    """:func:`fewest_moves`, where no broker is to carry less than is ``wanted`` of it either, float64 (B,).

    As many arrive as brokers that carry too little need (:func:`lbd.score.bounds.least_taken`).
    """
    taken = least_taken(sizes, owner, room, wanted)
    return max(fewest_moves(sizes, owner, room), taken.fewest(fewest_removed(sizes, owner, room)))


def fewest_moves(sizes: FloatArray, owner: IntArray, room: FloatArray) -> int:
    """How many bundles must at least change brokers until none carries more than its room.

    ``sizes`` is float64 (N,), ``owner`` int32 (N,) into ``room``, float64 (B,) in the same unit. A plan may need more
    moves, never fewer.

    Two floors are laid together. As many leave as :func:`fewest_removed` says. And as many arrive as brokers with room
    need to take in what is too much elsewhere: one that gives nothing takes only what fits beside all it has; one that
    gives something, too, may be filled to the brim by one arrival, but what it gives is a move more among those that
    leave. For each number of such brokers the larger floor counts; the plan may choose the number. A third floor is
    laid beside both: as many as leave, and what the largest of one broker displace (:func:`fewest_displaced`).
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
    """The lowest highest score, in points, that any plan of so many moves can reach from the first owners.

    The highest of five floors: what is left where most is left after so many of the best removals; the level to which
    all traffic would fill the brokers it may be on, pool by pool; the largest bundle where it costs least; the highest
    score of a broker without traffic; and the lowest peak for which :func:`fewest_moves` does not ask for more moves.
    """
    floors = (_idle(placement), _removal(placement, moves), *_levels(placement), *_largest(placement))
    return _by_moves(placement, moves, max(floors))


def _by_moves(placement: BundleHistory, moves: int, low: float) -> float:
    """The highest peak found, from ``low`` on, that no plan of so many moves can reach."""
    high = placement.peak(placement.first)
    for _ in range(HALVINGS if high > low else 0):
        middle = (low + high) / 2
        needs_more = fewest_moves(placement.sizes, placement.first, placement.room(middle)) > moves
        low, high = (middle, high) if needs_more else (low, middle)
    return low


def _arrivals(sizes: FloatArray, free: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What brokers with so much room take in, at most, from the largest on: by each arrival beside all they have, and
    how much more by the first one if they give something, too. Both float64, falling.
    """
    falling = np.sort(sizes[sizes > 0])[::-1]
    reached = np.concatenate(([0.0], np.cumsum(falling)))
    start = np.searchsorted(-falling, -at_most(free))
    stop = np.minimum(np.searchsorted(reached, reached[start] + free), np.minimum(start + MOST_ARRIVALS, falling.size))
    number = stop - start
    at = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number - start, number)
    beside = falling[at]
    filled = number > 0
    last = (np.cumsum(number) - 1)[filled]
    whole = number[filled] == MOST_ARRIVALS
    rest = free[filled] - (reached[stop[filled] - 1] - reached[start[filled]])
    beside[last] = np.where(whole, np.maximum(rest, 0.0), np.clip(beside[last], 0.0, np.maximum(rest, 0.0)))
    first = np.where(filled, falling[np.minimum(start, max(falling.size - 1, 0))], 0.0) if falling.size else 0.0 * free
    return np.sort(beside)[::-1], np.sort(np.maximum(free - first, 0.0))[::-1]


def _largest_first(sizes: FloatArray, owner: IntArray, brokers: int) -> tuple[IntArray, FloatArray]:
    """Bundles from the largest down, broker by broker: its owner, and what that one carries before it is taken."""
    order = np.lexsort((-sizes, owner))
    sizes, owner = sizes[order], owner[order]
    start = np.searchsorted(owner, np.arange(brokers))
    before = np.concatenate(([0.0], np.cumsum(sizes)))
    taken = before[:-1] - before[start][owner]
    return owner, np.bincount(owner, sizes, brokers)[owner] - taken


def _idle(placement: BundleHistory) -> float:
    return float(placement.idle[placement.present].max())


def _removal(placement: BundleHistory, moves: int) -> float:
    """Each removed bundle ends one level of its broker; at most ``moves`` of the highest levels can be ended."""
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
    """The level at which these brokers together carry the load: the least of those of the k idlest alone, for any k."""
    if not (brokers.any() and load > 0):
        return -np.inf
    order = np.argsort(placement.idle[brokers])
    idle = placement.idle[brokers][order]
    carries = 1 / np.maximum(placement.slope[brokers][order], NO_SLOPE)
    return float(((load + np.cumsum(idle * carries)) / np.cumsum(carries)).min())


def _largest(placement: BundleHistory) -> list[float]:
    """For each pool: the score of its largest bundle alone on the broker where it makes the fewest points."""
    pools, bound = placement.pools, placement.may_stay()
    points = []
    for pool, brokers in enumerate(pools.allowed):
        size = placement.sizes[bound & (pools.of == pool)].max(initial=0.0)
        at = brokers & placement.present
        points.append(float((placement.idle[at] + placement.slope[at] * size).min(initial=np.inf)) if size else -np.inf)
    return points
