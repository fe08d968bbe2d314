"""Exchange of bundles for others of like size that spread better: as many moves, between the same brokers. Pure.

A strategy has decided the number of moves between each two brokers. For each of these a bundle of the same broker may
go instead, of about its size, if fewer partitions of a topic, or bundles of a namespace, are then together on one
broker or in one zone (``lbd/spread.py``). So this neither fires nor adds a move, and the traffic that one broker gives
another differs by :data:`PAIR_SHARE` at most from the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.candidates import COLUMNS, Offers
from lbd.reason import Reason
from lbd.spread import SpreadTally

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.model import Averages, Decision, Memory, Permission, Snapshot, Unload
    from lbd.spread import Spread

    Rule = Callable[[Snapshot, Averages, Permission, Memory], Decision]

ALIKE_SHARE = 0.25
"""Share of the planned bundle's traffic: one that differs by no more, in messages and in bytes, is of like size."""

PAIR_SHARE = 0.1
"""Share of the traffic planned from one broker to another by which exchanges may change it."""

PASSES = 2
"""Passes: traffic that one exchange adds to :data:`PAIR_SHARE`, a later one may subtract."""

DECIMALS = 6
LEAST_GAIN = 1e-6
"""Smallest gain beyond the rounding of sums."""


@dataclass(frozen=True)
class SpreadStrategy:
    """A strategy whose plans spread groups, where these are known."""

    rule: Rule

    def __call__(self, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision:
        """The strategy's decision, with other bundles of like size where these spread better."""
        decision = self.rule(snapshot, averages, permission, memory)
        if permission.spread is None or not decision.unloads:
            return decision
        offers = Offers(snapshot, averages.at_least(snapshot.rows), permission)
        return _Exchange(offers, permission.spread, decision).decided()


class _Exchange:
    """One plan: ``going`` are the bundles that move, by position, in the order of its unloads."""

    def __init__(self, offers: Offers, spread: Spread, decision: Decision) -> None:
        snapshot = offers.snapshot
        self._offers, self._spread, self._decision = offers, spread, decision
        self._unloads = [unload for unload in decision.unloads if unload.destination is not None]
        position, index = snapshot.positions_of({unload.bundle for unload in self._unloads}), snapshot.brokers.index()
        self._planned = [position[unload.bundle] for unload in self._unloads]
        self._going = list(self._planned)
        self._ends = [(index[unload.source], index[unload.destination or ""]) for unload in self._unloads]
        self._moving = np.zeros(len(snapshot.bundles), dtype=np.bool_)
        self._moving[self._planned] = True
        short = offers.averages.short
        self._sizes = np.stack([short[:, columns].sum(axis=1) for columns in COLUMNS.values()], axis=1)
        self._pool = np.full(len(snapshot.bundles), -1)
        for number, pool in enumerate(offers.permission.pools):
            self._pool[pool.bundles] = number
        self._tally = SpreadTally(spread)
        self._exchanged = {ends: np.zeros(len(COLUMNS)) for ends in self._ends}
        self._over = {ends: np.zeros(len(COLUMNS)) for ends in self._ends}
        for bundle, ends in zip(self._planned, self._ends, strict=True):
            self._tally.move(bundle, *ends)
            self._exchanged[ends] += self._sizes[bundle]

    def decided(self) -> Decision:
        """The decision with the bundles that spread."""
        for _ in range(PASSES):
            for row, ends in enumerate(self._ends):
                self._exchange(row, *ends)
        verdicts = self._decision.verdicts.copy()
        verdicts[self._planned] = Reason.NOT_NEEDED.code
        verdicts[self._going] = Reason.MOVES.code
        each = zip(self._unloads, self._planned, self._going, self._ends, strict=True)
        changed = {
            unload.bundle: self._instead(unload, was, going, ends) for unload, was, going, ends in each if going != was
        }
        unloads = tuple(changed.get(unload.bundle, unload) for unload in self._decision.unloads)
        return replace(self._decision, unloads=unloads, verdicts=verdicts)

    def _exchange(self, row: int, source: int, destination: int) -> None:
        """Replace the moving bundle by the one that spreads best."""
        going = self._going[row]
        self._tally.move(going, destination, source)
        costs = {bundle: self._tally.cost(bundle, source, destination) for bundle in self._alike(row)}
        names = self._offers.snapshot.bundles
        best = min(costs, key=lambda bundle: (round(costs[bundle], DECIMALS), names[bundle]), default=going)
        if not costs or costs[best] > self._tally.cost(going, source, destination) - LEAST_GAIN:
            best = going
        self._tally.move(best, source, destination)
        self._over[source, destination] += self._sizes[best] - self._sizes[going]
        self._moving[[going, best]] = False, True
        self._going[row] = best

    def _alike(self, row: int) -> list[int]:
        """Bundles that may go instead: of the same broker and pool, no dearer, of about the planned size."""
        permission, planned, going, ends = (
            self._offers.permission,
            self._planned[row],
            self._going[row],
            self._ends[row],
        )
        own = self._offers.listed(ends[0])
        may = (permission.barred[own] == 0) & (self._offers.averages.samples[own] > 0) & ~self._moving[own]
        may &= self._pool[own] == self._pool[planned]
        if permission.costs is not None:
            may &= permission.costs[own] <= permission.costs[planned]
        size, over = self._sizes[planned], self._over[ends] + self._sizes[own] - self._sizes[going]
        may &= (np.abs(self._sizes[own] - size) <= ALIKE_SHARE * size).all(axis=1)
        may &= (np.abs(over) <= PAIR_SHARE * self._exchanged[ends]).all(axis=1)
        alike: list[int] = own[may].tolist()
        return alike

    def _instead(self, unload: Unload, planned: int, bundle: int, ends: tuple[int, int]) -> Unload:
        reason = f"{unload.reason}; instead of {unload.bundle}, of about its size: {self._why(planned, bundle, ends)}"
        other = self._offers.unload(bundle, (unload.source, unload.destination), reason, unload.choices)
        return replace(other, order=unload.order)

    def _why(self, planned: int, bundle: int, ends: tuple[int, int]) -> str:
        """Crowding on the source; for a bundle without members, on the destination."""
        broker, most = ends[0], self._spread.most(bundle, ends[0])
        if most is None:
            broker, most = ends[1], self._spread.most(planned, ends[1])
        if most is None:
            return ""
        group, members, share = most
        return f"{self._offers.snapshot.brokers.ids[broker]} has {members} of {group}, its share is {share:.1f}"
