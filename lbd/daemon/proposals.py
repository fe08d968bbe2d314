"""``mode: approve``: turns whose plan waits for a person, and the plan that waits, in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from lbd.decide.manual import Standing
from lbd.reason import Reason
from lbd.turn.record import proposal

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.store.proposal import Proposal
    from lbd.turn.parts import Parts, TurnResult


KEPT = 16
"""Proposals that may still be applied; the oldest are forgotten."""


class Proposals:
    """The proposal of one lbd, and those that it replaced. Turns and requests change them one after the other; any
    thread may read them.

    Noise makes plans of equal worth follow one another every minute, so whoever has read one can still apply it.
    ``approved_by`` says who has approved the plan of a name. ``judged``: a turn has proposed, or found nothing to
    propose, since all was dropped. So an approved plan that is none of these is over.
    """

    def __init__(self, approved_by: Callable[[str], list[str]] = lambda _: []) -> None:
        self._made: tuple[Proposal, ...] = ()
        self.judged = False
        self._approved_by = approved_by

    def at(self, now: float) -> Proposal | None:
        """The proposal of now (epoch seconds)."""
        return self.find(self._made[-1].id, now) if self._made else None

    def find(self, name: str, now: float) -> Proposal | None:
        """The proposal of this name, if it can be applied now."""
        plan = next((plan for plan in self._made if plan.id == name and plan.in_time(now)), None)
        return plan and msgspec.structs.replace(plan, approved_by=self._approved_by(name))

    def asking(self, parts: Parts, now: float) -> Parts:
        """The parts of a turn that proposes instead of acting, and judges anew what it proposed before."""
        waiting = self.at(now)
        moves = waiting.unloads if waiting is not None else []
        reasons = {(move.bundle, move.source, move.destination): move.reason for move in moves}
        planning = parts.planning
        standing = Standing(planning.strategy, reasons, planning.weights)
        return replace(parts, planning=replace(planning, approval=True, strategy=standing))

    def after(self, record: TurnResult) -> None:
        """Take what such a turn proposes; where it plans nothing any more, nothing is left to be applied.

        Under a hold, and where it saw nothing, the one before stays until it expires, unless another lbd leads.
        """
        if record.plan.hold is not None and record.plan.hold[0] is Reason.NOT_LEADER:
            self.drop()
        elif record.plan.hold is None and record.plan.decision is not None and record.observation is not None:
            self.judged = True
            now = record.observation.snapshot.taken_at
            made = [plan for plan in self._made if plan.in_time(now) or now >= plan.expires_at]
            renewed = proposal(record, made[-1] if made else None)
            before = [plan for plan in made if plan.id != renewed.id][1 - KEPT :]
            self._made = (*before, renewed) if record.plan.unloads else ()

    def drop(self) -> None:
        """Forget all: one is being applied, another lbd leads, or the settings have changed."""
        self._made, self.judged = (), False
