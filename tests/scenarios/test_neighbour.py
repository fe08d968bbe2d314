"""Three brokers that lbd has known for five minutes, and a neighbour that comes to the one with the least traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lbd.config import Settings
from lbd.reason import Reason
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import Scenario, settled

if TYPE_CHECKING:
    from lbd.model import Unload

NEIGHBOUR = {"at_minutes": 5, "minutes": 30, "points": 46}
COST_POINTS = 1.6
"""Of each bundle of the first broker: 0.027 MiB/s at 60 points for each."""

SCENE: dict[str, Any] = {
    "about": "Small brokers whose idle work is most of their load, as on real ones of 0.4 cores (4.0.8).",
    "hours": 0.2,
    "points_per_mib": 60,
    "noise_points": 2,
    "stats_interval_seconds": 5,
    "brokers": [
        {"id": "beside", "background": 12, "bursts": [NEIGHBOUR]},
        {"id": "one", "background": 12},
        {"id": "two", "background": 12},
    ],
    "load": [
        {"name": "a", "brokers": ["beside"], "bundles": 6, "mib_per_second": 0.16, "message_kib": 0.25},
        {"name": "b", "brokers": ["one"], "bundles": 12, "mib_per_second": 0.32, "message_kib": 0.25},
        {"name": "c", "brokers": ["two"], "bundles": 12, "mib_per_second": 0.32, "message_kib": 0.25},
    ],
    "settings": {
        "interval_seconds": 5,
        "guardrails": {"max_traffic_per_turn": 0.35},
        "least_moves": {
            "hit_count_low": 3,
            "hit_count_high": 2,
            "min_unload_message": 50,
            "min_unload_message_throughput": 10_000,
        },
    },
}


def foreseen(unload: Unload) -> float:
    """Points that a move is to take off its source, by its reason."""
    return float(unload.reason.partition(" points off")[0].rpartition(" ")[2])


def turns(scene: dict[str, Any], seed: int) -> tuple[list[tuple[Unload, ...]], list[int]]:
    """The plans that were made, and after how many of them ``background-load`` was named, each time that it was."""
    scenario = Scenario.model_validate(scene)
    simulation = Simulation(scenario, settled(scenario, Settings(), {"strategy": "least-moves"}), seed)
    plans, named = [], []
    for turned in simulation.turns():
        if turned.record.plan.unloads:
            plans.append(tuple(turned.record.plan.unloads))
        named += [len(plans) for skip in turned.record.skips if skip.reason is Reason.BACKGROUND_LOAD]
    return plans, named


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_after_moves_that_brought_a_fraction_of_what_was_foreseen_the_next_plan_knows_it(seed: int):
    """The neighbour's 46 points are first taken for the traffic's, then told from it, and named as no bundle's."""
    plans, named = turns(SCENE, seed)

    assert {unload.source for plan in plans for unload in plan} == {"beside:8080"}
    assert min(map(foreseen, plans[0])) > 4 * COST_POINTS
    assert max(map(foreseen, plans[1])) < min(map(foreseen, plans[0])) / 2
    assert set(named) >= {len(plans)}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_broker_whose_neighbour_takes_all_of_its_cpu_gives_its_bundles_away(seed: int):
    """By its usage over its traffic each makes more than the others may take; what the first moves did says less.

    It goes on until it is empty, or three turns brought the brokers no nearer.
    """
    burdened = {"background": 40, "bursts": [{**NEIGHBOUR, "points": 90}]}
    brokers = [{"id": "beside", **burdened}, {"id": "one", "background": 40}, {"id": "two", "background": 40}]
    plans, _ = turns({**SCENE, "hours": 0.4, "brokers": brokers}, seed)
    moved = [unload for plan in plans for unload in plan]

    assert {unload.source for unload in moved} == {"beside:8080"}
    assert 5 <= len(moved) == len({unload.bundle for unload in moved})
