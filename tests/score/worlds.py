"""Small placements, drawn or written down, and a search through every plan for them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from lbd.score.bounds import BundleHistory, Pools, everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator


def placed(
    sizes: list[float],
    first: list[int],
    last: list[int] | None = None,
    idle: tuple[float, ...] = (0.0, 0.0),
    slope: tuple[float, ...] = (),
    allowed: list[list[bool]] | None = None,
    of: list[int] | None = None,
) -> BundleHistory:
    """Bundles of these sizes on brokers that are idle at these points; a point for each unit unless said."""
    brokers, bundles = len(idle), len(sizes)
    pools = everywhere(bundles, brokers)
    if allowed is not None:
        pools = Pools(np.array(of, dtype=np.int32), np.array(allowed, dtype=np.bool_))
    return BundleHistory(
        sizes=np.array(sizes, dtype=float),
        first=np.array(first, dtype=np.int32),
        last=np.array(first if last is None else last, dtype=np.int32),
        idle=np.array(idle, dtype=float),
        slope=np.array(slope or (1.0,) * brokers, dtype=float),
        present=np.ones(brokers, dtype=np.bool_),
        pools=pools,
    )


def plans(found: BundleHistory) -> Iterator[tuple[int, np.ndarray]]:
    """Every assignment that policies allow, with how many moves it takes; what stays may stay."""
    brokers = range(found.idle.size)
    choices = [
        [at for at in brokers if at == own or found.pools.allowed[pool, at]]
        for own, pool in zip(found.first.tolist(), found.pools.of.tolist(), strict=True)
    ]
    for owner in product(*choices):
        owners = np.array(owner, dtype=np.int32)
        yield int(np.count_nonzero(owners != found.first)), owners


@st.composite
def placements(draw: st.DrawFn, bundles: int = 5) -> BundleHistory:
    """Up to five bundles on up to three brokers, unequal in background and capacity, in up to two pools."""
    brokers = draw(st.integers(1, 3))
    number = draw(st.integers(1, bundles))
    at = st.integers(0, brokers - 1)
    each = {"min_size": number, "max_size": number}
    pool = st.lists(st.booleans(), min_size=brokers, max_size=brokers).filter(any)
    allowed = draw(st.just([[True] * brokers]) | st.lists(pool, min_size=1, max_size=2))
    return placed(
        sizes=draw(st.lists(st.integers(0, 9), **each)),
        first=draw(st.lists(at, **each)),
        last=draw(st.lists(at, **each)),
        idle=tuple(draw(st.lists(st.integers(0, 12), min_size=brokers, max_size=brokers))),
        slope=tuple(draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), min_size=brokers, max_size=brokers))),
        allowed=allowed,
        of=draw(st.lists(st.integers(0, len(allowed) - 1), **each)),
    )
