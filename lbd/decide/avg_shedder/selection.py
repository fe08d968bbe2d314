"""Which bundles fill a wanted amount: the largest first, each only if it still fits. Pure.

Source: AvgShedder.selectBundleForUnloading. No backtracking; what is taken is subtracted one by one in double, so that
an amount that fits exactly fits here too.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.model import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Candidates:
    """Bundles of one broker: ``bundles`` int32 (C,) into ``names``, ``traffic`` float64 (C,) in the measure chosen."""

    bundles: IntArray
    traffic: FloatArray
    names: list[str]


def fill(candidates: Candidates, amount: float) -> list[int]:
    """Positions of the candidates taken, in the order taken: by falling traffic, each while it fits into what is left.

    Zero and NaN traffic never fits.
    """
    positive = np.flatnonzero(candidates.traffic > 0)
    order = positive[np.argsort(-candidates.traffic[positive], kind="stable")]
    negated = (-candidates.traffic[order]).tolist()
    if _has_ties(negated):
        order = np.array(sorted(order.tolist(), key=lambda at: _by_name(candidates, at)), dtype=order.dtype)
    taken: list[int] = []
    left, at = amount, 0
    while (at := bisect_left(negated, -left, lo=at)) < len(negated):
        taken.append(int(order[at]))
        left += negated[at]
        at += 1
    return taken


def _has_ties(ordered: list[float]) -> bool:
    return len(set(ordered)) < len(ordered)


def _by_name(candidates: Candidates, at: int) -> tuple[float, str]:
    return -float(candidates.traffic[at]), candidates.names[candidates.bundles[at]]
