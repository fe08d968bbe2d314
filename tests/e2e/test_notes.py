"""What a leader has noted as a bundle's destination: how it is used up, and kept from doing harm."""

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


def test_a_note_is_used_up_without_placing_anything(cluster: Cluster):
    """A request at the leader that is not followed to the destination; no client of these bundles comes meanwhile."""
    admin = admin_of(cluster)
    admin.active_brokers()
    leader = admin.leader()
    assert leader is not None
    assert leader.broker is not None
    source, other = (broker for broker in cluster.brokers if broker != leader.broker)
    sent_to = []
    for bundle in placing.namespace(cluster, f"note{time.time_ns()}", 4):
        placing.place(cluster, bundle, source)
        assert admin.unload(bundle, other, leader.base).status == 204
        answer = admin.assign(admin.topic_in(bundle, leader.base), leader.base, authoritative=False, hops=0)
        sent_to.append((answer.status, answer.base_of(answer.location or ""), "authoritative=true" in answer.location))
        assert placing.owner(cluster, bundle) == set()
        placing.place(cluster, bundle, source)
        assert placing.owner(cluster, bundle) == {source}
    assert sent_to == [(307, f"http://{other}", True)] * 4


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
    placing.isolate(cluster, f"fresh{stamp}", placing.policy(f"{placing.TENANT}/fresh{stamp}", inside))
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
