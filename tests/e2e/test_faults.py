"""Unloads that real brokers refuse, that come too late, or whose answer never comes: each ends in a true outcome."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lbd.act.unloader import Ready, Unloader
from lbd.model import Outcome, Result, Unload
from tests.e2e import placing, probe
from tests.e2e.landing import CLOCK, admin_of

if TYPE_CHECKING:
    from lbd.pulsar.admin import Admin
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


@pytest.mark.cluster
def test_an_answer_that_never_comes(cluster: Cluster):
    """lbd hangs up before the brokers answer; they act all the same, and the outcome says where the bundle is."""
    admin = admin_of(cluster)
    move = ready(cluster, admin)
    hasty = admin_of(cluster)
    hasty.active_brokers()
    send = hasty.http.send

    def cut(method: str, url: str, **options: object) -> object:
        if method == "PUT":
            options["timeout_seconds"] = 0.005
        return send(method, url, **options)  # type: ignore[arg-type]

    hasty.http.send = cut  # type: ignore[method-assign,assignment]
    outcome = sent(hasty, move)

    assert outcome.owner is None or placing.owner(cluster, move.move.bundle) == {outcome.owner}
    assert outcome.result in {Result.LANDED, Result.FAILED, Result.ELSEWHERE}
    assert "no answer in time" in outcome.detail
