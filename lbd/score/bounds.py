"""What no plan can beat. Pure.

Load rebalancing (at most k bundles move, the highest score is to be least) is NP-hard, so nothing here is a plan: these
are floors under every plan, also under unequal brokers and policies. Removal bound: Aggarwal, Motwani, Zhu, "The load
rebalancing problem", SPAA 2003.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.score.displaced import fewest_displaced
from lbd.score.filled import least_taken
from lbd.score.placement import NO_SLOPE, at_least, at_most

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray, IntArray
    from lbd.score.placement import Placement

HALVINGS = 30
"""Of the range in which a peak is searched: below a millionth of a point."""

MOST_ARRIVALS = 1000
"""Of a broker so many are looked at one by one; the last of them stands for all that could follow."""


def fewest_moves_between(sizes: FloatArray, owner: IntArray, room: FloatArray, wanted: FloatArray) -> int:
    """:func:`fewest_moves`, where no broker is to carry less than is ``wanted`` of it either, float64 (B,).

    As many arrive as brokers that carry too little need (:func:`lbd.score.filled.least_taken`).
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
    """The removal bound: from each broker the largest bundles are taken until the rest fits, wherever they go."""
    over = np.bincount(owner, sizes, room.size) > at_most(room)
    on = over[owner]
    owner, left = _left(sizes[on], owner[on], room.size)
    return int(np.count_nonzero(left > at_most(room)[owner]))


def best_peak(placement: Placement, moves: int) -> float:
    """The lowest highest score, in points, that any plan of so many moves can reach from the first owners.

    The highest of five floors: what is left where most is left after so many of the best removals; the level to which
    all traffic would fill the brokers it may be on, pool by pool; the largest bundle where it costs least; the highest
    score of a broker without traffic; and the lowest peak for which :func:`fewest_moves` does not ask for more moves.
    """
    floors = (_idle(placement), _removal(placement, moves), *_levels(placement), *_largest(placement))
    return _by_moves(placement, moves, max(floors))


def _by_moves(placement: Placement, moves: int, low: float) -> float:
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


def _left(sizes: FloatArray, owner: IntArray, brokers: int) -> tuple[IntArray, FloatArray]:
    """Bundles from the largest down, broker by broker: its owner, and what that one carries before it is taken."""
    order = np.lexsort((-sizes, owner))
    sizes, owner = sizes[order], owner[order]
    start = np.searchsorted(owner, np.arange(brokers))
    before = np.concatenate(([0.0], np.cumsum(sizes)))
    taken = before[:-1] - before[start][owner]
    return owner, np.bincount(owner, sizes, brokers)[owner] - taken


def _idle(placement: Placement) -> float:
    return float(placement.idle[placement.present].max())


def _removal(placement: Placement, moves: int) -> float:
    """Each bundle ends one level of its broker; all but so many of the highest levels can be ended."""
    owner, left = _left(placement.sizes, placement.first, placement.idle.size)
    levels = np.sort(placement.idle[owner] + placement.slope[owner] * left)[::-1]
    return float(levels[moves]) if moves < levels.size else -np.inf


def _levels(placement: Placement) -> list[float]:
    """For each pool: what must be on its brokers, spread as evenly as water."""
    pools, bound = placement.pools, placement.may_stay()
    found = []
    for brokers in pools.allowed:
        confined = ~(pools.allowed & ~brokers).any(axis=1)
        load = placement.sizes[bound & confined[pools.of]].sum()
        found.append(_water_level(placement, brokers & placement.present, float(load)))
    return found


def _water_level(placement: Placement, brokers: BoolArray, load: float) -> float:
    """The level at which these brokers together carry the load: the least of those of the k idlest alone, for any k."""
    if not (brokers.any() and load > 0):
        return -np.inf
    order = np.argsort(placement.idle[brokers])
    idle = placement.idle[brokers][order]
    carries = 1 / np.maximum(placement.slope[brokers][order], NO_SLOPE)
    return float(((load + np.cumsum(idle * carries)) / np.cumsum(carries)).min())


def _largest(placement: Placement) -> list[float]:
    """For each pool: its largest bundle alone on the broker where that makes the fewest points."""
    pools, bound = placement.pools, placement.may_stay()
    found = []
    for pool, brokers in enumerate(pools.allowed):
        size = placement.sizes[bound & (pools.of == pool)].max(initial=0.0)
        at = brokers & placement.present
        found.append(float((placement.idle[at] + placement.slope[at] * size).min(initial=np.inf)) if size else -np.inf)
    return found
