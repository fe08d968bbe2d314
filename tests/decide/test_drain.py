"""Where the bundles of a broker go that is to own nothing, and what a broker is given that has too little."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.decide import drain
from lbd.load import scoring
from lbd.load.estimate import as_it_was, carried_by
from lbd.model import Unload
from lbd.permit.policies import Groups, Policies
from lbd.permit.settings import Guardrails
from lbd.reason import Reason
from tests import builders
from tests.builders import bundle, ledger_of, report, stats

if TYPE_CHECKING:
    from lbd.model import Snapshot
    from lbd.permit.limits import Ledger

WEIGHTS = scoring.Weights()
MANY = {"max_unloads_per_turn": 1 << 30, "max_traffic_per_turn": float("inf")}
UNLOADS = [f"max_unloads_per_{each}" for each in ("hour", "day", "broker_per_hour")]
NO_BUDGET = {**dict.fromkeys(UNLOADS, 0), "max_traffic_per_hour": math.inf}


def cluster(cpu: dict[str, float], bundles: dict[str, list[float]]) -> Snapshot:
    """Brokers with this CPU, and bundles with these message rates in and out each, numbered through."""
    numbers = iter(range(256))
    owned = {name: {bundle(next(numbers)): stats(rate) for rate in bundles.get(name, ())} for name in cpu}
    return builders.snapshot({name: report(points, owned[name]) for name, points in cpu.items()})


def ledger(seen: Snapshot, unloads: list[Unload], scores: Any = None, **limits: Any) -> Ledger:
    """Guardrails without caps and without anti-affinity groups."""
    rails = Guardrails().model_copy(update={**MANY, **NO_BUDGET, **limits})
    names = frozenset(seen.namespaces.names)
    policies = Policies(groups=Groups(names), active=seen.brokers.ids)
    found = scoring.scores(seen.brokers, WEIGHTS) if scores is None else scores
    return ledger_of(seen, found, policies, rails, unloads, ignored=drain.NOT_ITS_RULES)


def drained(seen: Snapshot, broker: str, **limits: Any) -> drain.DrainMoves:
    """The plan for one broker of a cluster."""
    scores = scoring.scores(seen.brokers, WEIGHTS)
    rows = seen.rows.of(seen.brokers.index()[broker])
    names = [seen.bundles[at] for at in seen.rows.bundle[rows].tolist()]
    then = carried_by(seen, scores, broker, len(names))
    shown, weighed = as_it_was(seen, scores, broker, then)
    unloads = drain.drain_unloads(names, broker, shown, builders.first_averages(seen), then)
    others = [one for one in seen.brokers.ids if one != broker]
    return drain.plan_drain(unloads, others, ledger(shown, unloads, weighed, **limits))


def owners(plan: drain.DrainMoves) -> Counter[str | None]:
    return Counter(unload.destination for unload in plan.unloads)


class TestDrain:
    def test_every_bundle_goes_once_to_several_brokers(self):
        """Two like brokers get half each, the emptier of two unlike ones gets more."""
        even = drained(cluster({"a:1": 40, "b:1": 20, "c:1": 20}, {"a:1": [100] * 8}), "a:1")
        uneven = drained(cluster({"a:1": 40, "b:1": 50, "c:1": 20}, {"a:1": [100] * 8}), "a:1")
        assert owners(even) == {"b:1": 4, "c:1": 4}
        assert owners(uneven) == {"b:1": 1, "c:1": 7}
        assert len({unload.bundle for unload in even.unloads}) == 8

    def test_the_coldest_broker_can_be_drained(self):
        """Its bundles go to brokers that are hotter than it is: they have nowhere else to go."""
        plan = drained(cluster({"a:1": 10, "b:1": 60, "c:1": 50}, {"a:1": [100] * 4}), "a:1")
        assert owners(plan) == {"c:1": 4}

    def test_what_nobody_can_bear_stays_and_is_told(self):
        """Two brokers at 80 points bear 5 more each, of the 40 that there are."""
        plan = drained(cluster({"a:1": 40, "b:1": 80, "c:1": 80}, {"a:1": [100] * 8}), "a:1")
        assert owners(plan) == {"b:1": 1, "c:1": 1}
        assert [skip.reason for skip in plan.beyond_capacity] == [Reason.DESTINATION_OVERLOADED] * 6
        assert "85.0 points" not in plan.stay[0].detail
        assert "limit 85" in plan.stay[0].detail

    def test_topics_count(self):
        """A destination that would hold too many is full, too."""
        plan = drained(cluster({"a:1": 40, "b:1": 20}, {"a:1": [100] * 3}), "a:1", max_topics_per_broker=2)
        assert [skip.reason for skip in plan.beyond_capacity] == [Reason.TOPIC_LIMIT]

    def test_the_last_broker_has_nowhere_to_give_to(self):
        """A cluster of one."""
        plan = drained(cluster({"a:1": 40}, {"a:1": [100]}), "a:1")
        assert [(skip.reason, skip.detail) for skip in plan.stay] == [
            (Reason.DESTINATION_FORBIDDEN, "there is no other broker")
        ]

    def test_an_idle_broker_weighs_nothing(self):
        """Its bundles have no traffic, and that is known; they go."""
        plan = drained(cluster({"a:1": 5, "b:1": 84}, {"a:1": [0, 0]}), "a:1")
        assert owners(plan) == {"b:1": 2}

    def test_a_bundle_on_no_report_counts_as_the_average_one(self):
        """Somebody has just taken it."""
        seen = cluster({"a:1": 40, "b:1": 20}, {"a:1": [100, 300]})
        then = carried_by(seen, scoring.scores(seen.brokers, WEIGHTS), "a:1", 2)
        (found,) = drain.drain_unloads([bundle(9)], "a:1", seen, builders.first_averages(seen), then)
        assert (found.msg_rate, found.source) == (400.0, "a:1")

    def test_what_a_bundle_carried_when_it_was_told_of_last_holds_no_longer(self):
        """Where brokers tell of their largest bundles only: it may be the smallest by now."""
        seen = cluster({"a:1": 40, "b:1": 20}, {"a:1": [100, 300]})
        averages = builders.first_averages(seen)
        rows = replace(seen.rows, reported=np.array([False, True]))
        partial = replace(seen, rows=rows, partial=True)
        then = carried_by(seen, scoring.scores(seen.brokers, WEIGHTS), "a:1", 2)
        untold, told = drain.drain_unloads(seen.bundles, "a:1", partial, averages, then)
        assert (untold.msg_rate, told.msg_rate) == (400.0, 600.0)

    def test_the_last_bundles_are_weighed_by_what_there_was(self):
        """A broker of 80 points with a hundredth of its traffic left has no bundle of 80 points."""
        seen = cluster({"a:1": 80, "b:1": 60}, {"a:1": [1.0]})
        scores = scoring.scores(seen.brokers, WEIGHTS)
        before = carried_by(cluster({"a:1": 80}, {"a:1": [100.0]}), scores[:1], "a:1", 1)
        shown, weighed = as_it_was(seen, scores, "a:1", before)
        unload = Unload(bundle(0), "a:1", "b:1", 2.0, 200.0)
        assert ledger(shown, [unload], weighed).rise(unload) == pytest.approx(0.8)
        assert ledger(seen, [unload]).rise(unload) == pytest.approx(80.0)

    @given(
        rates=st.lists(st.floats(0, 1000), min_size=1, max_size=30),
        cpu=st.lists(st.floats(0, 100), min_size=2, max_size=5),
    )
    def test_nothing_is_lost_and_nobody_is_overloaded(self, rates: list[float], cpu: list[float]):
        """Each bundle either moves once or stays with a reason, and no destination passes 85 points."""
        seen = cluster({f"b{at}:1": points for at, points in enumerate(cpu)}, {"b0:1": rates})
        plan = drained(seen, "b0:1")
        named = [unload.bundle for unload in plan.unloads] + [skip.what for skip in plan.stay]
        assert sorted(named) == sorted(seen.bundles)
        scores = dict(zip(seen.brokers.ids, scoring.scores(seen.brokers, WEIGHTS).tolist(), strict=True))
        assert all(scores[unload.destination or ""] <= 85 for unload in plan.unloads)
        total = sum(rates) or 1.0
        for broker in {unload.destination for unload in plan.unloads}:
            share = sum(one.msg_rate for one in plan.unloads if one.destination == broker) / (2 * total)
            assert scores[broker or ""] + share * cpu[0] <= 85 + 1e-3


class TestPreferred:
    """Destinations in a rollout: brokers that were restarted before."""

    def planned(self, *, preferred: set[str], bound: set[str], cpu: dict[str, float], rates: list[float]) -> Any:
        """Broker ``a:1`` is drained; where each of its bundles goes, by number; None: it stays."""
        seen = cluster(cpu, {"a:1": rates})
        unloads = [Unload(name, "a:1", None, 2 * rate, 1.0) for name, rate in zip(seen.bundles, rates, strict=True)]
        others = [one for one in seen.brokers.ids if one != "a:1"]
        plan = drain.plan_drain(unloads, others, ledger(seen, unloads), preferred, bound)
        went = {unload.bundle: unload.destination for unload in plan.unloads}
        return [went.get(name) for name in seen.bundles]

    @pytest.mark.parametrize(
        ("preferred", "bound", "expected"),
        [
            (set(), set(), ["c:1", "c:1", "c:1", "c:1"]),
            ({"b:1"}, set(), ["b:1", "b:1", "c:1", "c:1"]),
            ({"b:1"}, {0, 1, 2}, ["b:1", "b:1", "b:1", "c:1"]),
            ({"c:1"}, {0}, ["c:1", "c:1", "c:1", "c:1"]),
            (set(), {0}, [None, "c:1", "c:1", "c:1"]),
        ],
        ids=["alone", "up to the highest of the others", "bound there", "the emptiest is preferred", "nobody is left"],
    )
    def test_restarted_brokers_first(self, preferred: set[str], bound: set[int], expected: list[str | None]):
        """As long as they stay below the others, and always for what has moved before."""
        names = {bundle(number) for number in bound}
        cpu = {"a:1": 40.0, "b:1": 30.0, "c:1": 0.0, "d:1": 50.0} if preferred != {"c:1"} else {"a:1": 40.0, "c:1": 0.0}
        found = self.planned(preferred=preferred, bound=names, cpu=cpu, rates=[100.0] * 4)
        assert found == expected


class TestEta:
    @pytest.mark.parametrize(
        ("bundles", "at_once", "by_name", "seconds"),
        [
            ([bundle(at) for at in range(8)], 4, False, 2.0),
            ([bundle(0, f"t/n{at}") for at in range(8)], 4, False, 8.0),
            ([bundle(0, f"t/n{at}") for at in range(8)], 4, True, 2.0),
            ([], 4, False, 0.0),
        ],
        ids=["ranges differ", "one range", "one range, known by name", "nothing"],
    )
    def test_one_range_at_a_time(self, bundles: list[str], at_once: int, by_name: bool, seconds: float):
        """Where leaders know a destination by the range alone, bundles of one range wait for each other."""
        assert drain.eta_seconds(bundles, at_once, 1.0, by_name=by_name) == seconds


class TestFill:
    def filled(self, cpu: dict[str, float], bundles: dict[str, list[float]], broker: str) -> drain.DrainMoves:
        """The plan for one broker."""
        seen = cluster(cpu, bundles)
        averages = builders.first_averages(seen)
        scores = dict(zip(seen.brokers.ids, scoring.scores(seen.brokers, WEIGHTS).tolist(), strict=True))
        owner = {bundle: seen.brokers.ids[at] for bundle, at in zip(seen.bundles, seen.rows.owner(), strict=True)}
        unloads = [
            Unload(name, owner[name], None, float(averages.short[at, :2].sum()), float(averages.short[at, 2:].sum()))
            for at, name in enumerate(seen.bundles)
        ]
        return drain.plan_fill(unloads, broker, scores, ledger(seen, unloads))

    def test_a_slice_of_each_hot_broker(self):
        """70, 70, 20 and 0 are 40 on average: two give 30 points together, none below the mean."""
        plan = self.filled(
            {"a:1": 70, "b:1": 70, "c:1": 20, "d:1": 0}, {"a:1": [10] * 14, "b:1": [10] * 14, "c:1": [10] * 4}, "d:1"
        )
        assert Counter(unload.source for unload in plan.unloads) == {"a:1": 4, "b:1": 4}
        assert owners(plan) == {"d:1": 8}

    @pytest.mark.parametrize(
        ("cpu", "bundles"),
        [
            ({"a:1": 50, "b:1": 50}, {"a:1": [10] * 5}),
            ({"a:1": 40, "b:1": 80}, {"b:1": [10] * 5}),
            ({"a:1": 40, "b:1": 60}, {"b:1": [10]}),
            ({"a:1": 40, "b:1": 60}, {"b:1": [0, 0]}),
        ],
        ids=["even", "it is the cold one that is asked for", "one bundle too large", "no traffic"],
    )
    def test_nothing_that_helps_nobody(self, cpu: dict[str, float], bundles: dict[str, list[float]]):
        """Where nothing brings the broker closer to the mean nothing moves."""
        wanted = "b:1" if cpu["a:1"] < cpu["b:1"] == 80 else "a:1"
        assert self.filled(cpu, bundles, wanted).unloads == ()

    @given(st.lists(st.tuples(st.floats(1, 100), st.lists(st.floats(1, 100), min_size=1, max_size=8)), min_size=2))
    def test_nobody_crosses_the_mean(self, given_brokers: list[tuple[float, list[float]]]):
        """Neither the broker that is filled nor those that give."""
        brokers = given_brokers[:6]
        cpu = {f"b{at}:1": points for at, (points, _) in enumerate(brokers)}
        bundles = {f"b{at}:1": rates for at, (_, rates) in enumerate(brokers)}
        plan = self.filled(cpu, bundles, "b0:1")
        level = np.mean(list(cpu.values()))
        given_away: Counter[str] = Counter()
        for unload in plan.unloads:
            share = unload.msg_rate / (2 * sum(bundles[unload.source]))
            given_away[unload.source] += cpu[unload.source] * share  # type: ignore[assignment]
        assert all(cpu[source] - points >= level - 1e-3 for source, points in given_away.items())
        assert not plan.unloads or cpu["b0:1"] + sum(given_away.values()) <= level + 1e-3
