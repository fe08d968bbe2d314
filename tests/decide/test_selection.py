"""Which bundles fill an amount when some cost more than others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.decide.avg_shedder import fill
from lbd.decide.candidates import Candidates

SIZES = st.lists(st.integers(0, 50), min_size=1, max_size=12)


def candidates(traffic: list[int], costs: list[int] | None) -> Candidates:
    """Bundles named by their position."""
    return Candidates(
        np.arange(len(traffic), dtype=np.int32),
        np.array(traffic, dtype=np.float64),
        [f"b{at:02}" for at in range(len(traffic))],
        None if costs is None else np.array(costs, dtype=np.float64),
    )


def test_dearer_bundles_only_for_what_cheaper_ones_leave():
    """The largest is dear: the three cheap ones are taken first, and it no longer fits; the smaller dear one does."""
    assert [1, 2, 3, 4] == fill(candidates([80, 30, 20, 10, 35], [5, 0, 0, 0, 5]), 100)


@pytest.mark.parametrize(
    ("amount", "spare", "taken"),
    [
        (100, 0, [0, 1, 2, 3]),
        (100, 5, [0, 1]),
        (100, 4.9, [0, 1, 2]),
        (100, 100, [0]),
        (10, 10, [2]),
        (0, 10, []),
    ],
    ids=["all of it", "just enough", "not quite", "one at least", "the first that fits", "nothing wanted"],
)
@pytest.mark.parametrize("costs", [None, [0, 0, 0, 0], [0, 1, 2, 3]])
def test_what_is_left_may_be_too_little_for_another_bundle(
    amount: int, spare: float, taken: list[int], costs: list[int] | None
):
    """Once one is taken: 60, 35, then 3 and 2 that would fill what is left."""
    assert fill(candidates([60, 35, 3, 2], costs), amount, spare) == taken


@given(SIZES, st.integers(0, 200), st.floats(0, 50))
def test_with_something_to_spare_it_is_the_beginning_of_the_same_choice(traffic: list[int], amount: int, spare: float):
    """No other bundles and no more of them, and no more is left than may be, if they could have filled it."""
    full, found = fill(candidates(traffic, None), amount), fill(candidates(traffic, None), amount, spare)

    assert found == full[: len(found)]
    assert len(found) == len(full) or amount - sum(traffic[at] for at in found) <= spare
    assert bool(found) == bool(full)


@given(SIZES, st.integers(0, 200))
def test_equal_costs_change_nothing(traffic: list[int], amount: int):
    """Whatever the cost is."""
    assert fill(candidates(traffic, None), amount) == fill(candidates(traffic, [7] * len(traffic)), amount)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), min_size=1, max_size=12), st.integers(0, 200))
def test_costs_never_break_the_amount(bundles: list[tuple[int, int]], amount: int):
    """No cheaper bundle that would have fitted is left behind for a dearer one."""
    traffic, costs = [one[0] for one in bundles], [one[1] for one in bundles]
    taken = fill(candidates(traffic, costs), amount)

    assert sum(traffic[at] for at in taken) <= amount
    assert [costs[at] for at in taken] == sorted(costs[at] for at in taken)
    for at in set(range(len(traffic))) - set(taken):
        cheaper = sum(traffic[one] for one in taken if costs[one] <= costs[at])
        assert traffic[at] == 0 or cheaper + traffic[at] > amount
