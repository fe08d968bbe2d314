"""Sampled topics of a bundle: what is asked of which broker, and what each answer says of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.observe.bundle_topics import bundle_topics
from lbd.permit.served import BundleTopics, TopicClients
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.simulate.answers import Reply, crash, ok, page, refused
from tests.fake_pulsar import HTML_PAGE, SILENCE, started
from tests.fake_splits import LOW, SplittingPulsar, topic
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pulsar() -> Iterator[SplittingPulsar]:
    """Two brokers; the first has the lower half of a namespace, with some of its ten topics."""
    with started(2, SplittingPulsar) as cluster:
        cluster.own(cluster.ids[0], {LOW: 100.0})
        cluster.rated = {topic(number): None for number in range(10)}
        yield cluster


def asked(pulsar: SplittingPulsar, broker: int = 0) -> BundleTopics:
    """What is found of the bundle at a broker."""
    admin = Admin(PulsarSettings(admin_urls=tuple(pulsar.urls), read_timeout_seconds=LIMIT_SECONDS))
    try:
        admin.active_brokers()
        return bundle_topics(admin, LOW, pulsar.ids[broker])
    finally:
        admin.close()


def users(publishers: list[str], consumers: list[str]) -> Reply:
    """A topic with clients that connected then."""
    of = [{"connectedSince": since, "address": "/192.0.2.1:1"} for since in publishers]
    readers = [{"connectedSince": since} for since in consumers]
    return ok({"publishers": of, "subscriptions": {"one": {"consumers": readers}, "idle": {"consumers": []}}})


def test_three_topics_are_asked_for_at_the_broker_itself(pulsar: SplittingPulsar):
    """One request for their names, one for each of them; nothing is asked of others, nor changed."""
    found = asked(pulsar)
    names = [one.topic for one in found.topics]
    assert len(names) == 3
    assert set(names) <= {one.name for one in pulsar.topics(LOW)}
    own = [one for one in pulsar.requests if "/stats" in one.path or "topicHash" in one.path]
    assert len(own) == 4
    assert {one.broker for one in own} == {pulsar.ids[0]}
    assert {one.method for one in own} == {"GET"}


REPLIES: dict[str, tuple[Reply, BundleTopics | None]] = {
    # what each topic answers, and what is found of one (None: all are left out)
    "producers and consumers": (
        users(["2026-11-25T12:00:05.25Z"], ["2026-11-25T13:00:03.123456789+01:00"]),
        BundleTopics((TopicClients("", 2, 1_795_608_003.123456),)),
    ),
    "clients that do not say since when": (users(["soon", ""], []), BundleTopics((TopicClients("", 2, None),))),
    "nobody": (users([], []), BundleTopics((TopicClients(""),))),
    "deleted": (refused(404, "Topic not found"), None),
    "another broker's by now": (Reply(307, location="http://192.0.2.1:8080/x"), None),
    "it does not load": (
        crash("Failed to load topic within timeout"),
        BundleTopics((TopicClients("", error="load topic"),)),
    ),
    "503": (page(503), BundleTopics((TopicClients("", error="HTTP 503"),))),
    "no answer in time": (Reply(silent=True), BundleTopics((TopicClients("", error="no answer in time"),))),
    "401": (page(401), BundleTopics(error="HTTP 401")),
    "a proxy's page": (HTML_PAGE, BundleTopics(error="cannot be read")),
    "the connection breaks": (SILENCE, BundleTopics(error="stats")),
}


@pytest.mark.security(
    "an answer about a topic that is late, refused or junk: only what clients would meet, too, counts against it"
)
@pytest.mark.usefixtures("silence_ends_at_once")
@pytest.mark.parametrize("case", REPLIES)
def test_an_answer_says_of_a_topic(pulsar: SplittingPulsar, case: str):
    """Only what a client would meet, too, is an error of the topic; all else says nothing of it."""
    reply, expected = REPLIES[case]
    pulsar.fault("/stats", reply)
    found = asked(pulsar)
    if expected is None:
        assert found == BundleTopics()
        return
    assert expected.error in found.error
    assert bool(expected.error) == bool(found.error)
    assert len(found.topics) == 3 * len(expected.topics)
    for wanted, one in zip(expected.topics, found.topics, strict=False):
        assert (one.clients, one.since) == (wanted.clients, wanted.since)
        assert wanted.error in one.error
        assert bool(wanted.error) == bool(one.error)


def test_a_broker_that_has_lost_the_bundle_is_not_to_blame(pulsar: SplittingPulsar):
    """Whether that is told at once, or only by topics that fail."""
    other = pulsar.ids[1]
    assert asked(pulsar, broker=1) == BundleTopics(gone=f"{other} does not own it any more")

    def moves() -> None:
        pulsar.owners[LOW] = other

    pulsar.fault("/stats", crash("not served by this instance"), then=moves)
    assert asked(pulsar) == BundleTopics(gone=f"{pulsar.ids[0]} does not own it any more")


def test_a_broker_that_cannot_be_reached_says_nothing(pulsar: SplittingPulsar):
    """Its bundles are no fault of the move."""
    pulsar.kill(pulsar.ids[0])
    found = asked(pulsar)
    assert (found.topics, found.gone) == ((), "")
    assert found.error
