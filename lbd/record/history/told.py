"""Of a round in which brokers tell of their largest bundles only, what they told. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import Rows

if TYPE_CHECKING:
    from lbd.model import Snapshot


def told(snapshot: Snapshot) -> Snapshot:
    """The round without bundles whose rates are unknown: kept as 0, who learns would take them for idle."""
    rows = snapshot.rows
    if not snapshot.partial or rows.reported.all():
        return snapshot
    kept = np.flatnonzero(rows.reported)
    there, position = np.unique(rows.bundle[kept], return_inverse=True)
    counts = rows.count(rows.reported)
    found = Rows(
        start=np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
        bundle=position.astype(np.int32),
        rates=rows.rates[kept],
        counts=rows.counts[kept],
        reported=rows.reported[kept],
        listed=rows.listed[kept],
    )
    return replace(snapshot, bundles=[snapshot.bundles[at] for at in there.tolist()], rows=found)
