"""Several runs of one scenario, figure by figure."""

from __future__ import annotations

from lbd.score.scorecard import FigureSpread, spread
from tests.score.runs import EVEN, OVER_HIGH, OVER_LOW, move, run


def test_each_figure_has_a_middle_and_ends():
    """Also those of a section, by their dotted names."""
    cards = [run(one, EVEN, moves=tuple(move(60, name) for name in "abc"[:at])) for at, one in enumerate([EVEN] * 3)]
    found = spread(cards)
    assert found["moves"] == FigureSpread(1.0, 0, 2, 3)
    assert found["last.gap_points"] == FigureSpread(0.0, 0.0, 0.0, 3)
    assert set(found) >= {"first.max_over_mean", "mean.std_points", "unserved_bundle_seconds"}


def test_runs_without_a_figure_are_counted():
    """Of two runs that never balanced and one that did, only the latter has a time."""
    cards = [run(OVER_HIGH, OVER_LOW), run(EVEN, OVER_LOW), run(OVER_LOW, OVER_LOW, EVEN)]
    assert spread(cards)["minutes_to_balance"] == FigureSpread(2.0, 2.0, 2.0, 1)
    assert spread(cards)["fewest_moves"] == FigureSpread(None, None, None, 0)
