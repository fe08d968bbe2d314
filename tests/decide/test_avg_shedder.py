"""AvgShedder, rule by rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.decide import whole_plan
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.strategies import build
from lbd.load.scoring import Weights
from lbd.model import Decision, Hits, LiveCpu, Memory
from lbd.observe.parse import Usage
from lbd.reason import Reason
from tests.builders import bundle, first_averages, permission, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.model import Snapshot
    from lbd.observe.parse import LoadReport


def ask(
    seen: Snapshot, memory: Memory | None = None, permit: Mapping[str, Any] | None = None, **changes: Any
) -> Decision:
    """One round with these settings; stock unless ``live=True``."""
    live = changes.pop("live", False)
    chosen = AvgShedderSettings(**changes)
    strategy = build(chosen if live else chosen.stock(), Weights())
    return strategy(seen, first_averages(seen), permission(seen, **(permit or {})), memory or Memory())


def rounds(seen: Snapshot, count: int, **changes: Any) -> list[int]:
    """How many unloads each of ``count`` equal rounds answers."""
    memory, found = Memory(), []
    for _ in range(count):
        decision = ask(seen, memory, **changes)
        memory = decision.memory
        found.append(len(decision.unloads))
    return found


def broker(cpu: float, rate: float, bundles: int = 0, first: int = 0) -> LoadReport:
    """A broker of AvgShedderTest: totals are given, each bundle carries 450 msg/s in and out."""
    found = {bundle(first + number): stats(450) for number in range(bundles)}
    return report(cpu, found, msg_rate_in=rate, msg_rate_out=rate)


def three() -> Snapshot:
    """The three brokers of AvgShedderTest: 80, 50 and 30 points."""
    return snapshot({"b1:80": broker(80, 10_000, 11), "b2:80": broker(30, 1000), "b3:80": broker(50, 5000)})


class TestPulsarsOwnTests:
    """LBT/impl/AvgShedderTest.java as data."""

    def test_a_gap_above_the_high_threshold_fires_at_the_second_hit(self):
        """(20,000 - 2,000) x 0.5 = 9,000 msg/s are ten bundles of 900; the eleventh does not fit."""
        assert [0, 10, 0, 10] == rounds(three(), 4)

    def test_a_gap_above_the_low_threshold_fires_at_its_own_hit_count(self):
        """60 against 40 with a low threshold of 20 and 6 hits."""
        seen = snapshot({"b1:80": broker(60, 10_000, 11), "b2:80": broker(40, 1000), "b3:80": broker(50, 5000)})

        assert [0, 0, 0, 0, 0, 10] == rounds(seen, 6, low_threshold=20, hit_count_low=6)

    def test_two_pairs_each_level_themselves(self):
        """80 with 30 and 75 with 35: the second difference is exactly 40 and counts as high."""
        seen = snapshot(
            {
                "b1:80": broker(80, 10_000, 11),
                "b2:80": broker(30, 1000),
                "b3:80": broker(75, 10_000, 11, first=100),
                "b4:80": broker(35, 1000),
            }
        )
        decision = ask(seen, ask(seen).memory)

        moved = sorted({(unload.source, unload.destination) for unload in decision.unloads})
        assert [("b1:80", "b2:80"), ("b3:80", "b4:80")] == moved
        assert 20 == len(decision.unloads)


@pytest.mark.parametrize(
    ("high", "low", "threshold", "reached"),
    [
        (40, 30, 10, False),
        (50, 40, 10, True),
        (45, 30, 15, False),
        (55, 40, 15, True),
        (60, 20, 40, True),
        (70, 30, 40, False),
        (95, 55, 40, False),
        (75, 35, 40, True),
    ],
)
def test_float32_decides_differences_exactly_at_a_threshold(high: int, low: int, threshold: int, reached: bool):
    """Whole percentages whose difference equals the threshold may come out just below it, as in Pulsar."""
    seen = snapshot({"a:80": broker(high, 10_000, 11), "b:80": broker(low, 0)})

    assert reached == bool(ask(seen, low_threshold=threshold, hit_count_low=1).unloads)


class TestCounters:
    """Hit counts belong to brokers, and only new evidence moves them."""

    def test_a_change_of_partner_keeps_the_count(self):
        """b1 with b2, then b1 with b4: b1's second hit fires."""
        first = snapshot({"b1:80": broker(80, 10_000, 11), "b2:80": broker(30, 1000)})
        second = snapshot({"b1:80": broker(80, 10_000, 11), "b4:80": broker(30, 1000)})

        assert 10 == len(ask(second, ask(first).memory).unloads)

    def test_a_gap_below_the_low_threshold_starts_anew(self):
        """One calm round in between and the count is gone."""
        calm = snapshot({"b1:80": broker(40, 10_000, 11), "b2:80": broker(30, 1000)})
        hot = snapshot({"b1:80": broker(80, 10_000, 11), "b2:80": broker(30, 1000)})
        memory = ask(calm, ask(hot).memory).memory

        assert {} == memory.hits
        assert () == ask(hot, memory).unloads

    def test_a_gap_between_the_thresholds_clears_the_high_count_alone(self):
        """80:30 then 60:40: high hits are gone, low hits go on."""
        wide = snapshot({"b1:80": broker(80, 10_000), "b2:80": broker(30, 1000)})
        narrow = snapshot({"b1:80": broker(60, 10_000), "b2:80": broker(40, 1000)})

        assert Hits(2, 0) == ask(narrow, ask(wide).memory).memory.hits["b1:80"]

    def test_firing_clears_even_when_nothing_is_moved(self):
        """No bundle fits, and still the pair must earn its hits again."""
        seen = snapshot({"b1:80": broker(80, 10_000), "b2:80": broker(30, 1000)})
        fired = ask(seen, Memory({"b1:80": Hits(1, 1), "b2:80": Hits(1, 1)}))

        assert {} == fired.memory.hits
        assert (Reason.NOTHING_FITS,) == tuple(skip.reason for skip in fired.skips)

    def test_without_a_new_sample_a_broker_is_not_counted(self):
        """Polling faster than the brokers sample adds no hits, and does not fire either."""
        seen = three()
        nobody = np.zeros(3, dtype=np.bool_)
        decision = ask(seen, Memory({"b1:80": Hits(9, 9)}), {"counts": nobody})

        assert {"b1:80": Hits(9, 9)} == decision.memory.hits
        assert () == decision.unloads
        assert Reason.NO_NEW_SAMPLE is decision.skips[0].reason

    def test_only_the_broker_with_a_new_sample_is_counted(self):
        """Samples come at different moments: each advances its own broker's counter."""
        fresh = np.array([True, False, False])

        assert {"b1:80": Hits(1, 1)} == ask(three(), permit={"counts": fresh}).memory.hits

    def test_a_hold_stops_counters_one_below_their_limit(self):
        """After a hold one more round is seen before anything moves."""
        memory = Memory()
        for _ in range(5):
            held = ask(three(), memory, {"hold": Reason.IN_BROKER_SHEDDING})
            memory = held.memory
            assert () == held.unloads

        assert Hits(5, 1) == memory.hits["b1:80"]
        assert 10 == len(ask(three(), memory).unloads)

    @pytest.mark.parametrize(("live", "cpu", "fires"), [(True, 90, 2), (True, 89, 8), (False, 90, 8)])
    def test_a_source_at_the_end_of_its_cpu_counts_as_far_apart(self, live: bool, cpu: float, fires: int):
        """Its score cannot rise, however much it has to do: 25 points are as good as 40. Not in stock."""
        seen = snapshot({"b1:80": broker(cpu, 10_000, 11), "b2:80": broker(cpu - 25, 1000, 2, first=20)})
        found = rounds(seen, 9, live=live, hit_count_low=8, hit_count_high=2)
        assert next(at for at, unloads in enumerate(found, 1) if unloads) == fires

    @pytest.mark.parametrize(
        ("live", "ago_seconds", "known", "goes_on"),
        [(True, 60, True, True), (True, 601, True, False), (True, 60, False, False), (False, 60, True, False)],
        ids=["soon", "late", "by reports", "stock"],
    )
    def test_who_gave_lately_goes_on_at_the_first_hit(self, live: bool, ago_seconds: float, known: bool, goes_on: bool):
        """Once the source's CPU of now is known, and within ten minutes."""
        nan = np.full(3, np.nan)
        brokers = three().brokers
        seconds = np.array([30.0, np.nan, np.nan]) if known else nan
        seen = replace(three(), brokers=replace(brokers, live=LiveCpu(brokers, seconds, nan, nan)))
        gave_at = seen.taken_at - ago_seconds
        found = ask(seen, Memory(unloaded_at={"b1:80": gave_at}), live=live, hit_count_high=9)
        assert bool(found.unloads) == goes_on
        assert all(unload.reason.endswith("; follows up on its last moves") for unload in found.unloads)
        kept = {"b1:80": seen.taken_at} if goes_on else {"b1:80": gave_at} if live and ago_seconds < 600 else {}
        assert found.memory.unloaded_at == kept

    @pytest.mark.parametrize(("settled", "goes_on"), [(True, True), (False, False)])
    def test_who_gave_lately_needs_no_new_sample(self, settled: bool, goes_on: bool):
        """Its CPU of now shows what the last moves left, as soon as both have settled."""
        nan, brokers = np.full(3, np.nan), three().brokers
        seen = replace(three(), brokers=replace(brokers, live=LiveCpu(brokers, np.full(3, 30.0), nan, nan)))
        stale = {"counts": np.zeros(3, dtype=np.bool_), "settled": np.array([settled, True, True])}
        gave, never = (
            Memory({"b1:80": Hits(9, 9)}, unloaded_at={"b1:80": seen.taken_at - 60}),
            Memory({"b1:80": Hits(9, 9)}),
        )
        assert bool(ask(seen, gave, stale, live=True).unloads) == goes_on
        assert ask(seen, never, stale, live=True).unloads == ()

    @pytest.mark.parametrize(("settled", "fires"), [(True, True), (False, False)], ids=["settled", "just moved to"])
    def test_a_broker_that_has_joined_lately_is_filled_without_hits(self, settled: bool, fires: bool):
        """That it is empty does not pass: no broker needs a new sample, once both have settled."""
        permit = {
            "joined": frozenset({"b2:80"}),
            "counts": np.zeros(3, dtype=np.bool_),
            "settled": np.array([True, settled, True]),
        }
        found = ask(three(), live=True, hit_count_high=9, permit=permit)
        assert bool(found.unloads) == fires
        assert all(unload.reason.endswith("; its destination has joined lately") for unload in found.unloads)

    def test_nobody_goes_on_once_a_pair_is_close(self):
        """The gap was closed by what went; the next one needs its hits."""
        seen = snapshot({"b1:80": broker(40, 10_000, 11), "b2:80": broker(30, 1000)})
        assert ask(seen, Memory(unloaded_at={"b1:80": seen.taken_at - 60}), live=True).memory.unloaded_at == {}

    def test_a_broker_that_was_touched_holds_its_pair(self):
        """Neither counted nor fired until it has shown two fresh samples."""
        settled = np.array([True, False, True])
        decision = ask(three(), Memory({"b1:80": Hits(9, 9)}), {"settled": settled})

        assert {"b1:80": Hits(9, 9)} == decision.memory.hits
        assert Reason.SETTLING is decision.skips[0].reason

    def test_a_broker_that_is_not_to_be_trusted_stays_out_of_pairing(self):
        """Without b2 the pair is b1 and b3."""
        paired = np.array([0, Reason.FIRST_SAMPLE.code, 0], dtype=np.int8)
        pair = ask(three(), permit={"paired": paired}).comparison.pairs[0]

        assert ("b1:80", "b3:80") == (pair.source, pair.destination)


class TestHowMuch:
    """Amounts, measures and candidates."""

    def moved(self, seen: Snapshot, **changes: Any) -> set[str]:
        """Names of what one eager round moves."""
        return {unload.bundle for unload in ask(seen, hit_count_high=1, **changes).unloads}

    def test_the_largest_that_fits_goes_first_without_backtracking(self):
        """9,000 msg/s: 6,000 and 2,500 and 400 fit; 3,000 does not fit any more after 6,000... and is passed over."""
        sizes = {bundle(1): 6000, bundle(2): 3200, bundle(3): 2500, bundle(4): 400}
        seen = snapshot(
            {
                "a:80": report(
                    80, {n: stats(r / 2) for n, r in sizes.items()}, msg_rate_in=10_000, msg_rate_out=10_000
                ),
                "b:80": report(30, {}, msg_rate_in=1000, msg_rate_out=1000),
            }
        )

        assert {bundle(1), bundle(3), bundle(4)} == self.moved(seen)

    def test_bundles_of_equal_traffic_go_by_name(self):
        """Java takes hash order; lbd the first names, however the report lists them."""
        names = [bundle(number) for number in (5, 3, 9, 1)]
        seen = snapshot({"a:80": report(80, {n: stats(1000) for n in names}), "b:80": report(30)})

        assert {bundle(1), bundle(3)} == self.moved(seen)

    def test_a_barred_bundle_is_passed_over_and_keeps_its_reason(self):
        """What may not move is out before the amount is filled."""
        seen = snapshot({"a:80": report(80, {bundle(1): stats(1000), bundle(2): stats(1000)}), "b:80": report(30)})
        decision = ask(seen, permit={"barred": {bundle(1): Reason.COOL_DOWN}}, hit_count_high=1)

        assert [bundle(2)] == [unload.bundle for unload in decision.unloads]
        assert Reason.COOL_DOWN.code == decision.verdicts[seen.bundles.index(bundle(1))]

    def test_too_little_to_move_is_said_with_both_minimums(self):
        """500 msg/s and 50 kB/s are below both minimums."""
        seen = snapshot({"a:80": report(80, {bundle(1): stats(500)}), "b:80": report(30)})
        skip = ask(seen, hit_count_high=1).skips[0]

        assert Reason.BELOW_MINIMUM is skip.reason
        assert "500 msg/s to move, minimum 1,000; 50,000 bytes/s to move, minimum 1,048,576" == skip.detail

    def test_a_hot_broker_with_less_traffic_than_its_partner(self):
        """There is nothing to give: its load is something else."""
        reports = {"a:80": report(80, {bundle(1): stats(100)}), "b:80": report(30, {bundle(2): stats(900)})}
        skip = ask(snapshot(reports), hit_count_high=1).skips[0]

        assert Reason.BELOW_MINIMUM is skip.reason
        assert skip.detail.startswith("a:80 carries no more msg/s than b:80: its load is not its traffic; ")

    def test_bundles_that_may_not_move_are_counted_by_reason(self):
        """All of them are barred, and so there is none to choose from."""
        names = [bundle(1), bundle(2), bundle(3)]
        seen = snapshot({"a:80": report(80, {name: stats(2000) for name in names}), "b:80": report(30)})
        bars = {names[0]: Reason.COOL_DOWN, names[1]: Reason.POLICY_UNKNOWN, names[2]: Reason.POLICY_UNKNOWN}
        skip = ask(seen, permit={"barred": bars}, hit_count_high=1).skips[0]

        assert Reason.NOTHING_FITS is skip.reason
        assert skip.detail == "6,000 msg/s to move; none of 3 bundles may move: 1 cool-down, 2 policy-unknown"

    def test_what_others_left_no_room_for_is_not_too_large(self):
        """1,500 msg/s wanted, bundles of 2,000, 1,000 and 1,000: too large, taken, and not needed any more."""
        sizes = {bundle(1): stats(1000), bundle(2): stats(500), bundle(3): stats(500)}
        seen = snapshot({"a:80": report(80, sizes), "b:80": report(30, {bundle(9): stats(500)})})
        verdicts = ask(seen, hit_count_high=1).verdicts
        told = [Reason.of(int(verdicts[seen.bundles.index(name)])) for name in sizes]

        assert told == [Reason.TOO_LARGE, Reason.MOVES, Reason.NOT_NEEDED]

    def test_a_listed_bundle_without_statistics_is_no_candidate(self):
        """``bundles`` can run ahead of ``lastStats``."""
        seen = snapshot(
            {"a:80": report(80, {bundle(1): stats(2000)}, bundles=[bundle(1), bundle(2)]), "b:80": report(9)}
        )
        decision = ask(seen, hit_count_high=1)

        assert Reason.NO_STATISTICS.code == decision.verdicts[seen.bundles.index(bundle(2))]


class TestLive:
    """The points in which live differs from stock, each both ways."""

    def sole(self) -> Snapshot:
        return snapshot({"a:80": report(80, {bundle(1): stats(3000)}, msg_rate_in=9000), "b:80": report(30)})

    @pytest.mark.parametrize(("live", "moves"), [(True, 0), (False, 1)])
    def test_a_sole_bundle(self, live: bool, moves: int):
        """Its move would only carry the hot spot over."""
        decision = ask(self.sole(), live=live, hit_count_high=1)

        assert moves == len(decision.unloads)
        if not moves:
            assert Reason.SOLE_BUNDLE is decision.skips[0].reason

    @pytest.mark.parametrize(("live", "moved"), [(True, bundle(1)), (False, bundle(2))])
    def test_what_is_moved_is_judged_by_the_resource_that_makes_the_score(self, live: bool, moved: str):
        """A broker whose NIC is full is relieved of bytes, not of small messages."""
        from lbd.observe.parse import Usage

        bundles = {bundle(1): stats(10, 4e6), bundle(2): stats(1500, 1e5), bundle(3): stats(1500, 8e6)}
        seen = snapshot(
            {
                "a:80": report(20, bundles, bandwidth_in=Usage(80.0, 100.0)),
                "b:80": report(10, {}, bandwidth_in=Usage(5.0, 100.0)),
            }
        )
        decision = ask(seen, live=live, hit_count_high=1)

        assert moved == decision.unloads[0].bundle

    @pytest.mark.parametrize(("live", "moves"), [(True, 0), (False, 1)])
    def test_a_gap_that_no_move_can_close(self, live: bool, moves: int):
        """The hot broker carries little more than the cold one: its 90 points are a burner's, not its bundles'."""
        hot = {bundle(1): stats(1500), bundle(2): stats(1500), bundle(3): stats(200)}
        cold = {bundle(9): stats(2000)}
        seen = snapshot({"a:80": report(90, hot), "b:80": report(20, cold)})
        decision = ask(seen, live=live, hit_count_high=1, min_unload_message=100)

        assert moves == len(decision.unloads)
        if not moves:
            assert Reason.BACKGROUND_LOAD is decision.skips[0].reason

    def test_background_load_is_named_while_it_lasts(self):
        """Not only when the counters have run up: whoever looks between two samples reads why nothing will move."""
        hot = {bundle(1): stats(1500), bundle(2): stats(1500), bundle(3): stats(200)}
        seen = snapshot({"a:80": report(90, hot), "b:80": report(20, {bundle(9): stats(2000)})})
        decision = ask(seen, live=True, hit_count_high=3, hit_count_low=9, min_unload_message=100)

        assert [Reason.BACKGROUND_LOAD] == [skip.reason for skip in decision.skips]
        assert "a:80" in decision.memory.hits

    def test_a_gap_that_comes_from_traffic_is_closed(self):
        """Three quarters of the traffic on one of like machines is no background load."""
        hot = {bundle(number): stats(100) for number in range(24)}
        seen = snapshot(
            {
                "a:80": report(57, hot),
                "b:80": report(27, {bundle(100): stats(400)}),
                "c:80": report(27, {bundle(101): stats(400)}),
            }
        )

        assert ask(seen, live=True, hit_count_low=1).unloads

    def test_a_new_empty_broker_is_filled(self):
        """A destination without traffic is taken to cost what the source does."""
        hot = {bundle(number): stats(100) for number in range(24)}
        seen = snapshot({"a:80": report(55, hot), "b:80": report(4)})

        assert ask(seen, live=True, hit_count_high=1).unloads


@pytest.mark.parametrize(("live", "points", "bundles"), [(True, 1, 10), (True, 5, 8), (True, 100, 6), (False, 5, 10)])
def test_what_would_be_left_is_not_worth_another_bundle(
    live: bool, points: float, bundles: int, monkeypatch: pytest.MonkeyPatch
):
    """9,000 msg/s are 25 points: with 5 to spare eight bundles of 900 will do, with more to spare six, for no more than
    two fifths are left; stock goes on.
    """
    monkeypatch.setattr(whole_plan, "NEGLIGIBLE_POINTS", points)
    chosen = ask(three(), hit_count_high=1, live=live)

    assert len(chosen.unloads) == bundles


@pytest.mark.parametrize(("live", "wanted"), [(True, 12_222), (False, 20_000)])
def test_a_source_at_the_end_of_its_cpu_does_not_tell_what_traffic_costs(live: bool, wanted: float):
    """It shows 100 points for what makes 120 elsewhere: by these the destination is filled to the average of 36.7."""
    busy = {"b1:80": broker(100, 20_000, 20), "b2:80": broker(60, 10_000), "b3:80": broker(60, 10_000)}
    seen = snapshot(busy | {f"b{at}:80": broker(0, 0) for at in (4, 5, 6)})
    first = ask(seen, hit_count_high=1, live=live).comparison.pairs[0]

    assert (first.source, first.wanted) == ("b1:80", pytest.approx(wanted, abs=1))


def test_the_absurd_traffic_of_another_broker_does_not_tell_what_traffic_costs():
    """Nor does it warn: that broker takes no part."""
    reports = {"b1:80": broker(80, 10_000, 11), "b2:80": broker(30, 1000), "b3:80": broker(50, 1e308)}
    doubted = {"paired": np.array([0, 0, Reason.IMPOSSIBLE_NUMBER.code], dtype=np.int8)}
    first = ask(snapshot(reports), permit=doubted, hit_count_high=1, live=True).comparison.pairs[0]

    assert (first.source, first.wanted) == ("b1:80", 9000)


def test_the_absurd_traffic_of_both_brokers_moves_nothing():
    """Infinite minus infinite is no number, and no warning."""
    endless = {at: {bundle(at): stats(float("inf"))} for at in (1, 2)}
    seen = snapshot({"hot:80": report(80, endless[1]), "cold:80": report(20, endless[2])})
    assert ask(seen, **FIRES).unloads == ()


def test_scores_less_than_a_point_apart_are_not_equal():
    """50.9 is above 50.1; the integer comparator of Pulsar before 4.0.8 ordered them by name."""
    seen = snapshot({"a:80": report(50.9), "b:80": report(50.1), "c:80": report(10), "d:80": report(11)})
    pair = ask(seen).comparison.pairs[0]

    assert ("a:80", "c:80") == (pair.source, pair.destination)


def test_fewer_than_two_brokers_ask_nobody():
    """Counters stay as they were."""
    memory = Memory({"x:80": Hits(3, 0)})
    decision = ask(snapshot({"a:80": report(80)}), memory)

    assert memory == decision.memory
    assert Reason.TOO_FEW_BROKERS is decision.skips[0].reason


def hot(*rates: float) -> Snapshot:
    """A hot broker whose bundles carry so many msg/s, in and out, and three cold ones of 10 points."""
    own = {bundle(at): stats(rate) for at, rate in enumerate(rates)}
    return snapshot(
        {"hot:80": report(10 + sum(rates) / 100, own), **{f"cold{at}:80": report(10, {}) for at in (1, 2, 3)}}
    )


FIRES: dict[str, Any] = {"hit_count_high": 1, "hit_count_low": 1, "min_unload_message": 0}


@pytest.mark.parametrize(
    ("live", "moves"),
    [(True, {"cold1:80": 1900.0, "cold2:80": 1900.0, "cold3:80": 1700.0}), (False, {"cold1:80": 3800.0})],
    ids=["live", "stock"],
)
def test_what_is_too_much_for_one_destination_goes_to_the_next_colder_ones(live: bool, moves: dict[str, float]):
    """One plan for the whole imbalance: of 76 points above the others each takes what lifts it to the average."""
    seen = hot(*[100.0] * 76)
    found = ask(seen, live=live, **FIRES)
    given = {end: sum(one.msg_rate for one in found.unloads if one.destination == end) / 2 for end in moves}
    assert given == pytest.approx(moves, abs=300)
    assert sum(given.values()) == pytest.approx(sum(one.msg_rate for one in found.unloads) / 2)


@pytest.mark.parametrize(("live", "rates"), [(True, [2500.0]), (False, [2700.0])], ids=["live", "stock"])
def test_where_no_bundle_is_small_enough_for_the_average_the_smallest_goes(live: bool, rates: list[float]):
    """Else a hot broker would stay hot for good; stock takes the largest that fits into half of the difference."""
    found = ask(hot(2700.0, 2600.0, 2500.0), live=live, max_unload_percentage=0.35, **FIRES)
    assert [one.msg_rate / 2 for one in found.unloads if one.destination == "cold1:80"] == rates


def test_a_bundle_that_grew_counts_for_what_it_carries_now():
    """By its mean of ten samples it fits into half of the difference, and would make its destination the hot one."""
    seen = snapshot({"hot:80": report(80, {bundle(1): stats(6000), bundle(2): stats(2000)}), "cold:80": report(20)})
    calm = snapshot({"hot:80": report(40, {bundle(1): stats(3000), bundle(2): stats(1000)}), "cold:80": report(20)})
    strategy = build(AvgShedderSettings(**FIRES), Weights())
    found = strategy(seen, first_averages(calm), permission(seen), Memory())
    assert [(one.bundle, one.msg_rate) for one in found.unloads] == [(bundle(2), 4000.0)]


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, LoadReport]:
    """Random clusters with odd numbers among them."""
    number = st.floats(0, 5000) | st.sampled_from([0.0, float("nan"), float("inf"), 1e-300])
    count = draw(st.integers(2, 7))
    reports: dict[str, LoadReport] = {}
    for at in range(count):
        rates = draw(st.lists(number, max_size=6))
        found = {bundle(at * 8 + n): stats(rate) for n, rate in enumerate(rates)}
        reports[f"b{at}:80"] = report(draw(st.floats(0, 120) | st.just(float("nan"))), found)
    return reports


@settings(max_examples=200)
@given(reports=clusters(), live=st.booleans(), share=st.floats(0, 1))
def test_invariants_of_every_decision(reports: dict[str, LoadReport], live: bool, share: float):
    """Each bundle at most once, from its own broker, to what takes from no other one, and every silence explained.

    That is in stock the pair's other end.
    """
    seen = snapshot(reports)
    decision = ask(
        seen,
        live=live,
        hit_count_low=1,
        hit_count_high=1,
        max_unload_percentage=share,
        min_unload_message=0,
        min_unload_message_throughput=0,
    )

    names = [unload.bundle for unload in decision.unloads]
    assert len(names) == len(set(names))
    ends = {pair.source: pair.destination for pair in decision.comparison.pairs}
    for unload in decision.unloads:
        assert unload.bundle in reports[unload.source].last_stats
        assert live or unload.destination in (unload.choices or (ends[unload.source],))
    moves = {(unload.source, unload.destination) for unload in decision.unloads if not unload.choices}
    sources, destinations = ({move[end] for move in moves} for end in (0, 1))
    assert len(destinations) == len(moves)
    assert not sources & destinations
    quiet = {pair.source for pair in decision.comparison.pairs} - {unload.source for unload in decision.unloads}
    assert len(quiet) <= len(decision.skips)
    moved = [name for name, code in zip(seen.bundles, decision.verdicts, strict=True) if code == Reason.MOVES.code]
    assert sorted(names) == sorted(moved)


@pytest.mark.parametrize("live", [True, False], ids=["live", "stock"])
@pytest.mark.parametrize("odd", [Usage(50.0, -1.0), Usage(float("nan"), 100.0)], ids=["unknown limit", "NaN"])
def test_a_planned_destination_is_not_replaced_by_a_broker_that_is_not_known(odd: Usage, live: bool):
    """5.0 re-plans an overloaded destination among healthy brokers: one out of pairing or not settled is none."""
    reports = {
        "hot1:80": broker(100, 10_000, 3),
        "hot2:80": broker(99, 10_000, 3, first=16),
        "hot3:80": broker(98, 10_000, 3, first=32),
        "full:80": broker(90, 1000),
        "new:80": broker(30, 1000),
        "cold:80": broker(20, 1000),
        "unknown:80": report(odd),
    }
    seen = snapshot(reports)
    paired, settled = np.zeros(7, dtype=np.int8), np.ones(7, dtype=np.bool_)
    paired[seen.brokers.ids.index("unknown:80")] = Reason.UNKNOWN_RESOURCES.code
    settled[seen.brokers.ids.index("new:80")] = False
    eager = {"low_threshold": 5, "hit_count_low": 1, "hit_count_high": 1}
    decision = ask(seen, permit={"paired": paired, "settled": settled}, live=live, **eager)
    planned = {pair.source: pair.destination for pair in decision.comparison.pairs if pair.fired}
    moved = {(unload.destination, unload.choices) for unload in decision.unloads if unload.source == "hot3:80"}

    assert "full:80" == planned["hot3:80"]
    assert {("cold:80", ("cold:80",))} == moved


def test_without_a_known_healthy_broker_the_planned_destination_stays():
    """Then the guardrails refuse it; a broker of which nothing is known is not taken instead."""
    seen = snapshot({"a:80": broker(100, 10_000, 3), "b:80": broker(90, 1000), "c:80": report(Usage(1.0, -1.0))})
    paired = np.array([0, 0, Reason.UNKNOWN_RESOURCES.code], dtype=np.int8)
    decision = ask(seen, permit={"paired": paired}, low_threshold=5, hit_count_low=1)

    assert {"b:80"} == {unload.destination for unload in decision.unloads}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ("msg_rate", 9000.0, True)),
        ({"max_unload_percentage": 0.2}, ("msg_rate", 3600.0, True)),
        ({"min_unload_message": 10_000}, ("throughput", 450 * 22 * 100 / 2, True)),
        ({"min_unload_message": 10_000, "min_unload_message_throughput": 1e9}, ("msg_rate", 9000.0, True)),
        ({"hit_count_high": 2}, ("", 0.0, False)),
    ],
    ids=["messages", "a fifth", "bytes, as the messages are too few", "below both minimums", "not yet"],
)
def test_a_pair_that_fired_tells_how_much_was_wanted(changes: dict[str, Any], told: tuple[str, float, bool]):
    """In the measure that was chosen, whether or not it was enough; of others nothing was wanted."""
    pair = ask(three(), **{"hit_count_high": 1, "min_unload_message_throughput": 1, **changes}).comparison.pairs[0]
    assert (pair.measure, pair.wanted, pair.fired) == told
