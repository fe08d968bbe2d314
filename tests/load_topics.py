"""The load data topics as a test holds their other end, and what brokers of a 4.0.8 cluster told on them."""

from __future__ import annotations

import json
import queue
import threading
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from lbd.pulsar.client import Message
from lbd.pulsar.load_topics import BROKER_LOAD, TOP_BUNDLES

if TYPE_CHECKING:
    from lbd.pulsar.load_topics import LoadTopics

RECORDED = Path(__file__).parent / "data" / "extensible" / "messages-4.0.8.jsonl"
FIRST, SECOND, THIRD = (f"127.0.0.{number}:18080" for number in (1, 2, 3))
PATIENCE_SECONDS = 60.0
_MARKS = count()


def recorded(until_seconds: float) -> list[Message]:
    """The messages of the recording's first seconds."""
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    return [Message(topic, key, value.encode()) for at, topic, key, value in lines if at <= until_seconds]


@dataclass
class Wire:
    """The topics as a connection that a test holds the other end of."""

    messages: queue.Queue[Message | Exception] = field(default_factory=queue.Queue)
    followed: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)

    def receive(self, seconds: float) -> Message | None:
        """The next message that the test put in."""
        self.followed.set()
        try:
            found = self.messages.get(timeout=min(seconds, 0.05))
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def lost(self) -> bool:
        """Whether the test cut it."""
        return self.gone.is_set()

    def close(self) -> None:
        """Seen by the test."""
        self.closed.set()


@dataclass
class Wires:
    """Connections one after the other."""

    made: queue.Queue[Wire] = field(default_factory=queue.Queue)

    def connect(self) -> Wire:
        """A new one."""
        wire = Wire()
        self.made.put(wire)
        return wire

    def next(self) -> Wire:
        """The one that was made next."""
        return self.made.get(timeout=PATIENCE_SECONDS)


def heard(topics: LoadTopics, wire: Wire, messages: list[Message]) -> None:
    """Send messages, and wait until a last one for nobody has been heard, and so all of them.

    Until the connection is followed, the one before it may be told as lost, and nobody waits.
    """
    assert wire.followed.wait(PATIENCE_SECONDS)
    mark = f"mark {next(_MARKS)}"
    marks = [Message(topic, mark, b"{}") for topic in (BROKER_LOAD, TOP_BUNDLES)]
    for message in [*messages, *marks]:
        wire.messages.put(message)
    assert topics.wait([mark], PATIENCE_SECONDS)
