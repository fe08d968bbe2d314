"""What is counted over the life of a process, for ``/metrics``: cheap enough for the threads that turn and move."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from lbd.model import Outcome, Result, Skip

if TYPE_CHECKING:
    from lbd.cycle import CycleRecord

LANDING_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""An idle bundle lands in 0.13 to 0.2 s on 4.0.8, one of 1,250 topics in a second; a broker gives up after 60 s."""

ANSWER_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
TURN_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
NOT_SENT = "not-sent"


@dataclass
class Histogram:
    """Numbers by size: ``counts`` has one more than ``bounds``, for all above."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        """Nothing is counted yet."""
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound, and how many are at or below it, as Prometheus wants them."""
        names = (*map(str, self.bounds), "+Inf")
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))

    def copy(self) -> Histogram:
        """As it is now."""
        return Histogram(self.bounds, list(self.counts), self.total)


@dataclass(frozen=True)
class Tallied:
    """All counts at one moment."""

    turns: Counter[str]
    unloads: Counter[str]
    landing: Histogram
    observing: Histogram
    answers: dict[tuple[str, str, str], Histogram]


class Tally:
    """Thread-safe. Every label is of a closed set, so that nothing grows with the cluster or with who asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: Counter[str] = Counter()
        self._unloads: Counter[str] = Counter({**{one.value: 0 for one in Result}, NOT_SENT: 0})
        self._landing, self._observing = Histogram(LANDING_SECONDS), Histogram(TURN_SECONDS)
        self._answers: dict[tuple[str, str, str], Histogram] = {}

    def turn(self, record: CycleRecord, verdict: str) -> None:
        """A turn has ended."""
        with self._lock:
            self._turns["error" if record.error is not None else verdict] += 1
            if record.observation is not None:
                self._observing.add(record.observation.seconds)

    def moved(self, ended: Outcome | Skip) -> None:
        """A move has ended, or was not sent."""
        with self._lock:
            if isinstance(ended, Skip):
                self._unloads[NOT_SENT] += 1
                return
            self._unloads[ended.result.value] += 1
            if ended.result is Result.LANDED:
                self._landing.add(ended.seconds)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request to the API was answered; ``route`` is its pattern, never what somebody sent."""
        with self._lock:
            key = (method, route, str(status))
            self._answers.setdefault(key, Histogram(ANSWER_SECONDS)).add(seconds)

    def read(self) -> Tallied:
        """All of it, at one moment."""
        with self._lock:
            answers = {key: one.copy() for key, one in self._answers.items()}
            counts = self._turns.copy(), self._unloads.copy()
            return Tallied(*counts, self._landing.copy(), self._observing.copy(), answers)
