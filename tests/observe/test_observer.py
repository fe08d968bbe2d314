"""One round of reports, where an answer is another broker's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lbd.observe.observer import Observer
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.simulate.answers import ok, page
from tests import fake_pulsar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fake_pulsar import FakePulsar


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """At the leader's address the first broker's report and configuration are answered; that one does not shed."""
    with fake_pulsar.started() as cluster:
        other, leader = cluster.brokers[0].id, cluster.leader
        cluster.fault("load-report", ok(cluster.report(other)), broker=leader)
        yield cluster


def test_what_another_broker_answers_tells_nothing_of_the_one_asked(pulsar: FakePulsar):
    """Neither its load, nor whether it sheds: an unload that is sent there would come to somebody else, too."""
    observer = Observer(Admin(PulsarSettings(admin_urls=tuple(pulsar.urls))), time.time)
    found = observer.observe()
    observer.close()
    assert pulsar.leader is not None
    assert f"{pulsar.ids[0]} answered: does one address stand for several?" in found.missing[pulsar.leader]
    assert pulsar.leader not in found.snapshot.brokers.ids
    assert found.leader is None


def test_an_old_broker_that_gives_no_report_is_as_old_as_before():
    """Its readers may hang all the same: what never moves beside it does not move while it is silent."""
    with fake_pulsar.started() as cluster:
        for broker in cluster.brokers:
            broker.version = "4.2.4"
            broker.runtime |= {"systemTopicEnabled": "true", "topicLevelPoliciesEnabled": "true"}
        old = next(broker for broker in cluster.brokers if broker.id != cluster.leader)
        old.version = "4.0.8"
        observer = Observer(Admin(PulsarSettings(admin_urls=tuple(cluster.urls))), time.time)
        assert observer.observe().system_topics.readers_hang
        cluster.fault("load-report", page(500), broker=old.id)
        found = observer.observe()
        assert (list(found.missing), old.id in found.active) == ([old.id], True)
        assert found.system_topics.readers_hang
        cluster.faults.off()
        old.version = "4.2.4"
        assert not observer.observe().system_topics.readers_hang
        observer.close()
