"""Scalable topics on real brokers: where segments are, which lists have them, and what lbd's commands say of them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from lbd.bundles import holds, topic_hash
from lbd.observe.observer import Observer
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from tests.e2e import placing, probe
from tests.e2e.balancing import write_config
from tests.e2e.test_place import SETTINGS, answers, lbd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.cluster import Cluster

COUNTED_SECONDS, REPORTED_SECONDS = 60.0, 150.0


@pytest.mark.cluster(versions=["5.0.0-M1"])
def test_segments_are_in_the_bundles_that_lbd_names(cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]):
    """One segment is split; each active one is loaded by the owner of its bundle, and known to place and split."""
    bundles = placing.namespace(cluster, f"scalable{time.time_ns()}", 4)
    namespace, config = bundles[0].rpartition("/")[0], write_config(cluster, tmp_path, SETTINGS)
    _call(cluster, "PUT", f"scalable/{namespace}/orders?numInitialSegments=2", 204)
    sealed = f"segment://{namespace}/orders/0000-7fff-0"
    _counted(cluster, namespace, {sealed})
    observer = Observer(Admin(PulsarSettings(admin_urls=tuple(cluster.admin_urls))), time.time)
    observer.observe()
    _call(cluster, "POST", f"scalable/{namespace}/orders/split/0", 204)
    ranges = ("0000-3fff-2", "4000-7fff-3", "8000-ffff-1")
    active = [f"segment://{namespace}/orders/{name}" for name in ranges]

    found = answers(lbd(config, "place", f"topic://{namespace}/orders", "--format", "json"))["answers"]
    named = {topic: one["bundle"] for one in found for topic in one["topics"]}
    assert sorted(named) == active
    for segment, bundle in named.items():
        assert holds(bundle, topic_hash(segment))
        address = f"{cluster.admin_urls[0]}/lookup/v2/topic/segment/{namespace}/orders%2F{segment[-11:]}/bundle"
        assert cluster.session.get(address).text.strip() == bundle.rpartition("/")[2]
    owners = {bundle: {broker} for bundle, broker in ((one["bundle"], one["owner"]) for one in found)}
    assert {bundle: placing.owner(cluster, bundle) for bundle in owners} == owners

    counted = _counted(cluster, namespace, {sealed, *active})
    assert all(holds(f"{namespace}/{bundle}", topic_hash(name)) for name, bundle in counted.items())
    listed = _call(cluster, "GET", f"namespaces/{namespace}/topics?mode=ALL&includeSystemTopic=true", 200)
    assert listed.json() == []
    tell(f"{len(counted)} segments in the brokers' statistics, none in the list of topics")

    wanted = {f"{namespace}/{counted[name]}" for name in {sealed, *active[:2]}}
    changed, deadline = set[str](), time.monotonic() + REPORTED_SECONDS
    while not changed:
        assert time.monotonic() < deadline, "no report shows the new segments"
        time.sleep(5)
        changed = set(observer.observe().snapshot.segments_changed)
    observer.close()
    tell(f"segments changed in {sorted(changed)}, of {sorted(wanted)}")
    assert changed <= {*wanted, named[active[2]]}
    assert changed & wanted

    refused = lbd(config, "unload", f"topic://{namespace}/orders")
    assert (refused.returncode, all(segment in refused.stderr for segment in active)) == (2, True), refused.stderr
    alone = [name for name in active if list(counted.values()).count(counted[name]) == 1]
    for segment in alone:
        whole = lbd(config, "split", named[segment])
        command = f"pulsar-admin scalable-topics split-segment {namespace}/orders --segment-id {segment[-1]}"
        assert (whole.returncode, command in whole.stderr) == (4, True), whole.stderr


def _call(cluster: Cluster, method: str, path: str, status: int) -> Any:
    body: dict[str, Any] = {} if method == "GET" else {"json": {}}
    found = probe.ask(cluster, method, f"{cluster.admin_urls[0]}/admin/v2/{path}", **body)
    assert found.status_code == status, (path, found.status_code, found.text)
    return found


def _counted(cluster: Cluster, namespace: str, wanted: set[str]) -> dict[str, str]:
    """The range of the bundle of each topic that the brokers have counted, once all wanted ones are."""
    deadline, found = time.monotonic() + COUNTED_SECONDS, dict[str, str]()
    while not wanted <= found.keys():
        assert time.monotonic() < deadline, found
        time.sleep(1)
        for url in cluster.admin_urls:
            stats = json.loads(cluster.session.get(f"{url}/admin/v2/broker-stats/topics").content)
            for bundle, domains in stats.get(namespace, {}).items():
                found |= dict.fromkeys(domains.get("persistent", {}), bundle)
    return found
