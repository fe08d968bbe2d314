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
    from lbd.model import Averages, Memory, Permission, Snapshot, Unload

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
        if not found.unloads:
            return found
        left = self._changed(found.unloads[0], source) or _settling(found.unloads[0], snapshot, permission)
        return found if left is None else replace(found, unloads=(), skips=(left,))

    @staticmethod
    def _changed(unload: Unload, source: str) -> Skip | None:
        told = f"{unload.source} has it, {source} had it when it was planned"
        return Skip(unload.bundle, Reason.OWNER_CHANGED, told) if unload.source != source else None


def _settling(unload: Unload, snapshot: Snapshot, permission: Permission) -> Skip | None:
    """A plan levels what reports show: where they lag behind the last moves, it would level that once more."""
    at = snapshot.brokers.index()
    moved = [end for end in (unload.source, unload.destination) if end in at and not permission.settled[at[end]]]
    told = f"moved to, moved from or restarted lately, which reports do not show yet: {', '.join(moved)}"
    return Skip(unload.bundle, Reason.SETTLING, told) if moved else None
