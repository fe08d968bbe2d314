"""Exactly the moves of a plan, judged as ``lbd apply`` makes them: by the act, and by ``lbd plan`` that offers it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.act.executor import DryRun
from lbd.decide.manual import ByPlan
from lbd.errors import LbdError, RefusedError
from lbd.fields import derived
from lbd.operations.requests import request_reason
from lbd.store.control import PlacedBundle, PlannedMove, PlanRequest, ordered_by
from lbd.store.state import Scratch
from lbd.text import counted
from lbd.turn.turn import turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.store.proposal import Proposal
    from lbd.turn.parts import Parts, TurnResult


def wanting_plan(request: PlanRequest, parts: Parts) -> Parts:
    """Parts of a turn that makes these moves and no others."""
    moves = tuple((move.bundle, move.source, move.destination) for move in request.moves)
    reason = f"plan {request.plan}, {ordered_by(request)}"
    planning = parts.planning
    return replace(parts, planning=replace(planning, strategy=ByPlan(moves, planning.weights, reason)))


def unmade_moves(request: PlanRequest, record: TurnResult) -> list[PlacedBundle]:
    """Moves of the plan that a turn does not make, each with the reason."""
    planned = {unload.bundle for unload in record.plan.unloads}
    return [
        PlacedBundle(move.bundle, move.destination, None, None, request_reason(record, move.bundle))
        for move in request.moves
        if move.bundle not in planned
    ]


def judge_plan(request: PlanRequest, parts: Parts) -> list[PlacedBundle]:
    """The moves that cannot be made now, empty for a plan that may begin. Nothing is changed.

    Raises :class:`~lbd.errors.LbdError` where that fails, and :class:`RefusedError` for a hold on all moves.
    """
    fixed = wanting_plan(request, parts)
    observation = fixed.observer.observe()
    store = Scratch(parts.store.load(), parts.store.load_averages(observation.snapshot.taken_at))
    trial = turn(replace(fixed, actuator=DryRun(), store=store))
    if trial.error is not None:
        raise trial.error
    if trial.plan.hold is not None:
        raise RefusedError(request_reason(trial, ""))
    return unmade_moves(request, trial)


def refusal_text(plan: str, number: int, unmade: Sequence[PlacedBundle]) -> str:
    """Reason why a plan of ``number`` moves may not begin as a whole."""
    reasons = Counter(move.detail.partition(":")[0] for move in unmade)
    numbers = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    first = f"the first: {unmade[0].bundle}: {unmade[0].detail}"
    return f"plan {plan}: {len(unmade)} of {counted(number, 'move')} cannot be made now ({numbers}); {first}"


def plan_refusal(plan: Proposal, parts: Parts) -> str:
    """Reason why ``lbd apply`` would refuse a plan now; empty where it would begin it."""
    moves = [derived(PlannedMove, move) for move in plan.unloads]
    if not moves:
        return ""
    request = PlanRequest("", plan.id, moves, "", "", 0.0, 0.0)
    try:
        unmade = judge_plan(request, parts)
    except LbdError as error:
        return str(error)
    return refusal_text(plan.id, len(moves), unmade) if unmade else ""
