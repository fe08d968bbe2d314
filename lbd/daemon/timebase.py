"""The time by which a daemon turns, counts, rests and keeps its journal: this machine's, or a faster one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_SECONDS = 2.0
"""NTP slews what is less than half a second."""


@dataclass(frozen=True)
class Timebase:
    """``now`` is epoch seconds, ``pace`` how many of them pass in a second of this machine, at this moment.

    Only what lbd decides by is told by it. What waits for an answer (time-outs, proofs of a landing, the pause between
    two unloads) takes as long as sockets take, and stays on the machine's own clock.
    """

    now: Callable[[], float] = time.time
    pace: Callable[[], float] = lambda: 1.0

    def takes(self, seconds: float) -> float:
        """Seconds of this machine in which so many pass."""
        return seconds / self.pace()

    def at(self, machine_time: float) -> float:
        """What this clock shows when the machine's shows ``machine_time`` (epoch seconds), at the present pace."""
        return self.now() + (machine_time - time.time()) * self.pace()


SYSTEM = Timebase()


class Steps:
    """Whether the machine's clock was set: its time and the time that nobody can set go apart then."""

    def __init__(self, now: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._now, self._monotonic = now, monotonic
        self._apart = now() - monotonic()

    def since_last_look(self) -> float:
        """Seconds by which it was set ahead, negative for back; 0 for less than :data:`STEP_SECONDS`.

        Where the process stood still between the two looks that this takes, nothing is known until the next time.
        """
        begun, now, ended = self._monotonic(), self._now(), self._monotonic()
        if ended - begun > STEP_SECONDS / 2:
            return 0.0
        step = now - begun - self._apart
        if abs(step) < STEP_SECONDS:
            return 0.0
        self._apart += step
        return step
