"""LeastResourceUsageWithWeight: one of the brokers well below the average, by a moving average of their usage. Pure.

Source: LeastResourceUsageWithWeight.java of the modular manager (LB/impl) and of the extensible one
(LB/extensions/strategy), 2.11 to 5.0.1. PIP-364 names its weakness: when no broker is well below the average, it draws
among all, overloaded ones included.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.place.by_hash import by_hash
from lbd.place.placed import Placed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.place.placed import PlaceMemory
    from lbd.place.seen import Seen
    from lbd.place.settings import LeastResourceUsageExtensibleSettings, LeastResourceUsageSettings


def choose(
    bundle: str, candidates: Sequence[str], seen: Seen, memory: PlaceMemory, settings: LeastResourceUsageSettings
) -> Placed:
    """The rule of the modular manager: averages advance once for each answer, and only those of the candidates."""
    known = [broker for broker in candidates if broker in seen.index]
    usage = {broker: _advanced(broker, seen, memory, settings) for broker in known}
    return _chosen(bundle, candidates, usage, replace(memory, usage={**memory.usage, **usage}), settings)


def choose_extensible(
    bundle: str,
    candidates: Sequence[str],
    seen: Seen,
    memory: PlaceMemory,
    settings: LeastResourceUsageExtensibleSettings,
) -> Placed:
    """The rule of the extensible manager: averages are the brokers' own; one without load data is never well below."""
    known = {broker: float(seen.smoothed[seen.index[broker]]) for broker in candidates if broker in seen.index}
    usage = {broker: value for broker, value in known.items() if not math.isnan(value)}
    return _chosen(bundle, candidates, usage, memory, settings)


def _advanced(broker: str, seen: Seen, memory: PlaceMemory, settings: LeastResourceUsageSettings) -> float:
    """A broker without bundles or messages has restarted or is idle: what was before says nothing."""
    at = seen.index[broker]
    now, before = float(seen.usage[at]), memory.usage.get(broker)
    if before is None or seen.bundles[at] == 0 or not seen.msg_rates[at].any():
        return now
    history = settings.history_resource_percentage
    return before * history + (1 - history) * now


def _chosen(
    bundle: str,
    candidates: Sequence[str],
    usage: Mapping[str, float],
    memory: PlaceMemory,
    settings: LeastResourceUsageExtensibleSettings,
) -> Placed:
    if not candidates:
        return Placed(None, "no candidate", memory)
    average = math.nan if not usage else sum(usage.values()) / len(usage)
    below = settings.average_resource_usage_difference_threshold_percentage
    best = tuple(sorted(broker for broker, used in usage.items() if used + below / 100.0 <= average))
    told = f"{below:g} points below the average of {average * 100:.1f}"
    reason = f"one of {len(best)} at least {told}" if best else f"none is {told}: one of all by hash"
    choices = best or tuple(sorted(candidates))
    return Placed(by_hash(bundle, choices), reason, memory, choices)
