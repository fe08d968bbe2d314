"""Running means of each bundle's rates, as Pulsar's leader keeps them. Pure.

Source: BundleData (windows of 10 and 1,000 samples) and TimeAverageMessageData: ``n = min(n + 1, max)``, then
``((n - 1) * old + new) / n``. The leader's own cannot be read, so lbd computes them from the reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from lbd.model import BYTES_IN, BYTES_OUT, Averages, BoolArray, FloatArray, IntArray, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

Number = TypeVar("Number", np.float64, np.int32)

SHORT_SAMPLES = 10
LONG_SAMPLES = 1000


def update(previous: Averages, snapshot: Snapshot, fresh: BoolArray | None = None) -> Averages:
    """Averages after one round.

    A bundle on no report is dropped, and one whose segments changed starts anew. A bundle that two brokers report gets
    two samples. ``fresh`` is bool (B,): rows of other brokers add no sample, unless the bundle has none yet, and rows
    with NaN, a negative or an absurd number never do; None takes every row, as Pulsar does.
    """
    old = snapshot.positions_in(previous.bundles)
    short, long, samples = _former(old, previous.short), _former(old, previous.long), _former(old, previous.samples)
    changed = list(snapshot.positions_of(snapshot.segments_changed).values())
    short[changed], long[changed], samples[changed] = 0.0, 0.0, 0
    for rows in _passes(snapshot, fresh, samples):
        where, new = snapshot.rows.bundle[rows], snapshot.rows.rates[rows]
        count = np.minimum(samples[where] + 1, LONG_SAMPLES)
        samples[where] = count
        short[where] = _mean(short[where], new, np.minimum(count, SHORT_SAMPLES))
        long[where] = _mean(long[where], new, count)
    return Averages(snapshot.bundles, short, long, samples)


def half_in(traffic: FloatArray) -> float:
    """Number of busiest bundles that carry half of the traffic, float64 (N,), with a part of the last; 0 of nothing."""
    descending = np.sort(traffic)[::-1]
    reached = np.concatenate(([0.0], np.cumsum(descending)))
    half = reached[-1] / 2
    last = int(np.searchsorted(reached, half)) - 1
    return last + (half - reached[last]) / descending[last] if half > 0 else 0.0


def settled_half_in(averages: Averages) -> float | None:
    """The same by the long-term means; None before most bundles have a thousand samples, of seventeen hours."""
    if not averages.samples.size or np.median(averages.samples) < LONG_SAMPLES:
        return None
    traffic = averages.long[:, BYTES_IN] + averages.long[:, BYTES_OUT]
    return half_in(traffic[np.isfinite(traffic)])


def _mean(mean: FloatArray, new: FloatArray, count: IntArray) -> FloatArray:
    """Mean of ``count`` samples, written into ``mean``: memory for another long column takes time."""
    n = count.astype(np.float64)[:, None]
    with np.errstate(all="ignore"):
        mean *= n - 1.0
        mean += new
        mean /= n
    return mean


def _former(old: IntArray, values: NDArray[Number]) -> NDArray[Number]:
    """Values of bundles by their former positions, 0 for bundles that had none."""
    none = np.zeros_like(values, shape=(1, *values.shape[1:]))
    moved: NDArray[Number] = np.concatenate((values, none))[old]
    return moved


def _passes(snapshot: Snapshot, fresh: BoolArray | None, samples: IntArray) -> Iterator[IntArray]:
    """Positions of the rows to average, in passes, so that none holds a bundle twice."""
    rows = snapshot.rows
    taken = rows.reported.copy()
    if fresh is not None:
        taken &= fresh[rows.owner()] | (samples[rows.bundle] == 0)
        taken &= rows.are_possible()
    pending = np.flatnonzero(taken).astype(np.int32)
    if rows.bundle.size == len(snapshot.bundles):
        yield pending
        return
    while pending.size:
        _, first = np.unique(rows.bundle[pending], return_index=True)
        if first.size == pending.size:
            yield pending
            return
        first.sort()
        yield pending[first]
        pending = np.delete(pending, first)
