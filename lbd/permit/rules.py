"""All rules, in the order in which they are asked: of several that apply, the first one gives the reason. Pure."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING

import numpy as np

from lbd.bundles import WITH_CLUSTER, has_cluster
from lbd.permit.eligibility import BROKER_BUNDLE, carries, leader_topic_bundles
from lbd.permit.limits import Ledger
from lbd.permit.progress import standing_still
from lbd.permit.quiet_hours import quiet_until
from lbd.permit.rule import Rule
from lbd.permit.settings import covers, move_cost
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lbd.model import BoolArray, CodeArray, IntArray
    from lbd.permit.facts import Hold
    from lbd.permit.rule import Case
    from lbd.permit.settings import Guardrails


def _quiet(case: Case) -> str:
    quiet = quiet_until(case.guardrails.quiet_hours, case.facts.now)
    return quiet[1] if quiet is not None else ""


def _too_few(case: Case) -> str:
    paired, active = case.facts.evidence.paired, case.facts.members.active
    there = len(active) - int(np.count_nonzero(paired == Reason.DRAINED.code))
    usable, least = int(np.count_nonzero(paired == 0)), max(2, (there + 1) // 2)
    return f"{usable} of {there} reports are usable, wanted {least}" if usable < least else ""


def _unknown_policies(case: Case) -> str:
    isolation = case.facts.policies.isolation
    return "" if isolation.is_known else f"{isolation.problem}; a named destination bypasses them"


def _excluded(names: Iterable[str], rails: Guardrails) -> Iterable[str]:
    excluded, costs = frozenset(rails.excluded_namespaces), rails.move_costs
    if not (excluded or costs):
        return ()
    return (name for name in names if covers(excluded, name) or isinf(move_cost(costs, name)))


def _not_included(names: Iterable[str], rails: Guardrails) -> Iterable[str]:
    included = frozenset(rails.include_namespaces)
    return (name for name in names if not covers(included, name)) if included else ()


def _impossible(case: Case, _: CodeArray) -> IntArray:
    rows = case.facts.snapshot.rows
    return rows.bundle[~rows.are_possible()]


def _twice(case: Case, _: CodeArray) -> BoolArray | None:
    bundle, size = case.facts.snapshot.rows.bundle, len(case.facts.snapshot.bundles)
    return np.bincount(bundle, minlength=size) > 1 if bundle.size > size else None


def _unreported(case: Case, _: CodeArray) -> BoolArray | None:
    """Where brokers report their largest bundles only, the load of the others is unknown."""
    snapshot = case.facts.snapshot
    if not snapshot.partial:
        return None
    unreported = np.ones(len(snapshot.bundles), dtype=np.bool_)
    unreported[snapshot.rows.bundle[snapshot.rows.reported]] = False
    return unreported


FOR_A_WHILE = (0, Reason.COOL_DOWN.code, Reason.CHANGED_HANDS.code)
"""Nothing bars such bundles, or for ``cool_down_minutes`` at most: they can go instead of one that moved lately."""


def _moved_lately(case: Case, codes: CodeArray) -> Iterable[str]:
    if not (case.moved_rest and case.facts.sent):
        return ()
    facts, able = case.facts, np.isin(codes, FOR_A_WHILE)
    return case.trips.moved(facts.snapshot, facts.scores, facts.evidence.paired == 0, able)


def _outside_canary(case: Case, _: CodeArray) -> Iterable[str]:
    if (canary := case.guardrails.canary) is None:
        return ()
    named = frozenset(canary.namespaces)
    return (name for name in case.facts.snapshot.namespaces.names if not covers(named, name))


SYSTEM = "pulsar/system"
UNREAD = "the policies of its namespace could not be read"
MOVED = "lbd moved it lately: guardrails.max_moves_per_bundle, ping_pong_window_hours"

RULES: tuple[Rule, ...] = (
    Rule(
        {Reason.IN_BROKER_SHEDDING: "brokers shed bundles by themselves"},
        ("in_broker_shedding",),
        hold=lambda case: case.facts.shedding,
    ),
    Rule(
        {
            Reason.PAUSED: "a person has paused lbd",
            Reason.NOT_LEADER: "another lbd leads",
            Reason.STATE_LOST: "without its journal and its lock no move would be recorded",
        },
        hold=lambda case: case.facts.ordered_hold,
    ),
    Rule({Reason.QUIET_HOURS: "guardrails.quiet_hours names this time"}, ("quiet_hours",), hold=_quiet),
    Rule(
        {Reason.LEADER_UNREACHABLE: "no broker leads, or the leader does not answer"},
        hold=lambda case: case.facts.leaderless,
    ),
    Rule(
        {Reason.MEMBERSHIP_CHANGED: "brokers came or went"},
        ("membership_settle_seconds",),
        hold=lambda case: case.facts.members.unsettled(case.facts.now, case.guardrails.membership_settle_seconds),
    ),
    Rule({Reason.TOO_FEW_BROKERS: "fewer than half of the brokers, or than two, have a usable report"}, hold=_too_few),
    Rule(
        {Reason.BROKER_BUNDLE: "it is a broker's own heartbeat or SLA bundle and belongs to that broker"},
        exempts=lambda bundle, _: BROKER_BUNDLE.match(bundle) is not None,
        bars=lambda case, _: case.broker_bundles != 0,
    ),
    Rule({Reason.NAME_WITH_CLUSTER: WITH_CLUSTER}, namespaces=lambda names, _: filter(has_cluster, names)),
    Rule(
        {Reason.POLICY_UNKNOWN: UNREAD},
        namespaces=lambda names, _: (name for name in names if name.count("/") not in {1, 2}),
    ),
    Rule(
        {Reason.SYSTEM_NAMESPACE: "Pulsar's own topics are in its namespace"},
        ("move_system_namespace",),
        namespaces=lambda names, rails: (name for name in names if name == SYSTEM and not rails.move_system_namespace),
    ),
    Rule(
        {Reason.EXCLUDED_NAMESPACE: "guardrails.excluded_namespaces names its namespace"},
        ("excluded_namespaces", "move_costs"),
        namespaces=_excluded,
    ),
    Rule(
        {Reason.NOT_INCLUDED: "guardrails.include_namespaces does not name its namespace"},
        ("include_namespaces",),
        namespaces=_not_included,
    ),
    Rule(
        {Reason.POLICY_UNKNOWN: UNREAD},
        hold=_unknown_policies,
        bars=lambda case, codes: None if case.facts.policies.isolation.is_known else codes == 0,
    ),
    Rule(
        {Reason.NO_IMPROVEMENT: "rounds of moves brought no brokers closer"},
        ("stand_still_minutes",),
        hold=lambda case: standing_still(case.facts.progress, case.facts.now, case.guardrails),
    ),
    Rule(
        {Reason.MOVES_UNFINISHED: "moves are under way"},
        hold=lambda case: f"{len(case.facts.unfinished)} under way" if case.facts.unfinished else "",
    ),
    Rule({Reason.IMPOSSIBLE_NUMBER: "its statistics hold a number that no bundle can have"}, bars=_impossible),
    Rule(
        {Reason.REPORTED_TWICE: "two brokers report it: it was moved a moment ago, or one of the reports is stale"},
        bars=_twice,
    ),
    Rule(
        {Reason.NO_STATISTICS: "no report carries its statistics: not yet, or its broker tells of larger bundles only"},
        bars=_unreported,
    ),
    Rule(
        {Reason.COOL_DOWN: "it rests after the last attempt to move it"},
        ("cool_down_minutes",),
        bars=lambda case, _: case.lately(case.facts.attempted_at),
    ),
    Rule(
        {Reason.CHANGED_HANDS: "it rests because it changed its broker without lbd"},
        ("cool_down_minutes",),
        bars=lambda case, _: case.lately(case.facts.changed_at),
    ),
    Rule(
        {Reason.PING_PONG: MOVED},
        ("max_moves_per_bundle",),
        bars=lambda case, _: case.trips.tired,
        refuses=Ledger.moved_lately,
    ),
    Rule(
        {Reason.TOPIC_COST: "guardrails.topic_costs says never for a topic of Pulsar's own in it"},
        ("topic_costs",),
        bars=lambda case, _: case.topic_costs.never if case.topic_costs is not None else None,
    ),
    Rule({Reason.PING_PONG: MOVED}, ("ping_pong_window_hours",), bars=_moved_lately),
    Rule(
        {Reason.LEADER_TOPIC: "the topic by which lbds agree on their leader is in it (leader.topic)"},
        ("leader.enabled",),
        exempts=carries,
        bars=lambda case, _: leader_topic_bundles(case.facts.snapshot.bundles, case.leader_topic),
    ),
    Rule(
        {Reason.NOT_SERVED: "clients of a bundle of its namespace that was moved are not back"},
        ("stand_still_minutes",),
        bars=lambda case, _: case.facts.policies.unserved.keys(),
        refuses=Ledger.namespace_stays,
    ),
    Rule(
        {
            Reason.BALANCE_OFF: "namespace property lbd.balance=off",
            Reason.NAMESPACE_QUIET: "namespace property lbd.quiet-hours",
            Reason.PROPERTY_NOT_UNDERSTOOD: "a namespace property that is meant for lbd is not understood",
        },
        ("namespace_properties",),
        bars=lambda case, _: case.facts.policies.consents.bars if case.facts.policies.consents is not None else None,
    ),
    Rule(
        {Reason.CANARY: "guardrails.canary does not name its namespace; widen or remove the canary"},
        ("canary",),
        bars=_outside_canary,
    ),
    Rule(
        {
            Reason.DESTINATION_FORBIDDEN: "the destination gives no load report that can be trusted",
            Reason.DRAINED: "the destination is being drained",
            Reason.SLOW_BROKER: "the destination is slow (guardrails.avoid_slow_brokers)",
        },
        ("avoid_slow_brokers",),
        forbids=Ledger.doubted,
    ),
    Rule(
        {Reason.ISOLATION_POLICY: "an isolation policy binds its namespace to brokers that exclude the destination"},
        bars=lambda case, _: case.homeless.keys(),
        forbids=Ledger.outside_policies,
    ),
    Rule(
        {Reason.ANTI_AFFINITY: "its namespace's anti-affinity group forbids the destination"},
        forbids=Ledger.outside_group,
    ),
    Rule(
        {Reason.TOPIC_LIMIT: "the destination would hold more than guardrails.max_topics_per_broker"},
        ("max_topics_per_broker",),
        forbids=Ledger.too_many_topics,
    ),
    Rule(
        {
            Reason.DESTINATION_OVERLOADED: "the destination would be above guardrails.max_destination_score",
            Reason.DESTINATION_ABOVE_SOURCE: "the destination would have more points than the source",
        },
        ("max_destination_score",),
        forbids=Ledger.too_much_load,
    ),
    Rule(
        {
            Reason.TURN_UNLOADS: "guardrails.max_unloads_per_turn is used up",
            Reason.TURN_TRAFFIC: "guardrails.max_traffic_per_turn is used up",
        },
        ("max_unloads_per_turn", "max_traffic_per_turn"),
        caps=Ledger.over_turn,
    ),
    Rule(
        {
            Reason.CANARY_UNLOADS: "guardrails.canary.max_moves_per_hour is used up",
            Reason.HOUR_UNLOADS: "guardrails.max_unloads_per_hour is used up",
            Reason.DAY_UNLOADS: "guardrails.max_unloads_per_day is used up",
            Reason.SOURCE_UNLOADS: "guardrails.max_unloads_per_broker_per_hour is used up by its source",
            Reason.DESTINATION_UNLOADS: "guardrails.max_unloads_per_broker_per_hour is used up by its destination",
            Reason.HOUR_TRAFFIC: "guardrails.max_traffic_per_hour is used up",
        },
        (
            "canary",
            "max_unloads_per_hour",
            "max_unloads_per_day",
            "max_unloads_per_broker_per_hour",
            "max_traffic_per_hour",
        ),
        caps=Ledger.over_budget,
    ),
)

CAPS = frozenset(reason for rule in RULES if rule.caps is not None for reason in rule.reasons)
"""Reasons of caps, which leave room again later, whatever the cluster looks like then."""


def explained(reason: Reason) -> str:
    """Why something stays, as its rule says it; empty where no rule has the reason."""
    return next((rule.reasons[reason] for rule in RULES if reason in rule.reasons), "")


def current_holds(case: Case) -> Iterator[Hold]:
    """Why nothing may fire in this turn, the gravest first."""
    return (hold for rule in RULES if (hold := rule.held(case)) is not None)


def barred_by_name(case: Case) -> CodeArray:
    """Why each bundle may not move whatever happens, by its name and the settings, int8 (N,): 0 where it may."""
    return _first((rule for rule in RULES if rule.by_name), case, np.zeros(len(case.facts.snapshot.bundles), np.int8))


def barred(case: Case, passes: frozenset[Reason] = frozenset(), by_name: CodeArray | None = None) -> CodeArray:
    """Why each bundle may not move, int8 (N,): the first reason that applies, 0 for none.

    Rules with a reason among ``passes`` are not asked, nor those about names where their codes are known, ``by_name``.
    """
    codes = np.zeros(len(case.facts.snapshot.bundles), np.int8) if by_name is None else by_name.copy()
    rules = (rule for rule in RULES if rule.bars_bundles and not (passes and rule.reason in passes))
    return _first(rules if by_name is None else (rule for rule in rules if not rule.by_name), case, codes)


def _first(rules: Iterable[Rule], case: Case, codes: CodeArray) -> CodeArray:
    """Fill in the codes, in place, and return them."""
    for rule in rules:
        if (own := rule.codes(case, codes)) is not None:
            np.copyto(codes, own, where=codes == 0)
    return codes


def exempt_reason(bundle: str, guardrails: Guardrails, leader_topic: str) -> Reason | None:
    """Why nothing is done to a bundle, whoever asks; None where rules let it move."""
    return next((rule.reason for rule in RULES if rule.keeps(bundle, guardrails, leader_topic)), None)
