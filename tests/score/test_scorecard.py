"""The scorecard: what each number means, on runs small enough to count by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lbd.score.scorecard import Moved, Scorecard, Seen, Trace, evenness, scorecard


def run(*points: tuple[float, ...], moves: tuple[Moved, ...] = (), **changes: Any) -> Scorecard:
    """The card of a run with a look each minute at brokers of these scores, which carry 1,000 bytes/s together."""
    seen = tuple(Seen(60.0 * at, np.array(each), 1000.0) for at, each in enumerate(points))
    return scorecard(Trace(seen, moves, **changes), 15, 40)


def move(seconds: float, bundle: str = "b", throughput: float = 100) -> Moved:
    """A move of a tenth of the traffic."""
    return Moved(seconds, bundle, "x", "y", throughput)


EVEN, OVER_LOW, OVER_HIGH = (50.0, 50.0), (60.0, 40.0), (80.0, 20.0)


def test_evenness():
    """Of 20, 40 and 60: 40 apart, half as much again as the mean at the peak."""
    found = evenness(np.array([20.0, 40.0, 60.0]))
    assert (found.gap_points, found.max_over_mean) == (40, 1.5)
    assert found.std_points == pytest.approx(16.33, abs=0.01)


def test_an_idle_cluster_is_even():
    """No broker carries more than the mean of nothing."""
    assert evenness(np.zeros(3)).max_over_mean == 1


@pytest.mark.parametrize(
    ("looks", "over_low", "over_high", "balanced"),
    [
        ([EVEN, EVEN], 0, 0, 0),
        ([OVER_LOW, OVER_LOW, EVEN], 2, 0, 2),
        ([EVEN, OVER_HIGH, OVER_LOW, EVEN, EVEN], 2, 1, 2),
        ([OVER_LOW, EVEN, EVEN, OVER_LOW, EVEN], 2, 0, 4),
        ([EVEN, EVEN, OVER_HIGH], 0, 0, None),
        ([(55.0, 40.0), EVEN], 1, 0, 1),
    ],
    ids=["always even", "levelled", "from high to low", "twice", "not in the end", "the threshold counts"],
)
def test_minutes(looks: list[tuple[float, ...]], over_low: float, over_high: float, balanced: float | None):
    """How long brokers were apart, and until when they were so for good."""
    card = run(*looks)
    assert (card.minutes_over_low, card.minutes_over_high, card.minutes_to_balance) == (over_low, over_high, balanced)


def test_brokers_that_come_and_go():
    """Only those that are there at a moment count in it."""
    card = run((50.0, 50.0), (50.0, 50.0, 10.0), (45.0, 45.0, 40.0))
    assert (card.first.gap_points, card.last.gap_points, card.minutes_over_high) == (0, 5, 1)


def test_moves():
    """Three moves in two rounds, a bundle that moved twice, and three tenths of the traffic."""
    card = run(OVER_LOW, EVEN, moves=(move(10, "a"), move(12, "b"), move(600, "a")))
    assert (card.moves, card.rounds, card.bundles_moved_twice) == (3, 2, 1)
    assert card.traffic_moved == pytest.approx(0.3)


def test_no_moves():
    """Nothing moved is no round."""
    card = run(EVEN)
    assert (card.moves, card.rounds, card.traffic_moved, card.first_move_after_seconds) == (0, 0, 0, None)


@pytest.mark.parametrize(("shown", "moved_at", "wanted"), [(60.0, 150.0, 90.0), (None, 150.0, None), (200.0, 150.0, 0)])
def test_the_first_move(shown: float | None, moved_at: float, wanted: float | None):
    """Counted from the first report that shows the high threshold, where one does."""
    assert run(OVER_HIGH, EVEN, moves=(move(moved_at),), shown_at_seconds=shown).first_move_after_seconds == wanted
