"""UniformLoadShedder, rule by rule."""

from __future__ import annotations

import pytest

from lbd.reason import Reason
from tests.builders import bundle, report, stats
from tests.decide.asking import MIB, ask, cluster, taken

NAME = "uniform-load-shedder"
NO_MINIMUM = {"min_unload_message": 0, "min_unload_message_throughput": 0}


def carrying(messages: float, mib: float, bundles: int = 5, first: int = 0):
    """A broker that carries so many msg/s and MiB/s in and out together, in equal bundles."""
    each = stats(messages / bundles / 2, mib * MIB / bundles / 2) if bundles else None
    return report(50, {bundle(first + at): each for at in range(bundles)} if each else {})


def five() -> list[object]:
    """The five brokers of UniformLoadShedderTest: 50, 60, 70, 10 and 20 thousand msg/s; 50 to 80, and 10 MiB/s."""
    traffic = [(50e3, 50), (60e3, 60), (70e3, 70), (10e3, 80), (20e3, 10)]
    return [carrying(*one, first=10 * at) for at, one in enumerate(traffic)]


class TestPulsarsOwnTests:
    """LBT/impl/UniformLoadShedderTest.java as data, brokers 0 to 4 as a to e."""

    @pytest.mark.parametrize(
        ("rate", "times", "source"), [(50, 0, "c"), (0, 2, "d"), (50, 2, "c")], ids=["messages", "bytes", "both"]
    )
    def test_messages_come_before_bytes(self, rate: float, times: float, source: str):
        """A threshold of 0 switches its test off."""
        found = ask(
            NAME,
            cluster(*five()),
            msg_rate_difference_shedder_threshold=rate,
            msg_throughput_multiplier_difference_shedder_threshold=times,
            max_unload_bundle_num_per_shedding=1,
        )

        assert [source] == [one for one, _ in taken(found)]

    def test_a_cap_on_bundles(self):
        """Twenty bundles beside an empty broker: two, where no more are allowed."""
        seen = cluster(carrying(4000, 40, bundles=20), carrying(0, 0, bundles=0))

        assert 2 == len(ask(NAME, seen, max_unload_bundle_num_per_shedding=2, **NO_MINIMUM).unloads)

    @pytest.mark.parametrize("settings", [{}, {"msg_rate_difference_shedder_threshold": 0}], ids=["messages", "bytes"])
    def test_half_of_the_difference_goes(self, settings: dict[str, float]):
        """Five equal bundles: two, since three would be more than half."""
        found = ask(NAME, cluster(carrying(500, 0.01), carrying(0, 0, bundles=0)), **NO_MINIMUM, **settings)

        assert 2 == len(found.unloads)


class TestPublished:
    """PIP-364's numbers."""

    @pytest.mark.parametrize(("least", "moves"), [(30, True), (33.33, True), (33.34, False)])
    def test_half_as_much_again(self, least: float, moves: bool):
        """Published: "(50-30)/30=66%>50%"; the threshold itself is not enough."""
        seen = cluster(carrying(50e3, 5, bundles=10), carrying(least * 1000, 5, first=10))

        assert moves == bool(ask(NAME, seen).unloads)

    @pytest.mark.parametrize(("least", "moves"), [(100, True), (112.5, False)])
    def test_four_times_the_bytes(self, least: float, moves: bool):
        """Published: "450/100=4.5>4 times"; exactly four times is not enough."""
        found = ask(NAME, cluster(carrying(100, 450), carrying(100, least, first=10)))

        assert moves == bool(found.unloads)

    def test_the_idle_one_of_unequal_machines_is_relieved(self):
        """CPU is not looked at: "likely to misjudge high and low load brokers"."""
        small = report(95, {bundle(0): stats(1000), bundle(1): stats(1000)})
        large = report(20, {bundle(10 + at): stats(1000) for at in range(6)})

        assert {"b"} == {source for source, _ in taken(ask(NAME, cluster(small, large)))}


def test_minimums_hold():
    """Half of the difference is 500 msg/s, the minimum 1,000."""
    found = ask(NAME, cluster(carrying(1000, 1), carrying(0, 0, bundles=0)))

    assert [("a:80", Reason.BELOW_MINIMUM)] == [(skip.what, skip.reason) for skip in found.skips]


def test_bundles_larger_than_what_is_left_are_passed_over():
    """Bundles of 600 and 100 where 500 are to go: the five small ones, of seven."""
    found = {bundle(0): stats(300), **{bundle(1 + at): stats(50) for at in range(4)}}
    seen = cluster(report(50, found), report(50))

    assert [("a", 1), ("a", 2), ("a", 3), ("a", 4)] == taken(ask(NAME, seen, **NO_MINIMUM))


def test_what_it_compares_is_told():
    """Both numbers, with their unit."""
    (pair,) = ask(NAME, cluster(carrying(50e3, 5), carrying(30e3, 5, first=10))).comparison.pairs

    assert ("50,000 msg/s against 30,000 where it is least", None) == (pair.why, pair.destination)
