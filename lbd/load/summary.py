"""The knowledge of each broker, as numbers for text and JSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from lbd.load.estimate import CPU, Source
from lbd.load.settings import UNIT
from lbd.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.model import Slopes


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

NEIGHBOUR_POINTS = 10.0
"""Background above the others' median by more than this is a neighbour's: brokers alike are a few points apart."""

UNLIKE = 0.25
"""A slope that differs from the others' median by more than this fraction is that of another kind of machine."""


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
    steep = np.where(own, slope * np.array([capacity.get(broker, 1.0) for broker in brokers]), np.nan)
    return [
        BrokerLoad(
            broker,
            STATES.get(source, "unknown"),
            source,
            known.measure,
            _number(slope[at] * UNIT[known.measure]),
            _number(idle[at]),
            _number(above if (above := idle[at] - _others(idle, at)) > NEIGHBOUR_POINTS else np.nan),
            _number(times if abs((times := _times(steep, at)) - 1) > UNLIKE else np.nan),
        )
        for at, (broker, source) in enumerate(zip(brokers, known.sources, strict=True))
    ]


def _times(steep: np.ndarray[tuple[int], np.dtype[np.float64]], at: int) -> float:
    others = _others(steep, at)
    return float(steep[at] / others) if others > 0 else np.nan


def _others(values: np.ndarray[tuple[int], np.dtype[np.float64]], at: int) -> float:
    """Median of what is known of all others; NaN where nothing is."""
    rest = np.delete(values, at)
    rest = rest[np.isfinite(rest)]
    return float(np.median(rest)) if rest.size else np.nan


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
