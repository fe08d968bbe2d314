"""Works plans off beside the turns: one unload in flight for each source and each range, spaced, all in the journal.

A plan is cut into lanes, one for each source (of a drain several), and each lane is a thread of its own. Intent is on
disk before a request is sent, the outcome after it.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lbd.act.orders import Ended, brokers_of
from lbd.act.unloader import unproven
from lbd.errors import told
from lbd.model import Outcome, Result, Skip, Unload
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lbd.act.orders import Accepts, Journal, Orders
    from lbd.act.unloader import Ready, Unloader
    from lbd.errors import LbdError

MISSES_THAT_STOP = 2
"""Two unloads in a row from one source that did not land: something is wrong there that a third would not mend."""

RECOVERY_PAUSE_SECONDS = 1.0


@dataclass(eq=False)
class _Round:
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


class Executor:
    """Executes plans. Thread-safe; its threads do not keep the process from ending."""

    def __init__(
        self, journal: Journal, now: Callable[[], float], on_end: Callable[[Outcome | Skip], None] = lambda _: None
    ) -> None:
        self._journal, self._now, self._on_end = journal, now, on_end
        self._changed = threading.Condition()
        self._accepting = threading.Lock()
        self._inherited = dict(journal.open)
        self._foreign: list[Unload] = list(self._inherited.values())
        self._unfinished: list[Unload] = []
        self._busy: set[str] = set()
        self._rounds: list[_Round] = []
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
        """Take over these open moves of other processes, by id, but those that are worked on here, and no others."""
        with self._changed:
            for unload in self._inherited.values():
                self._foreign.remove(unload)
            busy = {unload.bundle for unload in (*self._foreign, *self._unfinished)}
            self._inherited = {move: unload for move, unload in found.items() if unload.bundle not in busy}
            self._foreign.extend(self._inherited.values())

    def moved_elsewhere(self, unload: Unload) -> None:
        """Another lbd moves this: both brokers must settle as if it were moved here."""
        with self._changed:
            self._touched |= brokers_of((unload,))

    def start(self, plan: Sequence[Unload], accepts: Accepts, orders: Orders) -> None:
        """Take a plan over and return at once."""
        if not plan:
            return
        found = _Round(orders, accepts, threading.Semaphore(orders.pace.at_once))
        with self._changed:
            self._rounds = [*self._rounds, found] if self._unfinished else [found]
            self._unfinished.extend(plan)
        for lane in orders.pace.lanes(plan):
            name = f"lbd-move-{lane[0].source}"
            threading.Thread(target=self._work, args=(found, lane), name=name, daemon=True).start()

    def collect(self) -> Ended:
        """What ended since the last call."""
        with self._changed:
            unfinished = (*self._foreign, *self._unfinished)
            self._touched |= brokers_of(unfinished, self._outcomes)
            ended = (tuple(self._outcomes), tuple(self._skips), self._failure, unfinished)
            self._outcomes, self._skips, self._failure = [], [], None
            return Ended(*ended, frozenset(self._touched))

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
        waited = 0.0
        while left := {
            move: unload for move, unload in left.items() if not self._closed(move, unload, unloader(), waited)
        }:
            threading.Event().wait(RECOVERY_PAUSE_SECONDS)
            waited += RECOVERY_PAUSE_SECONDS

    def _closed(self, move: str, unload: Unload, unloader: Unloader, waited: float) -> bool:
        """``waited`` is an age that no clock can set back."""
        age_seconds = max(self._now() - self._journal.attempted_at.get(unload.bundle, 0.0), waited)
        try:
            outcome = unloader.finish(unload, age_seconds)
        except Exception as error:  # noqa: BLE001 - see _safely
            outcome = unproven(Outcome(unload, Result.UNKNOWN, None, str(told(error)), noted=unload.destination))
        if outcome is None:
            return False
        self._conclude(move, outcome)
        self._end(unload, outcome, self._foreign)
        return True

    def _work(self, found: _Round, lane: Sequence[Unload]) -> None:
        """One lane's share of a plan, one after the other."""
        for number, unload in enumerate(lane):
            if number:
                found.stopped.wait(found.orders.pace.spacing_seconds)
            self._end(unload, self._safely(found, unload), self._unfinished)

    def _safely(self, found: _Round, unload: Unload) -> Outcome | Skip:
        """The move's end; what fails in lbd itself ends the round, and the next turn tells it."""
        try:
            with found.permits:
                ended = self._move(found, unload)
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; the bug is told by the turn
            return self._given_up(found, unload, error)
        self._count(found, unload, ended)
        return ended

    def _given_up(self, found: _Round, unload: Unload, error: Exception) -> Skip:
        """Nothing was sent, for what is sent ends in an outcome."""
        why = f"not asked for: {told(error)}"
        self._fail(error)
        found.end(Reason.ROUND_STOPPED, why)
        return Skip(unload.bundle, Reason.ROUND_STOPPED, why)

    def _move(self, found: _Round, unload: Unload) -> Outcome | Skip:
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

    def _attempt(self, found: _Round, unload: Unload, attempt: int) -> Outcome | Skip:
        with self._claimed(*found.orders.pace.keys(unload)):
            if found.stop:
                return Skip(unload.bundle, *found.stop)
            ready = found.orders.unloader.check(unload)
            if isinstance(ready, Skip):
                return ready
            stop = found.stop or self._held(found)
            return Skip(unload.bundle, *stop) if stop else self._sent(found, ready, attempt)

    @staticmethod
    def _held(found: _Round) -> tuple[Reason, str] | None:
        """A hold that came after the plan holds for all that is left of it."""
        hold = found.orders.held()
        if hold is not None:
            found.end(*hold)
        return hold

    def _sent(self, found: _Round, ready: Ready, attempt: int) -> Outcome:
        move = self._journal.intend(ready.move, attempt)
        try:
            outcome = replace(found.orders.unloader.send(ready), attempts=attempt)
        except Exception as error:  # noqa: BLE001 - see _safely; it may have been sent
            outcome = unproven(Outcome(ready.move, Result.UNKNOWN, None, str(told(error)), attempt, noted=ready.noted))
            self._fail(error)
        if not self._conclude(move, outcome):
            found.end(Reason.ROUND_STOPPED, "not asked for: the journal cannot be written")
        return outcome

    def _conclude(self, move: str, outcome: Outcome) -> bool:
        """What was moved is never forgotten, even when it cannot be written."""
        try:
            self._journal.conclude(move, outcome)
        except Exception as error:  # noqa: BLE001 - see _safely
            self._fail(error)
            return False
        return True

    def _worth_another(self, found: _Round, outcome: Outcome) -> bool:
        """Once more when it came back to its source, or landed where it must not stay; else a miss is accepted."""
        if outcome.result is not Result.ELSEWHERE or outcome.owner is None:
            return False
        with self._accepting:
            return outcome.owner == outcome.unload.source or not found.accepts(outcome.unload, outcome.owner)

    @staticmethod
    def _count(found: _Round, unload: Unload, ended: Outcome | Skip) -> None:
        """Without a leader no move can be sent; two misses running from one source would go on. A check is none."""
        if isinstance(ended, Skip):
            if ended.reason is Reason.LEADER_UNREACHABLE:
                found.end(ended.reason, ended.detail)
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
            self._failure = self._failure or told(error)

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
