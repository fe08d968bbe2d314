"""What moves have brought to brokers whose reports do not show it yet. Pure.

Brokers sample CPU once a minute, and count rates once a statistics interval.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load import prediction
from lbd.model import BYTES_IN, MSG_IN, Unload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lbd.model import BoolArray, Brokers, FloatArray, Snapshot
    from lbd.permit.budget import Sent

UNSHOWN_SECONDS = 150.0
"""Two CPU samples and a statistics interval: after that reports show what was moved."""


def borne(sent: Iterable[Sent], since: float, snapshot: Snapshot, scores: FloatArray) -> FloatArray:
    """Points that each broker was given by moves sent from ``since`` (epoch seconds) on, float64 (B,).

    What came from a broker that reports no traffic counts nothing.
    """
    position = snapshot.brokers.index()
    lately = [one for one in sent if one.at >= since and not one.failed]
    moves = [
        Unload(one.bundle, one.source, one.destination, one.msg_rate, one.throughput)
        for one in lately
        if one.source in position and one.destination in position
    ]
    brokers = _before(moves, snapshot.brokers, position)
    found = np.zeros(len(position))
    for move in moves:
        points = prediction.points(move, brokers, scores, position)
        found[position[move.destination or ""]] += points if math.isfinite(points) else 0.0
    return found


def _before(moves: Iterable[Unload], brokers: Brokers, position: Mapping[str, int]) -> Brokers:
    """The brokers with as much traffic as has left them at least: those whose reports show the moves have less now,
    of which each would be too large a share.
    """
    left = np.zeros((len(position), 2))
    for move in moves:
        left[position[move.source]] += move.msg_rate, move.throughput
    rates = brokers.rates.copy()
    with np.errstate(invalid="ignore", over="ignore"):  # what a report may hold
        for first, gone in ((MSG_IN, left[:, 0]), (BYTES_IN, left[:, 1])):
            missing = gone - rates[:, first] - rates[:, first + 1]
            rates[:, first] += np.where(missing > 0, missing, 0.0)
    return replace(brokers, rates=rates)


def borne_lately(sent: Iterable[Sent], snapshot: Snapshot, scores: FloatArray) -> FloatArray:
    """Points that each broker was given by moves which its report may not show yet, float64 (B,)."""
    return borne(sent, snapshot.taken_at - UNSHOWN_SECONDS, snapshot, scores)


def unshown(scores: FloatArray, sent: Iterable[Sent], snapshot: Snapshot, settled: BoolArray) -> FloatArray:
    """Points that moves of late bring to brokers that have not settled since, float64 (B,)."""
    return np.where(settled, 0.0, borne_lately(sent, snapshot, scores))
