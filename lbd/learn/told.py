"""The features of a history, collected: some dozens of rows that a report shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.learn import curated, features

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, Row

    from lbd.load.scoring import Weights

LEVELS = (5.0, 8.0, 10.0, 12.0, 15.0, 20.0, 30.0, 40.0)
"""Points for which it is told how often and how long brokers were so far apart."""


@dataclass(frozen=True, eq=False)
class Told:
    """``pairs``, ``lasting`` and ``daily`` are the rows of :mod:`lbd.learn.features`; ``noise`` is by broker."""

    pairs: tuple[Row, ...]
    lasting: tuple[Row, ...]
    daily: tuple[Row, ...]
    noise: Mapping[str, Row]


def told(broker_rounds: DataFrame, weights: Weights) -> Told:
    """What the samples tell by themselves."""
    scored = features.scores(curated.samples(broker_rounds), weights).persist()
    gap = features.gaps(scored).persist()
    try:
        return Told(
            pairs=tuple(features.pairs(scored).collect()),
            lasting=tuple(features.lasting(gap, LEVELS).collect()),
            daily=tuple(features.daily(gap).collect()),
            noise={row["broker"]: row for row in features.noise(scored).collect()},
        )
    finally:
        gap.unpersist()
        scored.unpersist()
