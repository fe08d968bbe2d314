"""One turn: observe, decide, permit, act, store. It never raises, and ends in exactly one sentence.

The daemon, ``run --once``, ``dry-run`` and recordings run this same function with different parts. Moves are executed
beside the turns: outcomes since the last turn enter this one's record.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.act.executor import touched_brokers
from lbd.errors import LbdError, as_lbd_error
from lbd.load.scoring import scores
from lbd.model import CLUSTER, Permission, bundle_namespace, counter_broker, counter_key
from lbd.permit import eligibility
from lbd.permit import evidence as judging
from lbd.permit.blocks import block
from lbd.permit.eligibility import bar_more, barred, leader_topic_bundles, outside_canary
from lbd.permit.limits import permit
from lbd.permit.ping_pong import Trips
from lbd.permit.policies import GroupSpread
from lbd.permit.served import with_clients
from lbd.reason import Reason
from lbd.store.proposal import plan_id
from lbd.turn.assess import assess, start_progress
from lbd.turn.canary import NOTHING_HELD, held_back
from lbd.turn.holds import current_holds, data_skips, ignored, unreported
from lbd.turn.parts import Hold, Parts, TurnResult
from lbd.turn.verdict import sentence
from lbd.turn.waves import LESS_ABOVE_POINTS, NextWave, Rest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lbd.act.executor import FinishedMoves
    from lbd.model import Averages, Decision, Hits, Memory, Pair, Skip, Snapshot, Unload
    from lbd.permit.budget import Budget, Used
    from lbd.permit.evidence import Evidence
    from lbd.permit.limits import Permitted
    from lbd.permit.policies import Policies
    from lbd.store.state import TurnMemory
    from lbd.turn.assess import Assessment
    from lbd.turn.canary import CanaryHold


CAPS = frozenset(
    {
        Reason.TURN_UNLOADS,
        Reason.TURN_TRAFFIC,
        Reason.CANARY_UNLOADS,
        Reason.HOUR_UNLOADS,
        Reason.DAY_UNLOADS,
        Reason.SOURCE_UNLOADS,
        Reason.DESTINATION_UNLOADS,
    }
)
"""What there will be more of later, whatever the cluster looks like then."""


def memory_after(before: Memory, decision: Decision, permitted: Permitted, canary: CanaryHold = NOTHING_HELD) -> Memory:
    """What the strategy remembers; of a pair that got nothing because of a cap or a canary, the counters ``before``.

    Firing clears a pair's counters. Waiting for eight samples anew, pairs that share a cap would be served one
    after the other, hours late; so they stand one below their limit, as under a hold. A counter that the strategy has
    for all brokers is kept where none of them got anything. Brokers of which nothing goes have not given.
    """
    found = dict(decision.memory.hits)
    kept_back = {skip.what for skip in permitted.skips if skip.reason in CAPS}
    served = {unload.source for unload in permitted.unloads}
    capped = {unload.source for unload in decision.unloads if unload.bundle in kept_back} | canary.held.keys()
    capped -= served
    fired = [pair for pair in decision.facts.pairs if pair.fired]
    moving = {pair.pool for pair in fired if pair.source in served}
    for pair in fired:
        if pair.source in capped:
            found |= _known(before.hits, pair, alone=pair.pool not in moving)
    return replace(decision.memory, hits=found, unloaded_at=_last_gave_at(before, decision.memory, served))


def _known(before: Mapping[str, Hits], pair: Pair, *, alone: bool) -> dict[str, Hits]:
    ends = (pair.source, pair.destination, CLUSTER if alone else None)
    keys = (counter_key(end, pair.pool) for end in ends if end is not None)
    return {key: before[key] for key in keys if key in before}


def _last_gave_at(before: Memory, after: Memory, served: Collection[str]) -> dict[str, float]:
    """When brokers last gave: of those that give nothing now, as it was before."""
    own = {counter: at for counter, at in after.unloaded_at.items() if counter_broker(counter) in served}
    return {**{key: at for key, at in before.unloaded_at.items() if key in after.unloaded_at}, **own}


# --- plan: ask the strategy, bar moves that their destination may not take, and ask again

ROUNDS = 10
"""In each, groups of newly touched namespaces are read, and what may not go there is barred for a whole source."""

NAMESPACES_A_TURN = 100
"""Namespaces whose groups are read in one turn, those of the widest pair first; further ones are not moved in it."""


def decide(
    parts: Parts, snapshot: Snapshot, averages: Averages, permission: Permission, policies: Policies, kept: TurnMemory
) -> tuple[Decision, Policies]:
    """The strategy's decision on what may move where, and the policies with the groups read for it.

    Deciding is pure, so asking twice costs nothing but time, and few namespaces need to be read. The memory is the same
    each time: a turn counts once. Where isolation policies are not known, neither are the pools: then no hit counts.
    """
    trips = Trips(parts.sent(), snapshot.taken_at, parts.guardrails)
    for _ in range(ROUNDS):
        decision = parts.strategy(snapshot, averages, permission, kept.memory)
        policies = _with_groups(parts, snapshot, decision, policies)
        back = {} if Reason.PING_PONG in parts.ignored_bars else sent_back(snapshot, decision, trips)
        wrong = _misplaced(snapshot, decision, policies) | back
        if not wrong:
            break
        permission = replace(permission, barred=bar_more(permission.barred, snapshot, wrong))
    return (decision if policies.isolation.known else replace(decision, memory=kept.memory)), policies


def _with_groups(parts: Parts, snapshot: Snapshot, decision: Decision, policies: Policies) -> Policies:
    """The policies with the anti-affinity groups of namespaces that a plan touches and that were not read yet."""
    known = policies.groups
    touched = dict.fromkeys(bundle_namespace(unload.bundle) for unload in decision.unloads)
    names = [name for name in touched if name not in known.free and name not in known.grouped]
    names = names[: max(NAMESPACES_A_TURN - known.asked, 0)]
    if known.unread or not names:
        return policies
    tenants = frozenset(name.partition("/")[0] for name in snapshot.namespaces.names)
    return replace(policies, groups=known.and_those(parts.groups(tuple(names), tenants)))


def _misplaced(snapshot: Snapshot, decision: Decision, policies: Policies) -> dict[str, Reason]:
    """Bundles that their group keeps from the destination planned for them, and namespaces of unknown groups.

    What is true of one bundle is true of all of its namespace on that source.
    """
    spread, found = GroupSpread(snapshot, policies), dict[str, Reason]()
    for unload in decision.unloads:
        namespace = bundle_namespace(unload.bundle)
        if (unknown := policies.groups.unknown(namespace)) is not None:
            found[namespace] = unknown[0]
        elif (refusal := spread.refusal(unload)) is not None:
            own = snapshot.reported_by(unload.source)
            found |= {bundle: refusal[0] for bundle in own if bundle_namespace(bundle) == namespace}
        else:
            spread.take(unload)
    return found


def sent_back(snapshot: Snapshot, decision: Decision, trips: Trips) -> dict[str, Reason]:
    """Bundles that would go straight back, with all others of that source that came from there."""
    back = {(one.source, one.destination or "") for one in decision.unloads if trips.refusal(one) is not None}
    return {
        bundle: Reason.PING_PONG
        for source, destination in back
        for bundle in trips.came_from(destination) & snapshot.reported_by(source)
    }


# --- turn


def turn(parts: Parts) -> TurnResult:
    """Run one turn."""
    ended = parts.actuator.collect()
    try:
        record = _turn(parts, ended)
    except Exception as error:  # noqa: BLE001 - a turn never raises; the bug is told by its type and text
        record = TurnResult(error=as_lbd_error(error))
        parts.actuator.halt(Reason.ROUND_STOPPED, f"not asked for: {record.error}")
    return _with(replace(record, acts=parts.acts, approval=parts.approval), ended)


def finish(parts: Parts, record: TurnResult) -> TurnResult:
    """The record with the outcomes of its own plan, for who waited until all of them had ended."""
    ended = parts.actuator.collect()
    try:
        _unsettle(parts, ended)
    except LbdError as error:
        record = replace(record, error=record.error or error)
    return _with(record, ended)


def _with(record: TurnResult, ended: FinishedMoves) -> TurnResult:
    """The record and what ended, in its sentence."""
    found = replace(
        record,
        outcomes=(*record.outcomes, *ended.outcomes),
        refused=(*record.refused, *ended.skips),
        skips=(*record.skips, *ended.skips),
        amended=(*record.amended, *ended.amended),
        unfinished=ended.unfinished,
        error=record.error or ended.failure,
    )
    return replace(found, sentence=sentence(found))


def _unsettle(parts: Parts, ended: FinishedMoves) -> None:
    """Brokers of moves that ended since the last turn, or are under way, must show two fresh samples."""
    if ended.touched:
        kept = parts.store.load()
        parts.store.save(msgspec.structs.replace(kept, samples=judging.unsettle(kept.samples, ended.touched)))
        parts.actuator.settled()


def _turn(parts: Parts, ended: FinishedMoves) -> TurnResult:
    _unsettle(parts, ended)
    seen = assess(parts, ended)
    holds = tuple(current_holds(parts, seen.observation, seen.evidence, seen.kept, seen.policies, ended.unfinished))
    gave_up = parts.rest.contradiction(_hold(parts, holds), ended, seen.snapshot, parts.weights) if parts.rest else ""
    rest = None if gave_up else parts.rest
    if rest is not None and (why := rest.waits(seen.snapshot)):
        holds = (*holds, (Reason.MOVES_UNFINISHED, why))
    hold = _holding(parts, holds)
    permission = _permission(parts, seen, hold)
    strategy = parts.strategy if rest is None or hold is not None else NextWave(parts.strategy, rest)
    decision, policies = decide(
        replace(parts, strategy=strategy), seen.snapshot, seen.averages, permission, seen.policies, seen.kept
    )
    canary = held_back(strategy, seen.snapshot, seen.averages, permission, seen.kept.memory)
    interval = seen.observation.sample_interval_seconds
    known = (seen.snapshot, decision.facts.scores, policies, decision.unloads, permission)
    ledger = parts.ledger(*known, shown_after_seconds=interval)
    used = ledger.budget.usage()
    permitted = permit(decision.unloads, ledger)
    expected = ledger.expected(permitted.unloads)
    begun = () if parts.approval else permitted.unloads
    _save(parts, seen, decision, begun, expected, _memory(parts, seen, permission, decision, permitted, canary))
    parts.on_plan(begun)
    parts.actuator.hand_over(with_clients(begun, seen.snapshot), ledger.accepts)
    return TurnResult(
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
        usage=used if parts.approval else ledger.budget.usage(),
        averages=seen.averages,
        evidence=seen.evidence,
        expected=expected,
        slopes=permission.slopes,
        blocked=_blocked(parts, seen, decision, ledger.budget, permission, canary),
        canary=canary,
        rest=rest if hold is not None else _rest(parts, seen.snapshot, decision, permitted, expected, rest, used),
        gave_up=parts.rest.ended(gave_up) if parts.rest is not None and gave_up else "",
    )


def _rest(
    parts: Parts,
    snapshot: Snapshot,
    decision: Decision,
    permitted: Permitted,
    expected: Mapping[str, float],
    rest: Rest | None,
    usage: Iterable[Used],
) -> Rest | None:
    """What remains of the plan of which this turn begins a wave; live CPU has to show what each wave does.

    A plan that is larger than what the budgets have left is made anew each time: each of its moves has to be the best.
    """
    if not (parts.in_waves and parts.acts and permitted.unloads and snapshot.brokers.live is not None):
        return None
    if any(used.left is not None and used.left < len(decision.unloads) for used in usage if not used.of):
        return None
    above_points = LESS_ABOVE_POINTS.get(parts.strategy_name, judging.ABOVE_EXPECTED_POINTS)
    plan = rest or Rest(plan_id(decision.unloads), decision.unloads, {}, 0, 0.0, above_points)
    return plan.after_wave((*decision.skips, *permitted.skips), expected, snapshot.taken_at)


def _blocked(
    parts: Parts, seen: Assessment, decision: Decision, budget: Budget, permission: Permission, canary: CanaryHold
) -> dict[str, Skip]:
    """What keeps pairs from moving anything, whatever else they wait for, by their ends."""
    attempted, changed = parts.attempted_at(), seen.kept.changed_at
    resting = {**attempted, **{name: max(at, attempted.get(name, at)) for name, at in changed.items()}}
    known = (seen.snapshot, permission.barred, budget, resting, parts.guardrails)
    found = {skip.what: skip for pair in decision.facts.pairs if (skip := block(pair, *known)) is not None}
    held = canary.blocks(decision.facts.pairs, {unload.source for unload in decision.unloads})
    return found | {skip.what: skip for skip in held}


def _memory(
    parts: Parts,
    seen: Assessment,
    permission: Permission,
    decision: Decision,
    permitted: Permitted,
    canary: CanaryHold,
) -> Memory:
    """What the strategy remembers; of a plan that waits for approval, what it would under a hold."""
    if parts.approval and permission.hold is None:
        held = replace(permission, hold=Reason.APPROVAL_REQUIRED)
        return parts.strategy(seen.snapshot, seen.averages, held, seen.kept.memory).memory
    return memory_after(seen.before.memory, decision, permitted, canary)


def _save(
    parts: Parts,
    seen: Assessment,
    decision: Decision,
    plan: tuple[Unload, ...],
    expected: Mapping[str, float],
    memory: Memory,
) -> None:
    """What the next turn must know, before anything is handed over."""
    taken_at = seen.snapshot.taken_at
    parts.store.save_averages(seen.averages, taken_at)
    kept = start_progress(seen.kept, plan, seen.snapshot, decision.facts.scores, expected)
    touching = plan if parts.actuator.acts else ()
    parts.store.save(_remembered(kept.with_memory(memory), seen.evidence, touching, expected, taken_at))


def _skips(parts: Parts, seen: Assessment, holds: Iterable[Hold], planned: tuple[Skip, ...]) -> tuple[Skip, ...]:
    """What was considered and not moved, of brokers first."""
    data, silent = data_skips(seen.observation, seen.evidence), unreported(parts, seen.snapshot)
    return (*data, *silent, *ignored(parts, holds), *planned)


def _hold(parts: Parts, holds: Iterable[Hold]) -> Hold | None:
    """The gravest hold that counts in this kind of turn."""
    return next((hold for hold in holds if hold[0] not in parts.ignored_holds), None)


def _holding(parts: Parts, holds: Iterable[Hold]) -> Hold | None:
    """The gravest hold that counts in this kind of turn; what is planned and not begun is given up under it."""
    hold = _hold(parts, holds)
    if hold is not None and hold[0] is not Reason.MOVES_UNFINISHED:
        parts.actuator.halt(*hold)
    return hold


_FOR_A_WHILE = (0, Reason.COOL_DOWN.code, Reason.CHANGED_HANDS.code)
"""Nothing bars such bundles, or for ``cool_down_minutes`` at most."""


def _permission(parts: Parts, seen: Assessment, hold: Hold | None) -> Permission:
    snapshot, evidence, policies = seen.snapshot, seen.evidence, seen.policies
    trips = Trips(parts.sent(), snapshot.taken_at, parts.guardrails)
    known = (snapshot, parts.attempted_at(), policies.isolation, parts.guardrails)
    codes = barred(*known, changed_at=seen.kept.changed_at, tired=trips.tired)
    points, able = scores(snapshot.brokers, parts.weights), np.isin(codes, _FOR_A_WHILE)
    rest = trips.moved(snapshot, points, evidence.paired == 0, able) if parts.moved_rest else frozenset[str]()
    codes = bar_more(codes, snapshot, dict.fromkeys(rest, Reason.PING_PONG)) if rest else codes
    for reason in parts.ignored_bars:
        codes[codes == reason.code] = 0
    if own := leader_topic_bundles(snapshot.bundles, parts.leader_topic):
        codes = bar_more(codes, snapshot, own)
    codes = outside_canary(codes, snapshot, parts.guardrails.canary)
    return replace(
        evidence.permission(codes),
        hold=hold[0] if hold is not None else None,
        pools=policies.isolation.pools(snapshot, policies.active),
        costs=eligibility.column(snapshot, parts.guardrails.move_costs),
        slopes=parts.learn(snapshot.as_reported()),
        max_destination_score=parts.guardrails.max_destination_score,
    )


def _remembered(
    kept: TurnMemory, evidence: Evidence, plan: tuple[Unload, ...], expected: Mapping[str, float], taken_at: float
) -> TurnMemory:
    """What is kept before acting: the brokers of the plan must settle, whatever happens to lbd meanwhile."""
    samples = judging.unsettle(evidence.samples, touched_brokers(plan), expected=expected)
    return msgspec.structs.replace(kept, samples=samples, written_at=taken_at)


def _counts(decision: Decision, permitted: Permitted) -> dict[str, int]:
    """How many bundles stay, by reason: the strategy's verdicts, and what the limits kept back of its plan."""
    codes, numbers = np.unique(decision.verdicts, return_counts=True)
    found = Counter({Reason.of(int(code)): int(number) for code, number in zip(codes, numbers, strict=True)})
    del found[Reason.MOVES]
    found.update(skip.reason for skip in permitted.skips)
    return {reason.label: number for reason, number in found.items()}
