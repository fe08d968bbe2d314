"""Addresses of brokers, paths of the admin API, names of bundles and topics, features by version. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeAlias
from urllib import parse
from urllib.parse import urlsplit

from lbd.bundles import not_a_bundle, numbered, scalable_namespace, topic_at
from lbd.errors import ObserveError, UsageError
from lbd.foreign import is_printable
from lbd.model import bundle_namespace, bundle_range

if TYPE_CHECKING:
    from collections.abc import Iterator


_RANGE = re.compile(r"0x([0-9a-f]{8})_0x([0-9a-f]{8})")

CLUSTERS = "/admin/v2/clusters"
LOAD_REPORT = "/admin/v2/broker-stats/load-report"
READY = "/admin/v2/brokers/ready"
HEALTH = "/admin/v2/brokers/health"
VERSION = "/admin/v2/brokers/version"
LEADER = "/admin/v2/brokers/leaderBroker"
RUNTIME_CONFIGURATION = "/admin/v2/brokers/configuration/runtime"
DYNAMIC_CONFIGURATION = "/admin/v2/brokers/configuration/values"
TOPIC_STATS = "/admin/v2/broker-stats/topics"
MBEANS = "/admin/v2/broker-stats/mbeans"


HostPort: TypeAlias = tuple[str, int]
"""A host, in lower case and without brackets, and a port: two addresses are the same where these are."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"([^\x00-\x20\x7f@\\/?#\[\]:%]+|\[[0-9a-fA-F.]*:[0-9a-fA-F:.]*\])(:[0-9]*)?")


@lru_cache(maxsize=4096)
def host_port(url_or_id: str) -> HostPort | None:
    """Host and port of a URL or of a broker id; None where it is no address, or has more parts.

    A user, a backslash or a space before the path is read differently by different readers of URLs, and the trusted
    host must be the one that gets the token. No host begins with a hyphen, which would make it an option of a command.
    """
    if not is_printable(url_or_id):
        return None
    url = url_or_id if "://" in url_or_id else f"http://{url_or_id}"
    try:
        parts = urlsplit(url)
        port = parts.port if parts.port is not None else _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    host = (parts.hostname or "").removesuffix(".")
    if not host or not port or not _AUTHORITY.fullmatch(parts.netloc) or host[0] == "-":
        return None
    try:
        return str(ip_address(host)), port
    except ValueError:
        return host, port


def quote(name: str, safe: str = "/") -> str:
    """A name as part of a path. Raises :class:`ObserveError` for one that is not printable, or was not before.

    Such a name differs from the cluster's own (:mod:`lbd.foreign`), and a request for it would reach another thing.
    """
    if not is_printable(name):
        raise ObserveError(f"no request is sent for {name!r}: names with control or format characters are refused")
    return parse.quote(name, safe=safe)


def brokers(cluster: str) -> str:
    """All active brokers of a cluster."""
    return f"/admin/v2/brokers/{quote(cluster, safe='')}"


def dynamic(key: str, value: str | None = None) -> str:
    """The override of one setting on all brokers: POST with the value, DELETE without."""
    path = f"/admin/v2/brokers/configuration/{quote(key, safe='')}"
    return path if value is None else f"{path}/{quote(value, safe='')}"


def owned_namespaces(cluster: str, broker: str) -> str:
    """Bundles that one broker owns; reading them has no side effect. Brokers redirect to the broker in question."""
    return f"{brokers(cluster)}/{quote(broker, safe=':')}/ownedNamespaces"


def namespace(name: str) -> str:
    """Policies of a namespace, isolation aside."""
    return f"/admin/v2/namespaces/{quote(name)}"


def bundles(name: str) -> str:
    """Boundaries of a namespace's bundles."""
    return f"{namespace(name)}/bundles"


def anti_affinity(name: str) -> str:
    """The anti-affinity group of a namespace."""
    return f"{namespace(name)}/antiAffinity"


def properties(name: str) -> str:
    """Properties of a namespace, set by the admins of its tenant."""
    return f"{namespace(name)}/properties"


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
    """Names of all topics of a namespace, including those that are not loaded and Pulsar's own."""
    return f"{namespace(name)}/topics?mode=ALL&includeSystemTopic=true"


def topic(name: str) -> str:
    """A persistent topic without partitions."""
    return f"/admin/v2/persistent/{quote(name.removeprefix('persistent://'))}"


def topic_stats(name: str) -> str:
    """Statistics of a topic at its broker: producers and consumers."""
    return f"{topic(name)}/stats"


def scalable_topic(name: str) -> str:
    """The segments of a scalable topic (5.0 and later). Raises :class:`UsageError` for any other name."""
    namespace = scalable_namespace(name)
    local = name.removeprefix(f"topic://{namespace}/")
    return f"{scalable_topics(namespace)}/{quote(local, safe='')}"


def scalable_topics(name: str) -> str:
    """The scalable topics of a namespace (5.0 and later)."""
    return f"/admin/v2/scalable/{quote(name)}"


def topic_ttl(name: str) -> str:
    """Seconds after which messages of a topic expire; empty where the topic has no policy of its own."""
    return f"{topic(name)}/messageTTL"


def topic_permissions(name: str) -> str:
    """Permissions by role on a topic, including those of its namespace."""
    return f"{topic(name)}/permissions"


def subscription(name: str, subscription: str) -> str:
    """A durable subscription of a topic."""
    return f"{topic(name)}/subscription/{quote(subscription, safe='')}"


def expiry(name: str, subscription: str, seconds: int) -> str:
    """Expire older messages of a subscription."""
    return f"{topic(name)}/subscription/{quote(subscription, safe='')}/expireMessages/{seconds}"


def topic_hash_positions(bundle: str) -> str:
    """Read-only owner probe (2.11+): 200 at the owner, 307 to the owner elsewhere, 412 when it has no owner."""
    return f"{namespace(bundle_namespace(bundle))}/{bundle_range(bundle)}/topicHashPositions"


def bundle_of(topic: str) -> str:
    """Bundle of a topic by the broker's own rule, whether or not there is such a topic."""
    return f"/lookup/v2/topic/{quote(topic.replace('://', '/'))}/bundle"


def schema(topic: str) -> str:
    """The schema of a persistent topic. The broker takes the bundle first, and never looks for the topic itself."""
    return f"/admin/v2/schemas/{quote(topic.removeprefix('persistent://'))}/schema"


NAMES_TRIED = 256
"""Made-up topics for one bundle: enough to hit one of 50 bundles in 99 of 100 cases, whatever the brokers' rule is."""


def made_up_topics(bundle: str) -> Iterator[str]:
    """Full names of persistent topics that do not exist; by Pulsar's own rule the first falls into the bundle.

    Never non-persistent ones: a broker that computes the bundle of such a name marks it as one with non-persistent
    topics, and as leader places it only on brokers with ``enableNonPersistentTopics`` from then on
    (``ConsistentHashingTopicBundleAssigner``, ``LoadManagerShared.applyNamespacePolicies``).
    """
    stem = f"persistent://{bundle_namespace(bundle)}/lbd-nudge-"
    names = dict.fromkeys(
        (topic_at(stem, bounds(bundle)[0]), *(numbered(stem, number) for number in range(NAMES_TRIED)))
    )
    yield from list(names)[:NAMES_TRIED]


def bounds(bundle: str) -> tuple[int, int]:
    """Lower (inclusive) and upper (exclusive) hash of a bundle; the last range includes 0xffffffff."""
    match = _RANGE.fullmatch(bundle_range(bundle))
    if match is None or bundle.count("/") != 2:
        raise UsageError(not_a_bundle(bundle))
    lower, upper = int(match[1], 16), int(match[2], 16)
    if not lower < upper:
        raise UsageError(f"{bundle!r} is no bundle: the lower end of the range must be below the upper one")
    return lower, upper + (upper == 0xFFFFFFFF)


def parse_version(text: str) -> tuple[int, int, int]:
    """``(major, minor, patch)`` of a broker version like ``4.0.8`` or ``5.0.0-M1``; zeros for an unreadable one."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def tells_owners(version: str) -> bool:
    """Whether brokers have :func:`topic_hash_positions`, without which no owner is certain: since 2.11.0.

    True also for an unreadable version.
    """
    number = parse_version(version)
    return number == (0, 0, 0) or number >= (2, 11, 0)


def knows_destinations(version: str) -> bool:
    """Whether ``destinationBroker`` has an effect: since 3.0.0 (#18663). Before, 204 is the response all the same."""
    return parse_version(version) >= (3, 0, 0)


def keys_destinations_by_range(version: str) -> bool:
    """Whether a leader remembers a destination by the bundle's range alone, whatever its namespace (#25518).

    Fixed in 4.0.10 and 4.2.1. 4.1.3, the last release of 4.1 that was examined, still has it.
    """
    number = parse_version(version)
    return knows_destinations(version) and (number < (4, 0, 10) or (4, 1, 0) <= number < (4, 2, 1))


def loses_avg_shedder(version: str) -> bool:
    """Whether a start-up check compares AvgShedder with the wrong key, and the simple manager runs instead (#23156)."""
    return parse_version(version) in {(3, 0, 6), (3, 0, 7), (3, 2, 4), (3, 3, 1), (3, 3, 2)}


def fails_fast(version: str) -> bool:
    """Whether a broker that cannot make its load manager stops, instead of running SimpleLoadManagerImpl (#26031)."""
    number = parse_version(version)
    return (4, 0, 12) <= number < (4, 1, 0) or number >= (4, 2, 3)


def mends_policy_readers(version: str) -> bool:
    """Whether a hanging reader of ``__change_events`` leaves the topics of its namespace loadable (#26025).

    It came with the same releases as #26031.
    """
    return fails_fast(version)


NEWEST_KNOWN = {(2, 11): 0, (3, 0): 14, (3, 3): 6, (4, 0): 14, (4, 1): 3, (4, 2): 5, (5, 0): 1}
"""Last patch of each release line that was run or read (docs/compatibility.md has the details)."""


def newest_known(version: str) -> str | None:
    """The last release of this version's line, or of all, that was run or read; None unless this version is newer."""
    *line, patch = parse_version(version)
    major, minor = newest = max(NEWEST_KNOWN)
    if tuple(line) > newest:
        return f"{major}.{minor}.{NEWEST_KNOWN[newest]}"
    last = NEWEST_KNOWN.get((line[0], line[1]), patch)
    return f"{line[0]}.{line[1]}.{last}" if patch > last else None
