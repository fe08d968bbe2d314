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
    pytest.param([(30, 50, 8), (30, 50, 9), (39, 90, 0), (50, 100, 1)], 0.4, 0.049, id="one-that-took"),
    pytest.param([(60, 100, 8), (59, 80, 0), (54, 80, 1), (50, 60, 0), (48, 60, 1)], 0.3, 0.1, id="two-moves"),
    pytest.param(
        [(30, 60, 8), (30, 60, 9), (61, 60, 10), (61, 60, 11), (60, 60, 0), (57, 40, 1)], 0.2, 0.122,
        id="a-neighbour-came-before-it",
    ),
    pytest.param(
        [(87, 70, 8), (76, 70, 9), (74, 60, 0), (75, 50, 1)], 0.05, 0.405, id="its-usage-fell-before-it"
    ),
    pytest.param([(60, 70, 8), (60, 70, 9), (58, 60, 0), (58, 50, 1), (47, 50, 2)], 0.1, 0.395, id="or-after-it"),
    pytest.param([(30, 60, 8), (61, 60, 9), (60, 60, 0), (57, 40, 1)], 0.2, 0.141, id="a-neighbour-has-just-come"),
    pytest.param(
        [(87, 100, 8), (89, 100, 9), (86, 80, 0), (80, 75, 1)], 0.32, 0.53, id="a-busy-one-that-shows-a-part-of-it"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("told", "slope", "deviation"), TABLE)
def test_points_beside_traffic_before_and_after(told: list[tuple[float, float, int]], slope: float, deviation: float):
    """The samples around each change of bundles count, as far as they show the same; a sample is two points off."""
    found = effect(samples(*told), "throughput")

    assert found.slope == pytest.approx(slope)
    assert found.deviation == pytest.approx(deviation, abs=0.002)


def test_a_bundle_that_left_and_is_still_listed_has_left():
    """As a 4.0.8 broker with a neighbour told it: three of six bundles left, and none went from its list at first."""
    told = [(67.6, 258, 100), (81.4, 255, 101), (62.1, 121, 102), (64.6, 127, 103)]

    assert effect(samples(*told), "throughput").slope == pytest.approx((63.35 - 81.4) / (124 - 255))


NOTHING = [
    pytest.param([(60, 100, 8), (50, 90, 9)], id="nothing-moved"),
    pytest.param([(60, 100, 8), (50, 50, 0)], id="not-told-yet"),
    pytest.param([(60, 100, 8), (55, 98, 0), (50, 98, 1)], id="hardly-anything-moved"),
    pytest.param([(100, 100, 8), (100, 60, 0), (100, 60, 1)], id="at-its-limit"),
    pytest.param([(100, 100, 8), (95, 60, 0), (90, 60, 1)], id="at-its-limit-before"),
    pytest.param([], id="no-sample"),
]


@pytest.mark.parametrize("told", NOTHING)
def test_nothing_is_told_without_a_move_or_at_the_limit(told: list[tuple[float, float, int]]):
    """A broker that had more work than it could do shows nothing of what it was relieved of."""
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
