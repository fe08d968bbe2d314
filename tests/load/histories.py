"""Rounds of simulated clusters whose truth is known, as the load model sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lbd.simulate.cluster import snapshot
from lbd.simulate.world import MIB
from tests.builders import TAKEN_AT
from tests.simulate.worlds import begun, later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.model import Snapshot
    from lbd.simulate.world import ClusterState, World

WAVE = {"kind": "wave", "amplitude": 0.5, "period_hours": 2}
TRUE_SLOPE = 0.33 / MIB / 2
"""Points for each byte/s in + out through a broker of capacity 1, where 0.33 points are for each MiB/s."""

THREE: dict[str, Any] = {
    "points_per_mib": 0.33,
    "noise_points": 1,
    "brokers": [
        {"id": "a", "background": 10},
        {"id": "b", "background": 25},
        {"id": "c", "background": 12, "capacity": 2},
    ],
    "load": [{"name": "n", "mib_per_second": 240, "bundles": 60, "spread": 1, "shape": WAVE}],
}
"""Brokers with backgrounds and capacities of their own under a wave of traffic."""


def rounds(
    minutes: int,
    changes: dict[str, Any],
    seed: int = 1,
    act: Callable[[World, ClusterState], ClusterState] | None = None,
) -> Iterator[Snapshot]:
    """A round each minute; ``act`` may change the cluster before each of them."""
    world, state = begun(seed, **changes)
    for _ in range(minutes):
        seen = snapshot(world, state, TAKEN_AT)
        yield replace(seen, taken_at=TAKEN_AT + state.seconds)
        state = later(world, state if act is None else act(world, state), 60)
