"""The time of a fake cluster: this machine's, faster by a factor that may change, and set forward at will."""

from __future__ import annotations

import threading
import time


class Clock:
    """Epoch seconds, ``speed`` of them in a second of this machine. Thread-safe; it never goes back."""

    def __init__(self, speed: float = 1.0, begun_at: float | None = None) -> None:
        self._lock = threading.Lock()
        self._speed = _checked(speed)
        self._base = time.time() if begun_at is None else begun_at
        self._since = time.monotonic()

    def now(self) -> float:
        """What it shows."""
        with self._lock:
            return self._now()

    @property
    def speed(self) -> float:
        """Seconds in a second."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        with self._lock:
            self._base, self._since = self._now(), time.monotonic()
            self._speed = _checked(speed)

    def forward(self, seconds: float) -> None:
        """Let so many seconds have passed. Raises :class:`ValueError` for less than none."""
        if not seconds >= 0:
            raise ValueError(f"forward by {seconds} s: wanted 0 or more")
        with self._lock:
            self._base += seconds

    def _now(self) -> float:
        return self._base + (time.monotonic() - self._since) * self._speed


def _checked(speed: float) -> float:
    if not 0 < speed < float("inf"):
        raise ValueError(f"speed {speed}: wanted more than 0")
    return speed
