"""What samples tell by themselves: short lists of scores in, short lists of features out."""

from __future__ import annotations

from datetime import timedelta
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.load.scoring import Weights
from tests.learn.windows import BEGUN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


def scored(spark: SparkSession, *rows: tuple[int, str, float]) -> DataFrame:
    return spark.createDataFrame(list(rows), "minute long, broker string, score double")


def gap(spark: SparkSession, *rows: tuple[int, float]) -> DataFrame:
    return spark.createDataFrame([(*row, 50.0) for row in rows], "minute long, gap double, mean double")


def listed(found: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in found.collect()]


def test_scores_are_those_of_the_weights(spark: SparkSession):
    """The largest of the weighed resources, of a broker and minute; what has no number tells nothing."""
    from lbd.learn import features

    times = [BEGUN + timedelta(minutes=1, seconds=second) for second in (0, 30, 40)]
    rows = [(times[0], "a", 20.0, 90.0, 30.0), (times[1], "a", 40.0, 90.0, 10.0), (times[2], "b", None, 90.0, None)]
    columns = "t timestamp, broker string, cpu double, memory double, bandwidth_in double, "
    columns += "direct_memory double, bandwidth_out double"
    samples = spark.createDataFrame([(*row, None, None) for row in rows], columns)

    assert listed(features.scores(samples, Weights())) == [(int(BEGUN.timestamp()) // 60 + 1, "a", 35.0)]


def test_gaps_are_between_brokers_of_a_minute(spark: SparkSession):
    """One broker alone makes none."""
    from lbd.learn import features

    found = features.gaps(scored(spark, (1, "a", 50.0), (1, "b", 20.0), (1, "c", 35.0), (2, "a", 50.0)))

    assert listed(found) == [(1, 30.0, 35.0)]


def test_pairs_are_by_rank(spark: SparkSession):
    """The most with the least, the second most with the second least; who is in the middle has no partner."""
    from lbd.learn import features

    found = features.pairs(
        scored(spark, *((1, name, score) for name, score in zip("abcde", (10.0, 50.0, 20.0, 30.0, 45.0), strict=True)))
    )

    assert listed(found) == [(1, 40.0, 40.0), (2, 25.0, 25.0)]


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        (range(10), [(10.0, 1, 10.0, 10, 1.0)]),
        ([0, 1, 2, 10, 11], [(10.0, 2, 2.5, 3, 1.0)]),
        ([0, 3, 6], [(10.0, 1, 7.0, 7, 1.0)]),
        ([], []),
    ],
    ids=["one", "two, with a hole between", "samples may be missing", "none"],
)
def test_how_often_and_how_long_gaps_last(spark: SparkSession, minutes: Sequence[int], told: list[tuple[float, ...]]):
    """Threshold, times, median and longest minutes, share of what was seen."""
    from lbd.learn import features

    found = features.lasting(gap(spark, *((minute, 12.0) for minute in minutes)), [10.0, 20.0])

    assert listed(found) == told


def test_the_day_is_told_by_the_hour(spark: SparkSession):
    """Over all days."""
    from lbd.learn import features

    found = features.daily(gap(spark, (60, 10.0), (1440 + 60, 20.0), (120, 4.0)))

    assert [(row["hour"], row["gap"]) for row in found.collect()] == [(1, 15.0), (2, 4.0)]


def correlated(count: int, correlation: float, points: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """An AR(1) process of this deviation."""
    random = np.random.default_rng(7).standard_normal(count)
    found = random.copy()
    for at in range(1, count):
        found[at] = correlation * found[at - 1] + (1 - correlation**2) ** 0.5 * random[at]
    return found * points


def test_noise_its_time_scale_and_spikes(spark: SparkSession):
    """Under a wave of the day: noise is found within a tenth, its time scale within half, and each spike once."""
    from lbd.learn import features

    wave = 50 + 20 * np.cos(np.arange(1440) / 1440 * 2 * np.pi)
    white, slow = (wave + correlated(1440, rho, 2.0) for rho in (0.0, 0.6))
    white[[300, 301, 900]] += 40
    rows = [(at, name, float(one)) for name, own in (("slow", slow), ("white", white)) for at, one in enumerate(own)]
    found = {row["broker"]: row for row in features.noise(scored(spark, *rows)).collect()}

    assert found["white"]["noise"] == pytest.approx(2.0, rel=0.1)
    assert found["white"]["spikes"] == 2
    assert found["white"]["time_scale"] < 0.7
    assert found["slow"]["time_scale"] == pytest.approx(-1 / log(0.6), rel=0.5)
    assert found["slow"]["spikes"] == 0
