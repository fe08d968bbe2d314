"""Few threads at once where many would only wait for each other: they all take turns on one interpreter.

Sixteen that take in reports at the same time are done no sooner than two are, and whoever else has something to do, as
an answer of the API, stands in line behind all of them, each time that it has read or sent anything.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_ONCE = 2
"""One waits for a broker while the other takes in what came."""

PATIENCE_SECONDS = 0.01
"""A broker nearby answers within a few milliseconds, and then nobody waits so long."""


class Few:
    """So many work at once while each is quick. Thread-safe.

    Who has stood in line for ``patience_seconds`` goes on beside them: they wait for a slow broker, and work nothing.
    """

    def __init__(self, at_once: int = AT_ONCE, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._places = threading.Semaphore(at_once)
        self._patience_seconds = patience_seconds

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Have a place, or have waited for one."""
        had = self._places.acquire(timeout=self._patience_seconds)
        try:
            yield
        finally:
            if had:
                self._places.release()
