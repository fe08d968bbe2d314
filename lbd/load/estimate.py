"""The load model: a broker uses of a resource its background plus a slope times the traffic that it owns. Pure.

Usage is in percent of the broker's limit, as the score's is. CPU follows messages or bytes, whichever explains it
better; bandwidth the bytes of its direction. Heap and direct memory follow no traffic: they are background only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Literal

import numpy as np

from lbd.load.scoring import SCORED
from lbd.model import BYTES_IN, BYTES_OUT, MSG_IN, MSG_OUT, RESOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.load.scoring import Weights
    from lbd.model import Brokers, FloatArray, IntArray, Snapshot, Unload


CPU, BANDWIDTH_IN, BANDWIDTH_OUT = (RESOURCES.index(name) for name in ("cpu", "bandwidth_in", "bandwidth_out"))
DRIVEN = (CPU, BANDWIDTH_IN, BANDWIDTH_OUT)
"""Columns of :data:`~lbd.model.RESOURCES` that follow traffic."""

Measure = Literal["throughput", "msg_rate"]


class Source(Enum):
    """Origin of a slope."""

    FITTED = "fitted"
    """This broker's own samples, where they determine it well, or contradict the shared slope of similar brokers."""
    CLASS = "class"
    """Samples of all brokers with the same limits."""
    POOLED = "pooled"
    """Samples of all brokers, unlike ones included, by their capacity."""
    GIVEN = "given"
    """Given by an operator, a calibration, or a simulation."""
    UNKNOWN = "unknown"
    """The slope is unknown. It is stored as 0, and nothing may depend on it."""
    UNLIMITED = "no-limit"
    """The broker has no limit of this resource, so that it makes no score; the slope is 0."""
    MEMORY = "background-only"


@dataclass(frozen=True, eq=False)
class LoadModel:
    """Background and slope of each broker and resource, (B, 5) in the order of :data:`~lbd.model.RESOURCES`.

    ``brokers`` are sorted. ``background`` is in percent of the limit; ``slope`` in percent for each byte/s (CPU: each
    message/s where ``measure`` is ``msg_rate``, in + out in both cases); ``half_width`` is half of the slope's 95 %
    interval, ``background_half_width`` that of the background; ``noise`` the standard deviation of a sample in percent.
    All float64; of an unknown slope these three are infinite, and the background of a broker without a sample is NaN.
    ``sources`` has a :class:`Source` for each slope, ``samples``, int32 (B,), the number in each broker's own fit.
    """

    brokers: tuple[str, ...]
    background: FloatArray
    slope: FloatArray
    half_width: FloatArray
    background_half_width: FloatArray
    noise: FloatArray
    sources: tuple[tuple[Source, ...], ...]
    samples: IntArray
    measure: Measure = "throughput"

    @property
    def shown_unit(self) -> tuple[str, float]:
        """The traffic for which slopes are shown, in words and in the unit of ``slope``."""
        return ("MiB/s", 1024.0 * 1024.0) if self.measure == "throughput" else ("1,000 msg/s", 1000.0)

    def of(self, brokers: Sequence[str]) -> LoadModel:
        """The model of these brokers. KeyError for one that it does not have."""
        position = {broker: row for row, broker in enumerate(self.brokers)}
        rows = [position[broker] for broker in brokers]
        return replace(
            self,
            brokers=tuple(brokers),
            background=self.background[rows],
            slope=self.slope[rows],
            half_width=self.half_width[rows],
            background_half_width=self.background_half_width[rows],
            noise=self.noise[rows],
            sources=tuple(self.sources[row] for row in rows),
            samples=self.samples[rows],
        )

    def unknown(self, weights: Weights) -> tuple[tuple[str, str], ...]:
        """Broker and resource of each unknown slope, for resources with a weight."""
        weighed = [column for column in SCORED if weights.row()[column] > 0]
        return tuple(
            (broker, RESOURCES[column])
            for broker, sources in zip(self.brokers, self.sources, strict=True)
            for column in weighed
            if sources[column] is Source.UNKNOWN
        )


def fixed_model(brokers: Sequence[str], background: FloatArray, slope: FloatArray) -> LoadModel:
    """Model with given ``background``, float64 (B,), in points of CPU, and ``slope``, (B,), in points per byte/s."""
    size = len(brokers)
    columns = np.zeros((size, len(RESOURCES)))
    slopes = columns.copy()
    slopes[:, CPU] = slope
    idle = columns.copy()
    idle[:, CPU] = background
    row = tuple(
        Source.GIVEN if column == CPU else Source.UNLIMITED if column in DRIVEN else Source.MEMORY
        for column in range(len(RESOURCES))
    )
    samples = np.zeros(size, dtype=np.int32)
    return LoadModel(tuple(brokers), idle, slopes, columns, columns, columns, (row,) * size, samples)


def carried(rates: FloatArray, owner: IntArray, brokers: int) -> FloatArray:
    """Traffic of each broker: float64 (B, 4) out of bundle rates (N, 4) and their owners, int32 (N,)."""
    return np.stack([np.bincount(owner, column, brokers) for column in rates.T], axis=1)


def driving(traffic: FloatArray, measure: Measure) -> FloatArray:
    """Driving traffic of each resource, float64 (B, 5), of traffic (B, 4): its messages/s or bytes/s, 0 for memory."""
    drives = np.zeros((len(traffic), len(RESOURCES)))
    incoming, outgoing = (MSG_IN, MSG_OUT) if measure == "msg_rate" else (BYTES_IN, BYTES_OUT)
    drives[:, CPU] = traffic[:, incoming] + traffic[:, outgoing]
    drives[:, BANDWIDTH_IN] = traffic[:, BYTES_IN]
    drives[:, BANDWIDTH_OUT] = traffic[:, BYTES_OUT]
    return drives


def background_as_recorded(model: LoadModel, percent: FloatArray, traffic: FloatArray) -> FloatArray:
    """Remainder of reported usages, (B, 5), without the model's share for the traffic (B, 4)."""
    return percent - model.slope * driving(traffic, model.measure)


def usage(background: FloatArray, slope: FloatArray, drives: FloatArray) -> FloatArray:
    """Percent that brokers use of a resource, in any one shape: background plus slope times driving traffic."""
    percent: FloatArray = np.maximum(background + slope * drives, 0.0)
    return percent


def scores(percent: FloatArray, weights: Weights) -> FloatArray:
    """Score of each broker in points, float64 (B,), of usages in percent, (B, 5); NaN where none is known."""
    points: FloatArray = np.fmax.reduce((percent * weights.row())[:, SCORED], axis=1)
    return points


# --- share: rise of a broker's score with the traffic of a bundle moved to it
# The estimate is the source's score in proportion to the share of its traffic that moves. It counts none of the
# source's load as background, so on similar machines it errs on the high side, and a destination is refused rather than
# overloaded. A destination weaker than its source gets more points than this: its capacity is not known here.


def points(unload: Unload, brokers: Brokers, scores: FloatArray, position: Mapping[str, int]) -> float:
    """Points that the unload is expected to add to a destination like its source; inf where its share is unknown.

    ``scores`` is float64 (B,) in points, ``position`` the row of each broker in it.
    """
    source = position[unload.source]
    moved = share(unload, brokers, source)
    return float(scores[source]) * min(moved, 1.0) if math.isfinite(moved) else math.inf


def share(unload: Unload, brokers: Brokers, broker: int) -> float:
    """Traffic of the unload over that of a broker, by messages or bytes, whichever is more; inf over nothing."""
    rates = brokers.rates[broker]
    messages, volume = float(rates[0] + rates[1]), float(rates[2] + rates[3])
    shares = [moved / total for moved, total in ((unload.msg_rate, messages), (unload.throughput, volume)) if total > 0]
    return max(shares, default=math.inf)


def smallest_gap(hot: tuple[float, float], cold: tuple[float, float]) -> float:
    """Points that must remain between two brokers, each ``(score, traffic)``, if their traffic were levelled.

    A score falls and rises at most in proportion to the traffic taken from or given to its broker; a destination
    without traffic is assumed to cost the same as the source. The remainder follows no traffic.
    """
    gap = hot[0] - cold[0]
    moved = (hot[1] - cold[1]) / 2
    if not (moved > 0 and math.isfinite(moved)):
        return gap
    fall = hot[0] / hot[1]
    rise = max(cold[0] / cold[1], fall) if cold[1] > 0 else fall
    return gap - (fall + rise) * moved


# --- baseline load: a broker's traffic at one time, by which bundles are weighed while it is being drained
# A bundle is weighed by its share of its broker's traffic. On a nearly empty broker the last bundle has all of the
# traffic, and would count as all of the load; so the traffic at the start is kept.


@dataclass(frozen=True)
class Carried:
    """``score`` in points, ``msg_rate`` in messages/s and ``throughput`` in bytes/s (in + out), ``bundles`` owned."""

    score: float
    msg_rate: float
    throughput: float
    bundles: int


def carried_by(snapshot: Snapshot, scores: FloatArray, broker: str, bundles: int) -> Carried:
    """Load of a broker in this round; ``scores`` is float64 (B,), ``bundles`` the number that it owns."""
    row = snapshot.brokers.index()[broker]
    rates = snapshot.brokers.rates[row]
    messages, volume = float(rates[MSG_IN] + rates[MSG_OUT]), float(rates[BYTES_IN] + rates[BYTES_OUT])
    return Carried(float(scores[row]), messages, volume, bundles)


def as_it_was(snapshot: Snapshot, scores: FloatArray, broker: str, then: Carried) -> tuple[Snapshot, FloatArray]:
    """The round and its scores with the traffic and score that one broker had ``then``.

    A broker without traffic gets one message and one byte a second: its bundles certainly weigh nothing.
    """
    row = snapshot.brokers.index()[broker]
    rates, points = snapshot.brokers.rates.copy(), scores.copy()
    rates[row] = 0.0
    rates[row, MSG_IN], rates[row, BYTES_IN] = then.msg_rate or 1.0, then.throughput or 1.0
    points[row] = then.score
    return snapshot.with_brokers(replace(snapshot.brokers, rates=rates)), points
