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
    from numpy.typing import NDArray

    from lbd.model import BoolArray, FloatArray, IntArray, Permission, Snapshot

BYTES_RESOLUTION, MESSAGES_RESOLUTION, CONNECTIONS_RESOLUTION = 1e5, 100.0, 500
SYSTEM = "pulsar/system"

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
    idle = rates[:, BYTES_IN] + rates[:, BYTES_OUT] == 0
    rows = rows[told & ~idle & ~_of_system(snapshot)[snapshot.rows.bundle[rows]]]
    found: IntArray = rows[_by_size(snapshot, rows)[-most:]].astype(np.int32)
    return found


def _of_system(snapshot: Snapshot) -> BoolArray:
    """Which bundles are of Pulsar's own namespace, bool (N,)."""
    names = snapshot.namespaces
    at = names.names.index(SYSTEM) if SYSTEM in names.names else -1
    found: BoolArray = names.of == at
    return found


def _by_size(snapshot: Snapshot, rows: NDArray[np.int64]) -> NDArray[np.intp]:
    """Positions, the smallest first; equally large bundles by name (Java: hash order)."""
    rates, counts = snapshot.rows.rates[rows], snapshot.rows.counts[rows]
    names = np.array([snapshot.bundles[at] for at in snapshot.rows.bundle[rows].tolist()], dtype=np.str_)
    return np.lexsort(
        (
            names,
            counts.sum(axis=1) // CONNECTIONS_RESOLUTION,
            _rounded((rates[:, MSG_IN] + rates[:, MSG_OUT]) / MESSAGES_RESOLUTION),
            _rounded(rates[:, BYTES_OUT] / BYTES_RESOLUTION),
            _rounded(rates[:, BYTES_IN] / BYTES_RESOLUTION),
        )
    )


def _rounded(values: FloatArray) -> FloatArray:
    """Java's ``Math.round``: halves upwards, 0 for NaN."""
    found: FloatArray = np.nan_to_num(np.floor(values + 0.5), nan=0.0)
    return found
