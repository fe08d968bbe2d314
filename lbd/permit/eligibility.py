"""Who may be moved at all, known before a strategy is asked. Pure."""

from __future__ import annotations

import re
from math import isinf
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import bundle_namespace
from lbd.permit.move_costs import cost_of
from lbd.permit.policies import Isolation
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.bundles import Namespaces
    from lbd.model import CodeArray, Snapshot
    from lbd.permit.settings import Guardrails

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
    ``untold``: whether bundles of which brokers do not tell what they carry may move, too.
    """
    codes = broker_bundles(snapshot)
    _bar_namespaces(codes, snapshot.namespaces, _namespace_rule(isolation, guardrails))
    _bar_impossible(codes, snapshot)
    if not untold:
        _bar_untold(codes, snapshot)
    since = snapshot.taken_at - guardrails.cool_down_minutes * 60
    resting = dict.fromkeys(tired, Reason.PING_PONG.code)
    resting |= {bundle: Reason.CHANGED_HANDS.code for bundle, at in (changed_at or {}).items() if at >= since}
    resting |= {bundle: Reason.COOL_DOWN.code for bundle, at in attempted_at.items() if at >= since}
    for name, at in snapshot.positions_of(resting).items():
        codes[at] = codes[at] or resting[name]
    return codes


def left_alone(bundle: str, guardrails: Guardrails) -> Reason | None:
    """Why nothing is done to a bundle, whoever asks: it is a broker's own, Pulsar's, or of an excluded namespace."""
    if bundle.startswith(_OWN) and BROKER_BUNDLE.match(bundle):
        return Reason.BROKER_BUNDLE
    code = _namespace_rule(Isolation(), guardrails)(bundle_namespace(bundle))
    return Reason.of(code) if code else None


def bar_more(codes: CodeArray, snapshot: Snapshot, reasons: Mapping[str, Reason]) -> CodeArray:
    """A copy of the codes, int8 (N,), with further bundles barred: those named, and all of the namespaces named.

    A bundle that is barred keeps its reason.
    """
    found = codes.copy()
    for name, at in snapshot.positions_of(reasons).items():
        found[at] = found[at] or reasons[name].code
    _bar_namespaces(found, snapshot.namespaces, lambda name: _code(reasons, name))
    return found


def _code(reasons: Mapping[str, Reason], name: str) -> int:
    return reasons[name].code if name in reasons else 0


def _bar(codes: CodeArray, where: np.ndarray[tuple[int], np.dtype[np.bool_]], reason: Reason) -> None:
    codes[where & (codes == 0)] = reason.code


def _bar_namespaces(codes: CodeArray, namespaces: Namespaces, rule: Callable[[str], int]) -> None:
    verdict = np.array([rule(name) for name in namespaces.names], dtype=np.int8)
    if verdict.any():
        found = verdict[namespaces.of]
        codes[codes == 0] = found[codes == 0]


def _namespace_rule(isolation: Isolation, guardrails: Guardrails) -> Callable[[str], int]:
    """Namespaces with a cluster in their name (v1) have no policies that lbd could read."""
    excluded = set(guardrails.excluded_namespaces)

    def rule(name: str) -> int:
        if name.count("/") != 1:
            return Reason.POLICY_UNKNOWN.code
        if name == SYSTEM and not guardrails.move_system_namespace:
            return Reason.SYSTEM_NAMESPACE.code
        if name in excluded or f"{name.partition('/')[0]}/*" in excluded or isinf(cost_of(guardrails.move_costs, name)):
            return Reason.EXCLUDED_NAMESPACE.code
        if not isolation.known:
            return Reason.POLICY_UNKNOWN.code
        return 0

    return rule


def _bar_untold(codes: CodeArray, snapshot: Snapshot) -> None:
    """Bundles of which brokers that tell of their largest ones only do not tell: nobody knows what they carry."""
    if snapshot.partial:
        told = np.zeros(len(snapshot.bundles), dtype=np.bool_)
        told[snapshot.rows.bundle[snapshot.rows.reported]] = True
        _bar(codes, ~told, Reason.NO_STATISTICS)


def _bar_impossible(codes: CodeArray, snapshot: Snapshot) -> None:
    """Bundles with a number that no bundle can have, and those that two brokers report at once."""
    rows = snapshot.rows
    odd = np.zeros(len(snapshot.bundles), dtype=np.bool_)
    odd[rows.bundle[~((rows.rates >= 0) & np.isfinite(rows.rates)).all(axis=1)]] = True
    _bar(codes, odd, Reason.IMPOSSIBLE_NUMBER)
    if rows.bundle.size > len(snapshot.bundles):
        _bar(codes, np.bincount(rows.bundle, minlength=len(snapshot.bundles)) > 1, Reason.REPORTED_TWICE)
