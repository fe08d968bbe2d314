"""Builders of small simulated clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lbd.simulate.cluster import cluster, step
from lbd.simulate.scenario import Scenario
from lbd.simulate.world import STEP_SECONDS

if TYPE_CHECKING:
    from lbd.simulate.world import ClusterState, World


def scenario(**changes: Any) -> Scenario:
    """Two brokers; one carries 60 MiB/s in six equal bundles, a point each for 1 MiB/s, the other nothing."""
    values: dict[str, Any] = {
        "about": "a test",
        "points_per_mib": 1,
        "noise_points": 0.01,
        "brokers": [{"id": "a"}, {"id": "b"}],
        "load": [{"name": "n", "brokers": ["a"], "mib_per_second": 60, "bundles": 6}],
    }
    return Scenario.model_validate({**values, **changes})


def begun(seed: int = 1, **changes: Any) -> tuple[World, ClusterState]:
    """The same as a cluster at its beginning."""
    return cluster(scenario(**changes), seed)


def later(world: World, state: ClusterState, seconds: int) -> ClusterState:
    """The cluster so many seconds later."""
    for _ in range(seconds // STEP_SECONDS):
        state = step(world, state)
    return state
