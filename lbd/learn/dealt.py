"""The noise of a window dealt anew, for what a replay moves hangs on single samples that come by chance. Pure.

A threshold that is hit eight times in a row, or seven, is noise where the gap is near it. Replays of the same samples
all agree on it, whenever they begin; so what is chosen by them alone is chosen by chance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.linear import CPU

if TYPE_CHECKING:
    from lbd.learn.window import Window
    from lbd.model import FloatArray

AROUND = 15
"""Samples on either side, half an hour in all: what lasts longer is no noise, and stays where it was."""


def dealt(window: Window, seed: int) -> Window:
    """The same, with what each broker's samples of CPU have beside the median of those around them at other times.

    Seed 0 is the window as it was recorded. A broker with few samples keeps them.
    """
    if seed == 0:
        return window
    random, used = np.random.default_rng(seed), window.used.copy()
    for broker in range(len(window.brokers)):
        own = np.flatnonzero(window.fresh[:, broker] & np.isfinite(used[:, broker, CPU]))
        shift = int(random.integers(1, max(own.size, 2)))
        if own.size > 2 * AROUND:
            level = _level(used[own, broker, CPU])
            drawn = np.clip(level + np.roll(used[own, broker, CPU] - level, shift), 0.0, 100.0)
            used[own[0] :, broker, CPU] = np.repeat(drawn, np.diff(own, append=len(used)))
    return replace(window, used=used)


def _level(samples: FloatArray) -> FloatArray:
    """The median of those around each, float64 (n,): a step up or down stays one."""
    padded = np.pad(samples, AROUND, mode="edge")
    found: FloatArray = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * AROUND + 1), axis=1)
    return found
