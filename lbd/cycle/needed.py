"""How many moves a turn planned, and how many any plan needs that gets the brokers as low. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.model import BYTES_IN, BYTES_OUT, FloatArray
from lbd.score.bounds import fewest_removed

if TYPE_CHECKING:
    from lbd.cycle import CycleRecord
    from lbd.model import Snapshot


def fewest(record: CycleRecord) -> int:
    """The fewest moves of any plan after which no broker stands higher than after this one; 0 where none was planned.

    Each bundle weighs its share of its broker's bytes times the broker's score. Only brokers that stand above that peak
    are looked at, so this costs nothing where nothing is planned, and little where something is.
    """
    if not record.unloads or record.observation is None or record.decision is None:
        return 0
    seen, scores = record.observation.snapshot, np.nan_to_num(record.decision.facts.scores)
    moved = {unload.bundle for unload in record.unloads}
    sources, destinations = ({getattr(one, end) for one in record.unloads} for end in ("source", "destination"))
    peak, weights = 0.0, list[tuple[FloatArray, float]]()
    for at, broker in enumerate(seen.brokers.ids):
        score = after = float(scores[at])
        if broker in sources:
            points, gone = _weights(seen, at, score, moved)
            weights.append((points, score - float(points.sum()) if seen.partial else 0.0))
            after -= gone
        if broker in destinations:
            after = max(after, float(np.nan_to_num(record.expected.get(broker, after))))
        peak = max(peak, after)
    return sum(_least(points, peak - rest) for points, rest in weights)


def _weights(seen: Snapshot, broker: int, score: float, moved: set[str]) -> tuple[FloatArray, float]:
    """Points of each bundle of a broker, float64 (N,), and of those that the plan takes from it."""
    rows = seen.rows.of(broker)
    share = np.nan_to_num(seen.rows.rates[rows][:, [BYTES_IN, BYTES_OUT]].sum(axis=1))
    total = float(share.sum())
    if seen.partial:  # the rest is carried by bundles that are not told of
        total = max(total, float(np.nan_to_num(seen.brokers.rates[broker, [BYTES_IN, BYTES_OUT]].sum())))
    points = share * (score / total) if total > 0 else np.zeros(len(share))
    gone = [name in moved for name in (seen.bundles[one] for one in seen.rows.bundle[rows].tolist())]
    return points, float(points[np.array(gone, dtype=np.bool_)].sum())


def _least(points: FloatArray, peak: float) -> int:
    return fewest_removed(points, np.zeros(len(points), dtype=np.int32), np.array([peak]))
