"""The fewest moves: told for plain cases, and never more than a brute-force search needs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.score.bounds import fewest_moves


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
