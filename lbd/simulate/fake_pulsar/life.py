"""A simulated cluster whose bundles may be owned by nobody, and whose brokers come and go when told to. Pure.

Bundles that nobody owns belong to a broker behind all others, which nobody can ask: so the model's own steps count
their traffic nowhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.simulate.cluster import FIRST_CPU, Counted, State, World

if TYPE_CHECKING:
    from collections.abc import Sequence

NOBODY = ""


def with_nobody(world: World, state: State, ids: Sequence[str]) -> tuple[World, State]:
    """The same cluster under these ids, and nobody as its last broker. Nobody leaves by a time-table any more."""
    brokers = len(ids)
    return replace(
        world,
        brokers=(*ids, NOBODY),
        background=np.append(world.background, 0.0),
        capacity=np.append(world.capacity, 1.0),
        joins_at=np.append(world.joins_at, -np.inf),
        leaves_at=np.full(brokers + 1, np.inf),
        outages=(),
        silences=(),
        allowed=np.pad(world.allowed, ((0, 0), (0, 1))),
        cpu_second=np.append(world.cpu_second, 0),
        stats_second=np.append(world.stats_second, 0),
    ), replace(
        state,
        cpu=np.append(state.cpu, FIRST_CPU),
        counted=(*state.counted, _nothing()),
        busy=np.append(state.busy, 0.0),
    )


def started(world: World, state: State, broker: int, seconds: float) -> tuple[World, State]:
    """A broker that started just now: it has sampled no CPU and counted no bundle."""
    joins_at, cpu, busy = world.joins_at.copy(), state.cpu.copy(), state.busy.copy()
    joins_at[broker], cpu[broker], busy[broker] = seconds, FIRST_CPU, 0.0
    counted = (*state.counted[:broker], _nothing(), *state.counted[broker + 1 :])
    return replace(world, joins_at=joins_at), replace(state, cpu=cpu, busy=busy, counted=counted)


def _nothing() -> Counted:
    return Counted(np.zeros(0, dtype=np.int64), np.zeros((0, 4)))
