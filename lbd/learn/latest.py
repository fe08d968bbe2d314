"""What brokers of a replay usually use: the rule of a live turn (``load/usual.py``) over a window's samples. Pure.

A live turn tells new samples by their numbers and keeps each with what was carried meanwhile (``load/samples.py``); a
window says which are new, and a replay has its slopes already. So only the newest few are kept here.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.changes import is_much
from lbd.load.linear import CPU
from lbd.load.samples import NEVER
from lbd.load.start_up import is_of_start_up
from lbd.load.usual import MOST_SAMPLES, MOST_SECONDS, usual
from lbd.model import BYTES_IN, BYTES_OUT

if TYPE_CHECKING:
    from lbd.learn.window import Window
    from lbd.model import BoolArray, FloatArray, IntArray

    Sample = tuple[float, FloatArray, int]


class Latest:
    """The newest samples of each broker of a window: when, percent used, and how many came since its bundles changed.

    Of ``shown`` brokers, bool (B,), the newest one is among them; of the others it told nothing, and so does the rest.
    """

    def __init__(self, window: Window) -> None:
        size = len(window.brokers)
        self._window = window
        self._limited: BoolArray = np.logical_or.reduce(np.isfinite(window.used), axis=0)
        self._samples: list[deque[Sample]] = [deque(maxlen=MOST_SAMPLES) for _ in range(size)]
        self._since_change: IntArray = np.full(size, NEVER, dtype=np.int32)
        self._shown: BoolArray = np.zeros(size, dtype=np.bool_)
        self._owner: IntArray = np.full(len(window.bundles), -1, dtype=np.int32)
        self._bytes: FloatArray = np.zeros(len(window.bundles))

    def take(self, number: int, owner: IntArray, rates: FloatArray, used: FloatArray) -> None:
        """A round, later than those before: who owns each bundle, int32 (K,), with what rates, (K, 4), and what brokers
        use, (B, 5), percent.
        """
        changed, fresh = self._changed(number, owner, rates), self._window.fresh[number]
        self._forget_restarted(number)
        self._since_change[fresh] += 1
        self._since_change[changed] = 0
        for broker in np.flatnonzero(fresh).tolist():
            self._keep(number, broker, np.clip(used[broker], 0.0, 100.0))
        self._since_change[changed] = -1
        np.minimum(self._since_change, NEVER, out=self._since_change)

    def usual(self, number: int) -> tuple[FloatArray, FloatArray]:
        """Percent that each broker with a report used on average lately, float64 (B, 5), and of how many samples."""
        here, since = np.flatnonzero(self._window.present[number]).tolist(), self._window.at[number] - MOST_SECONDS
        found = [usual(self._newest(broker, since)) for broker in here]
        return np.array([used for used, _ in found]), np.array([float(samples) for _, samples in found])

    def _newest(self, broker: int, since: float) -> list[FloatArray]:
        if not self._shown[broker]:
            return []
        newest = takewhile(lambda one: one[2] > 0 and one[0] >= since, reversed(self._samples[broker]))
        return [used for _, used, _ in newest]

    def _keep(self, number: int, broker: int, used: FloatArray) -> None:
        at = float(self._window.at[number])
        young = is_of_start_up(at - self._window.started_at[number, broker], used[CPU])
        told = not young and bool(np.isfinite(used[self._limited[broker]]).all())
        self._shown[broker] = told
        if told:
            self._samples[broker].append((at, used, int(self._since_change[broker])))

    def _forget_restarted(self, number: int) -> None:
        """A broker that was started anew is another one; where no report tells when, it is the same."""
        if number == 0:
            return
        before, now = self._window.started_at[number - 1], self._window.started_at[number]
        both = self._window.present[number - 1] & self._window.present[number]
        other: BoolArray = both & (before != now) & ~(np.isnan(before) & np.isnan(now))
        for broker in np.flatnonzero(other).tolist():
            self._samples[broker].clear()
            self._since_change[broker] = NEVER

    def _changed(self, number: int, owner: IntArray, rates: FloatArray) -> BoolArray:
        """Brokers whose bundles are not those of the round before, bool (B,); few bytes more or less change nothing."""
        size, carried = len(self._samples), rates[:, BYTES_IN] + rates[:, BYTES_OUT]
        was, carried_then = self._owner, self._bytes
        self._owner, self._bytes = owner.copy(), carried
        moved = np.flatnonzero(owner != was)
        if number == 0 or not moved.size:
            return np.zeros(size, dtype=np.bool_)
        came, gone = _sums(owner[moved], carried[moved], size), _sums(was[moved], carried_then[moved], size)
        before, now = _sums(was, carried_then, size), _sums(owner, carried, size)
        found: BoolArray = is_much(came + gone, before, now) & self._window.present[number - 1]
        return found


def _sums(owner: IntArray, values: FloatArray, size: int) -> FloatArray:
    """What each broker owns, float64 (B,); -1 is nobody."""
    found: FloatArray = np.bincount(owner + 1, values, size + 1)[1:].astype(np.float64)
    return found
