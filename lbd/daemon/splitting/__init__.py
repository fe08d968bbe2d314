"""Splits of a live lbd, one at a time beside the turns: by its rule, and those that people ask for.

Nothing is split while moves are under way, and nothing is moved while a split is: a move is of a bundle's name.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from lbd.act.splitter import Splitter
from lbd.cycle.splitting import Round, choose, round_of
from lbd.daemon.splitting.looking import CLOCK, Brokers
from lbd.errors import LbdError, RefusedError, told
from lbd.model import bundle_namespace
from lbd.permit.eligibility import left_alone
from lbd.permit.own_topic import carries
from lbd.permit.quiet_hours import quiet_until
from lbd.reason import Reason
from lbd.record.control import FAILED, REFUSED, Answer
from lbd.record.journal.splits import within_hour
from lbd.split.cut import Cut, CutOutcome, SplitResult, cut_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.config import Settings
    from lbd.cycle import CycleRecord, Hold
    from lbd.daemon.requests import Requests
    from lbd.pulsar.admin import Admin
    from lbd.record.control import SplitRequest
    from lbd.record.journal import Journal, Split

Told: TypeAlias = "Callable[[CutOutcome | LbdError], None]"


class Splitting:
    """Splits bundles, with the journal. ``admin`` is asked for each time: settings may be read again meanwhile.

    ``paused`` is asked before each split of the rule, for the pause that was ordered since the turn that chose it.
    ``on_end`` hears of each split as it ends, and of what kept one from being tried, from the thread that made it.
    """

    def __init__(
        self, journal: Journal, admin: Callable[[], Admin], now: Callable[[], float], paused: Callable[[], Hold | None]
    ) -> None:
        self._journal, self._admin, self._now, self._paused = journal, admin, now, paused
        self._halted = threading.Event()
        self._changed = threading.Condition()
        self._under_way = ""
        self._inherited = dict(journal.open_splits)
        self.on_end: Told = lambda _: None
        self.warnings: tuple[str, ...] = ()

    def hold(self) -> Hold | None:
        """What keeps moves from being planned."""
        with self._changed:
            what = self._under_way or next((split.cut.bundle for split in self._inherited.values()), "")
        return (Reason.MOVES_UNFINISHED, f"a split is under way: {what}") if what else None

    def wait(self, seconds: float | None = None) -> bool:
        """Whether no split is under way, within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way, seconds)

    def halt(self) -> None:
        """Begin no more of what the rule chose; the split that was asked for is brought to its end."""
        self._halted.set()

    def inherit(self, found: Mapping[str, Split]) -> None:
        """Take over these open splits of other processes, by id, and no others; not while one is made here."""
        with self._changed:
            if not self._under_way:
                self._inherited = dict(found)

    def recover(self) -> None:
        """Give the splits of a killed process their outcome, those that can be told by now."""
        try:
            for name, split in list(self._inherited.items()):
                outcome = Splitter(self._admin(), CLOCK).finish(split.cut, self._now() - split.at)
                if outcome is not None:
                    self._journal.conclude_split(name, outcome)
                    del self._inherited[name]
                    self.on_end(outcome)
        except LbdError as error:
            self.on_end(error)

    def after(self, record: CycleRecord, settings: Settings) -> None:
        """After a turn that planned nothing: what its round asks for is begun, beside the next turns."""
        self.warnings = _warnings(record, settings)
        if settings.split.enabled and not self.warnings and self.hold() is None:
            seen = round_of(record, self._journal.split_or_attempted_at, self._hour())
            if seen is not None:
                self._begin("what the rule chooses", lambda: self._by_rule(seen, settings))

    def serve(self, request: SplitRequest, settings: Settings, requests: Requests, hold: Hold | None) -> None:
        """Begin a split that a person asked for, beside the turns, unless something holds it; it ends in an answer."""
        requests.begun(request)
        if hold is None:
            self._begin(request.bundle, lambda: self._answered(request, settings, requests))
        else:
            requests.refuse(request, hold[0].told(hold[1]))

    def _answered(self, request: SplitRequest, settings: Settings, requests: Requests) -> None:
        try:
            requests.answer(request, self.by_hand(request, settings))
        except Exception as error:
            requests.fail(request, told(error))
            raise

    def by_hand(self, request: SplitRequest, settings: Settings) -> Answer:
        """One split that a person asked for, to its end."""
        cut = Cut(request.bundle, request.owner, request.algorithm, request.positions, _reason(request))
        try:
            _allow(cut, settings)
            if request.override is None:
                self._limit(cut, settings)
            outcome = self._cut(cut)
        except RefusedError as error:
            return Answer(REFUSED, f"Refused: {error}.")
        except LbdError as error:
            return Answer(error.exit_code, f"Not split: {error}")
        return _answer(outcome)

    def _by_rule(self, seen: Round, settings: Settings) -> None:
        for due, plan in choose(Brokers(self._admin()), settings, seen).plans:
            quiet = quiet_until(settings.guardrails.quiet_hours, self._now())
            if self._halted.is_set() or quiet is not None or self._paused() is not None:
                return
            self._cut(cut_of(plan, due.words))

    def _cut(self, cut: Cut) -> CutOutcome:
        """Check, intend, ask, prove, conclude. Raises :class:`LbdError` when nothing was sent.

        What was cut is told, even when it cannot be written; the next start closes what is open then.
        """
        splitter = Splitter(self._admin(), CLOCK)
        splitter.check(cut)
        name = self._journal.intend_split(cut)
        outcome = splitter.send(cut)
        try:
            self._journal.conclude_split(name, outcome)
        except LbdError as error:
            words = f"the journal has no end of it: {error}"
            outcome = replace(outcome, detail=f"{outcome.detail}; {words}" if outcome.detail else words)
        self.on_end(outcome)
        return outcome

    def _limit(self, cut: Cut, settings: Settings) -> None:
        """Limits that a person may override."""
        limits = settings.split
        rests_until = (
            self._journal.split_or_attempted_at.get(cut.bundle, 0.0) + settings.guardrails.cool_down_minutes * 60
        )
        if self._now() < rests_until:
            left = (rests_until - self._now()) / 60
            raise RefusedError(f"cool-down: it was moved or split, and rests {left:.0f} min more")
        if 0 < limits.max_splits_per_hour <= (hour := self._hour()):
            raise RefusedError(f"{hour} splits within the last hour (split.max_splits_per_hour)")
        boundaries = Splitter(self._admin(), CLOCK).boundaries(bundle_namespace(cut.bundle))
        bundles = len(boundaries) - 1 + len(cut.positions)
        if bundles > limits.max_bundles_per_namespace:
            most = f"split.max_bundles_per_namespace {limits.max_bundles_per_namespace}"
            raise RefusedError(f"{bundle_namespace(cut.bundle)} would have {bundles} bundles, {most}")

    def _hour(self) -> int:
        """Splits within the last hour; those that certainly cut nothing are not counted."""
        return within_hour(self._journal.splits, self._now())

    def _begin(self, what: str, work: Callable[[], None]) -> None:
        with self._changed:
            self._under_way = what
        self._halted.clear()
        threading.Thread(target=self._work, args=(work,), name="lbd-split", daemon=True).start()

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; whoever listens is told
            self.on_end(told(error))
        finally:
            with self._changed:
                self._under_way = ""
                self._changed.notify_all()


def _allow(cut: Cut, settings: Settings) -> None:
    """What nobody may override."""
    reason = left_alone(cut.bundle, settings.guardrails)
    if reason is None and carries(cut.bundle, settings.leader.kept_topic):
        reason = Reason.LEADER_TOPIC
    if reason is not None:
        raise RefusedError(f"{reason.label}: nothing is split there, whoever asks")


def _warnings(record: CycleRecord, settings: Settings) -> tuple[str, ...]:
    """Two that split would cut each other's halves."""
    on = record.observation.splitting_on if record.observation is not None else ()
    if not (settings.split.enabled and on):
        return ()
    told = f"split.enabled: lbd splits nothing, for {on[0]} has loadBalancerAutoBundleSplitEnabled=true"
    return (f"{told} (and {len(on) - 1} more brokers)" if len(on) > 1 else told,)


def _reason(request: SplitRequest) -> str:
    passes = f", overriding limits: {request.override}" if request.override is not None else ""
    return f"by hand, {request.by}{passes}"


def _answer(outcome: CutOutcome) -> Answer:
    done = outcome.result is SplitResult.SPLIT
    detail = f": {outcome.detail}" if outcome.detail else ""
    into = f" into {len(outcome.parts)} at {outcome.owner or '(see below)'}" if outcome.found else ""
    sentence = f"{outcome.cut.bundle}: {outcome.result.value}{into} in {outcome.seconds:.2f} s{detail}."
    return Answer(0 if done else FAILED, sentence, owner=outcome.owner, parts=outcome.parts)
