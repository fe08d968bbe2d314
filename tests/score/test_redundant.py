"""Moves for nothing: told for plain cases, and never more than a search through all subsets finds."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given

from lbd.score.scorecard import dispensable, redundant_moves
from tests.score.worlds import placed, placements

if TYPE_CHECKING:
    from lbd.score.bounds import BundleHistory


@pytest.mark.parametrize(
    ("found", "moves", "wanted"),
    [
        (placed([10, 10], [0, 0], [0, 1]), 1, 0),
        (placed([10, 10], [0, 0], [0, 1]), 3, 2),
        (placed([10, 10], [0, 0], [0, 0]), 2, 2),
        (placed([20, 10, 1], [0, 0, 0], [0, 1, 1]), 2, 0),
        (placed([20, 10, 1], [1, 0, 0], [1, 0, 1]), 1, 1),
        (placed([10, 10, 5], [0, 1, 1], [1, 0, 1]), 2, 2),
        (placed([9, 8, 7], [0, 0, 0], [1, 2, 0], idle=(0, 0, 0)), 2, 0),
        (placed([9, 1], [0, 0], [0, 1], allowed=[[False, True]], of=[0, 0]), 1, 0),
    ],
    ids=[
        "none",
        "to and fro, and there",
        "to and fro",
        "each counts",
        "a small one, from below the peak",
        "two that changed places",
        "two that level three",
        "one that had to go",
    ],
)
def test_redundant(found: BundleHistory, moves: int, wanted: int):
    """So many moves could have been left out for as low a peak."""
    assert redundant_moves(found, moves) == wanted


@pytest.mark.parametrize(
    ("found", "moves", "wanted"),
    [
        (placed([20, 10, 1], [1, 0, 0], [1, 0, 1]), 1, 1),
        (placed([20, 5, 5], [1, 0, 1], [1, 0, 0]), 1, 0),
        (placed([20, 5, 5, 1], [1, 0, 1, 1], [1, 0, 0, 0], idle=(0, 0)), 2, 0),
        (placed([24, 8, 4, 4, 2], [0, 1, 1, 2, 3], [0, 1, 2, 2, 3], idle=(0, 0, 0, 0)), 1, 1),
        (placed([10, 10, 5], [0, 1, 1], [1, 0, 1]), 2, 2),
    ],
    ids=["from the lowest", "onto the lowest", "two onto the lowest", "past the lowest", "two that changed places"],
)
def test_redundant_as_even(found: BundleHistory, moves: int, wanted: int):
    """So many could have been left out for as low a peak, and as high a lowest score."""
    assert redundant_moves(found, moves, as_even=True) == wanted


def without(found: BundleHistory, stay: np.ndarray) -> float:
    """The peak if these had stayed with their first owner."""
    return found.peak(np.where(stay, found.first, found.last))


@given(placements())
def test_what_is_dispensable_could_be_left_out(found: BundleHistory):
    """All of it together: the peak is no higher, nothing is put back against a policy, and only moves are told."""
    stay = dispensable(found)
    assert without(found, stay) <= found.peak(found.last) * (1 + 1e-6) + 1e-6
    assert not (stay & (found.first == found.last)).any()
    assert not (stay & ~found.may_stay()).any()


@given(placements())
def test_what_is_dispensable_for_being_as_even_could_be_left_out(found: BundleHistory):
    """All of it together: nor is the trough lower, nothing is put back against a policy, and only moves are told."""
    stay = dispensable(found, as_even=True)
    left = np.where(stay, found.first, found.last)
    assert found.peak(left) <= found.peak(found.last) * (1 + 1e-6) + 1e-6
    assert found.trough(left) >= found.trough(found.last) * (1 - 1e-6) - 1e-6
    assert not (stay & (found.first == found.last)).any()
    assert not (stay & ~found.may_stay()).any()


@given(placements())
def test_it_is_none_where_none_can_be_left_out(found: BundleHistory):
    """Never more than the largest of all subsets that could; and some where a single move could."""
    moved = np.flatnonzero((found.first != found.last) & found.may_stay())
    peak = found.peak(found.last)
    could = []
    for chosen in product([False, True], repeat=moved.size):
        stay = np.zeros(found.sizes.size, dtype=np.bool_)
        stay[moved[list(chosen)]] = True
        if without(found, stay) <= peak * (1 + 1e-9):
            could.append(sum(chosen))
    told = int(np.count_nonzero(dispensable(found)))
    assert told <= max(could)
    assert told > 0 or 1 not in could
