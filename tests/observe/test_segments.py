"""Bundles whose segments changed, by the number of topics that reports count and by what brokers say of the topics."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from lbd.observe.observer import Observer
from lbd.observe.segments import MOST_REQUESTS
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.simulate.answers import Reply, ok, page
from tests import fake_splits
from tests.fake_pulsar import HALF_A_JSON, HTML_PAGE, SILENCE, scalable_topic
from tests.fake_splits import HIGH, LOW, NAMESPACE, SplittingPulsar, topic

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS = f"topic://{NAMESPACE}/orders"
LISTED, READ = f"/admin/v2/scalable/{NAMESPACE}", f"/admin/v2/scalable/{NAMESPACE}/orders"


@pytest.fixture
def pulsar() -> Iterator[SplittingPulsar]:
    """Two bundles with six topics each, one scalable topic, and brokers that may have such topics."""
    with fake_splits.busy() as cluster:
        for broker in cluster.brokers:
            broker.runtime["scalableTopicsEnabled"] = "true"
        yield cluster


@pytest.fixture
def observer(pulsar: SplittingPulsar) -> Iterator[Observer]:
    """It has observed one round."""
    found = Observer(Admin(PulsarSettings(admin_urls=tuple(pulsar.urls))), time.time)
    assert found.observe().snapshot.segments_changed == frozenset()
    yield found
    found.close()


def split_seconds_ago(seconds: float) -> Reply:
    """The topic, whose segment 0 was split into these two: 0 (0x4f9d6dd2) and 1 lie in LOW, 2 (0x8dcc0a0a) in HIGH."""
    metadata = json.loads(scalable_topic({1: (0, 0x7FFF), 2: (0x8000, 0xFFFF)}).body)
    at = (time.time() - seconds) * 1000
    metadata["segments"]["0"]["sealedAtMs"] = at
    for number in "12":
        metadata["segments"][number]["createdAtMs"] = at
    return ok(metadata)


def changed(pulsar: SplittingPulsar, observer: Observer, number: int = 99) -> set[str]:
    """What the next round finds, in which a bundle has one more topic."""
    pulsar.rated[topic(number)] = 1.0
    return set(observer.observe().snapshot.segments_changed)


def test_bundles_of_segments_that_were_created_or_sealed(pulsar: SplittingPulsar, observer: Observer):
    """That of the sealed segment, too, although its topics are as many as before."""
    pulsar.fault(READ, split_seconds_ago(60))
    pulsar.fault(LISTED, ok([ORDERS]))
    assert changed(pulsar, observer) == {LOW, HIGH}


def test_segments_that_did_not_change_lately(pulsar: SplittingPulsar, observer: Observer):
    """Another topic was created in the namespace."""
    pulsar.fault(READ, split_seconds_ago(600))
    pulsar.fault(LISTED, ok([ORDERS]))
    assert changed(pulsar, observer) == set()


def test_nothing_is_asked_while_the_number_of_topics_stays(pulsar: SplittingPulsar, observer: Observer):
    """Nor in the round after a change."""
    assert observer.observe().snapshot.segments_changed == frozenset()
    assert pulsar.asked("/scalable/") == []
    changed(pulsar, observer)
    assert len(pulsar.asked("/scalable/")) == 1
    observer.observe()
    assert len(pulsar.asked("/scalable/")) == 1


def test_brokers_without_scalable_topics_are_not_asked(pulsar: SplittingPulsar, observer: Observer):
    """As before 5.0, or where they are turned off."""
    for broker in pulsar.brokers:
        broker.runtime["scalableTopicsEnabled"] = "false"
    assert changed(pulsar, observer) == set()
    assert pulsar.asked("/scalable/") == []


def test_what_could_not_be_read_is_read_in_the_next_round(pulsar: SplittingPulsar, observer: Observer):
    """The round itself is whole."""
    pulsar.fault("/scalable/", page(500), times=len(pulsar.ids))
    pulsar.fault(READ, split_seconds_ago(60))
    pulsar.fault(LISTED, ok([ORDERS]))
    assert changed(pulsar, observer) == set()
    assert observer.observe().snapshot.segments_changed == {LOW, HIGH}


@pytest.mark.security("junk about scalable topics and their segments: the round is whole, and says nothing of them")
@pytest.mark.parametrize("listed", [ok({}), ok(["junk"]), ok(["topic://t"]), ok([ORDERS]), HTML_PAGE, SILENCE])
@pytest.mark.parametrize("read", [ok({"segments": {"0": {}}}), ok([]), HALF_A_JSON, page(403)])
def test_junk_is_no_change(pulsar: SplittingPulsar, observer: Observer, listed: Reply, read: Reply):
    """Whatever is sent instead of names and segments."""
    pulsar.fault(READ, read)
    pulsar.fault(LISTED, listed)
    assert changed(pulsar, observer) == set()


def test_requests_of_a_round_are_bounded(pulsar: SplittingPulsar, observer: Observer):
    """However many scalable topics there are."""
    pulsar.fault(f"{LISTED}/o", scalable_topic({}))
    pulsar.fault(LISTED, ok([f"topic://{NAMESPACE}/o{number}" for number in range(500)]))
    assert changed(pulsar, observer) == set()
    assert len(pulsar.asked("/scalable/")) == MOST_REQUESTS + 1
