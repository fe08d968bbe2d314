"""What is counted over the life of a process, for ``/metrics``: cheap enough for the threads that turn and move."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.cycle.needed import fewest
from lbd.histogram import Histogram
from lbd.model import Outcome, Result, Skip

if TYPE_CHECKING:
    from lbd.cycle import CycleRecord

LANDING_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""An idle bundle lands in 0.13 to 0.2 s on 4.0.8, one of 1,250 topics in a second; a broker gives up after 60 s."""

ANSWER_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
TURN_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
NOT_SENT = "not-sent"


@dataclass(frozen=True)
class Tallied:
    """All counts at one moment; ``needed`` of the ``planned`` moves are the fewest of any plan that gets as far."""

    planned: int
    needed: int
    turns: Counter[str]
    unloads: Counter[str]
    landing: Histogram
    observing: Histogram
    answers: dict[tuple[str, str, str], Histogram]


class Tally:
    """Thread-safe. Every label is of a closed set, so that nothing grows with the cluster or with who asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned = self._needed = 0
        self._turns: Counter[str] = Counter()
        self._unloads: Counter[str] = Counter({**{one.value: 0 for one in Result}, NOT_SENT: 0})
        self._landing, self._observing = Histogram(LANDING_SECONDS), Histogram(TURN_SECONDS)
        self._answers: dict[tuple[str, str, str], Histogram] = {}

    def turn(self, record: CycleRecord, verdict: str) -> None:
        """A turn has ended."""
        least = fewest(record)
        with self._lock:
            self._planned, self._needed = self._planned + len(record.unloads), self._needed + least
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
            return Tallied(self._planned, self._needed, *counts, self._landing.copy(), self._observing.copy(), answers)
