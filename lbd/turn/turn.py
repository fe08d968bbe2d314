"""One turn: observe, decide, permit, act, store. It never raises, and ends in exactly one sentence.

The daemon, ``run --once``, ``dry-run`` and recordings run this same function with different parts. Moves are executed
beside the turns: outcomes since the last turn enter this one's record.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.act.executor import touched_brokers
from lbd.errors import LbdError, as_lbd_error
from lbd.model import CLUSTER, Permission, Skip, bundle_namespace, counter_broker, counter_key
from lbd.permit import eligibility
from lbd.permit import evidence as judging
from lbd.permit.blocks import block
from lbd.permit.cold import cold_brokers, one_bundle_each
from lbd.permit.eligibility import bar_more
from lbd.permit.limits import permit
from lbd.permit.policies import GroupSpread
from lbd.permit.predicted import unshown
from lbd.permit.rules import CAPS, barred, current_holds
from lbd.permit.served import with_clients
from lbd.reason import Reason
from lbd.store.proposal import plan_id
from lbd.turn.assess import assess, remembered
from lbd.turn.canary import NOTHING_HELD, held_back
from lbd.turn.parts import Parts, TurnResult
from lbd.turn.skips import data_skips, ignored, unreported
from lbd.turn.verdict import sentence
from lbd.turn.waves import BY_POINTS, LESS_ABOVE_POINTS, NextWave, Rest, scores_to_settle

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from lbd.act.executor import FinishedMoves
    from lbd.decide.strategies import Strategy
    from lbd.model import Decision, Hits, Memory, Pair, Snapshot, Unload
    from lbd.permit.budget import Budget, Used
    from lbd.permit.facts import Facts, Hold
    from lbd.permit.limits import Ledger, Permitted
    from lbd.permit.ping_pong import Trips
    from lbd.permit.policies import Policies
    from lbd.permit.rule import Case
    from lbd.turn.assess import Assessment
    from lbd.turn.canary import CanaryHold


def memory_after(
    before: Memory,
    decision: Decision,
    permitted: Permitted,
    canary: CanaryHold = NOTHING_HELD,
    rest: Rest | None = None,
) -> Memory:
    """The strategy's new memory; a pair that got nothing because of a cap or a canary keeps its counters ``before``.

    Firing clears a pair's counters. If pairs that share a cap then waited for eight samples again, they would be served
    one after the other, hours late; so their counters stand one below the limit, as under a hold. A counter that the
    strategy has for all brokers is kept where none of them got anything. A broker that nothing moves off has not given;
    one whose bundles go in later waves, the ``rest`` of the plan, has.
    """
    hits = dict(decision.memory.hits)
    kept_back = {skip.what for skip in permitted.skips if skip.reason in CAPS}
    served = {unload.source for unload in permitted.unloads}
    capped = {unload.source for unload in decision.unloads if unload.bundle in kept_back} | canary.held.keys()
    capped -= served
    fired = [pair for pair in decision.comparison.pairs if pair.fired]
    moving = {pair.pool for pair in fired if pair.source in served}
    for pair in fired:
        if pair.source in capped:
            hits |= _known(before.hits, pair, alone=pair.pool not in moving)
    gives = served | {unload.source for unload in (rest.unloads if rest is not None else ())}
    return replace(decision.memory, hits=hits, unloaded_at=_last_gave_at(before, decision.memory, gives))


def _known(before: Mapping[str, Hits], pair: Pair, *, alone: bool) -> dict[str, Hits]:
    ends = (pair.source, pair.destination, CLUSTER if alone else None)
    keys = (counter_key(end, pair.pool) for end in ends if end is not None)
    return {key: before[key] for key in keys if key in before}


def _last_gave_at(before: Memory, after: Memory, gives: Collection[str]) -> dict[str, float]:
    """When brokers last gave; for brokers that give nothing now the time before the turn."""
    own = {counter: at for counter, at in after.unloaded_at.items() if counter_broker(counter) in gives}
    return {**{key: at for key, at in before.unloaded_at.items() if key in after.unloaded_at}, **own}


# --- plan: ask the strategy, bar moves that their destination may not take, and ask again

ROUNDS = 10
"""Each reads the groups of newly touched namespaces, and bars the bundles of a source that may not go there."""

NAMESPACES_A_TURN = 100
"""Namespaces whose groups are read in one turn, those of the widest pair first; further ones are not moved in it."""


def decide(
    strategy: Strategy,
    case: Case,
    permission: Permission,
    read: Callable[[Decision, Policies], Policies] = lambda _, policies: policies,
    passes: frozenset[Reason] = frozenset(),
) -> tuple[Decision, Policies]:
    """The strategy's decision on what may move where, and the policies with what was ``read`` for it.

    Deciding is pure, so asking twice costs nothing but time, and few namespaces need to be read. The memory is the same
    each time: a turn counts once. Where isolation policies are not known, neither are the pools: then no hit counts.
    """
    facts, snapshot, policies = case.facts, case.facts.snapshot, case.facts.policies
    for _ in range(ROUNDS):
        decision = strategy(snapshot, facts.averages, permission, facts.memory)
        low, policies = policies.low, read(decision, policies)
        back = {} if Reason.PING_PONG in passes else sent_back(snapshot, decision, case.trips)
        wrong = _misplaced(snapshot, decision, policies) | back
        if not wrong and policies.low == low:
            break
        costs = eligibility.dearer(permission.costs, snapshot, policies.low - low)
        permission = replace(permission, barred=bar_more(permission.barred, snapshot, wrong), costs=costs)
    return (decision if policies.isolation.is_known else replace(decision, memory=facts.memory)), policies


def read_policies(parts: Parts, snapshot: Snapshot, decision: Decision, policies: Policies) -> Policies:
    """The policies with properties and anti-affinity groups of the namespaces that a plan touches, where not yet known.

    One turn reads groups for :data:`NAMESPACES_A_TURN` namespaces at most, and for none once some could not be read.
    """
    touched = tuple(dict.fromkeys(bundle_namespace(unload.bundle) for unload in decision.unloads))
    consents, groups = policies.consents, policies.groups
    if consents is not None and parts.consents is not None:
        names = tuple(name for name in touched if name not in consents.by_namespace)
        by_namespace = {**consents.by_namespace, **parts.consents(names)} if names else consents.by_namespace
        policies = replace(policies, consents=replace(consents, by_namespace=by_namespace))
    ungrouped = [name for name in touched if name not in groups.free and name not in groups.grouped]
    names = tuple(ungrouped[: max(NAMESPACES_A_TURN - groups.asked, 0)])
    if groups.unread or not names:
        return policies
    tenants = frozenset(name.partition("/")[0] for name in snapshot.namespaces.names)
    return replace(policies, groups=groups.and_those(parts.groups(names, tenants)))


def _misplaced(snapshot: Snapshot, decision: Decision, policies: Policies) -> dict[str, Reason]:
    """Bundles that their group keeps from the destination planned for them, and namespaces of unknown groups, or whose
    properties keep them.

    What is true of one bundle is true of all of its namespace on that source.
    """
    if not decision.unloads:
        return {}
    spread, misplaced = GroupSpread(snapshot, policies), dict[str, Reason]()
    for unload in decision.unloads:
        namespace = bundle_namespace(unload.bundle)
        if (stays := policies.unmovable(namespace)) is not None:
            misplaced[namespace] = stays[0]
        elif (refusal := spread.refusal(unload)) is not None:
            own = snapshot.reported_by(unload.source)
            misplaced |= {bundle: refusal[0] for bundle in own if bundle_namespace(bundle) == namespace}
        else:
            spread.take(unload)
    return misplaced


def sent_back(snapshot: Snapshot, decision: Decision, trips: Trips) -> dict[str, Reason]:
    """Bundles that would go straight back, with all others of that source that came from there."""
    back = {(move.source, move.destination or "") for move in decision.unloads if trips.refusal(move) is not None}
    return {
        bundle: Reason.PING_PONG
        for source, destination in back
        for bundle in trips.came_from(destination) & snapshot.reported_by(source)
    }


# --- turn


def turn(parts: Parts) -> TurnResult:
    """Run one turn."""
    finished = parts.actuator.collect()
    try:
        record = _turn(parts, finished)
    except Exception as error:  # noqa: BLE001 - a turn never raises; the bug is reported by its type and text
        record = TurnResult(error=as_lbd_error(error))
        parts.actuator.halt(Reason.ROUND_STOPPED, f"not asked for: {record.error}")
    return _with(replace(record, acts=parts.acts, approval=parts.approval), finished)


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
    updated = replace(
        record,
        outcomes=(*record.outcomes, *finished.outcomes),
        refused=(*record.refused, *finished.skips),
        skips=(*record.skips, *finished.skips),
        amended=(*record.amended, *finished.amended),
        unfinished=finished.unfinished,
        error=record.error or finished.failure,
    )
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
    facts, snapshot = now.facts, now.facts.snapshot
    case = parts.case(facts)
    holds = tuple(current_holds(case))
    score = dict(zip(snapshot.brokers.ids, facts.scores.tolist(), strict=True))
    gave_up = parts.rest.contradiction(_hold(parts, holds), finished, snapshot, score) if parts.rest else ""
    rest = None if gave_up else parts.rest
    if rest is not None and (why := rest.waits(snapshot, score)):
        holds = (*holds, (Reason.MOVES_UNFINISHED, why))
    hold = _holding(parts, holds)
    permission = _permission(parts, case, hold)
    strategy = parts.strategy if rest is None or hold is not None else NextWave(parts.strategy, rest)
    decision, policies = decide(strategy, case, permission, partial(read_policies, parts, snapshot), parts.ignored_bars)
    canary = held_back(strategy, snapshot, facts.averages, permission, facts.memory)
    unshown_points = unshown(facts.scores, facts.sent, snapshot, facts.evidence.settled, facts.sample_interval_seconds)
    ledger = parts.ledger(case, snapshot, facts.scores, policies, decision.unloads, permission, unshown_points)
    used = ledger.budget.usage()
    if rest is not None:
        cold = rest.has_room(snapshot, score)
    else:
        cold = cold_brokers(snapshot) if _goes_in_waves(parts, snapshot, decision, used) else frozenset()
    wave, after_warm_up = one_bundle_each(decision.unloads, cold)
    permitted = permit(wave, ledger)
    refused = permitted.skips if rest is None else rest.not_yet(permitted.skips, snapshot)
    permitted = replace(permitted, skips=(*refused, *after_warm_up))
    expected = ledger.expected(permitted.unloads)
    to_send = () if parts.approval else permitted.unloads
    remaining = rest if hold is not None else _rest(parts, snapshot, decision, permitted, ledger, rest, used, cold)
    memory = _memory(parts, facts, permission, decision, permitted, canary, remaining)
    nowhere = (Skip(name, Reason.ISOLATION_POLICY, why) for name, why in case.homeless.items())
    _save(parts, now, to_send, ledger, memory)
    parts.on_plan(to_send)
    parts.actuator.hand_over(with_clients(to_send, snapshot), ledger)
    return TurnResult(
        observation=now.observation,
        facts=facts,
        decision=decision,
        unloads=permitted.unloads,
        skips=(
            *data_skips(now.observation.missing, facts),
            *unreported(facts),
            *ignored(holds, parts.ignored_holds),
            *decision.skips,
            *permitted.skips,
            *_kept(snapshot, policies, permitted),
            *nowhere,
        ),
        hold=hold,
        turn_memory=now.before,
        strategy_name=parts.strategy_name,
        eager=parts.eager,
        assumed=parts.assumed,
        wanted_hits=parts.wanted_hits,
        counts=_counts(decision, permitted),
        usage=used if parts.approval else ledger.budget.usage(),
        expected=expected,
        blocked=_blocked(parts, facts, decision, ledger.budget, permission, canary),
        canary=canary,
        rest=remaining,
        gave_up=parts.rest.ended_text(gave_up) if parts.rest is not None and gave_up else "",
        dear_kinds=case.dear_kinds,
        costs=case.named_costs,
        crowded=permission.spread.crowded(snapshot.brokers.ids) if permission.spread is not None else (),
    )


def _goes_in_waves(parts: Parts, snapshot: Snapshot, decision: Decision, usage: Iterable[Used]) -> bool:
    """Whether what limits cut off a plan goes on in the next turns; live CPU has to show what each wave does.

    A plan that is larger than the remaining budgets is planned again each turn: each of its moves has to be the best.
    """
    if not (parts.in_waves and parts.acts and snapshot.brokers.live is not None):
        return False
    return not any(used.left is not None and used.left < len(decision.unloads) for used in usage if not used.of)


def _rest(
    parts: Parts,
    snapshot: Snapshot,
    decision: Decision,
    permitted: Permitted,
    ledger: Ledger,
    rest: Rest | None,
    usage: Iterable[Used],
    cold: frozenset[str],
) -> Rest | None:
    """The rest of the plan after this turn, which begins a wave of it, or waits with the next one."""
    if not permitted.unloads:
        return rest and rest.after_waiting((*decision.skips, *permitted.skips))
    if not _goes_in_waves(parts, snapshot, decision, usage):
        return None
    above_points = LESS_ABOVE_POINTS.get(parts.strategy_name, judging.ABOVE_EXPECTED_POINTS)
    at_most = ledger.expected_at_most(permitted.unloads, above_points)
    plan = rest or Rest(
        plan=plan_id(decision.unloads),
        unloads=decision.unloads,
        expected={},
        waves=0,
        began_at=0.0,
        above_points=above_points,
        cold=cold,
        by_points=parts.strategy_name in BY_POINTS,
    )
    score = dict(zip(snapshot.brokers.ids, decision.comparison.scores.tolist(), strict=True))
    gave = {unload.source: score[unload.source] for unload in permitted.unloads}
    return plan.after_wave((*decision.skips, *permitted.skips), at_most, snapshot.taken_at, gave)


def _blocked(
    parts: Parts, facts: Facts, decision: Decision, budget: Budget, permission: Permission, canary: CanaryHold
) -> dict[str, Skip]:
    """Limits that keep pairs from moving anything, whatever else the pairs wait for, by their ends."""
    attempted, changed, pairs = facts.attempted_at, facts.changed_at, decision.comparison.pairs
    resting = {**attempted, **{name: max(at, attempted.get(name, at)) for name, at in changed.items()}}
    skips = (block(pair, facts.snapshot, permission.barred, budget, resting, parts.guardrails) for pair in pairs)
    blocked = {skip.what: skip for skip in skips if skip is not None}
    held = canary.blocks(pairs, {unload.source for unload in decision.unloads})
    return blocked | {skip.what: skip for skip in held}


def _memory(
    parts: Parts,
    facts: Facts,
    permission: Permission,
    decision: Decision,
    permitted: Permitted,
    canary: CanaryHold,
    rest: Rest | None,
) -> Memory:
    """The strategy's memory after the turn; while a plan waits for approval, the memory as under a hold."""
    if parts.approval and permission.hold is None:
        held = replace(permission, hold=Reason.APPROVAL_REQUIRED)
        return parts.strategy(facts.snapshot, facts.averages, held, facts.memory).memory
    return memory_after(facts.memory, decision, permitted, canary, rest)


def _save(parts: Parts, now: Assessment, plan: tuple[Unload, ...], ledger: Ledger, memory: Memory) -> None:
    """Save what the next turn needs before anything is handed over.

    The brokers of the plan must settle, whatever happens to lbd meanwhile.
    """
    facts, touching = now.facts, plan if parts.actuator.acts else ()
    at_most = ledger.expected_at_most(plan, judging.ABOVE_EXPECTED_POINTS)
    settles_at = scores_to_settle(plan, at_most, parts.strategy_name)
    samples = judging.unsettle(facts.evidence.samples, touched_brokers(touching), expected=settles_at)
    parts.store.save_averages(facts.averages, facts.now)
    parts.store.save(remembered(now, memory, samples, plan, ledger.expected(plan)))


def _kept(snapshot: Snapshot, policies: Policies, permitted: Permitted) -> Iterator[Skip]:
    """The namespaces whose bundles stay."""
    moving = {bundle_namespace(unload.bundle) for unload in permitted.unloads}
    yield from policies.kept(snapshot.namespaces.names, moving)


def _hold(parts: Parts, holds: Iterable[Hold]) -> Hold | None:
    """The gravest hold that counts in this kind of turn."""
    return next((hold for hold in holds if hold[0] not in parts.ignored_holds), None)


def _holding(parts: Parts, holds: Iterable[Hold]) -> Hold | None:
    """The gravest hold that counts in this kind of turn; under it, moves not begun yet are dropped."""
    hold = _hold(parts, holds)
    if hold is not None and hold[0] is not Reason.MOVES_UNFINISHED:
        parts.actuator.halt(*hold)
    return hold


def _permission(parts: Parts, case: Case, hold: Hold | None) -> Permission:
    facts = case.facts
    return replace(
        facts.evidence.permission(barred(case, parts.ignored_bars)),
        hold=hold[0] if hold is not None else None,
        pools=case.pools,
        costs=case.costs,
        slopes=facts.slopes,
        max_destination_score=case.guardrails.max_destination_score,
        spread=parts.spread(facts.snapshot, case.pools),
        joined=_joined(facts),
    )


def _joined(facts: Facts) -> frozenset[str]:
    """Brokers that joined lately and show their CPU of now; none after one left within the hour, as in a restart."""
    since, brokers = facts.now - judging.JOINED_SECONDS, facts.snapshot.brokers
    live, samples = brokers.ids_where(brokers.shows_live), facts.evidence.samples
    joined = frozenset(broker for broker in live if samples[broker].joined_at > since)
    return frozenset() if facts.members.departures else joined


def _counts(decision: Decision, permitted: Permitted) -> dict[str, int]:
    """How many bundles stay, by reason: the strategy's verdicts, and what the limits kept back of its plan."""
    codes, numbers = np.unique(decision.verdicts, return_counts=True)
    counts = Counter({Reason.of(int(code)): int(number) for code, number in zip(codes, numbers, strict=True)})
    del counts[Reason.MOVES]
    counts.update(skip.reason for skip in permitted.skips)
    return {reason.label: number for reason, number in counts.items()}
