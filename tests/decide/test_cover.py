"""The cheapest bundles that together are enough."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.decide.cover import cheapest

TABLE = [
    pytest.param([10, 6, 5], [1, 1, 1], (8, 8, 20), [0], id="one-is-cheaper-than-two"),
    pytest.param([10, 6, 5], [9, 1, 1], (8, 8, 20), [1, 2], id="two-cheap-ones-replace-a-dear-one"),
    pytest.param([20, 10, 9], [1, 2, 1], (8, 8, 12), [2], id="what-is-too-much-is-left"),
    pytest.param([20, 20], [1, 1], (8, 8, 12), [], id="nothing-is-within-bounds"),
    pytest.param([8, 10], [1, 1.5], (8, 10, 12), [1], id="a-little-more-is-worth-half-a-move"),
    pytest.param([8, 10], [1, 9], (8, 10, 12), [0], id="but-not-eight"),
    pytest.param([], [], (8, 10, 12), [], id="no-bundles"),
]


@pytest.mark.parametrize(("sizes", "costs", "totals", "wanted"), TABLE)
def test_the_cheapest_that_is_enough(
    sizes: list[float], costs: list[float], totals: tuple[float, float, float], wanted: list[int]
) -> None:
    """Points and costs of bundles, bounds of the total, and who goes; a point below enough costs half a move."""
    found = cheapest(np.array(sizes, dtype=np.float64), np.array(costs, dtype=np.float64), totals, 0.5)

    assert found.tolist() == wanted


MOST = 400
"""As many as there are steps, so that whole sizes are exact."""


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 20)), max_size=7), st.integers(1, MOST))
def test_no_other_choice_is_cheaper(bundles: list[tuple[int, int]], least: int) -> None:
    """Beside all choices there are."""
    sizes, costs = (np.array([one[at] for one in bundles], dtype=np.float64) for at in (0, 1))
    found = cheapest(sizes, costs, (least, least, MOST), 0.0)
    choices = chain.from_iterable(combinations(bundles, number) for number in range(1, len(bundles) + 1))
    fits = [sum(cost for _, cost in some) for some in choices if least <= sum(size for size, _ in some) <= MOST]

    assert costs[found].sum() == min(fits, default=0)
    assert not fits or least <= sizes[found].sum() <= MOST
