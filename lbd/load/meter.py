"""What a broker carried over a span of time, out of rates that each report a mean over some time before. Pure.

CPU is sampled once a minute, rates are counted once in statsUpdateFrequencyInSecs (60 unless set), and a report shows
both some time after: taken as they stand in one report, a change of traffic is in the one and not yet in the other.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.model import FloatArray

COUNTED_SECONDS = 60.0
"""Rates that stand still for longer have been counted anew, and are the same."""

REMEMBERED = 64
"""Counts that are kept; a sample waits for the next one only."""


class Meter:
    """Follows what one broker says that it carries, round by round."""

    def __init__(self) -> None:
        self._until: deque[float] = deque(maxlen=REMEMBERED)
        self._rates: deque[FloatArray] = deque(maxlen=REMEMBERED)
        self._round = -np.inf
        self._counted = -np.inf

    def take(self, at: float, rates: FloatArray) -> None:
        """A round at this moment; ``rates`` is float64 (4,)."""
        since, self._round = at - self._round, at
        same = bool(self._rates) and np.array_equal(self._rates[-1], rates)
        if same and at - self._counted < COUNTED_SECONDS:
            return
        often = self._counted == at - since and since < COUNTED_SECONDS
        self._counted = at
        self._until.append(at - self.lag(since / 2 if often else since))
        self._rates.append(rates)

    @staticmethod
    def lag(since_seconds: float) -> float:
        """How long ago, at a guess, what this round is the first to show was counted: within the time since the last
        round, but no longer ago than it takes to be counted once more.
        """
        return min(since_seconds, COUNTED_SECONDS) / 2

    def latest(self) -> FloatArray | None:
        """The rates that were counted last, float64 (4,); None before any were."""
        return self._rates[-1] if self._rates else None

    def mean(self, begin: float, end: float) -> FloatArray | None:
        """The mean rates over this span, float64 (4,); None while its end has not been counted yet."""
        if not self._until or self._until[-1] < end:
            return None
        passed, total = 0.0, np.zeros(4)
        for at in range(len(self._until) - 1, -1, -1):
            since = self._until[at - 1] if at else -np.inf
            span = min(self._until[at], end) - max(since, begin)
            if span > 0:
                passed, total = passed + span, total + span * self._rates[at]
            if since <= begin:
                break
        return total / passed if passed else self._rates[-1]
