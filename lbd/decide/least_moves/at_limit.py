"""How much of what a broker at the limit of its CPU uses is not its bundles'. Pure.

Nothing that it gives away shows in its own usage while more is asked of it than it has. What bundles brought to brokers
with the same limit does tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.least_moves.estimating import usual_percent
from lbd.load.effects import DEVIATIONS
from lbd.load.fit import SATURATED_PERCENT
from lbd.load.linear import CPU

if TYPE_CHECKING:
    from lbd.decide.candidates import Offers
    from lbd.decide.least_moves.ground import Ground
    from lbd.model import FloatArray


def other_work(ground: Ground, offers: Offers, broker: int) -> float:
    """Points of a broker that are at least not those of bundles that may move; 0 below its limit, or untold.

    What moves did elsewhere counts at the upper end of its 95 % interval.
    """
    snapshot, known = offers.snapshot, offers.permission.slopes
    used = float(usual_percent(snapshot, known)[broker, CPU])
    if known is None or known.effect is None or used < SATURATED_PERCENT:
        return 0.0
    limits = snapshot.brokers.limit[:, CPU]
    carried = float(ground.drives[ground.owner == broker, 0].sum())
    left = used - _most(known.effect[limits == limits[broker]]) * carried
    return float(ground.points[broker, 0]) * max(left, 0.0) / used


def _most(effects: FloatArray) -> float:
    """The upper end of what all these moves tell together, float64 (n, 2) each; infinite of none."""
    slope, deviation = effects[np.isfinite(effects).all(axis=1)].T
    if not slope.size:
        return np.inf
    weight = deviation**-2.0
    total = float(weight.sum())
    mean = float((weight * slope).sum()) / total
    return max(mean, 0.0) + float(DEVIATIONS / np.sqrt(total))
