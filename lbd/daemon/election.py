"""Leader election among several lbds: the leader is the one that may write the leader topic; the others follow it.

A thread reads the topic, tries to become the writer, and gives up a role that it cannot hold. A new writer first reads
up to its own first line, so that it knows every intent of its predecessors.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lbd.clock import boot_seconds
from lbd.errors import LbdError, NotLeaderError, ObserveError, UsageError, as_lbd_error
from lbd.operations.drain import REPLACED
from lbd.pulsar.client import SharedLog
from lbd.pulsar.leader_topic import LeaderTopic
from lbd.pulsar.settings import ACKNOWLEDGED_WITHIN_SECONDS
from lbd.reason import Reason
from lbd.store.journal import Journal
from lbd.store.orders import FORMAT, ONLY_THE_LEADER, OrderList, Orders
from lbd.store.shared import Leads, NewerOrders, SharedJournal, SharedOrders, decoded, leads
from lbd.text import DAY_SECONDS, utc
from lbd.threads import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lbd.act.executor import Executor
    from lbd.clock import Timebase
    from lbd.config import Settings
    from lbd.operations.split import Splitting
    from lbd.permit.facts import Hold
    from lbd.pulsar.leader_topic import Writer
    from lbd.store.shared import Shared
    from lbd.store.state import StateDir


READ_SECONDS = 1.0
ELECT_EVERY_SECONDS = 2.0
AGAIN_AFTER_SECONDS = 2.0
REFUSALS_OF_A_CLIENT = 1000
"""A standby connects anew after half an hour: until it is closed a client keeps 6 kB of each producer that was refused.
"""

TIDY_EVERY_SECONDS = 3600.0
KEPT_SECONDS = 2 * DAY_SECONDS
"""Budgets look back a day; twice that bridges a standby whose clock or start is late."""

WRITERS_EVERY_SECONDS = 15.0
"""Longer than an lbd that was let write takes to say that it leads: who writes at two looks and has not is none."""

LEADS_UNWRITTEN_SECONDS = 30.0
"""How long an lbd leads while nothing can be written to its store, as on a full disk: without intents it moves nothing.
"""

STOP_SECONDS = 5.0
OWN_NAME = re.compile(r"lbd-.+-\d+-[0-9a-f]{4}")
"""As :func:`own_name` gives them."""


def own_name() -> str:
    """How this process is called where several are: by its machine and process id."""
    return f"lbd-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


@dataclass
class _TopicState:
    """State of the leader topic, and of the tries to write it. ``leader`` is the last lbd that began to lead.

    ``newer`` is the format of the last orders where this lbd cannot read it, else 0.
    ``writers`` are the names of those that were connected at the last look, ``stayed`` who was at the one before, too.
    """

    leader: Leads | None = None
    trouble: str = ""
    unread: int = 0
    newer: int = 0
    early_loss: str = ""
    writers: frozenset[str] = frozenset()
    stayed: tuple[Writer, ...] = ()

    @property
    def strangers(self) -> str:
        """Producers that keep every lbd from leading and do not lead; empty if there are none."""
        name = self.leader.name if self.leader is not None else ""
        names = sorted(str(writer) for writer in self.stayed if writer.producer_name != name)
        return "; ".join(names)


class Leadership:
    """Elects, follows, and says who leads. Thread-safe.

    ``on_gain`` is called when this lbd comes to lead, before anything may move; ``on_change`` with a sentence whenever
    it is known that somebody else leads, or nobody, and of each order taken over; ``on_words`` when :attr:`words` are
    others than before.
    """

    def __init__(
        self,
        name: str,
        journal: SharedJournal,
        now: Callable[[], float],
        connect: Callable[[], SharedLog],
        orders: SharedOrders,
        tidy: Callable[[], None] = lambda: None,
        writers: Callable[[], Sequence[Writer]] = tuple,
        early_loss: Callable[[], str] = str,
        url: str = "",
    ) -> None:
        """``connect`` opens the topic, ``tidy`` lets go of its old lines, ``writers`` says who is connected to write.

        ``early_loss`` says how lines are lost before their time. All of these raise :class:`LbdError`. ``url`` is the
        address of this lbd's API, for the refusals of the others.
        """
        self._writers, self._early_loss = writers, early_loss
        self.name, self.journal, self.orders, self._url = name, journal, orders, url
        orders.elsewhere = self._other
        self._now, self._connect, self._tidy = now, connect, tidy
        self.on_gain: Callable[[], None] = lambda: None
        self.on_change: Callable[[str], None] = lambda _: None
        self.on_words: Callable[[], None] = lambda: None
        self._announced = ""
        self._topic = _TopicState()
        self._leads, self._stopping = threading.Event(), threading.Event()
        self._refusals = 0
        self._elect_at = self._tidy_at = self._writers_at = self._losses_at = 0.0
        self._thread: threading.Thread | None = None

    def serve(self, executor: Executor, splitting: Splitting) -> None:
        """Hand the open moves and splits to these parts whenever this lbd comes to lead; none before."""

        def inherit() -> None:
            executor.halt(Reason.ROUND_STOPPED, REPLACED)
            splitting.halt()
            executor.inherit(dict(self.journal.open))
            splitting.inherit(dict(self.journal.open_splits))

        executor.inherit({})
        splitting.inherit({})
        self.journal.on_foreign, self.on_gain = executor.moved_elsewhere, inherit

    def start(self) -> None:
        """Begin to follow and to try, once. Raises :class:`~lbd.errors.ThreadError`."""
        self._thread = self._thread or begin(self._run, "lbd-leader")

    def stop(self) -> None:
        """Leave the topic to others, at once where its broker answers."""
        self._stopping.set()
        self._resign()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    @property
    def leading(self) -> bool:
        """Whether this lbd may move."""
        return self._leads.is_set() and self.journal.leading

    def wait(self, seconds: float) -> bool:
        """Whether this lbd leads within that time, from its start on."""
        self.start()
        return self._leads.wait(seconds) and self.leading

    def hold(self) -> Hold | None:
        """Why nothing may move from here."""
        return None if self.leading else (Reason.NOT_LEADER, self.words)

    @property
    def words(self) -> str:
        """Sentence that says who leads, as far as this lbd knows."""
        leader, trouble = self._topic.leader, self._topic.trouble
        if self.leading and leader is not None:
            return f"this lbd leads since {utc(leader.at)}"
        if self._topic.newer:
            return f"this lbd stands by: {self._newer}"
        if trouble:
            return f"who leads is not known: {trouble}"
        if strangers := self._topic.strangers:
            return f"this lbd stands by, no lbd can lead: leader.topic is written by {strangers}; stop that producer"
        who = "nobody leads yet"
        if leader is not None and leader.name != self.name:
            who = f"{leader} leads since {utc(leader.at)}"
        unwritable = "; its store cannot be written" if self.journal.unwritable_seconds else ""
        return f"this lbd stands by, {who}{unwritable}"

    @property
    def _newer(self) -> str:
        older = f"the orders in leader.topic are of a newer lbd, format {self._topic.newer}; this one reads {FORMAT}"
        return f"{older}: upgrade it, or let the newer one lead"

    def _other(self) -> NotLeaderError | None:
        """The refusal of an order that is for another lbd, as far as it is known that one leads."""
        leader = self._topic.leader if self._topic.leader and self._topic.leader.name != self.name else None
        if leader is None and not self._topic.newer:
            return None
        words = Reason.NOT_LEADER.message(f"{self.words}; {ONLY_THE_LEADER}")
        return NotLeaderError(words, leader.name, leader.url or None) if leader else NotLeaderError(words, None)

    def _resign(self) -> None:
        self.orders.resign()
        self.journal.resign()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the leader topic."""
        topic = self._topic
        unread = f"leader.topic: {topic.unread} lines cannot be read; is another lbd newer, or does another write?"
        forgets = "an lbd that was away for longer knows neither cool-downs nor budgets of before"
        texts = (
            unread if topic.unread else "",
            self._newer if topic.newer else "",
            f"leader.topic: {topic.early_loss}: {forgets}" if topic.early_loss else "",
            f"leader.topic: no lbd can lead, it is written by {topic.strangers}" if topic.strangers else "",
        )
        return tuple(filter(None, texts))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
                self._topic.trouble = ""
            except Exception as error:  # noqa: BLE001 - without its thread no lbd would lead; shown and tried again
                self._topic.trouble = str(as_lbd_error(error))
            self._lost()
            self._spoken()
            self._stopping.wait(AGAIN_AFTER_SECONDS)

    def _lost(self) -> None:
        if self._leads.is_set():
            self._leads.clear()
            self.on_change(f"leads no more{self._topic.trouble and f': {self._topic.trouble}'}")

    def _spoken(self) -> None:
        """Call ``on_words`` as soon as the words change, not with the next turn."""
        words = self.words
        if words != self._announced:
            self._announced = words
            self.on_words()

    def _follow(self) -> None:
        """Until the topic, or the right to write it, is lost, or after many refusals; then all begins anew, from its
        first line.
        """
        log, self._refusals = self._connect(), 0
        before, self._topic.unread = self._topic.leader, 0
        self._topic.newer = 0
        try:
            while self._take(log.read(READ_SECONDS)):
                pass  # what was written before this lbd came
            self._topic.trouble = ""
            self._heard(before)
            while not self._stopping.is_set() and self._tried(log):
                before = self._topic.leader
                self._spoken()
                self._take(log.read(READ_SECONDS), live=True)
                self._heard(before)
                self._spoken()
        finally:
            self._resign()
            log.close()

    def _tried(self, log: SharedLog) -> bool:
        """Try to lead where nobody does, not too often; False when what was had is lost.

        An lbd whose last write to its store failed does not try, and leads no longer if that lasts.
        """
        self._look_for_losses()
        unwritable_seconds = self.journal.unwritable_seconds
        if self._leads.is_set():
            if unwritable_seconds > LEADS_UNWRITTEN_SECONDS:
                raise UsageError(f"its store could not be written for {unwritable_seconds:.0f} s")
            tidied = self._tidied()
            if self.journal.leading:
                self.orders.publish(everything=tidied)
            return self.journal.leading and not log.lost()
        if time.monotonic() >= self._elect_at and not (self._topic.newer or unwritable_seconds):
            self._elect_at = time.monotonic() + ELECT_EVERY_SECONDS
            if log.elect():
                self._topic.writers, self._topic.stayed = frozenset(), ()
                self._begin(log)
            else:
                self._refusals += 1
                self._look_for_writers()
        return self._refusals < REFUSALS_OF_A_CLIENT

    def _look_for_writers(self) -> None:
        """Another lbd says in the topic that it leads; any other producer is only known to the topic's broker."""
        if time.monotonic() < self._writers_at:
            return
        self._writers_at = time.monotonic() + WRITERS_EVERY_SECONDS
        try:
            writers = self._writers()
        except LbdError:
            return  # a look in vain tells nothing, neither good nor bad
        self._topic.stayed = tuple(writer for writer in writers if writer.producer_name in self._topic.writers)
        self._topic.writers = frozenset(writer.producer_name for writer in writers)

    def _look_for_losses(self) -> None:
        if time.monotonic() < self._losses_at:
            return
        self._losses_at = time.monotonic() + TIDY_EVERY_SECONDS
        with suppress(LbdError):
            self._topic.early_loss = self._early_loss()

    def _begin(self, log: SharedLog) -> None:
        """Lead: everything that was written before is known, and open moves are taken over, before any is made."""
        term = secrets.token_hex(8)
        log.publish(leads(self._now(), self.name, term, self._url))
        deadline = boot_seconds() + ACKNOWLEDGED_WITHIN_SECONDS
        while self._topic.leader is None or self._topic.leader.term != term:
            if boot_seconds() > deadline:
                raise ObserveError("the leader topic cannot be read to its end")
            self._take(log.read(READ_SECONDS), live=True)
        self.orders.lead(log.publish)
        self.journal.lead(log.publish)
        self.on_gain()
        self._leads.set()
        self.on_change("leads")

    def _tidied(self) -> bool:
        """Trim old lines if that is due. Returns whether it was: the orders must then be published again."""
        if time.monotonic() < self._tidy_at:
            return False
        self._tidy_at = time.monotonic() + TIDY_EVERY_SECONDS
        try:
            self._tidy()
        except LbdError as error:
            self.on_change(f"old lines of the leader topic stay: {error}")
        return True

    def _take(self, lines: Sequence[bytes], *, live: bool = False) -> bool:
        if not lines:
            return False
        entries = [decoded(line) for line in lines]
        shared: list[Shared] = [entry for entry in entries if entry is not None and not isinstance(entry, NewerOrders)]
        self.journal.take(shared, live=live)
        for words in self.orders.take(entry for entry in shared if isinstance(entry, OrderList)):
            self.on_change(words)
        self._topic.unread += sum(entry is None for entry in entries)
        for entry in entries:
            if isinstance(entry, OrderList | NewerOrders):
                self._topic.newer = entry.format if isinstance(entry, NewerOrders) else 0
        self._topic.leader = next((entry for entry in reversed(shared) if isinstance(entry, Leads)), self._topic.leader)
        return True

    def _heard(self, before: Leads | None) -> None:
        """Another one that began after this lbd has taken its place."""
        now = self._topic.leader
        if now is not None and now != before and now.name != self.name:
            self._resign()
            self.on_change(f"{now.name} leads")


def leadership(settings: Settings, journal: SharedJournal, now: Callable[[], float]) -> Leadership:
    """The part for a live lbd. The topic is made, where it is not there, by who comes first."""
    name, topic = own_name(), settings.leader.topic
    admin = LeaderTopic(settings.pulsar, topic)

    def connect() -> SharedLog:
        admin.create()
        return SharedLog(settings.pulsar, topic, name)

    orders = SharedOrders(settings.state_dir, now)
    return Leadership(
        name,
        journal,
        now,
        connect,
        orders,
        lambda: admin.forget(KEPT_SECONDS),
        admin.writers,
        lambda: admin.early_loss(KEPT_SECONDS),
        settings.leader.api_url or settings.api.outer_url(socket.gethostname()),
    )


# --- role: alone, which is the default, or one of several that elect a leader

LED_WITHIN_SECONDS = 15.0
"""How long a command waits to lead, where no other lbd does."""


class Role(Protocol):
    """Whether this lbd may move. ``on_change`` hears of it in words, ``words`` says it at any time.

    ``on_words`` is called whenever these are others than before.
    """

    on_change: Callable[[str], None]
    on_words: Callable[[], None]

    @property
    def orders(self) -> Orders: ...
    @property
    def leading(self) -> bool: ...
    @property
    def words(self) -> str: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...
    def hold(self) -> Hold | None: ...
    def wait(self, seconds: float) -> bool: ...
    def serve(self, executor: Executor, splitting: Splitting) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Alone:
    """No other lbd is to be reckoned with: the lock of the state directory keeps those of this machine apart."""

    leading, words, warnings = True, "", ()

    def __init__(self, orders: Orders) -> None:
        """``orders`` are those of its state directory."""
        self.orders = orders
        self.on_change: Callable[[str], None] = lambda _: None
        self.on_words: Callable[[], None] = lambda: None

    def hold(self) -> None:
        """Nothing holds it."""

    def wait(self, seconds: float) -> bool:
        """It leads."""
        del seconds
        return True

    def serve(self, executor: Executor, splitting: Splitting) -> None:
        """Take nothing over: what the journal has open is this lbd's own."""

    def start(self) -> None:
        """There is nobody to follow."""

    def stop(self) -> None:
        """There is nobody to leave it to."""


def open_role(settings: Settings, state: StateDir, timebase: Timebase) -> tuple[Journal, Role]:
    """The journal of a state directory that is held, and where its lbd stands.

    One that only observes needs not agree with anybody.
    """
    now, boot = timebase.now, timebase.boot
    if settings.mode == "observe" or not settings.leader.enabled:
        return Journal(state.store, now, state_lost=lambda: state.lost, boot=boot), Alone(Orders(settings.state_dir))
    journal = SharedJournal(state.store, now, state_lost=lambda: state.lost, boot=boot)
    return journal, leadership(settings, journal, now)


def refuse_changes(before: Settings, settings: Settings) -> None:
    """Raises :class:`UsageError` for what a reload cannot change."""
    if settings.state_dir != before.state_dir:
        raise UsageError(f"state_dir: {settings.state_dir} takes effect with a restart, not with a reload")
    if settings.mode != before.mode and "observe" in {settings.mode, before.mode}:
        raise UsageError("mode: a change from or to observe takes effect with a restart, not with a reload")
    if settings.leader != before.leader:
        raise UsageError("leader: another value takes effect with a restart, not with a reload")
