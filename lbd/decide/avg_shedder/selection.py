"""Which bundles fill a wanted amount: the largest first, each only if it still fits. Pure.

Source: AvgShedder.selectBundleForUnloading. No backtracking; what is taken is subtracted one by one in double, so that
an amount that fits exactly fits here too. That something may be left is lbd's own: Pulsar goes on while anything fits.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbd.decide.candidates import Candidates


def fill(candidates: Candidates, amount: float, spare: float = 0.0) -> list[int]:
    """Positions of the candidates taken, in the order taken: by falling traffic, each while it fits into what is left.

    Once one is taken and no more than ``spare`` is left, that is enough. Zero and NaN traffic never fits. Where costs
    differ, dearer bundles are taken only for what cheaper ones leave.
    """
    positive = np.flatnonzero(candidates.traffic > 0)
    if candidates.costs is None:
        return _filled(candidates, positive, amount, spare)[0]
    taken: list[int] = []
    for cost in np.unique(candidates.costs[positive]):
        if taken and amount <= spare:
            break
        more, amount = _filled(candidates, positive[candidates.costs[positive] == cost], amount, spare)
        taken.extend(more)
    return taken


def _filled(candidates: Candidates, among: NDArray[np.intp], left: float, spare: float) -> tuple[list[int], float]:
    """Those taken among some positions, and how much of the amount is left."""
    order = among[np.argsort(-candidates.traffic[among], kind="stable")]
    negated = (-candidates.traffic[order]).tolist()
    if _has_ties(negated):
        order = np.array(sorted(order.tolist(), key=lambda at: _by_name(candidates, at)), dtype=order.dtype)
    taken: list[int] = []
    at = 0
    while (at := bisect_left(negated, -left, lo=at)) < len(negated):
        taken.append(int(order[at]))
        left += negated[at]
        at += 1
        if left <= spare:
            break
    return taken, left


def _has_ties(ordered: list[float]) -> bool:
    return len(set(ordered)) < len(ordered)


def _by_name(candidates: Candidates, at: int) -> tuple[float, str]:
    return -float(candidates.traffic[at]), candidates.names[candidates.bundles[at]]
