"""How much brokers carry beside each other, and what that tells of those whose slope nothing else tells. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.load.linear import Source
from lbd.load.theil_sen import Line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.load.settings import LoadSettings

GIVEN_HALF_WIDTH = 0.25
"""Of a slope that was given: it is taken to be right within a quarter, as one that is learned must be."""


def capacities(limits: Mapping[str, float], given: LoadSettings) -> dict[str, float]:
    """By broker: what is given, else its limit of CPU by the lowest one, for usage is in percent of that; else 1."""
    if given.tells_capacity:
        return {broker: given.capacity(broker) for broker in limits}
    if not all(0 < limit < np.inf for limit in limits.values()):
        return dict.fromkeys(limits, 1.0)
    return {broker: limit / min(limits.values()) for broker, limit in limits.items()}


def completed(
    found: Sequence[tuple[Source, Line]],
    brokers: Sequence[str],
    capacity: Mapping[str, float],
    given: LoadSettings,
) -> list[tuple[Source, Line]]:
    """Slopes of CPU with those given, where a broker's own samples tell none, and of the others by their capacity.

    Only where anything is given: one fitted broker does not speak for others of which nothing says that they are alike
    (on brokers of 0.4 and 0.55 cores that erred by 3 points on average, where nothing was to be claimed).
    """
    told = [_given(one, given.slope(broker)) for one, broker in zip(found, brokers, strict=True)]
    known = [
        line.slope * capacity[broker]
        for (source, line), broker in zip(told, brokers, strict=True)
        if source in {Source.FITTED, Source.GIVEN}
    ]
    if not known or not given.brokers:
        return told
    middle = float(np.median(known))
    off = max(GIVEN_HALF_WIDTH * middle, *(abs(one - middle) for one in known))
    return [
        (Source.POOLED, _by_capacity(middle, off, capacity[broker])) if source is Source.UNKNOWN else (source, line)
        for (source, line), broker in zip(told, brokers, strict=True)
    ]


def _given(found: tuple[Source, Line], slope: float | None) -> tuple[Source, Line]:
    source, line = found
    if slope is None or source in {Source.FITTED, Source.UNLIMITED}:
        return found
    noise = line.noise if np.isfinite(line.noise) else 0.0
    return Source.GIVEN, Line(slope, GIVEN_HALF_WIDTH * slope, noise)


def _by_capacity(slope: float, off: float, capacity: float) -> Line:
    return Line(slope / capacity, off / capacity, 0.0)
