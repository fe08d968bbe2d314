"""The fake cluster answers as brokers of 4.0.8 do: the same calls to both, compared in codes, redirects and shapes."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from lbd.simulate.cluster import cluster as built
from lbd.simulate.cluster import simulated_topics
from lbd.simulate.fake_cluster import SESSION_SECONDS
from lbd.simulate.fake_pulsar import FakePulsar
from lbd.simulate.scenario import Scenario
from tests.e2e import agreement, placing, probe
from tests.e2e.agreement import (
    CALLS,
    LEADER,
    LEADER_DEAD,
    LEADER_REPLACED,
    LOAD_REPORT,
    NAMESPACE,
    SPLITS,
    TENANT,
    TOPIC_STATS,
    WITH_POLICIES,
    Side,
    row,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.e2e.agreement import Call, Told
    from tests.e2e.cluster import Cluster

VERSION = "4.0.8"
TABLE = Path(__file__).parents[2] / "docs" / "results" / "agreement.md"
COUNTED_WITHIN_SECONDS = 61.0
NEWS = ("lastBundleGains", "lastBundleLosses")
POLICY = {
    "namespaces": ["nobody/.*"],
    "primary": ["127.0.0.9"],
    "secondary": [],
    "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "99"}},
}


@contextmanager
def fake() -> Iterator[tuple[FakePulsar, Side]]:
    """Three brokers, whose bundles have no clients."""
    scenario = Scenario.model_validate(
        {
            "about": "what the real cluster has",
            "brokers": [{"id": "broker", "number": 3}],
            "load": [{"name": NAMESPACE, "bundles": agreement.BUNDLES, "mib_per_second": 0}],
        }
    )
    world, state = built(scenario, 1)
    with FakePulsar(world, state, cluster="c", version=VERSION, clients=0) as found, requests.Session() as session:
        assert found.leader is not None
        yield found, Side(agreement.roles(found.leader, found.brokers), agreement.names(), session)


@contextmanager
def real(cluster: Cluster, later: str = "") -> Iterator[Side]:
    """The same on real brokers, with the topics that fake bundles have; one of them may be made ``later``."""
    assert placing.namespace(cluster, NAMESPACE, agreement.BUNDLES, TENANT) == list(_bundles())
    for topic in _topics():
        if topic != later:
            placing.create_topic(cluster, topic)
    try:
        ids = agreement.roles(probe.leader(cluster), cluster.brokers)
        yield Side(ids, agreement.names(), cluster.session)
    finally:
        placing.remove_namespace(cluster, f"{TENANT}/{NAMESPACE}")


def _topics() -> list[str]:
    return [simulated_topics(bundle, 1)[0].name for bundle in _bundles()]


def _bundles() -> Iterator[str]:
    return (value for key, value in agreement.names().items() if key.startswith("b"))


@contextmanager
def with_policies(cluster: Cluster, simulated: FakePulsar) -> Iterator[None]:
    """One policy of each sort on both."""
    base, name = cluster.admin_urls[0], f"{TENANT}/{NAMESPACE}"
    group, domain = f"{base}/admin/v2/namespaces/{name}/antiAffinity", f"{base}/admin/v2/clusters/c/failureDomains/d"
    plain = {"Content-Type": "application/json"}  # with quotes they would be part of the name
    assert probe.ask(cluster, "POST", group, data="apart", headers=plain).ok
    assert probe.ask(cluster, "POST", domain, json={"brokers": cluster.brokers[:1]}).ok
    placing.isolate(cluster, "p", POLICY)
    simulated.policies.groups[name] = "apart"
    simulated.policies.domains["d"] = [simulated.brokers[0]]
    simulated.policies.isolation["p"] = POLICY
    try:
        yield
    finally:
        placing.lift_isolation(cluster, "p")
        probe.ask(cluster, "DELETE", domain)


def counted(side: Side) -> Told:
    """A load report of which the statistics were counted, every 5 s there, without what it has yet to tell the others.

    A broker that has lost as many bundles as it was given lists them for as long as 15 minutes: it writes its report
    where a number has changed.
    """
    for _ in range(60):
        told = side.ask(LOAD_REPORT)
        if told.body["lastStats"]:
            break
        time.sleep(0.5)
    assert all(told.body[name] in ([], ["text"]) for name in NEWS)
    return replace(told, body=told.body | {name: [] for name in NEWS})


@pytest.mark.cluster(versions=[VERSION])
def test_fake_and_real_brokers_answer_alike(cluster: Cluster, tell: Callable[[str], None]):
    """Every call that lbd makes, right and wrong, asked at leader, owner and others; the table is in the documents.

    The first test on its cluster: of brokers that nobody has set anything on.
    """
    with fake() as (simulated, ours), real(cluster) as theirs:
        agreement.arranged(ours)
        agreement.arranged(theirs)
        found = compared(ours, theirs, CALLS)
        with with_policies(cluster, simulated):
            found += compared(ours, theirs, WITH_POLICIES)
        found.append((LOAD_REPORT, ours.ask(LOAD_REPORT), counted(theirs)))
    rows = [row(call, told) for call, _, told in found]
    tell("\n".join(rows))
    assert differences(found) == []
    assert [line for line in rows if line not in TABLE.read_text()] == []


@pytest.mark.cluster(versions=[VERSION])
def test_they_tell_of_topics_and_split_alike(cluster: Cluster, tell: Callable[[str], None]):
    """Right and wrong splits, and what becomes of the bundles; a topic is loaded where it is made."""
    loaded = _topics()[2]
    with fake() as (simulated, ours), real(cluster, loaded) as theirs:
        agreement.arranged(ours)
        agreement.arranged(theirs)
        placing.create_topic(cluster, loaded)
        simulated.forward(COUNTED_WITHIN_SECONDS)
        told = ours.ask(TOPIC_STATS)
        found = [(TOPIC_STATS, told, with_topics(theirs, told))]
        found += compared(ours, theirs, SPLITS)
    rows = [row(call, told) for call, _, told in found]
    tell("\n".join(rows))
    assert differences(found) == []
    assert [line for line in rows if line not in TABLE.read_text()] == []


def with_topics(side: Side, wanted: Told) -> Told:
    """What a broker tells of its topics, once it has counted those that are wanted; it may have others as well."""
    for _ in range(60):
        told = side.ask(TOPIC_STATS)
        if within(wanted.body, told.body):
            break
        time.sleep(0.5)
    return told


def within(ours: Any, theirs: Any) -> bool:
    """Whether everything that one tells is told by the other as well."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return all(key in theirs and within(value, theirs[key]) for key, value in ours.items())
    return bool(ours == theirs)


def agree(call: Call, ours: Told, theirs: Told) -> bool:
    """The same, but that a fake broker tells only what is about balancing of its configuration, and rates of topics."""
    if call.path.endswith(("/runtime", "/broker-stats/topics")) and ours.body:
        return ours.hops == theirs.hops and within(ours.body, theirs.body)
    return ours == theirs


def compared(ours: Side, theirs: Side, calls: Iterable[Call]) -> list[tuple[Call, Told, Told]]:
    """The same calls to both."""
    return [(call, ours.ask(call), theirs.ask(call)) for call in calls]


def differences(found: Iterable[tuple[Call, Told, Told]]) -> list[str]:
    """Where they do not agree, with what both said."""
    return [
        f"{row(call, ours)}\n  fake: {ours.body}\n  real: {theirs} {theirs.body}"
        for call, ours, theirs in found
        if not agree(call, ours, theirs)
    ]


@pytest.mark.cluster(versions=[VERSION])
def test_they_tell_of_a_dead_leader_alike(cluster: Cluster, tell: Callable[[str], None]):
    """While its session lives, and after that."""
    with fake() as (simulated, ours), real(cluster) as theirs:
        agreement.arranged(ours)
        agreement.arranged(theirs)
        dead = theirs.ids[LEADER]
        cluster.kill_broker(cluster.brokers.index(dead))
        simulated.kill(ours.ids[LEADER])
        found = compared(ours, theirs, LEADER_DEAD)
        simulated.forward(SESSION_SECONDS)
        follower = cluster.brokers.index(theirs.ids["other"])
        deadline = time.monotonic() + 2 * SESSION_SECONDS
        while probe.leader(cluster, follower) == dead and time.monotonic() < deadline:
            time.sleep(0.5)
        assert simulated.leader is not None
        after = replaced(ours, simulated.leader), replaced(theirs, probe.leader(cluster, follower))
        found += compared(*after, LEADER_REPLACED)
        cluster.restore()
    rows = [row(call, told) for call, _, told in found]
    tell("\n".join(rows))
    assert differences(found) == []
    assert [line for line in rows if line not in TABLE.read_text()] == []


def replaced(side: Side, leader: str) -> Side:
    """The same with another leader; the old one is ``dead``."""
    other = next(broker for role, broker in side.ids.items() if broker != leader and role != LEADER)
    return Side({LEADER: leader, "other": other, "dead": side.ids[LEADER]}, agreement.names(), side.session)
