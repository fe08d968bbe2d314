"""What brokers told on the load data topics: recorded from a 4.0.8 cluster, and what becomes of it here."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lbd.errors import ObserveError
from lbd.pulsar.load_topics import BROKER_LOAD, TOP_BUNDLES, LoadTopics
from lbd.pulsar.settings import PulsarSettings
from tests.load_topics import FIRST, PATIENCE_SECONDS, SECOND, THIRD, Wire, Wires, heard, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = PulsarSettings(service_url="pulsar://127.0.0.1:6650")


@pytest.fixture
def wires() -> Wires:
    """None made yet."""
    return Wires()


@pytest.fixture
def topics(wires: Wires) -> Iterator[LoadTopics]:
    """Followed until the test ends."""
    found = LoadTopics(SETTINGS, wires.connect)
    yield found
    found.close()


def test_the_last_that_each_broker_told_stands(topics: LoadTopics, wires: Wires):
    """Of several messages of a broker the last one, and of both topics."""
    heard(topics, wires.next(), recorded(28.0))
    last = {one.topic: one.value for one in recorded(28.0) if one.key == FIRST}
    assert {topic: told.value for topic in last if (told := topics.of(topic, FIRST)) is not None} == last
    assert last.keys() == {BROKER_LOAD, TOP_BUNDLES}
    assert topics.trouble == ""


def test_what_is_taken_back_is_told_no_more(topics: LoadTopics, wires: Wires):
    """The two brokers of a move take back what they told; the third one's stands."""
    heard(topics, wires.next(), recorded(29.9))
    told = [topics.of(BROKER_LOAD, broker) for broker in (FIRST, SECOND, THIRD)]
    assert [one is not None and one.value != b"" for one in told] == [False, False, True]
    assert not topics.wait([FIRST], 0.0)


def test_they_tell_again_after_a_move(topics: LoadTopics, wires: Wires):
    """Half a second after it, as recorded."""
    heard(topics, wires.next(), recorded(30.5))
    assert topics.wait([FIRST, SECOND, THIRD], 0.0)


def test_who_took_it_back_is_waited_for(topics: LoadTopics, wires: Wires):
    """As long as it is said, and no longer than until the broker has told anew."""
    wire = wires.next()
    heard(topics, wire, recorded(29.9))
    none = topics.again(BROKER_LOAD, FIRST, 0.0)
    for message in recorded(30.5)[len(recorded(29.9)) :]:
        wire.messages.put(message)
    anew = topics.again(BROKER_LOAD, FIRST, PATIENCE_SECONDS)
    assert none is not None
    assert none.value == b""
    assert anew is not None
    assert anew.value.startswith(b'{"cpu"')


def test_waiting_ends_when_all_have_told(topics: LoadTopics, wires: Wires):
    """And not before: two of three in the first seconds, nobody else ever."""
    wire = wires.next()
    assert not topics.wait([FIRST], 0.0)
    heard(topics, wire, recorded(28.0))
    assert topics.wait([FIRST, SECOND, THIRD], 0.0)
    assert not topics.wait([FIRST, "127.0.0.4:18080"], 0.0)


@pytest.mark.parametrize("how", ["cut", "broken"])
def test_a_lost_connection_is_made_anew_and_what_was_heard_is_forgotten(topics: LoadTopics, wires: Wires, how: str):
    """What brokers took back meanwhile nobody has heard."""
    wire = wires.next()
    heard(topics, wire, recorded(28.0))
    wire.gone.set() if how == "cut" else wire.messages.put(ObserveError("no"))
    again = wires.next()
    assert wire.closed.is_set()
    assert topics.of(BROKER_LOAD, FIRST) is None
    heard(topics, again, recorded(10.5))
    assert topics.of(BROKER_LOAD, FIRST) is not None


def test_why_nothing_is_heard_is_told():
    """The trouble of the last try, until one succeeds."""
    tried = threading.Event()

    def connect() -> Wire:
        tried.set()
        raise ObserveError("the topics cannot be heard: AuthorizationError")

    found = LoadTopics(SETTINGS, connect)
    assert tried.wait(PATIENCE_SECONDS)
    assert not found.wait([FIRST], 10 * PATIENCE_SECONDS), "nobody waits for a connection that failed"
    found.close()
    assert found.trouble == "the topics cannot be heard: AuthorizationError"


def test_nobody_is_silent_while_nobody_listens(wires: Wires):
    """An hour without a connection tells nothing of a broker, nor does it hide how long there has been one since."""
    now, reachable = [0.0], threading.Event()

    def connect() -> Wire:
        if not reachable.is_set():
            raise ObserveError("no")
        return wires.connect()

    found = LoadTopics(SETTINGS, connect, lambda: now[0])
    assert not found.wait([FIRST], PATIENCE_SECONDS)
    now[0] = 1800.0
    found.of(BROKER_LOAD, FIRST)
    now[0] = 3600.0
    reachable.set()
    heard(found, wires.next(), [])
    assert found.heard_seconds(FIRST) == 0.0
    now[0] = 3700.0
    assert found.heard_seconds(FIRST) == 100.0
    found.close()


def test_without_an_address_nothing_is_begun():
    """The setting is named, and what it wants."""
    with pytest.raises(ObserveError, match=r"pulsar\.service_url is not set; wanted pulsar://host:6650"):
        LoadTopics(PulsarSettings())
