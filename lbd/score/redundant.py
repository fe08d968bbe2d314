"""Moves that were for nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.score.placement import at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lbd.model import BoolArray, FloatArray
    from lbd.score.placement import Placement


def redundant_moves(placement: Placement, moves: int, *, as_even: bool = False) -> int:
    """How many of a run's moves a plan could have done without, and reached as low a highest score.

    ``as_even``: and as high a lowest one. Of a bundle that moved more than once all moves but one, and all of them
    where it came back; and the moves that :func:`dispensable` finds.
    """
    lasting = int(np.count_nonzero(placement.first != placement.last))
    return moves - lasting + int(np.count_nonzero(dispensable(placement, as_even=as_even)))


def dispensable(placement: Placement, *, as_even: bool = False) -> BoolArray:
    """Bundles that might have stayed with their first owner without a higher peak, all of them together, bool (N,).

    ``as_even``: nor with a lower trough.

    The smallest are taken back first, one by one and then in opposing pairs (one from x to y, one from y to x), until
    nothing more can be. Another order might find more: it is "at least so many". Nothing goes back against a policy.
    """
    last = placement.last
    wanted = placement.wanted(placement.trough(last)) if as_even else np.full(placement.idle.size, -np.inf)
    undo = _Undo(placement, placement.carried(last), placement.room(placement.peak(last)), wanted)
    moved = np.flatnonzero((placement.first != placement.last) & placement.may_stay())
    waiting = moved[np.argsort(placement.sizes[moved], kind="stable")].tolist()
    gone: set[int] = set()
    while back := undo.singly(waiting) or undo.in_pairs(waiting):
        gone.update(back)
        waiting = [bundle for bundle in waiting if bundle not in gone]
    return np.isin(np.arange(placement.sizes.size), list(gone))


@dataclass(frozen=True, eq=False)
class _Undo:
    """``carried``, ``room`` and ``wanted``, the most and the least that a broker may carry, are float64 (B,) in the
    unit of the sizes; what is taken back changes ``carried``.
    """

    placement: Placement
    carried: FloatArray
    room: FloatArray
    wanted: FloatArray

    def singly(self, waiting: Sequence[int]) -> list[int]:
        """Takes back each in turn that fits where it came from."""
        return [bundle for bundle in waiting if self._taken_back(bundle)]

    def in_pairs(self, waiting: Sequence[int]) -> list[int]:
        """Takes back each in turn, with the first of those that went the other way with which it fits."""
        between: dict[tuple[int, int], list[int]] = {}
        for bundle in waiting:
            _, x, y = self._of(bundle)
            between.setdefault((x, y), []).append(bundle)
        found: list[int] = []
        for (x, y), there in between.items():
            if x < y and (y, x) in between:
                found += self._changed_again(there, between[y, x])
        return found

    def _changed_again(self, there: Sequence[int], back: Sequence[int]) -> Iterator[int]:
        """Of two brokers, the bundles that changed places and may change them again."""
        left = np.array(back)
        for bundle in there:
            size, x, y = self._of(bundle)
            difference = size - self.placement.sizes[left]
            fits = np.flatnonzero(self._fits(x, difference) & self._fits(y, -difference))
            if fits.size:
                self._shift(float(difference[fits[0]]), x, y)
                yield from (bundle, int(left[fits[0]]))
                left = np.delete(left, fits[0])

    def _of(self, bundle: int) -> tuple[float, int, int]:
        found = self.placement
        return float(found.sizes[bundle]), int(found.first[bundle]), int(found.last[bundle])

    def _taken_back(self, bundle: int) -> bool:
        size, x, y = self._of(bundle)
        if not (self._fits(x, np.array(size)) and self._fits(y, np.array(-size))):
            return False
        self._shift(size, x, y)
        return True

    def _fits(self, broker: int, more: FloatArray) -> BoolArray:
        then = self.carried[broker] + more
        found: BoolArray = (then <= at_most(self.room[broker])) & (then >= at_least(self.wanted[broker]))
        return found

    def _shift(self, size: float, to: int, away: int) -> None:
        self.carried[to] += size
        self.carried[away] -= size
