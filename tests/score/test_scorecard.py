"""The scorecard: what each number means, on runs small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lbd.score.bounds import BundleHistory
from tests.score.runs import EVEN, OVER_HIGH, OVER_LOW, move, run


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
    card = run((50.0, 50.0, None), (50.0, 50.0, 10.0), (45.0, 45.0, 40.0))
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


@pytest.mark.parametrize(
    ("shown", "moved_at", "wanted"), [(60.0, 150.0, 90.0), (None, 150.0, None), (200.0, 150.0, None)]
)
def test_the_first_move(shown: float | None, moved_at: float, wanted: float | None):
    """Counted from the first report that shows the high threshold, where one does; an earlier move is none."""
    assert run(OVER_HIGH, EVEN, moves=(move(moved_at),), shown_at_seconds=shown).first_move_after_seconds == wanted


def test_what_others_would_have_done():
    """Four bundles of ten points on x; three went, which left y at the 30 that one move would have reached."""
    sizes, first, last = np.full(4, 10.0), np.zeros(4, dtype=np.int32), np.array([0, 1, 1, 1], dtype=np.int32)
    there = np.ones(2, dtype=np.bool_)
    found = BundleHistory(sizes, first, last, np.zeros(2), np.ones(2), there)
    moves = tuple(move(60, bundle) for bundle in "abc")
    card = run(OVER_HIGH, EVEN, moves=moves, placement=found)
    assert (card.moves, card.fewest_moves, card.fewest_moves_as_even) == (3, 1, 1)
    assert card.peak_points == 30
    assert card.unmoved is not None
    assert card.unmoved.gap_points == 2 * card.mean.gap_points
    assert card.thrashing_unmoved == card.thrashing == 0


def test_where_bundles_changed_hands_otherwise():
    """No plan is compared with."""
    card = run(OVER_HIGH, EVEN, moves=(move(60),))
    assert (card.fewest_moves, card.fewest_moves_as_even, card.peak_points) == (None,) * 3
    assert (card.unmoved, card.thrashing_unmoved) == (None, None)


def test_what_it_cost():
    """Seconds without an owner, and landings that no policy allows."""
    moves = (move(0), move(9, allowed=False))
    card = run(EVEN, moves=moves, unserved_bundle_seconds=30.75)
    assert (card.unserved_bundle_seconds, card.policy_violations) == (30.75, 1)
