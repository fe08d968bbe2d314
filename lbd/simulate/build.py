"""From a scenario and a seed to a cluster: sizes of bundles, their first owners, and each broker's seconds. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lbd.simulate.cluster import MIB, MINUTE_SECONDS, STEP_SECONDS, Burst, State, World, begin
from lbd.simulate.scenario import KIB_PER_MIB

if TYPE_CHECKING:
    from lbd.model import FloatArray, IntArray
    from lbd.simulate.scenario import BrokerPart, LoadPart, Scenario

RANGES = 1 << 32


def cluster(scenario: Scenario, seed: int) -> tuple[World, State]:
    """The cluster at its beginning; the same seed gives the same one, and the same run."""
    random = np.random.default_rng(seed)
    parts = dict(sorted((broker, part) for part in scenario.brokers for broker in part.ids()))
    brokers = tuple(parts)
    owners = [_owners(load, scenario, brokers, random) for load in scenario.load]
    rates = [_rates(load, random) for load in scenario.load]
    world = World(
        brokers=brokers,
        background=np.array([part.background for part in parts.values()]),
        capacity=np.array([part.capacity for part in parts.values()]),
        joins_at=np.array([_seconds(part.joins_at_minutes, -np.inf) for part in parts.values()]),
        leaves_at=np.array([_seconds(part.leaves_at_minutes, np.inf) for part in parts.values()]),
        bundles=tuple(name for load in scenario.load for name in _names(load)),
        rates=np.concatenate([np.zeros((0, 4)), *rates]),
        load=np.repeat(np.arange(len(rates), dtype=np.int32), [len(one) for one in rates]),
        shapes=tuple((load.shape, load.consumers) for load in scenario.load),
        bursts=tuple(burst for at, part in enumerate(parts.values()) for burst in _bursts(at, part)),
        points_per_mib=scenario.points_per_mib,
        noise_points=scenario.noise_points,
        seed=seed,
        cpu_second=_second(random, len(brokers)),
        stats_second=_second(random, len(brokers)),
    )
    return world, begin(world, np.concatenate([np.zeros(0, dtype=np.int32), *owners]))


def _owners(load: LoadPart, scenario: Scenario, brokers: tuple[str, ...], random: np.random.Generator) -> IntArray:
    """At random among those named, blind to load: so AvgShedder places bundles that it has no plan for."""
    at = {broker: position for position, broker in enumerate(brokers)}
    first = [part for part in scenario.brokers if part.joins_at_minutes is None]
    chosen = [part for part in first if part.id in load.brokers] if load.brokers else first
    among = np.array([at[broker] for part in chosen for broker in part.ids()], dtype=np.int32)
    return random.choice(among, load.bundles)


def _rates(load: LoadPart, random: np.random.Generator) -> FloatArray:
    """Messages/s in and out, bytes/s in and out of each bundle, float64 (n, 4)."""
    sizes = np.exp(load.spread * random.standard_normal(load.bundles))
    mib = load.mib_per_second * sizes / sizes.sum()
    messages = mib * KIB_PER_MIB / load.message_kib
    return np.stack([messages, messages * load.fan_out, mib * MIB, mib * MIB * load.fan_out], axis=1)


def _names(load: LoadPart) -> list[str]:
    edges = [RANGES * at // load.bundles for at in range(load.bundles)] + [RANGES - 1]
    return [f"simulated/{load.name}/0x{low:08x}_0x{high:08x}" for low, high in pairwise(edges)]


def _bursts(broker: int, part: BrokerPart) -> list[Burst]:
    return [Burst(broker, one.at_minutes * 60, (one.at_minutes + one.minutes) * 60, one.points) for one in part.bursts]


def _seconds(minutes: float | None, missing: float) -> float:
    return missing if minutes is None else minutes * 60


def _second(random: np.random.Generator, number: int) -> IntArray:
    return random.integers(0, MINUTE_SECONDS // STEP_SECONDS, number, dtype=np.int32) * STEP_SECONDS
