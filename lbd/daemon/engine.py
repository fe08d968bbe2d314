"""A live lbd on a state directory: one turn after the other, its journal, and manual requests beside the turns."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lbd.clock import SYSTEM, Timebase
from lbd.daemon.dispatch import Dispatcher
from lbd.daemon.election import LED_WITHIN_SECONDS, open_role
from lbd.daemon.recorder import Keeper
from lbd.daemon.take_over import release_at_stop
from lbd.daemon.wiring import Assembled
from lbd.errors import LbdError, UsageError
from lbd.model import Skip
from lbd.notify.sender import Notifier
from lbd.operations.parts import print_wait
from lbd.operations.requests import ONLY_OBSERVES, Requests
from lbd.permit.budget import last_hour
from lbd.reason import Reason
from lbd.store.state import StateDir
from lbd.turn.parts import TurnResult
from lbd.turn.turn import finish, turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.config import Settings
    from lbd.daemon.election import Role
    from lbd.model import Outcome, Unload
    from lbd.observe.observer import Observer
    from lbd.permit.budget import LastHour
    from lbd.permit.facts import Hold
    from lbd.pulsar.broker_health import BrokerHealth
    from lbd.store.control import Request
    from lbd.store.journal import Journal
    from lbd.store.proposal import Proposal
    from lbd.turn.parts import Parts
    from lbd.turn.watchdog import Alarm
    from lbd.turn.waves import Rest


def forget_notes(journal: Journal, record: TurnResult) -> None:
    """Drop the notes of former leaders, which are gone with them; a note without a leader may be the present one's."""
    leader = record.observation.leader if record.observation is not None else None
    if leader is not None and leader.broker is not None:
        for bundle, note in journal.notes.items():
            if note.leader not in {None, leader.broker}:
                journal.note(bundle, None, None)


# --- engine

RECOVERED_WITHIN_SECONDS = 2.0
"""How long a command waits for moves that a killed process left open; a daemon goes on turning meanwhile."""


class Engine:
    """A live lbd on a state directory that it holds: one turn after the other, and moves beside them.

    ``on_end`` hears of each move as it ends, from the thread that made it. The service tells
    ``notifier`` of turns. ``journal`` is the only truth about moves, ``leading`` says whether this lbd may move, where
    several share a cluster. ``proof`` proves that clients of moved bundles are back. ``splitting``, ``draining`` and
    ``rolling`` work beside the turns.
    """

    def __init__(
        self,
        settings: Settings,
        state: StateDir,
        joined: tuple[Journal, Role],
        timebase: Timebase,
    ) -> None:
        self.on_end: Callable[[Outcome | Skip], None] = lambda _: None
        self._real = real = Assembled(settings, state, joined, timebase, self._ended)
        self.timebase, self.journal, self.leading, self.orders = timebase, real.journal, real.leading, real.orders
        self.proof, self.splitting = real.proof, real.splitting
        self.draining, self.rolling = real.draining, real.rolling
        self.requests = Requests()
        self._dispatcher = Dispatcher(self._real, self.requests)
        self._keeper = Keeper(settings)
        self.notifier = Notifier(settings.notify)
        self._rest: Rest | None = None
        self._term = self.journal.term

    @property
    def settings(self) -> Settings:
        """Those in force."""
        return self._real.settings

    @property
    def looking(self) -> Observer:
        """Observer of the cluster that takes nothing over."""
        return self._real.looking

    @property
    def cluster(self) -> str:
        """The cluster's name; empty until it is known."""
        return self._real.looking.admin.known_cluster

    @property
    def silences(self) -> BrokerHealth:
        """Unresponsive brokers, and since when."""
        return self._real.silences

    def turn(self, on_plan: Callable[[tuple[Unload, ...]], None] = lambda _: None) -> TurnResult:
        """One turn; its plan is begun and not waited for. Moves that a killed process left open are closed first."""
        self._plan_anew_after_others()
        parts = replace(self._real.turn_parts(), health=self._real.health)  # a single turn ends before its checks
        planning = replace(parts.planning, in_waves=parts.acts)
        record = self._turn(replace(parts, planning=planning, on_plan=on_plan, rest=self._rest))
        self._rest = record.plan.rest
        return self._keeper.keep(record, self.timebase.now())

    def _plan_anew_after_others(self) -> None:
        """Drop what was planned before another lbd may have led, however short that was."""
        if self._term != (term := self.journal.term):
            self._term, self._rest = term, None
            self._real.proposals.drop()
            self.draining.plan_anew()

    def _turn(self, parts: Parts) -> TurnResult:
        self._real.recover()
        record = turn(parts)
        record = replace(record, capacity=self._real.peaks.after(record))
        if self._real.observing is not None:
            self._real.observing.forget_calm(record)
        else:
            if self._real.asks:
                self._real.proposals.after(record)
            else:
                self.splitting.after(record, self.settings)
            self.draining.after(record)
            self.rolling.after(record)
            record = self._proven(record)
        try:
            if self.leading.leading:
                forget_notes(self.journal, record)
        except LbdError as error:
            record = replace(record, error=record.error or error)
        return record

    def _proven(self, record: TurnResult) -> TurnResult:
        """Add the service results since the last turn to the record; only the leader judges landings."""
        if self.leading.leading:
            self.proof.after(record)
        return replace(record, served=self.proof.ended())

    def once(self, on_plan: Callable[[tuple[Unload, ...]], None] = lambda _: None) -> TurnResult:
        """One turn, and the end of everything that it began."""
        self._real.looking.wait_to_hear(print_wait)
        self.leading.wait(LED_WITHIN_SECONDS)
        self._real.recover(RECOVERED_WITHIN_SECONDS)
        record = self._turn(replace(self._real.turn_parts(), on_plan=on_plan))
        self.wait()
        return self._keeper.keep(finish(self._real.parts(), record), self.timebase.now())

    def serve(self) -> None:
        """Begin the next request by hand. While anything is under way only the end of an order is begun.

        All else is judged alone. An heir learns the outcome of its predecessor's moves after a minute and more.
        """
        is_busy = not self.observe_only and bool(self._real.executor.unfinished or self.splitting.hold())
        self._dispatcher.go_on()  # what is over counts for no request
        request = self.requests.next(self.timebase.now(), ends_only=is_busy)
        if request is not None:
            self._dispatcher.begin(request, self._real.beside)
        self.go_on()

    def go_on(self, *, alone: bool = False) -> None:
        """Go on with a drain or a fill, if there is one; ``alone``: no turn beside it keeps what it notices."""
        self._plan_anew_after_others()
        parts = self._real.alone if alone else self._real.beside
        if not (self.observe_only or self.splitting.hold()):
            self.draining.step(lambda: self._real.tools(parts(None)))
            self.rolling.step(lambda: self._real.tools(parts(None)))

    def by_hand(self, request: Request) -> None:
        """Carry out a request by hand to its end, where no turn runs beside it."""
        self._real.looking.wait_to_hear(print_wait)
        self.leading.wait(LED_WITHIN_SECONDS)
        self._real.recover(RECOVERED_WITHIN_SECONDS)
        self._dispatcher.begin(request, self._real.alone)
        try:
            self.draining.to_the_end(partial(self.go_on, alone=True))
        finally:
            self.wait()
            finish(self._real.parts(), TurnResult())

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until no move and no split is under way, so that a plan is over; returns whether that was so in time."""
        is_idle = self._real.executor.wait(seconds) and self.splitting.wait(seconds)
        if is_idle:
            self._dispatcher.go_on()
        return is_idle

    @property
    def unfinished(self) -> tuple[Unload, ...]:
        """Moves under way."""
        return self._real.executor.unfinished

    @property
    def in_flight(self) -> int:
        """Moves whose request was, or may have been, sent, and which have no outcome yet."""
        return len(self.journal.open)

    @property
    def proposal(self) -> Proposal | None:
        """The plan that waits for approval."""
        return self._real.proposals.at(self.timebase.now())

    def proposed(self, name: str) -> Proposal | None:
        """A plan that may be approved."""
        return self._real.proposals.find(name, self.timebase.now())

    @property
    def observe_only(self) -> bool:
        """Whether nothing is ever unloaded."""
        return self._real.observing is not None

    def order_hold(self) -> Hold | None:
        """The reason why no order may begin now; None where it may."""
        return (Reason.OBSERVE_ONLY, ONLY_OBSERVES) if self.observe_only else self._real.hold()

    @property
    def last_hour(self) -> LastHour:
        """Unloads of the last hour."""
        return last_hour(self.journal.sent, self.timebase.now())

    def since(self, unload: Unload) -> float:
        """When a move was begun, epoch seconds; 0 while it waits for its turn."""
        is_open = any(unload.bundle == flying.bundle for _, flying in self.journal.open)
        return self.journal.attempted_at.get(unload.bundle, 0.0) if is_open else 0.0

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Alarms of the watchdog after the last turn."""
        return self._keeper.alarms

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for people on every part of this lbd, a sentence each."""
        messages = [*self.splitting.warnings, *self.draining.warnings, *self.leading.warnings]
        messages += [f"{namespace} stays: {why}" for namespace, why in self.proof.namespaces().items()]
        messages += [
            self.rolling.trouble,
            self._dispatcher.trouble,
            self.proof.trouble,
            self.notifier.trouble,
            self._real.unknown_moves.trouble,
        ]
        if (rests := self._real.unknown_moves.hold(self.timebase.now())) is not None:
            messages.append(rests[0].message(rests[1]))
        messages += [self._real.learned.saved.trouble, self._real.peaks.trouble]
        messages += self._real.policies.warnings
        messages += [
            self._real.looking.admin.http.trouble,
            self._real.looking.admin.trouble,
            self._real.live_cpu.trouble,
        ]
        messages += [self._real.health_checks.trouble] if self.settings.guardrails.avoid_slow_brokers else []
        messages += [self._real.topics.trouble] if self._real.settings.spread_in_force.by == "topic" else []
        return tuple(message for message in (*messages, *self._keeper.warnings) if message)

    @property
    def ended_by_resume(self) -> Iterator[str]:
        """The holds that a resume by a person ends, beside a pause."""
        label = Reason.NOT_SERVED.label
        if self.proof.hold() is not None:
            yield f"{label}: lbd goes on, though clients of a moved bundle are not back"
        else:
            for namespace in self.proof.namespaces():
                yield f"{label} of {namespace}: lbd goes on, though clients of a moved bundle of it are not back"
        if self._real.unknown_moves.hold(self.timebase.now()) is not None:
            yield f"{Reason.CHANGED_HANDS.label}: lbd goes on, though bundles changed owners while it was away"

    @property
    def holds_end_at(self) -> dict[Reason, float]:
        """When holds that the state of this lbd gives end by themselves, in epoch seconds."""
        return {Reason.NOT_SERVED: self.proof.ends_at, Reason.CHANGED_HANDS: self._real.unknown_moves.ends_at}

    def take(self, settings: Settings) -> None:
        """Go on with other settings from the next turn on; counters, averages, journal and moves stay."""
        self._real.take(settings)
        self._keeper.take(settings)
        self.notifier.take(settings.notify)
        self._rest = None

    def halt(self) -> None:
        """Begin no further unload of what was planned, and no request; those in flight go on to their end."""
        self.requests.close("lbd is ending")
        self._real.placing.stop()
        self.splitting.halt()
        self._real.executor.halt(Reason.ROUND_STOPPED, "not asked for: lbd was stopped")

    def restore(self) -> str:
        """At a plain stop: give in-broker shedding back where ``restore_on_stop`` asks for it; what was done, in words.

        Raises :class:`LbdError` when that failed; ``lbd release`` can try again.
        """
        if self.observe_only or not self.leading.leading:
            return ""
        return release_at_stop(self.settings, self._real.looking.admin, self.timebase.now)

    def flush(self) -> None:
        """Write what is kept in memory only. Raises :class:`LbdError`; a minute of averages is lost then."""
        self._real.learned.saved.close()
        self._real.peaks.close()
        self._real.memory.close()

    def close(self) -> None:
        """Close what was opened."""
        self.notifier.close()
        self._keeper.close()
        self._real.close()

    def _ended(self, end: Outcome | Skip) -> None:
        self.draining.ended(end)
        try:
            self.on_end(end)
        finally:
            if isinstance(end, Skip) or not end.amended:  # who asked by hand has had the answer
                self._dispatcher.ended(end)


@contextmanager
def engine(settings: Settings, *, timebase: Timebase = SYSTEM, new_journal: bool = False) -> Iterator[Engine]:
    """A live lbd. Raises :class:`~lbd.errors.RefusedError` when another one holds the state directory.

    Raises :class:`~lbd.errors.UsageError` where the journal is lost, unless a person accepts that: ``new_journal``.
    """
    state = StateDir(settings.state_dir)
    with state.locked():
        if lost := state.journal_lost:
            if not new_journal:
                raise UsageError(lost)
            state.forget_journal()
        joined = open_role(settings, state, timebase)
        with closing(joined[0]), closing(Engine(settings, state, joined, timebase)) as running:
            yield running
