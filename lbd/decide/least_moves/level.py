"""The level at which brokers would be even, if traffic were water. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.decide.least_moves.ground import Ground
    from lbd.model import BoolArray, FloatArray

STEPS = 50
"""Halvings of the range: below a millionth of a point."""

DECIMALS = 6
"""Sums in another order differ in their last bits; a plan must not."""


def water_level(ground: Ground, among: BoolArray) -> float:
    """Points at which these brokers together carry all that may move, each as much as it can; ``among`` is bool (B,).

    All is taken to be of one mix. A broker that is above the level without any of it stays there.
    """
    idle, load = ground.idle[among], ground.drives[among[ground.owner]].sum(axis=0)
    high = float(np.maximum(ground.points[among].max(axis=1), ground.other[among]).max())
    if not load.any():
        return round(float(ground.points[among].max(axis=1).mean()), DECIMALS)
    low = float(min(idle.min(), 0.0))
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = _share(idle, ground.cost[among] * load, middle).sum() >= 1
        low, high = (low, middle) if enough else (middle, high)
    return round(high, DECIMALS)


def brokers_missing(ground: Ground, among: BoolArray, level: float) -> int:
    """How many more brokers of the mean capacity would bring the level down to this one."""
    load = ground.drives[among[ground.owner]].sum(axis=0)
    carried = np.minimum(_share(ground.idle[among], ground.cost[among] * load, level), 1.0)
    mean = float(carried.mean())
    return math.ceil((1 - mean * carried.size) / mean) if mean > 0 else 0


def _share(idle: FloatArray, whole: FloatArray, level: float) -> FloatArray:
    """What share of the whole load each broker carries at a level, (B,); ``whole`` (B, 3): points of all of it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(whole > 0, (level - idle) / whole, np.where(idle <= level, np.inf, 0.0))
    found: FloatArray = np.maximum(room.min(axis=1), 0.0)
    return found
