"""The learned load of each broker, as numbers for text and JSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from lbd.load.estimate import CPU, Source
from lbd.load.settings import UNIT
from lbd.load.unlike import points_of_neighbours, times_of_others
from lbd.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.model import FloatArray, Slopes


State = Literal["known", "pooled", "unknown"]

STATES: Mapping[str, State] = {
    Source.FITTED.value: "known",
    Source.GIVEN.value: "known",
    Source.CLASS.value: "pooled",
    Source.POOLED.value: "pooled",
}

HOW = {
    Source.FITTED.value: "learned from its own samples",
    Source.GIVEN.value: "given in load.brokers",
    Source.CLASS.value: "learned from brokers with the same limits",
    Source.POOLED.value: "learned from the other brokers",
}


@dataclass(frozen=True)
class BrokerLoad:
    """Load of one broker. ``slope`` is points of CPU per MB/s, or per 1,000 msg/s where ``measure`` is ``msg_rate``.

    ``background`` are points of CPU that no traffic makes, ``beside`` those of them that the others do not have: a
    neighbour's. ``unlike`` is the CPU for the same traffic over that of the others, by their capacity; None where it is
    like them. Points and slope are None where unknown.
    """

    broker: str
    state: State
    source: str
    measure: str
    slope: float | None = None
    background: float | None = None
    beside: float | None = None
    unlike: float | None = None

    @property
    def words(self) -> str:
        """Slope and background in words."""
        if self.slope is None:
            return "it is not known what traffic costs it: that has hardly changed, or was not seen for long enough"
        unit = "MB/s" if self.measure == "throughput" else "1,000 msg/s"
        return f"{self.slope:.2f} points for each {unit}, {HOW[self.source]}{self._background}"

    @property
    def _background(self) -> str:
        return "" if self.background is None else f"; {self.background:.0f} points of CPU are no traffic's"

    @property
    def neighbour(self) -> str:
        """Load of a neighbour, by name; empty where there is none."""
        return "" if self.beside is None else f"a co-located process on {self.broker} uses {self.beside:.0f} points"


def loads(brokers: Sequence[str], slopes: Slopes | None, capacity: Mapping[str, float]) -> list[BrokerLoad]:
    """Learned load of each of a snapshot's brokers; ``capacity`` is that of each beside a broker of 1."""
    if slopes is None or slopes.sources is None or slopes.background is None:
        return [BrokerLoad(broker, "unknown", Source.UNKNOWN.value, "throughput") for broker in brokers]
    has_source = np.array([source in STATES for source in slopes.sources])
    slope = np.where(has_source, slopes.slope[:, CPU], np.nan)
    idle = np.where(has_source, slopes.background[:, CPU], np.nan)
    own = np.array([source == Source.FITTED.value for source in slopes.sources])
    size = np.array([capacity.get(broker, 1.0) for broker in brokers])
    times = times_of_others(slope * size, _half_width(slopes.half_width, size.size) * size, own)
    beside = points_of_neighbours(idle, _half_width(slopes.background_half_width, size.size))
    return [
        BrokerLoad(
            broker,
            STATES.get(source, "unknown"),
            source,
            slopes.measure,
            _number(slope[row] * UNIT[slopes.measure]),
            _number(idle[row]),
            _number(beside[row]),
            _number(times[row]),
        )
        for row, (broker, source) in enumerate(zip(brokers, slopes.sources, strict=True))
    ]


def _half_width(half_width: FloatArray | None, brokers: int) -> FloatArray:
    """Half width of CPU, float64 (B,): infinite where it is unknown, so that no broker is called unlike."""
    return np.full(brokers, np.inf) if half_width is None else half_width[:, CPU]


def _number(value: float) -> float | None:
    """A number with four digits."""
    return float(f"{value:.4g}") if np.isfinite(value) else None


def known_text(brokers: Sequence[BrokerLoad]) -> str:
    """Number of brokers whose load is known, or taken from others."""
    own, pooled = (sum(broker.state == state for broker in brokers) for state in ("known", "pooled"))
    text = f"known of {own} of {counted(len(brokers), 'broker')}"
    return f"{text}, taken from the others for {pooled}" if pooled else text


def summary(brokers: Sequence[BrokerLoad]) -> str:
    """Number of brokers with a known load, and the assumption for the rest, as one sentence."""
    unknown = sum(broker.state == "unknown" for broker in brokers)
    if unknown == len(brokers):
        text = "what traffic costs brokers is not known: a destination is taken to gain its source's points"
        return f"{text} by the share of traffic that moves"
    rest = f", not known of {unknown}: those are taken to gain their source's points by share of traffic"
    return f"what traffic costs is {known_text(brokers)}{rest if unknown else ''}"
