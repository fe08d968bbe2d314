"""least-moves: who gives, who takes, how many bundles, and what is said where none moves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.decide import load_estimate
from lbd.model import BYTES_IN, BYTES_OUT, Decision, Hits, LiveCpu, Memory, Slopes
from lbd.reason import Reason
from tests.builders import bundle, report, stats
from tests.decide.asking import MIB, ask, broker, cluster, taken

if TYPE_CHECKING:
    from lbd.model import Snapshot

NOW: dict[str, Any] = {"hit_count_low": 1, "hit_count_high": 1}
FREE = {**NOW, "min_unload_message": 0, "min_unload_message_throughput": 0}


def slopes(*points_per_mib: float, noise: float = 0.0) -> Slopes:
    """CPU that each broker uses for each MiB/s, in + out."""
    slope, spread = (np.zeros((len(points_per_mib), 5)) for _ in range(2))
    slope[:, 0], spread[:, 0] = np.array(points_per_mib) / MIB, noise
    return Slopes(slope, spread)


def plan(seen: Snapshot, known: Slopes | None = None, **changes: Any) -> Decision:
    """A round that fires at once; ``permit`` changes the permission."""
    permit = {"slopes": known, **changes.pop("permit", {})}
    return ask("least-moves", seen, changes.pop("memory", None), permit=permit, **{"live": True, **NOW, **changes})


def ends(decision: Decision) -> list[tuple[str, int, str]]:
    """Each unload by its source's letter, its bundle's number and its destination's letter."""
    return [
        (*one, (unload.destination or "?")[0]) for one, unload in zip(taken(decision), decision.unloads, strict=True)
    ]


def after(seen: Snapshot, decision: Decision, known: Slopes) -> np.ndarray[Any, Any]:
    """CPU of each broker when all has moved, as the slopes have it."""
    points, position = seen.brokers.usage[:, 0].copy(), seen.brokers.index()
    for unload in decision.unloads:
        for end, sign in ((unload.source, -1), (unload.destination or "", 1)):
            points[position[end]] += sign * known.slope[position[end], 0] * unload.throughput
    return points


TABLE = [
    pytest.param(
        [(80, [10, 10, 5, 5, 10]), (20, [5, 5]), (50, [5] * 5)], (1, 1, 1), [("a", 0, "b")],
        id="one-large-bundle-is-enough"
    ),
    pytest.param(
        [(80, [20, 13, 2, 5]), (20, [5, 5]), (50, [5] * 5)], (1, 1, 1), [("a", 1, "b")],
        id="the-smallest-that-is-enough"
    ),
    pytest.param(
        [(80, [20, 20]), (40, [10, 10]), (40, [10, 10]), (40, [10, 10])], (1, 1, 1, 1), [], id="too-large-for-all"
    ),
    pytest.param(
        [(80, [10] * 4), (75, [10] * 4), (20, [5, 5]), (20, [5, 5])], (1,) * 4,
        [("a", 0, "c"), ("b", 4, "d")], id="two-give-and-two-take",
    ),
    pytest.param(
        [(60, [10, 10, 10]), (60, [10, 10, 10]), (30, [20, 20, 20])], (1, 1, 0.25),
        [("a", 0, "c"), ("b", 3, "c")], id="a-bundle-puts-less-on-a-stronger-broker",
    ),
    pytest.param(
        [(52, [2] * 13), (53, [2] * 13), (51, [2] * 13), (2, [])], (1,) * 4,
        [("b", 13, "d"), ("a", 0, "d"), ("c", 26, "d"), ("b", 14, "d")], id="an-empty-broker-is-filled-by-all",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("brokers", "cost", "wanted"), TABLE)
def test_who_gives_what_to_whom(
    brokers: list[tuple[float, list[float]]], cost: tuple[float, ...], wanted: list[tuple[str, int, str]]
) -> None:
    """Brokers by CPU and the MiB/s of their bundles each way, and what a MiB/s costs; the moves begin with these."""
    found, first = [], 0
    for cpu, sizes in brokers:
        found.append(broker(cpu, sizes, first))
        first += len(sizes)
    decision = plan(cluster(*found), slopes(*cost))

    assert ends(decision)[: len(wanted) or None] == wanted


WORDS = [
    pytest.param([(80, [20, 20]), (40, [10, 10]), (40, [10, 10])], {}, Reason.TOO_LARGE, "lbd split t/", id="too-big"),
    pytest.param([(80, []), (40, [10, 10])], {}, Reason.BACKGROUND_LOAD, "its load is not theirs", id="background"),
    pytest.param(
        [(96, [10] * 4), (94, [10] * 4)], {}, Reason.BALANCED, "the cluster is full: add 1 broker of", id="cluster-full"
    ),
    pytest.param(
        [(70, [10] * 3), (40, [10, 10])], {"min_unload_message_throughput": 1e9, "min_unload_message": 1e9},
        Reason.BELOW_MINIMUM, "minimum 1000000000", id="below-minimum",
    ),
    pytest.param([(52, [5] * 4), (50, [5] * 4)], {}, Reason.BALANCED, "level of 51.0 points: 1.0", id="balanced"),
]  # fmt: skip


@pytest.mark.parametrize(("brokers", "changes", "reason", "words"), WORDS)
def test_why_nothing_moves(
    brokers: list[tuple[float, list[float]]], changes: dict[str, Any], reason: Reason, words: str
) -> None:
    """A MiB/s costs every broker a point; the reason, and words that its detail holds."""
    found, first = [], 0
    for cpu, sizes in brokers:
        found.append(broker(cpu, sizes, first))
        first += len(sizes)
    decision = plan(cluster(*found), slopes(*[1.0] * len(brokers)), **changes)

    assert decision.unloads == ()
    assert decision.skips[0].reason is reason
    assert words in decision.skips[0].detail


AT_LIMIT = [
    pytest.param(99, (0.25, 0.05), True, id="most of its load is not theirs"),
    pytest.param(99, (0.25, 0.5), False, id="but moves hardly tell"),
    pytest.param(99, (1.0, 0.05), False, id="it is theirs"),
    pytest.param(97, (0.25, 0.05), False, id="below its limit its own samples tell"),
]


@pytest.mark.parametrize(("cpu", "effect", "named"), AT_LIMIT)
def test_of_a_broker_at_its_limit_what_moves_did_to_others_tells_its_neighbour(
    cpu: float, effect: tuple[float, float], named: bool
) -> None:
    """By its own usage a MiB/s makes two and a half points; elsewhere it brought these, give or take that."""
    seen = of((cpu, [10, 10]), (60, [20, 20]), (60, [20, 20]))
    told = np.array([(0.0, np.inf), effect, (0.0, np.inf)]) / MIB
    known = replace(slopes(np.nan, 1, 1), effect=told)
    skips = plan(seen, known, permit={"max_destination_score": 85}).skips

    assert [skip.reason is Reason.BACKGROUND_LOAD for skip in skips] == [named]
    assert not named or "85.1 points or more are not those of bundles that may move" in skips[0].detail


@pytest.mark.parametrize(("low", "aim"), [(7.5, 3), (7.5, 5), (5, 3), (4, 2), (4, 3.5)])
def test_what_is_twice_the_low_threshold_above_the_lowest_is_relieved_whatever_the_settings(
    low: float, aim: float
) -> None:
    """By a bundle of two points or more, and nothing more is said: how near it may stay follows the threshold."""
    sizes = [1.0] * 20
    seen = cluster(*(broker(one, sizes, first) for one, first in ((50 + 2 * low, 0), (50, 20), (50, 40), (50, 60))))
    decision = plan(seen, slopes(1, 1, 1, 1), low_threshold=low, aim_points=aim)

    assert {move.source for move in decision.unloads} == {"a:80"}
    assert decision.skips == ()


def test_a_pair_fires_where_one_of_its_ends_does_though_the_other_is_further_from_the_level() -> None:
    """The low one is 19 points off for its first sample, the high one 11 for its eighth."""
    sizes = [1.0] * 20
    seen = cluster(*(broker(one, sizes, first) for one, first in ((60, 0), (57, 20), (57, 40), (30, 60))))
    decision = plan(seen, slopes(1, 1, 1, 1), memory=Memory({"a:80": Hits(7, 0)}), hit_count_low=8, hit_count_high=2)

    assert "a:80" in {move.source for move in decision.unloads}
    assert next((pair.ends, pair.hits.low) for pair in decision.comparison.pairs if pair.fired) == ("a:80 -> d:80", 8)
    assert decision.skips == ()


def test_one_above_the_level_is_left_while_none_is_twice_the_threshold_apart() -> None:
    """Ten points above the others, 7.5 above the level: what AvgShedder leaves alone is left, and it is said why."""
    sizes = [1.0] * 20
    seen = cluster(*(broker(one, sizes, first) for one, first in ((60, 0), (50, 20), (50, 40), (50, 60))))
    decision = plan(seen, slopes(1, 1, 1, 1))

    assert decision.unloads == ()
    assert decision.skips[0].detail.endswith("7.5 above it, and moved for once all are 15 points apart, 10.0 now")


def test_a_gain_below_noise_is_none() -> None:
    """What all moves of a broker take off it must be more than its samples differ by themselves."""
    seen = cluster(broker(70, [10] * 3), broker(40, [10, 10], 3))

    assert plan(seen, slopes(1, 1)).unloads
    noisy = plan(seen, slopes(1, 1, noise=30))
    assert noisy.unloads == ()
    assert noisy.skips[0].reason is Reason.BELOW_MINIMUM


def test_hits_are_counted_with_new_samples_and_stand_below_their_limits_after_firing() -> None:
    """Three samples at the low threshold, two at the high; without a sample nothing counts."""
    seen = cluster(broker(70, [10] * 3), broker(40, [10, 10], 3))
    wanted = {"hit_count_low": 3, "hit_count_high": 2}
    first = plan(seen, slopes(1, 1), **wanted)
    stale = {"counts": np.zeros(2, dtype=np.bool_)}
    second = plan(seen, slopes(1, 1), memory=first.memory, permit=stale, **wanted)
    third = plan(seen, slopes(1, 1), memory=Memory({"a:80": Hits(2, 0)}), **wanted)

    assert first.memory.hits == second.memory.hits == {"a:80": Hits(1, 0), "b:80": Hits(1, 0)}
    assert [skip.reason for skip in second.skips] == [Reason.NO_NEW_SAMPLE] * 2
    assert third.unloads
    assert third.memory.hits == {"a:80": Hits(2, 1), "b:80": Hits(1, 0)}


def test_a_broker_that_has_joined_lately_is_filled_at_its_first_sample() -> None:
    """That it came empty does not pass; without a new sample it is not."""
    seen = cluster(broker(70, [10] * 3), broker(40, [10, 10], 3))
    joined: dict[str, Any] = {"joined": frozenset({"b:80"})}
    wanted = {"hit_count_low": 8, "hit_count_high": 8}
    found = plan(seen, slopes(1, 1), permit=joined, **wanted)
    stale = plan(seen, slopes(1, 1), permit={**joined, "counts": np.zeros(2, dtype=np.bool_)}, **wanted)

    assert {unload.destination for unload in found.unloads} == {"b:80"}
    assert stale.unloads == ()


@pytest.mark.parametrize(
    ("cpu", "ago_seconds", "known", "settled", "goes_on", "remembered"),
    [
        (70, 60, True, True, True, True),
        (70, 601, True, True, False, False),
        (70, 60, False, True, False, True),
        (70, 60, True, False, False, True),
        (50, 60, True, True, False, False),
        (50, 60, True, False, False, True),
    ],
    ids=["soon", "late", "by reports", "not settled", "near the level", "near that of others"],
)
def test_who_gave_lately_goes_on_without_hits_or_a_new_sample(
    cpu: float, ago_seconds: float, known: bool, settled: bool, goes_on: bool, remembered: bool
) -> None:
    """Its CPU of now shows what the last moves left, once it has settled."""
    seen = cluster(broker(cpu, [10] * 3), broker(40, [10, 10], 3))
    nan = np.full(2, np.nan)
    live = LiveCpu(seen.brokers, np.array([20.0 if known else np.nan, np.nan]), nan, nan)
    seen = replace(seen, brokers=replace(seen.brokers, live=live))
    gave = Memory(unloaded_at={"a:80": seen.taken_at - ago_seconds})
    permit = {"counts": np.zeros(2, dtype=np.bool_), "settled": np.array([settled, True])}
    found = plan(seen, slopes(1, 1), memory=gave, permit=permit, hit_count_low=8, hit_count_high=8)

    assert bool(found.unloads) == goes_on
    assert ("a:80" in found.memory.unloaded_at) == remembered


def test_who_goes_on_in_vain_is_looked_at_again() -> None:
    """Where nothing fits now, the rest of its last moves still needs no hits: a destination may have room soon."""
    seen = cluster(broker(70, [50]), broker(40, [10, 10], 1))
    live = LiveCpu(seen.brokers, np.full(2, 20.0), np.zeros(2), np.zeros(2))
    seen = replace(seen, brokers=replace(seen.brokers, live=live))
    gave = Memory(unloaded_at={"a:80": seen.taken_at - 60})
    found = plan(seen, slopes(1, 1), memory=gave, hit_count_low=8, hit_count_high=8)

    assert found.unloads == ()
    assert found.memory.unloaded_at == gave.unloaded_at
    assert "a:80" not in found.memory.hits


def test_the_plan_tells_the_fewest_moves_and_what_is_estimated() -> None:
    """No plan of fewer replaces these moves; without slopes the points are called estimates."""
    seen = cluster(broker(80, [5] * 8), broker(20, [5, 5], 8))

    told = "3 planned, at least 3 needed for a highest score of 50.0 points and a lowest of 50.0"
    assert plan(seen, slopes(1, 1)).comparison.summary == told
    assert plan(seen).comparison.summary.endswith("points estimated as usage/traffic, slopes are not known yet")


def test_unsettled_brokers_neither_give_nor_take() -> None:
    """What an unsettled broker shows is not to be trusted."""
    seen = cluster(broker(80, [5] * 8), broker(20, [5, 5], 8), broker(30, [5, 5], 10))
    settled = np.array([True, False, True])

    decision = plan(seen, slopes(1, 1, 1), permit={"settled": settled})
    assert {unload.destination for unload in decision.unloads} == {"c:80"}
    assert plan(seen, permit={"settled": ~settled}).skips[0].reason is Reason.SETTLING


BROKERS = st.lists(
    st.tuples(st.floats(0, 60), st.floats(0.1, 2), st.lists(st.integers(1, 20), max_size=10)), min_size=2, max_size=6
)


@given(BROKERS)
def test_no_plan_makes_the_highest_broker_higher_or_needs_fewer_than_the_bound(
    brokers: list[tuple[float, float, list[int]]],
) -> None:
    """Brokers by background, points for a MiB/s, and bundles; what the plan tells holds."""
    found, first = [], 0
    for background, cost, sizes in brokers:
        found.append(broker(background + 2 * cost * sum(sizes), sizes, first))
        first += len(sizes)
    seen, known = cluster(*found), slopes(*(cost for _, cost, _ in brokers))
    decision = plan(seen, known, **FREE)
    points = after(seen, decision, known)

    assert points.max() <= seen.brokers.usage[:, 0].max() + 1e-4
    if decision.unloads:
        planned, least = (int(word) for word in decision.comparison.summary.replace(",", "").split() if word.isdigit())
        assert least <= planned == len(decision.unloads)


@given(BROKERS)
def test_a_plan_settles_what_it_was_asked_to_settle(brokers: list[tuple[float, float, list[int]]]) -> None:
    """Moved, the same cluster asks for nothing more of those that gave: no bundle moves on."""
    found, first = [], 0
    for background, cost, sizes in brokers:
        found.append(broker(background + 2 * cost * sum(sizes), sizes, first))
        first += len(sizes)
    seen, known = cluster(*found), slopes(*(cost for _, cost, _ in brokers))
    decision = plan(seen, known, **FREE)
    points, before = after(seen, decision, known), seen.brokers.usage[:, 0]
    position = seen.brokers.index()

    for unload in decision.unloads:
        destination = position[unload.destination or ""]
        assert points[destination] < before[position[unload.source]]
        assert unload.throughput == pytest.approx(
            sum(seen.rows.rates[seen.bundles.index(unload.bundle), [BYTES_IN, BYTES_OUT]])
        )


def of(*brokers: tuple[float, list[float]]) -> Snapshot:
    """Brokers by CPU and the MiB/s of their bundles each way."""
    found, first = [], 0
    for cpu, sizes in brokers:
        found.append(broker(cpu, sizes, first))
        first += len(sizes)
    return cluster(*found)


def test_one_that_fires_takes_the_others_above_the_band_along() -> None:
    """The second broker is 7 points above the level and fires never; what is left to it would be the peak."""
    seen = of((80, [5] * 8), (57, [2] * 8), (30, [2] * 8), (33, [2] * 8))
    waits = {"hit_count_low": 8, "hit_count_high": 1}
    decision = plan(seen, slopes(1, 1, 1, 1), **waits)

    assert {move.source for move in decision.unloads} == {"a:80", "b:80"}
    assert plan(of((57, [2] * 8), (50, [2] * 8), (43, [2] * 8)), slopes(1, 1, 1), **waits).unloads == ()


def test_a_bundle_that_fits_nowhere_goes_where_the_higher_of_both_ends_is_lower_than_before() -> None:
    """80 and 20 become 40 and 60, then 48 and 52; where both would only change places the bundle stays."""
    better = plan(of((80, [20]), (20, [4, 4]), (50, [4, 4]), (50, [4, 4])), slopes(1, 1, 1, 1))
    no_better = plan(of((90, [30]), (30, [4, 4]), (40, [4, 4]), (40, [4, 4])), slopes(1, 1, 1, 1))

    assert ends(better) == [("a", 0, "b")]
    assert "is to go the other way when it has landed" in better.unloads[0].reason
    assert no_better.unloads == ()
    assert no_better.skips[0].reason is Reason.TOO_LARGE


def test_after_an_overshoot_the_destination_gives_something_small_back() -> None:
    """The same brokers one landing later: the one that took too much is above the band, and the large one stays."""
    later = of((60, [1]), (60, [15, 4, 4]), (40, [4, 4]), (40, [4, 4]))
    decision = plan(later, slopes(1, 1, 1, 1))

    assert "b:80" in {move.source for move in decision.unloads}
    assert all(move.throughput < 10 * MIB for move in decision.unloads)


CLIENTS = [
    pytest.param([(14, 1000), (14, 1)], [1], id="of-two-alike-the-one-with-fewer"),
    pytest.param([(15, 1000), (13, 1)], [1], id="a-smaller-one-that-is-enough"),
    pytest.param([(14, 1000), (7, 1), (7, 1)], [1, 2], id="two-with-few-instead-of-one-with-many"),
    pytest.param([(14, 2), (7, 1), (7, 1)], [0], id="one-where-clients-are-few-everywhere"),
]


@pytest.mark.parametrize(("bundles", "wanted"), CLIENTS)
def test_moves_that_disconnect_the_fewest_clients_are_chosen(bundles: list[tuple[int, int]], wanted: list[int]) -> None:
    """Bundles of a broker at 80 by MiB/s each way and clients, and those that leave it; all would be even at 50."""
    own = {bundle(at): stats(mib, mib * MIB, topics=clients) for at, (mib, clients) in enumerate(bundles)}
    seen = cluster(report(80, own), broker(20, [5, 5], 5), broker(50, [5, 5], 7))

    assert sorted(number for _, number, _ in ends(plan(seen, slopes(1, 1, 1)))) == wanted


def test_a_dear_namespace_stays_while_a_cheaper_one_is_enough() -> None:
    """The smallest that is enough has a cost; the larger one without goes."""
    seen = of((80, [16, 14]), (20, [5, 5]), (60, [5, 5]))
    costs = np.zeros(len(seen.bundles))
    costs[seen.bundles.index(bundle(1))] = 5.0

    assert ends(plan(seen, slopes(1, 1, 1)))[0][1] == 1
    assert ends(plan(seen, slopes(1, 1, 1), permit={"costs": costs}))[0][1] == 0


def test_no_price_is_paid_while_many_small_bundles_without_one_are_enough() -> None:
    """More of them than are looked at for their cost; the large one is never needed."""
    seen = of((80, [10, *[0.2] * 100]), (20, [5, 5]), (60, [5, 5]))
    costs = np.zeros(len(seen.bundles))
    costs[seen.bundles.index(bundle(0))] = 5.0

    moved = {number for _, number, _ in ends(plan(seen, slopes(1, 1, 1), permit={"costs": costs}))}
    assert 0 not in moved
    assert len(moved) > 48


def test_policies_that_keep_all_bundles_are_named() -> None:
    """Nothing may leave the hot broker: the policy is the reason, not the size."""
    seen = of((80, [5, 5]), (20, [5, 5]))
    barred = dict.fromkeys((bundle(0), bundle(1)), Reason.EXCLUDED_NAMESPACE)
    decision = plan(seen, slopes(1, 1), permit={"barred": barred})

    assert decision.skips[0].reason is Reason.EXCLUDED_NAMESPACE
    assert "2 excluded-namespace" in decision.skips[0].detail


def test_what_is_left_after_a_plan_is_said() -> None:
    """Half of the broker's load is not its bundles': it gives what it has, and the rest is named."""
    decision = plan(of((90, [8, 8]), (30, [5, 5]), (30, [5, 5])), slopes(1, 1, 1))

    assert decision.unloads
    assert decision.skips[0].reason is Reason.BACKGROUND_LOAD
    assert "then still at 58.0 points: 58.0 of its points are not those of bundles" in decision.skips[0].detail


ESTIMATES = [
    pytest.param([(20 + 2 * size, [size]) for size in range(10, 30)], 20.0, id="alike-brokers-show-it"),
    pytest.param([(20 + 2 * size, [size]) for size in range(10, 14)], 0.0, id="too-few-that-differ-too-little"),
    pytest.param([(75, [24]), (44, [4]), (41, [4])], 20.5, id="three-that-differ-much"),
    pytest.param([(61, [6]), (30, [13]), (30, [13])], 15.0, id="three-and-one-has-a-neighbour"),
    pytest.param([(60, [20]), (20, [5])], 0.0, id="two-tell-nothing"),
    pytest.param([(45 + size * 7 % 11, [30 - size]) for size in range(20)], 22.5, id="at-most-half-of-the-lowest"),
]


@pytest.mark.parametrize(("brokers", "background"), ESTIMATES)
def test_what_traffic_costs_is_estimated_across_brokers(
    brokers: list[tuple[float, list[float]]], background: float
) -> None:
    """Brokers by CPU and MiB/s each way: the background that they share is not taken for their traffic's."""
    seen = of(*brokers)
    traffic, used = seen.brokers.rates[:, [BYTES_IN, BYTES_OUT]].sum(axis=1), seen.brokers.usage[:, 0]
    slope, estimated = load_estimate.estimate_slopes(seen, None)

    assert estimated
    assert load_estimate.shared_background(traffic, used) == pytest.approx(background, abs=0.1)
    assert slope[:, 0] == pytest.approx((used - background) / traffic, rel=0.02)


def test_an_unknown_cost_follows_those_that_are_known() -> None:
    """Half of what usage over traffic says is true of two brokers; so the third's is taken as half, too."""
    seen = of((40, [10]), (40, [10]), (80, [10]))
    known = slopes(1, 1, np.nan)
    found, estimated = load_estimate.estimate_slopes(seen, known)

    assert estimated
    assert found[:, 0] * MIB == pytest.approx([1, 1, 2])


def test_what_a_plan_left_goes_on_with_the_next_sample() -> None:
    """Half of the plan was held back: the same two brokers, still too far apart, do not wait eight samples anew."""
    wanted = {"hit_count_low": 8, "hit_count_high": 2}
    first = plan(of((80, [5] * 8), (20, [5, 5])), slopes(1, 1), memory=Memory({"a:80": Hits(1, 1)}), **wanted)
    later = plan(of((60, [5] * 6), (40, [5, 5])), slopes(1, 1), memory=first.memory, **wanted)
    enough = plan(of((52, [5] * 5), (48, [5, 5])), slopes(1, 1), memory=first.memory, **wanted)

    assert first.memory.hits["a:80"] == Hits(7, 1)
    assert later.unloads
    assert enough.unloads == ()
    assert enough.memory.hits == {}


def test_nothing_is_planned_that_the_guardrails_would_refuse() -> None:
    """Of the destination itself nothing is known, so its source's share counts there: 40 of 80 points, too much."""
    seen = of((80, [16, 5, 5, 8]), (20, [5, 5]), (50, [5] * 5))
    free = plan(seen, slopes(1, 1, 1))
    limited = plan(seen, slopes(1, 1, 1), permit={"max_destination_score": 55.0})

    assert ends(free)[0][1] == 0
    assert limited.unloads
    assert 0 not in {number for _, number, _ in ends(limited)}


def test_a_plan_tells_the_moves_that_it_makes() -> None:
    """What is too little to be worth it is neither among the moves nor in the peak that they lead to."""
    seen = of((80, [5] * 8), (58, [0.2] * 8), (20, [5, 5]), (30, [5, 5]))
    decision = plan(seen, slopes(1, 1, 1, 1, noise=4))
    planned, least = (int(word) for word in decision.comparison.summary.replace(",", "").split() if word.isdigit())

    assert least <= planned == len(decision.unloads)


def test_a_low_broker_is_filled_only_where_the_gap_is_twice_the_threshold() -> None:
    """To fill it lowers no peak: 14 points apart it stays as it is, which is said; 24 apart it is filled."""
    near = plan(of((52, [4] * 6), (52, [4] * 6), (38, [4] * 2)), slopes(1, 1, 1))
    far = plan(of((56, [4] * 6), (56, [4] * 6), (32, [4] * 2)), slopes(1, 1, 1))

    assert near.unloads == ()
    assert near.skips[0].reason is Reason.BALANCED
    assert near.skips[0].detail.endswith("9.3 below it, and moved for once all are 15 points apart, 14.0 now")
    assert {unload.destination for unload in far.unloads} == {"c:80"}


def test_filling_alone_takes_nobody_along_who_is_within_the_threshold() -> None:
    """Both high ones are 6 points above the level: the low one gets what it needs, and no more moves than that."""
    seen = of((56, [4] * 6), (56, [4] * 6), (38, [4] * 2))

    assert len(plan(seen, slopes(1, 1, 1)).unloads) == 1


@pytest.mark.parametrize(
    ("high", "low"), [(52, 36), (57, 36)], ids=["only the low one is far", "the high ones are, too"]
)
def test_bundles_below_noise_move_only_where_there_are_enough(high: float, low: float) -> None:
    """Where nothing else fits, ten of 0.2 points bring brokers no closer; forty of them do."""

    def planned(number: int) -> int:
        sizes = [14, *[0.1] * number]
        return len(plan(of((high, sizes), (high, sizes), (low, [4] * 2)), slopes(1, 1, 1, noise=1.5)).unloads)

    assert planned(10) == 0
    assert planned(60) > 10


def test_a_plan_stands_on_what_brokers_usually_show() -> None:
    """The newest sample of the first is 9 points above what it has shown on average: no ground for a move."""
    seen = of((60, [5] * 6), (50, [5] * 6))
    usual = np.full((2, 5), np.nan)
    usual[:, 0] = (51.0, 50.0)
    known = replace(slopes(1, 1), usual=usual, samples=np.array([5.0, 5.0]))

    assert plan(of((70, [5] * 6), (50, [5] * 6)), slopes(1, 1)).unloads
    assert plan(seen, known).unloads == ()
    assert "51.0" not in plan(seen, known).skips[0].detail


def test_a_plan_stands_on_cpu_of_now_where_it_is_known() -> None:
    """What the first usually showed is from before its bundles moved: it would give once more."""
    seen = of((50, [5] * 6), (50, [5] * 6))
    usual = np.full((2, 5), np.nan)
    usual[:, 0] = (80.0, 50.0)
    known = replace(slopes(1, 1), usual=usual, samples=np.array([5.0, 5.0]))
    live = LiveCpu(seen.brokers, np.array([30.0, np.nan]), np.array([1.0, np.nan]), np.array([0.1, np.nan]))

    assert plan(seen, known).unloads
    assert plan(replace(seen, brokers=replace(seen.brokers, live=live)), known).unloads == ()


def test_of_several_samples_smaller_gains_are_seen() -> None:
    """A sample differs by 3 points: 4 MiB/s, which take 8, are told by sixteen of them where one hides 2 and less."""
    seen = of((90, [1] * 4), (30, [5, 5]), (30, [5, 5]))
    noisy = slopes(1, 1, 1, noise=3)

    assert plan(seen, noisy).unloads == ()
    assert plan(seen, replace(noisy, samples=np.full(3, 16.0))).unloads


def test_what_no_broker_carries_bends_no_estimate() -> None:
    """One of three reports a number of bytes that no broker has: what traffic costs the others is as without it."""
    seen = of((40, [10]), (80, [10]), (40, [10]))
    odd = replace(seen, brokers=replace(seen.brokers, rates=seen.brokers.rates.copy()))
    odd.brokers.rates[2] = 1e30
    found, _ = load_estimate.estimate_slopes(odd, None)

    assert found[:2, 0] == pytest.approx(load_estimate.estimate_slopes(seen, None)[0][:2, 0])


def test_what_a_later_move_made_needless_is_left_out() -> None:
    """The small ones go first, since the large one fits nowhere; once it goes where both ends get lower they stay."""
    decision = plan(of((90, [25, 2, 2]), (20, [5]), (45, [5]), (45, [5])), slopes(1, 1, 1, 1))

    assert ends(decision) == [("a", 0, "b")]


def test_what_is_left_out_is_in_no_number_that_is_told() -> None:
    """The last bundle of one MiB would have gone to the lowest broker, too."""
    seen = of((55, [20, 1]), (29, [1, 8]), (4, [1]))
    decision = plan(seen, slopes(1, 1, 1), **FREE)

    assert ends(decision) == [("a", 0, "c")]
    assert "a:80 then 15.0, c:80 44.0" in decision.unloads[0].reason


def of_others(*points_per_mib: float, own: tuple[bool, ...]) -> Slopes:
    """Slopes of which some are only those of brokers with the same limits."""
    found = slopes(*points_per_mib)
    return replace(found, sources=tuple("fitted" if one else "class" for one in own))


@pytest.mark.parametrize(("cpu", "wanted"), [(60, 1.0), (90, 2.5)], ids=["some other work", "more than ever seen"])
def test_a_slope_of_others_that_leaves_an_unusual_background_is_doubted(cpu: float, wanted: float) -> None:
    """All else on these machines takes 15 points; the last carries as much as the others and uses more."""
    seen = of((35, [10]), (55, [20]), (35, [10]), (cpu, [15]))
    known = of_others(1, 1, 1, 1, own=(True, True, True, False))
    found, estimated = load_estimate.estimate_slopes(seen, known)

    assert estimated is (wanted > 1)
    assert found[3, 0] * MIB >= wanted


UNLIKE = [(50, [8])] * 3 + [(50, [16])] * 3 + [(50, [32])] * 3
ALIKE = [(50, [16])] * 8 + [(75, [16])]


@pytest.mark.parametrize(
    ("brokers", "believed"),
    [(UNLIKE, False), (ALIKE, True), ([(50, [16]), (50, [16]), (75, [16])], True)],
    ids=["machines of three kinds", "one has a neighbour", "one of three has a neighbour"],
)
def test_a_slope_of_others_counts_where_most_brokers_use_alike_for_their_traffic(
    brokers: list[tuple[float, list[float]]], believed: bool
) -> None:
    """The slope fits those that carry most, and leaves nobody an unusual background."""
    seen = of(*brokers)
    found, estimated = load_estimate.estimate_slopes(
        seen, of_others(*[0.75] * len(brokers), own=(False,) * len(brokers))
    )
    by_usage, _ = load_estimate.estimate_slopes(seen, None)

    assert estimated is not believed
    assert found[:, 0] == pytest.approx(np.full(len(brokers), 0.75 / MIB) if believed else by_usage[:, 0])


@pytest.mark.parametrize(("source", "told"), [("class", 0.75), ("unknown", np.nan)])
def test_traffic_costs_a_broker_without_a_limit_nothing_and_the_others_what_they_show(source: str, told: float) -> None:
    """It carries little. Of the others nothing is known, or what they share is not believed: they are unlike."""
    seen = of(*UNLIKE, (0, [1]))
    known = replace(of_others(*[told] * 9, 0.0, own=(False,) * 10), sources=(*[source] * 9, "no-limit"))
    found, estimated = load_estimate.estimate_slopes(seen, known)
    by_usage, _ = load_estimate.estimate_slopes(seen, None)

    assert estimated
    assert found[:, 0] == pytest.approx([*by_usage[:-1, 0], 0])


def test_of_a_broker_that_shows_nothing_the_steepest_known_slope_counts() -> None:
    """It carries nothing, and no class tells: it is rather filled too slowly than too fast."""
    found, estimated = load_estimate.estimate_slopes(of((40, [10]), (80, [10]), (10, [])), slopes(1, 3, np.nan))

    assert estimated
    assert found[2, 0] * MIB == pytest.approx(3)


@pytest.mark.parametrize(
    ("effect", "share"),
    [((0.2, 0.05), 0.2), ((0.2, 0.5), 1), ((0.8, 0.05), 1), ((1.8, 0.05), 1.8), ((0, 0.05), 0.1)],
    ids=["a fraction of the estimate", "but hardly told", "much like the estimate", "far more", "nothing at all"],
)
def test_what_moves_brought_counts_where_it_is_clearly_not_what_was_estimated(
    effect: tuple[float, float], share: float
) -> None:
    """A neighbour's load was taken for traffic's: what a move brought, its deviation, and what is then believed, all
    in parts of the first broker's estimate.
    """
    seen = of((60, [16]), (40, [20]), (40, [20]))
    before, _ = load_estimate.estimate_slopes(seen, None)
    told = np.array([effect, (0.0, np.inf), (0.0, np.inf)]) * before[0, 0]
    found, estimated = load_estimate.estimate_slopes(seen, replace(slopes(np.nan, np.nan, np.nan), effect=told))

    assert estimated
    assert found[:, 0] == pytest.approx(before[:, 0] * [share, 1, 1])


def test_how_far_apart_ends_are_is_told_of_what_the_plan_stands_on() -> None:
    """The report shows 80 and 40, the samples of the last minutes 74 and 42 on average."""
    seen = of((80, [10] * 4), (40, [5, 5]))
    usual = np.zeros((2, 5))
    usual[:, 0] = (74, 42)
    decision = plan(seen, replace(slopes(0.5, 0.5), usual=usual, samples=np.full(2, 5.0)))

    assert decision.comparison.pairs[0].difference == pytest.approx(32)
