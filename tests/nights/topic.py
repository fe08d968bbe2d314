"""The leader topic of a night: a log that one connection may write at a time, as a broker grants it.

A producer of a killed machine is gone at once; that of a machine that stands still or is cut off, when its broker has
heard nothing for :data:`KEEP_ALIVE_SECONDS`.
"""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING

from lbd.errors import ObserveError
from lbd.pulsar.settings import ACKNOWLEDGED_WITHIN_SECONDS
from tests.nights.scheduler import scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

KEEP_ALIVE_SECONDS = 60.0

INTENT = b'"event":"intent"'

NOTICED_SECONDS = 30.0
"""A client whose broker is silent learns of it by then."""


class Topic:
    """What the topic's broker keeps. ``gone``: no broker has it at the moment; ``deaf`` machines do not reach it."""

    def __init__(self, seed: int, reachable: Callable[[str], bool]) -> None:
        self.random = Random(f"topic {seed}")
        self._reachable = reachable
        self.lines: list[bytes] = []
        self.writer: Connection | None = None
        self.gone = False
        self.deaf: set[str] = set()
        self.at_intent: list[Callable[[str], None]] = []
        """Gets the machine that has written the next intent and waits for its acknowledgement, each for one."""
        self.changed = threading.Condition()

    def reaches(self, machine: str) -> bool:
        """Whether the machine and the topic's broker hear each other."""
        return machine not in self.deaf and self._reachable(machine)

    def expel(self, machine: str) -> None:
        """Its connection has ended."""
        if self.writer is not None and self.writer.machine == machine:
            self.writer = None

    def connect(self) -> Connection:
        """A connection of the running task's machine."""
        return Connection(self)


class Connection:
    """One lbd's view of the topic (:class:`lbd.daemon.election.Log`)."""

    def __init__(self, topic: Topic) -> None:
        current = scheduler().current
        assert current is not None
        self.machine, self._topic, self._read = current.machine, topic, 0
        self._silent_since: float | None = None
        self._travel()

    def read(self, seconds: float) -> list[bytes]:
        """The next lines; empty when none came within that time."""
        if self._topic.gone:
            raise ObserveError("no broker has the topic")
        with self._topic.changed:
            self._topic.changed.wait_for(
                lambda: len(self._topic.lines) > self._read and self._topic.reaches(self.machine), seconds
            )
            if not self._topic.reaches(self.machine):
                return []
            lines = self._topic.lines[self._read :]
            self._read += len(lines)
        return lines

    def elect(self) -> bool:
        """Become the writer, if there is none."""
        self._travel()
        with self._topic.changed:
            self._topic.writer = self._topic.writer or self
            return self._topic.writer is self

    def publish(self, line: bytes) -> None:
        """Write a line. It may be written although its acknowledgement is lost."""
        self._travel()
        with self._topic.changed:
            if self._topic.writer is not self:
                raise ObserveError("the topic cannot be written: fenced")
            self._topic.lines.append(line)
            self._topic.changed.notify_all()
        if self._topic.at_intent and INTENT in line:
            self._topic.at_intent.pop(0)(self.machine)
        self._travel()

    def lost(self) -> bool:
        """Whether another one may write, as far as this side knows."""
        if self._topic.reaches(self.machine):
            self._silent_since = None
            return self._topic.writer is not self or self._topic.gone
        self._silent_since = scheduler().seconds if self._silent_since is None else self._silent_since
        return scheduler().seconds - self._silent_since > NOTICED_SECONDS

    def close(self) -> None:
        """Leave it to others."""
        with self._topic.changed:
            if self._topic.writer is self:
                self._topic.writer = None

    def _travel(self) -> None:
        """There and back takes some time; what is not acknowledged within its own is given up."""
        scheduler().sleep(self._topic.random.uniform(0.001, 0.01))
        if self._topic.gone:
            raise ObserveError("no broker has the topic")
        if not self._topic.reaches(self.machine):
            scheduler().sleep(ACKNOWLEDGED_WITHIN_SECONDS)
            raise ObserveError(f"the topic's broker has not answered within {ACKNOWLEDGED_WITHIN_SECONDS:.0f} s")
