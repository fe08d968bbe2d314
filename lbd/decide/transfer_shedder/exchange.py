"""Which bundles go from the most to the least loaded broker, and which come back for one that is too large. Pure.

Source: TransferShedder.findBundlesForUnloading, without its debug mode, in which a swap's way back counts in the total.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM_FOR_SWAP = 0.75
"""After a swap the giving broker has less than this part of what it had."""


@dataclass(frozen=True)
class Offered:
    """One of a broker's largest bundles: its position in the snapshot, bytes/s in + out of the last report, and
    whether it rests.
    """

    bundle: int
    throughput: float
    rests: bool = False


@dataclass
class Exchange:
    """What two brokers exchange. All numbers are bytes/s, in + out.

    The most loaded broker ``had`` so much, the least loaded one ``has``; ``wanted`` is to be moved at most, ``moved``
    is what ``given`` come to. ``swap``: bundles of the least loaded one may come back (``returned``) for one that is
    too large to go alone. ``too_large`` is the bundle at which it ended.
    """

    had: float
    has: float
    wanted: float
    swap: bool
    given: list[Offered] = field(default_factory=list)
    returned: list[Offered] = field(default_factory=list)
    moved: float = 0.0
    too_large: Offered | None = None

    def make(self, offers: list[Offered], back: list[Offered]) -> None:
        """Choose among the largest bundles of both brokers, the smallest first; one always stays."""
        remaining, others = len(offers), iter(back)
        for one in offers:
            if remaining <= 1:
                break
            if one.rests:
                continue
            if self.moved + one.throughput > self.wanted:
                swapped = self._swapped(one, others) if self.swap else None
                if swapped is None:
                    self.too_large = one
                    break
                self.returned += swapped
            self.given.append(one)
            self.moved += one.throughput
            remaining -= 1

    def _swapped(self, one: Offered, others: Iterator[Offered]) -> list[Offered] | None:
        """What comes back for a bundle that is too large: until the other broker has no more than this one.

        A bundle that would lift either above what the giving broker had is passed over, and the walk goes on; it does
        not begin anew for the next bundle.
        """
        here = self.had - self.moved - one.throughput
        there = self.has + self.moved + one.throughput
        back: list[Offered] = []
        for other in others:
            if here + other.throughput < self.had and there - other.throughput < self.had:
                back.append(other)
                here, there = here + other.throughput, there - other.throughput
                if there <= here < self.had * ROOM_FOR_SWAP:
                    return back
        return None
