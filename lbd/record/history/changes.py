"""Which bundles have changed enough to be stored again. Pure.

Most of a cluster's bundles hardly change from one minute to the next; stored whole, a week of 20 brokers with 2,000
bundles each minute is 20 million rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbd.model import BoolArray, FloatArray, IntArray, Rows, Snapshot

FLOORS = np.array([1.0, 1.0, 1024.0, 1024.0])
"""Changes below a message or a KiB per second are none, whatever fraction they are."""


@dataclass(frozen=True, eq=False)
class Stored:
    """What was stored last of each of ``bundles``.

    ``rates`` is float64 (N, 4), NaN of what never was; ``counts`` int64 (N, 3); ``owner`` int32 (N,) into ``brokers``,
    -1 of what nobody reported.
    """

    brokers: tuple[str, ...]
    bundles: list[str]
    rates: FloatArray
    counts: NDArray[np.int64]
    owner: IntArray

    @classmethod
    def nothing(cls, brokers: tuple[str, ...] = (), bundles: list[str] | None = None) -> Stored:
        """Of none of these bundles anything was stored yet."""
        bundles = bundles or []
        size = len(bundles)
        rates, counts = np.full((size, 4), np.nan), np.full((size, 3), -1, dtype=np.int64)
        return cls(brokers, bundles, rates, counts, np.full(size, -1, dtype=np.int32))


@dataclass(frozen=True, eq=False)
class Changes:
    """``rows`` are positions in a snapshot's rows, int64 (k,); ``gone`` are bundles that no broker reports any more."""

    rows: NDArray[np.int64]
    gone: tuple[str, ...]


def changes(before: Stored, snapshot: Snapshot, fresh: BoolArray, step: float) -> tuple[Stored, Changes]:
    """What is to be stored of a round, and what is stored then. ``fresh`` is bool (B,): other rows tell nothing new.

    A bundle is stored when its owner or one of its counts is another than stored, or one of its rates has changed by
    more than the fraction ``step``.
    """
    known, gone = _aligned(before, snapshot)
    table, owner = snapshot.rows, snapshot.rows.owner()
    own = np.flatnonzero(fresh[owner])
    at, rates = table.bundle[own], table.rates[own]
    limit = np.maximum(np.abs(known.rates[at]) * step, FLOORS if step else 0.0)
    with np.errstate(invalid="ignore"):
        moved = ~(np.abs(rates - known.rates[at]) <= limit)  # written so that NaN is a change
    counted = (table.counts[own] != known.counts[at]).any(axis=1)
    elsewhere = owner[own] != known.owner[at]
    rows = own[(moved & ~_both_unknown(rates, known.rates[at])).any(axis=1) | counted | elsewhere]
    return _stored(known, table, owner, rows), Changes(rows, gone)


def _both_unknown(new: FloatArray, old: FloatArray) -> BoolArray:
    """A broker that goes on reporting NaN says nothing new; a bundle never stored is told by its owner."""
    found: BoolArray = np.isnan(new) & np.isnan(old)
    return found


def _stored(known: Stored, table: Rows, owner: IntArray, rows: NDArray[np.int64]) -> Stored:
    rates, counts, owned = known.rates.copy(), known.counts.copy(), known.owner.copy()
    at = table.bundle[rows]
    rates[at], counts[at], owned[at] = table.rates[rows], table.counts[rows], owner[rows]
    return replace(known, rates=rates, counts=counts, owner=owned)


def _aligned(before: Stored, snapshot: Snapshot) -> tuple[Stored, tuple[str, ...]]:
    """What was stored, in the order of this snapshot's bundles and brokers, and the bundles that are on no report."""
    old = snapshot.positions_in(before.bundles)
    known = old >= 0
    found = Stored.nothing(snapshot.brokers.ids, snapshot.bundles)
    found.rates[known], found.counts[known] = before.rates[old[known]], before.counts[old[known]]
    found.owner[known] = _owners(before, found.brokers, before.owner[old[known]])
    left = before.owner >= 0
    left[old[known]] = False
    return found, tuple(before.bundles[at] for at in np.flatnonzero(left).tolist())


def _owners(before: Stored, brokers: tuple[str, ...], owner: IntArray) -> IntArray:
    """Owners by their position among other brokers; -1 of those that left."""
    if before.brokers == brokers:
        return owner
    position = {broker: at for at, broker in enumerate(brokers)}
    moved = np.array([*(position.get(broker, -1) for broker in before.brokers), -1], dtype=np.int32)
    found: IntArray = moved[owner]
    return found
