"""All load reports are wrong for five minutes: lbd stays within its budgets, and says why it stops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd.config import Settings
from lbd.load.estimate import CPU
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import load, settled

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.model import FloatArray
    from lbd.observe.observer import Observation
    from lbd.simulate.scenario import Scenario

BEGINS, ENDS, RUNS_HOURS = 900.0, 1200.0, 0.5
PER_HOUR = 6


def noise(size: int, minute: int) -> FloatArray:
    """Two samples of a broker are never equal: part of its CPU, float64 (B,)."""
    return np.random.default_rng(minute).uniform(0.0, 0.004, size)


LIES: dict[str, Callable[[FloatArray, int], FloatArray]] = {
    "upside down": lambda used, _: used.max() + used.min() - used,
    "every other one full": lambda used, _: np.where(np.arange(used.size) % 2 == 0, 0.97, 0.1),
    "dice": lambda used, minute: np.random.default_rng(minute).uniform(0.02, 1.0, used.size),
    "all idle": lambda used, _: np.full(used.size, 0.01),
    "all full": lambda used, _: np.full(used.size, 0.97),
}
"""What brokers say instead of the part of their CPU that they use."""


class LyingCluster(Simulation):
    """Its reports are wrong between two times; what a broker's process has spent is right."""

    def __init__(self, scenario: Scenario, settings: Settings, lie: str) -> None:
        super().__init__(scenario, settings, seed=1)
        self.lie = lie

    def observe(self) -> Observation:
        seen = super().observe()
        seconds = self._state.seconds
        if not BEGINS <= seconds < ENDS:
            return seen
        brokers, minute = seen.snapshot.brokers, int(seconds // 60)
        usage, limit = brokers.usage.copy(), brokers.limit[:, CPU]
        said = LIES[self.lie](usage[:, CPU] / limit, minute)
        usage[:, CPU] = (said + noise(len(brokers), minute)) * limit
        return replace(seen, snapshot=replace(seen.snapshot, brokers=replace(brokers, usage=usage)))


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("strategy", ["avg-shedder", "least-moves"])
def test_a_storm_of_wrong_reports_stays_within_the_budget_of_an_hour(strategy: str, lie: str):
    """Five brokers, levelled before. Where the budget is spent lbd says so as long as more is planned."""
    scenario = load("steady").model_copy(update={"hours": RUNS_HOURS})
    changes = {"strategy": strategy, "interval_seconds": 15, "guardrails.max_unloads_per_hour": PER_HOUR}
    cluster = LyingCluster(scenario, settled(scenario, Settings(), changes), lie)
    said = [turned.record.sentence for turned in cluster.turns() if turned.seconds >= BEGINS]
    moves = cluster.trace().moves

    assert len(moves) <= PER_HOUR
    assert len(moves) < PER_HOUR or any("unloads-per-hour" in sentence for sentence in said)
    if (strategy, lie) == ("least-moves", "every other one full"):
        assert len(moves) == PER_HOUR
