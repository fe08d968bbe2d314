"""An autoscaler follows the wanted number over three simulated days: peaks stay low, and brokers seldom change."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd.config import Settings
from lbd.load.capacity import DAY_HOURS, Peaks, report, with_round
from lbd.operations.capacity import load_of
from lbd.simulate.cluster import begin
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import Scenario, settled
from lbd.simulate.world import Outage

if TYPE_CHECKING:
    from collections.abc import Iterator

FEWEST, MOST, AT_FIRST = 3, 9, 4
STARTS_SECONDS = 120.0
HOT_POINTS = 85.0

CAMPAIGN_BEGINS, CAMPAIGN_ENDS = 34.0, 42.0
WAVES = Scenario.model_validate(
    {
        "about": "A daily wave, and a campaign that begins at once on the second day, before its peak.",
        "source": "This test's.",
        "stock": "Not published.",
        "hours": 68,
        "brokers": [{"id": "broker", "number": MOST, "background": 10}],
        "load": [
            {
                "name": "daily",
                "mib_per_second": 350,
                "bundles": 120,
                "spread": 0.5,
                "shape": {"kind": "wave", "amplitude": 0.6, "peak_at_hours": 14},
            },
            {
                "name": "campaign",
                "mib_per_second": 80,
                "bundles": 80,
                "spread": 0.5,
                "shape": {
                    "kind": "spike",
                    "to": 5,
                    "at_minutes": CAMPAIGN_BEGINS * 60,
                    "minutes": (CAMPAIGN_ENDS - CAMPAIGN_BEGINS) * 60,
                },
            },
        ],
    }
)


class ScaledSimulation(Simulation):
    """The first brokers run; a StatefulSet starts the next one, and removes the last one, without a drain."""

    def __init__(self, scenario: Scenario, settings: Settings, seed: int) -> None:
        super().__init__(scenario, settings, seed)
        self.replicas = AT_FIRST
        self._away = {broker: [Outage(broker, -inf, inf)] for broker in range(AT_FIRST, MOST)}
        self._apply()
        owner = (np.arange(self._state.owner.size) % AT_FIRST).astype(np.int32)
        self._state, self._first_owner = begin(self._world, owner), owner

    def scale(self, replicas: int, seconds: float) -> None:
        """More at once, and one fewer at a time."""
        for broker in range(self.replicas, replicas):
            spells = self._away[broker]
            spells[-1] = replace(spells[-1], end=seconds + STARTS_SECONDS)
        if replicas < self.replicas:
            replicas = self.replicas - 1
            self._away.setdefault(replicas, []).append(Outage(replicas, seconds + 5, inf))
        self.replicas = replicas
        self._apply()

    def _apply(self) -> None:
        self._world = replace(self._world, outages=tuple(one for spells in self._away.values() for one in spells))


def followed(simulation: ScaledSimulation, settings: Settings) -> Iterator[tuple[float, int]]:
    """The hour of each change of the number, as an HPA makes it from the metric, and the number."""
    peaks, most = Peaks(), settings.capacity.max_score
    for turned in simulation.turns():
        load = load_of(turned.record, settings)
        assert load is not None
        peaks = with_round(peaks, load, most)
        replicas = min(max(report(peaks, load, most).wanted, FEWEST), MOST)
        if replicas != simulation.replicas:
            simulation.scale(replicas, turned.seconds)
            yield turned.seconds / 3600, simulation.replicas


@pytest.mark.soak
@pytest.mark.parametrize(
    "strategy",
    ["avg-shedder", "least-moves"],
    ids=["all CPU counts as traffic's", "with what it learns of backgrounds"],
)
def test_an_autoscaler_follows_without_flapping(strategy: str):
    """Up within the campaign, down a day after it; the daily wave changes nothing, and no broker gets hot."""
    settings = settled(WAVES, Settings(), {"interval_seconds": 120.0, "strategy": strategy})
    simulation = ScaledSimulation(WAVES, settings, 1)
    changes = list(followed(simulation, settings))

    ups = [hour for (_, before), (hour, after) in pairwise([(0.0, AT_FIRST), *changes]) if after > before]
    downs = [hour for (_, before), (hour, after) in pairwise([(0.0, AT_FIRST), *changes]) if after < before]
    assert [number for _, number in changes] == [5, 6, 5, 4]
    assert all(CAMPAIGN_BEGINS <= hour <= CAMPAIGN_ENDS for hour in ups)
    assert all(hour >= ups[-1] + DAY_HOURS for hour in downs)
    assert max(float(seen.points.max()) for seen in simulation.trace().truths) < HOT_POINTS
