"""Which brokers a bundle may be placed on, and why not on the others. Pure.

A broker that is asked to take a bundle checks none of this (isolation policies, anti-affinity groups, topic limit), so
lbd does. Source: LoadManagerShared.applyNamespacePolicies and ModularLoadManagerImpl.selectBroker, but for what only
Pulsar's leader does there: where nothing is left, it drops its rules; lbd then has no answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import Skip, Unload, bundle_namespace
from lbd.permit.anti_affinity import Spread
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.model import CodeArray, Snapshot
    from lbd.permit.policies import Policies
    from lbd.place.seen import Seen

DRAINED = Reason.DRAINED.code


@dataclass(frozen=True)
class Candidates:
    """The brokers that may have a bundle, sorted, and the others, each with the reason; ``what`` is the broker."""

    brokers: tuple[str, ...]
    left_out: tuple[Skip, ...] = ()


class Standing:
    """How brokers stand in one round, moved along with what is placed.

    ``doubted`` is int8 (B,): 0, or the code of why a broker's report is not to be trusted. Where none is trusted, as
    minutes after the start of a cluster, all of them are candidates: bundles have to be somewhere.
    """

    def __init__(self, snapshot: Snapshot, policies: Policies, doubted: CodeArray, max_topics_per_broker: int) -> None:
        self._policies, self._spread = policies, Spread(snapshot, policies)
        self._index = snapshot.brokers.index()
        self._doubted = doubted if (doubted == 0).any() else np.where(doubted == DRAINED, doubted, np.int8(0))
        self._topics, self._most_topics = snapshot.brokers.topics, max_topics_per_broker

    def candidates(self, bundle: str, owner: str = "") -> Candidates:
        """Where the bundle may go once ``owner``, if it has one, has let it go; the owner itself is one of them."""
        namespace = bundle_namespace(bundle)
        unknown = self._policies.groups.unknown(namespace)
        active = sorted(self._policies.active)
        if unknown is not None:
            return Candidates((), tuple(Skip(broker, *unknown) for broker in active))
        best = self._spread.best(bundle, owner)
        left_out = tuple(self._left_out(namespace, active, best))
        out = {skip.what for skip in left_out}
        return Candidates(tuple(broker for broker in active if broker not in out), left_out)

    def take(self, bundle: str, broker: str) -> None:
        """Count a bundle that had no owner on the broker that it is placed on."""
        self._spread.take(Unload(bundle, "", broker, 0.0, 0.0))

    def _left_out(self, namespace: str, active: list[str], best: frozenset[str] | None) -> Iterator[Skip]:
        for broker in active:
            reason = self._unfit(broker) or self._policies.forbids(namespace, broker)
            if reason is None and best is not None and broker not in best:
                reason = Reason.ANTI_AFFINITY, f"has more of the group than {', '.join(sorted(best)) or 'none'}"
            if reason is not None:
                yield Skip(broker, *reason)

    def _unfit(self, broker: str) -> tuple[Reason, str] | None:
        """Pulsar takes a broker above the limit out, not one that has reached it."""
        at = self._index.get(broker)
        if at is None:
            return Reason.REPORT_MISSING, "gives no load report"
        if self._doubted[at] == DRAINED:
            return Reason.DRAINED, "it is being drained"
        if self._doubted[at]:
            return Reason.of(int(self._doubted[at])), "its report is not to be trusted"
        topics = int(self._topics[at])
        if topics > self._most_topics:
            return Reason.TOPIC_LIMIT, f"holds {topics:,} topics, limit {self._most_topics:,}"
        return None


def without_doubted(seen: Seen, doubted: CodeArray) -> Seen:
    """What placements may look at, with NaN for the loads of brokers whose code in ``doubted``, int8 (B,), is not 0."""
    unknown = np.where(doubted == 0, seen.usage, np.nan)
    return replace(seen, usage=unknown, smoothed=np.where(doubted == 0, seen.smoothed, np.nan))
