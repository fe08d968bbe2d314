"""What a strategy remembers from turn to turn: plain frozen values, kept in ``memory.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Hits:
    """How often one broker was seen too far from its partner in a row: AvgShedder's two counters."""

    low: int = 0
    high: int = 0

    def one_more(self, *, high: bool) -> Hits:
        """After one more at the low threshold, that was at the high one, too, or ends what was counted there."""
        return Hits(self.low + 1, self.high + 1 if high else 0)

    def reach(self, wanted: Hits) -> bool:
        """Whether one of the counters has come to its limit."""
        return self.low >= wanted.low or self.high >= wanted.high

    def below(self, wanted: Hits) -> Hits:
        """The same, but one below the limits at most: under a hold, so that one more round is seen after it."""
        return Hits(min(self.low, max(wanted.low - 1, 0)), min(self.high, max(wanted.high - 1, 0)))


CLUSTER = "cluster"
"""Whose hits those are that a strategy counts for all brokers together."""


def counter_of(broker: str, pool: str) -> str:
    """The key of a broker's hit counters: it has a set of its own in each pool."""
    return f"{broker} in {pool}" if pool else broker


def broker_of(counter: str) -> str:
    """Whose key it is."""
    return counter.partition(" in ")[0]


@dataclass(frozen=True)
class Load:
    """What a broker's load usually is: ``usage`` is a fraction of its most used resource, ``throughput`` bytes/s."""

    usage: float
    throughput: float = 0.0


@dataclass(frozen=True)
class Placing:
    """What a placement remembers: its own averages of the brokers' usage, a fraction, and the round robin's place."""

    usage: dict[str, float] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    counter: int = 0


@dataclass(frozen=True)
class Memory:
    """What a strategy remembers from turn to turn: a broker that is away keeps its counters, as in Pulsar.

    ``loads`` are running averages by broker, ``unloaded_at`` is when one was last to give bundles (epoch seconds). With
    pools every key of these is a :func:`counter_of`. ``placing`` is what the placement beside it remembers.
    """

    hits: Mapping[str, Hits] = field(default_factory=dict)
    loads: Mapping[str, Load] = field(default_factory=dict)
    unloaded_at: Mapping[str, float] = field(default_factory=dict)
    placing: Placing = field(default_factory=Placing)
