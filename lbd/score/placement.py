"""Bundles on brokers before and after a run, and what score that makes of each broker. Pure."""

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
class Placement:
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
        found: FloatArray = (self.idle + self.slope * self.carried(owner))[self.present]
        return found

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
        found: BoolArray = self.pools.allowed[self.pools.of, self.first]
        return found


def everywhere(bundles: int, brokers: int) -> Pools:
    """No policies: all bundles may be on all brokers."""
    return Pools(np.zeros(bundles, dtype=np.int32), np.ones((1, brokers), dtype=np.bool_))
