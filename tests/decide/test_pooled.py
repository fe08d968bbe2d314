"""Each pool of brokers is balanced for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.strategies import build
from lbd.load.scoring import Weights
from lbd.model import Hits, Memory, bundle_namespace, counter_key
from lbd.permit.policies import Isolation, parse_isolation
from lbd.reason import Reason
from tests.builders import TAKEN_AT, bundle, first_averages, permission, report, snapshot, stats

if TYPE_CHECKING:
    from lbd.model import Decision, Snapshot

SETTINGS = {"min_unload_message": 0, "hit_count_low": 1, "hit_count_high": 1}
TWO_POOLS = parse_isolation({"p": {"namespaces": ["p/.*"], "primary": ["[ab]"]}})


def pooled(seen: Snapshot, isolation: Isolation = TWO_POOLS, memory: Memory | None = None, **settings: Any) -> Decision:
    """What AvgShedder decides within the pools that these policies make."""
    rule = build(AvgShedderSettings.model_validate({**SETTINGS, **settings}), Weights())
    pools = isolation.pools(seen, seen.brokers.ids)
    return rule(seen, first_averages(seen), permission(seen, pools=pools), memory or Memory())


def two_pools(**cpu: float) -> Snapshot:
    """Brokers a and b are those of namespace p/n, c and d those of t/n; each has bundles of 20 msg/s per point."""
    home = {"a": "p/n", "b": "p/n", "c": "t/n", "d": "t/n"}
    return snapshot(
        {
            f"{name}:80": report(
                cpu[name], {bundle(16 * at + number, home[name]): stats(cpu[name]) for number in range(10)}
            )
            for at, name in enumerate(home)
        }
    )


def test_pairs_are_formed_within_a_pool():
    """The hottest broker is not paired with the coldest one when policies keep them apart."""
    found = pooled(two_pools(a=80, b=40, c=60, d=10))

    assert {("p", "a:80", "b:80"), ("", "c:80", "d:80")} == {
        (pair.pool, pair.source, pair.destination) for pair in found.comparison.pairs
    }
    assert {("a:80", "b:80"), ("c:80", "d:80")} == {(move.source, move.destination) for move in found.unloads}


def test_a_balanced_pool_does_not_hide_another():
    """What is said of a pool names it; pairs are told first."""
    found = pooled(two_pools(a=80, b=79, c=60, d=10))

    assert {"c:80"} == {move.source for move in found.unloads}
    assert [("pool p", Reason.BALANCED)] == [(skip.what, skip.reason) for skip in found.skips]


def test_counters_belong_to_broker_and_pool():
    """A pool's counters go on from its own; those of a pool that is no more are forgotten."""
    kept = {counter_key("a:80", "p"): Hits(3, 0), "c:80": Hits(1, 1), counter_key("z:80", "gone"): Hits(5, 5)}
    found = pooled(two_pools(a=80, b=60, c=60, d=55), memory=Memory(kept), hit_count_low=9, hit_count_high=9)

    assert {
        counter_key("a:80", "p"): Hits(4, 0),
        counter_key("b:80", "p"): Hits(1, 0),
    } == dict(found.memory.hits)


def test_a_broker_takes_part_in_one_move_a_turn():
    """b is in both pools: what it takes in one makes its report say too little in the other."""
    isolation = parse_isolation(
        {"p": {"namespaces": ["p/n"], "primary": ["[ab]"]}, "q": {"namespaces": ["q/n"], "primary": ["[bc]"]}}
    )
    seen = snapshot(
        {
            "a:80": report(80, {bundle(number, "p/n"): stats(100) for number in range(10)}),
            "b:80": report(10, {bundle(30, "p/n"): stats(1)}),
            "c:80": report(80, {bundle(40 + number, "q/n"): stats(100) for number in range(10)}),
        }
    )
    found = pooled(seen, isolation)

    [(source, destination)] = {(move.source, move.destination) for move in found.unloads}
    other = {"a:80": "c:80", "c:80": "a:80"}[source]
    assert destination == "b:80"
    assert [(f"{other} -> b:80", Reason.SETTLING)] == [(skip.what, skip.reason) for skip in found.skips]


def test_pools_that_share_a_broker_take_turns():
    """What fires first in one minute comes last in the next, so that neither starves."""
    isolation = parse_isolation(
        {"p": {"namespaces": ["p/n"], "primary": ["[ab]"]}, "q": {"namespaces": ["q/n"], "primary": ["[bc]"]}}
    )
    reports = {
        "a:80": report(80, {bundle(number, "p/n"): stats(100) for number in range(10)}),
        "b:80": report(10, {bundle(30, "p/n"): stats(1)}),
        "c:80": report(80, {bundle(40 + number, "q/n"): stats(100) for number in range(10)}),
    }
    sources = [
        {move.source for move in pooled(snapshot(reports, TAKEN_AT + minute * 60), isolation).unloads}
        for minute in range(4)
    ]

    assert sources in ([{"a:80"}, {"c:80"}] * 2, [{"c:80"}, {"a:80"}] * 2)


def test_without_pools_nothing_changes():
    """One pool of everything decides as none."""
    seen = two_pools(a=80, b=40, c=60, d=10)
    rule = build(AvgShedderSettings.model_validate(SETTINGS), Weights())
    plain = rule(seen, first_averages(seen), permission(seen), Memory())
    everything = parse_isolation({"p": {"namespaces": [".*"], "primary": [".*"]}})
    found = pooled(seen, everything)

    assert plain.unloads == found.unloads
    assert plain.verdicts.tolist() == found.verdicts.tolist()
    assert [(pair.source, pair.destination) for pair in plain.comparison.pairs] == [
        (pair.source, pair.destination) for pair in found.comparison.pairs
    ]


PATTERNS = st.sampled_from(["a", "b", "[ab]", "[bc]", "[cd]", "[a-d]", "x"])
POLICIES = st.dictionaries(
    st.sampled_from(["p", "q", "r"]),
    st.tuples(st.sampled_from(["p/n", "q/n", "[pq]/n", "t/.*"]), PATTERNS, PATTERNS, st.integers(0, 3)),
)
OWNED = st.lists(st.sampled_from(["p/n", "q/n", "t/n", "u/n"]), min_size=1, max_size=6)


@given(POLICIES, st.lists(st.tuples(st.floats(0, 100), OWNED), min_size=4, max_size=4))
def test_no_plan_ever_leaves_its_pool(policies: dict[str, Any], brokers: list[tuple[float, list[str]]]):
    """Whatever the policies and wherever bundles are now: source and destination are both allowed."""
    isolation = parse_isolation(
        {
            name: {
                "namespaces": [namespaces],
                "primary": [primary],
                "secondary": [secondary],
                "auto_failover_policy": {"parameters": {"min_limit": str(limit), "usage_threshold": "1"}},
            }
            for name, (namespaces, primary, secondary, limit) in policies.items()
        }
    )
    seen = snapshot(
        {
            f"{name}:80": report(cpu, {bundle(16 * at + n, own): stats(cpu + 1) for n, own in enumerate(owned)})
            for at, (name, (cpu, owned)) in enumerate(zip("abcd", brokers, strict=True))
        }
    )
    found = pooled(seen, isolation)

    for move in found.unloads:
        allowed = isolation.brokers(bundle_namespace(move.bundle), seen.brokers.ids)
        assert {move.source, move.destination} <= allowed
    assert found.verdicts.dtype == np.int8
    moving = {(move.source, move.destination) for move in found.unloads}
    sources, destinations = ({move[end] for move in moving} for end in (0, 1))
    assert sources <= {pair.source for pair in found.comparison.pairs if pair.fired}
    assert len(destinations) == len(moving)
    assert not sources & destinations
