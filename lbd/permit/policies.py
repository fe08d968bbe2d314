"""Namespace isolation and anti-affinity: which namespaces are bound, and which brokers are taken by them. Pure.

A forced destination bypasses every check of the brokers, so lbd must make them. Until it balances within the pools that
policies make, it leaves bound namespaces alone and sends nothing to brokers that are primaries of a policy.
Source: LoadManagerShared.applyNamespacePolicies; brokers are matched by host alone, namespaces by their full name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Isolation:
    """The isolation policies of a cluster. ``known`` is False when they could not be read: then nothing moves."""

    namespaces: tuple[re.Pattern[str], ...] = ()
    primaries: tuple[re.Pattern[str], ...] = ()
    known: bool = True

    def covers(self, namespace: str) -> bool:
        """Whether a namespace is bound to some brokers."""
        return any(pattern.fullmatch(namespace) for pattern in self.namespaces)

    def reserves(self, broker: str) -> bool:
        """Whether a broker (``host:port``) is primary of some policy, and so no destination for other namespaces."""
        host = broker.rpartition(":")[0]
        return not self.known or any(pattern.fullmatch(host) for pattern in self.primaries)


def isolation_of(policies: Mapping[str, Any]) -> Isolation:
    """From the answer of ``namespaceIsolationPolicies``. One that cannot be read makes all of them unknown."""
    try:
        return Isolation(
            namespaces=_patterns(policy["namespaces"] for policy in policies.values()),
            primaries=_patterns(policy["primary"] for policy in policies.values()),
        )
    except (KeyError, TypeError, re.error, OverflowError, RecursionError):
        return Isolation(known=False)


def _patterns(lists: Iterable[Iterable[str]]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text) for texts in lists for text in texts)


@dataclass(frozen=True)
class Groups:
    """Anti-affinity groups of the namespaces asked about; one that is in neither collection is not known."""

    free: frozenset[str] = frozenset()
    grouped: Mapping[str, str] = field(default_factory=dict)

    def and_those(self, others: Groups) -> Groups:
        """What is known of both."""
        return Groups(self.free | others.free, {**self.grouped, **others.grouped})

    def reason(self, namespace: str) -> tuple[Reason, str] | None:
        """Why bundles of a namespace stay; None when it belongs to no group."""
        if namespace in self.free:
            return None
        if namespace in self.grouped:
            return Reason.ANTI_AFFINITY, f"{namespace} belongs to anti-affinity group {self.grouped[namespace]!r}"
        return Reason.POLICY_UNKNOWN, f"whether {namespace} belongs to an anti-affinity group could not be read"
