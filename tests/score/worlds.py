"""Small placements, drawn or written down, and a search through every plan for them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from lbd.score.bounds import BundleHistory

if TYPE_CHECKING:
    from collections.abc import Iterator


def placed(
    sizes: list[float],
    first: list[int],
    last: list[int] | None = None,
    idle: tuple[float, ...] = (0.0, 0.0),
    slope: tuple[float, ...] = (),
) -> BundleHistory:
    """Bundles of these sizes on brokers that are idle at these points; a point for each unit unless said."""
    brokers = len(idle)
    return BundleHistory(
        sizes=np.array(sizes, dtype=float),
        first=np.array(first, dtype=np.int32),
        last=np.array(first if last is None else last, dtype=np.int32),
        idle=np.array(idle, dtype=float),
        slope=np.array(slope or (1.0,) * brokers, dtype=float),
        present=np.ones(brokers, dtype=np.bool_),
    )


def plans(found: BundleHistory) -> Iterator[tuple[int, np.ndarray]]:
    """Every assignment, with how many moves it takes."""
    for owner in product(range(found.idle.size), repeat=found.first.size):
        owners = np.array(owner, dtype=np.int32)
        yield int(np.count_nonzero(owners != found.first)), owners


@st.composite
def placements(draw: st.DrawFn, bundles: int = 5) -> BundleHistory:
    """Up to five bundles on up to three brokers, unequal in background and capacity."""
    brokers = draw(st.integers(1, 3))
    number = draw(st.integers(1, bundles))
    at = st.integers(0, brokers - 1)
    each = {"min_size": number, "max_size": number}
    return placed(
        sizes=draw(st.lists(st.integers(0, 9), **each)),
        first=draw(st.lists(at, **each)),
        last=draw(st.lists(at, **each)),
        idle=tuple(draw(st.lists(st.integers(0, 12), min_size=brokers, max_size=brokers))),
        slope=tuple(draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), min_size=brokers, max_size=brokers))),
    )
