"""The gap between the highest and the lowest score; ``turn/record.py: gap_points`` says which brokers count in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.model import FloatArray


def gaps(points: FloatArray) -> FloatArray:
    """Highest minus lowest known score of each look, float64 (T,); ``points`` is float64 (T, B), NaN where unknown.

    NaN where fewer than two are known: one broker is no farther from another than nothing.
    """
    is_known = np.isfinite(points)
    highest = np.max(points, axis=-1, where=is_known, initial=-np.inf)
    lowest = np.min(points, axis=-1, where=is_known, initial=np.inf)
    apart: FloatArray = np.where(is_known.sum(axis=-1) > 1, highest - lowest, np.nan)
    return apart


def gap(points: FloatArray) -> float:
    """The gap of one look; ``points`` is float64 (B,)."""
    return float(gaps(points))
