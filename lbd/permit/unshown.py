"""What moves have brought to brokers whose reports do not show it yet. Pure.

Brokers sample CPU once a minute, and count rates once a statistics interval.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lbd.load import prediction
from lbd.model import Unload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lbd.model import BoolArray, FloatArray, Snapshot
    from lbd.permit.budget import Sent

UNSHOWN_SECONDS = 150.0
"""Two CPU samples and a statistics interval: after that reports show what was moved."""


def borne(sent: Iterable[Sent], since: float, snapshot: Snapshot, scores: FloatArray) -> FloatArray:
    """Points that each broker was given by moves sent from ``since`` (epoch seconds) on, float64 (B,).

    What came from a broker that reports no traffic counts nothing.
    """
    position = snapshot.brokers.index()
    found = np.zeros(len(position))
    for one in sent:
        if one.at < since or one.failed or one.source not in position or one.destination not in position:
            continue
        move = Unload(one.bundle, one.source, one.destination, one.msg_rate, one.throughput)
        points = prediction.points(move, snapshot.brokers, scores, position)
        found[position[one.destination]] += points if math.isfinite(points) else 0.0
    return found


def unshown(scores: FloatArray, sent: Iterable[Sent], snapshot: Snapshot, settled: BoolArray) -> FloatArray:
    """Points that moves of late bring to brokers that have not settled since, float64 (B,)."""
    return np.where(settled, 0.0, borne(sent, snapshot.taken_at - UNSHOWN_SECONDS, snapshot, scores))
