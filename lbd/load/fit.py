"""From samples to a load model: each broker's own where they tell enough, else those of its like, else all. Pure.

Slopes are shared for a broker of capacity 1: half as steep on one of 2 (``capacity.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.capacity import capacities, completed
from lbd.load.linear import CPU, DRIVEN, LoadModel, Measure, Source, driving
from lbd.load.settings import NOTHING_KNOWN
from lbd.load.theil_sen import FLAT_SHARE, UNKNOWN, WIDTH, Line, line
from lbd.model import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lbd.load.samples import BrokerSamples
    from lbd.load.settings import LoadSettings
    from lbd.model import FloatArray

CONFIDENT_SHARE = 0.25
CONFIDENT_POINTS = 1.5
"""A slope is known when half of its interval is a quarter of it at most, or so many points for the busiest broker."""

OTHERS_SHARE = 0.25
"""Of the brokers that are sure of a slope of their own so many may differ from the shared one, and it is one still."""

SATURATED_PERCENT = 98.0
"""At its limit a broker uses no more, however much it is given."""

RECENT_SAMPLES = 30
"""Half an hour, over which background is taken: neighbours come and go."""

MEASURE_GAIN = 0.9
"""Bytes unless messages leave less than this of the noise that bytes leave."""


@dataclass(frozen=True)
class _Points:
    """One broker's points of one resource: x (n,) traffic, of CPU by its ``capacity``, and y (n,) percent."""

    x: FloatArray
    y: FloatArray
    capacity: float


@dataclass(frozen=True, eq=False)
class _Seen:
    """Trusted samples by broker, and how much each broker carries beside one of 1."""

    samples: Mapping[str, BrokerSamples]
    capacity: Mapping[str, float]


def fit(samples: Mapping[str, BrokerSamples], given: LoadSettings = NOTHING_KNOWN) -> LoadModel:
    """The load model of the brokers that gave these samples; those that saw bundles come or go are left out.

    A resource without a known limit gets no slope. Where not even all brokers together tell a slope, its source is
    :attr:`~lbd.load.linear.Source.UNKNOWN`: their traffic did not change, or there are too few samples. What is
    ``given`` holds where a broker's own samples do not tell.
    """
    brokers = tuple(sorted(samples))
    trusted = {broker: samples[broker].where(samples[broker].trusted) for broker in brokers}
    limits = {broker: own.hardware[CPU] for broker, own in trusted.items()}
    seen = _Seen(trusted, capacities(limits, given))
    measure = given.measure or _measure(seen)
    lines, sources = _blank(len(brokers)), [[Source.MEMORY] * len(RESOURCES) for _ in brokers]
    for column in DRIVEN:
        found = _column(seen, column, measure)
        if column == CPU:
            found = completed(found, brokers, seen.capacity, given)
        for row, (source, one) in enumerate(found):
            sources[row][column] = source
            lines[row, column] = (one.slope, one.half_width, one.noise)
    slope = lines[:, :, 0]
    return LoadModel(
        brokers=brokers,
        background=_backgrounds(trusted, slope, measure),
        slope=slope,
        half_width=lines[:, :, 1],
        noise=lines[:, :, 2],
        sources=tuple(tuple(row) for row in sources),
        samples=np.array([trusted[broker].at.size for broker in brokers], dtype=np.int32),
        measure=measure,
    )


def _blank(brokers: int) -> FloatArray:
    """Slope, half width and noise of each broker and resource, float64 (B, 5, 3)."""
    return np.zeros((brokers, len(RESOURCES), 3))


def _measure(seen: _Seen) -> Measure:
    """What explains CPU better, by the noise that is left when all brokers share a slope per kind of machine."""
    left = {measure: _noise_left(seen, measure) for measure in ("throughput", "msg_rate")}
    return "msg_rate" if left["msg_rate"] < MEASURE_GAIN * left["throughput"] else "throughput"


def _noise_left(seen: _Seen, measure: Measure) -> float:
    kinds = _by_hardware(seen.samples)
    noises = [line(_groups(_points(seen, CPU, measure), kind)).noise for kind in kinds.values()]
    known = [noise for noise in noises if np.isfinite(noise)]
    return sum(known) / len(known) if known else np.inf


def _by_hardware(samples: Mapping[str, BrokerSamples]) -> dict[tuple[float, ...], list[str]]:
    found: dict[tuple[float, ...], list[str]] = {}
    for broker, own in samples.items():
        found.setdefault(own.hardware, []).append(broker)
    return found


def _points(seen: _Seen, column: int, measure: Measure) -> dict[str, _Points]:
    found = {}
    for broker, own in seen.samples.items():
        capacity = seen.capacity[broker] if column == CPU else 1.0
        x, y = driving(own.carried, measure)[:, column] / capacity, own.used[:, column]
        told = np.isfinite(y) & (y < SATURATED_PERCENT)
        found[broker] = _Points(x[told], y[told], capacity)
    return found


def _groups(points: Mapping[str, _Points], brokers: Iterable[str]) -> Sequence[tuple[FloatArray, FloatArray]]:
    own = (points[broker] for broker in brokers)
    return [(one.x, one.y) for one in own if _told_by_several(one.x)]


def _told_by_several(x: FloatArray) -> bool:
    """One point alone beside others that are level would be the slope, and nothing would tell that it is wrong."""
    if x.size <= 2:
        return False
    ends = np.partition(x, (0, 1, x.size - 2, x.size - 1))
    return bool(min(ends[-2] - ends[0], ends[-1] - ends[1]) > FLAT_SHARE * np.abs(x).max())


def _column(seen: _Seen, column: int, measure: Measure) -> list[tuple[Source, Line]]:
    """Slope of one resource for each broker, and where it comes from."""
    samples, points = seen.samples, _points(seen, column, measure)
    most = max((float(own.x.max()) for own in points.values() if own.x.size), default=0.0)
    owns = {broker: _shared(points, [broker]) for broker in samples}
    kinds = {
        kind: _believed(_shared(points, brokers), [owns[broker] for broker in brokers], most)
        for kind, brokers in _by_hardware(samples).items()
    }
    pooled = _believed(_shared(points, samples), list(owns.values()), most)
    found = []
    for broker, own in samples.items():
        if own.at.size and not np.isfinite(own.used[:, column]).any():
            found.append((Source.UNLIMITED, Line(0.0, 0.0, 0.0)))
        else:
            shared = ((Source.CLASS, kinds[own.hardware]), (Source.POOLED, pooled))
            source, one = _chosen(owns[broker], shared, most)
            capacity = points[broker].capacity
            found.append((source, replace(one, slope=one.slope / capacity, half_width=one.half_width / capacity)))
    return found


def _shared(points: Mapping[str, _Points], brokers: Iterable[str]) -> Line:
    """The slope that these brokers share; more traffic makes no broker use less."""
    found = line(_groups(points, brokers))
    return replace(found, slope=max(found.slope, 0.0))


def _chosen(own: Line, shared: Iterable[tuple[Source, Line]], most: float) -> tuple[Source, Line]:
    """A broker's own slope where it is sure, or sure to be none of the shared ones; else the first of those."""
    if _sure(own, most):
        return Source.FITTED, own
    known = [(source, one) for source, one in shared if _sure(one, most)]
    alike = (found for found in known if _alike(own, found[1]))
    return next(alike, (Source.FITTED, own) if known else (Source.UNKNOWN, UNKNOWN))


def _believed(shared: Line, owns: Sequence[Line], most: float) -> Line:
    """What brokers share; unless many of those that are sure of their own have clearly another: then it is nobody's."""
    sure = [own for own in owns if _sure(own, most)]
    others = sum(
        abs(own.slope - shared.slope) > max(own.half_width + shared.half_width, CONFIDENT_SHARE * shared.slope)
        for own in sure
    )
    return UNKNOWN if others > OTHERS_SHARE * len(sure) else shared


def _sure(found: Line, most: float) -> bool:
    enough = max(CONFIDENT_SHARE * found.slope, CONFIDENT_POINTS / most if most > 0 else 0.0)
    return found.half_width <= enough


def _alike(own: Line, shared: Line) -> bool:
    """Like limits do not make like machines: a slope that is a standard error away from a broker's own is not its."""
    return abs(own.slope - shared.slope) <= own.half_width / WIDTH + shared.half_width


def _backgrounds(samples: Mapping[str, BrokerSamples], slope: FloatArray, measure: Measure) -> FloatArray:
    """Median of what traffic does not explain of the latest samples, (B, 5); NaN without a sample."""
    found = np.full(slope.shape, np.nan)
    for row, own in enumerate(samples.values()):
        left = (own.used - slope[row] * driving(own.carried, measure))[-RECENT_SAMPLES:]
        if len(left):
            found[row] = np.nan_to_num(np.median(left, axis=0))
    return found
