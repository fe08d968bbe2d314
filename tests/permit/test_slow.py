"""Slow brokers: which are named, for how long, and that nothing is moved to them."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.decide.strategies import STRATEGIES, build
from lbd.load.scoring import Weights
from lbd.model import Memory, Unload
from lbd.permit.eligibility import marked, without_slow
from lbd.permit.evidence import judge
from lbd.permit.policies import Groups, Policies
from lbd.permit.settings import Guardrails
from lbd.permit.slow import (
    FAILED_SECONDS,
    FORGOTTEN_SECONDS,
    KEPT_CHECKS,
    LEAST_SECONDS,
    MOST_SLOW,
    TYPICAL_CHECKS,
    UNCHECKED,
    Health,
    HealthRecord,
    judged,
    with_checks,
)
from lbd.place.picker import RunningLoads
from lbd.reason import Reason
from tests import builders
from tests.builders import bundle, ledger_of, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

A, B, C, D = (f"{name}:80" for name in "abcd")
NOW = 10_000.0


def record(*seconds: float, since: float = 0.0) -> HealthRecord:
    """Checks of one broker, the newest last; one number is that of all."""
    known = seconds * KEPT_CHECKS if len(seconds) == 1 else seconds
    return HealthRecord(known[-KEPT_CHECKS:], NOW, 1.0, since)


def health(checks: Mapping[str, HealthRecord], **scores: float) -> Health:
    """Judged where all brokers have 20 points unless ``scores`` (by the first letter) has another number."""
    return judged(checks, {broker: scores.get(broker[0], 20.0) for broker in checks}, NOW)


def others(seconds: float = 0.02) -> dict[str, HealthRecord]:
    """Three brokers whose checks take equally long."""
    return {broker: record(seconds) for broker in (B, C, D)}


WELL, ILL = 0.02, 2.0


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [
        ((WELL,), False),
        ((ILL,), True),
        ((0.9,), False),
        ((FAILED_SECONDS,), True),
        ((ILL,) * (TYPICAL_CHECKS - 1), False),
        ((ILL,) * TYPICAL_CHECKS, True),
        ((*(WELL,) * 7, ILL, ILL, ILL), True),
        ((*(WELL,) * 8, ILL, ILL), False),
        ((*(ILL,) * 7, WELL, WELL, WELL), False),
    ],
    ids=[
        "all well",
        "all slow",
        "45 times as slow, and below a second",
        "all failed",
        "too few to tell",
        "just enough",
        "three of the last five",
        "two of the last five",
        "slow before, and never noticed",
    ],
)
def test_a_broker_is_slow_by_its_last_five_checks(seconds: tuple[float, ...], slow: bool):
    """Beside three that are well."""
    found = health({A: record(*seconds), **others()})
    assert found.avoided == ({A} if slow else set())
    assert found.slow == ({A: NOW} if slow else {})


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [
        ((*(ILL,) * 7, WELL, WELL, WELL), True),
        ((ILL, ILL, *(WELL,) * 8), True),
        ((ILL, *(WELL,) * 9), False),
        ((*(WELL,) * 9, ILL), False),
        ((WELL,), False),
        ((WELL,) * 9, True),
    ],
    ids=["three are well", "eight are", "nine are", "one is slow now", "all are well", "too few to have recovered"],
)
def test_a_slow_broker_recovers_once_nine_of_its_last_ten_checks_are_well(seconds: tuple[float, ...], slow: bool):
    """And it is told since when it is slow; afterwards nothing remains."""
    found = health({A: record(*seconds, since=NOW - 600), **others()})
    assert found.slow == ({A: NOW - 600} if slow else {})
    assert found.records[A].slow_since == (NOW - 600 if slow else 0.0)


@pytest.mark.parametrize(
    ("usual", "seconds", "slow"),
    [(0.02, 1.1, True), (0.4, 1.9, False), (0.4, 2.1, True), (3.0, 9.0, False)],
    ids=["the floor binds", "below five times the usual", "above it", "a slow bookie"],
)
def test_it_is_compared_with_what_is_usual(usual: float, seconds: float, slow: bool):
    """A second at least, and five times the median of the brokers."""
    assert bool(health({A: record(seconds), **others(usual)}).slow) is slow


@pytest.mark.parametrize(("score", "slow"), [(0.0, True), (20.0, True), (30.0, True), (30.1, False), (95.0, False)])
def test_a_broker_that_carries_much_has_to_give_and_is_not_called_slow(score: float, slow: bool):
    """More than ten points above the median of 20; also where it was slow before."""
    for since in (0.0, NOW - 600):
        assert bool(health({A: record(ILL, since=since), **others()}, a=score).slow) is slow


@pytest.mark.parametrize(
    ("brokers", "slow", "avoided"),
    [(2, 1, 0), (3, 1, 1), (4, 1, 1), (5, 2, 0), (6, 2, 2), (9, 3, 3), (9, 4, 0)],
)
def test_no_broker_is_avoided_where_more_than_a_third_look_slow(brokers: int, slow: int, avoided: int):
    """They are named all the same; of two brokers nobody can tell."""
    checks = {f"b{at}:80": record(ILL if at < slow else WELL) for at in range(brokers)}
    found = health(checks)
    assert len(found.avoided) == avoided
    assert len(found.slow) == (slow if brokers > 2 else 0)


@pytest.mark.parametrize(
    ("seconds", "since", "text"),
    [
        ((ILL,), 0.0, "its health check takes 2 s; 0.02 s is usual, 1 s the limit"),
        ((FAILED_SECONDS,), 0.0, "its health check takes 10 s, or fails; 0.02 s is usual, 1 s the limit"),
        (
            (ILL, ILL, *(WELL,) * 8),
            NOW,
            "its health check was slow; it takes part again when 9 of its last 10 checks are below 1 s",
        ),
    ],
)
def test_what_is_said_of_it(seconds: tuple[float, ...], since: float, text: str):
    """How slow it is, or what it waits for."""
    assert health({A: record(*seconds, since=since), **others()}).text(A) == text


CHECKS = st.lists(st.floats(0.001, FAILED_SECONDS), max_size=KEPT_CHECKS).map(tuple)
CLUSTERS = st.lists(st.tuples(CHECKS, st.sampled_from([0.0, NOW - 60]), st.floats(0, 100)), min_size=1, max_size=12)


def judged_cluster(cluster: Sequence[tuple[tuple[float, ...], float, float]]) -> Health:
    """A cluster as Hypothesis makes it: checks, since when it was slow, and score of each broker."""
    records = {f"b{at}:80": HealthRecord(own, NOW, 1.0, since) for at, (own, since, _) in enumerate(cluster)}
    return judged(records, {f"b{at}:80": score for at, (_, _, score) in enumerate(cluster)}, NOW)


@given(CLUSTERS)
def test_what_holds_for_every_cluster(cluster: list[tuple[tuple[float, ...], float, float]]):
    """At most a third is avoided, none of them carries much, and each has a check above the limit, or a short past."""
    found = judged_cluster(cluster)
    assert MOST_SLOW * len(found.avoided) <= len(found.typical_seconds)
    assert found.avoided <= found.slow.keys() <= found.typical_seconds.keys()
    assert {broker for broker, own in found.records.items() if own.slow_since} == found.slow.keys()
    for broker in found.avoided:
        own = cluster[int(broker[1:].partition(":")[0])]
        assert max(own[0]) > LEAST_SECONDS or len(own[0]) < KEPT_CHECKS
        known = sorted(score for checks, _, score in cluster if len(checks) >= TYPICAL_CHECKS)
        assert own[2] <= known[len(known) // 2] + 10


@given(CLUSTERS, st.randoms(use_true_random=False))
def test_the_order_of_brokers_does_not_matter(cluster: list[tuple[tuple[float, ...], float, float]], random: Random):
    """Nor do their names."""
    order = list(range(len(cluster)))
    random.shuffle(order)
    straight, shuffled = judged_cluster(cluster), judged_cluster([cluster[at] for at in order])
    assert {order[int(one[1:].partition(":")[0])] for one in shuffled.slow} == {
        int(one[1:].partition(":")[0]) for one in straight.slow
    }


@given(CLUSTERS)
def test_judging_twice_changes_nothing(cluster: list[tuple[tuple[float, ...], float, float]]):
    """A round without new checks, as every second one is, names the same brokers."""
    once = judged_cluster(cluster)
    scores = {f"b{at}:80": score for at, (_, _, score) in enumerate(cluster)}
    assert judged(once.records, scores, NOW) == once


SEEN = snapshot(
    {
        A: report(90, {bundle(at): stats(1000 + at) for at in range(8)}),
        B: report(60, {bundle(at): stats(1000 + at) for at in range(10, 14)}),
        C: report(5, {bundle(20): stats(10)}),
        D: report(1, {bundle(30): stats(10)}),
    }
)
D_IS_SLOW = judged(
    {A: record(WELL), B: record(WELL), C: record(WELL), D: record(ILL)}, {A: 90.0, B: 60.0, C: 5.0, D: 1.0}, NOW
)


class TestMemory:
    def test_checks_are_kept_by_broker_the_newest_last(self):
        """Ten of them; those that are away keep theirs for a quarter of an hour."""
        now = SEEN.taken_at
        known = {A: replace(record(*range(1, 11)), at=now - 30), "away:80": replace(record(1.0), at=now - 30)}
        known = {broker: replace(one, started_at=nan) for broker, one in known.items()}
        found = with_checks(known, {A: 11.0, B: 0.5}, SEEN)
        assert found[A].seconds == tuple(range(2, 12))
        assert (found[B].seconds, found[B].at) == ((0.5,), now)
        assert "away:80" in found

    @pytest.mark.parametrize("age", [FORGOTTEN_SECONDS + 1, -1.0], ids=["old", "of a later time"])
    def test_others_are_forgotten(self, age: float):
        """After a gap, or where the clock went back."""
        known = {A: replace(record(ILL), at=SEEN.taken_at - age, started_at=nan)}
        assert with_checks(known, {}, SEEN) == {}

    def test_a_restart_makes_a_broker_begin_anew(self):
        """It was another process that was slow."""
        started = float(SEEN.brokers.started_at[0])
        same = replace(record(ILL, since=1.0), at=SEEN.taken_at, started_at=started)
        assert with_checks({A: same}, {}, SEEN) == {A: same}
        assert with_checks({A: replace(same, started_at=started - 60)}, {}, SEEN) == {}


class TestEffect:
    def test_it_is_marked_unless_it_is_drained_or_not_trusted(self):
        """A person's order, and what makes a report useless, are said first."""
        trusted = judge({}, SEEN, Weights())
        assert without_slow(trusted, SEEN, D_IS_SLOW).paired.tolist() == [0, 0, 0, Reason.SLOW_BROKER.code]
        assert without_slow(trusted, SEEN, UNCHECKED).paired.tolist() == [0, 0, 0, 0]
        drained = without_slow(marked(trusted, SEEN, {D}), SEEN, D_IS_SLOW)
        assert drained.paired.tolist() == [0, 0, 0, Reason.DRAINED.code]

    @pytest.mark.parametrize("name", list(STRATEGIES))
    def test_no_strategy_sends_it_anything(self, name: str):
        """Though it is the least loaded one by far."""
        settings = STRATEGIES[name]().eager()
        strategy = build(settings, Weights(), settings.placed_by)
        evidence = without_slow(judge({}, SEEN, Weights()), SEEN, D_IS_SLOW)
        allowed, memory = builders.permission(SEEN, paired=evidence.paired), Memory()
        for _ in range(3):
            decision = strategy(SEEN, builders.first_averages(SEEN), allowed, memory)
            memory = decision.memory
            assert D not in {one.destination for one in decision.unloads}
            assert not [pair for pair in decision.comparison.pairs if D in {pair.source, pair.destination}]

    def test_no_limit_lets_a_move_to_it_through(self):
        """Whoever plans it: a turn, a drain, a fill or a person."""
        evidence = without_slow(judge({}, SEEN, Weights()), SEEN, D_IS_SLOW)
        move = Unload(bundle(0), A, D, 1.0, 1.0)
        policies = Policies(groups=Groups(frozenset({"t/n"})), active=SEEN.brokers.ids)
        known = (SEEN, np.array([90.0, 60.0, 5.0, 1.0]), policies, Guardrails(), (move,))
        allowed = builders.permission(SEEN, paired=evidence.paired)
        refusal = ledger_of(*known, permission=allowed, weights=Weights()).refusal(move)
        assert refusal is not None
        assert (refusal.reason, refusal.detail) == (Reason.SLOW_BROKER, f"{D} is slow")

    @pytest.mark.parametrize("all_doubted", [False, True])
    def test_nothing_is_placed_on_it(self, all_doubted: bool):
        """Also where no report is trusted, as minutes after the start of a cluster."""
        codes = without_slow(judge({}, SEEN, Weights()), SEEN, D_IS_SLOW).paired
        if all_doubted:
            codes = np.where(codes == 0, np.int8(Reason.FIRST_SAMPLE.code), codes).astype(np.int8)
        policies = Policies(groups=Groups(frozenset({"t/n"})), active=SEEN.brokers.ids)
        found = RunningLoads(SEEN, policies, codes, 1000).candidates(bundle(0))
        assert found.brokers == (A, B, C)
        assert [(skip.what, skip.reason, skip.detail) for skip in found.left_out] == [
            (D, Reason.SLOW_BROKER, "it is slow")
        ]
