"""What a placement may look at: one row a broker, worked out once for a snapshot and used for many bundles. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lbd.load import scoring
from lbd.model import MSG_IN, MSG_OUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.load.scoring import Weights
    from lbd.model import Averages, FloatArray, IntArray, Snapshot


@dataclass(frozen=True, eq=False)
class Seen:
    """The brokers of one round, as columns aligned with ``ids``.

    ``usage`` is float64 (B,), the highest weighted resource as a fraction; ``smoothed`` float64 (B,), its moving
    average where one is kept, NaN where there is no load data. ``long_rates`` and ``msg_rates`` are float64 (B, 2),
    messages/s in and out: long-term means of the broker's bundles, and its present totals. ``bundles`` is int32 (B,).

    ``age_seconds`` is how old the reports are. ``asked`` is how many bundles are to be placed with this one, and
    ``bundle_rates`` the long-term messages/s, in + out, of those that are known.
    """

    taken_at: float
    ids: tuple[str, ...]
    usage: FloatArray
    smoothed: FloatArray
    long_rates: FloatArray
    msg_rates: FloatArray
    bundles: IntArray
    age_seconds: float = 0.0
    asked: int = 1
    bundle_rates: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each broker."""
        return {broker: at for at, broker in enumerate(self.ids)}


def look(snapshot: Snapshot, averages: Averages, weights: Weights, *, asked: int = 1) -> Seen:
    """What placements need of a round. ``averages`` are aligned with the snapshot's bundles.

    Source: LocalBrokerData.getMaxResourceUsageWithWeight, and TimeAverageBrokerData, which sums the long-term means of
    the bundles that a broker reports.
    """
    brokers, rows = snapshot.brokers, snapshot.rows
    with np.errstate(all="ignore"):
        usage: FloatArray = scoring.scores(brokers, weights) / 100.0
    owner = rows.owner()[rows.reported]
    long = averages.long[rows.bundle[rows.reported]]
    rates = np.zeros((len(brokers), 2))
    for column in (MSG_IN, MSG_OUT):
        rates[:, column] = np.bincount(owner, weights=long[:, column], minlength=len(brokers))
    totals = brokers.rates[:, [MSG_IN, MSG_OUT]]
    if snapshot.partial:  # smaller bundles are not told of, and not counted as nothing
        rates = totals
    return Seen(snapshot.taken_at, brokers.ids, usage, usage, rates, totals, rows.count(rows.listed), asked=asked)
