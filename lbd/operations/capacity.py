"""The recommended number of brokers, as a live lbd follows it turn by turn, and keeps it over restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.errors import UsageError
from lbd.load.capacity import DAY_HOURS, Capacity, Peaks, cluster_load, known_hours, with_round
from lbd.operations.parts import PeriodicSave
from lbd.reason import Reason
from lbd.store.state import load_peaks, save_peaks

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.config import Settings
    from lbd.load.capacity import ClusterLoad
    from lbd.turn.parts import TurnResult


TRUSTED = (0, Reason.DRAINED.code, Reason.SLOW_BROKER.code)
"""Codes of brokers with usable reports; drained and slow brokers report, too."""


class PeakKeeper:
    """Follows the load of each turn, also on a standby: after a failover the day is known there, too."""

    def __init__(self, settings: Settings, now: float) -> None:
        self._settings = settings
        self._peaks, self._lost = _saved_peaks(settings.state_dir)
        self._target = 0
        self._saved = PeriodicSave(
            "peaks of the load are", lambda: save_peaks(self._settings.state_dir, self._peaks), now
        )

    @property
    def trouble(self) -> str:
        """Reason why the peaks are not on disk, or were lost at the start; empty once a day is known again."""
        return "; ".join(filter(None, (self._saved.trouble, self._lost)))

    def after(self, record: TurnResult) -> Capacity | None:
        """Capacity after a turn; None where the turn had no load. A change of the number is saved at once."""
        load = load_of(record, self._settings)
        if load is None:
            return None
        max_score = self._settings.capacity.max_score
        self._peaks = with_round(self._peaks, load, max_score)
        capacity = Capacity(self._peaks, load, max_score)
        if known_hours(self._peaks.hours, load.taken_at) >= DAY_HOURS:
            self._lost = ""
        if self._peaks.hours:
            self._saved.after(load.taken_at, at_once=capacity.target_brokers != self._target)
            self._target = capacity.target_brokers
        return capacity

    def take(self, settings: Settings) -> None:
        """Apply other settings; the history stays."""
        self._settings = settings

    def close(self) -> None:
        """Save the rest."""
        self._saved.close()


def _saved_peaks(state_dir: Path) -> tuple[Peaks, str]:
    """The saved peaks, and the reason why they are lost.

    The number does not fall before a new day is known, so a damaged file is no reason to stop.
    """
    try:
        return load_peaks(state_dir), ""
    except UsageError as error:
        return Peaks(), f"{error}; peaks of the load are counted anew, and no fewer brokers are wanted for a day"


def load_of(record: TurnResult, settings: Settings) -> ClusterLoad | None:
    """Load of the brokers whose reports a turn trusted."""
    if (facts := record.facts) is None:
        return None
    trusted = np.isin(facts.evidence.paired, TRUSTED)
    load = cluster_load(facts.snapshot, trusted, len(facts.members.active), facts.slopes, settings.weights)
    drained = int(np.count_nonzero(facts.evidence.paired == Reason.DRAINED.code))
    return load and replace(load, drained=drained)
