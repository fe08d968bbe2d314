"""What the API shows: everything of the last turn in one immutable value, and a reference to it that turns replace."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from lbd.api.events import Events
from lbd.api.tally import Tally
from lbd.cycle.document import brokers

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.cycle import CycleRecord
    from lbd.model import Outcome, Skip
    from lbd.record.status import Status

GAPS = 5760
"""Turns whose gap is kept in memory: a day of them at the default interval."""


class GapPoint(msgspec.Struct, frozen=True):
    """How far apart the brokers were in one turn: scores in points, ``at`` epoch seconds; None where unknown."""

    at: float
    highest: float | None
    lowest: float | None
    mean: float | None
    verdict: str


@dataclass(frozen=True, eq=False)
class Published:
    """One turn, as it is shown: nothing in it changes any more."""

    status: Status
    record: CycleRecord
    settings: Settings

    @cached_property
    def brokers(self) -> list[dict[str, Any]]:
        """A row for each broker of a turn that has decided."""
        return brokers(self.record)

    @cached_property
    def gap(self) -> GapPoint:
        """Highest, lowest and mean score of the brokers that gave one."""
        scores = [one.score for one in self.status.brokers if one.score is not None]
        kind = self.status.verdict.kind if self.status.verdict is not None else "unknown"
        if not scores:
            return GapPoint(self.status.at, None, None, None, kind)
        return GapPoint(self.status.at, max(scores), min(scores), round(float(np.mean(scores)), 3), kind)


class Board:
    """Written by the daemon's threads, read by the API's. Readers take :attr:`last` once and go on with that."""

    def __init__(self) -> None:
        self.last: Published | None = None
        self.events = Events()
        self.tally = Tally()
        self._gaps: deque[GapPoint] = deque(maxlen=GAPS)
        self._lock = threading.Lock()

    def publish(self, published: Published) -> None:
        """A turn has ended."""
        with self._lock:
            self._gaps.append(published.gap)
        self.tally.turn(published.record, published.gap.verdict)
        self.last = published
        self.events.tell("turn", published.status)

    def again(self, status: Status) -> Published:
        """The last turn with a status that tells more than it did when it ended."""
        assert self.last is not None
        self.last = replace(self.last, status=status)
        self.events.tell("turn", status)
        return self.last

    def moved(self, ended: Outcome | Skip, move: dict[str, Any]) -> None:
        """A move has ended; ``move`` is how the log tells it."""
        self.tally.moved(ended)
        self.events.tell("move", move)

    def gaps(self, since: float) -> list[GapPoint]:
        """Gaps of the turns after a time (epoch seconds), the oldest first."""
        with self._lock:
            return [point for point in self._gaps if point.at > since]
