"""ThresholdShedder, rule by rule."""

from __future__ import annotations

import pytest

from lbd.model import Memory, UsualLoad
from lbd.observe.parse import Usage
from lbd.reason import Reason
from tests.builders import bundle, permission, report, snapshot, stats
from tests.decide.asking import MIB, ask, broker, cluster, sheds, taken

NAME = "threshold-shedder"
ONE_TO_TEN = tuple(float(size) for size in range(1, 11))
LEVEL = {"history_resource_percentage": 0.0}


def by_bandwidth(used: float, sizes: tuple[float, ...], first: int = 0):
    """A broker of ThresholdShedderTest: bandwidth of a thousand, bundles of so many MiB/s each way."""
    found = {bundle(first + at): stats(size, size * MIB) for at, size in enumerate(sizes)}
    return report(0.0, found, bandwidth_in=Usage(used, 1000.0), bandwidth_out=Usage(used, 1000.0))


class TestPulsarsOwnTests:
    """LBT/impl/ThresholdShedderTest.java as data."""

    def test_the_largest_go_until_the_need_is_met(self):
        """(0.999 - 0.4995 - 0.1 + 0.05) x 110 MiB/s = 49.4 MiB/s: bundles of 20, 18 and 16."""
        seen = cluster(by_bandwidth(999, ONE_TO_TEN), by_bandwidth(0, (0.0,) * 10, first=100))

        assert [("a", 9), ("a", 8), ("a", 7)] == taken(ask(NAME, seen))

    def test_what_was_unloaded_lately_stays(self):
        """Without the two largest, the next four make up 52 MiB/s."""
        seen = cluster(by_bandwidth(999, ONE_TO_TEN), by_bandwidth(0, (0.0,) * 10, first=100))
        barred = {bundle(9): Reason.COOL_DOWN, bundle(8): Reason.COOL_DOWN}

        assert [("a", 7), ("a", 6), ("a", 5), ("a", 4)] == taken(ask(NAME, seen, permit={"barred": barred}))

    @pytest.mark.parametrize("bundles", [0, 1])
    def test_a_broker_with_one_bundle_keeps_it(self, bundles: int):
        """However loaded it is."""
        found = ask(NAME, cluster(by_bandwidth(999, ONE_TO_TEN[:bundles]), by_bandwidth(500, (), first=50)))

        assert [] == taken(found)
        assert found.skips

    @pytest.mark.parametrize(("lower", "moves"), [(False, False), (True, True)])
    def test_ten_level_brokers_and_an_empty_one(self, lower: bool, moves: bool):
        """Ten at 80 are not 10 points above the average of 72.7; the lower boundary sees the one at 0."""
        full = [broker(80, (10.0,) * 10, first=10 * at) for at in range(10)]
        found = ask(NAME, cluster(*full, broker(0)), lower_boundary_shedding_enabled=lower)

        assert moves == bool(found.unloads)
        assert len({unload.source for unload in found.unloads}) <= 1

    def test_level_brokers_are_left_alone_by_the_lower_boundary(self):
        """Eleven at 80."""
        seen = cluster(*(broker(80, (8.0,) * 10, first=10 * at) for at in range(11)))

        assert [] == taken(ask(NAME, seen, lower_boundary_shedding_enabled=True))

    def test_the_lower_boundary_takes_the_highest_that_has_bundles_to_give(self):
        """All but broker d have none or one: d gives one bundle, and one only."""
        others = [broker(80, (10.0,), first=20 + at) for at in range(9)]
        brokers = [*others[:3], broker(80, (10.0,) * 10), *others[3:], broker(0)]

        assert ["d"] == [
            source for source, _ in taken(ask(NAME, cluster(*brokers), lower_boundary_shedding_enabled=True))
        ]

    def test_averages_of_brokers_that_are_gone_are_forgotten(self):
        """As Pulsar's active-brokers callback does."""
        memory = Memory(loads={"gone:80": UsualLoad(0.9), "a:80": UsualLoad(0.5)})
        found = ask(NAME, cluster(broker(50), broker(50)), memory)

        assert {"a:80", "b:80"} == set(found.memory.loads)


class TestPublishedNumbers:
    """The worked examples of the AvgShedder author's book, chapter on ThresholdShedder, and of PIP-364."""

    def test_history_weighs_nine_parts_of_ten(self):
        """Published: "80*0.9 + 50*0.1 = 77": a broker at 50 % is scored 77."""
        found = ask(NAME, cluster(broker(50), broker(50)), Memory(loads={"a:80": UsualLoad(0.8)}))

        assert pytest.approx(0.77) == found.memory.loads["a:80"].usage

    def test_how_much_is_to_go(self):
        """Published: "(0.8 - 0.6 - 0.1 + 0.05) * 10 = 1.5GB" of 10 GB at 80 %, where 60 % is average."""
        sizes = tuple(1e9 / MIB for _ in range(5))
        found = ask(NAME, cluster(broker(80, sizes), broker(40)))

        (pair,) = found.comparison.pairs
        assert pytest.approx(1.5e9, rel=1e-6) == pair.wanted
        assert "smoothed 80.0 points, average 60.0" == pair.why

    def test_a_broker_ten_points_above_the_average_is_not_seen_where_all_but_one_are(self):
        """Published: "(80*10 + 5) / 11 = 73.18 ... Since 80 < 83.18, unloading will not be triggered"."""
        found = ask(NAME, cluster(*(broker(80, (20.0,) * 5, first=5 * at) for at in range(10)), broker(5)))

        assert [] == taken(found)
        assert "highest 80.0 points, average 73.2, both smoothed" == found.skips[0].detail

    def test_levelled_brokers_still_look_apart(self):
        """PIP-364, over unloading: 90 and 10 are levelled at 50, are scored 86 and 14, and bundles move on."""
        before = ask(NAME, cluster(broker(90), broker(10)))
        second = ask(NAME, cluster(broker(50, (50.0,) * 4), broker(50)), before.memory)

        loads = second.memory.loads
        assert (pytest.approx(0.86), pytest.approx(0.14)) == (loads["a:80"].usage, loads["b:80"].usage)
        assert {"a"} == {source for source, _ in taken(second)}

    def test_a_broker_below_an_alien_load_gets_no_help(self):
        """PIP-364, heterogeneous: 10, 50 and 70: "43.33+10>50", and the one at 70 has no traffic to give."""
        found = ask(NAME, cluster(broker(10, (5.0,) * 5), broker(50, (50.0,) * 5, first=10), broker(70)))

        assert [] == taken(found)
        assert [("c:80", Reason.BELOW_MINIMUM)] == [(skip.what, skip.reason) for skip in found.skips]


class TestLive:
    """Where a live turn differs from a leader's round."""

    def test_one_sample_counts_once(self):
        """Without new evidence the average stays where it is, and nothing moves."""
        seen, memory = (
            cluster(broker(90, (50.0,) * 4), broker(10)),
            Memory(loads={"a:80": UsualLoad(0.8), "b:80": UsualLoad(0.1)}),
        )
        old = permission(seen).counts & False
        found = ask(NAME, seen, memory, live=True, permit={"counts": old})

        assert memory.loads == found.memory.loads
        assert [Reason.NO_NEW_SAMPLE] == [skip.reason for skip in found.skips]
        assert [False] == [pair.fired for pair in found.comparison.pairs]

    def test_a_broker_that_was_touched_waits(self):
        """Until its samples show the truth again."""
        seen = cluster(broker(90, (50.0,) * 4), broker(10))
        found = ask(NAME, seen, live=True, permit={"settled": permission(seen).settled & False})

        assert [Reason.SETTLING] == [skip.reason for skip in found.skips]

    @pytest.mark.parametrize(("live", "moves"), [(True, []), (False, [("a", 1)])])
    def test_a_heartbeat_bundle_is_no_bundle(self, live: bool, moves: list[tuple[str, int]]):
        """Pulsar counts it, and moves the only real one beside it."""
        heartbeat = "pulsar/a:80/0x00000000_0xffffffff"
        one = report(90, {bundle(1): stats(100, 100 * MIB), heartbeat: stats(1, 1)})
        seen = snapshot({"a:80": one, "b:80": report(10)})
        found = ask(NAME, seen, live=live, permit={"barred": {heartbeat: Reason.BROKER_BUNDLE}})

        assert moves == taken(found)
        assert live == any(skip.reason is Reason.SOLE_BUNDLE for skip in found.skips)

    @pytest.mark.parametrize(("live", "number"), [(True, 0), (False, 1)])
    def test_idle_bundles_stay(self, live: bool, number: int):
        """Where no minimum is set Pulsar takes a bundle without traffic when there is no other."""
        seen = cluster(broker(90, (0.0, 0.0)), broker(10))
        found = ask(NAME, seen, live=live, bundle_unload_min_throughput_threshold=0)

        assert number == len(found.unloads)


def test_small_amounts_are_left():
    """Below bundle_unload_min_throughput_threshold, 10 MiB/s by default."""
    found = ask(NAME, cluster(broker(90, (1.0,) * 4), broker(10)))

    assert [("a:80", Reason.BELOW_MINIMUM)] == [(skip.what, skip.reason) for skip in found.skips]


def test_the_average_has_to_catch_up():
    """A new load of 90 is seen after some rounds only: 10 points above an average of 50 are reached in the third."""
    calm, hot = cluster(broker(30), broker(30)), cluster(broker(90, (50.0,) * 20), broker(30))

    assert [0, 0, 0, 0] == [bool(number) for number in sheds(NAME, [calm, hot, hot, hot])]
    assert any(sheds(NAME, [calm, *[hot] * 6]))
    assert [0, True] == [bool(number) for number in sheds(NAME, [calm, hot], **LEVEL)]


def test_a_round_without_load_asks_for_nothing():
    """Where the average is 0 there is nothing to compare."""
    assert () == ask(NAME, cluster(broker(0, (5.0,)), broker(0))).unloads
