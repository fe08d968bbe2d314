"""The model: what its brokers carry, and how late their reports are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.errors import UsageError
from lbd.simulate.cluster import FIRST_CPU, moved, noisy, points_at, rates_at, snapshot, step
from lbd.simulate.world import MIB, STEP_SECONDS
from tests.simulate.worlds import begun, later

BURST = {"id": "b", "bursts": [{"at_minutes": 2, "minutes": 0.5, "points": 40}]}


def true_points(seconds: float = 0, **changes: Any) -> list[float]:
    """Points of each broker without noise."""
    world, state = begun(**changes)
    return points_at(world, state.owner, rates_at(world, seconds), seconds).tolist()


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, [60, 0]),
        ({"points_per_mib": 0.5}, [30, 0]),
        ({"points_per_mib": 2}, [100, 0]),
        ({"brokers": [{"id": "a", "background": 20, "capacity": 2}, {"id": "b", "background": 5}]}, [50, 5]),
        ({"brokers": [{"id": "a"}, {"id": "b", "bursts": [{"at_minutes": 0, "points": 30}]}]}, [60, 30]),
        ({"brokers": [{"id": "a"}, {"id": "b", "background": 9, "joins_at_minutes": 1}]}, [60, 0]),
    ],
    ids=["traffic", "slope", "all there is", "background and capacity", "burst", "not there yet"],
)
def test_points(changes: dict[str, Any], wanted: list[float]):
    """Background, and the slope times the traffic for each unit of capacity; 100 at most."""
    assert true_points(**changes) == pytest.approx(wanted)


def test_a_message_counts_half_coming_in_and_half_going_out():
    """Without consumers a bundle costs half, with three of them twice as much."""
    load = {"name": "n", "brokers": ["a"], "mib_per_second": 20, "bundles": 2}
    assert true_points(load=[{**load, "fan_out": 0}])[0] == pytest.approx(10)
    assert true_points(load=[{**load, "fan_out": 3}])[0] == pytest.approx(40)


def test_rates():
    """1,024 messages of 1 KiB are a MiB; the sizes of unequal bundles add up to what was said."""
    load = {"name": "n", "mib_per_second": 8, "bundles": 50, "spread": 1, "message_kib": 0.5, "fan_out": 2}
    world, _ = begun(load=[load])
    found = rates_at(world, 0)
    assert found.sum(axis=0) == pytest.approx([8 * 2048, 16 * 2048, 8 * MIB, 16 * MIB])
    assert found[:, 0].max() > 2 * found[:, 0].min()


def test_a_cpu_sample_is_the_mean_of_the_minute_before():
    """Half a minute of 40 points shows as 20 in all, spread over the samples that it falls in."""
    world, state = begun(brokers=[{"id": "a"}, BURST])
    shown: set[float] = set()
    while state.seconds < 300:
        state = step(world, state)
        shown.add(round(float(state.cpu[1]), 1))
    assert sum(shown) == pytest.approx(20, abs=1)


def test_cpu_is_sampled_once_a_minute():
    """However often one looks, a broker shows six values in six minutes."""
    world, state = begun(noise_points=1)
    shown = [state.cpu[0]]
    for _ in range(360 // STEP_SECONDS):
        state = step(world, state)
        shown.append(state.cpu[0])
    assert len(set(shown)) == 7


@pytest.mark.parametrize("noise_points", [0.01, 5])
def test_the_samples_of_an_idle_broker_differ(noise_points: float):
    """Else lbd would take its report for one that stands still, and give it nothing."""
    world, _ = begun(noise_points=noise_points)
    assert len({float(noisy(world, np.zeros(2), 60 * minute)[1]) for minute in range(100)}) == 100


def test_a_steady_broker_reports_its_full_rates_from_the_beginning():
    """Also in the interval in which the run began."""
    world, state = begun()
    for seconds in (0, 60, 120):
        reported = snapshot(world, later(world, state, seconds), 0.0).brokers.rates
        assert reported[0].tolist() == pytest.approx([60 * 1024, 60 * 1024, 60 * MIB, 60 * MIB])


@pytest.mark.parametrize("seed", range(8))
def test_a_moved_bundle_is_on_both_reports_or_on_neither_for_less_than_a_minute(seed: int):
    """Then it is with its new owner alone, first with part of its rate, and a minute later with all of it."""
    world, state = begun(seed)
    name, state = world.bundles[0], moved(later(world, state, 120), 0, 1)
    for _ in range(60 // STEP_SECONDS):
        state = step(world, state)
        assert sum(bundle == name for bundle in snapshot(world, state, 0.0).bundles) <= 1
    settled = snapshot(world, state, 0.0)
    assert np.diff(settled.rows.start).tolist() == [5, 1]
    assert 0 < settled.brokers.rates[1, 0] <= 10 * 1024
    full = snapshot(world, later(world, state, 60), 0.0)
    assert full.brokers.rates[:, 0].tolist() == pytest.approx([50 * 1024, 10 * 1024])


def test_some_moved_bundles_are_on_both_and_some_on_neither():
    """Which one it is depends on whose statistics come first."""
    seen: set[int] = set()
    for seed in range(8):
        world, state = begun(seed)
        state = moved(state, 0, 1)
        for _ in range(60 // STEP_SECONDS):
            state = step(world, state)
            found = snapshot(world, state, 0.0)
            seen.add(sum(found.bundles[at] == world.bundles[0] for at in found.rows.bundle.tolist()))
    assert seen == {0, 1, 2}


def test_a_broker_that_joins():
    """It is not there before; it reports no CPU until it was up for a minute, and its start-up work with the first."""
    world, state = begun(brokers=[{"id": "a"}, {"id": "b", "background": 30, "joins_at_minutes": 2}])
    assert snapshot(world, later(world, state, 115), 0.0).brokers.ids == ("a:8080",)
    young = snapshot(world, later(world, state, 120), 1000.0)
    assert young.brokers.ids == ("a:8080", "b:8080")
    assert (young.brokers.usage[1, 0], young.brokers.started_at[1]) == (FIRST_CPU, 1120.0)
    assert 30 <= snapshot(world, later(world, state, 240), 0.0).brokers.usage[1, 0] <= 40.1
    assert snapshot(world, later(world, state, 300), 0.0).brokers.usage[1, 0] == pytest.approx(30, abs=0.1)


def test_a_broker_that_leaves():
    """Its bundles are owned, served and reported by the others, all of them."""
    world, state = begun(brokers=[{"id": "a", "leaves_at_minutes": 1}, {"id": "b"}, {"id": "c"}])
    found = later(world, state, 180)
    assert set(found.owner.tolist()) <= {1, 2}
    assert snapshot(world, found, 0.0).brokers.ids == ("b:8080", "c:8080")
    assert sorted(snapshot(world, found, 0.0).bundles) == sorted(world.bundles)


def test_the_same_seed_is_the_same_run():
    """Another seed is another one."""
    load = [{"name": "n", "mib_per_second": 60, "bundles": 20, "spread": 1}]

    def cpu(seed: int) -> list[float]:
        world, state = begun(seed, load=load, noise_points=1)
        return later(world, state, 300).cpu.tolist()

    assert cpu(1) == cpu(1)
    assert cpu(1) != cpu(2)


@settings(deadline=None, max_examples=50)
@given(st.data(), st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 12))
def test_nothing_is_lost(data: st.DataObject, seed: int, brokers: int, bundles: int):
    """Whatever moves when, every bundle has one owner that is there, and in the end each is reported once, in full."""
    load = [{"name": "n", "mib_per_second": 40, "bundles": bundles, "spread": 0.5}]
    parts = [{"id": "b", "number": brokers}, {"id": "gone", "leaves_at_minutes": data.draw(st.integers(1, 5))}]
    world, state = begun(seed, brokers=parts, load=load)
    stay = st.sampled_from([at for at, name in enumerate(world.brokers) if not name.startswith("gone")])
    for _ in range(data.draw(st.integers(0, 20))):
        state = moved(state, data.draw(st.integers(0, bundles - 1)), data.draw(stay))
        state = later(world, state, data.draw(st.integers(0, 60)))
        assert world.present(state.seconds)[state.owner].all()
        assert (state.passed >= 0).all()
    found = snapshot(world, later(world, state, 420), 0.0)
    assert sorted(found.bundles) == sorted(world.bundles)
    assert found.rows.bundle.size == bundles
    assert found.brokers.rates.sum(axis=0)[2] == pytest.approx(40 * MIB)


def test_sizes_by_zipf():
    """The n-th largest bundle has 1 / n of the largest one's traffic, in random order."""
    world, _ = begun(load=[{"name": "n", "mib_per_second": 10, "bundles": 40, "zipf": 1}])
    found = np.sort(world.rates[:, 2])[::-1]
    assert found.sum() == pytest.approx(10 * MIB)
    assert (found[0] / found).tolist() == pytest.approx(range(1, 41))
    assert world.rates[0, 2] != found[0]


def test_topics_are_spread_and_reported():
    """As evenly as whole numbers can be."""
    world, state = begun(load=[{"name": "n", "brokers": ["a"], "mib_per_second": 10, "bundles": 3, "topics": 1000}])
    assert world.topics.tolist() == [333, 333, 334]
    found = snapshot(world, state, 0.0)
    assert found.brokers.topics.tolist() == [1000, 0]
    assert found.rows.counts[:, 0].tolist() == [333, 333, 334]


def test_statistics_of_another_interval():
    """A broker that counts each ten seconds shows a moved bundle sooner."""
    world, state = begun(stats_interval_seconds=10)
    found = snapshot(world, later(world, moved(state, 0, 1), 15), 0.0)
    assert np.diff(found.rows.start).tolist() == [5, 1]


def test_a_bundle_that_takes_long_to_move_carries_nothing_meanwhile():
    """And catches up then."""
    world, state = begun()
    state = step(world, moved(state, 0, 1, unserved_seconds=4))
    assert state.unserved_bundle_seconds == pytest.approx(4)
    assert state.missed[0] == pytest.approx(3)
    assert later(world, state, 10).missed[0] == 0


UNLIKE: dict[str, Any] = {
    "brokers": [{"id": "b", "number": 4}],
    "load": [{"name": "n", "mib_per_second": 60, "bundles": 60, "spread": 1}],
}


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_a_first_placement_is_as_uneven_as_it_is_wanted(seed: int):
    """Drawn anew until it is; one that is so at once is the one that there is without it."""
    world, state = begun(seed, **UNLIKE, first_ratio=[1.2, 1.5])
    carried = np.bincount(state.owner, world.rates[:, 2])
    assert 1.2 <= carried.max() / carried.min() <= 1.5
    assert begun(seed, **UNLIKE, first_ratio=[1, 1000])[1].owner.tolist() == begun(seed, **UNLIKE)[1].owner.tolist()


def test_a_first_placement_that_cannot_be():
    """One broker has all bundles: nothing is a multiple of nothing."""
    with pytest.raises(UsageError, match=r"^first_ratio: none of 1000 placements is from 1 to 2; wanted a range"):
        begun(first_ratio=[1, 2])
