"""How far a broker's score rises with the traffic of a bundle moved to it. Pure.

The estimate is the source's score in proportion to the share of its traffic that moves: it takes none of the source's
load for background, so on like machines it errs on the high side, and a destination is refused rather than overloaded.
A destination weaker than its source gets more points than this says: what a machine can carry is not known here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.model import Brokers, FloatArray, Unload


def points(unload: Unload, brokers: Brokers, scores: FloatArray, position: Mapping[str, int]) -> float:
    """Points that the unload is expected to add to a destination like its source; inf when nothing tells.

    ``scores`` is float64 (B,) in points, ``position`` where each broker stands in it.
    """
    source = position[unload.source]
    rates = brokers.rates[source]
    messages, volume = float(rates[0] + rates[1]), float(rates[2] + rates[3])
    shares = [moved / total for moved, total in ((unload.msg_rate, messages), (unload.throughput, volume)) if total > 0]
    share = max(shares, default=math.inf)
    score = float(scores[source])
    return score * min(share, 1.0) if math.isfinite(share) else math.inf


def gap_left_at_best(hot: tuple[float, float], cold: tuple[float, float]) -> float:
    """Points that must remain between two brokers, each ``(score, traffic)``, if their traffic were levelled.

    A score falls at most in proportion to the traffic taken from its broker, and rises at most so with what it is
    given; a destination without traffic is taken to cost what the source does. What remains then is no traffic's.
    """
    gap = hot[0] - cold[0]
    moved = (hot[1] - cold[1]) / 2
    if not (moved > 0 and math.isfinite(moved)):
        return gap
    fall = hot[0] / hot[1]
    rise = max(cold[0] / cold[1], fall) if cold[1] > 0 else fall
    return gap - (fall + rise) * moved
