"""Features of a history: one row per broker and round, none twice, gaps marked; and what these rows show.

Functions take and return data frames; nothing is computed before it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.window import Window as W  # noqa: N817

from lbd.learn.window import AROUND, LONGEST_SILENCE_SECONDS
from lbd.load.fit import NORMAL
from lbd.load.scoring import SCORED
from lbd.model import RESOURCES
from lbd.store.history_tables import RATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.window import WindowSpec

    from lbd.load.scoring import Weights


SAMPLE = (*RESOURCES, *RATES, "topics", "started_at", "doubt")
"""What is kept of a broker's sample."""


def rounds(decisions: DataFrame) -> DataFrame:
    """Rounds: time, brokers with a report, and seconds since the round before on that day, null for the first.

    A round that is recorded twice counts once; :func:`overtaken` rounds are left out.
    """
    counted = _once(decisions).where(~F.col("overtaken"))
    before = F.lag(_seconds("t")).over(_day())
    return counted.select("t", "brokers", (_seconds("t") - before).alias("since"))


def overtaken(decisions: DataFrame) -> DataFrame:
    """``t`` of rounds that a clock which was set back has come by once more: turns told as before and after are later.

    Where none follows soon turns were only counted anew, as after ``turns/`` was removed. Imported ones have no number.
    """
    return _once(decisions).where("overtaken").select("t")


def without(rows: DataFrame, overtaken: DataFrame) -> DataFrame:
    """Rows of other tables without those of overtaken rounds, which are few."""
    return rows.join(F.broadcast(overtaken), on="t", how="left_anti")


def _once(decisions: DataFrame) -> DataFrame:
    latest = decisions.groupBy("t").agg(F.max_by("brokers", "turn").alias("brokers"), F.max("turn").alias("turn"))
    once = latest.select("t", "brokers", "turn", F.to_date("t").alias("day"))
    before = F.max("turn").over(_day().rowsBetween(W.unboundedPreceding, -1))
    soon = F.max("turn").over(W.partitionBy("day").orderBy(_seconds("t")).rangeBetween(0, int(LONGEST_SILENCE_SECONDS)))
    passed = (F.col("turn") > 0) & (F.col("turn") < before) & (before < soon)
    return once.select("t", "brokers", "day", F.coalesce(passed, F.lit(False)).alias("overtaken"))


def _day() -> WindowSpec:
    return W.partitionBy("day").orderBy("t")


def samples(broker_rounds: DataFrame) -> DataFrame:
    """New samples of brokers, one for each broker and round; those without a number, or below nought, are left out."""
    valid = broker_rounds.where(_measured() & ~_negative()).groupBy("t", "broker")
    return valid.agg(*(F.any_value(name).alias(name) for name in SAMPLE)).select("t", "broker", *SAMPLE)


def _measured() -> Column:
    return F.coalesce(*(F.col(name) for name in RESOURCES)).isNotNull()


def _negative() -> Column:
    return F.least(*(F.coalesce(F.col(name), F.lit(0.0)) for name in RESOURCES)) < 0


def brokers(decisions: DataFrame, broker_rounds: DataFrame, window_seconds: int) -> DataFrame:
    """A row for each broker with a report in each round; its numbers are null where it had no new sample."""
    reported = rounds(decisions).select("t", F.explode("brokers").alias("broker"))
    rows = reported.join(samples(broker_rounds), on=["t", "broker"], how="left")
    return rows.select(window_number("t", window_seconds).alias("window"), "t", "broker", *SAMPLE)


def bundles(bundle_rounds: DataFrame, window_seconds: int) -> DataFrame:
    """Changes of bundles, by window."""
    rates = (F.greatest(F.col(name), F.lit(0.0)).cast(T.FloatType()).alias(name) for name in RATES)
    window = window_number("t", window_seconds).alias("window")
    return bundle_rounds.select(window, "t", "bundle", "broker", *rates, "producers", "consumers")


def window_number(column: str, window_seconds: int) -> Column:
    """Number of the window that a time falls into, counted from 1970."""
    return F.floor(_seconds(column) / window_seconds).cast(T.LongType())


def dropped(broker_rounds: DataFrame, decisions: DataFrame) -> DataFrame:
    """One row of counts: what was read, and what was dropped (:class:`~lbd.learn.quality.ReadCounts`)."""
    raw = broker_rounds.agg(
        F.count("*").alias("samples_read"),
        F.count_if(~_measured()).alias("samples_missing"),
        F.count_if(_negative()).alias("samples_negative"),
    )
    accepted = samples(broker_rounds).agg(F.count("*").alias("samples_kept"), F.count("doubt").alias("samples_doubted"))
    read = decisions.agg(F.count("*").alias("rounds_read"))
    since, longest = F.coalesce(F.col("since"), F.lit(0.0)), F.lit(LONGEST_SILENCE_SECONDS)
    once = rounds(decisions).agg(
        F.count("*").alias("rounds_kept"),
        F.coalesce(F.count_if(since > longest), F.lit(0)).alias("gaps"),
        F.coalesce(F.sum(F.least(since, longest)), F.lit(0.0)).alias("seconds_seen"),
        F.coalesce(F.sum(F.greatest(since - longest, F.lit(0.0))), F.lit(0.0)).alias("seconds_silent"),
    )
    back = overtaken(decisions).agg(F.count("*").alias("rounds_overtaken"))
    return raw.crossJoin(accepted).crossJoin(read).crossJoin(once).crossJoin(back)


def _seconds(column: str) -> Column:
    return F.col(column).cast("double")


# --- features: gaps and their duration, the daily profile, noise and spikes
# Samples come about once a minute and each broker's at its own second, so brokers are compared minute by minute.

BREAK_MINUTES = 3
"""Minutes further apart than three are no neighbours: a gap that was not seen in between has not lasted."""

SPIKE_POINTS = 10.0
SPIKE_DEVIATIONS = 5.0
"""A spike is so many points, and so many deviations of noise, above the median of the half hour around it: what lasts
for a quarter of an hour is none."""

MINUTE_SECONDS = 60


def scores(samples: DataFrame, weights: Weights) -> DataFrame:
    """``minute`` (epoch minutes), ``broker`` and ``score`` in points; the mean where a minute has several samples."""
    parts = [F.col(RESOURCES[at]) * float(weights.row()[at]) for at in SCORED]
    minute = F.floor(F.col("t").cast("double") / MINUTE_SECONDS).alias("minute")
    scored = samples.select(minute, "broker", F.greatest(*parts).alias("score")).where(F.col("score").isNotNull())
    return scored.groupBy("minute", "broker").agg(F.avg("score").alias("score"))


def gaps(scored: DataFrame) -> DataFrame:
    """``minute``, ``gap`` between the highest and the lowest score, ``mean`` of all; of minutes with two or more."""
    by_minute = scored.groupBy("minute").agg(
        (F.max("score") - F.min("score")).alias("gap"), F.avg("score").alias("mean"), F.count("*").alias("brokers")
    )
    return by_minute.where(F.col("brokers") > 1).select("minute", "gap", "mean")


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
    by_pair = apart.groupBy("minute", "pair").agg((F.max("score") - F.min("score")).alias("gap"))
    return by_pair.groupBy("pair").agg(F.avg("gap").alias("mean"), _p95("gap").alias("p95")).orderBy("pair")


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
    by_threshold = episodes.groupBy("threshold").agg(
        F.count("*").alias("times"),
        F.median("minutes").alias("median"),
        F.max("minutes").alias("longest"),
        F.sum("seen").alias("seen"),
    )
    share = (F.col("seen") / F.col("total")).alias("share")
    return by_threshold.crossJoin(total).select("threshold", "times", "median", "longest", share).orderBy("threshold")


def daily(gap: DataFrame) -> DataFrame:
    """For each ``hour`` of the day (UTC, 0 to 23) the mean score, the mean gap and the gap's 95th percentile."""
    hour = F.floor(F.col("minute") / MINUTE_SECONDS % 24).cast("int").alias("hour")
    hours = gap.select(hour, "gap", "mean").groupBy("hour")
    return hours.agg(F.avg("mean").alias("score"), F.avg("gap").alias("gap"), _p95("gap").alias("p95")).orderBy("hour")


def noise(scored: DataFrame) -> DataFrame:
    """For each ``broker`` the ``noise`` in points, its ``time_scale`` in minutes, and the number of ``spikes``.

    Noise is the deviation of a sample from the mean of the half hour around it, by the median, so that spikes do not
    count. Its time scale, for which a sample predicts the next ones, is that of an AR(1) process with the same
    correlation from one sample to the next: 0 where there is none. A spike may last several samples and counts once.
    """
    own = W.partitionBy("broker").orderBy("minute")
    residuals = _around(scored, own)
    near = F.col("minute") - F.lag("minute").over(own) <= BREAK_MINUTES
    calm = F.when(F.abs("residual") < F.col("limit"), F.col("residual"))
    steps = residuals.select(
        "broker", "noise", "minute", calm.alias("residual"), (F.col("above") > F.col("limit")).alias("high")
    )
    earlier = F.when(near, F.lag("residual").over(own)).alias("earlier")
    begins = (F.col("high") & ~F.coalesce(F.lag("high").over(own), F.lit(False))).cast("int").alias("begins")
    by_broker = steps.select("broker", "noise", "residual", earlier, begins).groupBy("broker")
    correlation = F.greatest(F.coalesce(F.corr("residual", "earlier"), F.lit(0.0)), F.lit(0.0)).alias("correlation")
    one = by_broker.agg(F.first("noise").alias("noise"), correlation, F.sum("begins").alias("spikes"))
    scale = F.when((F.col("correlation") > 0) & (F.col("correlation") < 1), -1 / F.ln("correlation")).otherwise(0.0)
    return one.select("broker", "noise", scale.alias("time_scale"), "spikes").orderBy("broker")


def _around(scored: DataFrame, own: WindowSpec) -> DataFrame:
    """For each sample its ``residual`` to the mean of those around it, how far it is ``above`` their median, and the
    ``limit`` beyond which it is a spike.
    """
    around = own.rowsBetween(-AROUND, AROUND)
    residual = (F.col("score") - F.avg("score").over(around)).alias("residual")
    ordered = F.sort_array(F.collect_list("score").over(around))  # Spark has no median of a frame
    above = (F.col("score") - F.element_at(ordered, ((F.size(ordered) + 1) / 2).cast("int"))).alias("above")
    residuals = scored.select("broker", "minute", residual, above)
    quiet = residuals.groupBy("broker").agg((F.median(F.abs("residual")) * NORMAL).alias("noise"))
    limit = F.greatest(F.lit(SPIKE_POINTS), SPIKE_DEVIATIONS * F.col("noise")).alias("limit")
    return residuals.join(F.broadcast(quiet), on="broker", how="inner").select("*", limit)


def _p95(column: str) -> Column:
    return F.percentile(column, 0.95)


# --- collected features: some dozens of rows for the report

LEVELS = (5.0, 8.0, 10.0, 12.0, 15.0, 20.0, 30.0, 40.0)
"""Points for which it is told how often and how long brokers were so far apart."""


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """``pairs``, ``lasting`` and ``daily`` are the rows of :mod:`lbd.learn.features`; ``noise`` is by broker."""

    pairs: tuple[Row, ...]
    lasting: tuple[Row, ...]
    daily: tuple[Row, ...]
    noise: Mapping[str, Row]


def collect_features(broker_rounds: DataFrame, weights: Weights) -> FeatureRows:
    """What the samples tell by themselves."""
    scored = scores(samples(broker_rounds), weights).persist()
    gap = gaps(scored).persist()
    try:
        return FeatureRows(
            pairs=tuple(pairs(scored).collect()),
            lasting=tuple(lasting(gap, LEVELS).collect()),
            daily=tuple(daily(gap).collect()),
            noise={row["broker"]: row for row in noise(scored).collect()},
        )
    finally:
        gap.unpersist()
        scored.unpersist()
