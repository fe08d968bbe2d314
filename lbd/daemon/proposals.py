"""``mode: approve``: turns whose plan waits for a person, and the plan that waits, in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.decide.manual import Standing
from lbd.reason import Reason
from lbd.turn.record import proposal

if TYPE_CHECKING:
    from lbd.store.proposal import Proposal
    from lbd.turn.parts import Parts, TurnResult


class Proposals:
    """The proposal of one lbd. Turns and requests change it one after the other; any thread may read it."""

    def __init__(self) -> None:
        self._last: Proposal | None = None

    def at(self, now: float) -> Proposal | None:
        """The proposal that can be applied now (epoch seconds)."""
        found = self._last
        return found if found is not None and now < found.expires_at else None

    def asking(self, parts: Parts, now: float) -> Parts:
        """The parts of a turn that proposes instead of acting, and judges anew what it proposed before."""
        waiting = self.at(now)
        moves = waiting.unloads if waiting is not None else []
        reasons = {(move.bundle, move.source, move.destination): move.reason for move in moves}
        return replace(parts, approval=True, strategy=Standing(parts.strategy, reasons, parts.weights))

    def after(self, record: TurnResult) -> None:
        """Take what such a turn proposes.

        Under a hold, and where it saw nothing, the one before stays until it expires, unless another lbd leads.
        """
        if record.hold is not None and record.hold[0] is Reason.NOT_LEADER:
            self.drop()
        elif record.hold is None and record.decision is not None:
            self._last = proposal(record, self._last) if record.unloads else None

    def drop(self) -> None:
        """It is being applied, or the settings are others."""
        self._last = None
