"""Brokers alike are not called unlike for what noise makes of their fits, and those that are unlike are found."""

from __future__ import annotations

import numpy as np
import pytest

from lbd.learn.calibrate import remarks
from lbd.load.fit import fit
from lbd.load.samples import NEVER, BrokerSamples
from lbd.load.unlike import points_of_neighbours, times_of_others
from lbd.model import RESOURCES

SEEDS, BROKERS, MINUTES = 200, 8, 720
ALIKE_NAMED = 0.01
"""The rate that is stated in ``docs/calibrate.md``."""


def samples(seed: int, noise: float, times: float = 1.0, neighbour: float = 0.0) -> dict[str, BrokerSamples]:
    """Half a day of brokers that use some 12 points without traffic and 20 for what they carry; the first uses so many
    ``times`` as much, and a ``neighbour`` of it so many points.
    """
    random, at = np.random.default_rng(seed), 60.0 * np.arange(MINUTES)
    found = {}
    for broker in range(BROKERS):
        wave = 0.3 * np.sin(2 * np.pi * at / 86_400 + random.uniform(0, 6))
        bytes_s = 1e8 * random.uniform(0.8, 1.2) * (1 + wave + 0.01 * random.standard_normal(MINUTES))
        used = np.full((MINUTES, len(RESOURCES)), np.nan)
        cost = 20 / 1e8 * (times if broker == 0 else 1.0)
        used[:, 0] = 12 + cost * bytes_s + noise * random.standard_normal(MINUTES) + (neighbour if broker == 0 else 0)
        carried = np.stack([bytes_s / 2000, bytes_s / 2000, bytes_s / 2, bytes_s / 2], axis=1)
        hardware = (1.0, 0.0, 0.0, 0.0, 0.0)
        found[f"b{broker}"] = BrokerSamples(at, carried, used, np.full(MINUTES, NEVER, dtype=np.int32), hardware)
    return found


@pytest.mark.landing
def test_brokers_alike_are_seldom_called_unlike():
    """In one cluster of a hundred at most."""
    named = sum(bool(remarks(fit(samples(seed, noise=3.0)))) for seed in range(SEEDS))

    assert named <= ALIKE_NAMED * SEEDS


@pytest.mark.landing
@pytest.mark.parametrize(
    ("unlike", "remark"),
    [
        ({"times": 2.0}, "times the CPU of the others"),
        ({"times": 0.5}, "times the CPU of the others"),
        ({"neighbour": 20.0}, "points of CPU above the others that no traffic explains"),
    ],
    ids=["weaker", "stronger", "a neighbour"],
)
def test_a_broker_that_is_unlike_is_found(unlike: dict[str, float], remark: str):
    """In 19 of 20 clusters and more, and none beside it in as many."""
    found = [remarks(fit(samples(seed, noise=1.5, **unlike))) for seed in range(20)]

    assert sum(any(line.startswith("b0: ") and remark in line for line in lines) for lines in found) >= 19
    assert sum(any(not line.startswith("b0: ") for line in lines) for lines in found) <= 1


@pytest.mark.parametrize(
    ("slope", "half_width", "times"),
    [
        ([1, 1, 2], 0.1, [None, None, 2.0]),
        ([1, 2], 0.1, [0.5, 2.0]),
        ([1, 1, 1, 2, 2], 0.1, [None, None, None, 2.0, 2.0]),
        ([1, 1, 1.2], 0.01, [None, None, None]),
        ([1, 1, 3], 2.0, [None, None, None]),
        ([1, np.nan, 3], 0.1, [1 / 3, None, 3.0]),
        ([3], 0.1, [None]),
        ([0, 0, 3], 0.1, [None, None, None]),
    ],
    ids=["one", "of two each", "two kinds", "a fifth", "not sure", "one unknown", "alone", "others cost nothing"],
)
def test_how_many_times_the_others(slope: list[float], half_width: float, times: list[float | None]):
    """The median of the others; and none that may be like them."""
    size = len(slope)
    found = times_of_others(np.array(slope, dtype=float), np.full(size, half_width), np.ones(size, dtype=np.bool_))

    assert found.tolist() == pytest.approx([np.nan if one is None else one for one in times], nan_ok=True)


def test_a_shared_slope_is_compared_with_and_never_unlike():
    """Two brokers without a slope of their own are like the first, so the third is the one that differs."""
    own = np.array([True, False, True, False])
    found = times_of_others(np.array([1.0, 1.0, 2.0, 1.0]), np.full(4, 0.1), own)

    assert found.tolist() == pytest.approx([np.nan, np.nan, 2.0, np.nan], nan_ok=True)


@pytest.mark.parametrize(("half_width", "points"), [(1.0, 20.0), (30.0, np.nan), (np.inf, np.nan)])
def test_points_of_a_neighbour(half_width: float, points: float):
    """Above the others', if the fit is sure of it."""
    found = points_of_neighbours(np.array([10.0, 11.0, 31.0]), np.full(3, half_width))

    assert found.tolist() == pytest.approx([np.nan, np.nan, points], nan_ok=True)
