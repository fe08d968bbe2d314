"""One turn: observe, decide, permit, hand over, record. It never raises, and ends in exactly one sentence.

The daemon, ``run --once``, ``dry-run`` and recordings run this same function with other parts plugged in. Moves are
worked off beside the turns: what ended since the last one enters this one's record.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.act.orders import brokers_of
from lbd.cycle.asking import decide
from lbd.cycle.calm import begun
from lbd.cycle.capped import memory_after
from lbd.cycle.holds import data_skips, found_holds, ignored, unreported
from lbd.cycle.looking import look
from lbd.cycle.parts import CycleRecord, Hold, Parts
from lbd.cycle.telling import sentence
from lbd.errors import LbdError, told
from lbd.load.scoring import scores
from lbd.model import Permission
from lbd.permit import evidence as judging
from lbd.permit import move_costs
from lbd.permit.eligibility import bar_more, barred
from lbd.permit.limits import Ledger, permit
from lbd.permit.own_topic import kept_bundles
from lbd.permit.ping_pong import Trips
from lbd.permit.unshown import unshown
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lbd.act.orders import Ended
    from lbd.cycle.looking import Look
    from lbd.model import Decision, Memory, Skip, Snapshot, Unload
    from lbd.permit.evidence import Evidence
    from lbd.permit.limits import Permitted
    from lbd.permit.policies import Policies
    from lbd.record.state import Kept

__all__ = ["CycleRecord", "Hold", "Parts", "finish", "turn"]


def turn(parts: Parts) -> CycleRecord:
    """Run one turn."""
    ended = parts.actuator.collect()
    try:
        record = _turn(parts, ended)
    except Exception as error:  # noqa: BLE001 - a turn never raises; the bug is told by its type and text
        record = CycleRecord(error=told(error))
        parts.actuator.halt(Reason.ROUND_STOPPED, f"not asked for: {record.error}")
    return _with(replace(record, acts=parts.actuator.acts), ended)


def finish(parts: Parts, record: CycleRecord) -> CycleRecord:
    """The record with the outcomes of its own plan, for who waited until all of them had ended."""
    ended = parts.actuator.collect()
    try:
        _unsettle(parts, ended)
    except LbdError as error:
        record = replace(record, error=record.error or error)
    return _with(record, ended)


def _with(record: CycleRecord, ended: Ended) -> CycleRecord:
    """The record and what ended, in its sentence."""
    found = replace(
        record,
        outcomes=(*record.outcomes, *ended.outcomes),
        refused=(*record.refused, *ended.skips),
        skips=(*record.skips, *ended.skips),
        unfinished=ended.unfinished,
        error=record.error or ended.failure,
    )
    return replace(found, sentence=sentence(found))


def _unsettle(parts: Parts, ended: Ended) -> None:
    """Brokers of moves that ended since the last turn, or are under way, must show two fresh samples."""
    if ended.touched:
        parts.store.save(_unsettled(parts.store.load(), ended.touched))
        parts.actuator.settled()


def _turn(parts: Parts, ended: Ended) -> CycleRecord:
    _unsettle(parts, ended)
    seen = look(parts, ended)
    holds = tuple(found_holds(parts, seen.observation, seen.evidence, seen.kept, seen.policies, ended.unfinished))
    hold = _holding(parts, holds)
    permission = _permission(parts, seen, hold)
    decision, policies = decide(parts, seen.snapshot, seen.averages, permission, seen.policies, seen.kept)
    ledger = _ledger(parts, seen.snapshot, decision, policies, permission)
    permitted = permit(decision.unloads, ledger)
    expected = ledger.expected(permitted.unloads)
    _save(parts, seen, decision, permitted, expected)
    parts.on_plan(permitted.unloads)
    parts.actuator.hand_over(permitted.unloads, ledger.accepts)
    return CycleRecord(
        observation=seen.observation,
        decision=decision,
        unloads=permitted.unloads,
        skips=_skips(parts, seen, holds, (*decision.skips, *permitted.skips)),
        hold=hold,
        kept=seen.before,
        strategy_name=parts.strategy_name,
        eager=parts.eager,
        assumed=parts.assumed,
        wanted_hits=parts.wanted_hits,
        counts=_counts(decision, permitted),
        usage=ledger.usage(),
        averages=seen.averages,
        evidence=seen.evidence,
        expected=expected,
        slopes=permission.slopes,
    )


def _save(parts: Parts, seen: Look, decision: Decision, permitted: Permitted, expected: Mapping[str, float]) -> None:
    """What the next turn must know, before anything is handed over."""
    taken_at = seen.snapshot.taken_at
    parts.store.save_averages(seen.averages, taken_at)
    kept = begun(seen.kept, permitted.unloads, seen.snapshot, decision.facts.scores, expected)
    touching = permitted.unloads if parts.actuator.acts else ()
    memory = memory_after(seen.before.memory, decision, permitted)
    parts.store.save(_remembered(kept, memory, seen.evidence, touching, taken_at))


def _skips(parts: Parts, seen: Look, holds: Iterable[Hold], planned: tuple[Skip, ...]) -> tuple[Skip, ...]:
    """What was considered and not moved, of brokers first."""
    data, silent = data_skips(seen.observation, seen.evidence), unreported(parts, seen.snapshot)
    return (*data, *silent, *ignored(parts, holds), *planned)


def _holding(parts: Parts, holds: Iterable[Hold]) -> Hold | None:
    """The gravest hold that counts in this kind of turn; what is planned and not begun is given up under it."""
    hold = next((found for found in holds if found[0] not in parts.ignored_holds), None)
    if hold is not None and hold[0] is not Reason.MOVES_UNFINISHED:
        parts.actuator.halt(*hold)
    return hold


_FOR_A_WHILE = (0, Reason.COOL_DOWN.code, Reason.CHANGED_HANDS.code)
"""Nothing bars such bundles, or for ``cool_down_minutes`` at most."""


def _permission(parts: Parts, seen: Look, hold: Hold | None) -> Permission:
    snapshot, evidence, policies = seen.snapshot, seen.evidence, seen.policies
    trips = Trips(parts.sent(), snapshot.taken_at, parts.guardrails)
    known = (snapshot, parts.attempted_at(), policies.isolation, parts.guardrails)
    codes = barred(*known, changed_at=seen.kept.changed_at, tired=trips.tired)
    points, able = scores(snapshot.brokers, parts.weights), np.isin(codes, _FOR_A_WHILE)
    rest = trips.moved(snapshot, points, evidence.paired == 0, able)
    codes = bar_more(codes, snapshot, dict.fromkeys(rest, Reason.PING_PONG)) if rest else codes
    for reason in parts.ignored_bars:
        codes[codes == reason.code] = 0
    if own := kept_bundles(snapshot.bundles, parts.leader_topic):
        codes = bar_more(codes, snapshot, own)
    return Permission(
        barred=codes,
        counts=evidence.fresh,
        paired=evidence.paired,
        settled=evidence.settled,
        hold=hold[0] if hold is not None else None,
        pools=policies.isolation.pools(snapshot, policies.active),
        costs=move_costs.column(snapshot, parts.guardrails.move_costs),
        slopes=parts.learn(snapshot),
        max_destination_score=parts.guardrails.max_destination_score,
    )


def _ledger(parts: Parts, snapshot: Snapshot, decision: Decision, policies: Policies, known: Permission) -> Ledger:
    sent = parts.sent()
    return Ledger(
        snapshot,
        decision.facts.scores,
        policies,
        parts.guardrails,
        decision.unloads,
        sent=sent,
        unshown=unshown(decision.facts.scores, sent, snapshot, known.settled),
        permission=known,
        ignored=parts.ignored_bars,
        weights=parts.weights,
    )


def _unsettled(kept: Kept, touched: Iterable[str]) -> Kept:
    """Touched brokers must show two fresh samples, whatever happens to lbd meanwhile."""
    return msgspec.structs.replace(kept, samples=judging.unsettle(kept.samples, touched))


def _remembered(kept: Kept, memory: Memory, evidence: Evidence, plan: tuple[Unload, ...], taken_at: float) -> Kept:
    """What is kept before acting."""
    found = msgspec.structs.replace(kept, samples=dict(evidence.samples), written_at=taken_at)
    return _unsettled(found.with_memory(memory), brokers_of(plan))


def _counts(decision: Decision, permitted: Permitted) -> dict[str, int]:
    """How many bundles stay, by reason: the strategy's verdicts, and what the limits kept back of its plan."""
    codes, numbers = np.unique(decision.verdicts, return_counts=True)
    found = Counter({Reason.of(int(code)): int(number) for code, number in zip(codes, numbers, strict=True)})
    del found[Reason.MOVES]
    found.update(skip.reason for skip in permitted.skips)
    return {reason.label: number for reason, number in found.items()}
