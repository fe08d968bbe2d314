"""Which bundles changed hands since the last round: by clients' lookups, restarts, or other tools as well. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.model import IntArray, Snapshot

AWAY_SECONDS = 15 * 60.0
"""A bundle that was on no report for longer and shows up elsewhere was loaded anew rather than moved."""


UNSEEN, GONE = -1, -2
"""In a column of former owners: the bundle was never seen; its broker is on no report now."""


@dataclass(frozen=True, eq=False)
class Owners:
    """Who reported each bundle: ``owner`` is int32 (N,) into ``brokers``, aligned with ``bundles``.

    ``away`` are bundles on no report now: who had them, and when they were last seen there (epoch seconds).
    """

    bundles: list[str]
    brokers: tuple[str, ...]
    owner: IntArray
    away: Mapping[str, tuple[str, float]] = field(default_factory=dict)


def look(before: Owners | None, snapshot: Snapshot) -> tuple[Owners, frozenset[str]]:
    """The owners of this round, and the bundles whose owner is another than before.

    A bundle that was never seen has changed nothing; one that two brokers report is still with the one it was with.
    """
    owner = _first(snapshot)
    if before is None:
        return Owners(snapshot.bundles, snapshot.brokers.ids, owner), frozenset()
    was, away = _before(before, snapshot)
    _keep_where_it_was(owner, was, snapshot)
    changed = frozenset(snapshot.bundles[at] for at in np.flatnonzero((was != owner) & (was != UNSEEN)).tolist())
    return Owners(snapshot.bundles, snapshot.brokers.ids, owner, away), changed


def _first(snapshot: Snapshot) -> IntArray:
    """The first broker that reports each bundle."""
    owner = np.full(len(snapshot.bundles), UNSEEN, dtype=np.int32)
    owner[snapshot.rows.bundle[::-1]] = snapshot.rows.owner()[::-1]
    return owner


def _before(before: Owners, snapshot: Snapshot) -> tuple[IntArray, dict[str, tuple[str, float]]]:
    """Former owners as positions of this round's brokers, int32 (N,), and what is away now."""
    index = snapshot.brokers.index()
    code = np.array([*(index.get(broker, GONE) for broker in before.brokers), UNSEEN], dtype=np.int32)
    old = snapshot.positions_in(before.bundles)
    was = code[np.append(before.owner, UNSEEN)[old]]
    away = _still(before.away, snapshot.taken_at)
    for at in np.flatnonzero(old < 0).tolist():
        if (seen := away.pop(snapshot.bundles[at], None)) is not None:
            was[at] = index.get(seen[0], GONE)
    left = np.delete(np.arange(before.owner.size), old[old >= 0]).tolist()
    gone = {before.bundles[at]: (before.brokers[before.owner[at]], snapshot.taken_at) for at in left}
    return was, {**away, **gone}


def _still(away: Mapping[str, tuple[str, float]], now: float) -> dict[str, tuple[str, float]]:
    return {name: seen for name, seen in away.items() if now - seen[1] <= AWAY_SECONDS}


def _keep_where_it_was(owner: IntArray, was: IntArray, snapshot: Snapshot) -> None:
    """Of a bundle on two reports, the former owner is still one."""
    bundle = snapshot.rows.bundle
    if bundle.size > owner.size:
        rows = np.flatnonzero(was[bundle] == snapshot.rows.owner())
        owner[bundle[rows]] = was[bundle[rows]]
