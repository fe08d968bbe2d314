"""How long brokers take to answer, by endpoint and code, for ``/metrics``.

Counted for the whole process, as its memory and its CPU time are: who asks brokers comes and goes with settings.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeAlias

from lbd.histogram import Histogram
from lbd.pulsar.endpoints import endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""A load report takes milliseconds; an unload is answered when the broker has closed the bundle, after 60 s at last."""

NO_ANSWER = "none"

Key: TypeAlias = tuple[str, str, str]
"""Method, endpoint and code."""


class Meter:
    """Thread-safe. Every label is of a closed set."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[Key, Histogram] = {}

    def answered(self, method: str, path: str, status: int | None, seconds: float) -> None:
        """A request has ended; ``status`` is None where no answer came, or not all of it."""
        key = (method, endpoint(path), NO_ANSWER if status is None else str(status))
        with self._lock:
            self._answers.setdefault(key, Histogram(SECONDS)).add(seconds)

    def read(self) -> Mapping[Key, Histogram]:
        """All of it, at one moment."""
        with self._lock:
            return {key: one.copy() for key, one in self._answers.items()}


ADMIN = Meter()
"""All requests of this process to brokers; each hop of one that is redirected is one."""
