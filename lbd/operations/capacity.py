"""How many brokers are wanted, as a live lbd follows it turn by turn, and keeps it over restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.errors import LbdError
from lbd.load.capacity import Capacity, cluster_load, with_round
from lbd.reason import Reason
from lbd.store.capacity import load_peaks, save_peaks

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.load.capacity import ClusterLoad
    from lbd.turn.parts import TurnResult


KEPT_EVERY_SECONDS = 300.0
"""A kill loses the last minutes of an hour's peak; what changes the wanted number is on disk at once."""

TRUSTED = (0, Reason.DRAINED.code)
"""Codes of brokers whose reports tell their load; a drained one goes on reporting."""


class PeakKeeper:
    """Takes the load of each turn, also where another lbd leads: after a failover the day is known there, too."""

    def __init__(self, settings: Settings, now: float) -> None:
        self._settings = settings
        self._peaks = load_peaks(settings.state_dir)
        self._written_at, self._wanted = now, 0
        self._taken_at = 0.0
        self.trouble = ""

    def after(self, record: TurnResult) -> Capacity | None:
        """What is known after a turn; None where it saw no load. Peaks that cannot be written are kept in memory."""
        load = load_of(record, self._settings)
        if load is None:
            return None
        most = self._settings.capacity.max_score
        self._peaks, self._taken_at = with_round(self._peaks, load, most), load.taken_at
        found = Capacity(self._peaks, load, most)
        is_due = not 0 <= load.taken_at - self._written_at < KEPT_EVERY_SECONDS
        if self._peaks.hours and (is_due or found.wanted != self._wanted):
            self._wanted = found.wanted
            self._write()
        return found

    def take(self, settings: Settings) -> None:
        """Go on with other settings; what is known stays."""
        self._settings = settings

    def close(self) -> None:
        """Write what is not on disk yet."""
        if self._peaks.hours and self._taken_at > self._written_at:
            self._write()

    def _write(self) -> None:
        self._written_at = self._taken_at
        try:
            save_peaks(self._settings.state_dir, self._peaks)
        except LbdError as error:
            self.trouble = f"peaks of the load are not kept: {error}"
        else:
            self.trouble = ""


def load_of(record: TurnResult, settings: Settings) -> ClusterLoad | None:
    """The load of the brokers whose reports a turn trusted."""
    seen, evidence = record.observation, record.evidence
    if seen is None or evidence is None:
        return None
    trusted = np.isin(evidence.paired, TRUSTED)
    return cluster_load(seen.snapshot, trusted, len(seen.active), record.slopes, settings.weights)
