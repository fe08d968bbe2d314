"""The largest bundles of a round."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lbd.api.read import _largest

if TYPE_CHECKING:
    from lbd.model import Snapshot


def _seen(rates: list[tuple[float, float]]) -> Any:
    table = np.zeros((len(rates), 4))
    table[:, 2:] = np.array(rates).reshape(-1, 2)
    return SimpleNamespace(rows=SimpleNamespace(rates=table))


@given(
    rates=st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0, float("nan")]), st.sampled_from([0.0, 1.0])), max_size=40),
    last=st.integers(0, 45),
    data=st.data(),
)
def test_the_largest_come_first_and_equals_stay_in_order(
    rates: list[tuple[float, float]], last: int, data: st.DataObject
):
    """As if all were sorted, whatever part of them is chosen; a number that is none counts as nothing."""
    chosen = np.array([data.draw(st.booleans()) for _ in rates], dtype=np.bool_)
    seen: Snapshot = _seen(rates)
    weight = [0.0 if np.isnan(bytes_in) else bytes_in + bytes_out for bytes_in, bytes_out in rates]
    expected = sorted(np.flatnonzero(chosen).tolist(), key=lambda at: -weight[at])[:last]
    assert expected == _largest(seen, chosen, last)
