"""Namespace isolation and anti-affinity: on which brokers a namespace may be. Pure.

A forced destination bypasses every check of the brokers, so lbd makes them.
Source: LoadManagerShared.applyNamespacePolicies and NamespaceIsolationPolicies; brokers are matched by host alone,
namespaces by their full name. Of several policies that match a namespace Pulsar takes the first of a hash map: here a
broker must be allowed by all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.model import Pool
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lbd.model import Snapshot


@dataclass(frozen=True)
class Policy:
    """One isolation policy. Secondaries join while fewer than ``min_limit`` primaries are active."""

    name: str
    namespaces: tuple[re.Pattern[str], ...]
    primaries: tuple[re.Pattern[str], ...]
    secondaries: tuple[re.Pattern[str], ...] = ()
    min_limit: int = 0

    def covers(self, namespace: str) -> bool:
        """Whether it says where this namespace may be."""
        return _matches(self.namespaces, namespace)

    def reserves(self, broker: str) -> bool:
        """Whether a broker (``host:port``) is one of its primaries, and so not for namespaces without a policy."""
        return _matches(self.primaries, _host(broker))

    def brokers(self, active: Iterable[str]) -> frozenset[str]:
        """Those of the active brokers on which its namespaces may be."""
        known = list(active)
        primaries = frozenset(filter(self.reserves, known))
        if len(primaries) >= self.min_limit:
            return primaries
        return primaries | {broker for broker in known if _matches(self.secondaries, _host(broker))}


@dataclass(frozen=True)
class Isolation:
    """The isolation policies of a cluster. ``known`` is False when they could not be read: then nothing moves."""

    policies: tuple[Policy, ...] = ()
    known: bool = True

    def of(self, namespace: str) -> tuple[Policy, ...]:
        """The policies that say where a namespace may be."""
        return tuple(policy for policy in self.policies if policy.covers(namespace))

    def brokers(self, namespace: str, active: Sequence[str]) -> frozenset[str]:
        """Those of the active brokers on which a namespace may be."""
        return self._allowed(self.of(namespace), active) if self.known else frozenset()

    def _allowed(self, policies: Sequence[Policy], active: Sequence[str]) -> frozenset[str]:
        if policies:
            return frozenset.intersection(*(policy.brokers(active) for policy in policies))
        return frozenset(broker for broker in active if not any(policy.reserves(broker) for policy in self.policies))

    def pools(self, snapshot: Snapshot, active: Sequence[str]) -> tuple[Pool, ...]:
        """The bundles of namespaces that may be on the same brokers, together; none where there is no policy.

        Brokers outside a bundle's pool neither give nor take it, also the one that has it against its policy.
        """
        if not self.policies:
            return ()
        policies = [self.of(name) for name in snapshot.namespaces.names]
        brokers = {found: self._allowed(found, active) for found in dict.fromkeys(policies)}
        label: dict[frozenset[str], str] = {}
        for found, allowed in brokers.items():
            label[allowed] = _joined(label.get(allowed), found)
        ordered = sorted(label, key=label.__getitem__)
        number = {allowed: at for at, allowed in enumerate(ordered)}
        own = np.array([number[brokers[found]] for found in policies], dtype=np.int32)[snapshot.namespaces.of]
        return tuple(
            Pool(
                label[allowed],
                np.array([broker in allowed for broker in snapshot.brokers.ids], dtype=np.bool_),
                own == at,
            )
            for at, allowed in enumerate(ordered)
        )


def _joined(label: str | None, policies: tuple[Policy, ...]) -> str:
    """The name of a pool: none where it is that of the namespaces without a policy, too."""
    if not policies or label == "":
        return ""
    return "+".join(sorted({*(label or "").split("+"), *(policy.name for policy in policies)} - {""}))


def _host(broker: str) -> str:
    return broker.rpartition(":")[0]


def _matches(patterns: Iterable[re.Pattern[str]], text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in patterns)


def isolation_of(policies: Mapping[str, Any]) -> Isolation:
    """From the answer of ``namespaceIsolationPolicies``. One that cannot be read makes all of them unknown."""
    try:
        return Isolation(tuple(_policy(name, given) for name, given in policies.items()))
    except (KeyError, TypeError, AttributeError, ValueError, re.error, OverflowError, RecursionError):
        return Isolation(known=False)


def _policy(name: str, given: Mapping[str, Any]) -> Policy:
    """Pulsar keeps numbers of a fail-over policy as text."""
    parameters = (given.get("auto_failover_policy") or {}).get("parameters") or {}
    return Policy(
        name,
        _patterns(given["namespaces"]),
        _patterns(given["primary"]),
        _patterns(given.get("secondary") or ()),
        int(parameters.get("min_limit", 0)),
    )


def _patterns(texts: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(_pattern(text) for text in texts)


def _pattern(text: str) -> re.Pattern[str]:
    """Patterns are Java's. Raises ValueError for a class within a class, which Python takes for something else."""
    if _NESTED_CLASS.search(_ESCAPED.sub("", text)):
        raise ValueError(f"{text!r}: a class within a class")
    return re.compile(text)


_ESCAPED = re.compile(r"\\.")
_NESTED_CLASS = re.compile(r"\[[^\]]*(?:\[|&&)")


@dataclass(frozen=True)
class Groups:
    """Anti-affinity groups of the namespaces asked about; one that is in neither collection is not known.

    ``grouped`` is the group of each namespace, in lower case as Pulsar compares them; ``members`` are the namespaces of
    each group, where all of them are known. ``domains`` are the brokers' failure domains, empty where those are off.
    ``unread`` are namespaces that were asked about in vain.
    """

    free: frozenset[str] = frozenset()
    grouped: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    @property
    def asked(self) -> int:
        """How many namespaces were asked about."""
        return len(self.free) + len(self.grouped) + len(self.unread)

    def and_those(self, others: Groups) -> Groups:
        """What is known of both."""
        return Groups(
            self.free | others.free,
            {**self.grouped, **others.grouped},
            {**self.members, **others.members},
            {**self.domains, **others.domains},
            self.unread | others.unread,
        )

    def unknown(self, namespace: str) -> tuple[Reason, str] | None:
        """Why bundles of a namespace stay, whatever their destination; None when everything is known of it."""
        group = self.grouped.get(namespace)
        if namespace in self.free or namespace in self.members.get(group or "", ()):
            return None
        if group is None:
            return Reason.POLICY_UNKNOWN, f"whether {namespace} belongs to an anti-affinity group could not be read"
        return Reason.POLICY_UNKNOWN, f"who else belongs to anti-affinity group {group!r} could not be read"


@dataclass(frozen=True)
class Policies:
    """Everything that says on which of the ``active`` brokers a bundle may be: on none that is ``drained``.

    Isolation policies count drained brokers as active, as Pulsar does, which knows nothing of a drain. ``known`` are
    answers of :meth:`brokers` to the same isolation, ``active`` and ``drained``, which it adds to.
    """

    isolation: Isolation = field(default_factory=Isolation)
    groups: Groups = field(default_factory=Groups)
    active: tuple[str, ...] = ()
    drained: frozenset[str] = frozenset()
    known: dict[str, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)

    def brokers(self, namespace: str) -> frozenset[str]:
        """The brokers on which isolation policies allow a namespace; worked out once for each."""
        if namespace not in self.known:
            self.known[namespace] = self.isolation.brokers(namespace, self.active) - self.drained
        return self.known[namespace]

    def forbids(self, namespace: str, broker: str) -> tuple[Reason, str] | None:
        """Why a namespace may not be on a broker, seen from isolation policies; None when it may."""
        if not self.isolation.known:
            return Reason.POLICY_UNKNOWN, "isolation policies could not be read"
        if broker in self.brokers(namespace):
            return None
        if broker in self.drained:
            return Reason.DRAINED, f"{broker} is being drained"
        bound = ", ".join(policy.name for policy in self.isolation.of(namespace))
        if bound:
            return Reason.ISOLATION_POLICY, f"{namespace} may not be on {broker}: isolation policy {bound}"
        return Reason.ISOLATION_POLICY, f"{broker} is primary of an isolation policy for others"
