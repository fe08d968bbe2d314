"""A strategy that names no destination, and the placement that names one for each of its bundles. Pure.

As in Pulsar's leader (ModularLoadManagerImpl.doLoadShedding): each bundle is placed anew among all its allowed brokers,
its own included. A bundle that is placed on its own broker stays.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import MSG_IN, MSG_OUT, PlacementMemory, Skip
from lbd.place.placements import PlaceMemory, broker_loads
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.load.scoring import Weights
    from lbd.model import Averages, Decision, Memory, Permission, Snapshot, Unload
    from lbd.place.placements import BrokerLoads, Placement


if TYPE_CHECKING:
    Rule = Callable[[Snapshot, Averages, Permission, Memory], Decision]


@dataclass(frozen=True)
class PlacedStrategy:
    """A strategy, and a placement for its unloads without destination."""

    rule: Rule
    placement: Placement
    weights: Weights

    def __call__(self, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision:
        """The strategy's decision with a destination for each unload, in its order; each affects the next."""
        decision = self.rule(snapshot, averages, permission, memory)
        placing = _of_brokers(memory.placing, snapshot)
        turn = _PlacedRound(
            self.placement, snapshot, permission, decision, PlaceMemory(snapshot.taken_at, **asdict(placing))
        )
        if any(unload.destination is None for unload in decision.unloads):
            turn.place(averages, self.weights)
        return turn.decided()


class _PlacedRound:
    """One decision, and the answers of the placement; each affects the next."""

    def __init__(
        self,
        placement: Placement,
        snapshot: Snapshot,
        permission: Permission,
        decision: Decision,
        memory: PlaceMemory,
    ) -> None:
        self._placement, self._snapshot, self._permission = placement, snapshot, permission
        self._decision, self._memory = decision, memory
        self._unloads: list[Unload] = list(decision.unloads)
        self._skips: list[Skip] = []
        self._verdicts = decision.verdicts.copy()

    def place(self, averages: Averages, weights: Weights) -> None:
        """Place each bundle without a destination, in the plan's order."""
        unplaced = {unload.bundle for unload in self._unloads if unload.destination is None}
        position = self._snapshot.positions_of(unplaced)
        long = averages.long[:, MSG_IN] + averages.long[:, MSG_OUT]
        rates = {name: float(long[row]) for name, row in position.items()}
        loads = replace(broker_loads(self._snapshot, averages, weights, to_place=len(unplaced)), bundle_rates=rates)
        answers = (self._answer(unload, position.get(unload.bundle), loads) for unload in self._decision.unloads)
        self._unloads = [unload for unload in answers if unload is not None]
        giving = {unload.source for unload in self._unloads}
        for source in dict.fromkeys(unload.source for unload in self._decision.unloads):
            if source not in giving:
                message = "the placement leaves all that it was to give where it is"
                self._skips.append(Skip(source, Reason.PLACEMENT_STAYS, message))

    def decided(self) -> Decision:
        """The decision with destinations, and with the memory of the placement."""
        memory, decision = self._memory, self._decision
        placing = PlacementMemory(dict(memory.usage), memory.order, memory.counter)
        return replace(
            decision,
            unloads=tuple(self._unloads),
            skips=(*decision.skips, *self._skips),
            memory=replace(decision.memory, placing=placing),
            verdicts=self._verdicts,
        )

    def _answer(self, unload: Unload, row: int | None, loads: BrokerLoads) -> Unload | None:
        if row is None:
            return unload
        choice = self._placement(unload.bundle, self._candidates(row), loads, self._memory)
        self._memory = choice.memory
        if choice.broker is not None and choice.broker != unload.source:
            reason = f"{unload.reason}; placed: {choice.reason}"
            return replace(unload, destination=choice.broker, choices=choice.choices, reason=reason)
        self._verdicts[row] = Reason.PLACEMENT_STAYS.code
        where = "nowhere else" if choice.broker is None else f"on {choice.broker}, where it is"
        self._skips.append(Skip(unload.bundle, Reason.PLACEMENT_STAYS, f"placed {where}: {choice.reason}"))
        return None

    def _candidates(self, bundle: int) -> list[str]:
        """Brokers that take part, have settled, and are in the bundle's pool, by name."""
        free = (self._permission.paired == 0) & self._permission.settled
        for pool in self._permission.pools:
            if pool.bundles[bundle]:
                free &= pool.brokers
        ids = self._snapshot.brokers.ids
        return [ids[row] for row in np.flatnonzero(free).tolist()]


def _of_brokers(placing: PlacementMemory, snapshot: Snapshot) -> PlacementMemory:
    """Memory of the brokers that are still there."""
    here = set(snapshot.brokers.ids)
    return replace(placing, usage={broker: used for broker, used in placing.usage.items() if broker in here})
