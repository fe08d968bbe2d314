"""One turn: observe, decide, permit, act, record. It never raises, and ends in exactly one sentence.

The daemon, ``run --once``, ``dry-run`` and recordings run this same function with other parts plugged in.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.cycle.holds import counting_holds, data_skips, ignored, stopped, unreported
from lbd.cycle.parts import CycleRecord, Parts
from lbd.cycle.telling import sentence
from lbd.errors import LbdError
from lbd.model import Memory, Permission, Reason, Result, bundle_namespace
from lbd.observe import averages as running
from lbd.permit import evidence as judging
from lbd.permit.eligibility import bar_namespaces, barred
from lbd.permit.limits import Ledger, permit
from lbd.permit.policies import Groups

if TYPE_CHECKING:
    from lbd.model import Averages, Decision, Outcome, Snapshot, Unload
    from lbd.observe.observer import Observation
    from lbd.permit.limits import Permitted
    from lbd.record.state import Kept

__all__ = ["CycleRecord", "Parts", "turn"]


def turn(parts: Parts) -> CycleRecord:
    """Run one turn."""
    try:
        return _turn(parts)
    except LbdError as error:
        return CycleRecord(f"No move: {error}", error=error)
    except Exception as error:  # noqa: BLE001 - a turn never raises; the bug is told by its type and text
        bug = _bug(error)
        return CycleRecord(f"No move: {bug}", error=bug)


def _bug(error: Exception) -> LbdError:
    bug = LbdError(f"bug in lbd, please report it: {type(error).__name__}: {error}")
    bug.__cause__ = error
    return bug


def _turn(parts: Parts) -> CycleRecord:
    observation = parts.observer.observe()
    snapshot = observation.snapshot
    before = parts.store.load().at(snapshot.taken_at, parts.gap_seconds)
    evidence = judging.judge(before.samples, snapshot, parts.weights, observation.sample_interval_seconds)
    averages = running.update(parts.store.load_averages(snapshot.taken_at), snapshot, evidence.fresh)
    kept = _members(before, observation)
    hold = next(counting_holds(parts, observation, evidence, kept), None)
    isolation = parts.isolation()
    permission = Permission(
        barred=barred(snapshot, parts.attempted_at(), isolation, parts.guardrails),
        counts=evidence.fresh,
        paired=evidence.paired,
        settled=evidence.settled,
        hold=hold,
    )
    decision, groups = _decide(parts, snapshot, averages, permission, Memory(kept.hits))
    scores = decision.facts.scores
    ledger = Ledger(snapshot, scores, isolation, groups, parts.guardrails, decision.unloads, paired=evidence.paired)
    permitted = permit(decision.unloads, ledger)
    kept = msgspec.structs.replace(
        kept, hits=dict(decision.memory.hits), samples=dict(evidence.samples), written_at=snapshot.taken_at
    )
    parts.store.save_averages(averages, snapshot.taken_at)
    kept = _unsettled(kept, {end for unload in permitted.unloads for end in (unload.source, unload.destination)})
    parts.store.save(kept)
    outcomes, failure = _act(parts, ledger, permitted.unloads)
    if any(outcome.result is Result.ELSEWHERE for outcome in outcomes):
        parts.store.save(_unsettled(kept, {outcome.owner for outcome in outcomes}))
    record = CycleRecord(
        "",
        observation,
        decision,
        permitted.unloads,
        (
            *data_skips(observation, evidence),
            *unreported(parts, snapshot),
            *ignored(parts, observation, evidence, kept),
            *decision.skips,
            *permitted.skips,
            *stopped(permitted.unloads, outcomes),
        ),
        outcomes,
        hold,
        before,
        failure,
        parts.eager,
        parts.wanted_hits,
        _counts(decision, permitted),
    )
    return replace(record, sentence=sentence(record))


ROUNDS_OF_POLICIES = 10
"""Each round reads the policies of namespaces that a plan newly touches; what is still unread then is not moved."""


def _decide(
    parts: Parts, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory
) -> tuple[Decision, Groups]:
    """Ask the strategy, read the policies of what it would move, bar what may not move, and ask again.

    Deciding is pure, so asking twice costs nothing but time, and few namespaces need to be read. ``memory`` is the
    same each time: a turn counts once.
    """
    groups = Groups()
    for _ in range(ROUNDS_OF_POLICIES):
        decision = parts.strategy(snapshot, averages, permission, memory)
        names = {bundle_namespace(unload.bundle) for unload in decision.unloads} - groups.free
        if not names:
            break
        groups = groups.and_those(parts.groups(frozenset(names)))
        bound = {name: reason[0] for name in names if (reason := groups.reason(name)) is not None}
        permission = replace(permission, barred=bar_namespaces(permission.barred, snapshot.bundles, bound))
    return decision, groups


def _act(parts: Parts, ledger: Ledger, plan: tuple[Unload, ...]) -> tuple[tuple[Outcome, ...], LbdError | None]:
    """The outcomes so far also when acting itself fails: what was moved is never forgotten."""
    outcomes: list[Outcome] = []
    try:
        parts.on_plan(plan)
        for outcome in parts.actuator(ledger).run(plan):
            outcomes.append(outcome)
            parts.on_outcome(outcome)
    except LbdError as error:
        return tuple(outcomes), error
    except Exception as error:  # noqa: BLE001 - see turn
        return tuple(outcomes), _bug(error)
    return tuple(outcomes), None


def _unsettled(kept: Kept, touched: set[str | None]) -> Kept:
    """What is kept before acting, and so whatever happens to lbd: touched brokers must show two fresh samples."""
    brokers = [broker for broker in touched if broker is not None]
    return msgspec.structs.replace(kept, samples=judging.unsettle(kept.samples, brokers))


def _members(kept: Kept, observation: Observation) -> Kept:
    """Note when the set of active brokers last changed; the first look counts as no change."""
    members, now = list(observation.active), observation.snapshot.taken_at
    if kept.members == members:
        return kept
    since = now if kept.members else 0.0
    return msgspec.structs.replace(kept, members=members, members_since=since)


def _counts(decision: Decision, permitted: Permitted) -> dict[str, int]:
    """How many bundles stay, by reason: the strategy's verdicts, and what the limits kept back of its plan."""
    codes, numbers = np.unique(decision.verdicts, return_counts=True)
    found = Counter({Reason.of(int(code)): int(number) for code, number in zip(codes, numbers, strict=True)})
    del found[Reason.MOVES]
    found.update(skip.reason for skip in permitted.skips)
    return {reason.label: number for reason, number in found.items()}
