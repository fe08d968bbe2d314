"""The ground the other tests stand on: the cluster, the observer and the traffic, tried on real brokers."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from tests.e2e import naming, placing, probe, security, settings, skew
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster


def test_every_broker_is_listed_and_one_leads(cluster: Cluster):
    for index in range(3):
        listed = probe.get(cluster, index, f"/admin/v2/brokers/{settings.CLUSTER}")
        assert sorted(listed) == cluster.brokers
        assert probe.leader(cluster, index) == probe.leader(cluster)
    assert probe.leader(cluster) in cluster.brokers


def test_every_broker_counts_the_cpu_of_its_process_as_the_kernel_does(cluster: Cluster):
    """What lbd calls CPU of now, beside the meter of the broker's control group."""
    admin = Admin(PulsarSettings(admin_urls=tuple(cluster.admin_urls)))
    admin.active_brokers()
    before = {broker: admin.process_cpu(broker) for broker in cluster.brokers}
    used = probe.true_cpu(cluster, 10)
    after = {broker: admin.process_cpu(broker) for broker in cluster.brokers}
    admin.close()
    spent = {broker: after[broker].spent_seconds - one.spent_seconds for broker, one in before.items()}
    passed = {broker: after[broker].up_seconds - one.up_seconds for broker, one in before.items()}
    told = {broker: 100 * spent[broker] / passed[broker] for broker in cluster.brokers}
    assert {
        broker: round(told[broker] - used[broker]) for broker in used if abs(told[broker] - used[broker]) > 10
    } == {}


def test_traffic_loses_nothing_while_bundles_move(cluster: Cluster):
    bundles = placing.namespace(cluster, "traffic", 8)
    placing.place_all(cluster, skew.assignment(bundles, cluster.brokers, (0.4, 0.3, 0.3)))
    rates = {naming.topic_in(bundle): 100.0 for bundle in bundles}
    with Traffic(cluster, rates) as traffic:
        for number in range(12):
            time.sleep(1)
            bundle = bundles[number % len(bundles)]
            placing.place(cluster, bundle, cluster.brokers[number % 3])
        result = traffic.stop()
    placing.remove_namespace(cluster, "e2e/traffic")
    assert probe.owners(cluster, "e2e/traffic/") == {}
    assert (result.lost, result.misrouted, result.unanswered, result.send_errors) == (0, 0, 0, {})
    assert result.sent == result.acknowledged == result.received
    assert result.sent > 0.8 * result.seconds * sum(rates.values())


def test_a_killed_broker_comes_back_and_nothing_acknowledged_is_lost(cluster: Cluster):
    bundles = placing.namespace(cluster, "kill", 4)
    placing.place_all(cluster, dict.fromkeys(bundles, cluster.brokers[1]))
    with Traffic(cluster, {naming.topic_in(bundle): 50.0 for bundle in bundles}) as traffic:
        time.sleep(2)
        cluster.kill_broker(1, signal.SIGKILL)
        assert not cluster.alive(1)
        assert set(probe.load_reports(cluster)) == {cluster.brokers[0], cluster.brokers[2]}
        cluster.start_broker(1)
        time.sleep(5)
        result = traffic.stop()
    assert result.lost == 0
    assert result.unanswered == 0
    assert max(gap.seconds for gap in result.gaps) > 1


@pytest.mark.usefixtures("quotas")
def test_a_burner_is_held_to_the_brokers_quota(cluster: Cluster):
    """It never uses more, and as much as that in a window in which the machine has it to give."""
    cluster.set_quota(2, 0.3)
    cluster.burn(2)
    used = []
    while max(used, default=0.0) < 85 and len(used) < 12:
        used.append(probe.true_cpu(cluster, 5)[cluster.brokers[2]])
    assert max(used) == pytest.approx(100, abs=15), used
    cluster.restore()
    assert cluster.quotas == [None, None, None]


@pytest.mark.usefixtures("quotas")
def test_hot_traffic_makes_one_broker_hot(cluster: Cluster):
    with skew.skewed(cluster, "skew") as skewed:
        time.sleep(10)
        used = probe.true_cpu(cluster, 15)
        owners = probe.owners(cluster, "e2e/skew/")
        result = skewed.traffic.stop()
    assert owners == {bundle: {broker} for bundle, broker in skewed.placed.items()}
    assert max(used, key=lambda broker: used[broker]) == cluster.brokers[0]
    assert probe.spread(used) > 15
    assert result.lost == 0


@pytest.mark.cluster(tokens=True, tls=True)
def test_a_secured_cluster_serves_the_administrator_only(cluster: Cluster):
    stranger = {"Authorization": f"Bearer {security.role_token(cluster.work, 'stranger')}"}
    url = cluster.admin_urls[0] + "/admin/v2/broker-stats/load-report"
    assert cluster.session.get(url, headers=stranger, timeout=10).status_code == 401
    assert set(probe.load_reports(cluster)) == set(cluster.brokers)
    bundles = placing.namespace(cluster, "secured", 2)
    placing.place(cluster, bundles[0], cluster.brokers[2])
    with Traffic(cluster, {naming.topic_in(bundles[0]): 20.0}) as traffic:
        time.sleep(2)
        result = traffic.stop()
    assert result.lost == 0
    assert result.received > 0


@pytest.mark.cluster(load_manager="extensible")
def test_the_extensible_load_manager_starts_and_serves(cluster: Cluster):
    report = probe.ask(cluster, "GET", cluster.admin_urls[0] + "/admin/v2/broker-stats/load-report")
    assert report.status_code == 500
    bundle, *_ = placing.namespace(cluster, "extensible", 2)
    topic = naming.topic_in(bundle)
    with Traffic(cluster, {topic: 20.0}) as traffic:
        source = next(iter(placing.owner(cluster, bundle)))
        target = next(broker for broker in cluster.brokers if broker != source)
        assert placing.unload(cluster, bundle, target) == 204
        placing.wait_owner(cluster, bundle, target)
        result = traffic.stop()
    assert result.lost == 0
