"""How much a pair's destination takes where it would have to give it away again. Pure, and not Pulsar's: lbd's own.

AvgShedder looks at two brokers at a time. The most and the least loaded one are levelled to their mean, and where most
brokers are cold that mean is far above the rest: the destination is the source of a later pair, and what it was given
moves twice. On three brokers of 4.2.4 one hot broker was levelled by fourteen moves, four and then ten, by way of the
middle one.
"""

from __future__ import annotations

from bisect import bisect_left
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def portion(cold: float, rise: float, scores: Sequence[float], apart: float) -> float:
    """How much of what would lift a destination by ``rise`` points it takes, above 0 and at most 1.

    ``scores`` are those of all brokers that are compared, rising, and ``cold`` is the destination's. Lifted ``apart``
    points or more above the next colder one that is not filled before it, it is lifted to the average of all instead:
    the rest is for the others.
    """
    following = bisect_left(scores, cold) + 1
    if following >= len(scores) or cold + rise - scores[following] < apart:
        return 1.0
    room = fmean(scores) - cold
    return min(room / rise, 1.0) if room > 0 else 1.0
