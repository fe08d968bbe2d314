"""What a bundle that fits nowhere as it is moves besides itself. Pure.

The removal bound takes the largest bundle off a broker and asks nobody for room. Either such a broker keeps it and
gives more of its smaller ones instead, or some other broker gives bundles of its own until there is room for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.score.placement import ROUNDING, at_most

if TYPE_CHECKING:
    from lbd.model import FloatArray, IntArray

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
        found = 0.0
        for at in range(start, min(stop, start + LARGEST_AT_MOST)):
            keeps = self._first(np.array([at + 1]), self.too_much[[source]], np.array([stop]))[0] - number[source]
            makes_room = self.needed(self.sizes[at] * (1 - ROUNDING) + self.too_much) - number
            makes_room[source] = np.inf
            found = max(found, float(min(keeps, makes_room.min())))
        return found

    def _first(self, start: IntArray, wanted: FloatArray, stop: IntArray) -> FloatArray:
        """How many from ``start`` on make up what is wanted; infinite where that is beyond ``stop``."""
        end = np.searchsorted(self.before, self.before[start] + wanted)
        return np.where(end <= stop, np.maximum(end - start, 0), np.inf)


def _falling(sizes: FloatArray, owner: IntArray, too_much: FloatArray) -> _Falling:
    order = np.lexsort((-sizes, owner))
    at = np.searchsorted(owner[order], np.arange(too_much.size + 1)).astype(np.int32)
    before = np.concatenate(([0.0], np.cumsum(sizes[order])))
    return _Falling(sizes[order], before, at[:-1], at[1:], too_much)
