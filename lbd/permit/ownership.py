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

    ``away`` are bundles on no report now: who had them, and when they were last seen there (epoch seconds). ``start``
    is int32 (B + 1,): broker b's bundles are ``start[b]:start[b + 1]``; None where some bundle was on two reports.
    """

    bundles: list[str]
    brokers: tuple[str, ...]
    owner: IntArray
    away: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    start: IntArray | None = None


def look(before: Owners | None, snapshot: Snapshot) -> tuple[Owners, frozenset[str]]:
    """The owners of this round, and the bundles whose owner is another than before.

    A bundle that was never seen has changed nothing; one that two brokers report is still with the one it was with.
    """
    owner = _first(snapshot)
    brokers, start = snapshot.brokers.ids, _start(snapshot)
    if before is None:
        return Owners(snapshot.bundles, brokers, owner, start=start), frozenset()
    was, away = _before(before, snapshot)
    _keep_where_it_was(owner, was, snapshot)
    changed = frozenset(snapshot.bundles[at] for at in np.flatnonzero((was != owner) & (was != UNSEEN)).tolist())
    return Owners(snapshot.bundles, brokers, owner, away, start), changed


def _start(snapshot: Snapshot) -> IntArray | None:
    return snapshot.rows.start if snapshot.rows.bundle.size == len(snapshot.bundles) else None


def _first(snapshot: Snapshot) -> IntArray:
    """The first broker that reports each bundle."""
    owner = np.full(len(snapshot.bundles), UNSEEN, dtype=np.int32)
    owner[snapshot.rows.bundle[::-1]] = snapshot.rows.owner()[::-1]
    return owner


def _before(before: Owners, snapshot: Snapshot) -> tuple[IntArray, dict[str, tuple[str, float]]]:
    """Former owners as positions of this round's brokers, int32 (N,), and what is away now."""
    index = snapshot.brokers.index()
    code = np.array([*(index.get(broker, GONE) for broker in before.brokers), UNSEEN], dtype=np.int32)
    if before.bundles == snapshot.bundles:
        return code[before.owner], _still(before.away, snapshot.taken_at)
    was, old, new = _unmoved(before, snapshot)
    position = {before.bundles[at]: at for at in old}
    away = _still(before.away, snapshot.taken_at)
    for at in new:
        name = snapshot.bundles[at]
        if (row := position.pop(name, None)) is not None:
            was[at] = code[before.owner[row]]
        elif (seen := away.pop(name, None)) is not None:
            was[at] = index.get(seen[0], GONE)
    left = {name: (before.brokers[before.owner[row]], snapshot.taken_at) for name, row in position.items()}
    return was, {**away, **left}


def _unmoved(before: Owners, snapshot: Snapshot) -> tuple[IntArray, list[int], list[int]]:
    """Former owners as far as a broker reports just what it did, and the bundles left to compare, before and now.

    Most brokers do; so a move costs the names of two brokers and not those of all.
    """
    was = np.full(len(snapshot.bundles), UNSEEN, dtype=np.int32)
    start, known = _start(snapshot), np.zeros(len(before.bundles), dtype=np.bool_)
    former = {broker: at for at, broker in enumerate(before.brokers)}
    for at, broker in enumerate(snapshot.brokers.ids):
        if start is None or before.start is None or broker not in former:
            continue
        then, now = _part(before.start, former[broker]), _part(start, at)
        if before.bundles[then] == snapshot.bundles[now]:
            was[now], known[then] = at, True
    return was, np.flatnonzero(~known).tolist(), np.flatnonzero(was == UNSEEN).tolist()


def _part(start: IntArray, at: int) -> slice:
    return slice(int(start[at]), int(start[at + 1]))


def _still(away: Mapping[str, tuple[str, float]], now: float) -> dict[str, tuple[str, float]]:
    return {name: seen for name, seen in away.items() if now - seen[1] <= AWAY_SECONDS}


def _keep_where_it_was(owner: IntArray, was: IntArray, snapshot: Snapshot) -> None:
    """Of a bundle on two reports, the former owner is still one."""
    bundle = snapshot.rows.bundle
    if bundle.size > owner.size:
        rows = np.flatnonzero(was[bundle] == snapshot.rows.owner())
        owner[bundle[rows]] = was[bundle[rows]]
