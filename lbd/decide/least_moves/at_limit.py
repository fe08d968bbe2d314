"""How much of what a broker at the limit of its CPU uses is not its bundles'. Pure.

Nothing that it gives away shows in its own usage while more is asked of it than it has. What bundles brought to brokers
with the same limit does tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.decide.least_moves.estimating import usual_percent
from lbd.load.effects import together
from lbd.load.fit import SATURATED_PERCENT
from lbd.load.linear import CPU

if TYPE_CHECKING:
    from lbd.decide.candidates import Offers
    from lbd.decide.least_moves.ground import Ground


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
    left = used - together(known.effect[limits == limits[broker]]).interval[1] * carried
    return float(ground.points[broker, 0]) * max(left, 0.0) / used
