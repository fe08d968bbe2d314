"""LeastLongTermMessageRate: the broker whose bundles had the fewest messages a second for long. Pure.

Source: LeastLongTermMessageRate.java (2.10 to 5.0.1), the default of the modular load manager. Bundles that were placed
since the last round of reports count with their own long-term rates, so one broker is not given all of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lbd.place.by_hash import by_hash
from lbd.place.placed import Placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.place.placed import PlaceMemory
    from lbd.place.seen import Seen
    from lbd.place.settings import LeastLongTermMessageRateSettings


UNSEEN_MSG_RATE = 100.0
"""Messages/s, in + out, of a bundle that no report has told of: DEFAULT_MESSAGE_RATE, 50 each way."""


def choose(
    bundle: str, candidates: Sequence[str], seen: Seen, memory: PlaceMemory, settings: LeastLongTermMessageRateSettings
) -> Placed:
    """The lowest rate below the overload threshold; where every broker is above it, one of all."""
    if not candidates:
        return Placed(None, "no candidate", memory)
    memory = memory.at(seen.taken_at)
    rates = {broker: _rate(broker, seen, memory, settings) for broker in candidates}
    least = min(rates.values())
    choices = tuple(sorted(broker for broker, rate in rates.items() if rate == least))
    broker = by_hash(bundle, choices)
    return Placed(broker, _reason(least, settings), memory.after(bundle, broker, _own(bundle, seen)), choices)


def _rate(broker: str, seen: Seen, memory: PlaceMemory, settings: LeastLongTermMessageRateSettings) -> float:
    """Messages/s, summed in Pulsar's order; infinite for one that is overloaded or gives no report."""
    at = seen.index.get(broker)
    if at is None or seen.usage[at] > settings.broker_overloaded_threshold_percentage / 100.0:
        return math.inf
    return memory.preallocated.get(broker, 0.0) + float(seen.long_rates[at, 0] + seen.long_rates[at, 1])


def _own(bundle: str, seen: Seen) -> float:
    return seen.bundle_rates.get(bundle, UNSEEN_MSG_RATE)


def _reason(least: float, settings: LeastLongTermMessageRateSettings) -> str:
    if math.isinf(least):
        return f"every candidate is above {settings.broker_overloaded_threshold_percentage:g} points: one by hash"
    return f"lowest long-term rate, {least:,.0f} msg/s"
