"""A cluster whose load manager is changed while lbd runs: reports come from where the present one tells them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lbd.errors import ObserveError, UnheardError
from lbd.observe.observer import Observer
from lbd.pulsar import load_topics
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from tests import fake_pulsar
from tests.fake_pulsar import EXTENSIBLE, MODULAR, SIMPLE, FakePulsar
from tests.load_topics import Wires

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """Three brokers."""
    with fake_pulsar.started() as found:
        yield found


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Wires:
    """What is connected to the topics."""
    found = Wires()
    monkeypatch.setattr(load_topics, "Listening", lambda *_: found.connect())
    return found


@pytest.fixture
def observer(pulsar: FakePulsar, wires: Wires) -> Iterator[Observer]:
    """Of a cluster whose topics could be heard."""
    assert wires.made.empty()
    found = Observer(Admin(PulsarSettings(admin_urls=tuple(pulsar.urls), service_url="pulsar://a:6650")), time.time)
    yield found
    found.close()


def runs(pulsar: FakePulsar, manager: str) -> None:
    """All brokers run this one from now on."""
    for broker in pulsar.brokers:
        broker.runtime = {"loadManagerClassName": manager, "loadBalancerReportUpdateMinIntervalMillis": "0"}


def test_topics_are_heard_again_after_a_manager_that_lbd_cannot_read(
    pulsar: FakePulsar, wires: Wires, observer: Observer
):
    """What is not replaced by something else goes on."""
    runs(pulsar, EXTENSIBLE)
    with pytest.raises(UnheardError, match=r"sent no load data in the \d s that lbd has listened"):
        observer.observe()
    wire = wires.next()
    runs(pulsar, SIMPLE)
    with pytest.raises(ObserveError, match="does not support"):
        observer.observe()
    runs(pulsar, EXTENSIBLE)
    with pytest.raises(ObserveError, match="sent no load data"):
        observer.observe()
    assert not wire.closed.is_set(), "still heard"
    assert wires.made.empty()


def test_who_has_been_closed_says_so(observer: Observer):
    """A question of the API that began before settings were read again: it is asked once more, and is no bug."""
    observer.close()
    with pytest.raises(ObserveError, match="settings were read again"):
        observer.observe()


def test_how_bundles_are_handed_over_follows_the_manager(pulsar: FakePulsar, observer: Observer):
    """Modular brokers let go for whoever is looked up; after a change back they must be asked for, too."""
    seen = []
    for manager in (MODULAR, EXTENSIBLE, MODULAR):
        runs(pulsar, manager)
        try:
            observer.observe()
        except ObserveError:
            assert manager == EXTENSIBLE, "nobody tells anything on the topics"
        seen.append(observer.admin.transfers)
    assert seen == [False, True, False]
