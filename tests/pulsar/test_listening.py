"""When a connection to the load data topics is no longer good for what was heard on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from lbd.pulsar import client
from lbd.pulsar.client import GIVEN_UP_AFTER_SECONDS, Listening
from lbd.pulsar.load_topics import TOPICS
from lbd.pulsar.settings import PulsarSettings


@dataclass
class Consumer:
    """The library's, connected or not, and the time that it is."""

    is_up: bool = True
    now: float = 100.0
    told: list[str] = field(default_factory=list)

    def subscribe(self, topics: list[str], name: str, **_: Any) -> Consumer:
        """Of a client, as this one is its own."""
        assert tuple(topics) == TOPICS
        self.told.append(name)
        return self

    def is_connected(self) -> bool:
        """As the test has it."""
        return self.is_up


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    """In place of the library."""
    found = Consumer()
    monkeypatch.setattr(client, "library", lambda _: SimpleNamespace(PulsarException=OSError))
    monkeypatch.setattr(client, "connected", lambda *_: found)
    monkeypatch.setattr(client, "boot_seconds", lambda: found.now)
    return found


def test_a_connection_that_stays_is_not_lost(consumer: Consumer):
    """However often it is looked at."""
    heard = Listening(PulsarSettings(), TOPICS)
    assert consumer.is_up
    assert [heard.lost() for _ in range(3)] == [False] * 3


def test_one_that_came_back_by_itself_has_missed_something(consumer: Consumer):
    """Nothing is stored on these topics: what brokers told or took back meanwhile is not known."""
    heard = Listening(PulsarSettings(), TOPICS)
    consumer.is_up = False
    assert not heard.lost(), "it may come back"
    consumer.is_up = True
    assert heard.lost()


def test_one_that_stays_away_is_given_up(consumer: Consumer):
    """A new connection comes sooner than the library's own next try."""
    heard = Listening(PulsarSettings(), TOPICS)
    consumer.is_up = False
    assert not heard.lost()
    consumer.now += GIVEN_UP_AFTER_SECONDS + 0.1
    assert heard.lost()
