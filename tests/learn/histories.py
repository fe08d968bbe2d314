"""Histories of simulated clusters whose truth is known, written as the daemon writes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lbd.config import Settings
from lbd.simulate.run import Simulation
from lbd.store.history import HistoryWriter
from lbd.store.history_round import HistorySettings
from lbd.turn.record import history_round
from tests.load.histories import TRUE_SLOPE
from tests.simulate.worlds import scenario

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lbd.model import Snapshot

__all__ = ["CALM", "NEIGHBOUR", "TRUE_SLOPE", "settled", "simulated"]

CALM = {"low_threshold": 99.0, "high_threshold": 100.0}
"""Settings of AvgShedder under which nothing moves."""

WAVE = {"kind": "wave", "amplitude": 0.5, "period_hours": 3}
NEIGHBOUR: dict[str, Any] = {
    "points_per_mib": 0.33,
    "noise_points": 1,
    "brokers": [
        {"id": "a", "background": 10},
        {"id": "b", "background": 12},
        {"id": "c", "background": 11, "capacity": 2},
        {"id": "noisy", "background": 40},
    ],
    "load": [{"name": "n", "mib_per_second": 240, "bundles": 48, "spread": 1, "shape": WAVE}],
}
"""Like brokers under a wave of traffic, but for one that is twice as large and one with a neighbour."""


def settled(*, live_cpu: bool = False, **avg_shedder: Any) -> Settings:
    """A poll a minute: each brings a new sample of every broker, and lbd decides by these alone."""
    load = {"live_cpu": live_cpu}
    return Settings.model_validate({"interval_seconds": 60, "load": load, "avg_shedder": avg_shedder})


def simulated(
    root: Path,
    settings: Settings,
    seed: int = 1,
    step: float = 0.05,
    tell: Callable[[Snapshot], Snapshot] = lambda seen: seen,
    **changes: Any,
) -> Simulation:
    """Run the real lbd under these settings on a simulated cluster, and keep its history; returns what was run.

    ``tell`` makes of each round what brokers told of it.
    """
    found = Simulation(scenario(**{**NEIGHBOUR, **changes}), settings, seed)
    writer = HistoryWriter(root, HistorySettings(), step)
    for turned in found.turns():
        kept = history_round(turned.record, settings)
        assert kept is not None
        writer.add(replace(kept, snapshot=tell(kept.snapshot)))
    writer.flush()
    return found
