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
from lbd.act.unload import unproven
from lbd.clock import boot_seconds
from lbd.errors import ObserveError, as_lbd_error
from lbd.model import Outcome, Result, Skip, Unload, bundle_range
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lbd.act.unload import ReadyMove, Unloader
    from lbd.errors import LbdError
    from lbd.permit.settings import Guardrails


class IntentLog(Protocol):
    """What the executor needs of the journal; it is used from several threads."""

    @property
    def open(self) -> tuple[tuple[str, Unload], ...]: ...
    @property
    def attempted_at(self) -> Mapping[str, float]: ...
    def intend(self, unload: Unload, attempt: int) -> str: ...
    def conclude(self, move: str, outcome: Outcome) -> None: ...
    def amend(self, move: str, outcome: Outcome) -> None: ...
    def confirm(self, move: str, again: bool) -> None: ...


class Accepts(Protocol):
    """Whether a bundle may stay on the broker where it landed instead; its load counts there then."""

    def __call__(self, unload: Unload, owner: str) -> bool: ...


@dataclass(frozen=True)
class Pace:
    """How fast: so long between two unloads from one source, and so many unloads at once.

    ``from_each`` may be in flight from one source. No two of the same range ever are, unless leaders know a destination
    by the bundle's full name: ``by_name``.
    """

    spacing_seconds: float = 0.0
    at_once: int = 4
    from_each: int = 1
    by_name: bool = False

    @classmethod
    def of(cls, guardrails: Guardrails) -> Pace:
        """As the guardrails have it."""
        return cls(guardrails.unload_spacing_seconds, guardrails.max_unloads_at_once)

    def keys(self, unload: Unload) -> tuple[str, ...]:
        """What an unload in flight keeps for itself."""
        span = unload.bundle if self.by_name else bundle_range(unload.bundle)
        return (span,) if self.from_each > 1 else (unload.source, span)

    def lanes(self, plan: Sequence[Unload]) -> list[list[Unload]]:
        """A plan cut into what is worked off one after the other, so many lanes for each source."""
        sources: dict[str, list[Unload]] = {}
        for unload in plan:
            sources.setdefault(unload.source, []).append(unload)
        cut = [own[at :: self.from_each] for own in sources.values() for at in range(self.from_each)]
        return [lane for lane in cut if lane]


@dataclass(frozen=True)
class FinishedMoves:
    """What ended since it was last asked for: proven outcomes, moves that were not sent, and why acting failed.

    ``unfinished`` are the moves that had not ended at that very moment. ``touched`` are the brokers of all of them, and
    of those told before, until :meth:`Executor.settled`. ``amended`` are outcomes that were told otherwise before.
    """

    outcomes: tuple[Outcome, ...] = ()
    skips: tuple[Skip, ...] = ()
    failure: LbdError | None = None
    unfinished: tuple[Unload, ...] = ()
    touched: frozenset[str] = frozenset()
    amended: tuple[Outcome, ...] = ()


@dataclass(frozen=True)
class Orders:
    """How a plan is to be worked off. ``held`` is asked before each request: why nothing may be begun now.

    ``passes`` are holds that a person has overridden for this plan.
    """

    unloader: Unloader
    pace: Pace = field(default_factory=Pace)
    held: Callable[[], tuple[Reason, str] | None] = lambda: None
    passes: frozenset[Reason] = frozenset()


def touched_brokers(unloads: Iterable[Unload], outcomes: Iterable[Outcome] = ()) -> set[str]:
    """The brokers that moves touch: both ends, and where a bundle landed instead."""
    landed = list(outcomes)
    ends = {end for move in [*unloads, *(one.unload for one in landed)] for end in (move.source, move.destination)}
    return {broker for broker in ends | {one.owner for one in landed} if broker is not None}


# --- dry-run


class DryRun:
    """Takes a plan and does nothing; the plan itself is the answer."""

    acts = False

    def collect(self) -> FinishedMoves:
        """Nothing: nothing was asked of any broker."""
        return FinishedMoves()

    def hand_over(self, plan: Sequence[Unload], accepts: Accepts) -> None:
        """Drop the plan."""

    def settled(self) -> None:
        """No broker was touched."""

    def halt(self, reason: Reason, detail: str) -> None:
        """Nothing is under way."""


# --- executor

MISSES_THAT_STOP = 2
"""Two unloads in a row from one source that did not land: something is wrong there that a third would not mend."""

RECOVERY_PAUSE_SECONDS = 1.0

DOUBTFUL = frozenset({Result.FAILED, Result.UNOWNED, Result.UNKNOWN})
"""Ends after which a broker may still act, or somebody take the bundle."""

AMEND_FOR_SECONDS = 60.0
"""How long ownership is looked at again after such an end: as long as brokers close topics at most."""

AMEND_EVERY_SECONDS = 5.0


@dataclass(eq=False)
class _PlanRun:
    """One plan under way. ``stop`` is why the rest of it is not begun, once it is known."""

    orders: Orders
    accepts: Accepts
    permits: threading.Semaphore
    misses: Counter[str] = field(default_factory=Counter)
    stopped: threading.Event = field(default_factory=threading.Event)
    stop: tuple[Reason, str] | None = None

    def end(self, reason: Reason, detail: str) -> None:
        """Begin no more of it."""
        self.stop = self.stop or (reason, detail)
        self.stopped.set()


@dataclass
class _Doubt:
    """A doubtful end as it was told last, until when (boot clock) it is looked at again, and by what."""

    move: str
    outcome: Outcome
    unloader: Callable[[], Unloader]
    until: float


class Executor:
    """Executes plans. Thread-safe; its threads do not keep the process from ending.

    ``on_end`` hears of each end, and once more of one that is amended.
    """

    def __init__(
        self, journal: IntentLog, now: Callable[[], float], on_end: Callable[[Outcome | Skip], None] = lambda _: None
    ) -> None:
        self._journal, self._now, self._on_end = journal, now, on_end
        self._changed = threading.Condition()
        self._accepting = threading.Lock()
        self._inherited = dict(journal.open)
        self._foreign: list[Unload] = list(self._inherited.values())
        self._unfinished: list[Unload] = []
        self._heir = False
        self._doubts: dict[str, _Doubt] = {}
        self._amended: list[Outcome] = []
        self._amending: threading.Thread | None = None
        self._closed = threading.Event()
        self._busy: set[str] = set()
        self._rounds: list[_PlanRun] = []
        self._outcomes: list[Outcome] = []
        self._skips: list[Skip] = []
        self._failure: LbdError | None = None
        self._touched: set[str] = set()

    @property
    def unfinished(self) -> tuple[Unload, ...]:
        """Moves handed over that have not ended, those of a killed process included."""
        with self._changed:
            return (*self._foreign, *self._unfinished)

    def inherit(self, found: Mapping[str, Unload]) -> None:
        """Take over these open moves of other processes, by id, but those that are worked on here, and no others.

        Another process may still be at them, until its fence has ended (``fence.py``).
        """
        with self._changed:
            self._heir = True
            for unload in self._inherited.values():
                self._foreign.remove(unload)
            busy = {unload.bundle for unload in (*self._foreign, *self._unfinished)}
            self._inherited = {move: unload for move, unload in found.items() if unload.bundle not in busy}
            self._foreign.extend(self._inherited.values())

    def moved_elsewhere(self, unload: Unload) -> None:
        """Another lbd moves this: both brokers must settle as if it were moved here."""
        with self._changed:
            self._touched |= touched_brokers((unload,))

    def start(self, plan: Sequence[Unload], accepts: Accepts, orders: Orders) -> None:
        """Take a plan over and return at once."""
        if not plan:
            return
        found = _PlanRun(orders, accepts, threading.Semaphore(orders.pace.at_once))
        with self._changed:
            self._rounds = [*self._rounds, found] if self._unfinished else [found]
            self._unfinished.extend(plan)
        for lane in orders.pace.lanes(plan):
            name = f"lbd-move-{lane[0].source}"
            threading.Thread(target=self._work, args=(found, lane), name=name, daemon=True).start()

    def collect(self) -> FinishedMoves:
        """What ended since the last call."""
        with self._changed:
            unfinished = (*self._foreign, *self._unfinished)
            self._touched |= touched_brokers(unfinished, self._outcomes)
            self._touched |= touched_brokers((), self._amended)
            ended = (tuple(self._outcomes), tuple(self._skips), self._failure, unfinished)
            amended, self._amended = tuple(self._amended), []
            self._outcomes, self._skips, self._failure = [], [], None
            return FinishedMoves(*ended, frozenset(self._touched), amended)

    def settled(self) -> None:
        """What was touched so far has been written down; what is still under way is told again."""
        with self._changed:
            self._touched.clear()

    def halt(self, reason: Reason, detail: str) -> None:
        """Begin no further unload of any plan; those in flight are brought to their end."""
        with self._changed:
            rounds = [found for found in self._rounds if reason not in found.orders.passes]
        for found in rounds:
            found.end(reason, detail)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether all moves that were handed over here have ended, within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished, seconds)

    def close(self) -> None:
        """Look at doubtful ends no more."""
        self._closed.set()

    def recover(self, unloader: Callable[[], Unloader], seconds: float = 0.0) -> None:
        """Begin, once, to give the moves of a killed process their outcome, beside the turns; wait so long for it.

        ``unloader`` is asked for each time: the settings may be read again meanwhile.
        """
        with self._changed:
            inherited, self._inherited = self._inherited, {}
        if inherited:
            threading.Thread(target=self._recover, args=(inherited, unloader), name="lbd-recover", daemon=True).start()
            with self._changed:
                self._changed.wait_for(lambda: not self._foreign, seconds)

    def _recover(self, left: dict[str, Unload], unloader: Callable[[], Unloader]) -> None:
        """What another machine's clock wrote is not compared with this one's: an heir counts from its own beginning."""
        begun, heir = boot_seconds(), self._heir
        if heir:
            threading.Event().wait(HEIR_WAITS_SECONDS)
        while left := {
            move: unload
            for move, unload in left.items()
            if not self._finished(move, unload, unloader, self._age(unload, boot_seconds() - begun, heir=heir))
        }:
            threading.Event().wait(RECOVERY_PAUSE_SECONDS)

    def _age(self, unload: Unload, waited: float, *, heir: bool) -> float:
        """How long ago the move was last asked for, at least; ``waited`` is an age that no clock can set back."""
        if heir:
            return waited - HEIR_WAITS_SECONDS
        return max(self._now() - self._journal.attempted_at.get(unload.bundle, 0.0), waited)

    def _finished(self, move: str, unload: Unload, unloader: Callable[[], Unloader], age_seconds: float) -> bool:
        fence = Fence(leads=partial(self._journal.confirm, move))
        try:
            outcome = unloader().finish(unload, age_seconds, fence)
        except Exception as error:  # noqa: BLE001 - see _safely
            outcome = unproven(
                Outcome(unload, Result.UNKNOWN, None, str(as_lbd_error(error)), noted=unload.destination)
            )
        if outcome is None:
            return False
        self._conclude(move, outcome)
        self._doubt(move, outcome, unloader)
        self._end(unload, outcome, self._foreign)
        return True

    def _work(self, found: _PlanRun, lane: Sequence[Unload]) -> None:
        """One lane's share of a plan, one after the other."""
        for number, unload in enumerate(lane):
            if number:
                found.stopped.wait(found.orders.pace.spacing_seconds)
            self._end(unload, self._safely(found, unload), self._unfinished)

    def _safely(self, found: _PlanRun, unload: Unload) -> Outcome | Skip:
        """The move's end; what fails in lbd itself ends the round, and the next turn tells it."""
        try:
            with found.permits:
                ended = self._move(found, unload)
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; the bug is told by the turn
            return self._given_up(found, unload, error)
        self._count(found, unload, ended)
        return ended

    def _given_up(self, found: _PlanRun, unload: Unload, error: Exception) -> Skip:
        """Nothing was sent, for what is sent ends in an outcome."""
        why = f"not asked for: {as_lbd_error(error)}"
        self._fail(error)
        found.end(Reason.ROUND_STOPPED, why)
        return Skip(unload.bundle, Reason.ROUND_STOPPED, why)

    def _move(self, found: _PlanRun, unload: Unload) -> Outcome | Skip:
        """The second attempt starts from where the first one ended: nobody else can unload it."""
        ended = self._attempt(found, unload, 1)
        if found.stop or isinstance(ended, Skip) or not self._worth_another(found, ended):
            return ended
        try:
            again = self._attempt(found, replace(unload, source=ended.owner or unload.source), 2)
        except Exception as error:  # noqa: BLE001 - see _safely; the first attempt was made, and is told
            self._given_up(found, unload, error)
            return ended
        return ended if isinstance(again, Skip) else replace(again, unload=unload)

    def _attempt(self, found: _PlanRun, unload: Unload, attempt: int) -> Outcome | Skip:
        with self._claimed(*found.orders.pace.keys(unload)):
            if found.stop:
                return Skip(unload.bundle, *found.stop)
            ready = found.orders.unloader.check(unload)
            if isinstance(ready, Skip):
                return ready
            stop = found.stop or self._held(found)
            return Skip(unload.bundle, *stop) if stop else self._sent(found, ready, attempt)

    @staticmethod
    def _held(found: _PlanRun) -> tuple[Reason, str] | None:
        """A hold that came after the plan holds for all that is left of it."""
        hold = found.orders.held()
        if hold is not None:
            found.end(*hold)
        return hold

    def _sent(self, found: _PlanRun, ready: ReadyMove, attempt: int) -> Outcome:
        with self._changed:
            self._doubts.pop(ready.move.bundle, None)
        move = self._journal.intend(ready.move, attempt)
        try:
            outcome = replace(found.orders.unloader.send(self._fenced(found, ready, move)), attempts=attempt)
        except Exception as error:  # noqa: BLE001 - see _safely; it may have been sent
            outcome = unproven(
                Outcome(ready.move, Result.UNKNOWN, None, str(as_lbd_error(error)), attempt, noted=ready.notes)
            )
            self._fail(error)
        if not self._conclude(move, outcome):
            found.end(Reason.ROUND_STOPPED, "not asked for: the journal cannot be written")
        self._doubt(move, outcome, lambda: found.orders.unloader)
        return outcome

    def _fenced(self, found: _PlanRun, ready: ReadyMove, move: str) -> ReadyMove:
        """What may stop it on its way: another lbd that leads, a hold, and the time since its checks."""

        def accepts(broker: str) -> bool:
            with self._accepting:
                return found.accepts(ready.move, broker)

        fence = Fence(ready.checked_at, leads=partial(self._journal.confirm, move), held=found.orders.held)
        return replace(ready, fence=fence, accepts=accepts)

    def _conclude(self, move: str, outcome: Outcome) -> bool:
        """What was moved is never forgotten, even when it cannot be written."""
        try:
            self._journal.conclude(move, outcome)
        except Exception as error:  # noqa: BLE001 - see _safely
            self._fail(error)
            return False
        return True

    def _doubt(self, move: str, outcome: Outcome, unloader: Callable[[], Unloader]) -> None:
        """A broker may act on what it refused or did not answer: for a minute it is seen to."""
        if outcome.result not in DOUBTFUL:
            return
        with self._changed:
            until = boot_seconds() + AMEND_FOR_SECONDS
            self._doubts[outcome.unload.bundle] = _Doubt(move, outcome, unloader, until)
            if self._amending is None:
                self._amending = threading.Thread(target=self._amend, name="lbd-amend", daemon=True)
                self._amending.start()

    def _amend(self) -> None:
        """Until there is no doubt left."""
        while not self._closed.wait(AMEND_EVERY_SECONDS):
            for doubt in tuple(self._doubts.values()):
                self._look_again(doubt)
            with self._changed:
                if not self._doubts:
                    self._amending = None
                    return

    def _look_again(self, doubt: _Doubt) -> None:
        """Not while a move of its range is under way, which may be of the very bundle."""
        bundle, last = doubt.outcome.unload.bundle, boot_seconds() >= doubt.until
        keys = {bundle, bundle_range(bundle)}
        with self._changed:
            if self._doubts.get(bundle) is not doubt or self._busy & keys:
                return
            self._busy |= keys
        try:
            self._looked_again(doubt)
        except Exception as error:  # noqa: BLE001 - see _safely; a broker that cannot be asked is asked again
            if not isinstance(error, ObserveError):
                self._fail(error)
        finally:
            with self._changed:
                self._busy -= keys
                if last or doubt.outcome.result not in DOUBTFUL:
                    self._doubts.pop(bundle, None)
                self._changed.notify_all()

    def _looked_again(self, doubt: _Doubt) -> None:
        before = doubt.outcome
        found = doubt.unloader().judge(before.unload)
        if (found.result, found.owner) == (before.result, before.owner):
            return
        detail = f"was {before.result.value} before; {found.detail}".removesuffix("; ")
        amended = replace(before, result=found.result, owner=found.owner, detail=detail, amended=True)
        self._journal.amend(doubt.move, amended)
        doubt.outcome = amended
        with self._changed:
            self._amended.append(amended)
        self._on_end(amended)

    def _worth_another(self, found: _PlanRun, outcome: Outcome) -> bool:
        """Once more when it came back to its source, or landed where it must not stay; else a miss is accepted."""
        if outcome.result is Result.FAILED:
            return outcome.confirmed
        if outcome.result is not Result.ELSEWHERE or outcome.owner is None:
            return False
        with self._accepting:
            return not found.accepts(outcome.unload, outcome.owner)

    @staticmethod
    def _count(found: _PlanRun, unload: Unload, ended: Outcome | Skip) -> None:
        """Without a leader no move can be sent; two misses running from one source would go on.

        A check is none, and a bundle that is no more is none either.
        """
        if isinstance(ended, Skip):
            if ended.reason is Reason.LEADER_UNREACHABLE:
                found.end(ended.reason, ended.detail)
            return
        if ended.result is Result.GONE:
            return
        found.misses[unload.source] = 0 if ended.result is Result.LANDED else found.misses[unload.source] + 1
        if found.misses[unload.source] >= MISSES_THAT_STOP:
            found.end(Reason.ROUND_STOPPED, f"not asked for: two misses in a row from {unload.source}")

    @contextmanager
    def _claimed(self, *keys: str) -> Iterator[None]:
        """Hold a source and a range: the leader of many versions knows a destination by its range alone (#25518)."""
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

    def _end(self, unload: Unload, ended: Outcome | Skip, among: list[Unload]) -> None:
        """Told before it counts as ended, so that who waits for the end has heard of it."""
        try:
            self._on_end(ended)
        except Exception as error:  # noqa: BLE001 - a listener's failure must not hold the moves; the turn tells it
            self._fail(error)
        with self._changed:
            if isinstance(ended, Outcome):
                self._outcomes.append(ended)
            else:
                self._skips.append(ended)
            among.remove(unload)
            self._changed.notify_all()
