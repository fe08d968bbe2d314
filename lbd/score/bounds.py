"""What no plan can beat. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.model import FloatArray, IntArray

ROUNDING = 1e-9
"""Sums of the same sizes in another order differ in their last bits."""


def fewest_moves(sizes: FloatArray, owner: IntArray, room: FloatArray) -> int:
    """How many bundles must at least change brokers until none carries more than its room.

    ``sizes`` is float64 (N,), ``owner`` int32 (N,) into ``room``, float64 (B,) in the same unit. From each broker the
    largest bundles are taken until the rest fits; where they would go is not asked, so a plan may need more moves,
    never fewer (removal bound of load rebalancing: Aggarwal, Motwani, Zhu, SPAA 2003).
    """
    order = np.lexsort((-sizes, owner))
    sizes, owner = sizes[order], owner[order]
    total = np.bincount(owner, sizes, room.size)
    start = np.searchsorted(owner, np.arange(room.size))
    before = np.concatenate(([0.0], np.cumsum(sizes)))
    taken = before[:-1] - before[start][owner]
    left = total[owner] - taken
    return int(np.count_nonzero(left > room[owner] * (1 + ROUNDING) + ROUNDING))
