"""What no plan can beat. Pure.

Load rebalancing (at most k bundles move, the highest score is to be least) is NP-hard, so nothing here is a plan: these
are floors under every plan, also under unequal brokers and policies. Removal bound: Aggarwal, Motwani, Zhu, "The load
rebalancing problem", SPAA 2003.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.score.placement import NO_SLOPE

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray, IntArray
    from lbd.score.placement import Placement

ROUNDING = 1e-9
"""Sums of the same sizes in another order differ in their last bits."""


def fewest_moves(sizes: FloatArray, owner: IntArray, room: FloatArray) -> int:
    """How many bundles must at least change brokers until none carries more than its room.

    ``sizes`` is float64 (N,), ``owner`` int32 (N,) into ``room``, float64 (B,) in the same unit. From each broker the
    largest bundles are taken until the rest fits; where they would go is not asked, so a plan may need more moves,
    never fewer.
    """
    owner, left = _left(sizes, owner, room.size)
    return int(np.count_nonzero(left > room[owner] * (1 + ROUNDING) + ROUNDING))


def best_peak(placement: Placement, moves: int) -> float:
    """The lowest highest score, in points, that any plan of so many moves can reach from the first owners.

    The highest of four floors: what is left where most is left after so many of the best removals; the level to which
    all traffic would fill the brokers it may be on, pool by pool; the largest bundle where it costs least; and the
    highest score of a broker without traffic.
    """
    floors = (_idle(placement), _removal(placement, moves), *_levels(placement), *_largest(placement))
    return max(floors)


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
