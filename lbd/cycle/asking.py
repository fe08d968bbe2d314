"""Asks the strategy, bars what may not go where it would send it, and asks again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.model import bundle_namespace
from lbd.permit.anti_affinity import Spread
from lbd.permit.eligibility import bar_more
from lbd.permit.ping_pong import Trips
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.cycle.parts import Parts
    from lbd.model import Averages, Decision, Permission, Snapshot
    from lbd.permit.policies import Policies
    from lbd.record.state import Kept

ROUNDS = 10
"""In each, groups of newly touched namespaces are read, and what may not go there is barred for a whole source."""

NAMESPACES_A_TURN = 100
"""Namespaces whose groups are read in one turn, those of the widest pair first; further ones are not moved in it."""


def decide(
    parts: Parts, snapshot: Snapshot, averages: Averages, permission: Permission, policies: Policies, kept: Kept
) -> tuple[Decision, Policies]:
    """The strategy's decision on what may move where, and the policies with the groups read for it.

    Deciding is pure, so asking twice costs nothing but time, and few namespaces need to be read. The memory is the same
    each time: a turn counts once. Where isolation policies are not known, neither are the pools: then no hit counts.
    """
    trips = Trips(parts.sent(), snapshot.taken_at, parts.guardrails)
    for _ in range(ROUNDS):
        decision = parts.strategy(snapshot, averages, permission, kept.memory)
        policies = _with_groups(parts, snapshot, decision, policies)
        back = {} if Reason.PING_PONG in parts.ignored_bars else sent_back(snapshot, decision, trips)
        wrong = _misplaced(snapshot, decision, policies) | back
        if not wrong:
            break
        permission = replace(permission, barred=bar_more(permission.barred, snapshot, wrong))
    return (decision if policies.isolation.known else replace(decision, memory=kept.memory)), policies


def _with_groups(parts: Parts, snapshot: Snapshot, decision: Decision, policies: Policies) -> Policies:
    """The policies with the anti-affinity groups of namespaces that a plan touches and that were not read yet."""
    known = policies.groups
    touched = dict.fromkeys(bundle_namespace(unload.bundle) for unload in decision.unloads)
    names = [name for name in touched if name not in known.free and name not in known.grouped]
    names = names[: max(NAMESPACES_A_TURN - known.asked, 0)]
    if known.unread or not names:
        return policies
    tenants = frozenset(name.partition("/")[0] for name in snapshot.namespaces.names)
    return replace(policies, groups=known.and_those(parts.groups(tuple(names), tenants)))


def _misplaced(snapshot: Snapshot, decision: Decision, policies: Policies) -> dict[str, Reason]:
    """Bundles that their group keeps from the destination planned for them, and namespaces of unknown groups.

    What is true of one bundle is true of all of its namespace on that source.
    """
    spread, found = Spread(snapshot, policies), dict[str, Reason]()
    for unload in decision.unloads:
        namespace = bundle_namespace(unload.bundle)
        if (unknown := policies.groups.unknown(namespace)) is not None:
            found[namespace] = unknown[0]
        elif (refusal := spread.refusal(unload)) is not None:
            own = _reported(snapshot, unload.source)
            found |= {bundle: refusal[0] for bundle in own if bundle_namespace(bundle) == namespace}
        else:
            spread.take(unload)
    return found


def sent_back(snapshot: Snapshot, decision: Decision, trips: Trips) -> dict[str, Reason]:
    """Bundles that would go straight back, with all others of that source that came from there."""
    back = {(one.source, one.destination or "") for one in decision.unloads if trips.refusal(one) is not None}
    return {
        bundle: Reason.PING_PONG
        for source, destination in back
        for bundle in trips.came_from(destination) & _reported(snapshot, source)
    }


def _reported(snapshot: Snapshot, broker: str) -> set[str]:
    """The bundles that one broker reports."""
    rows = snapshot.rows
    return {snapshot.bundles[at] for at in rows.bundle[rows.of(snapshot.brokers.index()[broker])].tolist()}
