"""A model of a Pulsar cluster in steps of five seconds: brokers, bundles, and delays of reports. Pure.

A broker's CPU is ``background + points_per_mib x MiB/s / capacity``, plus noise (fit to the charts of apache/pulsar
#22946, within 6 points). It samples CPU once a minute, as the mean since the sample before, and counts its bundles'
rates once a stats interval, each broker at its own second: so a moved bundle is on both reports or on neither for up to
a minute, and its first statistics are of part of an interval (both as measured on 4.0.8, scaled to the default
statsUpdateFrequencyInSecs of 60). An unserved bundle carries nothing, and then twice its usual traffic until its
clients have caught up. Random numbers are functions of the seed and the time.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from lbd.bundles import FULL_RANGE, range_in_name, topic_at, topic_hash
from lbd.errors import UsageError
from lbd.load.estimate import usage
from lbd.model import RESOURCES, Brokers, ProcessCpu, Rows, Snapshot, bundle_namespace
from lbd.permit.policies import parse_isolation
from lbd.simulate.scenario import KIB_PER_MIB, load_namespace
from lbd.simulate.world import (
    MIB,
    MINUTE_SECONDS,
    STEP_SECONDS,
    WARM_UP_SECONDS,
    Burst,
    ClusterState,
    Counted,
    World,
    at_random,
    least_message_rate,
)
from lbd.split.plan import Topic, split_parts
from lbd.text import DAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lbd.model import BoolArray, FloatArray, IntArray
    from lbd.permit.policies import Isolation
    from lbd.simulate.scenario import BrokerPart, LoadPart, Scenario


FIRST_CPU = 1e-7
"""CPU that a broker reports before its first sample: observed on 4.0.8, not 0."""

HANDED_OVER_SECONDS = 0.15
"""From the end of one owner until clients are served by the next: 0.13 to 0.2 s on 4.0.8."""

LEAST_POINTS = 0.01
"""A broker that does nothing still uses something, and never twice the same."""

START_UP_POINTS = 10.0
"""Points that start-up adds to a broker's first minute: 4.2.4 sampled 67, 38 and 39 for a true 57, 27 and 27."""


def rates_at(world: World, seconds: float) -> FloatArray:
    """Rates of each bundle while it is served, float64 (N, 4)."""
    pairs = [(traffic.factor(seconds), consumers.factor(seconds)) for traffic, consumers in world.shapes]
    factors = np.array([(within, within * out, within, within * out) for within, out in pairs])
    rates: FloatArray = world.rates * factors[world.load]
    return rates


def idle_at(world: World, seconds: float) -> FloatArray:
    """Points of each broker that bundles do not cause, float64 (B,)."""
    points = world.background.copy()
    for burst in world.bursts:
        if burst.begin <= seconds < burst.end:
            points[burst.broker] += burst.points
    points[seconds - world.membership.at(seconds).started_at < MINUTE_SECONDS] += START_UP_POINTS
    return points


def points_at(world: World, owner: IntArray, rates: FloatArray, seconds: float) -> FloatArray:
    """True CPU of each broker without noise, in points, float64 (B,), at most 100; 0 for a broker that is away."""
    carried = np.bincount(owner, (rates[:, 2] + rates[:, 3]) / 2, len(world.brokers)) / MIB
    points = usage(idle_at(world, seconds), world.points_per_mib / world.capacity, carried)
    return np.where(world.present(seconds), np.minimum(points, 100.0), 0.0)


def begin(world: World, owner: IntArray) -> ClusterState:
    """A cluster that has run like this for a while: every broker has sampled, and counted all it owns."""
    rates = rates_at(world, 0)
    points = points_at(world, owner, rates, 0)
    since_sample = (world.cpu_interval_seconds - world.cpu_second) % world.cpu_interval_seconds
    since_counted = (world.stats_interval_seconds - world.stats_second) % world.stats_interval_seconds
    never, always = np.full(owner.size, inf), np.full(owner.size, -inf)
    return ClusterState(
        seconds=0,
        owner=owner,
        cpu=np.where(world.present(0), noisy(world, points, -1), FIRST_CPU),
        counted=tuple(Counted(own, rates[own]) for own in _own(owner, len(world.brokers))),
        busy=points * since_sample,
        spent=np.zeros(len(world.brokers)),
        cold_seconds=np.where(world.present(0), 0.0, WARM_UP_SECONDS),
        passed=rates * since_counted[owner][:, None],
        placed_from=never,
        served_from=always,
        missed=np.zeros(owner.size),
    )


def step(world: World, state: ClusterState) -> ClusterState:
    """The same cluster five seconds later."""
    state = replace(state, seconds=state.seconds + STEP_SECONDS)
    middle = state.seconds - STEP_SECONDS / 2
    rates = rates_at(world, middle)
    if state.disturbed:
        state, flowing = _flowing(state)
        rates *= flowing[:, None]
    state, points = _warming_up(world, state, points_at(world, state.owner, rates, middle), rates)
    used, carried = points * STEP_SECONDS, rates * STEP_SECONDS
    state = replace(state, busy=state.busy + used, spent=state.spent + used, passed=state.passed + carried)
    state = _members_changed(world, state)
    if state.disturbed:
        state = placed(world, state)
    return _count(world, _sample(world, state))


def _warming_up(
    world: World, state: ClusterState, points: FloatArray, rates: FloatArray
) -> tuple[ClusterState, FloatArray]:
    """The points with what traffic costs cold brokers on top, at most 100, and the state after a step of it."""
    if world.cold_times == 1 or not state.cold_seconds.any():
        return state, points
    carries = np.bincount(state.owner, rates.sum(axis=1) * state.owned, len(world.brokers)) > 0
    cold = (state.cold_seconds > 0) & carries
    driven = points - idle_at(world, state.seconds)
    more = (world.cold_times - 1) * driven * state.cold_seconds / WARM_UP_SECONDS
    cold_seconds = np.where(cold, np.maximum(state.cold_seconds - STEP_SECONDS, 0.0), state.cold_seconds)
    return replace(state, cold_seconds=cold_seconds), np.where(cold, np.minimum(points + more, 100.0), points)


def moved(state: ClusterState, bundle: int, destination: int, unserved_seconds: float = 0.0) -> ClusterState:
    """Land a bundle: its new owner begins to count it, and serves it after ``unserved_seconds``."""
    return _landed(state, np.array([bundle]), np.array([destination], dtype=np.int32), unserved_seconds)


def served_now(state: ClusterState) -> BoolArray:
    """Bundles that a broker serves at this moment, bool (N,)."""
    served: BoolArray = state.owned & (state.served_from <= state.seconds)
    return served


def _landed(
    state: ClusterState, bundles: NDArray[np.intp], owners: IntArray, unserved_seconds: float = 0.0
) -> ClusterState:
    owner, passed = state.owner.copy(), state.passed.copy()
    placed_from, served_from = state.placed_from.copy(), state.served_from.copy()
    owner[bundles], passed[bundles] = owners, 0.0
    placed_from[bundles], served_from[bundles] = inf, state.seconds + unserved_seconds
    return replace(
        state,
        owner=owner,
        passed=passed,
        placed_from=placed_from,
        served_from=served_from,
        disturbed=state.disturbed or unserved_seconds > 0,
    )


def _members_changed(world: World, state: ClusterState) -> ClusterState:
    """Release the bundles of brokers that have left; a broker that joins begins without statistics."""
    if not world.membership.changed(state.seconds - STEP_SECONDS, state.seconds):
        return state
    members = world.membership.at(state.seconds)
    nothing = Counted(np.zeros(0, dtype=np.int64), np.zeros((0, 4)))
    lost = state.owned & ~members.present[state.owner]
    return replace(
        state,
        cpu=np.where(members.present, state.cpu, FIRST_CPU),
        busy=np.where(members.present, state.busy, 0.0),
        spent=np.where(members.present, state.spent, 0.0),
        cold_seconds=np.where(members.present, state.cold_seconds, WARM_UP_SECONDS),
        counted=tuple(
            own if here else nothing for own, here in zip(state.counted, members.present.tolist(), strict=True)
        ),
        passed=np.where(lost[:, None], 0.0, state.passed),
        placed_from=np.where(lost, members.placed_from[state.owner], state.placed_from),
        disturbed=True,
    )


def placed(world: World, state: ClusterState) -> ClusterState:
    """Bundles whose time has come are placed by the brokers; one that none of them may have waits."""
    due = np.flatnonzero(state.placed_from <= state.seconds)
    candidates = world.allowed[world.load[due]] & world.present(state.seconds) if due.size else None
    if candidates is None or not candidates.any():
        return state
    due, candidates = due[candidates.any(axis=1)], candidates[candidates.any(axis=1)]
    if world.placement == "random":
        owners = at_random(candidates, _random(world, state.seconds, 1))
    else:
        rates = rates_at(world, state.seconds)[:, :2].sum(axis=1)
        carried = np.bincount(state.owner, rates * state.owned, len(world.brokers)).astype(np.float64)
        owners = least_message_rate(candidates, rates[due], carried, state.cpu)
    return _landed(state, due, owners, HANDED_OVER_SECONDS)


def _flowing(state: ClusterState) -> tuple[ClusterState, FloatArray]:
    """How much of its traffic each bundle carried in the step, as a factor: float64 (N,)."""
    served = np.clip((state.seconds - state.served_from) / STEP_SECONDS, 0.0, 1.0) * state.owned
    unserved_seconds = (1.0 - served) * STEP_SECONDS
    missed = state.missed + unserved_seconds
    caught_up = np.minimum(missed, served * STEP_SECONDS)
    missed -= caught_up
    after = replace(
        state,
        missed=missed,
        disturbed=bool((served < 1.0).any() or missed.any()),
        unserved_bundle_seconds=state.unserved_bundle_seconds + float(unserved_seconds.sum()),
    )
    return after, served + caught_up / STEP_SECONDS


def _sample(world: World, state: ClusterState) -> ClusterState:
    """New CPU samples of the brokers whose second it is and which were up for the whole interval."""
    interval = world.cpu_interval_seconds
    due = np.equal(world.cpu_second, state.seconds % interval)
    if not due.any():
        return state
    members = world.membership.at(state.seconds)
    up = members.present & (members.started_at <= state.seconds - interval)
    sampled = noisy(world, state.busy / interval, state.seconds)
    return replace(state, cpu=np.where(due & up, sampled, state.cpu), busy=np.where(due, 0.0, state.busy))


def _count(world: World, state: ClusterState) -> ClusterState:
    """New statistics of the brokers whose second it is."""
    due = np.equal(world.stats_second, state.seconds % world.stats_interval_seconds) & world.present(state.seconds)
    if not due.any():
        return state
    counted, passed = list(state.counted), state.passed.copy()
    owner = np.where(state.owned, state.owner, -1) if state.disturbed else state.owner
    for broker in np.flatnonzero(due).tolist():
        own = np.flatnonzero(owner == broker)
        counted[broker] = Counted(own, passed[own] / world.stats_interval_seconds)
        passed[own] = 0.0
    return replace(state, counted=tuple(counted), passed=passed)


def _own(owner: IntArray, brokers: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    return [np.flatnonzero(owner == at) for at in range(brokers)]


def noisy(world: World, points: FloatArray, when: int) -> FloatArray:
    """CPU samples of these points, float64 (B,), at that second. No two are equal: an equal one would be no new one."""
    noise = _random(world, when, 0).standard_normal(points.size) * world.noise_points
    least = LEAST_POINTS + np.abs(noise) / 1000
    return np.maximum(points + noise, least)


SPAN_NOISE_SECONDS = 10.0 / 2**0.5
"""Both ends of a span of ten seconds are off."""


def process_cpu(state: ClusterState, broker: int, started_at: float) -> ProcessCpu:
    """CPU seconds of a broker's process, and the seconds since its start or that of the run.

    ``started_at`` is in seconds of the run, -inf for a start before it.
    """
    return ProcessCpu(float(state.spent[broker]) / 100.0, state.seconds - max(started_at, -DAY_SECONDS))


def noisy_process_cpu(world: World, state: ClusterState, broker: int) -> ProcessCpu:
    """The same as lbd measures it: ten seconds of it are about as noisy as a sample of a minute."""
    exact = process_cpu(state, broker, float(world.membership.at(state.seconds).started_at[broker]))
    noise = _random(world, state.seconds, 2).standard_normal(len(world.brokers))[broker] * world.noise_points
    return exact._replace(spent_seconds=exact.spent_seconds + noise * SPAN_NOISE_SECONDS / 100.0)


def _random(world: World, when: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng((world.seed, when + MINUTE_SECONDS, purpose))


# --- topics of simulated bundles


@lru_cache(maxsize=4096)
def simulated_topics(bundle: str, number: int, *, partitioned: bool = False) -> tuple[Topic, ...]:
    """The topics of a bundle that was never split, in the order of their hashes, which lie at random in its range.

    Names of ``partitioned`` ones have a number that is far too large for a partition, because the hash decides it.
    """
    lower, upper = range_in_name(bundle)
    random, width = np.random.default_rng(topic_hash(bundle)), upper - lower + (upper == FULL_RANGE[1])
    positions = np.sort(lower + random.choice(width, number, replace=False)).tolist()
    stem = f"persistent://{bundle_namespace(bundle)}/topic-{'partition-1' if partitioned else ''}"
    return tuple(Topic(topic_at(stem, position), position) for position in positions)


def topics_in(first: World, world: World, row: int) -> tuple[Topic, ...]:
    """The topics of a bundle of ``world``, which is ``first`` after some splits."""
    whole = int(world.origin[row])
    lower, upper = range_in_name(world.bundles[row])
    last = upper + (upper == FULL_RANGE[1])
    partitioned = first.partitioned[first.load[whole]]
    topics = simulated_topics(first.bundles[whole], int(first.topics[whole]), partitioned=partitioned)
    return tuple(topic for topic in topics if lower <= topic.position < last)


# --- split: a bundle is cut into parts, each with the traffic of its topics
# On 4.0.8 the owner's report drops the whole at once, and has the parts with the next statistics: rates are counted
# for each topic, so theirs are of a whole interval.


def split(
    world: World, state: ClusterState, row: int, positions: Sequence[int], topics: Sequence[Topic]
) -> tuple[World, ClusterState]:
    """The same cluster with a bundle cut at ``positions``, which rise inside its range; ``topics`` are the bundle's.

    The lowest part stands in its place, the others behind all bundles. They belong to its owner.
    """
    parts, counts = split_parts(world.bundles[row], positions), _counts(positions, topics)
    rows = np.append(np.arange(len(world.bundles)), np.full(len(parts) - 1, row))
    own = np.append(row, np.arange(len(world.bundles), rows.size))
    shares = _shares(world.bundles[row], positions, counts)
    number, rates, passed = world.topics[rows], world.rates[rows], state.passed[rows]
    number[own], rates[own], passed[own] = counts, rates[own] * shares, passed[own] * shares
    bundles = (*world.bundles[:row], parts[0], *world.bundles[row + 1 :], *parts[1:])
    return replace(
        world, bundles=bundles, rates=rates, topics=number, load=world.load[rows], origin=world.origin[rows]
    ), replace(
        state,
        owner=state.owner[rows],
        counted=tuple(_without(row, counted) for counted in state.counted),
        passed=passed,
        placed_from=state.placed_from[rows],
        served_from=state.served_from[rows],
        missed=state.missed[rows],
    )


def released(state: ClusterState, bundles: NDArray[np.intp]) -> ClusterState:
    """Nobody owns these bundles any more, and they may be placed from now on."""
    placed_from, passed = state.placed_from.copy(), state.passed.copy()
    placed_from[bundles], passed[bundles] = state.seconds, 0.0
    return replace(state, placed_from=placed_from, passed=passed, disturbed=True)


def _counts(positions: Sequence[int], topics: Sequence[Topic]) -> NDArray[np.int64]:
    """How many topics fall into each part, int64 (parts,)."""
    edges = np.searchsorted(sorted(topic.position for topic in topics), positions)
    return np.diff(np.concatenate([[0], edges, [len(topics)]])).astype(np.int64)


def _shares(bundle: str, positions: Sequence[int], counts: NDArray[np.int64]) -> FloatArray:
    """The share of the traffic of each part, (parts, 1): by topics, or by width where there are none."""
    lower, upper = range_in_name(bundle)
    widths = np.array([end - begin for begin, end in pairwise((lower, *positions, upper))], dtype=np.float64)
    weights = counts if counts.any() else widths
    shares: FloatArray = (weights / weights.sum())[:, None]
    return shares


def _without(bundle: int, counted: Counted) -> Counted:
    others = counted.bundles != bundle
    return Counted(counted.bundles[others], counted.rates[others])


# --- load reports, as the columns that a turn reads

"""For so long the brokers of the beginning are up."""

UNKNOWN_LIMIT = -1000.0
"""Limit that brokers report for a virtual network card without a speed: only CPU makes a score here."""


def snapshot(world: World, state: ClusterState, begun_at: float) -> Snapshot:
    """The load reports of the brokers that answer, taken now; the run began at ``begun_at`` (epoch seconds)."""
    up = np.flatnonzero(world.answering(state.seconds)).tolist()
    counted = [state.counted[at] for at in up]
    bundles, rows = _rows(world, counted)
    totals = np.array([own.rates.sum(axis=0) for own in counted]).reshape(-1, 4)
    started = np.maximum(world.membership.at(state.seconds).started_at[up], -DAY_SECONDS)
    usage, limit = _usage(state.cpu[up])
    brokers = Brokers(
        ids=tuple(world.brokers[at] for at in up),
        usage=usage,
        limit=limit,
        rates=totals,
        topics=np.array([world.topics[own.bundles].sum() for own in counted], dtype=np.int64),
        started_at=begun_at + started,
        versions=("simulated",) * len(up),
    )
    return Snapshot(begun_at + state.seconds, brokers, bundles, rows)


def _usage(cpu: FloatArray) -> tuple[FloatArray, FloatArray]:
    usage = np.zeros((cpu.size, len(RESOURCES)))
    limit = np.full((cpu.size, len(RESOURCES)), UNKNOWN_LIMIT)
    usage[:, RESOURCES.index("cpu")], limit[:, RESOURCES.index("cpu")] = cpu, 100.0
    return usage, limit


def _rows(world: World, counted: list[Counted]) -> tuple[list[str], Rows]:
    """A producer and a consumer for each topic; the statistics and the list change together."""
    reported = np.concatenate([own.bundles for own in counted])
    distinct, first, position = np.unique(reported, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    everywhere = np.ones(reported.size, dtype=np.bool_)
    start = np.concatenate(([0], np.cumsum([own.bundles.size for own in counted])))
    rows = Rows(
        start=start.astype(np.int32),
        bundle=rank[position],
        rates=np.concatenate([own.rates for own in counted]),
        counts=np.repeat(world.topics[reported][:, None], 3, axis=1),
        reported=everywhere,
        listed=everywhere,
    )
    return world.names[distinct[order]].tolist(), rows


# --- from a scenario and a seed to a cluster: sizes of bundles, their first owners, and each broker's seconds

RANGES = 1 << 32
PLACEMENTS = 1000
"""Random placements that are tried for one that is as uneven as the scenario wants; then the scenario is refused."""


def cluster(scenario: Scenario, seed: int) -> tuple[World, ClusterState]:
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
        partitioned=tuple(load.partitioned for load in scenario.load),
        allowed=allowed,
        isolation=isolation,
        placement=scenario.placement,
        bursts=tuple(burst for at, part in enumerate(parts.values()) for burst in _bursts(at, part)),
        silences=tuple(scenario.silences(brokers)),
        points_per_mib=scenario.points_per_mib,
        noise_points=scenario.noise_points,
        cold_times=scenario.cold_times,
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


def _is_as_uneven(ratio: tuple[float, float] | None, carried: FloatArray) -> bool:
    """Whether the largest of these is within this ratio, lowest and highest, of the smallest."""
    if ratio is None:
        return True
    least, most = ratio
    return bool(least * carried.min() <= carried.max() <= most * carried.min())


def _owners(load: LoadPart, parts: dict[str, BrokerPart], able: BoolArray, random: np.random.Generator) -> IntArray:
    """At random among those named, blind to load: so AvgShedder places bundles that it has no plan for."""
    named = np.array([not load.brokers or part.id in load.brokers for part in parts.values()])
    return random.choice(np.flatnonzero(named & able).astype(np.int32), load.bundles)


def _isolation(scenario: Scenario) -> Isolation:
    """An isolation policy for each load that has brokers of its own."""
    width = {part.id: part.ids() for part in scenario.brokers}
    return parse_isolation(
        {
            load.name: {
                "namespaces": [re.escape(load_namespace(load))],
                "primary": [re.escape(broker.partition(":")[0]) for name in load.isolated_to for broker in width[name]],
            }
            for load in scenario.load
            if load.isolated_to
        }
    )


def _allowed(load: LoadPart, isolation: Isolation, brokers: tuple[str, ...]) -> BoolArray:
    able = isolation.brokers(load_namespace(load), brokers)
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
    return [f"{load_namespace(load)}/0x{low:08x}_0x{high:08x}" for low, high in pairwise(edges)]


def _bursts(broker: int, part: BrokerPart) -> list[Burst]:
    times = ((burst.at_minutes * 60, (burst.at_minutes + burst.minutes) * 60, burst.points) for burst in part.bursts)
    return [Burst(broker, begin, end, points) for begin, end, points in times]


def _second(random: np.random.Generator, number: int, interval_seconds: int) -> IntArray:
    return random.integers(0, interval_seconds // STEP_SECONDS, number, dtype=np.int32) * STEP_SECONDS
