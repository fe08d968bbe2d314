"""What an admin request is called where requests are counted: its path with names left out. Pure.

There are as many names as the table has lines, however many bundles a cluster has.
"""

from __future__ import annotations

OTHER = "other"
ADMIN = "/admin/v2"

TEMPLATES = (
    "brokers/ready",
    "brokers/version",
    "brokers/leaderBroker",
    "brokers/configuration/runtime",
    "brokers/configuration/values",
    "brokers/configuration/{setting}",
    "brokers/configuration/{setting}/{value}",
    "brokers/{cluster}",
    "brokers/{cluster}/{broker}/ownedNamespaces",
    "broker-stats/load-report",
    "broker-stats/topics",
    "clusters",
    "clusters/{cluster}/failureDomains",
    "clusters/{cluster}/namespaceIsolationPolicies",
    "namespaces/{cluster}/antiAffinity/{group}",
    "namespaces/{tenant}/{namespace}",
    "namespaces/{tenant}/{namespace}/antiAffinity",
    "namespaces/{tenant}/{namespace}/bundles",
    "namespaces/{tenant}/{namespace}/topics",
    "namespaces/{tenant}/{cluster}/{namespace}/antiAffinity",
    "namespaces/{tenant}/{namespace}/{bundle}/split",
    "namespaces/{tenant}/{namespace}/{bundle}/topicHashPositions",
    "namespaces/{tenant}/{namespace}/{bundle}/unload",
    "persistent/{tenant}/{namespace}/{topic}",
    "persistent/{tenant}/{namespace}/{topic}/stats",
    "persistent/{tenant}/{namespace}/{topic}/subscription/{name}",
    "persistent/{tenant}/{namespace}/{topic}/subscription/{name}/expireMessages/{seconds}",
)
"""The first that fits is meant: a word stands before a name."""

_BY_LENGTH: dict[int, list[tuple[str, list[str]]]] = {}
for _template in TEMPLATES:
    _BY_LENGTH.setdefault(_template.count("/"), []).append((f"{ADMIN}/{_template}", _template.split("/")))


def endpoint(path: str) -> str:
    """The template of a path, without its query; ``other`` for one that lbd does not know."""
    path = path.partition("?")[0]
    if path.startswith("/lookup/v2/topic/"):
        return "/lookup/v2/topic"
    if not path.startswith(f"{ADMIN}/"):
        return OTHER
    parts = path[len(ADMIN) + 1 :].split("/")
    for name, wanted in _BY_LENGTH.get(len(parts) - 1, ()):
        if all(word.startswith("{") or word == part for word, part in zip(wanted, parts, strict=True)):
            return name
    return OTHER
