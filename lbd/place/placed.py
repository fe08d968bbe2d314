"""What a placement answers, and what it remembers from answer to answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class PlaceMemory:
    """What placements keep from one answer to the next; each reads what its rule needs and leaves the rest.

    ``answered`` is the broker answered for each bundle since ``since`` (epoch seconds), ``counts`` how many each broker
    was given so, ``preallocated`` their long-term messages/s: no load report shows these yet. ``planned`` are
    destinations that a shedder chose. ``usage`` is each broker's moving average, a fraction. ``order`` and ``counter``
    are the round robin's.
    """

    since: float = 0.0
    answered: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    preallocated: Mapping[str, float] = field(default_factory=dict)
    planned: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, float] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    counter: int = 0

    def at(self, taken_at: float, keep_seconds: float = 0.0) -> PlaceMemory:
        """The memory for a snapshot of that time: answers that it shows, or that are old, are forgotten together."""
        if 0 <= taken_at - self.since <= keep_seconds:
            return self
        return replace(self, since=taken_at, answered={}, counts={}, preallocated={})

    def after(self, bundle: str, broker: str, msg_rate: float = 0.0) -> PlaceMemory:
        """The memory with one more answer; an earlier one for the same bundle is replaced."""
        counts = dict(self.counts)
        before = self.answered.get(bundle)
        if before is not None:
            counts[before] -= 1
        counts[broker] = counts.get(broker, 0) + 1
        preallocated = {**self.preallocated, broker: self.preallocated.get(broker, 0.0) + msg_rate}
        return replace(self, answered={**self.answered, bundle: broker}, counts=counts, preallocated=preallocated)


@dataclass(frozen=True)
class Placed:
    """The broker for a bundle, None where there is no candidate, and why that one.

    ``choices`` are the brokers that were as good, sorted: Pulsar draws among them, lbd takes one by the bundle's name.
    """

    broker: str | None
    reason: str
    memory: PlaceMemory
    choices: tuple[str, ...] = ()
