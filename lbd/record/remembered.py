"""Counters and averages of a running lbd: read once, counters on disk each turn, averages every few turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.model import Averages
from lbd.record.state import AVERAGES_GO_STALE_SECONDS

if TYPE_CHECKING:
    from lbd.record.state import Kept, StateDir

AVERAGES_EVERY_SECONDS = 60.0
"""They are large, and the loss of a minute of them after a kill changes a mean of ten samples by one."""


class Remembered:
    """What :class:`~lbd.record.state.StateDir` keeps, as one process sees it. Raises what that raises."""

    def __init__(self, state: StateDir) -> None:
        self._state = state
        self._kept: Kept | None = None
        self._averages: Averages | None = None
        self._averaged_at = 0.0
        self._written_at = 0.0

    def load(self) -> Kept:
        """The counters saved last."""
        if self._kept is None:
            self._kept = self._state.load()
        return self._kept

    def save(self, kept: Kept) -> None:
        """Keep the counters, on disk when the call returns."""
        self._state.save(kept)
        self._kept = kept

    def load_averages(self, now: float) -> Averages:
        """The averages saved last, unless they are older than 15 minutes or from a later time."""
        if self._averages is None:
            return self._state.load_averages(now)
        fresh = 0 <= now - self._averaged_at <= AVERAGES_GO_STALE_SECONDS
        return self._averages if fresh else Averages.empty()

    def save_averages(self, averages: Averages, now: float) -> None:
        """Keep the averages; on disk once a minute."""
        self._averages, self._averaged_at = averages, now
        if not 0 <= now - self._written_at < AVERAGES_EVERY_SECONDS:
            self._write(averages, now)

    def _write(self, averages: Averages, now: float) -> None:
        self._state.save_averages(averages, now)
        self._written_at = now

    def close(self) -> None:
        """Write what is not on disk yet."""
        if self._averages is not None and self._averaged_at > self._written_at:
            self._write(self._averages, self._averaged_at)
