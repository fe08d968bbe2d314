"""How even brokers are, and how restless, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from lbd.score.gap import gaps
from lbd.score.scorecard import evenness, mean_evenness, thrashing

SCORES = arrays(
    float, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(0.5, 100, allow_nan=False, width=32)
)


def test_evenness():
    """Of 20, 38, 40 and 62: 42 apart, 1.55 times the mean of 40 at the peak."""
    found = evenness(np.array([20.0, 38.0, 40.0, 62.0]))
    assert (found.gap_points, found.max_over_mean) == (42, 1.55)
    assert found.std_points == pytest.approx(14.90, abs=0.01)


def test_an_idle_cluster_is_even():
    """No broker carries more than the mean of nothing."""
    found = evenness(np.zeros(3))
    assert (found.max_over_mean, found.std_points) == (1, 0)


def test_the_mean_over_a_run():
    """Of each look's figures; a broker that is away at a look does not count in it."""
    points = np.array([[60.0, 40.0, np.nan], [50.0, 50.0, 50.0]])
    assert gaps(points).tolist() == [20, 0]
    assert np.isnan(gaps(points[:1, :1])).all()
    assert mean_evenness(points).gap_points == 10
    assert mean_evenness(points).max_over_mean == pytest.approx(1.1)


@given(SCORES)
def test_figures_agree(points: np.ndarray):
    """The gap holds the deviation, and the peak is above the mean."""
    for row in points:
        found = evenness(row)
        assert 0 <= found.std_points <= found.gap_points / 2 + 1e-9
        assert found.max_over_mean >= 1 - 1e-9


@pytest.mark.parametrize(
    ("first", "wanted"),
    [
        ([50, 50, 50], 0),
        ([80, 70, 60, 50], 0),
        ([60, 40, 60, 40, 60], 4),
        ([80, 20, 50], 1),
        ([80, 40, 50], 1 / 3),
        ([50.1, 49.9, 50.1], 0.4),
    ],
    ids=["at rest", "a ramp", "to and fro", "half way back", "a step back", "less than a point apart"],
)
def test_thrashing(first: list[float], wanted: float):
    """Two brokers with 100 points between them: what is against the trend counts twice, over the widest distance."""
    points = np.array([[one, 100 - one] for one in first])
    assert thrashing(points) == pytest.approx(wanted)


@given(SCORES, st.lists(st.floats(0, 100, width=32), min_size=6, max_size=6))
def test_a_wave_that_all_ride_is_no_thrashing(points: np.ndarray, wave: list[float]):
    """What comes to every broker alike changes nothing."""
    raised = points + np.array(wave)[: len(points), None]
    assert thrashing(raised) == pytest.approx(thrashing(points), abs=1e-6)
