"""Scores over time: the gap, the mean, and how a line is thinned for a chart."""

from __future__ import annotations

import numpy as np
import pytest

from lbd.store.scores import HOLE_SECONDS, MOST_POINTS, Scores, score_line

NAN = float("nan")


@pytest.mark.parametrize(
    ("points", "gap", "mean"),
    [
        ([10.0, 40.0, 25.0], 30.0, 25.0),
        ([10.0, NAN, 40.0], 30.0, 25.0),
        ([NAN, NAN, 40.0], NAN, 40.0),
        ([NAN, NAN, NAN], NAN, NAN),
    ],
)
def test_gap_and_mean(points: list[float], gap: float, mean: float):
    """Of the brokers whose score is known; the gap wants two."""
    found = Scores(np.zeros(1), ("a", "b", "c"), np.array([points]))
    assert found.gap().tolist() == pytest.approx([gap], nan_ok=True)
    assert found.mean().tolist() == pytest.approx([mean], nan_ok=True)


def test_no_rounds():
    """Of a daemon that has just begun."""
    nothing = Scores(np.zeros(0), (), np.zeros((0, 0)))
    assert [one.size for one in (nothing.gap(), nothing.mean(), nothing.of("a"))] == [0, 0, 0]
    assert score_line(nothing.at, nothing.gap()).at == []


def test_a_week_is_thinned_and_keeps_its_extremes():
    """The one turn in which the gap was widest is among the points."""
    at, points = np.arange(40_320) * 15.0, np.full(40_320, 5.0)
    points[12_345], points[30_000] = 70.0, 1.0
    line = score_line(at, points)
    assert len(line.at) == len(line.points) <= MOST_POINTS
    assert dict(zip(line.at, line.points, strict=True)).items() >= {(12_345 * 15.0, 70.0), (30_000 * 15.0, 1.0)}


@pytest.mark.parametrize("hours", [1, 24, 168])
def test_each_range_begins_and_ends_with_the_same_turns(hours: int):
    """The page says "now" by the last point: on the chart of a week it is as new as on that of an hour."""
    at = np.arange(hours * 240) * 15.0
    points = np.random.default_rng(1).random(at.size).round(2)
    line = score_line(at, points)
    assert (line.at[0], line.at[-1]) == (at[0], at[-1])
    assert (line.points[0], line.points[-1]) == (points[0], points[-1])


def test_where_lbd_did_not_run_the_line_is_broken():
    """No straight line over a night of which nothing is known."""
    at = np.array([0.0, 15.0, HOLE_SECONDS + 16, HOLE_SECONDS + 31])
    line = score_line(at, np.array([1.0, NAN, 3.0, 4.0]))
    assert line.points == [1.0, None, None, 3.0, 4.0]
    assert line.at == sorted(line.at)
