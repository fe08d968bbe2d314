"""A topic whose partitions are together: how far as many moves spread it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lbd.config import Settings
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import Scenario, settled

FOUR_JOIN: dict[str, Any] = {
    "about": "a topic of 64 partitions on four brokers, beside other topics of the same size; four equal brokers join",
    "hours": 3,
    "brokers": [
        {"id": "first", "number": 4, "background": 12},
        {"id": "later", "number": 4, "background": 12, "joins_at_minutes": 5},
    ],
    "load": [
        {"name": "orders", "mib_per_second": 240, "bundles": 64, "partitioned": True},
        {"name": "others", "mib_per_second": 360, "bundles": 96},
    ],
}


def most_and_moves(by: str) -> tuple[int, int]:
    """The most partitions on one broker in the end, and how many moves there were."""
    scenario = Scenario.model_validate(FOUR_JOIN)
    overrides = {"spread.by": by, "strategy": "least-moves"}
    simulation = Simulation(scenario, settled(scenario, Settings(), overrides), 1)
    for _ in simulation.turns():
        pass
    world, state = simulation._world, simulation._state
    orders = state.owner[np.array(world.partitioned)[world.load]]
    return int(np.bincount(orders).max()), len(simulation.trace().moves)


def test_as_many_moves_spread_it() -> None:
    """21 of its partitions are on one broker at first, and a share is 8."""
    (plain, moves), (spread, other) = most_and_moves("none"), most_and_moves("topic")

    assert plain >= 14
    assert spread <= 11
    assert moves == other
