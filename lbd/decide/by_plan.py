"""The strategy that wants just the moves of a plan that somebody has seen. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.decide.by_hand import ByHand
from lbd.load import scoring
from lbd.model import Decision, Facts, Skip
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.load.scoring import Weights
    from lbd.model import Averages, Memory, Permission, Snapshot

Wanted = tuple[str, str, str]
"""Bundle, source, destination."""


@dataclass(frozen=True)
class ByPlan:
    """These moves, each from the broker that had the bundle when it was planned; all else is judged as in any turn."""

    moves: tuple[Wanted, ...]
    weights: Weights
    reason: str

    def __call__(self, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision:
        """The moves that can still be made, and why the others cannot."""
        scores = scoring.scores(snapshot.brokers, self.weights)
        facts = Facts(scores, scoring.binding(snapshot.brokers, self.weights))
        found = [self._judged(move, snapshot, averages, permission, memory) for move in self.moves]
        unloads = tuple(unload for one in found for unload in one.unloads)
        skips = tuple(skip for one in found for skip in one.skips)
        return Decision(unloads, skips, memory, facts, permission.barred.copy())

    def _judged(
        self, move: Wanted, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory
    ) -> Decision:
        bundle, source, destination = move
        found = ByHand(bundle, destination, self.weights, self.reason)(snapshot, averages, permission, memory)
        owner = next((unload.source for unload in found.unloads if unload.source != source), None)
        changed = Skip(bundle, Reason.OWNER_CHANGED, f"{owner} has it, {source} had it when it was planned")
        return found if owner is None else replace(found, unloads=(), skips=(changed,))
