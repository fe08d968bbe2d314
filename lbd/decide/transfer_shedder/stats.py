"""How far apart the brokers' loads are, and who is next to give and to take. Pure.

Source: BrokerLoadData of the extensible manager and TransferShedder's LoadStats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.load.usage import with_memory
from lbd.model import BYTES_IN, BYTES_OUT, Load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.decide.transfer_shedder.settings import TransferShedderSettings
    from lbd.load.scoring import Weights
    from lbd.model import Permission, Snapshot


def smoothed(
    snapshot: Snapshot, permission: Permission, before: Mapping[str, Load], history: float, weights: Weights
) -> dict[str, Load]:
    """The running averages after this round; the first sample counts as it is.

    Brokers without new evidence keep theirs, those that give no report lose it. A broker that is left out of the round
    gets none.
    """
    usage, rates = with_memory(snapshot.brokers, weights).tolist(), snapshot.brokers.rates.tolist()
    found: dict[str, Load] = {}
    for at, broker in enumerate(snapshot.brokers.ids):
        now, old = Load(usage[at], rates[at][BYTES_IN] + rates[at][BYTES_OUT]), before.get(broker)
        if old is None and permission.paired[at] == 0:
            found[broker] = now
        elif old is not None:
            takes = permission.paired[at] == 0 and bool(permission.counts[at])
            found[broker] = _mixed(old, now, history) if takes else old
    return found


def _mixed(old: Load, now: Load, history: float) -> Load:
    return Load(
        old.usage * history + (1 - history) * now.usage,
        old.throughput * history + (1 - history) * now.throughput,
    )


@dataclass
class Stats:
    """The loads of the brokers that take part, and these ``ranked`` by them.

    ``low`` and ``high`` are the positions of who is next to take and to give, ``given`` is how many have given.
    """

    loads: Mapping[str, Load]
    settings: TransferShedderSettings

    def __post_init__(self) -> None:
        self.ranked = sorted(self.loads, key=lambda broker: (self.loads[broker].usage, broker))
        self.low, self.high, self.given = 0, len(self.ranked) - 1, 0
        self._squares = self._sum(2)
        self.average = self._sum(1) / max(len(self.ranked), 1)
        self.deviation = self._deviation()

    def _sum(self, power: int) -> float:
        """One by one, as Java's sums run."""
        total = 0.0
        for load in self.loads.values():
            total += load.usage if power == 1 else load.usage * load.usage
        return total

    def _deviation(self) -> float:
        return math.sqrt(abs(self._squares / max(len(self.ranked), 1) - self.average * self.average))

    @property
    def source(self) -> str:
        """Who is next to give."""
        return self.ranked[self.high]

    @property
    def destination(self) -> str:
        """Who is next to take."""
        return self.ranked[self.low]

    @property
    def left(self) -> bool:
        """Whether there are two more brokers between which something may be moved."""
        return self.given < self.settings.max_number_of_broker_shedding_per_cycle and self.low < self.high

    def why(self) -> str:
        """What makes the loads uneven; empty where they are even enough."""
        target = self.settings.broker_load_target_std
        if self.deviation > target:
            return f"standard deviation {100 * self.deviation:.1f} points, target {100 * target:g}"
        if self._underloaded(target):
            return f"{self.destination} is underloaded"
        if self._overloaded(target):
            return f"{self.source} is overloaded"
        return ""

    def _underloaded(self, target: float) -> bool:
        part = min(0.5, max(0.0, target / 2.0))
        least, most = self.loads[self.destination], self.loads[self.source]
        return least.usage < self.average * part or least.throughput < most.throughput * part

    def _overloaded(self, target: float) -> bool:
        used = self.loads[self.source].usage
        return used > self.settings.broker_overloaded_threshold_percentage / 100.0 and used > self.average + target

    def moved(self, source: float, destination: float, moved: float) -> None:
        """Count a move of load between two brokers of these loads; the next broker takes then."""
        self._squares -= source * source + destination * destination
        less, more = max(0.0, source - moved), destination + moved
        self._squares += less * less + more * more
        self.deviation = self._deviation()
        self.given += 1
        self.low += 1
