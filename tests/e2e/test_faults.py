"""Unloads that real brokers refuse, that come too late, or whose answer never comes: each ends in a true outcome."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lbd.act.unloader import Ready, Unloader
from lbd.model import Outcome, Result, Unload
from lbd.pulsar.http import base_of
from tests.e2e import placing, probe
from tests.e2e.landing import CLOCK, admin_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lbd.pulsar.admin import Admin
    from lbd.pulsar.http import Answer
    from tests.e2e.cluster import Cluster


def ready(cluster: Cluster, admin: Admin, number: int = 0) -> Ready:
    """A move from the first to the second broker that has passed its check."""
    bundle = placing.namespace(cluster, f"fault{time.time_ns()}", 4)[number]
    placing.place(cluster, bundle, cluster.brokers[0])
    found = Unloader(admin, CLOCK).check(Unload(bundle, *cluster.brokers[:2], 0, 0))
    assert isinstance(found, Ready), found
    return found


def sent(admin: Admin, move: Ready) -> Outcome:
    """What it came to."""
    return Unloader(admin, CLOCK).send(move)


@pytest.mark.cluster
def test_a_bundle_that_was_split_after_the_check(cluster: Cluster):
    """412: the range is no bundle any more, and nobody owns it; its halves stay where they were."""
    admin = admin_of(cluster)
    move = ready(cluster, admin)
    namespace, _, found = move.move.bundle.rpartition("/")
    url = f"{cluster.admin_urls[0]}/admin/v2/namespaces/{namespace}/{found}/split"
    assert probe.ask(cluster, "PUT", url, params={"unload": "false"}).status_code == 204
    outcome = sent(admin, move)

    assert (outcome.result, outcome.owner) == (Result.UNOWNED, None)
    assert "HTTP 412" in outcome.detail
    assert {owner for name, owner in _owners(cluster, namespace).items() if name != move.move.bundle} <= {
        cluster.brokers[0]
    }


def _owners(cluster: Cluster, namespace: str) -> dict[str, str]:
    return {
        bundle: broker
        for broker in cluster.brokers
        for bundle in admin_of(cluster).owned(broker)
        if bundle.startswith(f"{namespace}/")
    }


@pytest.mark.cluster
def test_a_destination_that_left_after_the_check(cluster: Cluster):
    """409: nothing is unloaded, and that is what is told."""
    admin = admin_of(cluster)
    found = ready(cluster, admin)
    gone = replace(found, move=replace(found.move, destination="127.0.0.9:18080"))
    outcome = sent(admin, gone)

    assert (outcome.result, outcome.owner) == (Result.FAILED, cluster.brokers[0])
    assert "HTTP 409" in outcome.detail
    assert placing.owner(cluster, found.move.bundle) == {cluster.brokers[0]}


@contextmanager
def mute(broker: str) -> Iterator[str]:
    """An address that hands one request on to a broker, and its answer to nobody."""

    def hand_on() -> None:
        asking, _ = server.accept()
        with asking, socket.create_connection(host_and_port(broker)) as asked:
            asked.sendall(asking.recv(1 << 16))
            asked.recv(1)
            asking.recv(1)  # until it hangs up

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as aside:
        handed = aside.submit(hand_on)
        yield f"127.0.0.1:{server.getsockname()[1]}"
        handed.result(timeout=10)


def host_and_port(broker: str) -> tuple[str, int]:
    host, _, port = broker.partition(":")
    return host, int(port)


@pytest.mark.cluster
def test_an_answer_that_never_comes(cluster: Cluster):
    """lbd hangs up before the source answers; it acts all the same, and the outcome says where the bundle is."""
    move = ready(cluster, admin_of(cluster))
    hasty = admin_of(cluster)
    hasty.active_brokers()
    once = hasty.http._once

    with mute(move.move.source) as silent:

        def cut(method: str, url: str, params: Mapping[str, str] | None, timeout: float) -> Answer:
            if method == "PUT" and base_of(url).endswith(f"//{move.move.source}"):
                return once(method, url.replace(move.move.source, silent, 1), params, 2.0)
            return once(method, url, params, timeout)

        hasty.http._once = cut  # type: ignore[method-assign]
        outcome = sent(hasty, move)

    assert "no answer in time" in outcome.detail
    assert outcome.result in {Result.LANDED, Result.ELSEWHERE}
    assert placing.owner(cluster, move.move.bundle) == {outcome.owner}
