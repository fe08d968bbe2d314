"""Making namespaces and putting their bundles on named brokers, without lbd."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.e2e import naming, probe, settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.e2e.cluster import Cluster

TENANT = "e2e"
_PLACED_SECONDS = 10.0
"""A broker that is short of CPU may not know a new namespace for a second or two."""
_HANDED_OVER_SECONDS = 180.0
"""A hand-over that a busy cluster lost is mended by a monitor that looks once a minute."""


def namespace(cluster: Cluster, name: str, bundles: int, tenant: str = TENANT) -> list[str]:
    """Create tenant (where missing) and namespace; the answer is its bundles, as tenant/namespace/range."""
    body = {"adminRoles": [], "allowedClusters": [settings.CLUSTER]}
    _call(cluster, "PUT", f"/admin/v2/tenants/{tenant}", (204, 409), json=body)
    policies = {"bundles": {"numBundles": bundles}, "replication_clusters": [settings.CLUSTER]}
    _call(cluster, "PUT", f"/admin/v2/namespaces/{tenant}/{name}", (204,), json=policies)
    return [f"{tenant}/{name}/{bundle}" for bundle in naming.bundle_ranges(bundles)]


def remove_namespace(cluster: Cluster, tenant_and_name: str) -> None:
    """Delete a namespace with everything in it (clients must be closed before)."""
    _call(cluster, "DELETE", f"/admin/v2/namespaces/{tenant_and_name}", (204, 404), params={"force": "true"})


def remove_all(cluster: Cluster, tenant: str = TENANT) -> None:
    """Delete every namespace of the tenant: what earlier tests have left on the brokers is no load any more."""
    answer = probe.ask(cluster, "GET", f"{cluster.admin_urls[0]}/admin/v2/namespaces/{tenant}")
    for name in answer.json() if answer.status_code != 404 else ():  # no test has made the tenant yet
        remove_namespace(cluster, name)


def want_bookies(cluster: Cluster, tenant_and_name: str, number: int) -> None:
    """Have each new ledger of a namespace on so many bookies; where there are fewer, no topic of it can be loaded."""
    replicas = dict.fromkeys(("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"), number)
    path = f"/admin/v2/namespaces/{tenant_and_name}/persistence"
    _call(cluster, "POST", path, (204,), json={**replicas, "managedLedgerMaxMarkDeleteRate": 0.0})


def isolate(cluster: Cluster, name: str, policy: Mapping[str, Any]) -> None:
    """Set a namespace isolation policy."""
    path = f"/admin/v2/clusters/{settings.CLUSTER}/namespaceIsolationPolicies/{name}"
    _call(cluster, "POST", path, (204,), json=dict(policy))


def policy(namespace: str, broker: str) -> dict[str, Any]:
    """A policy by which a namespace has this one broker and no other."""
    return {
        "namespaces": [namespace],
        "primary": [broker.partition(":")[0]],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "100"},
        },
    }


def lift_isolation(cluster: Cluster, name: str) -> None:
    """Remove a namespace isolation policy."""
    _call(cluster, "DELETE", f"/admin/v2/clusters/{settings.CLUSTER}/namespaceIsolationPolicies/{name}", (204,))


def create_topic(cluster: Cluster, topic: str) -> None:
    """Create a topic, for clusters that do not create topics by themselves."""
    _call(cluster, "PUT", "/admin/v2/" + topic.replace("://", "/"), (204, 409))


def unload(cluster: Cluster, bundle: str, destination: str | None = None) -> int:
    """Unload a bundle, to a named broker if wanted; the answer is the last status."""
    url = f"{cluster.admin_urls[0]}/admin/v2/namespaces/{bundle}/unload"
    return probe.ask(cluster, "PUT", url, params={"destinationBroker": destination}).status_code


def nudge(cluster: Cluster, bundle: str, index: int) -> int:
    """Have one broker take the bundle, if nobody owns it. The answer is the status: 404, as the topic has no schema.

    Not by the lookup of a non-persistent topic, which marks the bundle (lbd/pulsar/request_table.py).
    """
    topic = naming.topic_in(bundle, "nudge").removeprefix("persistent://")
    url = f"{cluster.admin_urls[index]}/admin/v2/schemas/{topic}/schema"
    return cluster.session.get(url, params={"authoritative": "true"}, allow_redirects=False, timeout=75).status_code


def place(cluster: Cluster, bundle: str, broker: str) -> None:
    """Put a bundle on a named broker and prove it; clients may win the race for it, hence the tries."""
    if cluster.spec.load_manager == "extensible":
        _hand_over(cluster, bundle, broker)
        return
    index = cluster.brokers.index(broker)
    deadline, status = time.monotonic() + _PLACED_SECONDS, 0
    while (seen := owner(cluster, bundle)) != {broker}:
        if time.monotonic() > deadline:
            where = seen or "no broker"
            raise probe.ProbeError(f"{bundle} is on {where} instead of {broker}; the last unload answered {status}")
        status = unload(cluster, bundle)
        nudge(cluster, bundle, index)


def _hand_over(cluster: Cluster, bundle: str, broker: str) -> None:
    """The extensible manager places what nobody owns where it likes; its owner then hands it to the named broker."""
    deadline = time.monotonic() + _HANDED_OVER_SECONDS
    while (seen := owner(cluster, bundle)) != {broker}:
        if time.monotonic() > deadline:
            raise probe.ProbeError(f"{bundle} is on {seen or 'no broker'} instead of {broker}")
        if seen:
            unload(cluster, bundle, broker)  # 500 while it is being assigned
        else:
            nudge(cluster, bundle, cluster.brokers.index(broker))
        time.sleep(0.05)


def place_all(cluster: Cluster, wanted: Mapping[str, str]) -> None:
    """Put many bundles on named brokers."""
    for bundle, broker in wanted.items():
        place(cluster, bundle, broker)


def owner(cluster: Cluster, bundle: str) -> set[str]:
    """The brokers that claim this bundle."""
    return probe.owners(cluster, bundle).get(bundle, set())


def wait_owner(cluster: Cluster, bundle: str, broker: str, timeout_seconds: float = 10.0) -> None:
    """Wait until this broker, and no other, owns the bundle."""
    deadline = time.monotonic() + timeout_seconds
    while (seen := owner(cluster, bundle)) != {broker}:
        if time.monotonic() > deadline:
            where = seen or "no broker"
            raise probe.ProbeError(f"{bundle} is on {where} instead of {broker} after {timeout_seconds:.0f} s")
        time.sleep(0.02)


def _call(cluster: Cluster, method: str, path: str, expected: Iterable[int], **options: Any) -> None:
    url = next(url for index, url in enumerate(cluster.admin_urls) if cluster.alive(index)) + path
    answer = probe.ask(cluster, method, url, **options)
    if answer.status_code not in expected:
        raise probe.ProbeError(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
