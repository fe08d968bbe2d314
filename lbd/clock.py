"""Clocks: seconds since the machine started (for deadlines and cool-downs, suspended time included), and daemon time.

``time.monotonic`` stops on Linux while the machine sleeps, so a deadline by it outlasts a successor's wait.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Seconds since the start of the machine; this clock cannot be set."""
    return time.clock_gettime(_CLOCK)


class Moment(NamedTuple):
    """A time that is independent of set clocks: ``up`` seconds after the start of the machine that ``boot`` names.

    Moments of different starts cannot be compared.
    """

    boot: str
    up: float


def moment() -> Moment:
    """The present moment."""
    return Moment(boot_name(), boot_seconds())


@cache
def boot_name() -> str:
    """Short name of this start of the machine; of this process where the system does not name its starts."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")[:12]
    except (OSError, ValueError):
        return secrets.token_hex(6)


# --- the time of a daemon: this machine's, or a faster one

STEP_SECONDS = 2.0
"""Smallest step: NTP slews differences below half a second."""


@dataclass(frozen=True)
class Timebase:
    """Daemon time: ``now`` is epoch seconds, ``pace`` their present number per second of this machine.

    ``boot`` is the clock that cannot be set, by which rests and budgets last at least as long as by ``now``; None where
    ``now`` is not the machine's.

    Only decisions use it. Waits for responses (timeouts, proofs of a landing, the pause between two unloads) take as
    long as sockets take, and stay on the machine's own clock.
    """

    now: Callable[[], float] = time.time
    pace: Callable[[], float] = lambda: 1.0
    boot: Callable[[], Moment | None] = lambda: None

    def takes(self, seconds: float) -> float:
        """Convert seconds of this clock to seconds of this machine."""
        return seconds / self.pace()

    def at(self, machine_time: float) -> float:
        """Time of this clock when the machine's shows ``machine_time`` (epoch seconds), at the present pace."""
        return self.now() + (machine_time - time.time()) * self.pace()


SYSTEM = Timebase(boot=moment)


class Steps:
    """Detects that the machine's clock was set: its time then differs from the time that cannot be set."""

    def __init__(self, now: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._now, self._monotonic = now, monotonic
        self._apart = now() - monotonic()

    def since_last_look(self) -> float:
        """Seconds by which it was set ahead, negative for back; 0 for less than :data:`STEP_SECONDS`.

        Where the process was suspended between the two readings of a look, the result comes with the next look.
        """
        before, now, after = self._monotonic(), self._now(), self._monotonic()
        if after - before > STEP_SECONDS / 2:
            return 0.0
        step = now - before - self._apart
        if abs(step) < STEP_SECONDS:
            return 0.0
        self._apart += step
        return step
