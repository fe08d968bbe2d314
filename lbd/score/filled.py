"""What brokers that carry too little take in at least. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.score.placement import ROUNDING, at_least, at_most

if TYPE_CHECKING:
    from lbd.model import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Taken:
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


def least_taken(sizes: FloatArray, owner: IntArray, room: FloatArray, wanted: FloatArray) -> Taken:
    """How many of the largest bundles that fit bring each broker to what is wanted; each is told of by itself.

    ``sizes`` is float64 (N,), ``owner`` int32 (N,) into ``room`` and ``wanted``, both float64 (B,) in the same unit.
    What gives nothing takes only what fits beside all it has.
    """
    carried = np.bincount(owner, sizes, room.size)
    missing = np.maximum(at_least(wanted) - carried, 0.0)
    low = missing > 0
    found = np.zeros((2, room.size), dtype=np.int64)
    if not low.any():
        return Taken(found[0], found[1], (0, 0))
    falling, most = np.sort(sizes)[::-1], np.stack((room - carried, room))[:, low]
    reached = np.concatenate(([0.0], np.cumsum(falling)))
    found[:, low] = _needed(falling, reached, most, missing[low])
    together = _needed(falling, reached, most.max(axis=1), missing.sum())
    return Taken(found[0], found[1], (int(together[0]), int(together[1])))


def _needed(falling: FloatArray, reached: FloatArray, most: FloatArray, missing: FloatArray) -> IntArray:
    """How many from the first on that is not larger than ``most`` make up what is ``missing``, as many as of ``most``.

    ``reached`` is float64 (N + 1,), the sum of those before each.
    """
    start = np.searchsorted(-falling, -at_most(most))
    end = np.searchsorted(reached, (reached[start] + missing) * (1 - ROUNDING))
    return np.where(end <= falling.size, np.maximum(end - start, 1), falling.size + 1)
