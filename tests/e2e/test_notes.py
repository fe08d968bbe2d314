"""What a leader has noted as a bundle's destination: how it is left over, overwritten, and kept from doing harm."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e import naming, placing, probe
from tests.e2e.landing import CLIENTS, admin_of, measure
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.cluster import Cluster

BUNDLES = 8
MOVES = 50


def _next_owner(cluster: Cluster, bundle: str, leader: str) -> set[str]:
    """Who gets the bundle when somebody unloads it without a destination, and clients ask the leader.

    While it changes hands a broker may say that it is nobody's.
    """
    assert placing.unload(cluster, bundle) == 204
    topic = naming.topic_in(bundle, "after", "non-persistent").replace("://", "/")
    deadline = time.monotonic() + 10
    while not (found := placing.owner(cluster, bundle)) and time.monotonic() < deadline:
        cluster.session.get(f"http://{leader}/lookup/v2/topic/{topic}", timeout=30)
    return found


def test_a_note_is_overwritten_without_moving_anything(cluster: Cluster):
    """A request that is not followed to the owner changes what the leader noted, and nothing else."""
    admin = admin_of(cluster)
    admin.active_brokers()
    leader = admin.leader()
    assert leader is not None
    assert leader.broker is not None
    source, other = (broker for broker in cluster.brokers if broker != leader.broker)
    bundles = placing.namespace(cluster, f"note{time.time_ns()}", 4)
    for bundle in bundles:
        placing.place(cluster, bundle, source)
        assert admin.note(bundle, other, leader.base)
    assert {tuple(placing.owner(cluster, bundle)) for bundle in bundles} == {(source,)}
    assert all(admin.note(bundle, source, leader.base) for bundle in bundles[2:])
    assert {tuple(placing.owner(cluster, bundle)) for bundle in bundles} == {(source,)}
    moved = [_next_owner(cluster, bundle, leader.broker) for bundle in bundles]

    assert moved == [{other}, {other}, {source}, {source}]


@pytest.mark.cluster(versions=["4.0.8"])
def test_what_lbd_leaves_behind_misplaces_no_other_namespace(cluster: Cluster, tell: Callable[[str], None]):
    """After 50 moves under six clients, equal ranges of a fresh namespace under a policy all land inside it.

    On 4.0.8 a leader knows a destination by its range alone, whatever the namespace (#25518).
    """
    inside, stamp = cluster.brokers[0], time.time_ns()
    bundles = placing.namespace(cluster, f"busy{stamp}", BUNDLES)
    topics = [naming.topic_in(bundle) for bundle in bundles]
    with Traffic(cluster, dict.fromkeys(topics, 2.0), clients=CLIENTS):
        found = measure(cluster, bundles, "leader", MOVES)
    policy = {
        "namespaces": [f"{placing.TENANT}/fresh{stamp}"],
        "primary": [inside.partition(":")[0]],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "100"},
        },
    }
    placing.isolate(cluster, f"fresh{stamp}", policy)
    fresh = placing.namespace(cluster, f"fresh{stamp}", BUNDLES)
    placed = [_first_owner(cluster, bundle) for bundle in fresh]
    placing.lift_isolation(cluster, f"fresh{stamp}")

    tell(f"| {cluster.spec.version} | {found.row()} |")
    assert found.false == []
    assert placed == [{inside}] * BUNDLES


def _first_owner(cluster: Cluster, bundle: str) -> set[str]:
    """Who gets a bundle that nobody owned, asked as a client asks."""
    topic = naming.topic_in(bundle, "first", "non-persistent").replace("://", "/")
    for url in cluster.admin_urls:
        probe.ask(cluster, "GET", f"{url}/lookup/v2/topic/{topic}")
    return placing.owner(cluster, bundle)
