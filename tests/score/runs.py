"""Builders of runs small enough to count by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from lbd.score.scorecard import ClusterTruth, Moved, Scorecard, Trace, scorecard

EVEN, OVER_LOW, OVER_HIGH = (50.0, 50.0), (60.0, 40.0), (80.0, 20.0)


def seen(at: int, points: tuple[float | None, ...]) -> ClusterTruth:
    """A look in the at-th minute at brokers of these scores (None: away), which carry 1,000 bytes/s together."""
    present = np.array([one is not None for one in points])
    carried = np.where(present, 1000.0 / present.sum(), 0.0)
    known = np.array([one for one in points if one is not None])
    return ClusterTruth(60.0 * at, known, known[::-1] * 2, present, carried)


def run(*points: tuple[float | None, ...], moves: tuple[Moved, ...] = (), **changes: Any) -> Scorecard:
    """The card of a run with a look each minute."""
    looks = tuple(seen(at, each) for at, each in enumerate(points))
    return scorecard(Trace(looks, moves, **changes), 15, 40)


def move(seconds: float, bundle: str = "b", throughput: float = 100, **changes: Any) -> Moved:
    """A move of a tenth of the traffic."""
    return Moved(seconds, bundle, "x", "y", throughput, **changes)
