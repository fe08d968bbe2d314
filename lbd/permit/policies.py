"""Namespace isolation: which namespaces are bound to brokers, and which brokers are taken by them. Pure.

A forced destination bypasses every check of the brokers, so lbd must make them. Until it balances within the pools that
policies make, it leaves bound namespaces alone and sends nothing to brokers that are primaries of a policy.
Source: LoadManagerShared.applyNamespacePolicies; brokers are matched by host alone, namespaces by their full name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Isolation:
    """The isolation policies of a cluster. ``known`` is False when they could not be read: then everything is bound."""

    namespaces: tuple[re.Pattern[str], ...] = ()
    primaries: tuple[re.Pattern[str], ...] = ()
    known: bool = True

    def covers(self, namespace: str) -> bool:
        """Whether a namespace is bound to some brokers."""
        return not self.known or any(pattern.fullmatch(namespace) for pattern in self.namespaces)

    def reserves(self, broker: str) -> bool:
        """Whether a broker (``host:port``) is primary of some policy, and so no destination for other namespaces."""
        host = broker.rpartition(":")[0]
        return not self.known or any(pattern.fullmatch(host) for pattern in self.primaries)


def isolation_of(policies: Mapping[str, Any]) -> Isolation:
    """From the answer of ``namespaceIsolationPolicies``. A policy that cannot be read makes everything bound."""
    try:
        return Isolation(
            namespaces=_patterns(policy["namespaces"] for policy in policies.values()),
            primaries=_patterns(policy["primary"] for policy in policies.values()),
        )
    except (KeyError, TypeError, re.error):
        return Isolation(known=False)


def _patterns(lists: Iterable[Iterable[str]]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text) for texts in lists for text in texts)
