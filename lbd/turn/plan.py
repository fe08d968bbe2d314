"""The planner: what one turn moves, what of its plan goes later, and why all else stays. Pure.

Every kind of turn asks it: live turns, dry runs, plans of a person, simulations, and the replay by which settings are
calibrated. It goes from the strategy to the moves in five steps:

1. What holds, and what bars single bundles, makes a :class:`~lbd.model.Permission`.
2. The strategy decides under it, or a plan under way gives its next wave (``waves.py``).
3. A destination that a bundle may not have bars the bundle, and the strategy is asked again.
4. The limits let moves through, in the plan's order (``permit/limits.py``).
5. What a limit of one turn cut off is the rest of the plan; the memory is the strategy's, as far as something moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.act.executor import NOTHING_FINISHED
from lbd.load import estimate
from lbd.model import CLUSTER, Hits, Memory, Skip, bundle_namespace, counter_broker, counter_key, pool_bundles
from lbd.permit import eligibility
from lbd.permit import evidence as judging
from lbd.permit.blocks import block
from lbd.permit.cold import cold_brokers, one_bundle_each
from lbd.permit.eligibility import bar_more
from lbd.permit.limits import Ledger, permit
from lbd.permit.policies import GroupSpread
from lbd.permit.rule import Case
from lbd.permit.rules import CAPS, RULES, barred
from lbd.reason import Group, Reason
from lbd.store.proposal import plan_id
from lbd.turn.canary import NOTHING_HELD, held_back
from lbd.turn.waves import BY_POINTS, LESS_ABOVE_POINTS, NextWave, Rest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lbd.act.executor import FinishedMoves
    from lbd.decide.strategies import Strategy
    from lbd.load.scoring import Weights
    from lbd.model import CodeArray, Decision, FloatArray, Pair, Permission, Pool, Snapshot, Unload
    from lbd.permit.budget import Budget, Used
    from lbd.permit.facts import Facts, Hold
    from lbd.permit.limits import Permitted
    from lbd.permit.ping_pong import Trips
    from lbd.permit.policies import Policies
    from lbd.permit.settings import Guardrails
    from lbd.permit.topic_costs import DearKind, TopicKind
    from lbd.spread import Crowded, Spread
    from lbd.turn.canary import CanaryHold


@dataclass(frozen=True)
class Chosen:
    """The strategy in force, in words: its ``name`` in the settings, and its real hit counts, ``wanted_hits``.

    One that is ``eager`` assumes what it would otherwise wait for, named in ``assumed``. ``counted_by`` is the rule by
    which it counts hits: those of another one are no evidence.
    """

    name: str = "avg-shedder"
    wanted_hits: Hits = field(default_factory=Hits)
    eager: bool = False
    assumed: str = ""
    counted_by: str = ""


@dataclass(frozen=True, eq=False)
class Planning:
    """How a kind of turn plans: its strategy, and under which settings and exemptions the moves are judged.

    ``topic_costs`` are those that the settings give; None: Pulsar's own topics make no bundle dearer. The bundle that
    carries ``leader_topic`` stays where it is. With ``moved_rest`` a bundle that lbd moved lately rests while others
    can go instead. Holds and bars with a reason in ``ignored`` are reported and stop nothing: those that a person
    passes, or that would only hide the answer of a turn that cannot act. With ``approval`` a plan is a proposal, and
    the memory stays as under a hold. With ``in_waves`` what the limits of a turn cut off goes in the next turns.
    """

    strategy: Strategy
    weights: Weights
    guardrails: Guardrails
    chosen: Chosen = field(default_factory=Chosen)
    topic_costs: Mapping[TopicKind, float | str] | None = None
    leader_topic: str = ""
    moved_rest: bool = True
    ignored: frozenset[Reason] = frozenset()
    approval: bool = False
    in_waves: bool = False

    def case(self, facts: Facts) -> Case:
        """The case for the rules: these facts, under these settings."""
        return Case(facts, self.guardrails, self.leader_topic, self.topic_costs, self.moved_rest)

    def hold(self, holds: Iterable[Hold]) -> Hold | None:
        """The gravest hold that counts in this kind of turn."""
        return next((hold for hold in holds if hold[0] not in self.ignored), None)

    def ledger(
        self,
        case: Case,
        snapshot: Snapshot,
        scores: FloatArray,
        policies: Policies,
        plan: Sequence[Unload],
        permission: Permission,
        unshown: FloatArray | None = None,
    ) -> Ledger:
        """The judge of each move of a plan under these guardrails, to be advanced by those that are let through.

        ``unshown``: points of moves that the case knows and that ``scores`` do not show yet, float64 (B,).
        """
        return Ledger(
            snapshot,
            scores,
            policies,
            self.guardrails,
            plan,
            rules=RULES,
            trips=case.trips,
            sent=case.facts.sent,
            unshown=unshown,
            permission=permission,
            ignored=self.ignored,
            weights=self.weights,
        )


@dataclass(frozen=True, eq=False)
class Plan:
    """The moves of one turn, and why all else stays.

    ``unloads`` go now, ``rest`` is what remains for later waves, and ``gave_up`` is why the rest of an earlier plan is
    not moved. ``expected`` is the score, in points, of each broker that the moves touch, once all have landed.
    ``memory`` is the strategy's for the next turn. ``counts`` is how many bundles stay, by reason: the strategy's
    verdicts, and what the limits kept back. ``blocked`` is why a pair, by its ends, can move nothing at present, and
    until when, ``canary`` what a canary holds of the plan. ``crowded`` are brokers with more than their share of a
    topic's partitions, or a namespace's bundles. ``dear_kinds`` are Pulsar's own topics that make a move of a bundle
    dearer, ``costs`` the points of each bundle, float64 (N,), None where none has any. ``limits`` judges the moves once
    more when they are sent.
    """

    decision: Decision | None = None
    unloads: tuple[Unload, ...] = ()
    skips: tuple[Skip, ...] = ()
    hold: Hold | None = None
    memory: Memory = field(default_factory=Memory)
    counts: Mapping[str, int] = field(default_factory=dict)
    usage: tuple[Used, ...] = ()
    expected: Mapping[str, float] = field(default_factory=dict)
    blocked: Mapping[str, Skip] = field(default_factory=dict)
    canary: CanaryHold = NOTHING_HELD
    rest: Rest | None = None
    gave_up: str = ""
    crowded: tuple[Crowded, ...] = ()
    dear_kinds: tuple[DearKind, ...] = ()
    costs: FloatArray | None = None
    limits: Ledger | None = None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs that the strategy compared; none where it was not asked."""
        return self.decision.comparison.pairs if self.decision is not None else ()


NOTHING_PLANNED = Plan()

Reading = Callable[["Decision", "Policies"], "Policies"]
"""Gives the policies with what a decision needs to know beyond them."""

SpreadSource = Callable[["Snapshot", "Sequence[Pool]"], "Spread | None"]
"""Where partitions of topics, or bundles of namespaces, are in a round, within the pools of its brokers."""


def plan(
    planning: Planning,
    case: Case,
    holds: Sequence[Hold] = (),
    *,
    rest: Rest | None = None,
    finished: FinishedMoves = NOTHING_FINISHED,
    read: Reading = lambda _, policies: policies,
    spread: SpreadSource = lambda *_: None,
    by_name: CodeArray | None = None,
) -> Plan:
    """The plan of a turn.

    ``rest`` is what remains of an earlier one, of whose moves some have ``finished``. ``by_name`` is
    :func:`~lbd.permit.rules.barred_by_name` of this case where a caller has it already.
    """
    facts, snapshot = case.facts, case.facts.snapshot
    gave_up = rest.contradiction(planning.hold(holds), finished, snapshot, facts.points) if rest is not None else ""
    wave = None if gave_up else rest
    if wave is not None and (why := wave.waits(snapshot, facts.points)):
        holds = (*holds, (Reason.MOVES_UNFINISHED, why))
    hold = planning.hold(holds)
    permission = _permission(planning, case, hold, spread, by_name)
    if wave is not None:
        permission = wave.trusting(permission, snapshot, facts.evidence.health.avoided)
    strategy = planning.strategy if wave is None or hold is not None else NextWave(planning.strategy, wave)
    decision, policies = decide(strategy, case, permission, read, planning.ignored)
    decision = with_causes(snapshot, decision, permission.pools)
    canary = held_back(strategy, snapshot, facts.averages, permission, facts.memory)
    ledger = planning.ledger(
        case, snapshot, facts.scores, policies, decision.unloads, permission, unshown=facts.unshown
    )
    used = ledger.budget.usage()
    in_waves = _goes_in_waves(planning, snapshot, decision, used)
    if wave is not None:
        cold = wave.has_room(snapshot, facts.points)
    else:
        cold = cold_brokers(snapshot) if in_waves else frozenset()
    now, after_warm_up = one_bundle_each(decision.unloads, cold)
    permitted = permit(now, ledger)
    refused = permitted.skips if wave is None else wave.not_yet(permitted.skips, snapshot)
    permitted = replace(permitted, skips=(*refused, *after_warm_up))
    remaining = wave
    if hold is None:
        remaining = _rest(planning, facts, decision, permitted, ledger, wave, cold, in_waves=in_waves)
    moving = {bundle_namespace(unload.bundle) for unload in permitted.unloads}
    return Plan(
        decision=decision,
        unloads=permitted.unloads,
        skips=(
            *_ignored(holds, planning.ignored),
            *decision.skips,
            *permitted.skips,
            *policies.kept(snapshot.namespaces.names, moving),
            *(Skip(name, Reason.ISOLATION_POLICY, why) for name, why in case.homeless.items()),
        ),
        hold=hold,
        memory=_memory(planning, facts, permission, decision, permitted, canary, remaining),
        counts=_counts(decision, permitted),
        usage=used if planning.approval else ledger.budget.usage(),
        expected=ledger.expected(permitted.unloads),
        blocked=_blocked(case, decision, ledger.budget, permission, canary),
        canary=canary,
        rest=remaining,
        gave_up=rest.ended_text(gave_up) if rest is not None and gave_up else "",
        crowded=permission.spread.crowded(snapshot.brokers.ids) if permission.spread is not None else (),
        dear_kinds=case.dear_kinds,
        costs=case.named_costs,
        limits=ledger,
    )


def _permission(
    planning: Planning, case: Case, hold: Hold | None, spread: SpreadSource, by_name: CodeArray | None
) -> Permission:
    facts = case.facts
    return replace(
        facts.evidence.permission(barred(case, planning.ignored, by_name)),
        hold=hold[0] if hold is not None else None,
        pools=case.pools,
        costs=case.costs,
        slopes=facts.slopes,
        max_destination_score=case.guardrails.max_destination_score,
        spread=spread(facts.snapshot, case.pools),
        joined=facts.joined,
    )


# --- ask the strategy, bar moves that their destination may not take, and ask again

ROUNDS = 10
"""Each reads the groups of newly touched namespaces, and bars the bundles of a source that may not go there."""


def decide(
    strategy: Strategy,
    case: Case,
    permission: Permission,
    read: Reading = lambda _, policies: policies,
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
        decision = _elsewhere(snapshot, decision, policies, permission)
        back = {} if Reason.PING_PONG in passes else sent_back(snapshot, decision, case.trips)
        wrong = _misplaced(snapshot, decision, policies) | back
        if not wrong and policies.low == low:
            break
        costs = eligibility.dearer(permission.costs, snapshot, policies.low - low)
        permission = replace(permission, barred=bar_more(permission.barred, snapshot, wrong), costs=costs)
    return (decision if policies.isolation.is_known else replace(decision, memory=facts.memory)), policies


def with_causes(snapshot: Snapshot, decision: Decision, pools: Sequence[Pool] = ()) -> Decision:
    """The decision whose pairs for which nothing fits have the cause of it as their reason: one word for one cause.

    That is ``TOO_LARGE`` if a bundle of the source is; otherwise the reason that bars most bundles from moving. Of a
    source in several ``pools`` the bundles of the pair's pool count.
    """
    of = {pair.ends: pair for pair in decision.comparison.pairs}
    misfits = {skip for skip in decision.skips if skip.reason is Reason.NOTHING_FITS and skip.what in of}
    if not misfits:
        return decision
    position, rows = snapshot.brokers.index(), snapshot.rows

    def cause(skip: Skip) -> Reason:
        own = rows.bundle[rows.of(position[of[skip.what].source])]
        if (within := pool_bundles(pools, of[skip.what].pool)) is not None:
            own = own[within[own]]
        counts = Counter(Reason.of(code) for code in decision.verdicts[own].tolist())
        bars = [reason for reason in counts if reason.group is not Group.NORMAL and reason is not Reason.BROKER_BUNDLE]
        return (
            Reason.TOO_LARGE if Reason.TOO_LARGE in counts else max(bars, key=counts.__getitem__, default=skip.reason)
        )

    skips = (replace(skip, reason=cause(skip)) if skip in misfits else skip for skip in decision.skips)
    return replace(decision, skips=tuple(skips))


def _elsewhere(snapshot: Snapshot, decision: Decision, policies: Policies, permission: Permission) -> Decision:
    """The decision with the lowest broker that its group allows for a bundle that may not go to the planned one.

    That one must take part, and stay below the source by all moves so far: it is not the one that was compared. Only
    what fired chose its destination; an order of a person, or a plan under way, goes where it says or not at all.
    """
    fired = {pair.source for pair in decision.comparison.pairs if pair.fired}
    if not (fired and policies.groups.members):
        return decision
    spread, scores = GroupSpread(snapshot, policies), decision.comparison.scores
    position = snapshot.brokers.index()
    unloads: list[Unload] = []
    score = dict(zip(snapshot.brokers.ids, scores.tolist(), strict=True))
    able = snapshot.brokers.ids_where((permission.paired == 0) & permission.settled)
    for unload in decision.unloads:
        move, points = unload, estimate.points(unload, snapshot.brokers, scores, position)
        may = unload.source in fired and policies.unmovable(bundle_namespace(unload.bundle)) is None
        if may and spread.refusal(unload) is not None:
            best = able & (spread.best(unload.bundle, unload.source) or frozenset()) - {unload.source}
            lowest = min(best, key=lambda broker: (score[broker], broker), default=None)
            if lowest is not None and score[lowest] + 2 * points <= score[unload.source]:
                why = f"{unload.reason}; to {lowest}, as its anti-affinity group forbids {unload.destination}"
                move = replace(unload, destination=lowest, reason=why)
        spread.take(move)
        score[move.source] -= points
        if move.destination in score:
            score[move.destination] += points
        unloads.append(move)
    return replace(decision, unloads=tuple(unloads))


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


# --- waves


def _goes_in_waves(planning: Planning, snapshot: Snapshot, decision: Decision, usage: Iterable[Used]) -> bool:
    """Whether what limits cut off a plan goes on in the next turns; live CPU has to show what each wave does.

    A plan that is larger than the remaining budgets is planned again each turn: each of its moves has to be the best.
    """
    if not (planning.in_waves and snapshot.brokers.live is not None):
        return False
    return not any(used.left is not None and used.left < len(decision.unloads) for used in usage if not used.of)


def _rest(
    planning: Planning,
    facts: Facts,
    decision: Decision,
    permitted: Permitted,
    ledger: Ledger,
    rest: Rest | None,
    cold: frozenset[str],
    *,
    in_waves: bool,
) -> Rest | None:
    """The rest of the plan after this turn, which begins a wave of it, or waits with the next one."""
    skips = (*decision.skips, *permitted.skips)
    if not permitted.unloads:
        return rest and rest.after_waiting(skips)
    if not in_waves:
        return None
    above_points = LESS_ABOVE_POINTS.get(planning.chosen.name, judging.ABOVE_EXPECTED_POINTS)
    whole = rest or Rest(
        plan=plan_id(decision.unloads),
        unloads=decision.unloads,
        expected={},
        waves=0,
        began_at=0.0,
        above_points=above_points,
        cold=cold,
        by_points=planning.chosen.name in BY_POINTS,
    )
    at_most = ledger.expected_at_most(permitted.unloads, above_points)
    gave = {unload.source: facts.points[unload.source] for unload in permitted.unloads}
    return whole.after_wave(skips, at_most, facts.now, gave)


# --- memory


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


def _memory(
    planning: Planning,
    facts: Facts,
    permission: Permission,
    decision: Decision,
    permitted: Permitted,
    canary: CanaryHold,
    rest: Rest | None,
) -> Memory:
    """The strategy's memory after the turn; while a plan waits for approval, the memory as under a hold."""
    if planning.approval and permission.hold is None:
        held = replace(permission, hold=Reason.APPROVAL_REQUIRED)
        return planning.strategy(facts.snapshot, facts.averages, held, facts.memory).memory
    return memory_after(facts.memory, decision, permitted, canary, rest)


# --- why else nothing moves


def _blocked(
    case: Case, decision: Decision, budget: Budget, permission: Permission, canary: CanaryHold
) -> dict[str, Skip]:
    """Limits that keep pairs from moving anything, whatever else the pairs wait for, by their ends."""
    facts, pairs = case.facts, decision.comparison.pairs
    attempted, changed = facts.attempted_at, facts.changed_at
    resting = {**attempted, **{name: max(at, attempted.get(name, at)) for name, at in changed.items()}}
    skips = (
        block(
            pair,
            facts.snapshot,
            permission.barred,
            budget,
            resting,
            case.guardrails,
            pool_bundles(permission.pools, pair.pool),
        )
        for pair in pairs
    )
    blocked = {skip.what: skip for skip in skips if skip is not None}
    held = canary.blocks(pairs, {unload.source for unload in decision.unloads})
    return blocked | {skip.what: skip for skip in held}


def _counts(decision: Decision, permitted: Permitted) -> dict[str, int]:
    """How many bundles stay, by reason: the strategy's verdicts, and what the limits kept back of its plan."""
    codes, numbers = np.unique(decision.verdicts, return_counts=True)
    counts = Counter({Reason.of(int(code)): int(number) for code, number in zip(codes, numbers, strict=True)})
    del counts[Reason.MOVES]
    counts.update(skip.reason for skip in permitted.skips)
    return {reason.label: number for reason, number in counts.items()}


PASSED_OVER = "lbd run would move nothing"


def _ignored(holds: Iterable[Hold], passed_over: Collection[Reason]) -> Iterator[Skip]:
    """Holds that this turn ignores because it cannot act; a live turn would obey them."""
    for reason, detail in holds:
        if reason in passed_over:
            yield Skip("cluster", reason, f"{PASSED_OVER}: {detail}")
