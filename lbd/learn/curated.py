"""From what history holds to what can be learned from: one row a broker and round, none twice, gaps marked.

Every function takes and gives data frames; nothing is computed before somebody asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.window import Window as W  # noqa: N817

from lbd.learn.window import LONGEST_SILENCE_SECONDS
from lbd.model import RESOURCES
from lbd.record.history.tables import RATES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

SAMPLE = (*RESOURCES, *RATES, "topics", "started_at", "doubt")
"""What is kept of a broker's sample."""


def rounds(decisions: DataFrame) -> DataFrame:
    """Rounds: when, who had a report, and the seconds since the one before, on that day; null of the first.

    One that is there twice is taken once, and none that is :func:`overtaken`.
    """
    kept = _once(decisions).where(~F.col("overtaken"))
    before = F.lag(_seconds("t")).over(_day())
    return kept.select("t", "brokers", (_seconds("t") - before).alias("since"))


def overtaken(decisions: DataFrame) -> DataFrame:
    """``t`` of rounds that a clock which was set back has come by once more: turns told as before and after are later.

    Where none follows soon turns were only counted anew, as after ``turns/`` was removed. Imported ones have no number.
    """
    return _once(decisions).where("overtaken").select("t")


def without(rows: DataFrame, overtaken: DataFrame) -> DataFrame:
    """Rows of other tables without those of overtaken rounds, which are few."""
    return rows.join(F.broadcast(overtaken), on="t", how="left_anti")


def _once(decisions: DataFrame) -> DataFrame:
    found = decisions.groupBy("t").agg(F.max_by("brokers", "turn").alias("brokers"), F.max("turn").alias("turn"))
    once = found.select("t", "brokers", "turn", F.to_date("t").alias("day"))
    before = F.max("turn").over(_day().rowsBetween(W.unboundedPreceding, -1))
    soon = F.max("turn").over(W.partitionBy("day").orderBy(_seconds("t")).rangeBetween(0, int(LONGEST_SILENCE_SECONDS)))
    passed = (F.col("turn") > 0) & (F.col("turn") < before) & (before < soon)
    return once.select("t", "brokers", "day", F.coalesce(passed, F.lit(False)).alias("overtaken"))


def _day() -> WindowSpec:
    return W.partitionBy("day").orderBy("t")


def samples(broker_rounds: DataFrame) -> DataFrame:
    """New samples of brokers, one for each broker and round; those without a number, or below nought, are left out."""
    told = F.coalesce(*(F.col(name) for name in RESOURCES)).isNotNull()
    sane = F.least(*(F.coalesce(F.col(name), F.lit(0.0)) for name in RESOURCES)) >= 0
    kept = broker_rounds.where(told & sane).groupBy("t", "broker")
    return kept.agg(*(F.any_value(name).alias(name) for name in SAMPLE)).select("t", "broker", *SAMPLE)


def brokers(decisions: DataFrame, broker_rounds: DataFrame, window_seconds: int) -> DataFrame:
    """A row for each broker with a report in each round; its numbers are null where it had no new sample."""
    reported = rounds(decisions).select("t", F.explode("brokers").alias("broker"))
    found = reported.join(samples(broker_rounds), on=["t", "broker"], how="left")
    return found.select(window_of("t", window_seconds).alias("window"), "t", "broker", *SAMPLE)


def bundles(bundle_rounds: DataFrame, window_seconds: int) -> DataFrame:
    """Changes of bundles, by window."""
    rates = (F.greatest(F.col(name), F.lit(0.0)).cast(T.FloatType()).alias(name) for name in RATES)
    return bundle_rounds.select(window_of("t", window_seconds).alias("window"), "t", "bundle", "broker", *rates)


def window_of(column: str, window_seconds: int) -> Column:
    """Number of the window that a time falls into, counted from 1970."""
    return F.floor(_seconds(column) / window_seconds).cast(T.LongType())


def dropped(broker_rounds: DataFrame, decisions: DataFrame) -> DataFrame:
    """One row: what was read, and what of it is not learned from."""
    raw = broker_rounds.agg(F.count("*").alias("samples_read"))
    kept = samples(broker_rounds).agg(F.count("*").alias("samples_kept"), F.count("doubt").alias("samples_doubted"))
    seen = decisions.agg(F.count("*").alias("rounds_read"))
    since, longest = F.coalesce(F.col("since"), F.lit(0.0)), F.lit(LONGEST_SILENCE_SECONDS)
    once = rounds(decisions).agg(
        F.count("*").alias("rounds_kept"),
        F.coalesce(F.count_if(since > longest), F.lit(0)).alias("gaps"),
        F.coalesce(F.sum(F.least(since, longest)), F.lit(0.0)).alias("seconds_seen"),
    )
    back = overtaken(decisions).agg(F.count("*").alias("rounds_overtaken"))
    return raw.crossJoin(kept).crossJoin(seen).crossJoin(once).crossJoin(back)


def _seconds(column: str) -> Column:
    return F.col(column).cast("double")
