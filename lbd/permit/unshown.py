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
    """Points that each broker was given by moves from ``since`` (epoch seconds) on, float64 (B,).

    ``sent`` is told oldest first. A bundle counts where it was proven to be last. Of a move that has not ended, or
    nobody knows how, it counts where it was to go, once, and where it was before. What came from a broker that reports
    no traffic counts nothing.
    """
    position = snapshot.brokers.index()
    moves = _carried((one for one in sent if one.at >= since), position)
    brokers = _before(moves, snapshot.brokers, position)
    found = np.zeros(len(position))
    for move in moves:
        points = prediction.points(move, brokers, scores, position)
        found[position[move.destination or ""]] += points if math.isfinite(points) else 0.0
    return found


def _carried(sent: Iterable[Sent], position: Mapping[str, int]) -> list[Unload]:
    """From the broker where each bundle was at first, of those in ``position``, to each that may have it now."""
    found: dict[str, list[Unload]] = {}
    for one in sent:
        before = found.get(one.bundle, [])
        if not one.failed and one.owner is None:
            if one.destination not in {move.destination for move in before}:
                found[one.bundle] = [*before, _between(one, one.source, one.destination)]
        elif not one.failed:
            first = next((move.source for move in before if move.source in position), one.source)
            found[one.bundle] = [_between(one, first, one.owner)]
    moves = [move for several in found.values() for move in several if move.source != move.destination]
    return [move for move in moves if move.source in position and move.destination in position]


def _between(one: Sent, source: str, destination: str | None) -> Unload:
    return Unload(one.bundle, source, destination, one.msg_rate, one.throughput)


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
