"""What moves told of the brokers that gave and took, beside what else happened to them."""

from __future__ import annotations

import numpy as np
import pytest

from lbd.load.effects import effect
from lbd.load.samples import BrokerSamples, Gathering
from lbd.model import BYTES_IN
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

A = "a:80"


def samples(*told: tuple[float, float, int]) -> BrokerSamples:
    """A broker's samples, a minute apart: CPU, bytes/s, and how many came since its bundles changed."""
    used, carried = (np.zeros((len(told), columns)) for columns in (5, 4))
    used[:, 0], carried[:, BYTES_IN] = [one[0] for one in told], [one[1] for one in told]
    since = np.array([one[2] for one in told], dtype=np.int32)
    return BrokerSamples(60.0 * np.arange(len(told)), carried, used, since, (1.0,) * 5)


TABLE = [
    pytest.param([(60, 100, 8), (60, 100, 9), (58, 70, 0), (45, 50, 1)], 0.3, 0.049, id="a-broker-that-gave"),
    pytest.param([(74, 100, 8), (74, 100, 9), (70, 70, 0), (59, 50, 1)], 0.3, 0.049, id="a-rather-busy-one"),
    pytest.param([(30, 50, 8), (30, 50, 9), (39, 90, 0), (50, 100, 1)], 0.4, 0.049, id="one-that-took"),
    pytest.param([(60, 100, 8), (59, 80, 0), (54, 80, 1), (50, 60, 0), (48, 60, 1)], 0.3, 0.1, id="two-moves"),
    pytest.param([(48, 60, 8), (49, 60, 0), (54, 80, 1), (57, 80, 0), (60, 100, 1)], 0.3, 0.1, id="it-took-twice"),
    pytest.param([(40, 60, 8), (46, 80, 0), (46, 80, 1), (36, 40, 0), (34, 40, 1)], 0.3, 0.063, id="it-took-and-gave"),
    pytest.param(
        [(30, 40, 8), (30, 40, 9), (57, 40, 10), (57, 40, 11), (58, 40, 0), (61, 60, 1)], 0.2, 0.122,
        id="a-neighbour-came-before-it-took",
    ),
    pytest.param(
        [(30, 60, 8), (30, 60, 9), (61, 60, 10), (61, 60, 11), (60, 60, 0), (57, 40, 1)], 0.2, 0.122,
        id="a-neighbour-came-before-it-gave",
    ),
    pytest.param(
        [(85, 50, 8), (74, 50, 9), (74, 60, 0), (75, 70, 1)], 0.05, 0.402, id="its-usage-fell-before-it-took"
    ),
    pytest.param([(58, 50, 8), (58, 50, 9), (71, 60, 0), (71, 70, 1), (60, 70, 2)], 0.65, 0.395, id="or-after-it-took"),
    pytest.param([(72, 70, 8), (61, 70, 9), (59, 60, 0), (60, 50, 1)], 0.05, 0.402, id="before-it-gave"),
    pytest.param([(60, 70, 8), (60, 70, 9), (58, 60, 0), (58, 50, 1), (47, 50, 2)], 0.1, 0.395, id="or-after-it-gave"),
    pytest.param([(30, 40, 8), (57, 40, 9), (58, 40, 0), (61, 60, 1)], 0.2, 0.141, id="a-neighbour-just-came-took"),
    pytest.param([(30, 60, 8), (61, 60, 9), (60, 60, 0), (57, 40, 1)], 0.2, 0.141, id="a-neighbour-just-came-gave"),
]  # fmt: skip


@pytest.mark.parametrize(("told", "slope", "deviation"), TABLE)
def test_points_beside_traffic_before_and_after(told: list[tuple[float, float, int]], slope: float, deviation: float):
    """The samples around each change of bundles count, as far as they show the same; a sample is two points off."""
    found = effect(samples(*told), "throughput")

    assert found.slope == pytest.approx(slope)
    assert found.deviation == pytest.approx(deviation, abs=0.002)


def test_a_bundle_that_left_and_is_still_listed_has_left():
    """As a 4.0.8 broker with a neighbour told it, ten points lower: three of six bundles left, and none went from its
    list at first.
    """
    told = [(57.6, 258, 100), (71.4, 255, 101), (52.1, 121, 102), (54.6, 127, 103)]

    assert effect(samples(*told), "throughput").slope == pytest.approx((53.35 - 71.4) / (124 - 255))


def test_traffic_that_comes_with_no_bundle_tells_as_much():
    """A jump of the traffic counts, be the bundles the same."""
    told = [(64.6, 127, 100), (62.1, 121, 101), (81.4, 255, 102), (67.6, 258, 103)]

    assert effect(samples(*told), "throughput").slope == pytest.approx((81.4 - 63.35) / (255 - 124))


NOTHING = [
    pytest.param([(60, 100, 8), (50, 90, 9)], id="nothing-left"),
    pytest.param([(60, 100, 8), (50, 50, 0)], id="what-left-is-not-told-yet"),
    pytest.param([(60, 100, 8), (55, 98, 0), (50, 98, 1)], id="hardly-anything-left"),
    pytest.param([(100, 100, 8), (100, 60, 0), (100, 60, 1)], id="it-gave-at-its-limit"),
    pytest.param([(100, 100, 8), (95, 60, 0), (90, 60, 1)], id="at-its-limit-before-it-gave"),
    pytest.param([(87, 70, 8), (76, 70, 9), (74, 60, 0), (75, 50, 1)], id="it-gave-while-it-warmed-up-above-75"),
    pytest.param([(60, 100, 8), (70, 110, 9)], id="nothing-came"),
    pytest.param([(60, 50, 8), (70, 100, 0)], id="what-came-is-not-told-yet"),
    pytest.param([(60, 98, 8), (65, 100, 0), (70, 100, 1)], id="hardly-anything-came"),
    pytest.param([(100, 60, 8), (100, 100, 0), (100, 100, 1)], id="it-took-at-its-limit"),
    pytest.param([(90, 60, 8), (95, 100, 0), (100, 100, 1)], id="at-its-limit-with-it"),
    pytest.param([(80, 352, 8), (80, 319, 9), (82, 211, 0), (75, 224, 1)], id="a-busy-one-that-gave"),
    pytest.param([], id="no-sample"),
]


@pytest.mark.parametrize("told", NOTHING)
def test_nothing_is_told_without_a_move_or_by_brokers_that_are_too_busy(told: list[tuple[float, float, int]]):
    """One that can do no more shows nothing of what it takes or gives, and a busy one that gave too little (4.0.8)."""
    assert effect(samples(*told), "throughput").deviation == np.inf


def test_a_sample_that_waits_for_its_traffic_stands_beside_the_latest_count():
    """The plan is made as soon as it shows, and must know what the last one did."""
    gathering = Gathering()
    rounds = [(0, 60, 4), (60, 61, 4), (120, 60, 4), (180, 55, 2), (240, 42, 2), (255, 40, 2)]
    for second, cpu, bundles in rounds:
        own = {bundle(at): stats(100, 1000) for at in range(bundles)}
        gathering.take(snapshot({A: report(cpu, own)}, TAKEN_AT + second))
    kept, shown = gathering.samples()[A], gathering.with_waiting(A)

    assert shown is not None
    assert shown.at.size > kept.at.size
    assert shown.used[-1, 0] == pytest.approx(40)
    assert shown.carried[-1, BYTES_IN] == pytest.approx(2000)
    assert gathering.with_waiting("b:80") is None
