"""lbd's own picker: rendezvous hashing, weighted by free capacity, with bounded load. Pure.

Every broker draws a number for the bundle from both their names, and the lowest wins, so the same bundle gets the same
broker wherever and whenever it is asked for; when a broker goes, only its bundles are answered anew, and one that comes
takes its share from all alike (Thaler and Ravishankar 1998; weights after Schindelhauer and Schomaker 2005). A broker
that has been answered more often than ``1 + slack`` times its share of the recent answers passes the bundle on to the
next best (Mirrokni, Thorup and Zadimoghaddam 2018): load reports show none of these yet. A bundle answered lately keeps
its answer while that broker is a candidate, and not full by now while others are not.

Free capacity is in points of score below ``full_at``: two brokers of equal score have equal shares, whatever the size
of their machines. Where reports are too old, or a candidate has none, all brokers weigh the same and nothing is bound.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING

from lbd.place.placed import Placed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.place.placed import PlaceMemory
    from lbd.place.seen import Seen
    from lbd.place.settings import RendezvousSettings


def choose(
    bundle: str, candidates: Sequence[str], seen: Seen, memory: PlaceMemory, settings: RendezvousSettings
) -> Placed:
    """The broker that this bundle prefers, as far as it has not had its share."""
    if not candidates:
        return Placed(None, "no candidate", memory)
    memory = memory.at(seen.taken_at, settings.remember_seconds)
    before = memory.answered.get(bundle)
    free, why_plain = _free(candidates, seen, settings)
    if before in candidates and (why_plain or before in free):
        return Placed(before, "the same as a moment ago", memory)
    if why_plain:
        broker = _ranked(bundle, dict.fromkeys(candidates, 1.0))[0]
        return Placed(broker, f"by hash alone: {why_plain}", memory.after(bundle, broker))
    placed = _Bounded(free, memory.counts, seen.asked, settings.slack)
    ranked = _ranked(bundle, free)
    broker = next(one for one in ranked if placed.has_room(one))
    reason = f"{_order(broker, ranked, placed)}; {free[broker]:.1f} points free below {settings.full_at:g}"
    return Placed(broker, reason, memory.after(bundle, broker))


class _Bounded:
    """Shares of the recent answers and of those still to be given, among brokers with free capacity."""

    def __init__(self, free: Mapping[str, float], counts: Mapping[str, int], asked: int, slack: float) -> None:
        self._free, self._counts, self._free_of_all = free, counts, sum(free.values())
        self._allowed = (1 + slack) * max(sum(map(self.count, free)) + 1, asked)

    def has_room(self, broker: str) -> bool:
        """One of them always has: all together may take more than there is."""
        return self.count(broker) + 1 <= self.most(broker)

    def count(self, broker: str) -> int:
        """Recent answers that named this broker."""
        return self._counts.get(broker, 0)

    def share(self, broker: str) -> float:
        """Its part of all free capacity, a fraction."""
        return self._free[broker] / self._free_of_all

    def most(self, broker: str) -> int:
        """How many it may have."""
        return math.ceil(self._allowed * self.share(broker))


def _free(candidates: Sequence[str], seen: Seen, settings: RendezvousSettings) -> tuple[dict[str, float], str]:
    """Points of free capacity of those that have some, or why nothing can be said of it."""
    if seen.age_seconds > settings.stale_seconds:
        return {}, f"reports are {seen.age_seconds:.0f} s old"
    points = {broker: float(seen.usage[seen.index[broker]]) * 100 for broker in candidates if broker in seen.index}
    unknown = [broker for broker in candidates if not math.isfinite(points.get(broker, math.nan))]
    if unknown:
        return {}, f"{min(unknown)} gives no usable report"
    free = {broker: settings.full_at - used for broker, used in points.items() if used < settings.full_at}
    return free, "" if free else f"every candidate is at {settings.full_at:g} points or above"


def _ranked(bundle: str, weights: Mapping[str, float]) -> list[str]:
    """The brokers in the order in which this bundle prefers them."""
    return sorted(weights, key=lambda broker: (_draw(bundle, broker) / weights[broker], broker))


def _draw(bundle: str, broker: str) -> float:
    """Exponentially distributed, and always the same for the same two names.

    Of such numbers divided by weights the lowest falls on each broker in proportion to its weight.
    """
    digest = blake2b(f"{bundle}\n{broker}".encode(), digest_size=8).digest()
    return -math.log((int.from_bytes(digest, "big") + 1) / (2**64 + 1))


def _order(broker: str, ranked: Sequence[str], placed: _Bounded) -> str:
    passed = ranked[: ranked.index(broker)]
    if not passed:
        return f"first by hash, with {placed.share(broker):.0%} of the free capacity"
    full = ", ".join(f"{one} with {placed.count(one)} of at most {placed.most(one)} answers" for one in passed[:3])
    more = f" and {len(passed) - 3} more" if len(passed) > 3 else ""
    return f"number {len(passed) + 1} by hash, after {full}{more}"
