"""Fake brokers with unusual settings do what real ones do: a lookup may spoil a bundle, or find no topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import requests

from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from tests import fake_pulsar
from tests.e2e import naming
from tests.fake_pulsar import HOT
from tests.silence import LIMIT_SECONDS
from tests.simulate import fakes

if TYPE_CHECKING:
    from collections.abc import Sequence


def look_up(broker: str, topic: str) -> int:
    """What a client is told in the end that looks a topic up at this broker."""
    path = topic.replace("://", "/")
    return requests.get(f"http://{broker}/lookup/v2/topic/{path}", timeout=LIMIT_SECONDS).status_code


def marked(brokers: Sequence[str], bundle: str) -> list[int]:
    """What clients of a persistent topic are told, before and after somebody looks a non-persistent one up.

    The bundle is released before each.
    """
    admin = Admin(PulsarSettings(admin_urls=tuple(f"http://{broker}" for broker in brokers)))
    statuses = []
    for _ in range(2):
        assert admin.unload(bundle, None, f"http://{brokers[0]}").status == 204
        statuses.append(look_up(brokers[0], naming.topic_in(bundle)))
        for broker in brokers:
            look_up(broker, naming.topic_in(bundle, "other", "non-persistent"))
    return statuses


@pytest.mark.parametrize(
    ("off", "after"), [((), 200), ((0, 2), 200), ((0, 1, 2), 503)], ids=["nowhere", "at two of three", "everywhere"]
)
def test_a_lookup_of_a_non_persistent_topic_marks_its_bundle(off: tuple[int, ...], after: int):
    """As on 4.0.8: from its next release on the leader places it only on brokers that have such topics."""
    with fake_pulsar.hot_broker() as pulsar:
        for number in off:
            pulsar.brokers[number].runtime["enableNonPersistentTopics"] = "false"
        assert marked(pulsar.ids, HOT[0]) == [200, after]
        able = {broker for number, broker in enumerate(pulsar.ids) if number not in off}
        assert after == 503 or pulsar.owners[HOT[0]] in able


def test_so_do_the_brokers_of_a_simulated_cluster():
    """They share these answers; who may have the bundle is the model's."""
    with fakes.hot(clients=0, runtime={"enableNonPersistentTopics": "false"}) as pulsar:
        assert marked(pulsar.brokers, next(iter(pulsar.owners()))) == [200, 503]


@pytest.mark.parametrize(("created", "status"), [("true", 200), ("false", 404)])
def test_a_lookup_of_a_topic_that_does_not_exist(created: str, status: int):
    """Where topics are not created by themselves it is refused, and nobody owns the bundle still."""
    with fakes.hot(clients=0, runtime={"allowAutoTopicCreation": created}) as pulsar:
        bundle, admin = next(iter(pulsar.owners())), Admin(PulsarSettings(admin_urls=pulsar.admin_urls))
        assert admin.unload(bundle, None, pulsar.admin_urls[0]).status == 204
        assert look_up(pulsar.brokers[0], naming.topic_in(bundle, "no")) == status
        assert (pulsar.owners()[bundle] is None) is (status == 404)
