"""Execute plans beside the turns: one unload in flight per source and per bundle range, spaced, all in the journal.

A plan is cut into lanes, one per source (several for a drain); each lane is a thread. The intent is on disk before a
request is sent, the outcome after it.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from lbd.act.fence import HEIR_WAITS_SECONDS, Fence
from lbd.act.unload import judged, unproven
from lbd.clock import boot_seconds
from lbd.errors import ObserveError, ThreadError, as_lbd_error
from lbd.model import Outcome, Result, Skip, Unload, bundle_namespace, bundle_range
from lbd.reason import Reason
from lbd.threads import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from lbd.act.unload import ReadyMove, Unloader
    from lbd.errors import LbdError
    from lbd.permit.budget import Sent
    from lbd.permit.settings import Guardrails


class IntentLog(Protocol):
    """The journal as the executor uses it, from several threads."""

    @property
    def open(self) -> tuple[tuple[str, Unload], ...]: ...
    @property
    def attempted_at(self) -> Mapping[str, float]: ...
    @property
    def sent(self) -> Collection[Sent]: ...
    def intend(self, unload: Unload, attempt: int) -> str: ...
    def conclude(self, move: str, outcome: Outcome) -> None: ...
    def amend(self, move: str, outcome: Outcome) -> None: ...
    def confirm(self, move: str, again: bool) -> None: ...


class Limits(Protocol):
    """Limits of a plan (:class:`~lbd.permit.limits.Ledger`): queries change nothing, ``take…`` counts, once.

    The executor calls them under one lock, and holds it until the permitted moves are counted.
    """

    def sending_refusal(self, unload: Unload, sent: Collection[Sent], now: float) -> Skip | None: ...
    def take_sending(self, unload: Unload) -> None: ...
    def may_stay(self, unload: Unload, owner: str) -> bool: ...
    def take_landing(self, unload: Unload, owner: str) -> None: ...


@dataclass(frozen=True)
class Pace:
    """Pace of a plan: seconds between two unloads from one source, and the number of unloads at once.

    ``from_each`` may be in flight from one source. No two of the same range ever are, unless leaders remember a
    destination by the bundle's full name: ``by_name``.
    """

    spacing_seconds: float = 0.0
    at_once: int = 4
    from_each: int = 1
    by_name: bool = False

    @classmethod
    def of(cls, guardrails: Guardrails) -> Pace:
        """The pace of these guardrails."""
        return cls(guardrails.unload_spacing_seconds, guardrails.max_unloads_at_once)

    def keys(self, unload: Unload) -> tuple[str, ...]:
        """The keys that an unload claims while it is in flight."""
        span = unload.bundle if self.by_name else bundle_range(unload.bundle)
        return (span,) if self.from_each > 1 else (unload.source, span)

    def lanes(self, plan: Sequence[Unload]) -> list[list[Unload]]:
        """Cut the plan into lanes, ``from_each`` for each source; the moves of a lane run one after the other."""
        sources: dict[str, list[Unload]] = {}
        for unload in plan:
            sources.setdefault(unload.source, []).append(unload)
        cut = [own[start :: self.from_each] for own in sources.values() for start in range(self.from_each)]
        return [lane for lane in cut if lane]


@dataclass(frozen=True)
class FinishedMoves:
    """Moves that ended since the last call: proven outcomes, unsent moves, and the reason why acting failed.

    ``unfinished`` are the moves that are still open. ``touched`` are the brokers of all these moves, and of those
    reported before, until :meth:`Executor.settled`. ``amended`` are corrections of outcomes reported before.
    """

    outcomes: tuple[Outcome, ...] = ()
    skips: tuple[Skip, ...] = ()
    failure: LbdError | None = None
    unfinished: tuple[Unload, ...] = ()
    touched: frozenset[str] = frozenset()
    amended: tuple[Outcome, ...] = ()

    def and_then(self, later: FinishedMoves) -> FinishedMoves:
        """These and those that ended later."""
        return replace(
            later,
            outcomes=(*self.outcomes, *later.outcomes),
            skips=(*self.skips, *later.skips),
            failure=self.failure or later.failure,
            touched=self.touched | later.touched,
            amended=(*self.amended, *later.amended),
        )


NOTHING_FINISHED = FinishedMoves()


@dataclass(frozen=True)
class Execution:
    """Orders for a plan. ``held`` is called before each request, and returns the reason why nothing may begin now.

    ``unserved`` is called, too, and returns the reason why bundles of some namespaces stay. ``passes`` are the
    reasons for which other plans end, and not this one.
    """

    unloader: Unloader
    pace: Pace = field(default_factory=Pace)
    held: Callable[[], tuple[Reason, str] | None] = lambda: None
    passes: frozenset[Reason] = frozenset()
    unserved: Callable[[], Mapping[str, str]] = dict


def touched_brokers(unloads: Iterable[Unload], outcomes: Iterable[Outcome] = ()) -> set[str]:
    """Brokers that moves touch: both ends, and any other broker on which a bundle landed."""
    landed = list(outcomes)
    ends = {
        end for move in [*unloads, *(outcome.unload for outcome in landed)] for end in (move.source, move.destination)
    }
    return {broker for broker in ends | {outcome.owner for outcome in landed} if broker is not None}


# --- dry-run


class DryRun:
    """An executor that does nothing with a plan: the plan itself is the result."""

    acts = False

    def collect(self) -> FinishedMoves:
        """Return nothing: no request was sent."""
        return FinishedMoves()

    def hand_over(self, plan: Sequence[Unload], limits: Limits) -> None:
        """Drop the plan."""

    def settled(self) -> None:
        """Do nothing: no broker was touched."""

    def halt(self, reason: Reason, detail: str) -> None:
        """Do nothing: nothing is under way."""


# --- executor

MISSES_THAT_STOP = 2
"""Two unloads in a row from one source that did not land: a third one would not help."""

RECOVERY_PAUSE_SECONDS = 1.0

DOUBTFUL = frozenset({Result.FAILED, Result.UNOWNED, Result.UNKNOWN})
"""Results after which a broker may still act, or take the bundle."""

AMEND_FOR_SECONDS = 60.0
"""Time for which ownership is checked again after such a result: the longest that brokers need to close topics."""

AMEND_EVERY_SECONDS = 5.0


@dataclass(eq=False)
class _PlanRun:
    """One plan under way. ``stop`` is the reason why its other moves may not begin any more, None while they may."""

    orders: Execution
    limits: Limits
    permits: threading.Semaphore
    misses: Counter[str] = field(default_factory=Counter)
    stopped: threading.Event = field(default_factory=threading.Event)
    stop: tuple[Reason, str] | None = None

    def end(self, reason: Reason, detail: str) -> None:
        """Begin no further move of this plan."""
        self.stop = self.stop or (reason, detail)
        self.stopped.set()


def _of_whole(unload: Unload, last: Outcome) -> Outcome:
    """The outcome of a move by that of its last attempt, which began where the one before had ended."""
    result = last.result if last.owner is None else judged(unload, last.owner)
    return replace(last, unload=unload, result=result)


@dataclass
class _Doubt:
    """A doubtful outcome of an attempt of a ``whole`` move; ``unloader`` checks it until ``until`` (boot clock)."""

    move: str
    outcome: Outcome
    whole: Unload
    unloader: Callable[[], Unloader]
    until: float


class Executor:
    """Executes plans. Thread-safe; its threads do not keep the process from ending.

    ``on_end`` is called with each outcome or skip, and again with each amended outcome.
    """

    def __init__(
        self, journal: IntentLog, now: Callable[[], float], on_end: Callable[[Outcome | Skip], None] = lambda _: None
    ) -> None:
        self._journal, self._now, self._on_end = journal, now, on_end
        self._changed = threading.Condition()
        self._limiting = threading.Lock()
        self._inherited = dict(journal.open)
        self._foreign: list[Unload] = list(self._inherited.values())
        self._unfinished: list[Unload] = []
        self._heir, self._led_since = False, 0.0
        self._unwritten: dict[str, Outcome] = {}
        """Outcomes that could not be written, by move."""
        self._doubts: dict[str, _Doubt] = {}
        self._amended: list[Outcome] = []
        self._amending: threading.Thread | None = None
        self._closed = threading.Event()
        self._busy: set[str] = set()
        self._runs: list[_PlanRun] = []
        self._outcomes: list[Outcome] = []
        self._skips: list[Skip] = []
        self._failure: LbdError | None = None
        self._touched: set[str] = set()
        self._moved_elsewhere: set[str] = set()

    @property
    def unfinished(self) -> tuple[Unload, ...]:
        """Open moves, those of a killed process included."""
        with self._changed:
            return (*self._foreign, *self._unfinished)

    def inherit(self, moves: Mapping[str, Unload]) -> None:
        """Take over exactly these open moves of other processes, by id, except moves that are under way here.

        Another process may still be executing them until its fence has ended (``fence.py``).
        """
        with self._changed:
            self._heir, self._led_since = True, boot_seconds()
            for unload in self._inherited.values():
                self._foreign.remove(unload)
            busy = {unload.bundle for unload in (*self._foreign, *self._unfinished)}
            self._inherited = {move: unload for move, unload in moves.items() if unload.bundle not in busy}
            self._foreign.extend(self._inherited.values())

    def moved_elsewhere(self, unload: Unload) -> None:
        """Note a move of another instance: both brokers must settle as if it were moved here."""
        with self._changed:
            self._moved_elsewhere |= touched_brokers((unload,))
            self._doubts.pop(unload.bundle, None)  # what becomes of the bundle from now on is that move's

    def start(self, plan: Sequence[Unload], limits: Limits, orders: Execution) -> None:
        """Start a plan and return at once."""
        if not plan:
            return
        run = _PlanRun(orders, limits, threading.Semaphore(orders.pace.at_once))
        with self._changed:
            self._runs = [*self._runs, run] if self._unfinished else [run]
            self._unfinished.extend(plan)
        for lane in orders.pace.lanes(plan):
            self._begin(run, lane)

    def collect(self) -> FinishedMoves:
        """Moves that ended since the last call."""
        with self._changed:
            unfinished = (*self._foreign, *self._unfinished)
            self._touched |= touched_brokers(unfinished, (*self._outcomes, *self._amended)) | self._moved_elsewhere
            self._moved_elsewhere = set()
            outcomes, skips, amended = tuple(self._outcomes), tuple(self._skips), tuple(self._amended)
            failure, touched = self._failure, frozenset(self._touched)
            self._outcomes, self._skips, self._amended, self._failure = [], [], [], None
            return FinishedMoves(outcomes, skips, failure, unfinished, touched, amended)

    def settled(self) -> None:
        """Forget the touched brokers, which are saved; those of moves under way are reported again."""
        with self._changed:
            self._touched.clear()

    def halt(self, reason: Reason, detail: str) -> None:
        """Begin no further unload of any plan; unloads in flight are finished."""
        with self._changed:
            runs = [run for run in self._runs if reason not in run.orders.passes]
        for run in runs:
            run.end(reason, detail)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of all moves that were handed over here. Returns False after ``seconds``."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished, seconds)

    def close(self) -> None:
        """Stop checking doubtful outcomes."""
        self._closed.set()

    def recover(self, unloader: Callable[[], Unloader], seconds: float = 0.0) -> None:
        """Close what is open in the journal and under way nowhere, beside the turns; wait at most ``seconds``.

        That is a killed process's moves, and those of this one whose intent or outcome could not be written when a disk
        was full. To be called before each turn, by the thread that starts plans. ``unloader`` is called each time,
        because the settings may change meanwhile.
        """
        with self._changed:
            under_way = {unload.bundle for unload in (*self._foreign, *self._unfinished)}
            unwritten, self._unwritten = self._unwritten, {}
        still_open = dict(self._journal.open)
        for move, outcome in unwritten.items():
            if move in still_open:
                self._conclude(move, outcome)
        lost = {
            move: unload
            for move, unload in still_open.items()
            if move not in unwritten and unload.bundle not in under_way
        }
        with self._changed:
            self._foreign.extend(lost.values())
            inherited, self._inherited = {**self._inherited, **lost}, {}
        if inherited:
            work = partial(self._recover, inherited, unloader)
            try:
                begin(work, "lbd-recover")
            except ThreadError as error:  # the next turn tries again
                with self._changed:
                    self._inherited = inherited
                self._fail(error)
                return
            with self._changed:
                self._changed.wait_for(lambda: not self._foreign, seconds)

    def _recover(self, open_moves: dict[str, Unload], unloader: Callable[[], Unloader]) -> None:
        """Finish open moves. An heir counts from its own start: times of another machine's clock are not comparable."""
        started, heir = boot_seconds(), self._heir
        while open_moves:
            began = max(started, self._led_since)  # another one may have led in between
            if heir and (wait := began + HEIR_WAITS_SECONDS - boot_seconds()) > 0:
                threading.Event().wait(wait)
                continue
            open_moves = {
                move: unload
                for move, unload in open_moves.items()
                if not self._finish(move, unload, unloader, self._age(unload, boot_seconds() - began, heir=heir))
            }
            if open_moves:
                threading.Event().wait(RECOVERY_PAUSE_SECONDS)

    def _age(self, unload: Unload, waited: float, *, heir: bool) -> float:
        """Seconds, at least, since the last request for the move; ``waited`` is by a clock that cannot be set."""
        if heir:
            return waited - HEIR_WAITS_SECONDS
        return max(self._now() - self._journal.attempted_at.get(unload.bundle, 0.0), waited)

    def _finish(self, move: str, unload: Unload, unloader: Callable[[], Unloader], age_seconds: float) -> bool:
        fence = Fence(leads=partial(self._journal.confirm, move))
        try:
            outcome = unloader().finish(unload, age_seconds, fence)
        except Exception as error:  # noqa: BLE001 - see _safely
            outcome = unproven(
                Outcome(unload, Result.UNKNOWN, None, str(as_lbd_error(error)), noted=unload.destination)
            )
        if move not in dict(self._journal.open):  # another lbd has closed it meanwhile, as the leader topic says
            self._leave(unload)
            return True
        if outcome is None:
            return False
        self._conclude(move, outcome)
        self._doubt(move, outcome, unload, unloader)
        self._end(unload, outcome, self._foreign)
        return True

    def _leave(self, unload: Unload) -> None:
        """Nothing more is done for an open move, nor reported."""
        with self._changed:
            self._foreign.remove(unload)
            self._changed.notify_all()

    def _begin(self, run: _PlanRun, lane: Sequence[Unload]) -> None:
        """Begin a lane in a thread of its own; where the system has none left, its moves end as not sent."""
        try:
            begin(partial(self._work, run, lane), f"lbd-move-{lane[0].source}")
        except ThreadError as error:
            for unload in lane:
                self._end(unload, self._give_up(run, unload, error), self._unfinished)

    def _work(self, run: _PlanRun, lane: Sequence[Unload]) -> None:
        """Execute the moves of one lane, one after the other."""
        for number, unload in enumerate(lane):
            if number:
                run.stopped.wait(run.orders.pace.spacing_seconds)
            self._end(unload, self._safely(run, unload), self._unfinished)

    def _safely(self, run: _PlanRun, unload: Unload) -> Outcome | Skip:
        """Execute one move; an error in lbd itself ends the plan, and the next turn reports it."""
        try:
            with run.permits:
                outcome = self._move(run, unload)
        except Exception as error:  # noqa: BLE001 - the thread must survive, and the next turn reports the error
            return self._give_up(run, unload, error)
        self._count(run, unload, outcome)
        return outcome

    def _give_up(self, run: _PlanRun, unload: Unload, error: Exception) -> Skip:
        """Stop the plan after an error before a request: an error after one is an outcome."""
        why = f"not asked for: {as_lbd_error(error)}"
        self._fail(error)
        run.end(Reason.ROUND_STOPPED, why)
        return Skip(unload.bundle, Reason.ROUND_STOPPED, why)

    def _move(self, run: _PlanRun, unload: Unload) -> Outcome | Skip:
        """Try once, and once more if that may help; a landing on another broker is counted once, at the end.

        A bundle that stays is counted under the same lock as the check: no other lane fills the broker in between.
        """
        outcome = self._attempt(run, unload, 1, unload.source)
        if isinstance(outcome, Skip):
            return outcome
        with self._limiting:
            is_final = run.stop is not None or not self._worth_another(run, outcome)
            if is_final:
                self._take_landing(run, outcome)
        return outcome if is_final else self._again(run, unload, outcome)

    def _again(self, run: _PlanRun, unload: Unload, first: Outcome) -> Outcome:
        """Try again from the broker on which the first attempt ended: only the owner can unload the bundle."""
        outcome = first
        try:
            again = self._attempt(run, unload, 2, first.owner or unload.source)
        except Exception as error:  # noqa: BLE001 - see _safely; the first attempt's outcome is reported
            self._give_up(run, unload, error)
        else:
            outcome = first if isinstance(again, Skip) else again
        with self._limiting:
            self._take_landing(run, outcome)
        return outcome

    def _attempt(self, run: _PlanRun, unload: Unload, attempt: int, source: str) -> Outcome | Skip:
        """One attempt from the broker that has the bundle now; its outcome is that of the whole move."""
        own = replace(unload, source=source)
        with self._claim(*run.orders.pace.keys(own)):
            if run.stop:
                return Skip(unload.bundle, *run.stop)
            ready = run.orders.unloader.check(own)
            if isinstance(ready, Skip):
                return ready
            stop = run.stop or self._hold_now(run) or self._stays(run, unload)
            return Skip(unload.bundle, *stop) if stop else self._send(run, ready, attempt, unload)

    @staticmethod
    def _stays(run: _PlanRun, unload: Unload) -> tuple[Reason, str] | None:
        """Reason why this bundle stays, while others of the plan may move."""
        why = run.orders.unserved().get(bundle_namespace(unload.bundle))
        return None if why is None else (Reason.NOT_SERVED, why)

    @staticmethod
    def _hold_now(run: _PlanRun) -> tuple[Reason, str] | None:
        """Present hold; it ends the rest of the plan."""
        hold = run.orders.held()
        if hold is not None:
            run.end(*hold)
        return hold

    def _send(self, run: _PlanRun, ready: ReadyMove, attempt: int, whole: Unload) -> Outcome | Skip:
        """Send one request. Limits apply each time, retries included: every sent request counts."""
        with self._limiting:
            stop = run.stop or self._open(ready.move.bundle)
            if stop is not None:
                return Skip(ready.move.bundle, *stop)
            refusal = run.limits.sending_refusal(ready.move, self._journal.sent, self._now())
            if refusal is not None:
                return refusal
            move = self._journal.intend(ready.move, attempt)
            run.limits.take_sending(ready.move)
        with self._changed:
            self._doubts.pop(ready.move.bundle, None)
        try:
            outcome = replace(run.orders.unloader.send(self._fenced(run, ready, move)), attempts=attempt)
        except Exception as error:  # noqa: BLE001 - see _safely; it may have been sent
            outcome = unproven(
                Outcome(ready.move, Result.UNKNOWN, None, str(as_lbd_error(error)), attempt, noted=ready.notes)
            )
            self._fail(error)
        if not self._conclude(move, outcome):
            run.end(Reason.ROUND_STOPPED, "not asked for: the journal cannot be written")
        self._doubt(move, outcome, whole, lambda: run.orders.unloader)
        return _of_whole(whole, outcome)

    def _open(self, bundle: str) -> tuple[Reason, str] | None:
        """Reason why no second move of a bundle may begin: its plan may be older than what another lbd left open."""
        is_open = any(unload.bundle == bundle for _, unload in self._journal.open)
        return (Reason.MOVES_UNFINISHED, "a move of this bundle is open; not sent") if is_open else None

    def _fenced(self, run: _PlanRun, ready: ReadyMove, move: str) -> ReadyMove:
        """The move with its fence: another leader, a hold, or too long a time since its checks stops its requests."""

        def may_stay(broker: str) -> bool:
            with self._limiting:
                return run.limits.may_stay(ready.move, broker)

        fence = Fence(ready.checked_at, leads=partial(self._journal.confirm, move), held=run.orders.held)
        return replace(ready, fence=fence, may_stay=may_stay)

    def _conclude(self, move: str, outcome: Outcome) -> bool:
        """Write the outcome; False if that failed. The turn reports the outcome in either case."""
        try:
            self._journal.conclude(move, outcome)
        except Exception as error:  # noqa: BLE001 - see _safely
            self._fail(error)
            with self._changed:
                self._unwritten[move] = outcome
            return False
        return True

    def _doubt(self, move: str, outcome: Outcome, whole: Unload, unloader: Callable[[], Unloader]) -> None:
        """Check a doubtful outcome for a minute: a broker may act on what it refused or did not answer."""
        if outcome.result not in DOUBTFUL:
            return
        with self._changed:
            until = boot_seconds() + AMEND_FOR_SECONDS
            self._doubts[outcome.unload.bundle] = _Doubt(move, outcome, whole, unloader, until)
            try:
                self._amending = self._amending or begin(self._amend, "lbd-amend")
            except ThreadError as error:  # the next doubtful outcome tries again
                self._fail(error)

    def _amend(self) -> None:
        """Check doubtful outcomes until there are none."""
        while not self._closed.wait(AMEND_EVERY_SECONDS):
            for doubt in tuple(self._doubts.values()):
                self._look_again(doubt)
            with self._changed:
                if not self._doubts:
                    self._amending = None
                    return

    def _look_again(self, doubt: _Doubt) -> None:
        """Check one outcome again, unless a move of the same range, perhaps of the same bundle, is under way."""
        bundle, last = doubt.outcome.unload.bundle, boot_seconds() >= doubt.until
        keys = {bundle, bundle_range(bundle)}
        with self._changed:
            if self._doubts.get(bundle) is not doubt or self._busy & keys:
                return
            self._busy |= keys
        try:
            self._judge_again(doubt)
        except Exception as error:  # noqa: BLE001 - see _safely; a failed check is repeated
            if not isinstance(error, ObserveError):
                self._fail(error)
        finally:
            with self._changed:
                self._busy -= keys
                if last or doubt.outcome.result not in DOUBTFUL:
                    self._doubts.pop(bundle, None)
                self._changed.notify_all()

    def _judge_again(self, doubt: _Doubt) -> None:
        before = doubt.outcome
        outcome = doubt.unloader().judge(before.unload)
        if (outcome.result, outcome.owner) == (before.result, before.owner):
            return
        if self._doubts.get(before.unload.bundle) is not doubt:  # another lbd has begun to move it
            return
        detail = f"was {before.result.value} before; {outcome.detail}".removesuffix("; ")
        amended = replace(before, result=outcome.result, owner=outcome.owner, detail=detail, amended=True)
        self._journal.amend(doubt.move, amended)
        doubt.outcome, now = amended, _of_whole(doubt.whole, amended)
        with self._changed:
            self._amended.append(now)
        self._on_end(now)

    @staticmethod
    def _take_landing(run: _PlanRun, outcome: Outcome) -> None:
        """Count a bundle on the broker on which it landed instead; call it once for a move, under the lock."""
        if outcome.result is Result.ELSEWHERE and outcome.owner is not None:
            run.limits.take_landing(outcome.unload, outcome.owner)

    @staticmethod
    def _worth_another(run: _PlanRun, outcome: Outcome) -> bool:
        """Whether to try again: the bundle came back to its source, or landed on a broker that must not have it."""
        if outcome.result is Result.FAILED:
            return outcome.confirmed
        if outcome.result is not Result.ELSEWHERE or outcome.owner is None:
            return False
        return not run.limits.may_stay(outcome.unload, outcome.owner)

    @staticmethod
    def _count(run: _PlanRun, unload: Unload, outcome: Outcome | Skip) -> None:
        """End the plan if no broker leads, or after two misses in a row from one source.

        A refused check is no miss, and neither is a bundle that no longer exists.
        """
        if isinstance(outcome, Skip):
            if outcome.reason is Reason.LEADER_UNREACHABLE:
                run.end(outcome.reason, outcome.detail)
            return
        if outcome.result is Result.GONE:
            return
        run.misses[unload.source] = 0 if outcome.result is Result.LANDED else run.misses[unload.source] + 1
        if run.misses[unload.source] >= MISSES_THAT_STOP:
            run.end(Reason.ROUND_STOPPED, f"not asked for: two misses in a row from {unload.source}")

    @contextmanager
    def _claim(self, *keys: str) -> Iterator[None]:
        """Hold a source and a range: the leader of many versions keeps a destination by its range alone (#25518)."""
        with self._changed:
            self._changed.wait_for(lambda: self._busy.isdisjoint(keys))
            self._busy.update(keys)
        try:
            yield
        finally:
            with self._changed:
                self._busy.difference_update(keys)
                self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = self._failure or as_lbd_error(error)

    def _end(self, unload: Unload, outcome: Outcome | Skip, among: list[Unload]) -> None:
        """Finish a move. ``on_end`` is called first, so that it has run before :meth:`wait` returns."""
        try:
            self._on_end(outcome)
        except Exception as error:  # noqa: BLE001 - a listener's failure must not hold the moves; the turn reports it
            self._fail(error)
        with self._changed:
            if isinstance(outcome, Outcome):
                self._outcomes.append(outcome)
            else:
                self._skips.append(outcome)
            among.remove(unload)
            self._changed.notify_all()
