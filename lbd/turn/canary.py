"""The part that a canary (``guardrails.canary``) keeps back of the plan that a turn would make without it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import Skip
from lbd.reason import Reason
from lbd.text import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lbd.decide.strategies import Strategy
    from lbd.model import Averages, Memory, Pair, Permission, Snapshot


@dataclass(frozen=True)
class CanaryHold:
    """``planned`` is how many bundles the plan has, ``held`` how many of them the canary keeps back, by source."""

    planned: int = 0
    held: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many it keeps back."""
        return sum(self.held.values())

    @property
    def words(self) -> str:
        """The same as text; empty where it keeps nothing back."""
        if not self.held:
            return ""
        planned = counted(self.planned, "bundle")
        return f"the canary keeps back {self.total} of {planned} of the plan (guardrails.canary)"

    def blocks(self, pairs: Collection[Pair], planned: Collection[str]) -> Iterator[Skip]:
        """Pairs of whose source bundles are held, and none is ``planned`` within the canary."""
        for pair in pairs:
            if pair.source in self.held and pair.source not in planned:
                number = counted(self.held[pair.source], "planned bundle")
                yield Skip(pair.ends, Reason.CANARY, f"{number} outside of it stay until guardrails.canary is widened")


NOTHING_HELD = CanaryHold()


def held_back(
    strategy: Strategy, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory
) -> CanaryHold:
    """Ask the strategy once more, with nothing barred by the canary. Under a hold it plans nothing."""
    barred = permission.barred == Reason.CANARY.code
    if permission.hold is not None or not barred.any():
        return NOTHING_HELD
    free = np.where(barred, np.int8(0), permission.barred).astype(np.int8)
    unloads = strategy(snapshot, averages, replace(permission, barred=free), memory).unloads
    position = snapshot.positions_of({unload.bundle for unload in unloads})
    return CanaryHold(len(unloads), Counter(unload.source for unload in unloads if barred[position[unload.bundle]]))
