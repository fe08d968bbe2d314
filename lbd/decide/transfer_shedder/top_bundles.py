"""The bundles that a broker of the extensible manager tells of: its largest ones, as its load report has them. Pure.

Source: TopKBundles and NamespaceBundleStats.compareTo: sizes are compared coarsely, bytes received before bytes sent.
Cache sizes, the last thing compared, are not in lbd's columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.model import BYTES_IN, BYTES_OUT, MSG_IN, MSG_OUT
from lbd.reason import Group, Reason

if TYPE_CHECKING:
    from lbd.model import IntArray, Permission, Snapshot

BYTES_RESOLUTION, MESSAGES_RESOLUTION, CONNECTIONS_RESOLUTION = 1e5, 100.0, 500
SYSTEM = "pulsar/system/"

_LIMITS = [reason.code for reason in Reason if reason.group is Group.LIMIT]


def top_bundles(snapshot: Snapshot, permission: Permission, broker: int, most: int) -> IntArray:
    """Rows of a broker's largest bundles, int (K,), the smallest first.

    Resting bundles are among them, and passed over later; those without traffic, of Pulsar's own namespaces, or that no
    policy lets move are not.
    """
    own = snapshot.rows.of(broker)
    rows = np.arange(own.start, own.stop)
    rates, codes = snapshot.rows.rates[rows], permission.barred[snapshot.rows.bundle[rows]]
    told = snapshot.rows.reported[rows] & ((codes == 0) | np.isin(codes, _LIMITS))
    rows = rows[told & (rates[:, BYTES_IN] + rates[:, BYTES_OUT] != 0)]
    rows = rows[[not snapshot.bundles[at].startswith(SYSTEM) for at in snapshot.rows.bundle[rows].tolist()]]
    order = _by_falling_size(snapshot, rows)[:most]
    found: IntArray = rows[order[::-1]].astype(np.int32)
    return found


def _by_falling_size(snapshot: Snapshot, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """Positions; equally large bundles by name (Java: hash order)."""
    rates, counts = snapshot.rows.rates[rows], snapshot.rows.counts[rows]
    columns = zip(
        _rounded(rates[:, BYTES_IN] / BYTES_RESOLUTION),
        _rounded(rates[:, BYTES_OUT] / BYTES_RESOLUTION),
        _rounded((rates[:, MSG_IN] + rates[:, MSG_OUT]) / MESSAGES_RESOLUTION),
        (counts.sum(axis=1) // CONNECTIONS_RESOLUTION).tolist(),
        strict=True,
    )
    sizes = [tuple(-size for size in sizes) for sizes in columns]
    names = [snapshot.bundles[at] for at in snapshot.rows.bundle[rows].tolist()]
    return sorted(range(len(sizes)), key=lambda at: (sizes[at], names[at]))


def _rounded(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
    """Java's ``Math.round``: halves upwards, 0 for NaN."""
    found: list[float] = np.nan_to_num(np.floor(values + 0.5), nan=0.0).tolist()
    return found
