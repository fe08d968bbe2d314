"""Many steps at once are those steps one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.simulate.cluster import leap, moved, steps_at_once
from lbd.simulate.world import STEP_SECONDS
from tests.simulate.worlds import begun, later

if TYPE_CHECKING:
    from lbd.simulate.world import ClusterState

BROKERS: list[dict[str, Any]] = [
    {"id": "a", "background": 5, "capacity": 2},
    {"id": "b", "bursts": [{"at_minutes": 1, "minutes": 0.4, "points": 40}]},
    {"id": "c", "joins_at_minutes": 3},
]
LOADS: list[dict[str, Any]] = [
    {"name": "n", "mib_per_second": 40, "bundles": 9, "spread": 1, "shape": {"kind": "wave", "amplitude": 0.9}},
    {
        "name": "m",
        "mib_per_second": 90,
        "bundles": 5,
        "fan_out": 3,
        "consumers": {"kind": "on-off", "on_minutes": 0.3, "off_minutes": 0.2},
    },
]


def same(one: ClusterState, other: ClusterState) -> None:
    """Equal but for rounding."""
    assert (one.seconds, one.disturbed) == (other.seconds, other.disturbed)
    assert one.owner.tolist() == other.owner.tolist()
    for name in ("cpu", "busy", "passed"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-6)
    for mine, its in zip(one.counted, other.counted, strict=True):
        assert mine.bundles.tolist() == its.bundles.tolist()
        np.testing.assert_allclose(mine.rates, its.rates, rtol=1e-9, atol=1e-6)


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(0, 1000), st.sampled_from([10, 60, 180]), st.integers(40, 100))
def test_a_leap_is_its_steps(data: st.DataObject, seed: int, stats_interval_seconds: int, begin: int):
    """Whenever it begins and however long it is, also in the middle of a burst or a broker's first minutes."""
    world, state = begun(
        seed, brokers=BROKERS, load=LOADS, noise_points=1, stats_interval_seconds=stats_interval_seconds
    )
    state = later(world, state, begin * STEP_SECONDS)
    for _ in range(3):
        most = steps_at_once(world, state, state.seconds + data.draw(st.integers(STEP_SECONDS, 600)))
        leapt = leap(world, state, most)
        state = later(world, state, most * STEP_SECONDS)
        same(leapt, state)


@pytest.mark.parametrize(("until", "wanted"), [(4, 0), (5, 1), (59, 11), (60, 12), (600, 12)])
def test_at_most_a_minute(until: float, wanted: int):
    """Nobody samples twice in it."""
    assert steps_at_once(*begun(), until) == wanted


def test_at_most_a_stats_interval():
    """Nobody counts twice."""
    assert steps_at_once(*begun(stats_interval_seconds=20), 600) == 4


def test_not_while_something_goes_on():
    """A broker that joins, or a bundle that is not served, is a matter of single steps."""
    world, state = begun(brokers=BROKERS, load=LOADS)
    assert steps_at_once(world, later(world, state, 120), 600) == 0
    assert steps_at_once(world, moved(state, 0, 1, unserved_seconds=2), 600) == 0
