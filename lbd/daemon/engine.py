"""The one place where the real parts of a live lbd are put together: a cluster, a state directory, and its turns."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.act.executor import Executor
from lbd.act.orders import Orders, Pace
from lbd.act.placer import Placer
from lbd.act.unloader import Unloader
from lbd.cycle import CycleRecord, Hold, Parts, finish, turn
from lbd.cycle.calm import Watch
from lbd.cycle.chosen import gap_seconds, strategy_of, wanted_hits
from lbd.daemon.actuators import Acting, Beside, Observing
from lbd.daemon.journaled import forget_notes, journal_warnings
from lbd.daemon.keeper import Keeper
from lbd.daemon.learned import Learned
from lbd.daemon.placing import Placing
from lbd.daemon.policies import PolicyReader
from lbd.daemon.requests import OVERRIDDEN_HOLDS, Requests, ordered, overriding, split_hold, wanting, why
from lbd.daemon.splitting import Splitting
from lbd.daemon.splitting.looking import CLOCK
from lbd.daemon.taking_over import release_at_stop, watching
from lbd.daemon.timebase import SYSTEM, Timebase
from lbd.errors import LbdError, UsageError
from lbd.observe.observer import Observer
from lbd.permit.quiet_hours import quiet_until
from lbd.pulsar.admin import Admin
from lbd.reason import Reason
from lbd.record.control import Control, PlaceRequest, SplitRequest
from lbd.record.journal import LIVE_NAME, Journal
from lbd.record.remembered import Remembered
from lbd.record.state import Scratch, StateDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.config import Settings
    from lbd.cycle.watchdog import Alarm
    from lbd.daemon.taking_over import Asking
    from lbd.model import Outcome, Skip, Unload
    from lbd.record.control import Request, UnloadRequest

RECOVERED_WITHIN_SECONDS = 2.0
"""How long a command waits for moves that a killed process left open; a daemon goes on turning meanwhile."""

OBSERVED_BESIDE = frozenset({Reason.IN_BROKER_SHEDDING})
"""Under it a lbd that only observes still tells what it would move: it is tried while brokers balance themselves."""


class Engine:
    """A live lbd on a state directory that it holds: one turn after the other, and moves beside them.

    ``on_end`` hears of each move as it ends, from the thread that made it.
    """

    def __init__(
        self, settings: Settings, state: StateDir, journal: Journal, timebase: Timebase, *, observe_only: bool = False
    ) -> None:
        self.settings, self.timebase = settings, timebase
        self.on_end: Callable[[Outcome | Skip], None] = lambda _: None
        self._journal, self._memory = journal, Remembered(state)
        self._executor = Executor(journal, timebase.now, self._ended)
        self._control = Control(settings.state_dir)
        self.requests = Requests(self._control)
        self._keeper = Keeper(settings)
        self._observing = Observing() if observe_only else None
        self._observer = self._observe(settings)
        self._policies = PolicyReader(self._observer.admin)
        self.splitting = Splitting(journal, lambda: self._observer.admin, timebase.now, self._paused)
        self._watch, self._learn = Watch(), Learned(settings, timebase.now())
        self._placing = Placing(journal, self._ended)

    def _observe(self, settings: Settings) -> Asking:
        """A lbd that only observes takes nothing over either."""
        observer = Observer(Admin(settings.pulsar), self.timebase.now)
        return observer if self.observe_only else watching(settings, observer, self.timebase.now)

    def turn(self, on_plan: Callable[[tuple[Unload, ...]], None] = lambda _: None) -> CycleRecord:
        """One turn; its plan is begun and not waited for. Moves that a killed process left open are closed first."""
        return self._keeper.keep(self._turn(on_plan), self.timebase.now())

    def _turn(self, on_plan: Callable[[tuple[Unload, ...]], None]) -> CycleRecord:
        self._recover()
        record = turn(replace(self._parts(), on_plan=on_plan))
        if self._observing is not None:
            self._observing.seen(record)
        else:
            self.splitting.after(record, self.settings)
        try:
            forget_notes(self._journal, record)
        except LbdError as error:
            record = replace(record, error=record.error or error)
        return record

    def once(self, on_plan: Callable[[tuple[Unload, ...]], None] = lambda _: None) -> CycleRecord:
        """One turn, and the end of everything that it began."""
        self._recover(RECOVERED_WITHIN_SECONDS)
        record = self._turn(on_plan)
        self.wait()
        return self._keeper.keep(finish(self._parts(), record), self.timebase.now())

    def serve(self) -> None:
        """Begin what was asked for by hand next, unless anything is under way: it is judged alone."""
        if self.observe_only or not (self._executor.unfinished or self.splitting.hold()):
            request = self.requests.next(self.timebase.now())
            if request is not None:
                self._begin(request, self._beside)

    def by_hand(self, request: Request) -> None:
        """What a person asked for, to its end, where no turn runs beside it."""
        self._recover(RECOVERED_WITHIN_SECONDS)
        self._begin(request, self._alone)
        self.wait()
        finish(self._parts(), CycleRecord())

    def _begin(self, request: Request, parts: Callable[[UnloadRequest | None], Parts]) -> None:
        """What was asked for is begun, unless something holds it, and ends in an answer."""
        if isinstance(request, SplitRequest):
            hold = split_hold(request, self._held, self._executor.unfinished, observe_only=self.observe_only)
            self.splitting.serve(request, self.settings, self.requests, hold)
            return
        self.requests.begun(request)
        if self.observe_only:
            self.requests.refuse(request, "this lbd only observes (--observe)")
        else:
            self._judge(request, parts)

    def _judge(self, request: UnloadRequest | PlaceRequest, parts: Callable[[UnloadRequest | None], Parts]) -> None:
        try:
            if isinstance(request, PlaceRequest):
                placer = Placer(self._observer.admin, CLOCK, self._policies.forbids)
                self.requests.answer(request, self._placing.place(request, parts(None), placer))
            else:
                self._unload(request, overriding(parts(request), request))
        except LbdError as error:
            self.requests.fail(request, error)

    def _unload(self, request: UnloadRequest, parts: Parts) -> None:
        """A turn that wants just this, and ends in an answer."""
        request, parts, picked = self._placing.destination(request, parts)
        record = turn(wanting(parts, request, picked))
        if record.error is not None:
            self.requests.fail(request, record.error)
        elif not record.unloads:
            self.requests.refuse(request, why(record, request.bundle))

    def _alone(self, request: UnloadRequest | None) -> Parts:
        return replace(self._parts(), actuator=Acting(self._executor, self._orders(request)))

    def _beside(self, request: UnloadRequest | None) -> Parts:
        """Beside the turns: counters, samples and what has ended are left to them."""
        store = Scratch(self._memory.load(), self._memory.load_averages(self.timebase.now()))
        beside = Beside(self._executor, self._orders(request))
        return replace(self._parts(), actuator=beside, store=store, watch=Watch())

    def wait(self, seconds: float | None = None) -> bool:
        """Until no move and no split is under way; whether that was so within the time."""
        return self._executor.wait(seconds) and self.splitting.wait(seconds)

    @property
    def unfinished(self) -> tuple[Unload, ...]:
        """Moves under way."""
        return self._executor.unfinished

    @property
    def in_flight(self) -> int:
        """Moves whose request was, or may have been, sent, and which have no outcome yet."""
        return len(self._journal.open)

    @property
    def observe_only(self) -> bool:
        """Whether nothing is ever unloaded."""
        return self._observing is not None

    @property
    def attempts_last_hour(self) -> int:
        """Bundles that an unload was attempted on within the last hour."""
        return len({one.bundle for one in self._journal.sent if one.at >= self.timebase.now() - 3600})

    def since(self, unload: Unload) -> float:
        """When a move was begun, epoch seconds; 0 while it waits for its turn."""
        begun = any(unload.bundle == flying.bundle for _, flying in self._journal.open)
        return self._journal.attempted_at.get(unload.bundle, 0.0) if begun else 0.0

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """What the watchdog says since the last turn."""
        return self._keeper.alarms

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know of the state directory."""
        journal = journal_warnings(self._journal, self.settings.state_dir / LIVE_NAME)
        broken = f"{self._control.broken} requests by hand cannot be read and were set aside as *.broken"
        found = [*journal, broken if self._control.broken else "", self.requests.warning, *self.splitting.warnings]
        found.append(self._learn.trouble)
        return tuple(one for one in (*found, *self._keeper.warnings) if one)

    def take(self, settings: Settings) -> None:
        """Go on with other settings from the next turn on; counters, averages, journal and moves stay."""
        if settings.state_dir != self.settings.state_dir:
            raise UsageError(f"state_dir: {settings.state_dir} takes effect with a restart, not with a reload")
        self._executor.halt(Reason.ROUND_STOPPED, "not asked for: the settings were read again")
        self.splitting.halt()
        self._observer.close()
        self._keeper.take(settings)
        self.settings, self._observer = settings, self._observe(settings)
        self._policies = PolicyReader(self._observer.admin)
        self._learn.take(settings)

    def halt(self) -> None:
        """Begin no further unload of what was planned; those in flight go on to their end."""
        self._placing.stop()
        self.splitting.halt()
        self._executor.halt(Reason.ROUND_STOPPED, "not asked for: lbd was stopped")

    def restore(self) -> str:
        """At a plain stop: give in-broker shedding back where ``restore_on_stop`` asks for it; what was done, in words.

        Raises :class:`LbdError` when that failed; ``lbd release`` can try again.
        """
        return "" if self.observe_only else release_at_stop(self.settings, self._observer.admin, self.timebase.now)

    def flush(self) -> None:
        """Write what is kept in memory only. Raises :class:`LbdError`; a minute of averages is lost then."""
        self._learn.close()
        self._memory.close()

    def close(self) -> None:
        """Close what was opened."""
        self._observer.close()
        self._keeper.close()
        self._journal.close()

    def _recover(self, seconds: float = 0.0) -> None:
        if self._observing is None:
            self._executor.recover(self._unloader, seconds)
            self.splitting.recover()

    def _ended(self, ended: Outcome | Skip) -> None:
        try:
            self.on_end(ended)
        finally:
            self.requests.ended(ended)

    def _hold(self) -> Hold | None:
        said = self._observing.hold() if self._observing else None
        return self.splitting.hold() or self._paused() or said

    def _paused(self) -> Hold | None:
        return ordered(self._control, self.timebase.now())

    def _held(self) -> Hold | None:
        """What keeps a planned unload from being sent; quiet hours may begin while a plan is under way."""
        quiet = quiet_until(self.settings.guardrails.quiet_hours, self.timebase.now())
        return self._hold() or ((Reason.QUIET_HOURS, quiet[1]) if quiet is not None else None)

    def _unloader(self) -> Unloader:
        return Unloader(self._observer.admin, CLOCK, forbids=self._policies.forbids)

    def _orders(self, request: UnloadRequest | None = None) -> Orders:
        """A pause or quiet hours hold what is planned, too; a request by hand may override them."""
        pace = Pace.of(self.settings.guardrails)
        if request is None or request.override is None:
            return Orders(self._unloader(), pace, self._held)
        return Orders(self._unloader(), pace, passes=OVERRIDDEN_HOLDS)

    def _parts(self) -> Parts:
        settings = self.settings
        return Parts(
            observer=self._observer,
            strategy=strategy_of(settings),
            learn=self._learn,
            strategy_name=settings.strategy,
            weights=settings.weights,
            guardrails=settings.guardrails,
            isolation=self._policies.isolation,
            groups=self._policies.groups,
            attempted_at=lambda: self._journal.attempted_at,
            sent=lambda: self._journal.sent,
            watch=self._watch,
            store=self._memory,
            actuator=self._observing or Acting(self._executor, self._orders()),
            gap_seconds=gap_seconds(settings),
            ordered_hold=self._hold,
            ignored_holds=OBSERVED_BESIDE if self.observe_only else frozenset(),
            wanted_hits=wanted_hits(settings),
        )


@contextmanager
def engine(settings: Settings, *, observe_only: bool = False, timebase: Timebase = SYSTEM) -> Iterator[Engine]:
    """A live lbd. Raises :class:`~lbd.errors.RefusedError` when another one holds the state directory."""
    state = StateDir(settings.state_dir)
    with state.locked():
        found = Engine(settings, state, Journal(state.journal, timebase.now), timebase, observe_only=observe_only)
        try:
            yield found
        finally:
            found.close()
