"""A line through points of which some are wrong."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.load.fit import UNKNOWN, line, weighted_median

SLOPES = st.floats(-50, 50, allow_subnormal=False)


@given(slope=SLOPES, offsets=st.lists(st.floats(-100, 100), min_size=1, max_size=4), scale=st.floats(0.1, 1e6))
def test_a_line_without_noise_is_found_whatever_the_intercepts(slope: float, offsets: list[float], scale: float):
    """Each group keeps its own intercept, and all share the slope."""
    x = np.linspace(0, scale, 20)
    found = line([(x, offset + slope * x) for offset in offsets])

    assert found.slope == pytest.approx(slope, rel=1e-6, abs=1e-6 * max(1, 100 / scale))


@given(st.integers(0, 2**32 - 1))
def test_a_fifth_of_the_points_may_be_anywhere(seed: int):
    """Outliers at random do not bend the line by a tenth."""
    random = np.random.default_rng(seed)
    x = random.uniform(0, 100, 60)
    y = 20 + 0.5 * x + random.standard_normal(60)
    y[:12] = random.uniform(0, 1000, 12)

    assert line([(x, y)]).slope == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([], "nothing"),
        ([(np.array([1.0]), np.array([2.0]))], "one point"),
        ([(np.arange(7.0), np.arange(7.0))], "seven points"),
        ([(np.full(50, 3.0), np.arange(50.0))], "the same x throughout"),
        ([(3 + 1e-9 * np.arange(50.0), np.arange(50.0))], "x that differ by rounding"),
        ([(np.array([1.0, 2.0]), np.array([2.0, 3.0]))] * 30, "thirty pairs, each with an intercept of its own"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_tells_no_slope(groups: list[tuple[np.ndarray, np.ndarray]], why: str):
    """An infinite interval instead of a guess."""
    assert UNKNOWN == line(groups), why


def test_of_many_points_some_are_taken():
    """A day of samples of each of 30 brokers costs what a few thousand pairs do, and places the slope all the same."""
    random = np.random.default_rng(1)
    x = [random.uniform(0, 100, 1440) for _ in range(30)]
    found = line([(one, 0.3 * one + random.standard_normal(1440)) for one in x])

    assert found.slope == pytest.approx(0.3, abs=0.01)
    assert found.noise == pytest.approx(1, rel=0.2)


def test_fits_of_ever_more_points_leave_nothing_behind():
    """A daemon fits one point more each minute; the pairs of every number of points would come to 5 MB."""
    x = np.arange(128.0)
    line([(x, x)])
    tracemalloc.start()
    try:
        for number in range(3, x.size):
            line([(x[:number], x[:number])])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 100_000


def test_the_median_by_weight():
    """The smallest value that has half of the weight below it or on it."""
    assert 3.0 == weighted_median(np.array([5.0, 1.0, 3.0]), np.array([1.0, 1.0, 1.0]))
    assert 5.0 == weighted_median(np.array([5.0, 1.0, 3.0]), np.array([3.0, 1.0, 1.0]))
    assert 0.0 == weighted_median(np.array([]), np.array([]))
