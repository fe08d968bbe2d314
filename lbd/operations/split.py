"""Splits of a live lbd, one at a time beside the turns: by its rule, and by request; and plans that change nothing.

Nothing is split while moves are in flight, and nothing is moved during a split, because a move names a bundle.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from lbd.act.fence import HEIR_WAITS_SECONDS, Fence
from lbd.act.ownership import ActClock
from lbd.act.split import Splitter
from lbd.bundles import holds, topic_hash
from lbd.errors import LbdError, ObserveError, RefusedError, ThreadError, as_lbd_error
from lbd.model import bundle_namespace, bundle_range
from lbd.observe import averages as running
from lbd.operations.dry import order_hold, remembered
from lbd.operations.parts import preview_observer
from lbd.permit.evidence import judge
from lbd.permit.facts import Facts
from lbd.permit.quiet_hours import quiet_until
from lbd.permit.rules import exempt_reason
from lbd.pulsar.admin import Admin
from lbd.pulsar.broker_configuration import AUTO_SPLIT_ENABLED
from lbd.reason import Reason
from lbd.split.plan import (
    Cut,
    CutOutcome,
    DueSplitDocument,
    DueSplitsDocument,
    SplitResult,
    Topic,
    UnsplitDocument,
    as_document,
    plan,
    plan_cut,
)
from lbd.store.control import FAILED, REFUSED, RequestResult, ordered_by
from lbd.store.moves import within_hour
from lbd.text import minutes_text
from lbd.threads import begin
from lbd.turn.splitting import SplitChoice, SplitRound, all_usable, choose, split_round

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lbd.config import Settings
    from lbd.observe.observer import Observer
    from lbd.operations.requests import Requests
    from lbd.permit.facts import Hold
    from lbd.pulsar.admin import TopicStats
    from lbd.split.plan import Algorithm, SplitDocument, SplitPlan
    from lbd.split.triggers import SplitSettings
    from lbd.store.control import SplitRequest
    from lbd.store.journal import Journal, Past
    from lbd.store.moves import SplitRecord
    from lbd.turn.parts import TurnResult


def bundle_topics(admin: Admin, bundle: str, owner: str) -> tuple[Topic, ...]:
    """All topics of a bundle, loaded or not, by name.

    A broker cuts by these; the loaded segments of scalable topics, which it does not count, are included. Rates are up
    to a statistics interval old. Raises :class:`~lbd.errors.AdminError` where they cannot be read.
    """
    namespace = bundle_namespace(bundle)
    loaded = _loaded(admin, bundle, owner)
    names = {*admin.topics(namespace), *loaded}
    return tuple(_topic(name, loaded.get(name)) for name in sorted(names) if holds(bundle, topic_hash(name)))


def _loaded(admin: Admin, bundle: str, owner: str) -> Mapping[str, TopicStats]:
    by_domain = admin.topic_stats(owner).get(bundle_namespace(bundle), {}).get(bundle_range(bundle), {})
    return {name: stats for topics in by_domain.values() for name, stats in topics.items()}


def _topic(name: str, stats: TopicStats | None) -> Topic:
    if stats is None:
        return Topic(name, topic_hash(name))
    rates = (stats.msg_rate_in + stats.msg_rate_out, stats.msg_throughput_in + stats.msg_throughput_out)
    return Topic(name, topic_hash(name), *rates)


# --- plan of one bundle, from its owner's current statistics

CLOCK = ActClock(time.monotonic, time.sleep)


def plan_split(
    admin: Admin, bundle: str, algorithm: Algorithm, settings: SplitSettings, positions: Sequence[int] = ()
) -> SplitPlan:
    """Cut that ``algorithm`` would make in the bundle, and the topics on each side.

    Raises :class:`~lbd.errors.RefusedError` for no bundle, an unowned one, or nothing to cut,
    :class:`~lbd.errors.UsageError` for positions outside of it, and :class:`~lbd.errors.ObserveError` without
    statistics.
    """
    splitter = Splitter(admin, CLOCK)
    owner = splitter.owner(bundle, splitter.boundaries(bundle_namespace(bundle)))
    return plan(owner, bundle, algorithm, bundle_topics(admin, bundle, owner), settings.flow, positions)


class LiveSplitView:
    """The live cluster as the rule of splits needs it."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def number_of_bundles(self, namespace: str) -> int:
        """Number of a namespace's bundles. Raises :class:`~lbd.errors.ObserveError` for unreadable boundaries."""
        number = len(self._admin.boundaries(namespace) or ()) - 1
        if number < 1:
            raise ObserveError(f"{namespace}: it has no bundles")
        return number

    def look(self, bundle: str, settings: SplitSettings) -> SplitPlan:
        """Plan by the algorithm of ``split.algorithm``; raises as :func:`look` does."""
        return plan_split(self._admin, bundle, settings.algorithm, settings)


# --- splits of a live lbd

OnCut: TypeAlias = "Callable[[CutOutcome | LbdError], None]"


class Splitting:
    """Splits bundles, with the journal. ``admin`` is called each time, because settings may change meanwhile.

    ``paused`` is called before each split of the rule, for a pause since the turn that chose it. ``on_end`` gets each
    split as it ends, and the reason why one was not tried, in the thread of the split.
    """

    def __init__(
        self, journal: Journal, admin: Callable[[], Admin], now: Callable[[], float], paused: Callable[[], Hold | None]
    ) -> None:
        self._journal, self._admin, self._now, self._paused = journal, admin, now, paused
        self._halted = threading.Event()
        self._changed = threading.Condition()
        self._under_way = ""
        self._inherited = dict(journal.open_splits)
        self._is_heir, self._since = False, CLOCK.boot()
        self._unwritten: dict[str, CutOutcome] = {}
        """Outcomes that could not be written, by split."""
        self.on_end: OnCut = lambda _: None
        self.warnings: tuple[str, ...] = ()

    def hold(self) -> Hold | None:
        """Hold on planning moves."""
        with self._changed:
            what = self._under_way or next((split.cut.bundle for split in self._inherited.values()), "")
        return (Reason.MOVES_UNFINISHED, f"a split is under way: {what}") if what else None

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the split under way. Returns False after ``seconds``."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way, seconds)

    def halt(self) -> None:
        """Begin no further split of the rule; a requested one is finished."""
        self._halted.set()

    def inherit(self, splits: Mapping[str, SplitRecord]) -> None:
        """Take over these open splits of other processes, by id, and no others; not while one is made here.

        Another process may still be executing them, until its fence has ended.
        """
        with self._changed:
            if not self._under_way:
                self._inherited, self._is_heir, self._since = dict(splits), True, CLOCK.boot()

    def recover(self) -> None:
        """Close what is open in the journal and under way nowhere, where its outcome is clear by now.

        That is a killed process's splits, and those of this one whose intent or outcome could not be written when a
        disk was full. To be called before each turn, by the thread that begins splits.
        """
        with self._changed:
            if not self._under_way:
                self._inherited = dict(self._journal.open_splits)
        try:
            for name, split in list(self._inherited.items()):
                written = self._unwritten.get(name)
                outcome = written or Splitter(self._admin(), CLOCK).finish(split.cut, self._age(split))
                if outcome is not None:
                    self._journal.conclude_split(name, outcome)
                    del self._inherited[name]
                if outcome is not None and self._unwritten.pop(name, None) is None:
                    self.on_end(outcome)
        except LbdError as error:
            self.on_end(error)

    def _age(self, split: SplitRecord) -> float:
        """Seconds since its last request at least; times of another machine are not compared."""
        waited = CLOCK.boot() - self._since
        return waited - HEIR_WAITS_SECONDS if self._is_heir else max(self._now() - split.at, waited)

    def after(self, record: TurnResult, settings: Settings) -> None:
        """Begin the due split of the rule after a turn that planned nothing, beside the next turns."""
        self.warnings = _warnings(record, settings)
        if settings.split.enabled and not self.warnings and self.hold() is None:
            inputs = split_round(record, self._journal.split_or_attempted_at, self._hour())
            if inputs is not None:
                try:
                    self._begin("what the rule chooses", lambda: self._by_rule(inputs, settings))
                except ThreadError as error:  # the next turn tries again
                    self.on_end(error)

    def serve(
        self,
        request: SplitRequest,
        settings: Settings,
        requests: Requests,
        hold: Hold | None,
        held: Callable[[], Hold | None],
    ) -> None:
        """Begin a split that a person requested, beside the turns, unless something holds it; it ends in an answer.

        ``held`` is what holds it later, before its request. Raises :class:`ThreadError`.
        """
        requests.begun(request)
        if hold is None:
            self._begin(request.bundle, lambda: self._answered(request, settings, requests, held))
        else:
            requests.refuse(request, hold[0].message(hold[1]))

    def _answered(
        self, request: SplitRequest, settings: Settings, requests: Requests, held: Callable[[], Hold | None]
    ) -> None:
        try:
            requests.answer(request, self._by_hand(request, settings, held))
        except Exception as error:
            requests.fail(request, as_lbd_error(error))
            raise

    def _by_hand(self, request: SplitRequest, settings: Settings, held: Callable[[], Hold | None]) -> RequestResult:
        """Make one split that a person requested, to its end."""
        cut = Cut(request.bundle, request.owner, request.algorithm, request.positions, _reason(request))
        try:
            allow(cut, settings)
            if request.override is None:
                limit(cut, settings, self._journal, self._admin(), self._now())
            outcome = self._cut(cut, held)
        except RefusedError as error:
            return RequestResult(REFUSED, f"Refused: {error}.")
        except LbdError as error:
            return RequestResult(error.exit_code, f"Not split: {error}")
        return _answer(outcome)

    def _by_rule(self, inputs: SplitRound, settings: Settings) -> None:
        chosen = choose(LiveSplitView(self._admin()), settings, inputs).chosen
        quiet = quiet_until(settings.guardrails.quiet_hours, self._now())
        if chosen is None or self._halted.is_set() or quiet is not None or self._paused() is not None:
            return
        due, split = chosen
        self._cut(plan_cut(split, due.words), self._paused)

    def _cut(self, cut: Cut, held: Callable[[], Hold | None]) -> CutOutcome:
        """Check, write the intent, send, verify, write the outcome. Raises :class:`LbdError` when nothing was sent.

        A finished split is returned even when its outcome cannot be written; the next turn tries that again.
        """
        splitter, started_at = Splitter(self._admin(), CLOCK), CLOCK.boot()
        splitter.check(cut)
        name = self._journal.intend_split(cut)
        outcome = splitter.send(cut, Fence(started_at, leads=partial(self._journal.confirm, name), held=held))
        try:
            self._journal.conclude_split(name, outcome)
        except LbdError as error:
            self._unwritten[name] = outcome
            words = f"the journal has no end of it: {error}"
            outcome = replace(outcome, detail=f"{outcome.detail}; {words}" if outcome.detail else words)
        self.on_end(outcome)
        return outcome

    def _hour(self) -> int:
        """Splits within the last hour; those that certainly cut nothing are not counted."""
        return within_hour(self._journal.splits, self._now())

    def _begin(self, what: str, work: Callable[[], None]) -> None:
        with self._changed:
            self._under_way = what
        self._halted.clear()
        try:
            begin(partial(self._work, work), "lbd-split")
        except ThreadError:
            self._over()
            raise

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a thread cannot raise to a caller: listeners get the error
            self.on_end(as_lbd_error(error))
        finally:
            self._over()

    def _over(self) -> None:
        with self._changed:
            self._under_way, self._since = "", CLOCK.boot()
            self._changed.notify_all()


def limit(cut: Cut, settings: Settings, history: Journal | Past, admin: Admin, now: float) -> None:
    """Check limits that a person may override. Raises :class:`RefusedError`; ``now`` is epoch seconds."""
    limits = settings.split
    rests_until = history.split_or_attempted_at.get(cut.bundle, 0.0) + settings.guardrails.cool_down_minutes * 60
    if now < rests_until:
        raise RefusedError(f"cool-down: it was moved or split, and rests {minutes_text(rests_until - now)} more")
    if 0 < limits.max_splits_per_hour <= (hour := within_hour(history.splits, now)):
        raise RefusedError(f"{hour} splits within the last hour (split.max_splits_per_hour)")
    boundaries = Splitter(admin, CLOCK).boundaries(bundle_namespace(cut.bundle))
    bundles = len(boundaries) - 1 + len(cut.positions)
    if bundles > limits.max_bundles_per_namespace:
        most = f"split.max_bundles_per_namespace {limits.max_bundles_per_namespace}"
        raise RefusedError(f"{bundle_namespace(cut.bundle)} would have {bundles} bundles, {most}")


def split_refusal(plan: SplitPlan, settings: Settings, history: Journal | Past, admin: Admin, hold: Hold | None) -> str:
    """Reason why a split by hand would be refused now; empty where it would be sent. Changes nothing."""
    now, cut = time.time(), plan_cut(plan, "")
    quiet = quiet_until(settings.guardrails.quiet_hours, now)
    held = hold or ((Reason.QUIET_HOURS, quiet[1]) if quiet is not None else None)
    if held is not None:
        return held[0].message(held[1])
    try:
        allow(cut, settings)
        limit(cut, settings, history, admin, now)
        Splitter(admin, CLOCK).check(cut)
    except LbdError as error:
        return str(error)
    return ""


def allow(cut: Cut, settings: Settings) -> None:
    """Check limits without an override. Raises :class:`RefusedError`."""
    reason = exempt_reason(cut.bundle, settings.guardrails, settings.leader.kept_topic)
    if reason is not None:
        raise RefusedError(f"{reason.label}: nothing is split there, whoever asks")


def _warnings(record: TurnResult, settings: Settings) -> tuple[str, ...]:
    """Warning about a second splitter, which would cut the halves again."""
    on = record.observation.splitting_on if record.observation is not None else ()
    if not (settings.split.enabled and on):
        return ()
    warning = f"split.enabled: lbd splits nothing, for {on[0]} has {AUTO_SPLIT_ENABLED}=true"
    return (f"{warning} (and {len(on) - 1} more brokers)" if len(on) > 1 else warning,)


def _reason(request: SplitRequest) -> str:
    passes = f", overriding limits: {request.override}" if request.override is not None else ""
    return f"by hand, {ordered_by(request)}{passes}"


def _answer(outcome: CutOutcome) -> RequestResult:
    done = outcome.result is SplitResult.SPLIT
    detail = f": {outcome.detail}" if outcome.detail else ""
    into = f" into {len(outcome.parts)} at {outcome.owner or '(see below)'}" if outcome.boundaries else ""
    sentence = f"{outcome.cut.bundle}: {outcome.result.value}{into} in {outcome.seconds:.2f} s{detail}."
    return RequestResult(0 if done else FAILED, sentence, owner=outcome.owner, parts=outcome.parts)


# --- plan only


def plan_one(settings: Settings, bundle: str, algorithm: Algorithm, positions: Sequence[int] = ()) -> SplitDocument:
    """Cut of one bundle, and the reason if it is refused. Raises as :func:`plan_split` does."""
    admin = Admin(settings.pulsar)
    plan = plan_split(admin, bundle, algorithm, settings.split, positions)
    return as_document(plan, _refused_here(plan, settings, admin))


def _refused_here(plan: SplitPlan, settings: Settings, admin: Admin) -> str:
    """Reason for a refusal by the state of the lbd on this machine."""
    return split_refusal(plan, settings, remembered(settings)[2], admin, order_hold(settings))


def plan_due_here(settings: Settings) -> DueSplitsDocument:
    """Splits that the leader's rule would make, as :func:`plan_due` has them, and the reason if they are refused."""
    admin = Admin(settings.pulsar)
    return due_document(plan_due(settings), lambda plan: _refused_here(plan, settings, admin))


def plan_due(settings: Settings, daemons: Observer | None = None) -> SplitChoice:
    """Splits that the leader's rule would make, ``split.enabled`` or not.

    Long-term averages, cool-downs and the budget are those of a daemon whose state directory can be read; else this
    round's rates count. Raises :class:`RefusedError` while the brokers split by themselves.
    """
    with preview_observer(settings, daemons) as observer:
        observation = observer.observe()
        if observation.splitting_on:
            broker = observation.splitting_on[0]
            raise RefusedError(
                f"{broker} has {AUTO_SPLIT_ENABLED}=true: the brokers split by themselves; "
                "lbd split BUNDLE splits a single one"
            )
        _, averages, past = remembered(settings)
        snapshot = observation.snapshot
        averages, hour = running.update(averages, snapshot), within_hour(past.splits, time.time())
        attempted_at = past.split_or_attempted_at
        facts = Facts(snapshot, averages, judge({}, snapshot, settings.weights), attempted_at=attempted_at)
        inputs = SplitRound(facts, all_usable(snapshot), hour)
        return choose(LiveSplitView(observer.admin), settings, inputs)


def due_document(choice: SplitChoice, refused: Callable[[SplitPlan], str]) -> DueSplitsDocument:
    """The same as JSON; ``refused`` is the reason why a plan may not be carried out now."""
    chosen = [(due, as_document(plan, refused(plan))) for due, plan in filter(None, [choice.chosen])]
    splits = (DueSplitDocument(**msgspec.structs.asdict(plan), reason=due.words) for due, plan in chosen)
    return DueSplitsDocument(
        tuple(splits), tuple(UnsplitDocument(bundle.bundle, bundle.why) for bundle in choice.unsplit)
    )
