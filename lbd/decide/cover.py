"""The cheapest bundles that together are enough: a knapsack cover, by dynamic programming over the total. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.model import FloatArray, IntArray

STEPS = 400
"""Number of steps into which the largest total is divided."""


def cheapest(sizes: FloatArray, costs: FloatArray, totals: tuple[float, float, float], slack: float) -> IntArray:
    """Positions of the bundles to take; none where no total is within bounds. ``sizes`` and ``costs`` are (K,).

    ``totals`` are the least, a sufficient, and the largest total; ``slack`` is the cost of a point below the second.
    """
    least, enough, most = totals
    step = most / STEPS
    units = np.rint(sizes / step).astype(np.int64)
    best = np.full(STEPS + 1, np.inf)
    best[0] = 0.0
    taken = np.zeros((sizes.size, STEPS + 1), dtype=np.bool_)
    for index, (unit, cost) in enumerate(zip(units.tolist(), costs.tolist(), strict=True)):
        if 0 < unit <= STEPS:
            with_it = best[: STEPS + 1 - unit] + cost
            np.less(with_it, best[unit:], out=taken[index, unit:])
            np.minimum(best[unit:], with_it, out=best[unit:])
    reached = np.arange(STEPS + 1) * step
    total_cost = best + slack * np.maximum(enough - reached, 0.0)
    total_cost[reached < least] = np.inf
    total = int(total_cost.argmin())
    if not np.isfinite(total_cost[total]):
        return np.zeros(0, dtype=np.int32)
    chosen = []
    for index in range(sizes.size - 1, -1, -1):
        if taken[index, total]:
            chosen.append(index)
            total -= int(units[index])
    return np.array(chosen[::-1], dtype=np.int32)
