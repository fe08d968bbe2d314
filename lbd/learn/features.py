"""Features of the scores of a history: gaps and how long they last, the day's profile, noise, spikes. Pure.

Samples come about once a minute and each broker's in its own second, so brokers are compared minute by minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.learn.window import AROUND
from lbd.load.estimate import scores
from lbd.load.fit import NORMAL
from lbd.score.gap import gaps
from lbd.text import HOUR_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lbd.learn.window import Window
    from lbd.load.scoring import Weights
    from lbd.model import FloatArray


BREAK_MINUTES = 3
"""Minutes further apart than three are no neighbours: a gap that was not measured in between has not lasted."""

SPIKE_POINTS = 10.0
SPIKE_DEVIATIONS = 5.0
"""Least height of a spike above the median of the half hour around it, in points and in deviations of noise. What lasts
for a quarter of an hour is none."""

MINUTE_SECONDS = 60

LEVELS = (5.0, 8.0, 10.0, 12.0, 15.0, 20.0, 30.0, 40.0)
"""Points for which the report says how often and how long brokers were so far apart."""


@dataclass(frozen=True, eq=False)
class MinuteScores:
    """Scores in points, float64 (M, B), NaN where a broker had no new sample; ``minutes`` since 1970, int64 (M,)."""

    minutes: NDArray[np.int64]
    brokers: tuple[str, ...]
    points: FloatArray

    def comparable(self) -> MinuteScores:
        """The minutes in which two brokers or more have a score."""
        chosen = np.isfinite(self.points).sum(axis=1) > 1
        return MinuteScores(self.minutes[chosen], self.brokers, self.points[chosen])


@dataclass(frozen=True)
class PairGap:
    """Points between a pair: 1 is the most with the least loaded broker, 2 the second most with the second least."""

    pair: int
    mean: float
    p95: float


@dataclass(frozen=True)
class LastingGap:
    """How ``times`` brokers were ``threshold`` points apart or more: for how many minutes in the ``median`` and at the
    ``longest``, and the ``share`` of all minutes.
    """

    threshold: float
    times: int
    median: float
    longest: int
    share: float


@dataclass(frozen=True)
class HourProfile:
    """An hour of the day (UTC, 0 to 23), over all days: mean score, mean gap, and the gap's 95th percentile."""

    hour: int
    score: float
    gap: float
    p95: float


@dataclass(frozen=True)
class BrokerNoise:
    """``noise`` of a broker in points, its ``time_scale`` in minutes, and the number of ``spikes``."""

    noise: float
    time_scale: float
    spikes: int


@dataclass(frozen=True)
class Features:
    """All that scores show by themselves; ``noise`` by broker."""

    pairs: tuple[PairGap, ...]
    lasting: tuple[LastingGap, ...]
    daily: tuple[HourProfile, ...]
    noise: Mapping[str, BrokerNoise]


def features(scored: MinuteScores) -> Features:
    """The features of a history's scores."""
    comparable = scored.comparable()
    gap = gaps(comparable.points)
    return Features(
        pairs=pair_gaps(comparable),
        lasting=lasting_gaps(comparable.minutes, gap, LEVELS),
        daily=hour_profiles(comparable, gap),
        noise=noise_by_broker(scored),
    )


def minute_scores(window: Window, weights: Weights) -> MinuteScores:
    """The scores of a window's new samples; the mean where a minute has several of a broker."""
    shape = window.fresh.shape
    points = scores(window.used.reshape(-1, window.used.shape[2]), weights).reshape(shape)
    minutes, row = np.unique((window.at // MINUTE_SECONDS).astype(np.int64), return_inverse=True)
    valid = window.fresh & np.isfinite(points)
    total, count = np.zeros((minutes.size, shape[1])), np.zeros((minutes.size, shape[1]))
    np.add.at(total, row, np.where(valid, points, 0.0))
    np.add.at(count, row, valid)
    return MinuteScores(
        minutes, window.brokers, np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    )


def joined_scores(parts: Sequence[MinuteScores]) -> MinuteScores:
    """The scores of several stretches of time, in their order."""
    brokers = tuple(sorted({broker for part in parts for broker in part.brokers}))
    position = {broker: index for index, broker in enumerate(brokers)}
    points = np.full((sum(part.minutes.size for part in parts), len(brokers)), np.nan)
    begin = 0
    for part in parts:
        points[begin : begin + part.minutes.size, [position[broker] for broker in part.brokers]] = part.points
        begin += part.minutes.size
    minutes = np.concatenate([np.zeros(0, dtype=np.int64), *(part.minutes for part in parts)])
    return MinuteScores(minutes, brokers, points)


def pair_gaps(scored: MinuteScores) -> tuple[PairGap, ...]:
    """The gap of each pair by rank; a broker in the middle has no partner."""
    ordered = np.sort(scored.points, axis=1)  # NaN comes last
    count = np.isfinite(ordered).sum(axis=1)
    pairs = []
    for rank in range(1, len(scored.brokers) // 2 + 1):
        rows = np.flatnonzero(count >= 2 * rank)
        if rows.size:
            gap = ordered[rows, count[rows] - rank] - ordered[rows, rank - 1]
            pairs.append(PairGap(rank, float(gap.mean()), float(np.quantile(gap, 0.95))))
    return tuple(pairs)


def lasting_gaps(minutes: NDArray[np.int64], gap: FloatArray, levels: Sequence[float]) -> tuple[LastingGap, ...]:
    """For each level that the gap, float64 (M,) in points, reached: how often and how long it stayed there."""
    lasting = []
    for level in levels:
        over = minutes[gap >= level]
        if over.size:
            begins = np.flatnonzero(np.diff(over, prepend=over[0] - BREAK_MINUTES - 1) > BREAK_MINUTES)
            ends = np.append(begins[1:], over.size) - 1
            lengths = over[ends] - over[begins] + 1
            share = over.size / minutes.size
            lasting.append(LastingGap(level, begins.size, float(np.median(lengths)), int(lengths.max()), share))
    return tuple(lasting)


def hour_profiles(scored: MinuteScores, gap: FloatArray) -> tuple[HourProfile, ...]:
    """The profile of the day, of the hours that have a minute; ``gap`` is float64 (M,) in points."""
    hours = scored.minutes * MINUTE_SECONDS // int(HOUR_SECONDS) % 24
    mean = np.nanmean(scored.points, axis=1) if hours.size else np.zeros(0)
    return tuple(
        HourProfile(
            hour,
            float(mean[hours == hour].mean()),
            float(gap[hours == hour].mean()),
            float(np.quantile(gap[hours == hour], 0.95)),
        )
        for hour in np.unique(hours).tolist()
    )


def noise_by_broker(scored: MinuteScores) -> dict[str, BrokerNoise]:
    """The noise of each broker with a score.

    Noise is the deviation of a sample from the mean of the half hour around it, by the median, so that spikes do not
    count. Its time scale, for which a sample predicts the next ones, is that of an AR(1) process with the same
    correlation from one sample to the next: 0 where there is none. A spike may last several samples and counts once.
    """
    noise = {}
    for column, broker in enumerate(scored.brokers):
        valid = np.isfinite(scored.points[:, column])
        if valid.any():
            noise[broker] = _noise(scored.minutes[valid], scored.points[valid, column])
    return noise


def _noise(minutes: NDArray[np.int64], points: FloatArray) -> BrokerNoise:
    padded = np.pad(points, AROUND, constant_values=np.nan)
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * AROUND + 1)
    residual = points - np.nanmean(around, axis=1)
    noise = float(np.median(np.abs(residual)) * NORMAL)
    limit = max(SPIKE_POINTS, SPIKE_DEVIATIONS * noise)
    calm = np.where(np.abs(residual) < limit, residual, np.nan)
    near = np.diff(minutes) <= BREAK_MINUTES
    correlation = _correlation(calm[1:][near], calm[:-1][near])
    high = points - np.nanmedian(around, axis=1) > limit
    spikes = int(np.count_nonzero(high & ~np.concatenate([[False], high[:-1]])))
    return BrokerNoise(noise, -1 / float(np.log(correlation)) if 0 < correlation < 1 else 0.0, spikes)


def _correlation(first: FloatArray, second: FloatArray) -> float:
    """Pearson's correlation of the pairs in which both are known; 0 where there is none."""
    both = np.isfinite(first) & np.isfinite(second)
    first, second = first[both], second[both]
    if first.size < 2 or not (np.ptp(first) and np.ptp(second)):
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])
