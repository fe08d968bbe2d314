"""What scores show by themselves: small tables of scores in, short lists of features out."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.learn.features import (
    BrokerNoise,
    HourProfile,
    LastingGap,
    MinuteScores,
    PairGap,
    features,
    hour_profiles,
    joined_scores,
    lasting_gaps,
    minute_scores,
    noise_by_broker,
    pair_gaps,
)
from lbd.load.scoring import Weights
from tests.learn.windows import BEGUN, broker, window

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST = int(BEGUN.timestamp()) // 60


def scored(minutes: Sequence[int], **points: Sequence[float]) -> MinuteScores:
    """Scores by broker."""
    return MinuteScores(np.array(minutes, dtype=np.int64), tuple(points), np.array([*points.values()]).T.astype(float))


def same(found: MinuteScores, expected: MinuteScores) -> None:
    """Equal, and NaN where it is NaN."""
    assert (found.minutes.tolist(), found.brokers) == (expected.minutes.tolist(), expected.brokers)
    np.testing.assert_array_equal(found.points, expected.points)


def test_scores_are_those_of_the_weights():
    """The largest of the weighed resources, by broker and minute; the mean of several, NaN without a new sample."""
    rows = [broker(1, "a", 20.0, bandwidth_in=30.0), broker(1.5, "a", 40.0, bandwidth_in=10.0), broker(2, "a", None)]
    found = minute_scores(window([*rows, broker(1, "b", None), broker(2, "b", 7.0)]), Weights())

    same(found, scored([FIRST + 1, FIRST + 2], a=[35.0, np.nan], b=[np.nan, 7.0]))


def test_stretches_of_time_are_joined():
    """Brokers by name, also one that only some of them know."""
    found = joined_scores([scored([1], b=[5.0], a=[4.0]), scored([9], c=[6.0])])

    same(found, scored([1, 9], a=[4.0, np.nan], b=[5.0, np.nan], c=[np.nan, 6.0]))
    assert joined_scores([]).minutes.size == 0


def test_gaps_are_between_brokers_of_a_minute():
    """One broker alone makes none."""
    found = features(scored([1, 2], a=[50.0, 50.0], b=[20.0, np.nan], c=[35.0, np.nan]))

    assert found.pairs == (PairGap(1, 30.0, 30.0),)
    assert found.daily == (HourProfile(0, 35.0, 30.0, 30.0),)
    assert found.lasting[-1] == LastingGap(30.0, 1, 1.0, 1, 1.0)


def test_pairs_are_by_rank():
    """The most with the least, the second most with the second least; a broker in the middle has no partner."""
    found = pair_gaps(scored([1], a=[10.0], b=[50.0], c=[20.0], d=[30.0], e=[45.0]))

    assert found == (PairGap(1, 40.0, 40.0), PairGap(2, 25.0, 25.0))


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        (range(10), [LastingGap(10.0, 1, 10.0, 10, 1.0)]),
        ([0, 1, 2, 10, 11], [LastingGap(10.0, 2, 2.5, 3, 1.0)]),
        ([0, 3, 6], [LastingGap(10.0, 1, 7.0, 7, 1.0)]),
        ([], []),
    ],
    ids=["one", "two, with a hole between", "samples may be missing", "none"],
)
def test_how_often_and_how_long_gaps_last(minutes: Sequence[int], expected: list[LastingGap]):
    """Threshold, times, median and longest minutes, share of the minutes with samples."""
    times = np.array(minutes, dtype=np.int64)

    assert list(lasting_gaps(times, np.full(times.size, 12.0), [10.0, 20.0])) == expected


def test_the_profile_of_a_day_is_by_the_hour():
    """Over all days."""
    found = scored([60, 1440 + 60, 120], a=[10.0, 20.0, 4.0], b=[0.0, 0.0, 0.0])

    assert hour_profiles(found, np.array([10.0, 20.0, 4.0])) == (
        HourProfile(1, 7.5, 15.0, 19.5), HourProfile(2, 2.0, 4.0, 4.0),
    )  # fmt: skip


def correlated(count: int, correlation: float, points: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """An AR(1) process of this deviation."""
    random = np.random.default_rng(7).standard_normal(count)
    found = random.copy()
    for at in range(1, count):
        found[at] = correlation * found[at - 1] + (1 - correlation**2) ** 0.5 * random[at]
    return found * points


def test_noise_its_time_scale_and_spikes():
    """Under a wave of the day: noise within a tenth, its time scale within half, and each spike once."""
    wave = 50 + 20 * np.cos(np.arange(1440) / 1440 * 2 * np.pi)
    white, slow = (wave + correlated(1440, rho, 2.0) for rho in (0.0, 0.6))
    white[[300, 301, 900]] += 40
    found = noise_by_broker(scored(range(1440), slow=slow, white=white, away=np.full(1440, np.nan)))

    assert found.keys() == {"slow", "white"}
    assert found["white"].noise == pytest.approx(2.0, rel=0.1)
    assert found["white"].spikes == 2
    assert found["white"].time_scale < 0.7
    assert found["slow"].time_scale == pytest.approx(-1 / log(0.6), rel=0.5)
    assert found["slow"].spikes == 0


def test_noise_of_a_few_samples_is_no_more_than_they_show():
    """One alone, and several that are all the same."""
    assert noise_by_broker(scored([1], a=[5.0])) == {"a": BrokerNoise(0.0, 0.0, 0)}
    assert noise_by_broker(scored([1, 2, 3], a=[5.0] * 3)) == {"a": BrokerNoise(0.0, 0.0, 0)}
