"""What cleaned samples tell by themselves: gaps and how long they last, the day's profile, noise and spikes.

Every function takes and gives data frames. Samples come about once a minute and each broker's at its own second, so
brokers are compared minute by minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.window import Window as W  # noqa: N817

from lbd.load.scoring import SCORED
from lbd.model import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

    from lbd.load.scoring import Weights

BREAK_MINUTES = 3
"""Minutes further apart than three are no neighbours: a gap that was not seen in between has not lasted."""

AROUND = 15
"""Samples on either side, half an hour in all: what is slower than that is the day's doing, and not noise."""

SPIKE_POINTS = 10.0
SPIKE_DEVIATIONS = 5.0
"""A spike is so many points, and so many deviations of noise, above the median of the half hour around it: what lasts
for a quarter of an hour is none."""

NORMAL = 1.4826
"""Standard deviations in a median absolute deviation, for normal noise."""

MINUTE_SECONDS = 60


def scores(samples: DataFrame, weights: Weights) -> DataFrame:
    """``minute`` (epoch minutes), ``broker`` and ``score`` in points; the mean where a minute has several samples."""
    parts = [F.col(RESOURCES[at]) * float(weights.row()[at]) for at in SCORED]
    minute = F.floor(F.col("t").cast("double") / MINUTE_SECONDS).alias("minute")
    told = samples.select(minute, "broker", F.greatest(*parts).alias("score")).where(F.col("score").isNotNull())
    return told.groupBy("minute", "broker").agg(F.avg("score").alias("score"))


def gaps(scored: DataFrame) -> DataFrame:
    """``minute``, ``gap`` between the highest and the lowest score, ``mean`` of all; of minutes with two or more."""
    found = scored.groupBy("minute").agg(
        (F.max("score") - F.min("score")).alias("gap"), F.avg("score").alias("mean"), F.count("*").alias("brokers")
    )
    return found.where(F.col("brokers") > 1).select("minute", "gap", "mean")


def pairs(scored: DataFrame) -> DataFrame:
    """``pair`` (1: the most with the least loaded broker, 2: the second most with the second least, ...), and the
    ``mean`` and ``p95`` of the points between them.
    """
    by_minute = W.partitionBy("minute")
    ranked = scored.select(
        "minute",
        "score",
        F.row_number().over(by_minute.orderBy(F.desc("score"), "broker")).alias("rank"),
        F.count("*").over(by_minute).alias("brokers"),
    )
    pair = F.least(F.col("rank"), F.col("brokers") + 1 - F.col("rank")).alias("pair")
    apart = ranked.where(F.col("rank") * 2 != F.col("brokers") + 1).select("minute", pair, "score")
    found = apart.groupBy("minute", "pair").agg((F.max("score") - F.min("score")).alias("gap"))
    return found.groupBy("pair").agg(F.avg("gap").alias("mean"), _p95("gap").alias("p95")).orderBy("pair")


def lasting(gap: DataFrame, thresholds: Sequence[float]) -> DataFrame:
    """For each threshold (points): ``times`` that the gap reached it, the ``median`` and the ``longest`` of how many
    minutes it stayed there, and the ``share`` of all minutes.
    """
    levels = F.explode(F.array(*(F.lit(float(one)) for one in thresholds))).alias("threshold")
    over = gap.select("minute", "gap", levels).where(F.col("gap") >= F.col("threshold"))
    before = F.lag("minute").over(W.partitionBy("threshold").orderBy("minute"))
    begins = over.withColumn(
        "begins", (F.coalesce(F.col("minute") - before, F.lit(1 << 30)) > BREAK_MINUTES).cast("int")
    )
    frame = W.partitionBy("threshold").orderBy("minute").rowsBetween(W.unboundedPreceding, 0)
    numbered = begins.select("threshold", "minute", F.sum("begins").over(frame).alias("episode"))
    length = (F.max("minute") - F.min("minute") + 1).alias("minutes")
    episodes = numbered.groupBy("threshold", "episode").agg(length, F.count("*").alias("seen"))
    total = gap.agg(F.count("*").alias("total"))
    found = episodes.groupBy("threshold").agg(
        F.count("*").alias("times"),
        F.median("minutes").alias("median"),
        F.max("minutes").alias("longest"),
        F.sum("seen").alias("seen"),
    )
    share = (F.col("seen") / F.col("total")).alias("share")
    return found.crossJoin(total).select("threshold", "times", "median", "longest", share).orderBy("threshold")


def daily(gap: DataFrame) -> DataFrame:
    """For each ``hour`` of the day (UTC, 0 to 23) the mean score, the mean gap and the gap's 95th percentile."""
    hour = F.floor(F.col("minute") / MINUTE_SECONDS % 24).cast("int").alias("hour")
    found = gap.select(hour, "gap", "mean").groupBy("hour")
    return found.agg(F.avg("mean").alias("score"), F.avg("gap").alias("gap"), _p95("gap").alias("p95")).orderBy("hour")


def noise(scored: DataFrame) -> DataFrame:
    """For each ``broker`` the ``noise`` in points, its ``time_scale`` in minutes, and the number of ``spikes``.

    Noise is the deviation of a sample from the mean of the half hour around it, by the median, so that spikes do not
    count. Its time scale is that of an AR(1) process with its correlation from one sample to the next: 0 where there is
    none; so long a sample tells of the next. A spike may last several samples and counts once.
    """
    own = W.partitionBy("broker").orderBy("minute")
    told = _around(scored, own)
    near = F.col("minute") - F.lag("minute").over(own) <= BREAK_MINUTES
    calm = F.when(F.abs("left") < F.col("limit"), F.col("left"))
    steps = told.select(
        "broker", "noise", "minute", calm.alias("left"), (F.col("above") > F.col("limit")).alias("high")
    )
    earlier = F.when(near, F.lag("left").over(own)).alias("earlier")
    begins = (F.col("high") & ~F.coalesce(F.lag("high").over(own), F.lit(False))).cast("int").alias("begins")
    found = steps.select("broker", "noise", "left", earlier, begins).groupBy("broker")
    correlation = F.greatest(F.coalesce(F.corr("left", "earlier"), F.lit(0.0)), F.lit(0.0)).alias("correlation")
    one = found.agg(F.first("noise").alias("noise"), correlation, F.sum("begins").alias("spikes"))
    scale = F.when((F.col("correlation") > 0) & (F.col("correlation") < 1), -1 / F.ln("correlation")).otherwise(0.0)
    return one.select("broker", "noise", scale.alias("time_scale"), "spikes").orderBy("broker")


def _around(scored: DataFrame, own: WindowSpec) -> DataFrame:
    """What each sample has ``left`` beside the mean of those around it and is ``above`` their median, and the limit."""
    around = own.rowsBetween(-AROUND, AROUND)
    left = (F.col("score") - F.avg("score").over(around)).alias("left")
    ordered = F.sort_array(F.collect_list("score").over(around))  # Spark has no median of a frame
    above = (F.col("score") - F.element_at(ordered, ((F.size(ordered) + 1) / 2).cast("int"))).alias("above")
    found = scored.select("broker", "minute", left, above)
    quiet = found.groupBy("broker").agg((F.median(F.abs("left")) * NORMAL).alias("noise"))
    limit = F.greatest(F.lit(SPIKE_POINTS), SPIKE_DEVIATIONS * F.col("noise")).alias("limit")
    return found.join(F.broadcast(quiet), on="broker", how="inner").select("*", limit)


def _p95(column: str) -> Column:
    return F.percentile(column, 0.95)
