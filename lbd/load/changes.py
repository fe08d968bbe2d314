"""Which brokers' bundles came or went between two rounds, told by what they carry. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import BYTES_IN, BYTES_OUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.model import BoolArray, FloatArray, Snapshot

CHANGED_SHARE = 0.01
"""Of a broker's bytes/s; with less than this in bundles that came or went, it carries what it did."""


def is_much(moved: FloatArray, before: FloatArray, now: FloatArray) -> BoolArray:
    """Whether bundles that came and went change what a broker carries, which was ``before`` and is ``now``, bytes/s."""
    found: BoolArray = moved > CHANGED_SHARE * np.maximum(before, now)
    return found


def changed_brokers(before: Snapshot | None, now: Snapshot) -> BoolArray:
    """Brokers whose bundles are not those of the round before, bool (B,); few bytes more or less change nothing."""
    told = np.zeros((3, len(now.brokers)))
    if before is not None:
        then, position = before.rows.bundle.tolist(), before.brokers.index()
        held = now.positions_in(before.bundles)[now.rows.bundle].tolist()
        for at, broker in enumerate(now.brokers.ids):
            was = position.get(broker)
            if was is not None and held[now.rows.of(at)] != then[before.rows.of(was)]:
                told[:, at] = _moved(_bytes(before, was), _bytes(now, at))
    return is_much(*told)


def _bytes(snapshot: Snapshot, broker: int) -> dict[str, float]:
    """Bytes/s of each bundle that a broker reports, infinite where nobody tells."""
    rows = snapshot.rows.of(broker)
    carried = snapshot.rows.rates[rows][:, (BYTES_IN, BYTES_OUT)].sum(axis=1)
    if snapshot.partial:
        carried[~snapshot.rows.reported[rows]] = math.inf
    names = [snapshot.bundles[at] for at in snapshot.rows.bundle[rows].tolist()]
    return dict(zip(names, carried.tolist(), strict=True))


def _moved(before: Mapping[str, float], now: Mapping[str, float]) -> tuple[float, float, float]:
    """What came and went, what there was and what there is; a bundle that is not told of is not in the sum of all."""
    there = before.keys() & now.keys()
    moved = sum(value for side in (before, now) for name, value in side.items() if name not in there)
    return moved, _sum(before), _sum(now)


def _sum(carried: Mapping[str, float]) -> float:
    return sum(value for value in carried.values() if value < math.inf)
