"""Where brokers place bundles that nobody owns: what lbd finds there after a broker went. Pure.

``random``: AvgShedder, which has no plan for them, draws among the candidates. ``least-message-rate``:
LeastLongTermMessageRate, the default before Pulsar 5.0, takes the broker with the least messages, those counted that it
has just been given; brokers above 85 points only where all are. The filters before it (an even number of bundles) are
left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray, IntArray

Placement = Literal["random", "least-message-rate"]

OVERLOADED_POINTS = 85.0
"""loadBalancerBrokerOverloadedThresholdPercentage."""


def at_random(candidates: BoolArray, random: np.random.Generator) -> IntArray:
    """A broker for each bundle: ``candidates`` is bool (K, B) with at least one in each row; int32 (K,)."""
    draws = random.random(candidates.shape)
    chosen: IntArray = np.argmax(np.where(candidates, draws, -1.0), axis=1).astype(np.int32)
    return chosen


def least_message_rate(candidates: BoolArray, rates: FloatArray, carried: FloatArray, points: FloatArray) -> IntArray:
    """The same by messages/s: ``rates`` is float64 (K,), ``carried`` and ``points`` are float64 (B,)."""
    carried, chosen = carried.copy(), np.zeros(len(candidates), dtype=np.int32)
    for at, able in enumerate(candidates):
        healthy = able & (points <= OVERLOADED_POINTS)
        chosen[at] = np.argmin(np.where(healthy if healthy.any() else able, carried, np.inf))
        carried[chosen[at]] += rates[at]
    return chosen
