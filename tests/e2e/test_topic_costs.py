"""Bundles with Pulsar's own topics on real brokers: lbd names by hash those that the brokers name by lookup."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from lbd.observe.observer import Observer
from lbd.permit.topic_costs import dear_kinds, topic_costs
from tests.e2e import naming, placing, probe
from tests.e2e.landing import admin_of
from tests.e2e.settings import AS_DELIVERED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.cluster import Cluster

BUNDLES = 8
REPORTED_SECONDS = 90.0
PARTITIONED: dict[str, Any] = AS_DELIVERED | {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": 2}
FUNCTIONS = ("metadata", "assignments", "coordinate")


def bundle_of(cluster: Cluster, topic: str) -> str:
    """The bundle that a broker names for a topic."""
    url = f"{cluster.admin_urls[0]}/lookup/v2/topic/{topic.replace('://', '/')}/bundle"
    answer = probe.ask(cluster, "GET", url)
    assert answer.ok, f"{answer.status_code} {answer.text}"
    return f"{'/'.join(topic.split('/')[2:4])}/{answer.text.strip(chr(34))}"


def filled(cluster: Cluster, name: str, bundles: int) -> list[str]:
    """A namespace with a loaded topic in each of its bundles, which are on all brokers in turn; the bundles."""
    made = placing.namespace(cluster, name, bundles)
    for number, bundle in enumerate(made):
        placing.place(cluster, bundle, cluster.brokers[number % len(cluster.brokers)])
        topic = naming.topic_in(bundle, "own")
        placing.create_topic(cluster, topic)
        url = f"{cluster.admin_urls[0]}/admin/v2/{topic.replace('://', '/')}/subscription/kept"
        assert probe.ask(cluster, "PUT", url).status_code == 204
    return made


def created(cluster: Cluster, namespace: str) -> set[str]:
    """What the brokers themselves have made of ``__change_events``: the topic or its partitions."""
    url = f"{cluster.admin_urls[0]}/admin/v2/namespaces/{namespace}/topics"
    listed = probe.ask(cluster, "GET", url, params={"mode": "ALL", "includeSystemTopic": "true"}).json()
    return {topic for topic in listed if "/__change_events" in topic}


def costs_seen(cluster: Cluster, wanted: set[str]) -> dict[str, float]:
    """The cost of each bundle that has any, as soon as reports show those wanted, or when the time is over."""
    with closing(Observer(admin_of(cluster), time.time)) as observer:
        deadline = time.monotonic() + REPORTED_SECONDS
        while True:
            seen = observer.observe()
            found = topic_costs(seen.snapshot, dear_kinds(seen.system_topics, {}))
            costs = {} if found is None else found.by_name(seen.snapshot)
            if wanted <= costs.keys() or time.monotonic() > deadline:
                return costs
            time.sleep(2)


def check(cluster: Cluster, ends: list[str], tell: Callable[[str], None]) -> None:
    """The brokers made the topics that lbd derives from their settings, and lbd says where the brokers look them up.

    A reader is a client on their reports. A namespace of one bundle has the topic, too, and no bundle that is dear.
    """
    stamp = time.time_ns()
    several, alone = f"{placing.TENANT}/dear{stamp}", f"{placing.TENANT}/alone{stamp}"
    bundles = filled(cluster, several.rpartition("/")[2], BUNDLES)
    single = filled(cluster, alone.rpartition("/")[2], 1)
    topics = {f"persistent://{several}/__change_events{end}" for end in ends}
    assert created(cluster, several) == topics
    assert created(cluster, alone)
    wanted = {bundle_of(cluster, topic) for topic in topics}
    costs = costs_seen(cluster, wanted)
    tell(f"{topics} in {wanted}; costs {costs}")
    assert {bundle: cost for bundle, cost in costs.items() if bundle in {*bundles, *single}} == dict.fromkeys(
        wanted, 10
    )


@pytest.mark.cluster(versions=["4.2.4"], settings=AS_DELIVERED)
def test_the_bundle_of_topic_policies(cluster: Cluster, tell: Callable[[str], None]):
    """As brokers create topics by default: one that is not partitioned."""
    check(cluster, [""], tell)


@pytest.mark.soak
@pytest.mark.cluster(versions=["4.2.4"], settings=PARTITIONED)
def test_the_bundles_of_partitioned_topic_policies(cluster: Cluster, tell: Callable[[str], None]):
    """Each partition falls into a bundle of its own name."""
    check(cluster, ["-partition-0", "-partition-1"], tell)


@pytest.mark.cluster(versions=["4.2.4"])
def test_the_bundles_of_function_workers(cluster: Cluster, tell: Callable[[str], None]):
    """While clients use their topics; no other kind costs, for these brokers keep no topic policies."""
    placing.namespace(cluster, "functions", BUNDLES, "public")
    topics = [f"persistent://public/functions/{name}" for name in FUNCTIONS]
    client = pulsar.Client(cluster.service_url)
    try:
        for topic in topics:
            client.subscribe(topic, "worker")
        wanted = {bundle_of(cluster, topic) for topic in topics}
        costs = costs_seen(cluster, wanted)
        tell(f"costs {costs}")
        assert costs == dict.fromkeys(wanted, 10)
    finally:
        client.close()
        placing.remove_namespace(cluster, "public/functions")
