"""The bounds: told for plain cases, and never beaten by a search through every plan."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.score.bounds import fewest_moves, fewest_moves_between
from tests.score.worlds import placed, placements, plans

if TYPE_CHECKING:
    from lbd.score.bounds import BundleHistory


def bound(sizes: list[float], owner: list[int], room: list[float]) -> int:
    """The bound for bundles of these sizes on these brokers."""
    return fewest_moves(np.array(sizes, dtype=float), np.array(owner, dtype=np.int32), np.array(room, dtype=float))


@pytest.mark.parametrize(
    ("sizes", "owner", "room", "wanted"),
    [
        ([], [], [1, 1], 0),
        ([3, 3], [0, 1], [3, 3], 0),
        ([3, 2, 1], [0, 0, 0], [3, 9], 1),
        ([1, 2, 3], [0, 0, 0], [2.5, 9], 2),
        ([1, 2, 3], [0, 0, 0], [0, 9], 3),
        ([5, 1, 4, 1], [0, 0, 1, 1], [5, 4], 2),
    ],
    ids=["nothing", "all fit", "the largest goes", "two go", "an empty broker", "one of each"],
)
def test_the_largest_go_until_the_rest_fits(sizes: list[float], owner: list[int], room: list[float], wanted: int):
    """Broker by broker, whatever the order of the bundles."""
    assert bound(sizes, owner, room) == wanted


def searched(sizes: list[int], owner: list[int], room: list[int]) -> int | None:
    """The fewest moves of all assignments that fit; None when none does."""
    fits = [
        sum(new != old for new, old in zip(placed, owner, strict=True))
        for placed in product(range(len(room)), repeat=len(sizes))
        if all(
            sum(size for size, at in zip(sizes, placed, strict=True) if at == broker) <= limit
            for broker, limit in enumerate(room)
        )
    ]
    return min(fits, default=None)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Up to six bundles on up to three brokers of their own room."""
    brokers = draw(st.integers(1, 3))
    bundles = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, brokers - 1)), max_size=6))
    room = draw(st.lists(st.integers(0, 20), min_size=brokers, max_size=brokers))
    return [size for size, _ in bundles], [at for _, at in bundles], room


@given(clusters())
def test_no_plan_needs_fewer(case: tuple[list[int], list[int], list[int]]):
    """Of every assignment that fits, the one with the fewest moves has at least as many."""
    best = searched(*case)
    assert best is None or bound(*case) <= best


@given(clusters())
def test_it_is_exact_where_room_is_plenty(case: tuple[list[int], list[int], list[int]]):
    """With one more broker that takes everything, the bound is what the search finds."""
    sizes, owner, room = case
    assert bound(sizes, owner, [*room, 100]) == searched(sizes, owner, [*room, 100])


ARRIVALS = [
    ([12, 4, 4, 4], [0, 0, 0, 0], [12, 4, 4, 4], 3),
    ([20, 5, 5, 5], [0, 1, 1, 2], [10, 25, 8], 2),
]


@pytest.mark.parametrize(
    ("sizes", "owner", "room", "wanted"),
    ARRIVALS,
    ids=["a broker takes four of twelve", "it fits where another makes room"],
)
def test_what_leaves_must_arrive_somewhere(sizes: list[float], owner: list[int], room: list[float], wanted: int):
    """The largest would be enough, and fits nowhere as it is: the bound knows, and the search agrees or needs more."""
    best = searched([int(one) for one in sizes], owner, [int(one) for one in room])
    assert bound(sizes, owner, room) == wanted
    assert best is None or wanted <= best


@given(placements())
def test_no_plan_reaches_a_peak_with_fewer_moves(found: BundleHistory):
    """Unequal brokers, policies, bundles that are where they may not be: the peak of every plan needs its moves."""
    for moves, owner in plans(found):
        room = found.room(found.peak(owner))
        assert fewest_moves(found.sizes, found.first, room) <= moves


FILLED = [
    ([10, 10, 10, 10, 5, 5], [0, 0, 0, 0, 1, 1], (0, 0), 40, 15, 1),
    ([10, 10, 10, 10, 5, 5], [0, 0, 0, 0, 1, 1], (0, 0), 40, 5, 0),
    ([3, 3, 3, 3, 2, 2], [0, 0, 0, 0, 1, 1], (0, 0), 12, 7, 1),
    ([1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0], (10, 0), 16, 3, 3),
    ([9, 9, 1, 1, 1], [0, 0, 1, 1, 1], (0, 0), 18, 6, 1),
    ([12, 1, 1, 1, 1, 1, 1, 10], [0, 0, 0, 0, 0, 0, 0, 1], (0, 0), 18, 12, 2),
]


@pytest.mark.parametrize(
    ("sizes", "first", "idle", "peak", "trough", "wanted"),
    FILLED,
    ids=["one fills", "low enough", "one of three", "three small ones", "a large one", "the large one does not fit"],
)
def test_who_is_too_low_takes_something_in(
    sizes: list[float], first: list[int], idle: tuple[float, ...], peak: float, trough: float, wanted: int
):
    """Nobody is too high: the bound without a lowest score asks for no move, and a search finds no plan of fewer."""
    found = placed(sizes, first, idle=idle)
    room = found.room(peak)
    assert fewest_moves(found.sizes, found.first, room) == 0
    assert fewest_moves_between(found.sizes, found.first, room, found.need(trough)) == wanted
    best = min(
        moves
        for moves, owner in plans(found)
        if found.peak(owner) <= peak + 1e-9 and found.trough(owner) >= trough - 1e-9
    )
    assert wanted == best


def test_who_is_too_low_may_give_what_saves_it_no_arrival():
    """Two change hands in a chain: the lower one's own would not bring both up, and what is too large for it does."""
    found = placed([0, 2, 1], [0, 0, 1], idle=(2, 0, 0), slope=(0, 1, 2))
    room, wanted = found.room(2), found.need(2)
    assert fewest_moves_between(found.sizes, found.first, room, wanted) == 2


@given(placements())
def test_no_plan_is_as_even_with_fewer_moves(found: BundleHistory):
    """The same of plans that leave nobody lower either: what it asks for is what each plan took, or less."""
    for moves, owner in plans(found):
        room, wanted = found.room(found.peak(owner)), found.need(found.trough(owner))
        assert fewest_moves_between(found.sizes, found.first, room, wanted) <= moves
