"""Brokers on which a bundle may be placed, and why not on the others. Pure.

A broker that receives a request to take a bundle checks none of this (isolation policies, anti-affinity groups, topic
limit), so lbd does. Source: LoadManagerShared.applyNamespacePolicies and ModularLoadManagerImpl.selectBroker, with one
difference: if no broker remains, Pulsar's leader drops its rules; lbd then has no answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import Skip, Unload, bundle_namespace
from lbd.permit.policies import GroupSpread
from lbd.place.placements import PlacementChoice
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lbd.model import CodeArray, Snapshot
    from lbd.permit.policies import Policies
    from lbd.place.placements import BrokerLoads, PlaceMemory, Placement


AVOIDED = (Reason.DRAINED.code, Reason.SLOW_BROKER.code)
"""Nothing is placed on such brokers, even if no report is trusted."""


@dataclass(frozen=True)
class PlacementCandidates:
    """The brokers that may have a bundle, sorted, and the others, each with the reason; ``what`` is the broker."""

    brokers: tuple[str, ...]
    left_out: tuple[Skip, ...] = ()


class RunningLoads:
    """How brokers stand in one round, moved along with what is placed.

    ``doubted`` is int8 (B,): 0, or the code of why a broker's report is not to be trusted. Where none is trusted, as
    minutes after the start of a cluster, all of them are candidates: bundles have to be somewhere.
    """

    def __init__(self, snapshot: Snapshot, policies: Policies, doubted: CodeArray, max_topics_per_broker: int) -> None:
        self._policies, self._spread = policies, GroupSpread(snapshot, policies)
        self._index = snapshot.brokers.index()
        self._doubted = doubted if (doubted == 0).any() else np.where(np.isin(doubted, AVOIDED), doubted, np.int8(0))
        self._topics, self._most_topics = snapshot.brokers.topics, max_topics_per_broker

    def candidates(self, bundle: str, owner: str = "") -> PlacementCandidates:
        """Where the bundle may go once ``owner``, if it has one, has let it go; the owner itself is one of them."""
        namespace = bundle_namespace(bundle)
        unknown = self._policies.groups.unknown(namespace)
        active = sorted(self._policies.active)
        if unknown is not None:
            return PlacementCandidates((), tuple(Skip(broker, *unknown) for broker in active))
        best = self._spread.best(bundle, owner)
        left_out = tuple(self._left_out(namespace, active, best))
        out = {skip.what for skip in left_out}
        return PlacementCandidates(tuple(broker for broker in active if broker not in out), left_out)

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
        row = self._index.get(broker)
        if row is None:
            return Reason.REPORT_MISSING, "gives no load report"
        if self._doubted[row] == Reason.DRAINED.code:
            return Reason.DRAINED, "it is being drained"
        if self._doubted[row] == Reason.SLOW_BROKER.code:
            return Reason.SLOW_BROKER, "it is slow"
        if self._doubted[row]:
            return Reason.of(int(self._doubted[row])), "its report is not to be trusted"
        topics = int(self._topics[row])
        if topics > self._most_topics:
            return Reason.TOPIC_LIMIT, f"holds {topics:,} topics, limit {self._most_topics:,}"
        return None


def without_doubted(loads: BrokerLoads, doubted: CodeArray) -> BrokerLoads:
    """The loads that placements may use: NaN for brokers whose code in ``doubted``, int8 (B,), is not 0."""
    unknown = np.where(doubted == 0, loads.usage, np.nan)
    return replace(loads, usage=unknown, smoothed=np.where(doubted == 0, loads.smoothed, np.nan))


# --- several bundles, one after the other: each answer counts for the next ones


@dataclass(frozen=True)
class PlacementAdvice:
    """The owner of a bundle (None: nobody), where it should go without an owner, and the candidates for it."""

    bundle: str
    owner: str | None
    placed: PlacementChoice
    candidates: PlacementCandidates


def answer_all(
    owners: Mapping[str, str | None], standing: RunningLoads, place: Placement, loads: BrokerLoads, memory: PlaceMemory
) -> tuple[tuple[PlacementAdvice, ...], PlaceMemory]:
    """An answer for each bundle, in the order of their names, and the memory with those without an owner.

    The answer for an owned bundle is advice only: it takes no broker's share.
    """
    answers = []
    for bundle, owner in sorted(owners.items()):
        answer = _answer(bundle, owner, standing, place, loads, memory)
        answers.append(answer)
        if owner is None:
            memory = answer.placed.memory
            if answer.placed.broker is not None:
                standing.take(bundle, answer.placed.broker)
    return tuple(answers), memory


def _answer(
    bundle: str, owner: str | None, standing: RunningLoads, place: Placement, loads: BrokerLoads, memory: PlaceMemory
) -> PlacementAdvice:
    candidates = standing.candidates(bundle, owner or "")
    if not candidates.brokers:
        return PlacementAdvice(bundle, owner, PlacementChoice(None, "no broker may have it", memory), candidates)
    return PlacementAdvice(bundle, owner, place(bundle, candidates.brokers, loads, memory), candidates)
