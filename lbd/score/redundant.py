"""Moves that were for nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.score.bounds import ROUNDING

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray, IntArray
    from lbd.score.placement import Placement


def redundant_moves(placement: Placement, moves: int) -> int:
    """How many of a run's moves a plan could have done without, and reached as low a highest score.

    Of a bundle that moved more than once all moves but one, and all of them where it came back; and the moves that
    :func:`dispensable` finds.
    """
    lasting = int(np.count_nonzero(placement.first != placement.last))
    return moves - lasting + int(np.count_nonzero(dispensable(placement)))


def dispensable(placement: Placement) -> BoolArray:
    """Bundles that might have stayed with their first owner without a higher peak, all of them together, bool (N,).

    The smallest are taken back first, one by one and then in opposing pairs (one from x to y, one from y to x), until
    nothing more can be. Another order might find more: it is "at least so many". Nothing goes back against a policy.
    """
    undo = _Undo(placement, placement.carried(placement.last), placement.room(placement.peak(placement.last)))
    moved = np.flatnonzero((placement.first != placement.last) & placement.may_stay()).astype(np.int32)
    waiting = moved[np.argsort(placement.sizes[moved], kind="stable")]
    gone = np.zeros(placement.sizes.size, dtype=np.bool_)
    while back := undo.singly(waiting) or undo.pair(waiting):
        gone[back] = True
        waiting = waiting[~gone[waiting]]
    return gone


@dataclass(frozen=True, eq=False)
class _Undo:
    """``carried`` and ``room`` are float64 (B,) in the unit of the sizes; what is taken back changes ``carried``."""

    placement: Placement
    carried: FloatArray
    room: FloatArray

    def singly(self, waiting: IntArray) -> list[int]:
        """Takes back each in turn that fits where it came from."""
        return [bundle for bundle in waiting.tolist() if self._taken_back(bundle)]

    def pair(self, waiting: IntArray) -> list[int]:
        """Takes back the first pair of bundles that changed places and may change them again."""
        for bundle in waiting.tolist():
            size, x, y = self._of(bundle)
            opposing = waiting[(self.placement.first[waiting] == y) & (self.placement.last[waiting] == x)]
            difference = size - self.placement.sizes[opposing]
            fits = self._fits(x, difference) & self._fits(y, -difference)
            if fits.any():
                self._shift(float(difference[fits][0]), x, y)
                return [bundle, int(opposing[fits][0])]
        return []

    def _of(self, bundle: int) -> tuple[float, int, int]:
        found = self.placement
        return float(found.sizes[bundle]), int(found.first[bundle]), int(found.last[bundle])

    def _taken_back(self, bundle: int) -> bool:
        size, x, y = self._of(bundle)
        if not self._fits(x, np.array(size)):
            return False
        self._shift(size, x, y)
        return True

    def _fits(self, broker: int, more: FloatArray) -> BoolArray:
        found: BoolArray = self.carried[broker] + more <= self.room[broker] * (1 + ROUNDING) + ROUNDING
        return found

    def _shift(self, size: float, to: int, away: int) -> None:
        self.carried[to] += size
        self.carried[away] -= size
