"""A second observer of a test cluster: plain HTTP to each broker and the kernel's CPU meters, nothing of lbd."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.e2e import locks, settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    import requests

    from tests.e2e.cluster import Cluster

MAX_HOPS = 6
# a broker owns one bundle of its own for heartbeats, and one for SLA checks under the extensible manager
_OWN_BUNDLE = re.compile(r"^(pulsar|sla-monitor)/(.+/)?[^/]+:\d+/0x")


class ProbeError(Exception):
    """The cluster answered something the observer cannot work with."""


def ask(cluster: Cluster, method: str, url: str, **options: Any) -> requests.Response:
    """One request, redirects followed with method and credentials kept; the last answer whatever its status."""
    for _ in range(MAX_HOPS):
        answer = cluster.session.request(method, url, allow_redirects=False, timeout=75, **options)
        if answer.status_code not in (302, 307):
            return answer
        url, options = answer.headers["Location"], options | {"params": None}
    raise ProbeError(f"{method} {url}: more than {MAX_HOPS} redirects")


def get(cluster: Cluster, index: int, path: str) -> Any:
    """The JSON one broker answers; while ownership changes hands a broker answers 500 for a moment."""
    for pause_seconds in (0.1, 0.2, 0.4, 0.8):
        answer = ask(cluster, "GET", cluster.admin_urls[index] + path)
        if answer.status_code != 500:
            break
        time.sleep(pause_seconds)
    if not answer.ok:
        raise ProbeError(f"GET {answer.url}: {answer.status_code} {answer.text[:200]}")
    return answer.json()


def owned(cluster: Cluster, index: int) -> set[str]:
    """The bundles one broker owns, without its heartbeat and SLA bundles."""
    broker = cluster.brokers[index]
    return {bundle for bundle, claimants in owners(cluster).items() if broker in claimants}


def owners(cluster: Cluster, prefix: str = "") -> dict[str, set[str]]:
    """The running brokers that claim each bundle (of names with this prefix); more than one is a fault."""
    running = _running(cluster)
    if cluster.spec.load_manager == "extensible":
        with ThreadPoolExecutor(len(running) or 1) as pool:
            claims = list(zip(running, pool.map(lambda each: _claimed(cluster, each), running), strict=True))
        pairs = [(bundle, cluster.brokers[index]) for index, bundles in claims for bundle in bundles]
    else:
        alive = {cluster.brokers[index] for index in running}
        pairs = [(bundle, broker) for bundle, broker in locks.held().items() if broker in alive]
    found: dict[str, set[str]] = defaultdict(set)
    for bundle, broker in pairs:
        if bundle.startswith(prefix) and not _OWN_BUNDLE.match(bundle):
            found[bundle].add(broker)
    return dict(found)


def _claimed(cluster: Cluster, index: int) -> list[str]:
    """What one broker of the extensible manager says it owns; one of the modular manager can hang for good by this."""
    return list(get(cluster, index, f"/admin/v2/brokers/{settings.CLUSTER}/{cluster.brokers[index]}/ownedNamespaces"))


def load_reports(cluster: Cluster) -> dict[str, Any]:
    """The load report of each running broker, by broker id."""
    return {
        cluster.brokers[index]: get(cluster, index, "/admin/v2/broker-stats/load-report") for index in _running(cluster)
    }


def cpu_percent(cluster: Cluster) -> dict[str, float]:
    """The CPU usage each broker reports, in percent of the limit it reports."""
    reports = load_reports(cluster)
    return {broker: 100.0 * report["cpu"]["usage"] / report["cpu"]["limit"] for broker, report in reports.items()}


def true_cpu(cluster: Cluster, seconds: float) -> dict[str, float]:
    """The CPU each broker's control group really used over the next seconds, in percent of its quota."""
    before, started = _used_seconds(cluster), time.monotonic()
    time.sleep(seconds)
    after, passed = _used_seconds(cluster), time.monotonic() - started
    return {
        broker: 100.0 * (after[broker] - before[broker]) / passed / (quota or 1.0)
        for broker, quota in zip(cluster.brokers, cluster.quotas, strict=True)
    }


def true_gap(cluster: Cluster, seconds: float) -> float:
    """Highest minus lowest CPU percent of quota among the brokers, measured from outside over the next seconds."""
    return spread(true_cpu(cluster, seconds))


def spread(values: Mapping[str, float]) -> float:
    """Highest minus lowest."""
    return max(values.values()) - min(values.values())


def leader(cluster: Cluster, index: int = 0) -> str:
    """The id of the leading broker, as this broker sees it (a dead leader is still named for one session time-out)."""
    answer = get(cluster, index, "/admin/v2/brokers/leaderBroker")
    return str(answer.get("brokerId") or answer["serviceUrl"].partition("://")[2])


def _running(cluster: Cluster) -> list[int]:
    return [index for index in range(len(cluster.brokers)) if cluster.alive(index)]


def _used_seconds(cluster: Cluster) -> dict[str, float]:
    return {broker: group.used_seconds() for broker, group in zip(cluster.brokers, cluster.groups, strict=True)}
