"""One turn: observe, decide, permit, act, store. It never raises, and ends in exactly one sentence.

The daemon, ``run --once``, ``dry-run`` and recordings run this same function with different parts. Moves are executed
beside the turns: outcomes since the last turn enter this one's record.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from lbd.act.executor import touched_brokers
from lbd.errors import LbdError, as_lbd_error
from lbd.load import scoring
from lbd.model import bundle_namespace
from lbd.permit import evidence as judging
from lbd.permit.rules import current_holds
from lbd.permit.served import with_clients
from lbd.reason import Reason
from lbd.turn.assess import assess, remembered
from lbd.turn.parts import TurnResult
from lbd.turn.plan import plan
from lbd.turn.skips import data_skips, unreported
from lbd.turn.verdict import sentence
from lbd.turn.waves import scores_to_settle

if TYPE_CHECKING:
    from lbd.act.executor import FinishedMoves
    from lbd.model import Decision, Snapshot, Unload
    from lbd.permit.facts import Facts
    from lbd.permit.limits import Ledger
    from lbd.permit.policies import Policies
    from lbd.turn.assess import Assessment
    from lbd.turn.parts import Parts
    from lbd.turn.plan import Plan, Planning


NAMESPACES_A_TURN = 100
"""Namespaces whose groups are read in one turn, those of the widest pair first; further ones are not moved in it."""


def read_policies(parts: Parts, snapshot: Snapshot, decision: Decision, policies: Policies) -> Policies:
    """The policies with properties and anti-affinity groups of the namespaces that a plan touches, where not yet known.

    One turn reads groups for :data:`NAMESPACES_A_TURN` namespaces at most, and for none once some could not be read.
    """
    touched = tuple(dict.fromkeys(bundle_namespace(unload.bundle) for unload in decision.unloads))
    consents, groups = policies.consents, policies.groups
    if consents is not None:
        names = tuple(name for name in touched if name not in consents.by_namespace)
        by_namespace = {**consents.by_namespace, **parts.policies.consents(names)} if names else consents.by_namespace
        policies = replace(policies, consents=replace(consents, by_namespace=by_namespace))
    ungrouped = [name for name in touched if name not in groups.free and name not in groups.grouped]
    names = tuple(ungrouped[: max(NAMESPACES_A_TURN - groups.asked, 0)])
    if groups.unread or not names:
        return policies
    tenants = frozenset(name.partition("/")[0] for name in snapshot.namespaces.names)
    return replace(policies, groups=groups.and_those(parts.policies.groups(names, tenants)))


# --- turn

TURN_FAILED = "not asked for: a turn failed"
"""How the reason begins for which moves are not sent, whoever planned them."""


def turn(parts: Parts) -> TurnResult:
    """Run one turn."""
    finished = parts.actuator.collect()
    try:
        record = _turn(parts, finished)
    except Exception as error:  # noqa: BLE001 - a turn never raises; the bug is reported by its type and text
        record = TurnResult(error=as_lbd_error(error))
        parts.actuator.halt(Reason.ROUND_STOPPED, f"{TURN_FAILED}: {record.error}")
    kind = parts.planning
    return _with(replace(record, acts=parts.acts, approval=kind.approval, chosen=kind.chosen), finished)


def finish(parts: Parts, record: TurnResult) -> TurnResult:
    """The record with the outcomes of its own plan, for a caller that waited for all of them."""
    finished = parts.actuator.collect()
    try:
        _unsettle(parts, finished)
    except LbdError as error:
        record = replace(record, error=record.error or error)
    return _with(record, finished)


def _with(record: TurnResult, finished: FinishedMoves) -> TurnResult:
    """The record with the finished moves, and its sentence."""
    updated = replace(record, moves=record.moves.and_then(finished), error=record.error or finished.failure)
    return replace(updated, sentence=sentence(updated))


def _unsettle(parts: Parts, finished: FinishedMoves) -> None:
    """Brokers of moves that ended since the last turn, or are under way, must show two fresh samples."""
    if finished.touched:
        turn_memory = parts.store.load()
        parts.store.save(
            msgspec.structs.replace(turn_memory, samples=judging.unsettle(turn_memory.samples, finished.touched))
        )
        parts.actuator.settled()


def _turn(parts: Parts, finished: FinishedMoves) -> TurnResult:
    _unsettle(parts, finished)
    now = assess(parts, finished)
    facts, planning = now.facts, parts.planning
    case = planning.case(facts)
    holds = tuple(current_holds(case))
    hold = planning.hold(holds)
    if hold is not None and hold[0] is not Reason.MOVES_UNFINISHED:
        parts.actuator.halt(*hold)  # moves that have not begun are dropped
    elif too_much := _filled_meanwhile(facts, planning):
        parts.actuator.halt(Reason.DESTINATION_OVERLOADED, too_much)
    read = partial(read_policies, parts, facts.snapshot)
    planned = plan(planning, case, holds, rest=parts.rest, finished=finished, read=read, spread=parts.spread)
    to_send = () if planning.approval else planned.unloads
    assert planned.limits is not None
    _save(parts, now, to_send, planned, planned.limits)
    parts.on_plan(to_send)
    parts.actuator.hand_over(with_clients(to_send, facts.snapshot), planned.limits)
    skips = (*data_skips(now.observation.missing, facts), *unreported(facts), *planned.skips)
    return TurnResult(
        observation=now.observation, facts=facts, plan=replace(planned, skips=skips), turn_memory=now.before
    )


def _filled_meanwhile(facts: Facts, planning: Planning) -> str:
    """The destination of moves under way that has too much by a sample of now; empty where none has.

    A plan may take hours, as guardrails.unload_spacing_seconds says. Drains and fills look for themselves.
    """
    destinations = {move.destination for move in facts.unfinished if not move.order}
    if not destinations:
        return ""
    brokers = facts.snapshot.brokers.as_reported()
    points = scoring.scores(brokers, planning.weights)
    limit = planning.guardrails.max_destination_score
    full = brokers.ids_where(facts.evidence.fresh & (points > limit))
    broker = min(full & destinations, default=None)
    if broker is None:
        return ""
    return f"{broker} has {points[brokers.index()[broker]]:.1f} points by now, limit {limit:g}"


def _save(parts: Parts, now: Assessment, to_send: tuple[Unload, ...], planned: Plan, limits: Ledger) -> None:
    """Save what the next turn needs before anything is handed over.

    The brokers of the plan must settle, whatever happens to lbd meanwhile.
    """
    facts, touching = now.facts, to_send if parts.actuator.acts else ()
    at_most = limits.expected_at_most(to_send, judging.ABOVE_EXPECTED_POINTS)
    settles_at = scores_to_settle(to_send, at_most, parts.planning.chosen.name)
    samples = judging.unsettle(facts.evidence.samples, touched_brokers(touching), expected=settles_at)
    parts.store.save_averages(facts.averages, facts.now)
    expected, counted_by = planned.expected if to_send else {}, parts.planning.chosen.counted_by
    parts.store.save(remembered(now, planned.memory, samples, to_send, expected, counted_by))
