"""From a scenario and a seed to a cluster: sizes of bundles, their first owners, and each broker's seconds. Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lbd.errors import UsageError
from lbd.permit.policies import isolation_of
from lbd.simulate.cluster import MIB, MINUTE_SECONDS, STEP_SECONDS, begin
from lbd.simulate.scenario import KIB_PER_MIB, namespace_of
from lbd.simulate.world import Burst, World

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray, IntArray
    from lbd.permit.policies import Isolation
    from lbd.simulate.scenario import BrokerPart, LoadPart, Scenario
    from lbd.simulate.world import State

RANGES = 1 << 32
PLACEMENTS = 1000
"""Of so many at random one is as uneven as it is wanted, or none can be."""


def cluster(scenario: Scenario, seed: int) -> tuple[World, State]:
    """The cluster at its beginning; the same seed gives the same one, and the same run."""
    random = np.random.default_rng(seed)
    parts = dict(sorted((broker, part) for part in scenario.brokers for broker in part.ids()))
    brokers = tuple(parts)
    isolation = _isolation(scenario)
    allowed = np.array([_allowed(load, isolation, brokers) for load in scenario.load])
    first = np.array([part.is_there_first for part in parts.values()])
    owners, rates = _loaded(scenario, parts, allowed & first, random)
    world = World(
        brokers=brokers,
        background=np.array([part.background for part in parts.values()], dtype=np.float64),
        capacity=np.array([part.capacity for part in parts.values()], dtype=np.float64),
        joins_at=np.array([part.lives[0] for part in parts.values()]),
        leaves_at=np.array([part.lives[1] for part in parts.values()]),
        outages=tuple(scenario.outages(brokers)),
        bundles=tuple(name for load in scenario.load for name in _names(load)),
        rates=rates,
        topics=np.concatenate([_topics(load) for load in scenario.load]),
        origin=np.arange(len(rates), dtype=np.int32),
        load=np.repeat(np.arange(len(scenario.load), dtype=np.int32), [load.bundles for load in scenario.load]),
        shapes=tuple((load.shape, load.consumers) for load in scenario.load),
        allowed=allowed,
        isolation=isolation,
        placement=scenario.placement,
        bursts=tuple(burst for at, part in enumerate(parts.values()) for burst in _bursts(at, part)),
        silences=tuple(scenario.silences(brokers)),
        points_per_mib=scenario.points_per_mib,
        noise_points=scenario.noise_points,
        seed=seed,
        cpu_second=_second(random, len(brokers), MINUTE_SECONDS),
        stats_second=_second(random, len(brokers), scenario.stats_interval_seconds),
        stats_interval_seconds=scenario.stats_interval_seconds,
    )
    return world, begin(world, owners)


def _loaded(
    scenario: Scenario, parts: dict[str, BrokerPart], able: BoolArray, random: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Each bundle's first owner and its rates; ``able`` is bool (L, B), where each load may be at first.

    Raises :class:`UsageError` where no placement is as uneven as the scenario wants it.
    """

    def placed() -> IntArray:
        loads = zip(scenario.load, able, strict=True)
        return np.concatenate([_owners(load, parts, some, random) for load, some in loads])

    owners, rates = placed(), np.concatenate([_rates(load, random) for load in scenario.load])
    for _ in range(PLACEMENTS):
        carried = np.bincount(owners, rates[:, 2], len(parts)).astype(np.float64)
        if _is_as_uneven(scenario.first_ratio, carried[able.any(axis=0)]):
            return owners, rates
        owners = placed()
    least, most = scenario.first_ratio or (1, 1)
    raise UsageError(
        f"first_ratio: none of {PLACEMENTS} placements is from {least:g} to {most:g}; wanted a range that some have"
    )


def _is_as_uneven(wanted: tuple[float, float] | None, carried: FloatArray) -> bool:
    """Whether the largest of these is so many times the smallest."""
    if wanted is None:
        return True
    least, most = wanted
    return bool(least * carried.min() <= carried.max() <= most * carried.min())


def _owners(load: LoadPart, parts: dict[str, BrokerPart], able: BoolArray, random: np.random.Generator) -> IntArray:
    """At random among those named, blind to load: so AvgShedder places bundles that it has no plan for."""
    named = np.array([not load.brokers or part.id in load.brokers for part in parts.values()])
    return random.choice(np.flatnonzero(named & able).astype(np.int32), load.bundles)


def _isolation(scenario: Scenario) -> Isolation:
    """An isolation policy for each load that has brokers of its own."""
    width = {part.id: part.ids() for part in scenario.brokers}
    return isolation_of(
        {
            load.name: {
                "namespaces": [re.escape(namespace_of(load))],
                "primary": [re.escape(broker.partition(":")[0]) for one in load.isolated_to for broker in width[one]],
            }
            for load in scenario.load
            if load.isolated_to
        }
    )


def _allowed(load: LoadPart, isolation: Isolation, brokers: tuple[str, ...]) -> BoolArray:
    able = isolation.brokers(namespace_of(load), brokers)
    return np.array([broker in able for broker in brokers])


def _rates(load: LoadPart, random: np.random.Generator) -> FloatArray:
    """Messages/s in and out, bytes/s in and out of each bundle, float64 (n, 4)."""
    sizes = _sizes(load, random)
    mib = load.mib_per_second * sizes / sizes.sum()
    messages = mib * KIB_PER_MIB / load.message_kib
    return np.stack([messages, messages * load.fan_out, mib * MIB, mib * MIB * load.fan_out], axis=1)


def _sizes(load: LoadPart, random: np.random.Generator) -> FloatArray:
    """How large each bundle is beside the others of its load, float64 (n,)."""
    if load.zipf is None:
        return np.exp(load.spread * random.standard_normal(load.bundles))
    ranks = random.permutation(load.bundles).astype(np.float64) + 1.0
    return np.exp(-load.zipf * np.log(ranks))


def _topics(load: LoadPart) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Spread as evenly as their hashes are."""
    edges = np.arange(load.bundles + 1, dtype=np.int64) * (load.topics or load.bundles) // load.bundles
    return np.diff(edges)


def _names(load: LoadPart) -> list[str]:
    edges = [RANGES * at // load.bundles for at in range(load.bundles)] + [RANGES - 1]
    return [f"{namespace_of(load)}/0x{low:08x}_0x{high:08x}" for low, high in pairwise(edges)]


def _bursts(broker: int, part: BrokerPart) -> list[Burst]:
    return [Burst(broker, one.at_minutes * 60, (one.at_minutes + one.minutes) * 60, one.points) for one in part.bursts]


def _second(random: np.random.Generator, number: int, interval_seconds: int) -> IntArray:
    return random.integers(0, interval_seconds // STEP_SECONDS, number, dtype=np.int32) * STEP_SECONDS
