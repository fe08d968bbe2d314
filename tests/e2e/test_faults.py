"""Unloads that real brokers refuse, that come too late, or whose answer never comes: each ends in a true outcome."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.act.unload import ReadyMove, Unloader
from lbd.clock import boot_seconds
from lbd.model import Outcome, Result, Unload
from lbd.pulsar.http import base_url
from tests.e2e import placing, probe
from tests.e2e.landing import CLOCK, admin_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lbd.pulsar.admin import Admin
    from lbd.pulsar.http import Response
    from tests.e2e.cluster import Cluster


PATIENCE_SECONDS = 10.0
"""A relay that nobody asks, or that no broker answers, ends its test and not the run."""


def ready(cluster: Cluster, admin: Admin, number: int = 0) -> ReadyMove:
    """A move from the first to the second broker that has passed its check."""
    bundle = placing.namespace(cluster, f"fault{time.time_ns()}", 4)[number]
    placing.place(cluster, bundle, cluster.brokers[0])
    found = Unloader(admin, CLOCK).check(Unload(bundle, *cluster.brokers[:2], 0, 0))
    assert isinstance(found, ReadyMove), found
    return found


def sent(admin: Admin, move: ReadyMove) -> Outcome:
    """What it came to."""
    return Unloader(admin, CLOCK).send(move)


def test_a_bundle_that_was_split_after_the_check(cluster: Cluster):
    """412: the range is no bundle any more, and that is its outcome; its halves stay where they were."""
    admin = admin_of(cluster)
    move = ready(cluster, admin)
    namespace, _, found = move.move.bundle.rpartition("/")
    url = f"{cluster.admin_urls[0]}/admin/v2/namespaces/{namespace}/{found}/split"
    assert probe.ask(cluster, "PUT", url, params={"unload": "false"}).status_code == 204
    outcome = sent(admin, move)

    assert (outcome.result, outcome.owner) == (Result.GONE, None)
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
        asking.settimeout(PATIENCE_SECONDS)
        with asking, socket.create_connection(host_and_port(broker), PATIENCE_SECONDS) as asked:
            asked.sendall(asking.recv(1 << 16))
            asked.recv(1)
            asking.recv(1)  # until it hangs up

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as aside:
        server.settimeout(PATIENCE_SECONDS)
        handed = aside.submit(hand_on)
        yield f"127.0.0.1:{server.getsockname()[1]}"
        handed.result()


def host_and_port(broker: str) -> tuple[str, int]:
    host, _, port = broker.partition(":")
    return host, int(port)


def test_an_answer_that_never_comes(cluster: Cluster):
    """lbd hangs up before the source answers; it acts all the same, and the outcome says where the bundle is."""
    move = ready(cluster, admin_of(cluster))
    hasty = admin_of(cluster)
    hasty.active_brokers()
    once = hasty.http._once

    with mute(move.move.source) as silent:

        def cut(
            method: str, url: str, params: Mapping[str, str] | None, ends_at: float, content: bytes | None, token: str
        ) -> Response:
            if method == "PUT" and base_url(url).endswith(f"//{move.move.source}"):
                hasty.http.trust_also(silent)
                there = url.replace(move.move.source, silent, 1)
                return once(method, there, params, boot_seconds() + 2.0, content, token)
            return once(method, url, params, ends_at, content, token)

        hasty.http._once = cut  # type: ignore[method-assign]
        outcome = sent(hasty, move)

    assert "no answer in time" in outcome.detail
    assert outcome.result in {Result.LANDED, Result.ELSEWHERE}
    assert placing.owner(cluster, move.move.bundle) == {outcome.owner}
