"""The topic of leadership in memory: it lets one of them write at a time, as a broker does."""

from __future__ import annotations

import threading

from lbd.errors import ObserveError


class Topic:
    """What a broker keeps: lines, and who may write them. ``gone``: no broker has it at the moment."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.writer: Connection | None = None
        self.gone = False
        self.changed = threading.Condition()


class Connection:
    """One lbd's view of the topic."""

    def __init__(self, topic: Topic) -> None:
        if topic.gone:
            raise ObserveError("the topic cannot be read: no broker has it")
        self._topic, self._at = topic, 0

    def read(self, seconds: float) -> list[bytes]:
        topic = self._topic
        with topic.changed:
            topic.changed.wait_for(lambda: len(topic.lines) > self._at, min(seconds, 0.02))
            found = topic.lines[self._at :]
            self._at += len(found)
        return found

    def elect(self) -> bool:
        with self._topic.changed:
            self._topic.writer = self._topic.writer or self
            return self._topic.writer is self

    def publish(self, line: bytes) -> None:
        with self._topic.changed:
            if self._topic.writer is not self or self._topic.gone:
                raise ObserveError("the topic cannot be written: fenced")
            self._topic.lines.append(line)
            self._topic.changed.notify_all()

    def lost(self) -> bool:
        return self._topic.writer is not self or self._topic.gone

    def close(self) -> None:
        with self._topic.changed:
            if self._topic.writer is self:
                self._topic.writer = None
