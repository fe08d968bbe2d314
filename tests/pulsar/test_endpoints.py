"""What requests are called where they are counted: by a closed list, whatever names stand in them."""

from __future__ import annotations

import pytest

from lbd.pulsar import paths
from lbd.pulsar.http import ADMIN_SECONDS, count_request
from lbd.pulsar.request_table import ADMIN, OTHER, REQUESTS, endpoint

BUNDLE = "a b/n/0x00000000_0x40000000"
READY, UNLOAD = "/admin/v2/brokers/ready", "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/unload"
TOPIC = "persistent://t/n/topic"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (paths.CLUSTERS, "clusters"),
        (paths.LOAD_REPORT, "broker-stats/load-report"),
        (paths.READY, "brokers/ready"),
        (paths.VERSION, "brokers/version"),
        (paths.LEADER, "brokers/leaderBroker"),
        (paths.RUNTIME_CONFIGURATION, "brokers/configuration/runtime"),
        (paths.DYNAMIC_CONFIGURATION, "brokers/configuration/values"),
        (paths.TOPIC_STATS, "broker-stats/topics"),
        (paths.MBEANS, "broker-stats/mbeans"),
        (paths.brokers("c"), "brokers/{cluster}"),
        (paths.dynamic("k"), "brokers/configuration/{setting}"),
        (paths.dynamic("k", "v"), "brokers/configuration/{setting}/{value}"),
        (paths.owned_namespaces("c", "b:80"), "brokers/{cluster}/{broker}/ownedNamespaces"),
        (paths.namespace("t/n"), "namespaces/{tenant}/{namespace}"),
        (paths.bundles("t/n"), "namespaces/{tenant}/{namespace}/bundles"),
        (paths.anti_affinity("t/n"), "namespaces/{tenant}/{namespace}/antiAffinity"),
        (paths.anti_affinity("pulsar/c/b:80"), "namespaces/{tenant}/{cluster}/{namespace}/antiAffinity"),
        (paths.anti_affinity_namespaces("c", "g", "t"), "namespaces/{cluster}/antiAffinity/{group}"),
        (paths.failure_domains("c"), "clusters/{cluster}/failureDomains"),
        (paths.isolation_policies("c"), "clusters/{cluster}/namespaceIsolationPolicies"),
        (paths.unload(BUNDLE), "namespaces/{tenant}/{namespace}/{bundle}/unload"),
        (paths.split(BUNDLE), "namespaces/{tenant}/{namespace}/{bundle}/split"),
        (paths.topics("t/n"), "namespaces/{tenant}/{namespace}/topics"),
        (paths.topic_hash_positions(BUNDLE), "namespaces/{tenant}/{namespace}/{bundle}/topicHashPositions"),
        (paths.topic(TOPIC), "persistent/{tenant}/{namespace}/{topic}"),
        (paths.topic_stats(TOPIC), "persistent/{tenant}/{namespace}/{topic}/stats"),
        (paths.topic_ttl(TOPIC), "persistent/{tenant}/{namespace}/{topic}/messageTTL"),
        (paths.topic_permissions(TOPIC), "persistent/{tenant}/{namespace}/{topic}/permissions"),
        (paths.scalable_topics("t/n"), "scalable/{tenant}/{namespace}"),
        (paths.scalable_topic("topic://t/n/a/b"), "scalable/{tenant}/{namespace}/{topic}"),
        (paths.subscription(TOPIC, "s"), "persistent/{tenant}/{namespace}/{topic}/subscription/{name}"),
    ],
)
def test_each_path_has_its_name(path: str, name: str):
    """Words stand before names: an endpoint is not taken for a cluster of that name."""
    assert endpoint(path) == f"{ADMIN}/{name}"
    assert name in {request.path for request in REQUESTS}


@pytest.mark.parametrize("path", ["", "/", "/admin/v2/", "/admin/v3/x", "/admin/v2/new/thing", "/t/n/0x1_0x2", "//"])
def test_what_lbd_does_not_know_has_no_name_of_its_own(path: str):
    """However many there are."""
    assert endpoint(path) == OTHER


def test_paths_that_begin_otherwise_or_have_numbers():
    """Names and seconds are left out of them, too."""
    assert endpoint(paths.bundle_of(TOPIC)) == "/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}/bundle"
    assert endpoint(paths.schema(TOPIC)).endswith("schemas/{tenant}/{namespace}/{topic}/schema")
    assert endpoint(paths.expiry(TOPIC, "s", 5)).endswith("/expireMessages/{seconds}")


def test_answers_are_counted_by_method_endpoint_and_code():
    """And those that never came."""
    counted = {(READY, "200", "GET"): 2, (UNLOAD, "none", "PUT"): 1}
    before = {key: count(*key) for key in counted}
    count_request("GET", paths.READY, 200, 0.003)
    count_request("GET", paths.READY, 200, 99.0)
    count_request("PUT", paths.unload(BUNDLE), None, 60.0)
    assert {key: count(*key) - before[key] for key in counted} == counted


def count(endpoint: str, code: str, method: str) -> float:
    """How many requests of this kind this process has made."""
    wanted = {"endpoint": endpoint, "code": code, "method": method}
    samples = [one for family in ADMIN_SECONDS.collect() for one in family.samples if one.labels == wanted]
    return sum(one.value for one in samples if one.name.endswith("_count"))
