"""Bundles and brokers that may take part at all, decided before a strategy is asked. Pure.

Brokers that are being drained, or are slow, are compared with no other broker, and are no destination.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.bundles import holds, topic_hash, topic_namespace
from lbd.model import Skip
from lbd.permit.settings import MOST_COST, move_cost
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lbd.model import CodeArray, FloatArray, Permission, Pool, Snapshot, Unload
    from lbd.permit.evidence import Evidence
    from lbd.permit.policies import Isolation
    from lbd.permit.slow import Health
    from lbd.permit.topic_costs import TopicCosts


def marked(evidence: Evidence, snapshot: Snapshot, drained: Collection[str]) -> Evidence:
    """The evidence with drained brokers left out of pairs, averages and destinations, whatever they report.

    Their samples go on being looked at, so that they take part again as soon as a drain is over.
    """
    return _left_out(evidence, snapshot, drained, Reason.DRAINED)


def without_slow(evidence: Evidence, snapshot: Snapshot, health: Health) -> Evidence:
    """The evidence with slow brokers left out in the same way; a report that is not trusted keeps that reason."""
    trusted = {broker for broker, code in zip(snapshot.brokers.ids, evidence.paired.tolist(), strict=True) if not code}
    return _left_out(replace(evidence, health=health), snapshot, health.avoided & trusted, Reason.SLOW_BROKER)


def slow_brokers(evidence: Evidence, snapshot: Snapshot) -> frozenset[str]:
    """Those that are left out because they are slow."""
    codes = zip(snapshot.brokers.ids, evidence.paired.tolist(), strict=True)
    return frozenset(broker for broker, code in codes if code == Reason.SLOW_BROKER.code)


def _left_out(evidence: Evidence, snapshot: Snapshot, brokers: Collection[str], reason: Reason) -> Evidence:
    if not brokers:
        return evidence
    out = np.array([broker in brokers for broker in snapshot.brokers.ids], dtype=np.bool_)
    return replace(evidence, paired=np.where(out, np.int8(reason.code), evidence.paired).astype(np.int8))


def source_left_out(unload: Unload, position: Mapping[str, int], permission: Permission) -> Skip | None:
    """A skip if the source is left out of the round: nothing is taken off it in any turn, also by an earlier plan."""
    row = position.get(unload.source)
    doubt = int(permission.paired[row]) if row is not None else 0
    return Skip(unload.bundle, Reason.of(doubt), f"{unload.source} is left out of this turn") if doubt else None


# --- cost of moving a bundle, by its namespace: some clients tolerate a disconnect worse than others


LOW_COST = 10 * MOST_COST
"""More than any cost in settings: a namespace of low balance comes after all others."""


def column(snapshot: Snapshot, costs: Mapping[str, float | str], topics: TopicCosts | None = None) -> FloatArray | None:
    """The points of each bundle, float64 (N,); None where none has any."""
    points: FloatArray = np.zeros(len(snapshot.bundles))
    if costs:
        points += np.array([move_cost(costs, name) for name in snapshot.namespaces.names])[snapshot.namespaces.of]
    if topics is not None:
        points[topics.bundle] += topics.points
    return points if points.any() else None


def dearer(costs: FloatArray | None, snapshot: Snapshot, low: frozenset[str]) -> FloatArray | None:
    """The costs, with those of ``low`` namespaces raised above all others."""
    if low.isdisjoint(snapshot.namespaces.names):
        return costs
    last = np.array([name in low for name in snapshot.namespaces.names], dtype=np.bool_)
    more: FloatArray = np.where(last[snapshot.namespaces.of], LOW_COST, 0.0)
    return more if costs is None else costs + more


# --- the bundle of the leader topic stays: moving it would cut lbd off from itself


def carries(bundle: str, topic: str) -> bool:
    """Whether a bundle, by its full name, carries a topic; none carries the empty topic."""
    return bool(topic) and bundle.rpartition("/")[0] == topic_namespace(topic) and holds(bundle, topic_hash(topic))


def leader_topic_bundles(bundles: Iterable[str], topic: str) -> dict[str, Reason]:
    """Which of these bundles must not move because of the topic: one, or none that is known."""
    if not topic:
        return {}
    start = f"{topic_namespace(topic)}/"
    return {name: Reason.LEADER_TOPIC for name in bundles if name.startswith(start) and carries(name, topic)}


# --- bundles of the brokers themselves, and those that no broker may have

BROKER_BUNDLE = re.compile(r"(?:pulsar|sla-monitor)/(?:[^/]+/)?[^/:]+:\d+/0x")
"""Heartbeat and SLA bundles belong to one broker each (NamespaceService; the short SLA form came after 4.0)."""

_OWN = ("pulsar/", "sla-monitor/")


def broker_bundles(snapshot: Snapshot) -> CodeArray:
    """A code column, int8 (N,), in which the brokers' own heartbeat and SLA bundles are barred."""
    named, barred = snapshot.namespaces, np.zeros(len(snapshot.bundles), dtype=np.int8)
    may = np.array([name.startswith(_OWN) for name in named.names], dtype=np.bool_)[named.of]
    own = [at for at in np.flatnonzero(may).tolist() if BROKER_BUNDLE.match(snapshot.bundles[at])]
    barred[own] = Reason.BROKER_BUNDLE.code
    return barred


def pools(isolation: Isolation, snapshot: Snapshot, active: Sequence[str], own: CodeArray) -> tuple[Pool, ...]:
    """The pools of :meth:`~lbd.permit.policies.Isolation.pools`; one of brokers' own bundles alone wants no broker.

    ``own`` are the codes of these, :func:`broker_bundles`.
    """
    return tuple(
        pool if (pool.bundles & (own == 0)).any() else replace(pool, nobody="")
        for pool in isolation.pools(snapshot, active)
    )


def homeless(bound: Iterable[Pool], snapshot: Snapshot, own: CodeArray) -> dict[str, str]:
    """Namespaces whose bundles no active broker may have, and why; but brokers' ``own`` bundles."""
    spaces = snapshot.namespaces
    return {
        spaces.names[namespace]: pool.nobody
        for pool in bound
        if pool.nobody
        for namespace in np.unique(spaces.of[pool.bundles & (own == 0)]).tolist()
    }


def codes_of(snapshot: Snapshot, reasons: Mapping[str, Reason]) -> CodeArray | None:
    """A code column, int8 (N,), of bundles that ``reasons`` names, or whose namespace it names; None where it is empty.

    Bundles that it does not name have 0.
    """
    if not reasons:
        return None
    verdict = np.array([reasons[name].code if name in reasons else 0 for name in snapshot.namespaces.names], np.int8)
    codes = verdict[snapshot.namespaces.of]
    for name, index in snapshot.positions_of(reasons).items():
        codes[index] = reasons[name].code
    return codes


def bar_more(codes: CodeArray, snapshot: Snapshot, reasons: Mapping[str, Reason]) -> CodeArray:
    """A copy of the codes, int8 (N,), with more bundles barred. ``reasons`` names bundles, and namespaces as a whole.

    A bundle that is barred already keeps its reason.
    """
    more = codes_of(snapshot, reasons)
    return codes.copy() if more is None else np.where(codes == 0, more, codes).astype(np.int8)
