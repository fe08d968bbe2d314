"""Fit of the load model: a robust line through samples, and slopes for brokers whose samples are insufficient. Pure.

The line is the weighted Theil-Sen estimator: the slope is the median of the slopes between any two points, each
weighted by their distance (Theil 1950, Sen 1968; weights: Jaeckel 1972). Points that a neighbour's load lifts do not
bend it while they are less than about a quarter. Pairs are only made within a group, so that groups share a slope and
keep their own intercepts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.estimate import CPU, DRIVEN, LoadModel, Measure, Source, driving
from lbd.load.settings import NOTHING_KNOWN
from lbd.model import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lbd.load.samples import BrokerSamples
    from lbd.load.settings import LoadSettings
    from lbd.model import FloatArray


MOST_POINTS = 128
"""Largest number of points of a group; of more, this many are taken evenly: the pairs of 128 points place a slope
within 2 % where traffic varies by ten times the noise.
"""

NORMAL = 1.4826
"""Standard deviations in a median absolute deviation, for normal noise."""

WIDTH = 1.96 * 1.0472**0.5
"""Standard errors on either side of 95 %; the variance is that of least squares times pi / 3."""


FAR_OFF = 3.5
REFINED = 2
"""Rounds that drop points this many deviations off, and fit again: wrong points at one end of x bend the line."""

ROUNDING = 1e-9
"""Tolerance for points exactly on a line."""

FEWEST_FREE = 6
"""Fewest points beyond one for each intercept and one for the slope: fewer prove nothing, however well a line fits.
"""

FLAT_SHARE = 0.01
"""Share of the largest x of a group: where all are within it, their differences are rounding, and prove nothing."""


@dataclass(frozen=True)
class SlopeFit:
    """A slope; half of the width of its 95 % interval; and the noise: the standard deviation of the residuals.

    The interval takes noise for normal and independent from point to point. ``half_width`` is infinite, and ``slope``
    0, where x explains nothing: it does not vary, or there are too few points.
    """

    slope: float
    half_width: float
    noise: float


UNKNOWN = SlopeFit(0.0, np.inf, np.inf)


def line(groups: Sequence[tuple[FloatArray, FloatArray]]) -> SlopeFit:
    """Common slope of some groups of points, each ``(x, y)`` float64 (n,) in the order of time."""
    most = max(MOST_POINTS // max(int(len(groups) ** 0.5), 1), 16)
    thin = [(_evenly(x, most), _evenly(y, most)) for x, y in groups]
    fitted = _line([(x, y) for x, y in thin if _varies(x)])
    before = thin
    for _ in range(REFINED):
        near = [_near(x, y, fitted) for x, y in thin]
        if all(x.size == near_x.size for (x, _), (near_x, _) in zip(before, near, strict=True)):
            break
        fitted, before = _line([(x, y) for x, y in near if _varies(x)]), near
    return fitted


def _line(groups: Sequence[tuple[FloatArray, FloatArray]]) -> SlopeFit:
    points = sum(x.size for x, _ in groups)
    free = points - len(groups) - 1
    if free < FEWEST_FREE:
        return UNKNOWN
    rises = [_pairs(x, y) for x, y in groups]
    slope = weighted_median(np.concatenate([rise[0] for rise in rises]), np.concatenate([rise[1] for rise in rises]))
    residuals = np.concatenate([_residuals(x, y, slope) for x, y in groups])
    noise = robust_deviation(residuals) * (points / free) ** 0.5
    spread = sum(float(((x - x.mean()) ** 2).sum()) for x, _ in groups)
    return SlopeFit(slope, WIDTH * noise / spread**0.5, noise)


def _residuals(x: FloatArray, y: FloatArray, slope: float) -> FloatArray:
    """Residuals of the line, around the median of its group."""
    residuals: FloatArray = y - slope * x - np.median(y - slope * x)
    return residuals


def _near(x: FloatArray, y: FloatArray, fitted: SlopeFit) -> tuple[FloatArray, FloatArray]:
    """Points of a group that are not far off the line."""
    if not x.size:
        return x, y
    near = np.abs(_residuals(x, y, fitted.slope)) <= FAR_OFF * fitted.noise + ROUNDING
    return x[near], y[near]


def weighted_median(values: FloatArray, weights: FloatArray) -> float:
    """Smallest value, float64 (K,), with half of the weight, float64 (K,), up to it; 0 without any."""
    if not values.size:
        return 0.0
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def robust_deviation(values: FloatArray) -> float:
    """Standard deviation of normal values with this median absolute deviation."""
    return float(NORMAL * np.median(np.abs(values - np.median(values))))


def _varies(x: FloatArray) -> bool:
    return x.size > 2 and bool(np.ptp(x) > FLAT_SHARE * np.abs(x).max())


def _evenly(values: FloatArray, most: int) -> FloatArray:
    if values.size <= most:
        return values
    return values[np.linspace(0, values.size - 1, most).astype(np.intp)]


_SECOND, _FIRST = np.tril_indices(MOST_POINTS, -1)
"""Each pair of :data:`MOST_POINTS` points once; the first n (n - 1) / 2 are the pairs of the first n points."""


def _pairs(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slope between any two points whose x differ, and their distance."""
    number = x.size * (x.size - 1) // 2
    first, second = _FIRST[:number], _SECOND[:number]
    run, rise = x[second] - x[first], y[second] - y[first]
    apart = np.abs(run)
    distinct = apart > 0
    return rise[distinct] / run[distinct], apart[distinct]


# --- brokers beside each other: traffic and usage of several, for brokers without a slope of their own

GIVEN_HALF_WIDTH = 0.25
"""Half width of a given slope, as a share of it: it is assumed right within a quarter, as a learned one must be."""


def capacities(limits: Mapping[str, float], settings: LoadSettings) -> dict[str, float]:
    """Capacity by broker: the configured one, else its CPU limit over the lowest (usage is a percentage), else 1."""
    if settings.has_capacity:
        return {broker: settings.capacity(broker) for broker in limits}
    if not all(0 < limit < np.inf for limit in limits.values()):
        return dict.fromkeys(limits, 1.0)
    return {broker: limit / min(limits.values()) for broker, limit in limits.items()}


def completed(
    fitted: Sequence[tuple[Source, SlopeFit]],
    brokers: Sequence[str],
    capacity: Mapping[str, float],
    settings: LoadSettings,
) -> list[tuple[Source, SlopeFit]]:
    """CPU slopes, completed where a broker's own samples yield none: from the settings, else by the brokers' capacity.

    By capacity only if the settings name a broker: one fitted broker says nothing about others that may be unlike it
    (on brokers of 0.4 and 0.55 cores that erred by 3 points on average).
    """
    slopes = [_fixed_slope(own, settings.slope(broker)) for own, broker in zip(fitted, brokers, strict=True)]
    usable = [
        line.slope * capacity[broker]
        for (source, line), broker in zip(slopes, brokers, strict=True)
        if source in {Source.FITTED, Source.GIVEN}
    ]
    if not usable or not settings.brokers:
        return slopes
    middle = float(np.median(usable))
    off = max(GIVEN_HALF_WIDTH * middle, *(abs(slope - middle) for slope in usable))
    return [
        (Source.POOLED, _by_capacity(middle, off, capacity[broker])) if source is Source.UNKNOWN else (source, line)
        for (source, line), broker in zip(slopes, brokers, strict=True)
    ]


def _fixed_slope(fitted: tuple[Source, SlopeFit], slope: float | None) -> tuple[Source, SlopeFit]:
    source, line = fitted
    if slope is None or source in {Source.FITTED, Source.UNLIMITED}:
        return fitted
    noise = line.noise if np.isfinite(line.noise) else 0.0
    return Source.GIVEN, SlopeFit(slope, GIVEN_HALF_WIDTH * slope, noise)


def _by_capacity(slope: float, off: float, capacity: float) -> SlopeFit:
    return SlopeFit(slope / capacity, off / capacity, 0.0)


# --- the model: each broker's own slope if its samples suffice, else that of similar brokers, else of all
# Slopes are shared for a broker of capacity 1: half as steep on one of 2.

CONFIDENT_SHARE = 0.25
CONFIDENT_POINTS = 1.5
"""A slope is sure when half of its interval is at most a quarter of it, or this many points for the busiest broker."""

OTHERS_SHARE = 0.25
"""Share of the brokers sure of their own slope that may differ from the shared one."""

SATURATED_PERCENT = 98.0
"""Usage of a saturated broker, which shows no further traffic."""

MEDIAN_WIDTH = 1.96 * (np.pi / 2) ** 0.5
"""Standard errors of a mean on either side of the 95 % interval of a median."""

RECENT_SAMPLES = 30
"""Samples, half an hour, over which background is taken: neighbours come and go."""

MEASURE_GAIN = 0.9
"""Share of the noise that bytes leave; messages explain CPU only if they leave less."""


@dataclass(frozen=True)
class _Points:
    """One broker's points of one resource: x (n,) traffic, for CPU divided by ``capacity``, and y (n,) percent."""

    x: FloatArray
    y: FloatArray
    capacity: float


@dataclass(frozen=True, eq=False)
class _SamplePool:
    """Trusted samples by broker, and the capacity of each beside one of 1."""

    samples: Mapping[str, BrokerSamples]
    capacity: Mapping[str, float]


def fit(samples: Mapping[str, BrokerSamples], settings: LoadSettings = NOTHING_KNOWN) -> LoadModel:
    """Fit the load model of the brokers of these samples; samples during which bundles came or went are left out.

    A resource without a limit gets no slope. Where not even all brokers together yield a slope, its source is
    :attr:`~lbd.load.estimate.Source.UNKNOWN`: their traffic did not change, or there are too few samples. The
    ``settings`` apply where a broker's own samples yield none.
    """
    brokers = tuple(sorted(samples))
    trusted = {broker: samples[broker].where(samples[broker].trusted) for broker in brokers}
    limits = {broker: own.hardware[CPU] for broker, own in trusted.items()}
    pool = _SamplePool(trusted, capacities(limits, settings))
    measure = settings.measure or _measure(pool)
    lines, sources = np.zeros((len(brokers), len(RESOURCES), 3)), [[Source.MEMORY] * len(RESOURCES) for _ in brokers]
    for column in DRIVEN:
        slopes = _column(pool, column, measure)
        if column == CPU:
            slopes = completed(slopes, brokers, pool.capacity, settings)
        for row, (source, fitted) in enumerate(slopes):
            sources[row][column] = source
            lines[row, column] = (fitted.slope, fitted.half_width, fitted.noise)
    slope, half_width, noise = np.moveaxis(lines, 2, 0)
    background, error = _backgrounds(trusted, lines, measure)
    return LoadModel(
        brokers=brokers,
        background=background,
        slope=slope,
        half_width=half_width,
        background_half_width=error,
        noise=noise,
        sources=tuple(tuple(row) for row in sources),
        samples=np.array([trusted[broker].at.size for broker in brokers], dtype=np.int32),
        measure=measure,
    )


def _measure(pool: _SamplePool) -> Measure:
    """Measure that explains CPU better: the one with less residual noise if each kind of machine shares a slope."""
    noise = {measure: _residual_noise(pool, measure) for measure in ("throughput", "msg_rate")}
    return "msg_rate" if noise["msg_rate"] < MEASURE_GAIN * noise["throughput"] else "throughput"


def _residual_noise(pool: _SamplePool, measure: Measure) -> float:
    kinds = _by_hardware(pool.samples)
    noises = [line(_groups(_points(pool, CPU, measure), kind)).noise for kind in kinds.values()]
    finite = [noise for noise in noises if np.isfinite(noise)]
    return sum(finite) / len(finite) if finite else np.inf


def _by_hardware(samples: Mapping[str, BrokerSamples]) -> dict[tuple[float, ...], list[str]]:
    kinds: dict[tuple[float, ...], list[str]] = {}
    for broker, own in samples.items():
        kinds.setdefault(own.hardware, []).append(broker)
    return kinds


def _points(pool: _SamplePool, column: int, measure: Measure) -> dict[str, _Points]:
    points = {}
    for broker, own in pool.samples.items():
        capacity = pool.capacity[broker] if column == CPU else 1.0
        x, y = driving(own.carried, measure)[:, column] / capacity, own.used[:, column]
        usable = np.isfinite(y) & (y < SATURATED_PERCENT)
        points[broker] = _Points(x[usable], y[usable], capacity)
    return points


def _groups(points: Mapping[str, _Points], brokers: Iterable[str]) -> Sequence[tuple[FloatArray, FloatArray]]:
    own = (points[broker] for broker in brokers)
    return [(points_of.x, points_of.y) for points_of in own if _has_spread(points_of.x)]


def _has_spread(x: FloatArray) -> bool:
    """Whether x varies at both ends: a single point beside others that are level would decide the slope."""
    if x.size <= 2:
        return False
    ends = np.partition(x, (0, 1, x.size - 2, x.size - 1))
    return bool(min(ends[-2] - ends[0], ends[-1] - ends[1]) > FLAT_SHARE * np.abs(x).max())


def _column(pool: _SamplePool, column: int, measure: Measure) -> list[tuple[Source, SlopeFit]]:
    """Slope of one resource for each broker, and its source."""
    samples, points = pool.samples, _points(pool, column, measure)
    most = max((float(own.x.max()) for own in points.values() if own.x.size), default=0.0)
    owns = {broker: _shared(points, [broker]) for broker in samples}
    kinds = {
        kind: _believed(_shared(points, brokers), [owns[broker] for broker in brokers], most)
        for kind, brokers in _by_hardware(samples).items()
    }
    pooled = _believed(_shared(points, samples), list(owns.values()), most)
    slopes = []
    for broker, own in samples.items():
        if own.at.size and not np.isfinite(own.used[:, column]).any():
            slopes.append((Source.UNLIMITED, SlopeFit(0.0, 0.0, 0.0)))
        else:
            shared = ((Source.CLASS, kinds[own.hardware]), (Source.POOLED, pooled))
            source, chosen = _choose_slope(owns[broker], shared, most)
            capacity = points[broker].capacity
            slopes.append(
                (source, replace(chosen, slope=chosen.slope / capacity, half_width=chosen.half_width / capacity))
            )
    return slopes


def _shared(points: Mapping[str, _Points], brokers: Iterable[str]) -> SlopeFit:
    """Shared slope of these brokers, at least 0: more traffic makes no broker use less."""
    fitted = line(_groups(points, brokers))
    return replace(fitted, slope=max(fitted.slope, 0.0))


def _choose_slope(own: SlopeFit, shared: Iterable[tuple[Source, SlopeFit]], most: float) -> tuple[Source, SlopeFit]:
    """A broker's own slope where it is sure, or surely none of the shared ones; else the first of those."""
    if _sure(own, most):
        return Source.FITTED, own
    sure = [(source, slope) for source, slope in shared if _sure(slope, most)]
    alike = (candidate for candidate in sure if _alike(own, candidate[1]))
    return next(alike, (Source.FITTED, own) if sure else (Source.UNKNOWN, UNKNOWN))


def _believed(shared: SlopeFit, owns: Sequence[SlopeFit], most: float) -> SlopeFit:
    """The shared slope; UNKNOWN if many of the brokers that are sure of their own clearly have another."""
    sure = [own for own in owns if _sure(own, most)]
    others = sum(
        abs(own.slope - shared.slope) > max(own.half_width + shared.half_width, CONFIDENT_SHARE * shared.slope)
        for own in sure
    )
    return UNKNOWN if others > OTHERS_SHARE * len(sure) else shared


def _sure(slope: SlopeFit, most: float) -> bool:
    enough = max(CONFIDENT_SHARE * slope.slope, CONFIDENT_POINTS / most if most > 0 else 0.0)
    return slope.half_width <= enough


def _alike(own: SlopeFit, shared: SlopeFit) -> bool:
    """Whether a broker's own slope agrees with a shared one: like limits do not make like machines."""
    return abs(own.slope - shared.slope) <= own.half_width / WIDTH + shared.half_width


def _backgrounds(
    samples: Mapping[str, BrokerSamples], lines: FloatArray, measure: Measure
) -> tuple[FloatArray, FloatArray]:
    """Median usage of the latest samples beyond their traffic's, (B, 5), NaN without a sample; and half of its 95 %
    interval, infinite without one. A wrong slope shifts the same traffic to the background.
    """
    backgrounds, half_widths = np.full(lines.shape[:2], np.nan), np.full(lines.shape[:2], np.inf)
    for row, own in enumerate(samples.values()):
        slope, half_width, noise = lines[row].T
        used, drives = own.used[-RECENT_SAMPLES:], driving(own.carried[-RECENT_SAMPLES:], measure)
        if len(used):
            backgrounds[row] = np.nan_to_num(np.median(used - slope * drives, axis=0))
            traffic = np.median(drives, axis=0)
            of_slope = np.multiply(half_width, traffic, out=np.zeros(traffic.size), where=traffic > 0)
            half_widths[row] = np.hypot(of_slope, MEDIAN_WIDTH * noise / len(used) ** 0.5)
    return backgrounds, half_widths
