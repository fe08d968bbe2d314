"""The topic that stands in for a broker's: one writes at a time, and who is silent, fenced or late does so no more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lbd.errors import ObserveError
from tests.chaos import topic
from tests.chaos.topic import Log, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Topic]:
    """A topic that this process can reach as an lbd does."""
    with Topic() as found:
        monkeypatch.setenv(topic.ADDRESS, str(found.port))
        monkeypatch.setenv(topic.OWN, "a1")
        yield found


def until(condition: Callable[[], object]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.02)


def test_one_writes_and_all_read(served: Topic) -> None:
    """From the first line on; the next one may write when that one leaves."""
    one, two = Log(), Log()
    assert one.elect()
    assert not two.elect()
    one.publish(b"line")
    with pytest.raises(ObserveError, match="fenced"):
        two.publish(b"other")
    one.close()
    until(two.elect)
    assert two.read(5) == Log().read(5) == served.lines == [b"line"]


def test_who_is_silent_loses_its_place(served: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that was stopped; it hears of it with its next line."""
    monkeypatch.setattr(topic, "PING_SECONDS", 60.0)
    monkeypatch.setattr(topic, "KEEP_ALIVE_SECONDS", 0.3)
    seen: list[str | None] = []
    served.on_writer = seen.append
    one = Log()
    assert one.elect()
    until(lambda: seen == ["a1", None])
    with pytest.raises(ObserveError):
        one.publish(b"line")
    monkeypatch.setattr(topic, "ACKNOWLEDGED_WITHIN_SECONDS", 0.1)
    until(one.lost)


def test_a_line_that_is_acknowledged_late_is_stored(served: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever wrote it does not know."""
    monkeypatch.setattr(topic, "PING_SECONDS", 60.0)
    one = Log()
    assert one.elect()
    monkeypatch.setattr(topic, "ACKNOWLEDGED_WITHIN_SECONDS", 0.1)
    served.acknowledged_after_seconds = 0.5
    with pytest.raises(ObserveError, match="no acknowledgement"):
        one.publish(b"line")
    assert served.lines == [b"line"]


def test_a_topic_that_is_gone_has_no_writer_and_no_reader(served: Topic) -> None:
    """Until it is back."""
    one = Log()
    assert one.elect()
    served.gone = True
    with pytest.raises(ObserveError):
        one.read(5)
    with pytest.raises(ObserveError):
        Log().read(1)
    served.gone = False
    assert Log().elect()
