"""Anti-affinity: bundles of a group of namespaces stay apart, by failure domain first, then by broker. Pure.

Source: LoadManagerShared.filterAntiAffinityGroupOwnedBrokers. A broker counts as many namespaces of the group as it has
bundles of; those of the least loaded domains, and among them the least loaded brokers, may take one more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import Unload, bundle_namespace
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lbd.model import Snapshot
    from lbd.permit.policies import Groups, Policies

DEFAULT_DOMAIN = "default"
"""The domain of brokers that are in none, as in LoadManagerShared."""


class Spread:
    """How the namespaces of the groups that a plan touches lie on the brokers, moved along with the plan."""

    def __init__(self, snapshot: Snapshot, policies: Policies) -> None:
        self._policies, self._groups = policies, policies.groups
        self._bundles: dict[str, dict[str, Counter[str]]] = _counted(snapshot, policies.groups)
        self._unheard = frozenset(policies.active).difference(snapshot.brokers.ids)

    def refusal(self, unload: Unload) -> tuple[Reason, str] | None:
        """Why a bundle may not go to its destination; None when its group allows it, or it has none."""
        namespace = bundle_namespace(unload.bundle)
        group = self._groups.grouped.get(namespace)
        if group is None or unload.destination is None:
            return None
        if (broker := self._uncounted(namespace)) is not None:
            told = f"{broker} gives no load report, so how many of anti-affinity group {group!r} its failure domain has"
            return Reason.ANTI_AFFINITY, f"{told} is not known"
        best = self._best(group, unload.bundle, unload.source)
        if unload.destination in best:
            return None
        return Reason.ANTI_AFFINITY, (
            f"{unload.destination} has more of anti-affinity group {group!r} than {', '.join(sorted(best)) or 'none'}"
        )

    def best(self, bundle: str, source: str = "") -> frozenset[str] | None:
        """Where its group allows a bundle, once ``source``, if it has one, has let it go; None where no group binds it.

        Of a group whose members are not known nothing can be said: :meth:`~lbd.permit.policies.Groups.unknown` first.
        """
        group = self._groups.grouped.get(bundle_namespace(bundle))
        return None if group is None else self._best(group, bundle, source)

    def take(self, unload: Unload) -> None:
        """Count a move; one from nobody has no source."""
        namespace = bundle_namespace(unload.bundle)
        counted = self._bundles.get(self._groups.grouped.get(namespace, ""))
        if counted is not None and unload.destination is not None:
            counted[unload.source][namespace] -= 1
            counted[unload.destination][namespace] += 1

    def undo(self, unload: Unload) -> None:
        """Take a counted move back."""
        self.take(replace(unload, source=unload.destination or "", destination=unload.source))

    def _uncounted(self, namespace: str) -> str | None:
        """A broker that may have more of a group than is seen: without domains it takes nobody's place by that."""
        unheard = self._unheard & self._policies.brokers(namespace) if self._groups.domains else frozenset[str]()
        return min(unheard, default=None)

    def _best(self, group: str, bundle: str, source: str) -> frozenset[str]:
        """Where Pulsar would place the bundle once its source has let it go."""
        namespace = bundle_namespace(bundle)
        left = Counter({source: self._bundles[group][source][namespace] == 1})
        counts = {
            broker: sum(number > 0 for number in self._bundles[group][broker].values()) - left[broker]
            for broker in self._policies.brokers(namespace)
        }
        return _least(_in_least_domains(counts, self._groups.domains))


def _counted(snapshot: Snapshot, groups: Groups) -> dict[str, dict[str, Counter[str]]]:
    """Bundles by group, broker and namespace."""
    found: dict[str, dict[str, Counter[str]]] = {group: defaultdict(Counter) for group in groups.members}
    if not found:
        return found
    group_of = {namespace: group for group, names in groups.members.items() for namespace in names}
    names, of = snapshot.namespaces.names, snapshot.namespaces.of[snapshot.rows.bundle]
    grouped = np.flatnonzero(np.array([name in group_of for name in names], dtype=np.bool_)[of])
    for owner, at in zip(snapshot.rows.owner()[grouped].tolist(), of[grouped].tolist(), strict=True):
        found[group_of[names[at]]][snapshot.brokers.ids[owner]][names[at]] += 1
    return found


def _in_least_domains(counts: Mapping[str, int], domains: Mapping[str, str]) -> dict[str, int]:
    if not domains:
        return dict(counts)
    total: Counter[str] = Counter()
    for broker, count in counts.items():
        total[domains.get(broker, DEFAULT_DOMAIN)] += count
    least = _least(total)
    return {broker: count for broker, count in counts.items() if domains.get(broker, DEFAULT_DOMAIN) in least}


def _least(counts: Mapping[str, int]) -> frozenset[str]:
    fewest = min(counts.values(), default=0)
    return frozenset(_where(counts, fewest))


def _where(counts: Mapping[str, int], number: int) -> Iterable[str]:
    return (name for name, count in counts.items() if count == number)
