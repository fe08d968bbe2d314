"""A drained broker is in no pair and no destination, and in no count of what is seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lbd.decide.strategies import STRATEGIES, build
from lbd.load.scoring import Weights
from lbd.model import Memory, Unload
from lbd.permit.eligibility import marked
from lbd.permit.evidence import judge
from lbd.permit.policies import Groups, GroupSpread, Policies, parse_isolation
from lbd.permit.settings import Guardrails
from lbd.place.picker import RunningLoads
from lbd.reason import Reason
from tests import builders
from tests.builders import bundle, ledger_of, report, snapshot, stats

A, B, C, D = (f"{name}:80" for name in "abcd")
SEEN = snapshot(
    {
        A: report(90, {bundle(at): stats(1000 + at) for at in range(8)}),
        B: report(60, {bundle(at): stats(1000 + at) for at in range(10, 14)}),
        C: report(5, {bundle(20): stats(10)}),
        D: report(1, {bundle(30): stats(10)}),
    }
)


def evidence(*drained: str) -> Any:
    """Everything is trusted, but for those that are drained."""
    return marked(judge({}, SEEN, Weights()), SEEN, drained)


def test_drained_brokers_are_marked_and_nobody_else():
    """Whatever else was said of their report."""
    assert evidence(B).paired.tolist() == [0, Reason.DRAINED.code, 0, 0]
    assert evidence().paired.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("drained", [A, D], ids=["the hottest", "the coldest"])
@pytest.mark.parametrize("name", list(STRATEGIES))
def test_no_strategy_touches_a_drained_broker(name: str, drained: str):
    """Neither as a source nor as a destination, however far it is from the others."""
    settings = STRATEGIES[name]().eager()
    strategy = build(settings, Weights(), settings.placed_by)
    allowed = builders.permission(SEEN, paired=evidence(drained).paired)
    memory = Memory()
    for _ in range(3):
        decision = strategy(SEEN, builders.first_averages(SEEN), allowed, memory)
        memory = decision.memory
        assert not [one for one in decision.unloads if drained in {one.source, one.destination}]
        assert not [pair for pair in decision.comparison.pairs if drained in {pair.source, pair.destination}]


def test_no_move_is_let_through_to_one():
    """Also one that a person names; the reason is told."""
    unload = Unload(bundle(0), A, D, 2000.0, 200_000.0)
    policies = Policies(groups=Groups(frozenset({"t/n"})), active=SEEN.brokers.ids, drained=frozenset({D}))
    known = builders.permission(SEEN, paired=evidence(D).paired)
    scores = np.array([90.0, 60.0, 5.0, 1.0])
    ledger = ledger_of(SEEN, scores, policies, Guardrails(), [unload], permission=known)
    refusal = ledger.refusal(unload)
    assert refusal is not None
    assert (refusal.reason, refusal.detail) == (Reason.DRAINED, f"{D} is being drained")
    assert not ledger.may_stay(unload, D)


def test_no_placement_answers_one_even_where_no_report_is_trusted():
    """Minutes after the start of a cluster all brokers are candidates, but not that one."""
    policies = Policies(groups=Groups(frozenset({"t/n"})), active=SEEN.brokers.ids, drained=frozenset({D}))
    doubted = np.full(4, Reason.FIRST_SAMPLE.code, dtype=np.int8)
    doubted[3] = Reason.DRAINED.code
    found = RunningLoads(SEEN, policies, doubted, 1000).candidates(bundle(99))
    assert found.brokers == (A, B, C)
    assert [(skip.what, skip.reason) for skip in found.left_out] == [(D, Reason.DRAINED)]


def test_a_drained_broker_is_no_better_place_for_a_group():
    """It would have fewest of an anti-affinity group, and keep its bundles from going anywhere."""
    groups = Groups(grouped={"t/n": "g"}, members={"g": frozenset({"t/n"})})
    unload = Unload(bundle(20), C, D, 20.0, 2000.0)
    free = Policies(groups=groups, active=SEEN.brokers.ids)
    drained = Policies(groups=groups, active=SEEN.brokers.ids, drained=frozenset({C}))
    assert GroupSpread(SEEN, free).refusal(unload) is not None
    assert GroupSpread(SEEN, drained).refusal(unload) is None


def test_isolation_policies_count_drained_brokers_as_pulsar_does():
    """A secondary does not join because a primary is drained: Pulsar would not let it."""
    given = {"namespaces": ["t/n"], "primary": ["a"], "secondary": ["b"]}
    given["auto_failover_policy"] = {"policy_type": "min_available", "parameters": {"min_limit": "1"}}  # type: ignore[assignment]
    policies = Policies(parse_isolation({"p": given}), active=SEEN.brokers.ids, drained=frozenset({A}))
    assert policies.brokers("t/n") == frozenset()
    found = policies.forbids("t/n", A), policies.forbids("t/n", B)
    assert [one[0] for one in found if one is not None] == [Reason.DRAINED, Reason.ISOLATION_POLICY]
