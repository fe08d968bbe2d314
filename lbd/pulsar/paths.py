"""Paths of the admin API, names of bundles and topics, and what a broker version can do. Pure."""

from __future__ import annotations

import re
import zlib
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import quote

from lbd.errors import UsageError
from lbd.model import bundle_namespace, bundle_range

if TYPE_CHECKING:
    from collections.abc import Mapping

_RANGE = re.compile(r"0x([0-9a-f]{8})_0x([0-9a-f]{8})")

CLUSTERS = "/admin/v2/clusters"
LOAD_REPORT = "/admin/v2/broker-stats/load-report"
READY = "/admin/v2/brokers/ready"
VERSION = "/admin/v2/brokers/version"
LEADER = "/admin/v2/brokers/leaderBroker"
RUNTIME_CONFIGURATION = "/admin/v2/brokers/configuration/runtime"
DYNAMIC_CONFIGURATION = "/admin/v2/brokers/configuration/values"
TOPIC_STATS = "/admin/v2/broker-stats/topics"
SHEDDING_ENABLED = "loadBalancerSheddingEnabled"
AUTO_SPLIT_ENABLED = "loadBalancerAutoBundleSplitEnabled"


def brokers(cluster: str) -> str:
    """All active brokers of a cluster."""
    return f"/admin/v2/brokers/{quote(cluster, safe='')}"


def dynamic(key: str, value: str | None = None) -> str:
    """The override of one setting on all brokers: POST with the value, DELETE without."""
    path = f"/admin/v2/brokers/configuration/{quote(key, safe='')}"
    return path if value is None else f"{path}/{quote(value, safe='')}"


def owned_namespaces(cluster: str, broker: str) -> str:
    """What one broker owns; reading it has no side effect. Brokers redirect it to the one that is asked about."""
    return f"{brokers(cluster)}/{quote(broker, safe=':')}/ownedNamespaces"


def namespace(name: str) -> str:
    """Policies of a namespace, isolation aside."""
    return f"/admin/v2/namespaces/{quote(name)}"


def bundles(name: str) -> str:
    """Where a namespace is cut into bundles."""
    return f"{namespace(name)}/bundles"


def anti_affinity(name: str) -> str:
    """The anti-affinity group of a namespace."""
    return f"{namespace(name)}/antiAffinity"


def anti_affinity_namespaces(cluster: str, group: str, tenant: str) -> str:
    """The namespaces of one tenant that belong to an anti-affinity group."""
    return f"/admin/v2/namespaces/{quote(cluster, safe='')}/antiAffinity/{quote(group, safe='')}?tenant={quote(tenant)}"


def failure_domains(cluster: str) -> str:
    """All failure domains of a cluster, by name."""
    return f"/admin/v2/clusters/{quote(cluster, safe='')}/failureDomains"


def isolation_policies(cluster: str) -> str:
    """All namespace isolation policies of a cluster, by name."""
    return f"/admin/v2/clusters/{quote(cluster, safe='')}/namespaceIsolationPolicies"


def unload(bundle: str) -> str:
    """Unload of one bundle."""
    return f"{namespace(bundle_namespace(bundle))}/{bundle_range(bundle)}/unload"


def split(bundle: str) -> str:
    """Split of one bundle."""
    return f"{namespace(bundle_namespace(bundle))}/{bundle_range(bundle)}/split"


def topics(name: str) -> str:
    """Names of all topics of a namespace, those that are not loaded and those of Pulsar itself among them."""
    return f"{namespace(name)}/topics?mode=ALL&includeSystemTopic=true"


def topic(name: str) -> str:
    """A persistent topic without partitions."""
    return f"/admin/v2/persistent/{quote(name.removeprefix('persistent://'))}"


def topic_stats(name: str) -> str:
    """What a topic's broker knows of it: who writes and reads."""
    return f"{topic(name)}/stats"


def subscription(name: str, subscription: str) -> str:
    """A durable subscription of a topic."""
    return f"{topic(name)}/subscription/{quote(subscription, safe='')}"


def expiry(name: str, subscription: str, seconds: int) -> str:
    """Has a subscription pass over messages that are older."""
    return f"{topic(name)}/subscription/{quote(subscription, safe='')}/expireMessages/{seconds}"


def topic_hash_positions(bundle: str) -> str:
    """Read-only owner probe (2.11+): 200 at the owner, 307 to the owner elsewhere, 412 when nobody owns the bundle."""
    return f"{namespace(bundle_namespace(bundle))}/{bundle_range(bundle)}/topicHashPositions"


def lookup(bundle: str) -> str:
    """Lookup of a made-up non-persistent topic that falls into the bundle: it leaves no topic behind."""
    return f"/lookup/v2/topic/non-persistent/{quote(bundle_namespace(bundle))}/{topic_in(bundle)}"


def topic_in(bundle: str) -> str:
    """A topic name that Pulsar hashes into this bundle: CRC32 of the full topic name, ranges are [lower, upper)."""
    lower, upper = bounds(bundle)
    stem = zlib.crc32(f"non-persistent://{bundle_namespace(bundle)}/lbd-nudge-".encode())
    for number in count():
        if lower <= zlib.crc32(str(number).encode(), stem) < upper:
            return f"lbd-nudge-{number}"
    raise AssertionError("count() ends never")


def bounds(bundle: str) -> tuple[int, int]:
    """Lower (inclusive) and upper (exclusive) hash of a bundle; the last range includes 0xffffffff."""
    match = _RANGE.fullmatch(bundle_range(bundle))
    if match is None or bundle.count("/") != 2:
        raise UsageError(f"{bundle!r} is no bundle; wanted tenant/namespace/0xLLLLLLLL_0xUUUUUUUU")
    lower, upper = int(match[1], 16), int(match[2], 16)
    if not lower < upper:
        raise UsageError(f"{bundle!r} is no bundle: the lower end of the range must be below the upper one")
    return lower, upper + (upper == 0xFFFFFFFF)


def version_of(text: str) -> tuple[int, int, int]:
    """``(major, minor, patch)`` of a broker version like ``4.0.8`` or ``5.0.0-M1``; zeros where it says nothing."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def knows_destinations(version: str) -> bool:
    """``destinationBroker`` exists since 3.0.0 (#18663); before, it is ignored and answered 204 all the same."""
    return version_of(version) >= (3, 0, 0)


def keys_destinations_by_range(version: str) -> bool:
    """Whether a leader remembers a destination by the bundle's range alone, whatever its namespace (#25518).

    Fixed in 4.0.10 and 4.2.1; 4.1.3, the last release of 4.1 known here, has it still.
    """
    number = version_of(version)
    return knows_destinations(version) and (number < (4, 0, 10) or (4, 1, 0) <= number < (4, 2, 1))


def loses_avg_shedder(version: str) -> bool:
    """Whether a start-up check compares AvgShedder with the wrong key, and the simple manager runs instead (#23156)."""
    return version_of(version) in {(3, 0, 6), (3, 0, 7), (3, 2, 4), (3, 3, 1), (3, 3, 2)}


def sheds(runtime: Mapping[str, str]) -> bool:
    """Whether a broker with this effective configuration moves bundles by itself, as its load manager decides it."""
    return all(runtime.get(key, "true") == "true" for key in ("loadBalancerEnabled", SHEDDING_ENABLED))


def splits(runtime: Mapping[str, str]) -> bool:
    """Whether a broker with this effective configuration has its leader split bundles by itself."""
    return all(runtime.get(key, "true") == "true" for key in ("loadBalancerEnabled", AUTO_SPLIT_ENABLED))


def manager_of(runtime: Mapping[str, str]) -> str:
    """The class name, without its package, of the load manager that a broker with this configuration runs."""
    return runtime.get("loadManagerClassName", "ModularLoadManagerImpl").rpartition(".")[2]


def is_extensible(runtime: Mapping[str, str]) -> bool:
    """Whether it is the extensible one (PIP-192), which tells its load on topics, and hands bundles over by itself."""
    return manager_of(runtime) == "ExtensibleLoadManagerImpl"


def shedder_of(runtime: Mapping[str, str]) -> str:
    """The class name, without its package, of what sheds there; empty where that is not told.

    The extensible manager takes TransferShedder where the modular one's shedder is named (UnloadScheduler).
    """
    package, _, name = runtime.get("loadBalancerLoadSheddingStrategy", "").rpartition(".")
    modulars = package in {"", "org.apache.pulsar.broker.loadbalance.impl"}
    return "TransferShedder" if is_extensible(runtime) and modulars else name
