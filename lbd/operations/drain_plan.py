"""The bundles that a drain or a fill would move now, from one view of the cluster and the guardrails. Read-only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isinf
from typing import TYPE_CHECKING

import numpy as np

from lbd.bundles import WITH_CLUSTER
from lbd.decide.drain import NOT_ITS_RULES, DrainMoves, drain_unloads, plan_drain, plan_fill
from lbd.errors import AdminError, ObserveError, RefusedError, UsageError
from lbd.load.estimate import Carried, as_it_was, carried_by
from lbd.model import Skip, Unload, bundle_namespace
from lbd.operations.cluster_view import Situation, observed
from lbd.operations.dry import Fixed
from lbd.operations.requests import OVERRIDDEN_BARS, OVERRIDDEN_HOLDS
from lbd.permit.eligibility import BROKER_BUNDLE, bar_more, marked, slow_brokers
from lbd.permit.predicted import UNSHOWN_SAMPLES, borne, borne_lately
from lbd.permit.rules import CAPS, barred, current_holds, exempt_reason
from lbd.pulsar.paths import keys_destinations_by_range
from lbd.reason import Reason
from lbd.text import duration_text, first_names, minutes_text
from lbd.turn.assess import with_members

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lbd.act.executor import Limits
    from lbd.model import FloatArray, Snapshot
    from lbd.observe.observer import Observation
    from lbd.permit.budget import Sent
    from lbd.permit.facts import Facts, Hold
    from lbd.permit.limits import Ledger
    from lbd.pulsar.admin import Admin
    from lbd.turn.parts import Parts


AGAIN_SECONDS = 600.0
"""Pause between two moves of a bundle off a drained broker: the brokers know nothing of a drain, and would give the
bundle back at once."""


def moved_off(broker: str, since: float, sent: Iterable[Sent]) -> dict[str, float]:
    """When bundles left a broker, proven by another owner; a request that did not move its bundle is none of these.

    Times are epoch seconds, those before ``since`` are left out.
    """
    return {
        request.bundle: request.at
        for request in sent
        if request.source == broker and request.at >= since and request.owner not in {None, broker}
    }


def resting(
    bundle: str, parts: Parts, drain_pass: Pass, observation: Observation, gone_at: Mapping[str, float]
) -> Skip | None:
    """Why a bundle stays; None where it may move.

    One that the drain moved off before (``gone_at``), and that Pulsar has placed there again, rests for ten minutes,
    unless a person has ordered the drain again since. What another pass tried and could not move does not rest: the
    leader may have been killed in its midst, while this lbd stood by and had begun its pass already. Before a restart
    the rest after other moves protects nobody: a drain keeps it only where it was ordered to.
    """
    alone = exempt_reason(bundle, parts.planning.guardrails, parts.planning.leader_topic)
    if alone is not None:
        return Skip(bundle, alone, WITH_CLUSTER if alone is Reason.NAME_WITH_CLUSTER else "")
    if bundle in drain_pass.attempted:
        return Skip(bundle, Reason.COOL_DOWN, "it was tried in this pass, and is still there")
    attempted_at = parts.past.attempted_at.get(bundle, 0.0)
    ago = observation.snapshot.taken_at - attempted_at
    if attempted_at >= drain_pass.since:
        if bundle not in gone_at:
            return None
        ago = observation.snapshot.taken_at - gone_at[bundle]
        rest = AGAIN_SECONDS - ago
        text = f"it was moved off {minutes_text(ago)} ago; again in {minutes_text(rest)}"
        return Skip(bundle, Reason.COOL_DOWN, text) if rest > 0 else None
    rest = parts.planning.guardrails.cool_down_minutes * 60 - ago
    if rest <= 0 or not drain_pass.respect_rest:
        return None
    text = f"it rests {minutes_text(rest)} more (guardrails.cool_down_minutes; without --respect-rest it would go)"
    return Skip(bundle, Reason.COOL_DOWN, text)


@dataclass(frozen=True)
class Unshown:
    """Brokers whose reports do not show yet what was moved to them or from them, with the seconds until they do.

    One does when it has given as many samples since as it takes to settle, as far as turns have counted these, else
    when that many intervals have passed. ``ordered`` are those of drains and fills, which move many at a time.
    """

    seconds: Mapping[str, float]
    ordered: frozenset[str]

    @classmethod
    def of(cls, facts: Facts) -> Unshown:
        """By what was sent lately."""
        now, samples = facts.now, facts.evidence.samples
        span = UNSHOWN_SAMPLES * facts.sample_interval_seconds
        last: dict[str, float] = {}
        ordered: set[str] = set()
        for request in facts.sent:
            if request.failed or request.at + span <= now:
                continue
            for broker in filter(None, {request.source, request.destination, request.owner}):
                last[broker] = max(request.at, last.get(broker, 0.0))
                ordered |= {broker} if request.order else set()
        seconds = {
            broker: sent_at + span - now
            for broker, sent_at in last.items()
            if not ((sample := samples.get(broker)) and sample.to_settle == 0 and sample.touched_at >= sent_at)
        }
        return cls(seconds, frozenset(ordered))

    def wait_seconds(self, broker: str) -> float:
        """How long a first move from this broker or to it waits: for its report, and those of ordered moves."""
        return max((wait for name, wait in self.seconds.items() if name == broker or name in self.ordered), default=0.0)

    def mask(self, snapshot: Snapshot) -> FloatArray:
        """1 where a broker's report does not show its moves yet, else 0; float64 (B,)."""
        return np.array([broker in self.seconds for broker in snapshot.brokers.ids], dtype=np.float64)


# --- rules of drains and fills: all but a canary, and caps of plans, for which decide/drain.py has its own

NOT_ITS_HOLDS = frozenset({Reason.NO_IMPROVEMENT, Reason.MOVES_UNFINISHED})
"""It is not to bring brokers closer, and what is under way is its own."""

NOT_ITS_BARS = frozenset({Reason.CHANGED_HANDS, Reason.NOT_SERVED, Reason.ISOLATION_POLICY})
"""Bars that do not bind: a bundle moves because of its brokers; the ledger refuses with a detail where others apply."""

NOT_OF_A_DRAIN = frozenset({Reason.COOL_DOWN, Reason.TOPIC_COST, Reason.REPORTED_TWICE, Reason.NO_STATISTICS})
"""All has to go, and the broker itself says what it owns. :func:`resting` says what rests."""


class Judge:
    """One look, and who may move in it.

    A person has ordered it: rests and limits of turns do not hold, unless ``respect_rest``. ``override`` passes also
    what people have ordered to be waited for, and ``passes`` are further holds that do not apply. ``owned``: every
    bundle of a broker that says itself what it owns, whatever reports say or do not say of them; what never moves
    by a turn (``guardrails.topic_costs``) moves only then, or with ``override``.
    """

    def __init__(
        self,
        parts: Parts,
        now: Situation,
        drained: frozenset[str],
        *,
        override: bool,
        respect_rest: bool = False,
        passes: frozenset[Reason] = frozenset(),
        owned: bool = False,
    ) -> None:
        self._now = now
        guardrails = parts.planning.guardrails.without_canary
        self._planning = replace(parts.planning, guardrails=guardrails, moved_rest=False)
        self._case = self._planning.case(now.facts)
        self._passes = NOT_ITS_HOLDS | passes | (OVERRIDDEN_HOLDS if override else frozenset())
        self.drained = drained
        self.snapshot = now.facts.snapshot
        self.index = self.snapshot.brokers.index()
        self.scores = now.facts.scores
        self.evidence = marked(now.facts.evidence, self.snapshot, drained)
        self._passed_limits = frozenset[Reason]() if respect_rest and not override else OVERRIDDEN_BARS
        of_turns = frozenset[Reason]() if owned or override else frozenset({Reason.TOPIC_COST})
        of_drain = NOT_OF_A_DRAIN if owned else frozenset[Reason]()
        self.barred = barred(self._case, ((self._passed_limits | NOT_ITS_BARS) - of_turns) | of_drain)
        dear = self._case.topic_costs
        self.costs = {} if dear is None else dear.by_name(self.snapshot)

    @property
    def by_name(self) -> bool:
        """Whether every broker knows destinations by full names: any of them may come to lead."""
        return not any(keys_destinations_by_range(version) for version in self.snapshot.brokers.versions)

    def hold(self) -> Hold | None:
        """The hold on all moves now."""
        return next((hold for hold in current_holds(self._case) if hold[0] not in self._passes), None)

    def ledger(
        self, snapshot: Snapshot, scores: FloatArray, unloads: Sequence[Unload], ignored: Collection[Reason]
    ) -> Ledger:
        """The judge of each move, to be advanced by those that are let through."""
        policies = replace(self._now.facts.policies, drained=self.drained | slow_brokers(self.evidence, self.snapshot))
        if Reason.NOT_SERVED in self._passes:
            policies = replace(policies, unserved={})
        permission = self.evidence.permission(self.barred)
        planning = replace(self._planning, ignored=self._passed_limits | CAPS | frozenset(ignored))
        return planning.ledger(self._case, snapshot, scores, policies, unloads, permission)


# --- plan


@dataclass(frozen=True)
class Guide:
    """Limits of a rollout on its drains and its fill, so that no bundle moves more than twice.

    ``restarted`` brokers are preferred as destinations, and the only ones for a bundle that has ``moved`` before: from
    there it need not go again. That brokers came or went holds nothing: it is what a rollout does.
    """

    restarted: frozenset[str] = frozenset()
    moved: Mapping[str, int] = field(default_factory=dict)
    passes: frozenset[Reason] = frozenset({Reason.MEMBERSHIP_CHANGED})

    @property
    def bound(self) -> Collection[str]:
        """Bundles that may go to restarted brokers only; of a first broker, to which one may have come back, none."""
        return self.moved.keys() if self.restarted else ()

    @property
    def worn(self) -> dict[str, Reason]:
        """Bundles that may not move in a fill any more."""
        return {bundle: Reason.PING_PONG for bundle, times in self.moved.items() if times >= MOST_MOVES}


MOST_MOVES = 2
"""Moves of one bundle in a rollout: to a broker that is still to be restarted, and once more when that is drained."""

ALONE = Guide(passes=frozenset())
"""A drain or a fill that is part of no rollout."""


class UntoldError(ObserveError):
    """The broker itself, and nobody else, does not tell what it owns or carries."""


class HeldError(RefusedError):
    """It cannot begin now: what holds it ends by itself, or is for people to end."""

    def __init__(self, hold: Hold) -> None:
        super().__init__(hold[0].message(hold[1]))
        self.hold = hold


@dataclass(frozen=True)
class Pass:
    """Inputs of one pass over a broker's bundles. Times are epoch seconds.

    ``since`` is when the drain began, ``ordered_at`` when a person asked for it last, and ``begun_at`` when this pass
    began. ``carried`` is what the broker carried when the drain began, ``scores`` those of all brokers then, in points;
    None in the first look. ``owned`` is what the broker owned by its last answer, less what has gone since; None:
    it is asked now. ``attempted`` are the bundles whose moves this pass has sent and seen end.
    """

    broker: str
    begun_at: float
    since: float
    override: bool = False
    respect_rest: bool = False
    ordered_at: float = 0.0
    carried: Carried | None = None
    scores: Mapping[str, float] | None = None
    guide: Guide = ALONE
    owned: Collection[str] | None = None
    attempted: Collection[str] = ()


@dataclass(frozen=True, eq=False)
class DrainView:
    """Bundles that are to move, those that stay, and the hold on all of them.

    ``before`` and ``after`` are scores in points, now and once all of it has landed. ``owned`` is what the broker owns
    but for its own bundles, ``alone`` what of that is Pulsar's and left to it. ``by_name``: leaders know a destination
    by the bundle's full name. ``last`` are the bundles that move after all others, for no turn would ever move them
    (``guardrails.topic_costs``). ``started_at`` is when the broker had started (epoch seconds), None where it does not
    tell. ``bundles`` is how many the cluster has. ``shown_in_seconds`` is when reports will show the last moves of the
    broker, and those of drains and fills: until then what they say is of before, and a first move waits.
    """

    observation: Observation
    hold: Hold | None
    plan: DrainMoves
    before: Mapping[str, float]
    after: Mapping[str, float]
    carried: Carried
    limits: Limits
    by_name: bool
    owned: tuple[str, ...] = ()
    alone: tuple[Skip, ...] = ()
    last: tuple[str, ...] = ()
    started_at: float | None = None
    shown_in_seconds: float = 0.0

    @property
    def unshown(self) -> Hold | None:
        """The hold on a first move."""
        if not self.shown_in_seconds:
            return None
        return Reason.SETTLING, f"reports show the last moves in {duration_text(self.shown_in_seconds)} at most"

    @property
    def bundles(self) -> int:
        """How many bundles the cluster has."""
        return len(self.observation.snapshot.bundles)


def plan_drain_now(parts: Parts, admin: Admin, drain_pass: Pass) -> DrainView:
    """Where what a broker owns would go. Raises :class:`UsageError` for one that is not there, and
    :class:`UntoldError` where it does not tell what it owns or carries.
    """
    _check_active(admin, drain_pass.broker)
    now = _situation(parts, drain_pass.broker)
    if (listed := drain_pass.owned) is None:
        listed = _owned(admin, drain_pass.broker, now)
    owned = tuple(bundle for bundle in listed if not BROKER_BUNDLE.match(bundle))
    now = now.with_groups(parts, dict.fromkeys(map(bundle_namespace, owned)))
    drained = parts.drained() | {drain_pass.broker}
    held, passes = {"override": drain_pass.override, "respect_rest": drain_pass.respect_rest}, drain_pass.guide.passes
    judge = Judge(parts, now, drained, **held, passes=passes, owned=True)
    carried = drain_pass.carried or carried_by(judge.snapshot, judge.scores, drain_pass.broker, len(owned))
    snapshot, scores = as_it_was(judge.snapshot, judge.scores, drain_pass.broker, carried)
    unshown = Unshown.of(now.facts)
    scores = _worst_scores(scores, snapshot, drain_pass, now, unshown)
    gone_at = moved_off(drain_pass.broker, drain_pass.ordered_at, now.facts.sent)
    skips = (resting(bundle, parts, drain_pass, now.observation, gone_at) for bundle in owned)
    staying = {skip.what: skip for skip in skips if skip is not None}
    movable = [bundle for bundle in owned if bundle not in staying]
    unloads = drain_unloads(movable, drain_pass.broker, snapshot, now.facts.averages, carried)
    ledger = judge.ledger(snapshot, scores, unloads, NOT_ITS_RULES)
    others = [broker for broker in judge.index if broker != drain_pass.broker and broker not in judge.drained]
    before = {broker: float(scores[judge.index[broker]]) for broker in others}
    placed = plan_drain(unloads, others, ledger, drain_pass.guide.restarted, drain_pass.guide.bound)
    by_cost = sorted(placed.unloads, key=lambda unload: judge.costs.get(unload.bundle, 0.0))
    plan = replace(placed, unloads=tuple(by_cost))
    alone = tuple(skip for skip in staying.values() if skip.reason is Reason.SYSTEM_NAMESPACE)
    stay = tuple(skip for skip in staying.values() if skip.reason is not Reason.SYSTEM_NAMESPACE)
    started = float(judge.snapshot.brokers.started_at[judge.index[drain_pass.broker]])
    return DrainView(
        now.observation,
        judge.hold(),
        replace(plan, stay=(*plan.stay, *stay)),
        before,
        {broker: ledger.predicted(broker) for broker in others},
        carried,
        ledger,
        judge.by_name,
        owned,
        alone,
        tuple(unload.bundle for unload in plan.unloads if isinf(judge.costs.get(unload.bundle, 0.0))),
        started if np.isfinite(started) else None,
        unshown.wait_seconds(drain_pass.broker)
        if drain_pass.carried is None and unloads and not drain_pass.override
        else 0.0,
    )


def preview_drain(parts: Parts, admin: Admin, drain_pass: Pass) -> DrainView:
    """The same for a person who only looks: while the broker must not be asked what it owns, the plan is made of the
    bundles that its load report lists, and has the hold that ends by itself. Raises as :func:`plan_drain_now`.
    """
    fixed = Fixed(parts.observer.observe())
    parts = replace(parts, observer=fixed)
    try:
        return plan_drain_now(parts, admin, drain_pass)
    except HeldError as error:
        snapshot, held = fixed.observation.snapshot, error.hold
    rows = snapshot.rows.of(snapshot.brokers.index()[drain_pass.broker])
    reported = [snapshot.bundles[bundle] for bundle in snapshot.rows.bundle[rows].tolist()]
    look = plan_drain_now(parts, admin, replace(drain_pass, owned=reported))
    return replace(look, hold=look.hold or held)


def plan_fill_now(
    parts: Parts,
    admin: Admin,
    broker: str,
    *,
    override: bool = False,
    respect_rest: bool = False,
    guide: Guide = ALONE,
) -> DrainView:
    """The bundles that a broker would be given.

    Raises as :func:`plan_drain_now`, and :class:`RefusedError` for a drained one.
    """
    if broker in parts.drained():
        raise RefusedError(f"{broker} is being drained; lbd drain {broker} --release ends that")
    _check_active(admin, broker)
    now = _situation(parts, broker)
    now = now.with_groups(parts, _movable(now.facts.snapshot.namespaces.names))
    judge = Judge(parts, now, parts.drained(), override=override, respect_rest=respect_rest, passes=guide.passes)
    judge.barred = bar_more(judge.barred, judge.snapshot, guide.worn)
    unshown = Unshown.of(now.facts)
    scores = judge.scores + _borne_lately(judge.scores, judge.snapshot, now, unshown)
    there = [row for row, code in enumerate(judge.evidence.paired.tolist()) if code == 0]
    before = {judge.snapshot.brokers.ids[row]: float(scores[row]) for row in there}
    unloads = _candidates(judge, now, there)
    ledger = judge.ledger(judge.snapshot, scores, unloads, frozenset())
    before.setdefault(broker, float(scores[judge.index[broker]]))
    plan = plan_fill(unloads, broker, before, ledger)
    expected = ledger.expected(plan.unloads)
    return DrainView(
        now.observation,
        judge.hold(),
        plan,
        before,
        {name: expected.get(name, score) for name, score in before.items()},
        carried_by(judge.snapshot, judge.scores, broker, 0),
        ledger,
        judge.by_name,
        shown_in_seconds=0.0 if override else unshown.wait_seconds(broker),
    )


def hold_of_fill(parts: Parts, broker: str, *, override: bool, guide: Guide = ALONE) -> Hold | None:
    """The hold on a fill that goes on as it was planned. Raises as :func:`plan_drain_now`."""
    now = _situation(parts, broker)
    return Judge(parts, now, parts.drained(), override=override, passes=guide.passes).hold()


def _movable(namespaces: Sequence[str]) -> tuple[str, ...]:
    """Without those in which brokers keep a bundle of their own: they have no policies to ask for."""
    return tuple(name for name in namespaces if not BROKER_BUNDLE.match(f"{name}/0x"))


CALM_SECONDS = 30.0
"""After a broker has left, its clients have the bundles placed anew, on any of the others."""


def _owned(admin: Admin, broker: str, now: Situation) -> Collection[str]:
    """All that the broker says it owns. Raises :class:`UntoldError` where it does not, and :class:`HeldError` while it
    must not be asked.

    Under the modular manager a broker that is asked while it takes over two bundles or more can hang for good
    (docs/decisions/0018-landings-are-proven.md). So this is asked once before a drain and once after it, and not while
    bundles are placed anew because a broker has left or this one has just joined, by this machine's clock.
    """
    members = now.facts.members
    left_at = max(members.departures, default=0.0)
    joined_at = members.since if broker in members.joined else 0.0
    calm_in = max(left_at, joined_at) + CALM_SECONDS - now.facts.now
    if not admin.transfers and calm_in > 0:
        who = f"{broker} has joined" if joined_at > left_at else f"{first_names(members.departed) or 'a broker'} left"
        question = f"{broker} is asked what it owns in {duration_text(calm_in)}"
        why = f"{who}; {question}, as it can hang by that while it takes bundles over"
        raise HeldError((Reason.MEMBERSHIP_CHANGED, why))
    try:
        return admin.owned(broker)
    except AdminError as error:
        raise UntoldError(f"{broker}: what it owns is not known: {error}") from error


def bundles_to_drain(parts: Parts, admin: Admin, broker: str) -> tuple[str, ...]:
    """Bundles that a broker says it owns, without those that a drain leaves there. Raises as :func:`plan_drain_now`,
    and :class:`HeldError` while the broker must not be asked.
    """
    guardrails, topic = parts.planning.guardrails, parts.planning.leader_topic
    return tuple(
        bundle
        for bundle in _owned(admin, broker, _situation(parts, broker))
        if not BROKER_BUNDLE.match(bundle) and exempt_reason(bundle, guardrails, topic) is not Reason.SYSTEM_NAMESPACE
    )


def _check_active(admin: Admin, broker: str) -> None:
    active = admin.active_brokers()
    if broker not in active:
        raise UsageError(f"{broker!r} is no active broker; wanted one of {', '.join(sorted(active))}")


def _situation(parts: Parts, broker: str) -> Situation:
    """A round in which drained brokers count as any other: whether enough is known of a cluster has to do with all.

    That brokers came or went is kept, where no turn has seen it yet.
    """
    now = observed(replace(parts, drained=frozenset))
    parts.store.save(with_members(parts.store.load(), now.facts.members))
    if broker not in now.facts.snapshot.brokers.ids:
        why = now.observation.missing.get(broker, "it gives no load report")
        raise UntoldError(f"{broker}: what it carries is not known: {why}")
    return now


def _borne_lately(scores: FloatArray, snapshot: Snapshot, now: Situation, unshown: Unshown) -> FloatArray:
    """Points of moves that reports do not show yet, float64 (B,)."""
    facts = now.facts
    return borne_lately(facts.sent, snapshot, scores, facts.sample_interval_seconds) * unshown.mask(snapshot)


def _worst_scores(
    scores: FloatArray, snapshot: Snapshot, drain_pass: Pass, now: Situation, unshown: Unshown
) -> FloatArray:
    """Scores as reported or as predicted from those of the beginning, whichever is higher: reports lag behind."""
    if drain_pass.scores is None:
        return scores + _borne_lately(scores, snapshot, now, unshown)
    initial = np.array([drain_pass.scores.get(broker, -np.inf) for broker in snapshot.brokers.ids])
    return np.fmax(scores, initial + borne(now.facts.sent, drain_pass.begun_at, snapshot, scores))


def _candidates(judge: Judge, now: Situation, there: Sequence[int]) -> list[Unload]:
    """Each bundle that may move, from the trusted broker that reports it, to nobody yet."""
    rows, short = judge.snapshot.rows, now.facts.averages.short.tolist()
    candidates = []
    for row in there:
        for bundle in rows.bundle[rows.of(row)].tolist():
            if judge.barred[bundle] == 0 and now.facts.averages.samples[bundle] > 0:
                ends = judge.snapshot.bundles[bundle], judge.snapshot.brokers.ids[row], None
                inwards, outwards, bytes_in, bytes_out = short[bundle]
                candidates.append(Unload(*ends, inwards + outwards, bytes_in + bytes_out))
    return candidates
