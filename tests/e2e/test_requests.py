"""Each request that lbd sends, once on each version: docs/results/requests.md says what brokers answer."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from lbd.pulsar.broker_configuration import SHEDDING_ENABLED
from lbd.pulsar.leader_topic import EARLIEST
from tests.e2e import placing, settings
from tests.e2e.landing import admin_of
from tests.pulsar.test_compatibility import REQUESTS

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster


def answers() -> dict[tuple[str, str], set[int]]:
    """The statuses of the page's table, by method and path."""
    rows = re.findall(r"^\| (\w+) \| `([^`]+)` \|[^|]*\| ([\d, ]+) \|", REQUESTS.read_text(), re.MULTILINE)
    return {(method, path): {int(status) for status in told.split(",")} for method, path, told in rows}


@pytest.mark.cluster(landing=True)
def test_every_request_is_answered_as_the_page_says(cluster: Cluster) -> None:
    """In an order in which each finds what it needs; the bundle is unloaded to another broker, and then split."""
    admin = admin_of(cluster)
    leader = admin.leader()
    assert leader is not None
    name = f"requests{time.time_ns()}"
    bundle = placing.namespace(cluster, name, 4)[0]
    placing.place(cluster, bundle, cluster.brokers[0])
    namespace = f"{placing.TENANT}/{name}"
    names = {
        "{cluster}": settings.CLUSTER,
        "{broker}": cluster.brokers[1],
        "{setting}": SHEDDING_ENABLED,
        "{value}": "false",
        "{group}": "apart",
        "{tenant}/{namespace}/{bundle}": bundle,
        "{tenant}/{namespace}": namespace,
        "{topic}": "requests",
        "{subscription}": "lbd",
        "{seconds}": "10",
    }
    parameters = {
        "/{namespace}/topics": {"mode": "ALL", "includeSystemTopic": "true"},
        "/antiAffinity/{group}": {"tenant": placing.TENANT},
        "/unload": {"destinationBroker": cluster.brokers[2]},
        "/split": {"unload": "false", "splitAlgorithmName": "range_equally_divide"},
    }
    found, wanted = dict[tuple[str, str], int](), answers()
    for method, path in wanted:
        sent = path
        for key in sorted(names, key=len, reverse=True):
            sent = sent.replace(key, names[key])
        params = next((some for end, some in parameters.items() if path.endswith(end)), {})
        content = EARLIEST if method == "PUT" and "/subscription/" in path else None
        answer = admin.http.send(method, leader.base + sent, params=params, content=content, timeout_seconds=75)
        found[method, path] = answer.status
    admin.close()
    placing.remove_namespace(cluster, namespace)

    assert {request: status for request, status in found.items() if status not in wanted[request]} == {}
