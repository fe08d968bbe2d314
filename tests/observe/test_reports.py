"""Reports of the extensible manager's brokers, put together from what they told and what they own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lbd.errors import ObserveError, UnheardError
from lbd.observe.reports import AdminReports, TopicReports, report_source
from lbd.pulsar.admin import Admin
from lbd.pulsar.client import Message
from lbd.pulsar.load_topics import BROKER_LOAD, TOP_BUNDLES, LoadTopics
from lbd.pulsar.settings import PulsarSettings
from tests import fake_pulsar
from tests.fake_pulsar import EXTENSIBLE, MODULAR, SIMPLE, FakePulsar
from tests.load_topics import PATIENCE_SECONDS, Wires, heard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.load_topics import Wire

LARGE, SMALL = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
RUNTIME = {"loadManagerClassName": EXTENSIBLE, "statsUpdateFrequencyInSecs": "60"}


@dataclass
class Scene:
    """A cluster whose first broker owns two bundles, and the topics that it tells of itself on."""

    pulsar: FakePulsar
    topics: LoadTopics
    wire: Wire
    reports: TopicReports
    wires: Wires
    now: float = 0.0

    @property
    def broker(self) -> str:
        """The one that owns something."""
        return self.pulsar.ids[0]

    def told(self, *bundles: str, broker: str = "") -> None:
        """A broker tells its load, and of these bundles."""
        key = broker or self.broker
        load = {"cpu": {"usage": 20.0, "limit": 200.0}, "msgRateIn": 150.0, "topics": 2}
        top = [{"bundleName": bundle, "stats": {"msgRateIn": 100.0}} for bundle in bundles]
        values = {BROKER_LOAD: load, TOP_BUNDLES: {"topBundlesLoadData": top}}
        heard(
            self.topics, self.wire, [Message(topic, key, json.dumps(value).encode()) for topic, value in values.items()]
        )


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Nothing is told yet."""
    wires = Wires()
    with fake_pulsar.started() as pulsar:
        pulsar.own(pulsar.ids[0], {LARGE: 100.0, SMALL: 50.0})
        settings = PulsarSettings(admin_urls=tuple(pulsar.urls), service_url="pulsar://127.0.0.1:6650")
        found: list[Scene] = []
        topics = LoadTopics(settings, wires.connect, lambda: found[0].now if found else 0.0)
        found.append(Scene(pulsar, topics, wires.next(), TopicReports(Admin(settings), topics), wires))
        yield found[0]
        topics.close()


def test_what_is_told_and_what_is_owned_make_a_report(scene: Scene):
    """The bundle that is not told of is listed, and has no statistics."""
    scene.told(LARGE)
    report, _ = scene.reports.of(scene.broker, RUNTIME)
    assert (report.cpu.usage, report.msg_rate_in, report.num_topics) == (20.0, 150.0, 2)
    assert list(report.last_stats) == [LARGE]
    assert {LARGE, SMALL} <= set(report.bundles)


def test_a_broker_that_has_told_nothing_has_no_report(scene: Scene):
    """It is said how long it may take, and by which setting."""
    scene.told(LARGE)
    with pytest.raises(ObserveError, match=r"sent no load data in the .* 960 s \(loadBalancerReportUpdateMax"):
        scene.reports.of(scene.pulsar.ids[1], RUNTIME)


@pytest.mark.parametrize(("now", "late"), [(0.0, False), (959.0, False), (960.0, True)])
def test_who_has_begun_to_listen_has_missed_nothing(scene: Scene, now: float, late: bool):
    """A broker whose load stays as it is may be silent for a quarter of an hour; longer than that it is late."""
    scene.told(LARGE)
    with pytest.raises(UnheardError):
        scene.reports.of(scene.pulsar.ids[1], RUNTIME)
    scene.now = now
    with pytest.raises(ObserveError) as told:
        scene.reports.of(scene.pulsar.ids[1], RUNTIME)
    assert isinstance(told.value, UnheardError) is not late


@pytest.mark.parametrize(("heard_before", "late"), [(False, True), (True, False)])
def test_a_connection_that_is_lost_again_is_no_new_beginning(scene: Scene, heard_before: bool, late: bool):
    """Unless something was heard on it: else brokers that nobody can hear would never be late."""
    with pytest.raises(UnheardError):
        scene.reports.of(scene.pulsar.ids[1], RUNTIME)
    if heard_before:
        scene.told(LARGE)
    scene.now = 600.0
    scene.wire.gone.set()
    scene.wire = scene.wires.next()
    heard(scene.topics, scene.wire, [])
    scene.now = 1000.0
    with pytest.raises(ObserveError, match="sent no load data in the ") as told:
        scene.reports.of(scene.pulsar.ids[1], RUNTIME)
    assert isinstance(told.value, UnheardError) is not late


def test_no_time_counts_twice(scene: Scene):
    """A connection that heard nothing, and the one after it, have listened for as long as has passed."""
    with pytest.raises(UnheardError):
        scene.reports.of(scene.pulsar.ids[1], RUNTIME)
    scene.now = 450.0
    scene.wire.gone.set()
    scene.wire = scene.wires.next()
    heard(scene.topics, scene.wire, [])
    scene.now = 900.0
    with pytest.raises(UnheardError, match="in the 900 s that lbd has listened"):
        scene.reports.of(scene.pulsar.ids[1], RUNTIME)


def test_a_broker_that_joins_is_not_late(scene: Scene):
    """It has had no time to tell anything, however long lbd has listened for the others."""
    scene.told(LARGE)
    scene.now = 3600.0
    with pytest.raises(
        UnheardError, match=r"sent no load data in the 0 s that lbd has listened for it; a broker sends some within"
    ):
        scene.reports.of(scene.pulsar.ids[1], RUNTIME)
    scene.now = 3620.0
    with pytest.raises(UnheardError, match="in the 20 s that lbd has listened"):
        scene.reports.of(scene.pulsar.ids[1], RUNTIME)


def test_a_broker_that_took_it_back_has_no_report(scene: Scene):
    """Longer than it takes to tell it anew: it is said since when."""
    scene.told(LARGE)
    heard(scene.topics, scene.wire, [Message(topic, scene.broker, b"") for topic in (BROKER_LOAD, TOP_BUNDLES)])
    scene.now = 8.0
    with pytest.raises(ObserveError, match="withdrew its load data 8 s ago, as for a move, and has sent none since"):
        scene.reports.of(scene.broker, RUNTIME)


def test_a_turn_does_not_wait_for_a_broker_that_looks_seldom(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    """A quarter of a minute and what it may be late, whatever interval its configuration has."""
    waited = []
    monkeypatch.setattr(scene.topics, "again", lambda *asked: waited.append(asked[-1]))
    heard(scene.topics, scene.wire, [Message(BROKER_LOAD, scene.broker, b"")])
    for often in ("5000", "3600000", "junk"):
        with pytest.raises(ObserveError, match="sent no load data"):
            scene.reports.of(scene.broker, {**RUNTIME, "loadBalancerReportUpdateMinIntervalMillis": often})
    assert waited == [7.0, 17.0, 7.0]


@pytest.mark.parametrize(
    ("runtime", "seconds"),
    [
        ({}, 70),
        ({"loadBalancerReportUpdateMaxIntervalMinutes": "1", "statsUpdateFrequencyInSecs": "5"}, 70),
        ({"loadBalancerReportUpdateMaxIntervalMinutes": "0", "statsUpdateFrequencyInSecs": "5"}, 15),
        ({"statsUpdateFrequencyInSecs": "86400"}, 70),
    ],
)
def test_who_looks_once_waits_a_minute_at_most(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, runtime: dict[str, str], seconds: float
):
    """And ten seconds to connect; what may be silent for longer is not waited for."""
    waited, said = list[float](), list[str]()
    monkeypatch.setattr(scene.topics, "wait", lambda _, patience: waited.append(patience))
    scene.reports.listen([scene.broker], runtime, said.append)
    assert waited == [seconds]
    assert said == [f"Listening for the brokers' load data, {seconds} s at most."]


@pytest.mark.parametrize(
    ("minutes", "limit_seconds"), [("15", 960.0), ("1", 120.0), ("junk", 960.0), ("nan", 960.0), ("-1", 60.0)]
)
def test_what_is_too_old_is_no_report(scene: Scene, minutes: str, limit_seconds: float):
    """Older than a broker may be silent, and a minute more."""
    runtime = {**RUNTIME, "loadBalancerReportUpdateMaxIntervalMinutes": minutes}
    scene.told(LARGE)
    scene.now = limit_seconds
    assert scene.reports.of(scene.broker, runtime)
    scene.now = limit_seconds + 1
    with pytest.raises(ObserveError, match=f"sent its load data {limit_seconds + 1:.0f} s ago, wanted at most"):
        scene.reports.of(scene.broker, runtime)


def test_statistics_that_are_too_old_are_unknown(scene: Scene):
    """Three runs missed: the broker still has a report, and nobody knows what its bundles carry."""
    scene.told(LARGE)
    scene.now = 181.0
    report, _ = scene.reports.of(scene.broker, RUNTIME)
    assert report.last_stats == {}
    assert {LARGE, SMALL} <= set(report.bundles)


def test_a_broker_with_another_manager_is_named(scene: Scene):
    """In the midst of a change of managers."""
    scene.told(LARGE)
    with pytest.raises(ObserveError, match="runs ModularLoadManagerImpl, and others ExtensibleLoadManagerImpl"):
        scene.reports.of(scene.broker, {"loadManagerClassName": MODULAR})


def test_a_lost_connection_is_why(scene: Scene):
    """What the thread met is the reason, not the silence."""
    scene.told(LARGE)
    scene.wire.messages.put(ObserveError("the topics cannot be heard: Disconnected"))
    assert scene.wire.closed.wait(PATIENCE_SECONDS)
    scene.topics.close()
    with pytest.raises(ObserveError, match="the topics cannot be heard: Disconnected"):
        scene.reports.of(scene.broker, RUNTIME)


def test_the_manager_says_where_reports_come_from():
    """Of managers that tell nothing lbd could read it is said what to set."""
    admin = Admin(PulsarSettings())
    assert isinstance(report_source({}, admin), AdminReports)
    assert isinstance(report_source({"loadManagerClassName": MODULAR}, admin), AdminReports)
    with pytest.raises(ObserveError, match=r"pulsar\.service_url is not set"):
        report_source(RUNTIME, admin)
    with pytest.raises(ObserveError, match="runs SimpleLoadManagerImpl, which lbd does not support"):
        report_source({"loadManagerClassName": SIMPLE}, admin)
