"""Of bundles of like size the one that spreads goes: a plan with as many moves, between the same brokers. Pure.

A strategy has said how many bundles move from which broker to which. For each of these a bundle of the same broker may
go instead, of about its size, if fewer partitions of a topic, or bundles of a namespace, are then together on one
broker or in one zone (``lbd/spread.py``). So this neither fires nor adds a move, and the traffic that one broker gives
another differs by :data:`PAIR_SHARE` at most from what the strategy planned.
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
"""Of the planned bundle's traffic: one that differs by no more, in messages and in bytes, is of about its size."""

PAIR_SHARE = 0.1
"""Of the traffic planned from one broker to another: what is exchanged may differ by no more."""

PASSES = 2
"""What one exchange takes of :data:`PAIR_SHARE`, a later one may give back."""

DECIMALS = 6
LEAST_GAIN = 1e-6
"""What sums differ by is no gain."""


@dataclass(frozen=True)
class SpreadStrategy:
    """A strategy whose plans spread what belongs apart, where that is known."""

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
        position, index = snapshot.positions_of({one.bundle for one in self._unloads}), snapshot.brokers.index()
        self._planned = [position[one.bundle] for one in self._unloads]
        self._going = list(self._planned)
        self._ends = [(index[one.source], index[one.destination or ""]) for one in self._unloads]
        self._moving = np.zeros(len(snapshot.bundles), dtype=np.bool_)
        self._moving[self._planned] = True
        short = offers.averages.short
        self._sizes = np.stack([short[:, columns].sum(axis=1) for columns in COLUMNS.values()], axis=1)
        self._pool = np.full(len(snapshot.bundles), -1)
        for at, pool in enumerate(offers.permission.pools):
            self._pool[pool.bundles] = at
        self._tally = SpreadTally(spread)
        self._exchanged = {ends: np.zeros(len(COLUMNS)) for ends in self._ends}
        self._over = {ends: np.zeros(len(COLUMNS)) for ends in self._ends}
        for bundle, ends in zip(self._planned, self._ends, strict=True):
            self._tally.move(bundle, *ends)
            self._exchanged[ends] += self._sizes[bundle]

    def decided(self) -> Decision:
        """The decision with the bundles that spread."""
        for _ in range(PASSES):
            for at, ends in enumerate(self._ends):
                self._exchange(at, *ends)
        verdicts = self._decision.verdicts.copy()
        verdicts[self._planned] = Reason.NOT_NEEDED.code
        verdicts[self._going] = Reason.MOVES.code
        each = zip(self._unloads, self._planned, self._going, self._ends, strict=True)
        changed = {one.bundle: self._instead(one, was, going, ends) for one, was, going, ends in each if going != was}
        unloads = tuple(changed.get(one.bundle, one) for one in self._decision.unloads)
        return replace(self._decision, unloads=unloads, verdicts=verdicts)

    def _exchange(self, at: int, source: int, destination: int) -> None:
        """Put the bundle that spreads best in the place of the one that goes."""
        going = self._going[at]
        self._tally.move(going, destination, source)
        costs = {one: self._tally.cost(one, source, destination) for one in self._alike(at)}
        names = self._offers.snapshot.bundles
        best = min(costs, key=lambda one: (round(costs[one], DECIMALS), names[one]), default=going)
        if not costs or costs[best] > self._tally.cost(going, source, destination) - LEAST_GAIN:
            best = going
        self._tally.move(best, source, destination)
        self._over[source, destination] += self._sizes[best] - self._sizes[going]
        self._moving[[going, best]] = False, True
        self._going[at] = best

    def _alike(self, at: int) -> list[int]:
        """Bundles that may go instead: of the broker and the pool, no dearer, about as large as the one planned."""
        permission, planned, going, ends = self._offers.permission, self._planned[at], self._going[at], self._ends[at]
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
        """What is together on the source; of a bundle without members, what is on the destination."""
        at, most = ends[0], self._spread.most(bundle, ends[0])
        if most is None:
            at, most = ends[1], self._spread.most(planned, ends[1])
        if most is None:
            return ""
        group, members, share = most
        return f"{self._offers.snapshot.brokers.ids[at]} has {members} of {group}, its share is {share:.1f}"
