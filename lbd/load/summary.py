"""The knowledge of each broker, as numbers for text and JSON. Pure."""

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
    """One broker. ``slope`` is points of CPU for each MB/s, or each 1,000 msg/s where ``measure`` is ``msg_rate``.

    ``background`` are points of CPU that no traffic makes, ``beside`` those of them that the others do not have: a
    neighbour's. ``unlike`` is how many times the CPU of the others, by their capacity, the same traffic takes; None
    where it is like them. Points and slope are None where nothing is known.
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
        """Slope and background as a person reads them."""
        if self.slope is None:
            return "it is not known what traffic costs it: that has hardly changed, or was not seen for long enough"
        unit = "MB/s" if self.measure == "throughput" else "1,000 msg/s"
        return f"{self.slope:.2f} points for each {unit}, {HOW[self.source]}{self._background}"

    @property
    def _background(self) -> str:
        return "" if self.background is None else f"; {self.background:.0f} points of CPU are no traffic's"

    @property
    def neighbour(self) -> str:
        """Un-sheddable load, by name; empty where there is none."""
        return "" if self.beside is None else f"a co-located process on {self.broker} uses {self.beside:.0f} points"


def loads(brokers: Sequence[str], known: Slopes | None, capacity: Mapping[str, float]) -> list[BrokerLoad]:
    """The learned load of each of a snapshot's brokers; ``capacity`` is what each carries beside a broker of 1."""
    if known is None or known.sources is None or known.background is None:
        return [BrokerLoad(broker, "unknown", Source.UNKNOWN.value, "throughput") for broker in brokers]
    has_source = np.array([source in STATES for source in known.sources])
    slope = np.where(has_source, known.slope[:, CPU], np.nan)
    idle = np.where(has_source, known.background[:, CPU], np.nan)
    own = np.array([source == Source.FITTED.value for source in known.sources])
    size = np.array([capacity.get(broker, 1.0) for broker in brokers])
    times = times_of_others(slope * size, _half_width(known.half_width, size.size) * size, own)
    beside = points_of_neighbours(idle, _half_width(known.background_half_width, size.size))
    return [
        BrokerLoad(
            broker,
            STATES.get(source, "unknown"),
            source,
            known.measure,
            _number(slope[at] * UNIT[known.measure]),
            _number(idle[at]),
            _number(beside[at]),
            _number(times[at]),
        )
        for at, (broker, source) in enumerate(zip(brokers, known.sources, strict=True))
    ]


def _half_width(known: FloatArray | None, brokers: int) -> FloatArray:
    """Of CPU, float64 (B,): infinite where nothing is known, so that nobody is called unlike."""
    return np.full(brokers, np.inf) if known is None else known[:, CPU]


def _number(value: float) -> float | None:
    """Four digits are enough to read."""
    return float(f"{value:.4g}") if np.isfinite(value) else None


def known_text(brokers: Sequence[BrokerLoad]) -> str:
    """For how many brokers the load is known, or taken from others."""
    known, pooled = (sum(one.state == state for one in brokers) for state in ("known", "pooled"))
    text = f"known of {known} of {counted(len(brokers), 'broker')}"
    return f"{text}, taken from the others for {pooled}" if pooled else text


def summary(brokers: Sequence[BrokerLoad]) -> str:
    """For how many brokers the load is known, and what is assumed for the rest, as one sentence."""
    unknown = sum(one.state == "unknown" for one in brokers)
    if unknown == len(brokers):
        text = "what traffic costs brokers is not known: a destination is taken to gain its source's points"
        return f"{text} by the share of traffic that moves"
    rest = f", not known of {unknown}: those are taken to gain their source's points by share of traffic"
    return f"what traffic costs is {known_text(brokers)}{rest if unknown else ''}"
