"""Isolation and anti-affinity on real brokers: lbd's model of them, and moves that they forbid."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from lbd.act.executor import Execution, Executor
from lbd.act.unload import Unloader
from lbd.model import Outcome, Result, Unload, bundle_namespace
from lbd.observe.observer import Observer
from lbd.operations.parts import PolicyReader
from lbd.permit.policies import GroupSpread, Policies
from lbd.reason import Reason
from tests.e2e import naming, placing, probe
from tests.e2e.landing import CLOCK, Untold, admin_of
from tests.limits import SameForAll

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.cluster import Cluster

BUNDLES = 16
NOTICED_SECONDS = 2.0
"""Other brokers see a namespace's new group through a cache."""
LISTED_SECONDS = 60.0
COUNTED_SECONDS = 3.0
"""From a broker's report, told anew when the number of its bundles changes, to the leader that counts by it."""
ONE, TWO, THREE = "127[.]0[.]0[.]1", "127[.]0[.]0[.]2", "127[.]0[.]0[.]3"
ABSENT = "10[.]9[.]8[.]7"
PLACES = {
    "one primary": ([ONE], [], 1, {0}),
    "two primaries": ([ONE, TWO], [THREE], 1, {0, 1}),
    "secondaries join": ([ONE], [TWO], 2, {0, 1}),
    "no primary is there": ([ABSENT], [THREE], 1, {2}),
    "a pattern": (["127[.]0[.]0[.][23]"], [], 1, {1, 2}),
}


def policy(namespaces: str, primary: list[str], secondary: list[str], limit: int) -> dict[str, Any]:
    """As Pulsar takes it."""
    parameters = {"min_limit": str(limit), "usage_threshold": "100"}
    return {
        "namespaces": [namespaces],
        "primary": primary,
        "secondary": secondary,
        "auto_failover_policy": {"policy_type": "min_available", "parameters": parameters},
    }


def looked_up(cluster: Cluster, bundle: str) -> str:
    """Who gets a bundle that nobody owns, asked as a client asks."""
    topic = naming.topic_in(bundle, "first", "non-persistent").replace("://", "/")
    for _ in range(20):
        for url in cluster.admin_urls:
            probe.ask(cluster, "GET", f"{url}/lookup/v2/topic/{topic}")
        if found := placing.owner(cluster, bundle):
            return found.pop()
        time.sleep(0.2)
    raise probe.ProbeError(f"{bundle} is on no broker")


@pytest.mark.cluster(versions=["4.2.4"])
def test_brokers_place_where_lbd_says_that_they_may(cluster: Cluster, tell: Callable[[str], None]):
    """Every bundle of a namespace under each kind of policy, and of one without, lands on a broker that lbd allows.

    Which of the allowed ones gets how many is the brokers' own choice, by their load: not each gets one.
    """
    admin, stamp = admin_of(cluster), time.time_ns()
    reader = PolicyReader(admin)
    for number, (name, (primary, secondary, limit, expected)) in enumerate(PLACES.items()):
        own, free = f"iso{stamp}-{number}", f"free{stamp}-{number}"
        placing.isolate(cluster, own, policy(f"{placing.TENANT}/{own}", primary, secondary, limit))
        found = {
            each: {looked_up(cluster, bundle) for bundle in placing.namespace(cluster, each, BUNDLES)}
            for each in (own, free)
        }
        known = Policies(reader.isolation(), active=tuple(admin.active_brokers()))
        placing.lift_isolation(cluster, own)
        tell(f"{name}: {found}")
        assert found[own] <= known.brokers(f"{placing.TENANT}/{own}") == {cluster.brokers[at] for at in expected}
        assert found[free] <= known.brokers(f"{placing.TENANT}/{free}")


def grouped(cluster: Cluster, stamp: int, size: int) -> list[str]:
    """The bundles of so many namespaces of one group, of one bundle each, when all brokers know of it."""
    names = [f"group{stamp}-{number}" for number in range(size)]
    bundles = [bundle for name in names for bundle in placing.namespace(cluster, name, 1)]
    for name in names:
        url = f"{cluster.admin_urls[0]}/admin/v2/namespaces/{placing.TENANT}/{name}/antiAffinity"
        assert probe.ask(cluster, "POST", url, data=f"rack{stamp}", headers={"Content-Type": "application/json"}).ok
    time.sleep(NOTICED_SECONDS)
    return bundles


def counted(cluster: Cluster, bundle: str, broker: str) -> None:
    """Give a bundle a topic that stays, and wait until the leader counts it.

    Of what it placed a moment ago the leader counts what is its own until the next report of any broker, and from then
    on only what the reports list, which is bundles with topics (``ModularLoadManagerImpl.updateBundleData``). A bundle
    without one is counted nowhere as soon as some broker's CPU has changed.
    """
    topic = naming.topic_in(bundle, "kept").replace("://", "/")
    url = f"{cluster.admin_urls[0]}/admin/v2/{topic}"
    assert probe.ask(cluster, "PUT", url).status_code == 204
    assert probe.ask(cluster, "PUT", f"{url}/subscription/kept").status_code == 204
    deadline = time.monotonic() + LISTED_SECONDS
    while bundle not in probe.load_reports(cluster)[broker]["lastStats"]:
        assert time.monotonic() < deadline, f"{broker} does not report {bundle}"
        time.sleep(0.5)
    time.sleep(COUNTED_SECONDS)


@pytest.mark.cluster(versions=["4.2.4"])
def test_brokers_keep_a_group_apart_as_lbd_does(cluster: Cluster, tell: Callable[[str], None]):
    """Seven namespaces of a group, one after the other: each lands where lbd would let a bundle of it go."""
    admin, stamp = admin_of(cluster), time.time_ns()
    reader, owners = PolicyReader(admin), Counter[str]()
    for bundle in grouped(cluster, stamp, 7):
        owner = looked_up(cluster, bundle)
        counted(cluster, bundle, owner)
        fewest = min(owners[broker] for broker in cluster.brokers)
        assert owners[owner] == fewest, f"{owners} before {owner}"
        owners[owner] += 1
    tell(f"{dict(owners)}")
    groups = reader.groups(frozenset({bundle_namespace(bundle)}), frozenset({placing.TENANT}))
    assert len(groups.members[f"rack{stamp}"]) == 7
    snapshot = Observer(admin, time.time).observe().snapshot
    spread = GroupSpread(snapshot, Policies(reader.isolation(), groups, snapshot.brokers.ids))
    refused = {to for to in cluster.brokers if to != owner and spread.refusal(Unload(bundle, owner, to, 0, 0))}
    assert refused == set() if owners[owner] > min(owners.values()) else set(cluster.brokers) - {owner}


def test_a_policy_that_changes_during_a_plan_stops_it(cluster: Cluster):
    """After the second landing the destination is reserved for others: nothing more is sent there."""
    admin, stamp = admin_of(cluster), time.time_ns()
    source, destination = cluster.brokers[:2]
    bundles = placing.namespace(cluster, f"changing{stamp}", 8)[:5]
    for bundle in bundles:
        placing.place(cluster, bundle, source)
    reader = PolicyReader(admin)
    reader.groups(frozenset({bundle_namespace(bundles[0])}), frozenset({placing.TENANT}))
    landed: list[str] = []

    def ended(one: object) -> None:
        if isinstance(one, Outcome) and one.result is Result.LANDED:
            landed.append(one.unload.bundle)
            if len(landed) == 2:
                placing.isolate(cluster, f"late{stamp}", policy("nobody/.*", [TWO], [], 1))

    executor = Executor(Untold(), time.time, ended)
    executor.start(
        [Unload(bundle, source, destination, 0, 0) for bundle in bundles],
        SameForAll(),
        Execution(Unloader(admin, CLOCK, forbids=reader.forbids)),
    )
    assert executor.wait(60)
    told = executor.collect()
    placing.lift_isolation(cluster, f"late{stamp}")

    assert [(skip.what, skip.reason) for skip in told.skips] == [
        (bundle, Reason.ISOLATION_POLICY) for bundle in bundles if bundle not in landed
    ]
    assert len(told.skips) == 3
    assert {tuple(placing.owner(cluster, bundle)) for bundle in bundles[:2]} == {(destination,)}
    assert {tuple(placing.owner(cluster, bundle)) for bundle in bundles[2:]} == {(source,)}
