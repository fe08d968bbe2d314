"""Which of several lbds moves: the one that is let write the leader topic. The others follow what it writes there.

A thread of its own reads the topic, tries to become the writer, and gives up what it cannot hold. Whoever is let write
first reads on to its own first line, so that it knows every intent of those before it.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lbd.daemon.telling import utc
from lbd.errors import LbdError, ObserveError, told
from lbd.permit.budget import DAY_SECONDS
from lbd.pulsar.client import SharedLog
from lbd.pulsar.leader_topic import LeaderTopic
from lbd.pulsar.settings import ACKNOWLEDGED_WITHIN_SECONDS
from lbd.reason import Reason
from lbd.record.journal.shared import Leads, decoded, leads
from lbd.record.shared_orders import Ordered, SharedOrders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lbd.act.executor import Executor
    from lbd.config import Settings
    from lbd.cycle import Hold
    from lbd.daemon.splitting import Splitting
    from lbd.record.journal.shared import Shared, SharedJournal

READ_SECONDS = 1.0
ELECT_EVERY_SECONDS = 2.0
AGAIN_AFTER_SECONDS = 2.0
TIDY_EVERY_SECONDS = 3600.0
KEPT_SECONDS = int(2 * DAY_SECONDS)
"""Budgets look back a day; twice that bridges a standby whose clock or start is late."""

STOP_SECONDS = 5.0


class Log(Protocol):
    """The topic, as this machine is connected to it."""

    def read(self, seconds: float) -> Sequence[bytes]: ...
    def elect(self) -> bool: ...
    def publish(self, line: bytes) -> None: ...
    def lost(self) -> bool: ...
    def close(self) -> None: ...


def own_name() -> str:
    """How this process is called where several are: by its machine and process id."""
    return f"lbd-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


@dataclass
class _Seen:
    """What the topic and the tries to have it came to. ``leader`` is the last one that began."""

    leader: Leads | None = None
    trouble: str = ""
    unread: int = 0


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
        connect: Callable[[], Log],
        tidy: Callable[[], None] = lambda: None,
        orders: SharedOrders | None = None,
    ) -> None:
        """``connect`` opens the topic, ``tidy`` lets go of its old lines; both raise :class:`LbdError`."""
        self.name, self.journal, self._orders = name, journal, orders
        self._now, self._connect, self._tidy = now, connect, tidy
        self.on_gain: Callable[[], None] = lambda: None
        self.on_change: Callable[[str], None] = lambda _: None
        self.on_words: Callable[[], None] = lambda: None
        self._said = ""
        self._seen = _Seen()
        self._leads, self._stopping = threading.Event(), threading.Event()
        self._elect_at = self._tidy_at = 0.0
        self._thread = threading.Thread(target=self._run, name="lbd-leader", daemon=True)

    def serve(self, executor: Executor, splitting: Splitting) -> None:
        """Whose open moves and splits are taken over when this lbd comes to lead."""

        def inherit() -> None:
            executor.halt(Reason.ROUND_STOPPED, "not asked for: another lbd may have led since it was planned")
            splitting.halt()
            executor.inherit(dict(self.journal.open))
            splitting.inherit(dict(self.journal.open_splits))

        executor.inherit({})
        splitting.inherit({})
        self.journal.on_foreign, self.on_gain = executor.moved_elsewhere, inherit

    def start(self) -> None:
        """Begin to follow and to try, once."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Leave the topic to others, at once where its broker answers."""
        self._stopping.set()
        self.journal.resign()
        if self._thread.is_alive():
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
        """Who leads, as far as this lbd knows."""
        found, trouble = self._seen.leader, self._seen.trouble
        if self.leading and found is not None:
            return f"this lbd leads since {utc(found.at)}"
        if trouble:
            return f"who leads is not known: {trouble}"
        if found is None or found.name == self.name:
            return "this lbd stands by, nobody leads yet"
        return f"this lbd stands by, {found.name} leads since {utc(found.at)}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know of it."""
        lines = f"leader.topic: {self._seen.unread} lines cannot be read; is another lbd newer, or does another write?"
        return (lines,) if self._seen.unread else ()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
                self._seen.trouble = ""
            except Exception as error:  # noqa: BLE001 - without its thread no lbd would lead; it is told and tried again
                self._seen.trouble = str(told(error))
            self._lost()
            self._spoken()
            self._stopping.wait(AGAIN_AFTER_SECONDS)

    def _lost(self) -> None:
        if self._leads.is_set():
            self._leads.clear()
            self.on_change(f"leads no more{self._seen.trouble and f': {self._seen.trouble}'}")

    def _spoken(self) -> None:
        """Who leads is told at once, and not with the next turn."""
        words = self.words
        if words != self._said:
            self._said = words
            self.on_words()

    def _follow(self) -> None:
        """Until the topic, or the right to write it, is lost; then all begins anew, from its first line."""
        log = self._connect()
        before, self._seen.unread = self._seen.leader, 0
        try:
            while self._take(log.read(READ_SECONDS)):
                pass  # what was written before this lbd came
            self._seen.trouble = ""
            self._heard(before)
            while not self._stopping.is_set() and self._tried(log):
                before = self._seen.leader
                self._spoken()
                self._take(log.read(READ_SECONDS))
                self._heard(before)
                self._spoken()
        finally:
            self.journal.resign()
            log.close()

    def _tried(self, log: Log) -> bool:
        """Try to lead where nobody does, not too often; False when what was had is lost."""
        if self._leads.is_set():
            tidied = self._tidied()
            if self._orders is not None and self.journal.leading:
                self._orders.tell(log.publish, everything=tidied)
            return self.journal.leading and not log.lost()
        if time.monotonic() >= self._elect_at:
            self._elect_at = time.monotonic() + ELECT_EVERY_SECONDS
            if log.elect():
                self._begin(log)
        return True

    def _begin(self, log: Log) -> None:
        """Lead: everything that was written before is known, and open moves are taken over, before any is made."""
        term = secrets.token_hex(8)
        log.publish(leads(self._now(), self.name, term))
        deadline = time.monotonic() + ACKNOWLEDGED_WITHIN_SECONDS
        while self._seen.leader is None or self._seen.leader.term != term:
            if time.monotonic() > deadline:
                raise ObserveError("the leader topic cannot be read to its end")
            self._take(log.read(READ_SECONDS))
        if self._orders is not None:
            self._orders.tell(log.publish, everything=True)
        self.journal.lead(log.publish)
        self.on_gain()
        self._leads.set()
        self.on_change("leads")

    def _tidied(self) -> bool:
        """Whether it was time to let go of old lines; what still stands is to be told again then."""
        if time.monotonic() < self._tidy_at:
            return False
        self._tidy_at = time.monotonic() + TIDY_EVERY_SECONDS
        try:
            self._tidy()
        except LbdError as error:
            self.on_change(f"old lines of the leader topic stay: {error}")
        return True

    def _take(self, lines: Sequence[bytes]) -> bool:
        found = [decoded(line) for line in lines]
        known: list[Shared] = [entry for entry in found if entry is not None]
        self.journal.take(known)
        for words in self._orders.take(one for one in known if isinstance(one, Ordered)) if self._orders else ():
            self.on_change(words)
        self._seen.unread += len(found) - len(known)
        self._seen.leader = next((one for one in reversed(known) if isinstance(one, Leads)), self._seen.leader)
        return bool(lines)

    def _heard(self, before: Leads | None) -> None:
        """Another one that began after this lbd has taken its place."""
        now = self._seen.leader
        if now is not None and now != before and now.name != self.name:
            self.journal.resign()
            self.on_change(f"{now.name} leads")


def leadership(settings: Settings, journal: SharedJournal, now: Callable[[], float]) -> Leadership:
    """The part for a live lbd. The topic is made, where it is not there, by who comes first."""
    name, topic = own_name(), settings.leader.topic
    admin = LeaderTopic(settings.pulsar, topic)

    def connect() -> Log:
        admin.create()
        return SharedLog(settings.pulsar, topic, name)

    orders = SharedOrders(settings.state_dir, now)
    return Leadership(name, journal, now, connect, lambda: admin.forget(KEPT_SECONDS), orders)
