"""Bundles and brokers that may take part at all, decided before a strategy is asked. Pure.

Brokers that are being drained, or are slow, are compared with no other broker, and are no destination.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import isinf
from typing import TYPE_CHECKING

import numpy as np

from lbd.bundles import has_cluster, holds, topic_hash, topic_namespace
from lbd.model import bundle_namespace
from lbd.permit.policies import Isolation
from lbd.permit.settings import MOST_COST, covers, move_cost
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from lbd.bundles import Namespaces
    from lbd.model import CodeArray, FloatArray, Pool, Snapshot
    from lbd.permit.evidence import Evidence
    from lbd.permit.settings import Canary, Guardrails
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


# --- cost of moving a bundle, by its namespace: some clients tolerate a disconnect worse than others


LOW_COST = 10 * MOST_COST
"""More than any cost in settings: a namespace of low balance comes after all others."""


def column(
    snapshot: Snapshot,
    costs: Mapping[str, float | str],
    low: frozenset[str] = frozenset(),
    topics: TopicCosts | None = None,
) -> FloatArray | None:
    """The cost of each bundle, float64 (N,), those of ``low`` namespaces the dearest; None where all cost the same."""
    known: FloatArray = np.zeros(len(snapshot.bundles))
    if costs:
        known += np.array([move_cost(costs, name) for name in snapshot.namespaces.names])[snapshot.namespaces.of]
    if topics is not None:
        known[topics.bundle] += topics.points
    return dearer(known if known.any() else None, snapshot, low)


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


# --- eligibility

SYSTEM = "pulsar/system"

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


def pools(isolation: Isolation, snapshot: Snapshot, active: Sequence[str]) -> tuple[Pool, ...]:
    """The pools of :meth:`~lbd.permit.policies.Isolation.pools`; one of brokers' own bundles alone wants no broker."""
    others = broker_bundles(snapshot) == 0
    return tuple(
        pool if (pool.bundles & others).any() else replace(pool, nobody="")
        for pool in isolation.pools(snapshot, active)
    )


def homeless(known: Iterable[Pool], snapshot: Snapshot) -> dict[str, str]:
    """Namespaces whose bundles no active broker may have, and why."""
    others, spaces = broker_bundles(snapshot) == 0, snapshot.namespaces
    return {
        spaces.names[at]: pool.nobody
        for pool in known
        if pool.nobody
        for at in np.unique(spaces.of[pool.bundles & others]).tolist()
    }


def barred(
    snapshot: Snapshot,
    attempted_at: Mapping[str, float],
    isolation: Isolation,
    guardrails: Guardrails,
    *,
    changed_at: Mapping[str, float] | None = None,
    tired: frozenset[str] = frozenset(),
    untold: bool = False,
) -> CodeArray:
    """Why each bundle may not move in a live turn, int8 (N,): the first reason that applies, 0 for none.

    ``changed_at`` is when the owner of a bundle changed without lbd, ``tired`` are bundles that moved often enough.
    ``untold``: whether bundles whose load no broker reports may move, too.
    """
    codes = broker_bundles(snapshot)
    _bar_namespaces(codes, snapshot.namespaces, _namespace_rule(isolation, guardrails))
    _bar_impossible(codes, snapshot)
    if not untold:
        _bar_unreported(codes, snapshot)
    since = snapshot.taken_at - guardrails.cool_down_minutes * 60
    resting = dict.fromkeys(tired, Reason.PING_PONG.code)
    resting |= {bundle: Reason.CHANGED_HANDS.code for bundle, at in (changed_at or {}).items() if at >= since}
    resting |= {bundle: Reason.COOL_DOWN.code for bundle, at in attempted_at.items() if at >= since}
    for name, at in snapshot.positions_of(resting).items():
        codes[at] = codes[at] or resting[name]
    return codes


def exempt_reason(bundle: str, guardrails: Guardrails) -> Reason | None:
    """Why nothing is done to a bundle, whoever asks: it is a broker's own, Pulsar's, or of a namespace that stays."""
    if bundle.startswith(_OWN) and BROKER_BUNDLE.match(bundle):
        return Reason.BROKER_BUNDLE
    code = _namespace_rule(Isolation(), guardrails)(bundle_namespace(bundle))
    return Reason.of(code) if code else None


def outside_canary(codes: CodeArray, snapshot: Snapshot, canary: Canary | None) -> CodeArray:
    """A copy of the codes, int8 (N,), with the bundles outside the canary barred; a barred bundle keeps its reason.

    The codes themselves where there is no canary (None).
    """
    if canary is None:
        return codes
    extended, names = codes.copy(), frozenset(canary.namespaces)
    _bar_namespaces(extended, snapshot.namespaces, lambda name: 0 if covers(names, name) else Reason.CANARY.code)
    return extended


def bar_more(codes: CodeArray, snapshot: Snapshot, reasons: Mapping[str, Reason]) -> CodeArray:
    """A copy of the codes, int8 (N,), with more bundles barred. ``reasons`` names bundles, and namespaces as a whole.

    A bundle that is barred already keeps its reason.
    """
    extended = codes.copy()
    for name, at in snapshot.positions_of(reasons).items():
        extended[at] = extended[at] or reasons[name].code
    _bar_namespaces(extended, snapshot.namespaces, lambda name: _code(reasons, name))
    return extended


def _code(reasons: Mapping[str, Reason], name: str) -> int:
    return reasons[name].code if name in reasons else 0


def _bar(codes: CodeArray, where: np.ndarray[tuple[int], np.dtype[np.bool_]], reason: Reason) -> None:
    codes[where & (codes == 0)] = reason.code


def _bar_namespaces(codes: CodeArray, namespaces: Namespaces, rule: Callable[[str], int]) -> None:
    verdict = np.array([rule(name) for name in namespaces.names], dtype=np.int8)
    if verdict.any():
        by_bundle = verdict[namespaces.of]
        codes[codes == 0] = by_bundle[codes == 0]


def _namespace_rule(isolation: Isolation, guardrails: Guardrails) -> Callable[[str], int]:
    """Why the bundles of a namespace stay, whatever else is true of them: a code, 0 for none."""
    excluded, included = frozenset(guardrails.excluded_namespaces), frozenset(guardrails.include_namespaces)

    def rule(name: str) -> int:
        if name.count("/") != 1:
            return (Reason.NAME_WITH_CLUSTER if has_cluster(name) else Reason.POLICY_UNKNOWN).code
        if name == SYSTEM and not guardrails.move_system_namespace:
            return Reason.SYSTEM_NAMESPACE.code
        if covers(excluded, name) or isinf(move_cost(guardrails.move_costs, name)):
            return Reason.EXCLUDED_NAMESPACE.code
        if included and not covers(included, name):
            return Reason.NOT_INCLUDED.code
        if not isolation.known:
            return Reason.POLICY_UNKNOWN.code
        return 0

    return rule


def _bar_unreported(codes: CodeArray, snapshot: Snapshot) -> None:
    """Bundles without statistics, where brokers report their largest ones only: their load is unknown."""
    if snapshot.partial:
        reported = np.zeros(len(snapshot.bundles), dtype=np.bool_)
        reported[snapshot.rows.bundle[snapshot.rows.reported]] = True
        _bar(codes, ~reported, Reason.NO_STATISTICS)


def _bar_impossible(codes: CodeArray, snapshot: Snapshot) -> None:
    """Bundles with a number that no bundle can have, and those that two brokers report at once."""
    rows = snapshot.rows
    odd = np.zeros(len(snapshot.bundles), dtype=np.bool_)
    odd[rows.bundle[~((rows.rates >= 0) & np.isfinite(rows.rates)).all(axis=1)]] = True
    _bar(codes, odd, Reason.IMPOSSIBLE_NUMBER)
    if rows.bundle.size > len(snapshot.bundles):
        _bar(codes, np.bincount(rows.bundle, minlength=len(snapshot.bundles)) > 1, Reason.REPORTED_TWICE)
