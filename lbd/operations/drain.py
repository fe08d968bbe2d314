"""Drains and fills of a live lbd: one at a time beside the turns, in parts, with a view of the cluster before each.

A drain is an order on disk (``store/drains.py``): the next process resumes it. Its moves are in the journal, so nothing
is moved twice. While one runs, nothing is balanced.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from lbd.act.executor import Execution, Pace
from lbd.act.ownership import Ownership
from lbd.act.unload import judged
from lbd.api.shapes import DrainPlan, Held, Predicted, WouldMove
from lbd.decide.drain import EXPIRES_SECONDS, UNLOAD_SPACING_SECONDS, eta_seconds, most_per_hour
from lbd.errors import AdminError, LbdError, RefusedError
from lbd.load.estimate import Carried
from lbd.model import Outcome, Result, Skip
from lbd.operations.drain_plan import (
    AGAIN_SECONDS,
    ALONE,
    DrainView,
    Guide,
    HeldError,
    Pass,
    UntoldError,
    hold_of_fill,
    plan_drain_now,
    plan_fill_now,
    preview_drain,
)
from lbd.operations.dry import order_parts, taking_over
from lbd.operations.parts import preview_observer
from lbd.operations.requests import OVERRIDDEN_HOLDS
from lbd.operations.split import CLOCK
from lbd.permit.evidence import same
from lbd.permit.served import reconnecting, with_clients
from lbd.reason import Reason
from lbd.store.control import FAILED, REFUSED, Control, DrainRequest, FillRequest, RequestResult
from lbd.store.drains import Drain, Drains, Fill, RemainingBundle, Work, Works
from lbd.text import HOUR_SECONDS, counted, duration_text, minutes_text
from lbd.turn.turn import TURN_FAILED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from lbd.act.executor import Executor, Limits
    from lbd.act.unload import Unloader
    from lbd.config import Settings
    from lbd.model import Unload
    from lbd.observe.observer import Observer
    from lbd.permit.budget import Sent
    from lbd.permit.facts import Hold
    from lbd.pulsar.admin import Admin
    from lbd.store.orders import Orders
    from lbd.turn.parts import Parts, TurnResult


def drain_result(work: Work, *, missed: int, system: int) -> tuple[int, str]:
    """The exit code (4 where bundles stay, 5 where ``missed`` moves failed) and the sentence.

    ``system`` are bundles of Pulsar's own namespace on a drained broker, which count for neither.
    """
    code = FAILED if missed else REFUSED if work.left or work.owned else 0
    took = f"in {duration_text((work.ended_at or 0.0) - work.begun_at)}"
    words = _drained(work, took) if work.kind == "drain" else _filled(work, took)
    if system:
        words += f"; {counted(system, 'bundle')} of pulsar/system left there (guardrails.move_system_namespace)"
    return code, f"{words}{_remaining_reason(work)}."


def _drained(work: Work, took: str) -> str:
    gone = work.landed + work.elsewhere
    other = f", {work.elsewhere} of them to another broker than planned" if work.elsewhere else ""
    if work.owned is None:
        return f"The drain of {work.broker} is over: {counted(gone, 'bundle')} gone {took}{other}"
    if not work.owned:
        moved = f": {counted(gone, 'bundle')} gone {took}{other}" if work.tried else ", and needed no move"
        return f"{work.broker} owns nothing{moved}"
    return f"{work.broker} still owns {counted(work.owned, 'bundle')}: {gone} gone {took}{other}"


def _filled(work: Work, took: str) -> str:
    if not work.total:
        return f"{work.broker}: no broker above the mean has a bundle that would bring it closer to it"
    return f"{work.broker} was given {work.landed} of {counted(work.total, 'bundle')} {took}"


def _remaining_reason(work: Work) -> str:
    """Bundles that stay, counted by reason, and the first of them in full."""
    if not work.left or not (work.tried or work.kind == "drain"):
        return ""
    first, numbers = work.left[0], _numbers(bundle.reason for bundle in work.left)
    return f"; left: {numbers}; the first: {first.bundle}{first.detail and f': {first.detail}'}"


def _numbers(reasons: Iterable[str]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in Counter(reasons).most_common())


# --- progress of one drain or fill

SECONDS_EACH = 0.5
"""An unload with its checks and its proof, where none was measured yet."""

MEASURED_FROM = 10
"""Moves after which their own pace tells more than an estimate."""

AWAY = frozenset({Reason.NOT_LEADER, Reason.STATE_LOST})
"""Holds under which another lbd goes on with an order, or nobody can: nothing is changed of it here."""

TO_WAIT_FOR = AWAY | {Reason.PAUSED, Reason.QUIET_HOURS, Reason.NOT_SERVED, Reason.IN_BROKER_SHEDDING}
"""Holds to wait for: a move that was not sent because of one is due again afterwards."""

LOOKED_AT_BY_ITSELF = frozenset({Reason.NO_IMPROVEMENT, Reason.DESTINATION_OVERLOADED})
"""Reasons that end the plans of turns, and no drain or fill: it looks at brokers for itself, before each part."""

REREAD = "not asked for: the settings were read again"
REPLACED = "not asked for: another lbd may have led since it was planned"
"""A move that was not sent because of these is due again, in a new plan."""

TIMES = 2
"""Moves of one bundle in a drain, each of two attempts, where a client's lookup gives it back to its broker."""

BARREN_PARTS = 3
"""Number of parts in a row without an ended move after which a job ends for now."""


@dataclass(frozen=True)
class Pacing:
    """How fast a job goes: unloads in flight, and whether leaders know destinations by the bundles' full names."""

    at_once: int
    by_name: bool


def estimate(bundles: Collection[str], pacing: Pacing) -> float:
    """How long the moves of these bundles will take, in seconds."""
    each = SECONDS_EACH + UNLOAD_SPACING_SECONDS
    return eta_seconds(bundles, pacing.at_once, each, by_name=pacing.by_name)


class Job:
    """One drain or fill at work. Thread-safe: moves end in threads of their own.

    ``scores`` are those of the beginning, in points, None before the first look; ``carried`` is what the broker carried
    when its drain began, and ``owned`` what it owned by its last answer. Before ``look_again_at`` (epoch seconds)
    there is nothing to look for. Since ``silent_since`` the broker does not report what it owns or carries.
    """

    def __init__(
        self,
        kind: Literal["drain", "fill"],
        broker: str,
        request: str,
        begun_at: float,
        order: Drain | Fill,
    ) -> None:
        self.kind, self.broker, self.request, self.begun_at = kind, broker, request, begun_at
        self.order = order
        self.carried: Carried | None = None
        self.scores: Mapping[str, float] | None = None
        self.owned: Collection[str] | None = None
        self.look_again_at = 0.0
        self.silent_since: float | None = None
        self._lock = threading.Lock()
        self._handed: set[str] = set()
        self._times = Counter[str]()
        self._outcomes: dict[str, Outcome] = {}
        self._skipped: dict[str, Skip] = {}
        self._to_move: list[str] = []
        self._pacing: Pacing | None = None
        self._barren = self._settled_before = 0
        self._work = Work(kind=kind, broker=broker, request=request, begun_at=begun_at)

    def looked(self, look: DrainView, pacing: Pacing) -> None:
        """Take a look that shows what is left to move, and that nothing holds it."""
        self.scores = self.scores or look.before
        self._to_move, self._pacing = [unload.bundle for unload in look.plan.unloads], pacing
        self._barren = 0 if self.settled > self._settled_before or not self._handed else self._barren + 1
        self._settled_before = self.settled
        with self._lock:
            total = len(self._outcomes.keys() | self._to_move)
        self._work = msgspec.structs.replace(self._work, total=total, held="")

    @property
    def reason(self) -> str:
        """Why its moves are made, for the journal."""
        order = self.order
        passed = f", overriding limits: {order.override}" if order.override is not None else ""
        return f"{self.kind} of {self.broker}, by hand, {order.by}{order.reason and f': {order.reason}'}{passed}"

    @property
    def overrides(self) -> bool:
        """Whether its order passes limits."""
        return self.order.override is not None

    @property
    def barren(self) -> bool:
        """Whether it comes to nothing, part after part."""
        return self._barren >= BARREN_PARTS

    def waits(self, why: str, until: float) -> None:
        """Note the reason for which it waits, and when to look at that again (epoch seconds)."""
        self._work, self.look_again_at = msgspec.structs.replace(self._work, held=why), until

    @property
    def held(self) -> str:
        """The reason for which it waits; empty while there is none."""
        return self._work.held

    @property
    def doubtful(self) -> list[Outcome]:
        """Moves after which the owner of the bundle is unknown."""
        with self._lock:
            return [outcome for outcome in self._outcomes.values() if outcome.owner is None]

    def amend(self, outcomes: Iterable[Outcome]) -> None:
        """Take later outcomes of such moves, for which the brokers were asked once more."""
        with self._lock:
            self._outcomes.update((outcome.unload.bundle, outcome) for outcome in outcomes)

    def hand(self, bundles: Iterable[str]) -> None:
        """Note the bundles whose moves begin next."""
        with self._lock:
            self._handed.update(bundles)

    def ended(self, end: Outcome | Skip) -> None:
        """Take the end of a move, if it is one of these; a request that was not sent moved nothing."""
        with self._lock:
            if isinstance(end, Skip):
                self._skipped[end.what] = end
                if end.reason in TO_WAIT_FOR or end.detail.startswith((REREAD, REPLACED, TURN_FAILED)):
                    self._handed.discard(end.what)
            elif end.unload.bundle in self._handed:
                self._outcomes[end.unload.bundle] = end
                self._times[end.unload.bundle] += not end.amended

    @property
    def handed(self) -> frozenset[str]:
        """The bundles of all moves that were begun, but for those that are to be begun again."""
        with self._lock:
            return frozenset(self._handed)

    def not_sent(self, bundles: Iterable[str]) -> list[Skip]:
        """Why moves of these bundles were not sent, those that were not."""
        with self._lock:
            unsent = [bundle for bundle in bundles if bundle not in self._outcomes]
            return [self._skipped.get(bundle, Skip(bundle, Reason.ROUND_STOPPED)) for bundle in sorted(unsent)]

    def without_gone(self, bundles: Iterable[str]) -> list[str]:
        """Those of the bundles that are not proven to be gone, or to have another owner, whoever moved them."""
        with self._lock:
            gone = self._taken() | {
                bundle
                for bundle, outcome in self._outcomes.items()
                if outcome.result is Result.GONE or outcome.owner not in {None, outcome.unload.source}
            }
        return [bundle for bundle in bundles if bundle not in gone]

    @property
    def settled(self) -> int:
        """Number of moves that have ended, and of bundles that had left before."""
        with self._lock:
            return self._times.total() + len(self._taken() - self._times.keys())

    def _taken(self) -> set[str]:
        """Bundles that had another owner before a request for them was sent."""
        return {bundle for bundle, skip in self._skipped.items() if skip.reason is Reason.OWNER_CHANGED}

    @property
    def attempted(self) -> frozenset[str]:
        """Bundles whose moves were sent and have ended, but for those that came back and may be tried once more."""
        with self._lock:
            return frozenset(
                bundle
                for bundle, end in self._outcomes.items()
                if end.result is not Result.FAILED or self._times[bundle] >= TIMES
            )

    @property
    def tried(self) -> int:
        """Number of bundles whose moves were sent and have ended."""
        with self._lock:
            return len(self._outcomes)

    def work(self, now: float) -> Work:
        """How far it has come."""
        with self._lock:
            outcomes = list(self._outcomes.values())
        landed = sum(outcome.result is Result.LANDED for outcome in outcomes)
        elsewhere = sum(outcome.result is Result.ELSEWHERE for outcome in outcomes)
        gone = sum(outcome.result is Result.GONE for outcome in outcomes)
        counts = {"landed": landed, "elsewhere": elsewhere, "failed": len(outcomes) - landed - elsewhere - gone}
        return msgspec.structs.replace(
            self._work, **counts, ordered_at=self.order.ordered_at, eta_seconds=self._eta(now)
        )

    def _eta(self, now: float) -> float | None:
        if self._pacing is None:
            return None
        to_move, tried = [bundle for bundle in self._to_move if bundle not in self._outcomes], self.tried
        measured = (now - self.begun_at) / tried * len(to_move) if tried >= MEASURED_FROM else None
        return round(estimate(to_move, self._pacing) if measured is None else measured, 1)

    def end(
        self, now: float, owned: Collection[str] | None, stay: Iterable[Skip], alone: Collection[Skip] = ()
    ) -> Work:
        """The final figures, with exit code and sentence.

        ``owned`` is what a drained broker owns now, None where it was not asked; ``stay`` what was not even tried, and
        why; ``alone`` are bundles of Pulsar's own, which lbd leaves where they are.
        """
        with self._lock:
            missed = [outcome for outcome in self._outcomes.values() if self._missed(outcome, owned or ())]
        remaining = [RemainingBundle(outcome.unload.bundle, outcome.result.value, outcome.detail) for outcome in missed]
        tried, system = {bundle.bundle for bundle in remaining}, {skip.what for skip in alone}
        untried = [skip for skip in stay if skip.what not in tried]
        remaining += [RemainingBundle(skip.what, skip.reason.label, skip.detail) for skip in untried]
        owns = None if owned is None else sum(bundle not in system for bundle in owned)
        final = msgspec.structs.replace(
            self.work(now), ended_at=now, left=remaining, held="", eta_seconds=None, owned=owns
        )
        code, sentence = drain_result(final, missed=len(missed), system=len(system))
        return msgspec.structs.replace(final, exit_code=code, sentence=sentence)

    def _missed(self, outcome: Outcome, owned: Collection[str]) -> bool:
        """A drained broker that is rid of a bundle is rid of it, whichever healthy broker has it."""
        if outcome.result is Result.GONE:
            return False
        if self.kind == "fill":
            return outcome.result is not Result.LANDED
        return outcome.owner is None or outcome.unload.bundle in owned


# --- acceptance: whether a requested drain or fill may start, and what is written down of it


@dataclass(frozen=True)
class Tools:
    """Settings and parts that a drain works with now: settings may be read again while it lasts."""

    settings: Settings
    parts: Parts
    admin: Admin
    unloader: Unloader

    def paced(self, look: DrainView) -> Pacing:
        """How fast it may go on this cluster."""
        return Pacing(self.settings.drain.max_unloads_at_once, look.by_name)


def first_pass(
    broker: str,
    before: Drain | None,
    now: float,
    override: str | None = None,
    *,
    respect_rest: bool = False,
    guide: Guide = ALONE,
) -> Pass:
    """The pass of the first look at a broker; a drain in force goes on, with what the broker carried when it began."""
    return Pass(
        broker,
        now,
        before.since if before is not None and before.since > 0 else now,
        override=override is not None,
        respect_rest=respect_rest,
        ordered_at=now,
        carried=carried_then(before),
        guide=guide,
    )


def carried_then(drain: Drain | None) -> Carried | None:
    """The load of a broker when its drain began; None where its report did not show it yet."""
    return drain.carried if drain is not None and drain.carried.bundles else None


def order_drain(
    request: DrainRequest, before: Drain | None, now: float, tools: Tools, guide: Guide
) -> tuple[Drain, RequestResult]:
    """The order to be written, and the answer. Raises :class:`LbdError` for what is refused."""
    rest = request.respect_rest
    first = first_pass(request.broker, before, now, request.override, respect_rest=rest, guide=guide)
    look = plan_drain_now(tools.parts, tools.admin, first)
    if look.hold is not None:
        raise HeldError(look.hold)
    refusal = cannot_spare(request.broker, look) if look.unshown is None or not look.before else ""
    if refusal and request.override is None and before is None:
        raise RefusedError(f"{refusal}; --override REASON moves the rest")
    drain = Drain(
        request.broker,
        first.since,
        _ends(request, before, now),
        request.by,
        request.reason or (before.reason if before is not None else ""),
        request.override,
        look.started_at,
        look.carried if look.unshown is None else NOT_SHOWN,
        request.respect_rest,
        now,
        request.rollout,
    )
    verb = "has begun" if first.since == now else "goes on"
    return drain, RequestResult(0, f"The drain of {request.broker} {verb}: {_planned(look, tools, 'stay')}.")


NOT_SHOWN = Carried(0.0, 0.0, 0.0, 0)


def _ends(request: DrainRequest, before: Drain | None, now: float) -> float | None:
    """One that goes on keeps its end, unless a new one is asked for."""
    if request.seconds is None and before is not None and before.since > 0:
        return before.until
    return now + (EXPIRES_SECONDS if request.seconds is None else request.seconds)


def _planned(look: DrainView, tools: Tools, stay: str) -> str:
    """Summary of a job when it begins; ``stay`` says what becomes of bundles that cannot move."""
    bundles = [unload.bundle for unload in look.plan.unloads]
    words = f"{counted(len(bundles), 'bundle')}, about {duration_text(estimate(bundles, tools.paced(look)))}"
    if look.plan.stay:
        words += f"; {len(look.plan.stay)} {stay}: {_numbers(skip.reason.label for skip in look.plan.stay)}"
    if look.last:
        words += f"; {counted(len(look.last), 'bundle')} last that turns never move (guardrails.topic_costs)"
    return f"first it waits: {look.unshown[1]}; by the reports of now {words}" if look.unshown is not None else words


def cannot_spare(broker: str, look: DrainView) -> str:
    """Why the others cannot do without a broker; empty where they can."""
    beyond = look.plan.beyond_capacity
    if not look.before:
        return f"the cluster cannot do without {broker}: there is no other broker that is not drained"
    if not beyond:
        return ""
    number = counted(len(beyond), "bundle")
    text = f"no other broker can bear {number}; the first: {beyond[0].what}: {beyond[0].detail}"
    return f"the cluster cannot do without {broker}: {text}"


def order_fill(request: FillRequest, now: float, tools: Tools, guide: Guide) -> tuple[Fill, DrainView, RequestResult]:
    """The order to be written, what is to move, and the answer. Raises :class:`LbdError` for what is refused."""
    passes = {"override": request.override is not None, "respect_rest": request.respect_rest}
    look = plan_fill_now(tools.parts, tools.admin, request.broker, **passes, guide=guide)
    if look.hold is not None:
        raise HeldError(look.hold)
    fill = Fill(
        request.id,
        request.broker,
        now + EXPIRES_SECONDS,
        request.by,
        now,
        request.override,
        request.respect_rest,
        request.rollout,
        request.reason,
    )
    words = _planned(look, tools, "that would help may not move")
    return fill, look, RequestResult(0, f"The filling of {request.broker} has begun: {words}.")


# --- batching: what is sent next, and how fast

PART = 60
"""Moves after which the cluster is looked at anew: a quarter of a minute or so."""


def within(
    plan: tuple[Unload, ...], look: DrainView, job: Job, tools: Tools, now: float
) -> tuple[tuple[Unload, ...], tuple[Skip, ...]]:
    """The next part of a plan, and what the hour has no room for. ``now`` is epoch seconds."""
    if job.overrides:
        return plan[:PART], ()
    room, beyond = within_hour(job.kind, job.broker, look, tools.parts.past.sent, now, plan)
    return room[:PART], beyond


def within_hour(
    kind: str, broker: str, look: DrainView, sent: Iterable[Sent], now: float, plan: tuple[Unload, ...]
) -> tuple[tuple[Unload, ...], tuple[Skip, ...]]:
    """The part of a plan within the hour's limit of one drain or fill, and the rest. Other moves do not count."""
    hour = HourOfOrder(look.limits, kind, broker, most_per_hour(look.bundles))
    room = hour.room(sent, now)
    return plan[:room], tuple(hour.refusal(unload, room) for unload in plan[room:])


@dataclass(frozen=True)
class HourOfOrder:
    """The limits of a plan, and the hour's limit of one drain or fill, ``most``: asked at each sending, too."""

    limits: Limits
    kind: str
    broker: str
    most: int

    def room(self, sent: Iterable[Sent], now: float) -> int:
        """How many requests may still be sent; retries count."""
        own = (request for request in sent if request.order == self.kind)
        ends = ((request.at, request.source if self.kind == "drain" else request.destination) for request in own)
        return max(self.most - sum(at > now - HOUR_SECONDS and end == self.broker for at, end in ends), 0)

    def refusal(self, unload: Unload, room: int) -> Skip:
        """Why an unload is beyond the hour."""
        reason = Reason.SOURCE_UNLOADS if self.kind == "drain" else Reason.DESTINATION_UNLOADS
        text = f"{self.most - room} of {self.most} used within the hour; --override REASON passes this"
        return Skip(unload.bundle, reason, text)

    def sending_refusal(self, unload: Unload, sent: Collection[Sent], now: float) -> Skip | None:
        """As :meth:`~lbd.permit.limits.Ledger.sending_refusal`, and within the hour."""
        room = self.room(sent, now)
        return self.limits.sending_refusal(unload, sent, now) if room else self.refusal(unload, room)

    def take_sending(self, unload: Unload) -> None:
        """Count a request; those of the hour are in the journal."""
        self.limits.take_sending(unload)

    def may_stay(self, unload: Unload, owner: str) -> bool:
        """Whether a bundle may stay where it landed instead."""
        return self.limits.may_stay(unload, owner)

    def take_landing(self, unload: Unload, owner: str) -> None:
        """Count where it landed instead."""
        self.limits.take_landing(unload, owner)


def drain_orders(job: Job, pacing: Pacing, tools: Tools, held: Callable[[], Hold | None]) -> Execution:
    """How the executor is to work a part off. ``held`` is what people have ordered, but for what a reason passes."""
    from_each = pacing.at_once if job.kind == "drain" else 1
    pace = Pace(UNLOAD_SPACING_SECONDS, pacing.at_once, from_each, pacing.by_name)
    passes = (OVERRIDDEN_HOLDS if job.overrides else frozenset()) | LOOKED_AT_BY_ITSELF
    return Execution(tools.unloader, pace, held, passes, dict if job.overrides else tools.parts.unserved)


# --- the end of a drain by itself: it expires, or its broker restarts, which is what it was drained for


def _restarted(drain: Drain, record: TurnResult) -> bool:
    """Whether the broker's report tells of another start; 2.11 tells of none."""
    if record.observation is None or drain.started_at is None:
        return False
    brokers = record.observation.snapshot.brokers
    row = brokers.index().get(drain.broker)
    if row is None:
        return False
    started = float(brokers.started_at[row])
    return started == started and not same(started, drain.started_at)  # noqa: PLR0124 - NaN where it is unknown


# --- unresponsive: a broker without a report, bundles without a known owner

LEFT_OFF_SECONDS = 60.0
"""How long a broker may keep what it owns or carries to itself: a long pause of its JVM, and no session's end."""

ASKED_EVERY_SECONDS = 5.0


def abandoned(job: Job, error: LbdError, now: float) -> Skip | None:
    """Why the drain is left off; None while it waits. ``now`` is epoch seconds."""
    job.silent_since = since = min(job.silent_since or now, now)
    patience = since + LEFT_OFF_SECONDS - now
    if patience > 0:
        job.waits(
            f"{error}; left off in {minutes_text(patience)} if that stays so", now + min(ASKED_EVERY_SECONDS, patience)
        )
        return None
    stands = "the drain stands, and is gone on with once it answers, or ends as it would"
    return Skip(job.broker, Reason.REPORT_MISSING, f"{error}; {stands}")


def looked_for_again(doubtful: Iterable[Outcome], admin: Admin) -> list[Outcome]:
    """The same moves, by who owns their bundles now."""
    ownership = Ownership(admin, CLOCK)
    return [_present_outcome(outcome, ownership) for outcome in doubtful]


def _present_outcome(outcome: Outcome, ownership: Ownership) -> Outcome:
    try:
        owner = ownership.owner(outcome.unload.bundle)
    except AdminError as error:
        return replace(outcome, detail=f"{outcome.detail}; at the end: {error}")
    detail = f"{outcome.detail}; at the end: {owner or 'nobody'} owns it"
    return replace(outcome, result=judged(outcome.unload, owner), owner=owner, detail=detail)


# --- drains and fills of a live lbd

STEP_SECONDS = 0.2

LOOK_AGAIN_SECONDS = 5.0
"""How long is waited where nothing may move now, or the cluster cannot be seen."""

ENDED = "the order was ended before it had come to its end"
NOT_THERE = "it is no active broker any more"
_GONE = f"{NOT_THERE}; the drain stands until it is started again or released, or expires"


class Draining:
    """The drained brokers, and the one job at work. ``executor`` is that of the turns: a move is a move.

    ``held`` is asked before each request: the pause and the quiet hours. ``on_work`` hears how far a job has come. All
    methods but :meth:`ended` are called by one thread at a time.
    """

    def __init__(
        self, orders: Orders, executor: Executor, now: Callable[[], float], held: Callable[[], Hold | None]
    ) -> None:
        self._drains, self._executor, self._now, self._held = Drains(orders.state_dir, orders), executor, now, held
        self._orders, self._control = orders, Control(orders.state_dir, orders)
        self._job: Job | None = None
        self._fill: DrainView | None = None
        self._requested: dict[str, str] = {}
        self._looked: dict[str, float] = {}
        self._trouble: dict[str, str] = {}
        self._works = Works()
        self._is_read, self._is_unwritten = False, False
        self.on_work: Callable[[Work], None] = lambda _: None
        self.guide: Callable[[], Guide | None] = lambda: None

    def in_force(self) -> dict[str, Drain]:
        """The drains in force, by broker."""
        return self._drains.in_force(self._now())

    def drained(self) -> frozenset[str]:
        """The brokers that nothing may go to."""
        return frozenset(self.in_force())

    def release(self, broker: str) -> None:
        """End a drain."""
        self._drains.release(broker)

    def _guide(self, rollout: str) -> Guide:
        return (self.guide() if rollout else None) or ALONE

    def hold(self) -> Hold | None:
        """The hold on moves of turns while a job is at work."""
        job = self._job
        if job is None:
            return None
        doing = "drained" if job.kind == "drain" else "filled"
        waits = f"; it waits: {job.held}" if job.held else ""
        return Reason.MOVES_UNFINISHED, f"{job.broker} is being {doing}, {job.tried} bundles so far{waits}"

    @property
    def busy(self) -> bool:
        """Whether a job is at work, or was asked for and is still to begin."""
        return self._job is not None or bool(self._requested)

    @property
    def works(self) -> Works:
        """How far each has come."""
        if not self._is_read:
            self._works, self._is_read = self._drains.works(), True
        return self._works

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why drains cannot be read, written or gone on with, one text each."""
        return tuple(filter(None, self._trouble.values()))

    def ended(self, end: Outcome | Skip) -> None:
        """A move has ended, in a thread of its own."""
        job = self._job
        if job is not None:
            job.ended(end)

    def begin(self, request: DrainRequest | FillRequest, tools: Tools) -> RequestResult:
        """Begin what a person asked for. Raises :class:`LbdError` for what is refused; then nothing is changed."""
        job = self._job
        goes_on = isinstance(request, DrainRequest) and job is not None and job.kind == "drain"
        if job is not None and not (goes_on and job.broker == request.broker):
            raise RefusedError(f"a {job.kind} of {job.broker} is at work; lbd status tells how far it is")
        if job is None and (due := self._fill_due()) is not None:  # of an lbd that ended: the next step goes on with it
            words = f"a fill of {due.broker} is in force; lbd drain {due.broker} --release ends it"
            raise HeldError((Reason.MOVES_UNFINISHED, words))
        passes = self._control.standing(self._now()) or ""
        if isinstance(request, FillRequest):
            fill, self._fill, answer = order_fill(request, self._now(), tools, self._guide(request.rollout))
            fill = msgspec.structs.replace(fill, passes=passes)
            self._drains.begin_fill(fill)
            self._job = Job("fill", fill.broker, fill.request, fill.ordered_at, fill)
            if self._fill.unshown is None:
                self._job.looked(self._fill, tools.paced(self._fill))
        else:
            before, guide = self.in_force().get(request.broker), self._guide(request.rollout)
            drain, answer = order_drain(request, before, self._now(), tools, guide)
            drain = msgspec.structs.replace(drain, passes=passes)
            self._drains.begin(drain, request.id, instead_of=before)
            if job is None:
                self._requested[drain.broker] = request.id
            else:
                job.order = drain
        return answer

    def plan_anew(self) -> None:
        """Plan what of a fill is left anew: settings were read again, or another lbd may have led since."""
        self._fill = None

    def to_the_end(self, go_on: Callable[[], None]) -> None:
        """Where no daemon goes on with it: until what was begun has ended, or whoever waits for it interrupts that."""
        try:
            while self.busy:
                go_on()
                CLOCK.sleep(STEP_SECONDS)
        except KeyboardInterrupt:
            self._executor.halt(Reason.ROUND_STOPPED, "not asked for: it was interrupted")
            if self._job is not None and self._job.kind == "fill":
                self._drains.end_fill(self._job.request)
            raise

    def after(self, record: TurnResult) -> None:
        """After a turn: what has expired, or whose broker was started again, is over."""
        if self._is_away:
            return
        try:
            for drain in self._drains.all():
                if (drain.until is not None and drain.until <= self._now()) or _restarted(drain, record):
                    self._drains.release(drain.broker, only=drain)
            self._trouble["ending"] = ""
        except LbdError as error:
            self._trouble["ending"] = str(error)

    def step(self, tools: Callable[[], Tools]) -> None:
        """Go on with what is at work, or begin what is due: at once, or after one look at the cluster."""
        try:
            self._write()
            if not self._is_idle:
                self._go_on(tools)
            self._trouble["going on"] = ""
        except HeldError as error:
            self._trouble["going on"] = ""
            if self._job is not None:
                self._job.silent_since = None
                self._waits(self._job, error.hold)
        except LbdError as error:
            self._trouble["going on"] = f"a drain or fill cannot go on: {error}"
            if self._job is not None:
                self._cannot(self._job, error)

    @property
    def _is_idle(self) -> bool:
        """Whether there is nothing to do, as in nearly every second."""
        fill = self.works.fill
        return not (self.busy or self._drains.has_orders) and (fill is None or fill.ended_at is not None)

    def _go_on(self, tools: Callable[[], Tools]) -> None:
        self._orders.read()  # raises where they cannot be read: none of them has ended by that
        self._end_fill()
        self._released_before_begun()
        if self._job is not None or self.in_force() or self._fill_due() is not None:
            current = tools()
            self._job = self._job or self._due(current)
            if self._job is not None:
                self._step(self._job, current)

    def _cannot(self, job: Job, error: LbdError) -> None:
        """A broker that goes on telling nothing of itself does not keep the others from being balanced."""
        over = abandoned(job, error, self._now()) if isinstance(error, UntoldError) else None
        if over is not None:
            self._finish(job, None, (over,))
        elif not isinstance(error, UntoldError):
            job.waits(str(error), self._now() + LOOK_AGAIN_SECONDS)

    def _released_before_begun(self) -> None:
        """End drains and fills that nobody works on, for whoever waits for them."""
        now, waiting = self._now(), list[Job]()
        for broker in self._requested.keys() - self.in_force().keys():
            waiting.append(Job("drain", broker, self._requested.pop(broker), now, Drain(broker, now, None, "")))
        last = self.works.fill
        if self._job is None and last is not None and last.ended_at is None and self._fill_due() is None:
            waiting.append(Job("fill", last.broker, last.request, now, Fill(last.request, last.broker, now, "", now)))
        for job in waiting:
            self._tell(job.end(now, None, (Skip(job.broker, Reason.ROUND_STOPPED, ENDED),)))

    def _end_fill(self) -> None:
        """The order of a fill ends with its work, which is written first: who waits for it looks there."""
        fill = self._drains.fill(self._now())
        if fill is not None and fill != self._fill_due() and not self._is_away:
            self._drains.end_fill(fill.request)

    def _fill_due(self) -> Fill | None:
        """The fill in force, unless its work has ended here."""
        fill, last = self._drains.fill(self._now()), self.works.fill
        has_ended = fill is not None and last is not None and last.ended_at is not None and last.request == fill.request
        return None if has_ended else fill

    def _due(self, tools: Tools) -> Job | None:
        """The next order that was given or was cut short, or the drain that may look again for what has come back."""
        if (fill := self._fill_due()) is not None:
            return Job("fill", fill.broker, fill.request, self._now(), fill)
        for broker, drain in self.in_force().items():
            request_id = self._requested.pop(broker, None)
            last = self.works.drains.get(broker)
            cut_short = last is None or last.ended_at is None or last.ordered_at != drain.ordered_at
            if request_id is None and not cut_short:
                if not self._may_look_again(broker, last):
                    continue
                self._looked[broker] = self._now()
                if broker not in tools.admin.active_brokers() or tools.admin.silent_since(broker) is not None:
                    continue
            request = last.request if last is not None and last.ended_at is None else ""
            job = Job("drain", broker, request_id or request, self._now(), drain)
            job.carried = carried_then(drain)
            return job
        return None

    def _may_look_again(self, broker: str, last: Work | None) -> bool:
        """Whether it is time to look for what Pulsar has placed on a drained broker since."""
        now, ended_at = self._now(), last.ended_at or 0.0 if last is not None else 0.0
        since = (now - ended_at, AGAIN_SECONDS), (now - self._looked.get(broker, 0.0), LOOK_AGAIN_SECONDS)
        return not any(0 <= seconds < pause for seconds, pause in since)  # a clock that was set back holds nothing

    def _step(self, job: Job, tools: Tools) -> None:
        if (over := self._over(job)) is not None:
            self._executor.halt(Reason.ROUND_STOPPED, f"not asked for: {over}")
            if not self._executor.unfinished:
                self._finish(job, None, (Skip(job.broker, Reason.ROUND_STOPPED, over),))
        elif not self._executor.unfinished and not 0 < job.look_again_at - self._now() <= LOOK_AGAIN_SECONDS:
            step = self._empty if job.kind == "drain" else self._give
            step(job, tools)
        if self._job is not None:
            self._tell(job.work(self._now()))

    def _empty(self, job: Job, tools: Tools) -> None:
        """The next part of a drain, or its end."""
        if job.broker not in tools.admin.active_brokers():
            self._finish(job, None, (Skip(job.broker, Reason.ROUND_STOPPED, _GONE),))
            return
        if self._waits(job, self._ordered(job)):
            job.owned = None  # whoever leads or moves by hand meanwhile changes what it owns
            return
        drain = self.in_force().get(job.broker)
        if drain is None:  # released since this step began: the next one ends it
            return
        owned = None if job.owned is None else job.without_gone(job.owned)
        drain_pass = Pass(
            job.broker,
            job.begun_at,
            drain.since,
            override=job.overrides,
            respect_rest=job.order.respect_rest,
            ordered_at=job.order.ordered_at,
            carried=job.carried,
            scores=job.scores,
            guide=self._guide(drain.rollout),
            owned=owned,
            attempted=job.attempted,
        )
        look = plan_drain_now(tools.parts, tools.admin, drain_pass)
        job.silent_since, job.owned = None, look.owned
        if self._waits(job, look.hold or look.unshown):
            return
        job.looked(look, tools.paced(look))
        if carried_then(drain) is None and look.owned:
            carries = msgspec.structs.replace(drain, carried=look.carried)
            if not self._drains.amend(drain, carries):  # released, or ordered anew, since this look began
                return
        job.carried = look.carried
        part, beyond = within(look.plan.unloads, look, job, tools, self._now())
        if part and not job.barren:
            self._start(job, part, look, tools)
        elif owned is not None:
            job.owned = None  # all of that has gone or stays: the next look asks what has come since
        else:
            job.amend(looked_for_again(job.doubtful, tools.admin))
            stay = (*look.plan.stay, *beyond, *job.not_sent(unload.bundle for unload in part))
            self._finish(job, look.owned, stay, look.alone)

    def _stands(self, job: Job) -> Hold | None:
        """The hold on the next request of a job: no move is made for an order that has ended."""
        if (hold := self._ordered(job)) is not None or (over := self._over(job)) is None:
            return hold
        return Reason.ROUND_STOPPED, f"not asked for: {over}"

    def _over(self, job: Job) -> str | None:
        """Why the order of a job is over; None while it is in force."""
        order = self._drains.fill(self._now()) if job.kind == "fill" else self.in_force().get(job.broker)
        return ENDED if order is None or order.ordered_at != job.order.ordered_at else None

    @property
    def _is_away(self) -> bool:
        hold = self._held()
        return hold is not None and hold[0] in AWAY

    def _ordered(self, job: Job) -> Hold | None:
        """The hold that people have ordered, unless the job's reason passes it: to know it, no broker need be asked.

        An order later than the job is not passed: whoever pauses lbd means all of it.
        """
        hold = self._held()
        if hold is None or not job.overrides or hold[0] not in OVERRIDDEN_HOLDS:
            return hold
        pause = self._control.standing(self._now())
        return hold if pause is not None and pause != job.order.passes else None

    def _waits(self, job: Job, hold: Hold | None) -> bool:
        """Whether something keeps it from going on, which is noted with when it is looked at again."""
        if hold is None:
            job.waits("", 0.0)
            return False
        job.waits(hold[0].message(hold[1]), self._now() + LOOK_AGAIN_SECONDS)
        return True

    def _give(self, job: Job, tools: Tools) -> None:
        """The next part of a fill, as it was planned when it began here, or after it waited last, or its end."""
        look, handed, guide = self._fill, job.handed, self._guide(job.order.rollout)
        if look is None or job.held or look.unshown is not None:
            if self._waits(job, self._ordered(job)):
                return
            if job.broker not in tools.admin.active_brokers():
                self._finish(job, None, (Skip(job.broker, Reason.ROUND_STOPPED, NOT_THERE),))
                return
            passes = {"override": job.overrides, "respect_rest": job.order.respect_rest}
            self._fill = plan = plan_fill_now(tools.parts, tools.admin, job.broker, **passes, guide=guide)
            if not self._waits(job, plan.hold or (plan.unshown if not handed else None)):
                self._fill = replace(plan, shown_in_seconds=0.0)
                job.looked(self._fill, tools.paced(self._fill))
            return
        rest = tuple(unload for unload in look.plan.unloads if unload.bundle not in handed)
        part, beyond = within(rest, look, job, tools, self._now())
        if part:
            hold = self._ordered(job) or hold_of_fill(tools.parts, job.broker, override=job.overrides, guide=guide)
            if not self._waits(job, hold):
                self._start(job, part, look, tools)
        else:
            self._finish(job, None, (*beyond, *job.not_sent(handed)))

    def _start(self, job: Job, part: Sequence[Unload], look: DrainView, tools: Tools) -> None:
        job.hand(unload.bundle for unload in part)
        orders = drain_orders(job, tools.paced(look), tools, partial(self._stands, job))
        moves = with_clients(part, look.observation.snapshot)
        plan = [replace(move, reason=job.reason, order=job.kind) for move in moves]
        hour = HourOfOrder(look.limits, job.kind, job.broker, most_per_hour(look.bundles))
        self._executor.start(plan, look.limits if job.overrides else hour, orders)

    def _finish(self, job: Job, owned: Sequence[str] | None, stay: Sequence[Skip], alone: Sequence[Skip] = ()) -> None:
        self._job = self._fill = None
        self._tell(job.end(self._now(), owned, stay, alone))
        self._end_fill()

    def _tell(self, work: Work) -> None:
        """A look that found nothing to do says nothing new, but when it was."""
        drains, fill = dict(self.works.drains), self.works.fill
        if work.kind == "fill":
            fill = work
        else:
            drains = {broker: drain for broker, drain in drains.items() if broker in self.in_force()}
            drains[work.broker] = work
        current = Works(drains=drains, fill=fill)
        if current != self._works:
            self._works, self._is_unwritten = current, True
            self._write()
            self.on_work(work)

    def _write(self) -> None:
        """Write the progress, and after a failure, as on a full disk, as soon as it can be: people wait for it."""
        works = self.works
        if self._is_unwritten:
            self._drains.save(works)
            self._is_unwritten = False


# --- plan only: neither the cluster nor the state directory is changed


@dataclass(frozen=True, eq=False)
class DrainPreview:
    """A look, how long its moves would take, and why the cluster could not do without the broker (empty: it could).

    ``drain`` is the one in force, ``at_once`` how many moves would be in flight.
    """

    look: DrainView
    eta_seconds: float
    at_once: int
    cannot_spare: str = ""
    drain: Drain | None = None


def show_drain(settings: Settings, broker: str, daemons: Observer | None = None) -> DrainPreview:
    """Whether a broker can be spared, and where its bundles would go. Raises :class:`~lbd.errors.LbdError`."""
    drain = Drains(settings.state_dir).in_force(time.time()).get(broker) if settings.state_dir.is_dir() else None
    with preview_observer(settings, daemons) as observer:
        why = taking_over(settings, observer.admin).get(broker)
        if why is not None:
            raise RefusedError(f"{broker}: what it owns is not known: {why}; ask again once it has landed")
        first = first_pass(broker, drain, time.time())
        parts = order_parts(settings, observer)
        look = _hourly("drain", broker, preview_drain(parts, observer.admin, first), parts)
    return _build_preview(look, settings.drain.max_unloads_at_once, cannot_spare(broker, look), drain)


def show_fill(settings: Settings, broker: str, daemons: Observer | None = None) -> DrainPreview:
    """Preview of the bundles that a broker would be given. Raises :class:`~lbd.errors.LbdError`."""
    with preview_observer(settings, daemons) as observer:
        parts = order_parts(settings, observer)
        look = _hourly("fill", broker, plan_fill_now(parts, observer.admin, broker), parts)
    sources = len({unload.source for unload in look.plan.unloads})
    return _build_preview(look, min(settings.drain.max_unloads_at_once, max(sources, 1)))


def _hourly(kind: str, broker: str, look: DrainView, parts: Parts) -> DrainView:
    """The look with what the hour has no room for among what stays, and the hold of a rollout, which drains itself."""
    now = look.observation.snapshot.taken_at
    room, beyond = within_hour(kind, broker, look, parts.past.sent, now, look.plan.unloads)
    plan = replace(look.plan, unloads=room, stay=(*look.plan.stay, *beyond))
    return replace(look, hold=look.hold or parts.ordered_hold(), plan=plan)


def _build_preview(look: DrainView, at_once: int, refusal: str = "", drain: Drain | None = None) -> DrainPreview:
    pacing = Pacing(at_once, look.by_name)
    return DrainPreview(
        look, estimate([unload.bundle for unload in look.plan.unloads], pacing), at_once, refusal, drain
    )


def plan_json(preview: DrainPreview) -> DrainPlan:
    """The preview as JSON, here and over the API."""
    look, moves = preview.look, preview.look.plan.unloads
    return DrainPlan(
        taken_at=look.observation.snapshot.taken_at,
        brokers=[Predicted(name, round(score, 3), round(look.after[name], 3)) for name, score in look.before.items()],
        unloads=[
            WouldMove(
                move.bundle, move.source, move.destination, round(move.msg_rate, 3), round(move.throughput, 3), clients
            )
            for move, clients in zip(moves, reconnecting(moves, look.observation.snapshot), strict=True)
        ],
        stay=[RemainingBundle(skip.what, skip.reason.label, skip.detail) for skip in look.plan.stay],
        left_to_pulsar=[skip.what for skip in look.alone],
        hold=None if look.hold is None else Held(look.hold[0].label, look.hold[1]),
        cannot_spare=preview.cannot_spare or None,
        eta_seconds=round(preview.eta_seconds, 1),
        at_once=preview.at_once,
        drain=preview.drain,
        shown_in_seconds=round(look.shown_in_seconds, 1),
        last=list(look.last),
    )
