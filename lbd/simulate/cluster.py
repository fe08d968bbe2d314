"""A model of a Pulsar cluster in steps of five seconds: brokers, bundles, and when a broker notices what. Pure.

A broker's CPU is ``background + points_per_mib x MiB/s / capacity``, plus noise (fit to the charts of apache/pulsar
#22946, within 6 points). It samples CPU once a minute, as the mean since the sample before, and counts its bundles'
rates once a stats interval, each broker at its own second: so a moved bundle is on both reports or on neither for up to
a minute, and its first statistics are of part of an interval (both as measured on 4.0.8, scaled to the default
statsUpdateFrequencyInSecs of 60). Random numbers are functions of the seed and the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray, IntArray
    from lbd.simulate.shapes import Shape

STEP_SECONDS = 5
MINUTE_SECONDS = 60
"""Of the CPU sample (loadBalancerHostUsageCheckIntervalMinutes) and of the statistics (statsUpdateFrequencyInSecs)."""

FIRST_CPU = 1e-7
"""What a broker reports before its first sample: seen on 4.0.8, not 0."""

MIB = 1024.0 * 1024.0


@dataclass(frozen=True)
class Burst:
    """CPU of a broker that no bundle causes, in points, from ``begin`` to ``end`` (seconds of the run)."""

    broker: int
    begin: float
    end: float
    points: float


@dataclass(frozen=True, eq=False)
class World:
    """What does not change in a run. Times are seconds since its beginning.

    ``background`` (points), ``capacity`` (1 = ordinary), ``joins_at`` and ``leaves_at`` are float64 (B,), aligned with
    ``brokers``, which are sorted. ``rates`` is float64 (N, 4), the rates at factor 1; ``load`` int32 (N,) into
    ``shapes``: that of the traffic, and that of its consumers on top. ``cpu_second`` and ``stats_second`` are int64
    (B,): the second of the minute at which a broker samples and counts.
    """

    brokers: tuple[str, ...]
    background: FloatArray
    capacity: FloatArray
    joins_at: FloatArray
    leaves_at: FloatArray
    bundles: tuple[str, ...]
    rates: FloatArray
    load: IntArray
    shapes: tuple[tuple[Shape, Shape], ...]
    bursts: tuple[Burst, ...]
    points_per_mib: float
    noise_points: float
    seed: int
    cpu_second: IntArray
    stats_second: IntArray

    def present(self, seconds: float) -> BoolArray:
        """The brokers that are up, bool (B,)."""
        found: BoolArray = (self.joins_at <= seconds) & (seconds < self.leaves_at)
        return found


@dataclass(frozen=True, eq=False)
class Counted:
    """A broker's statistics: its bundles, int64 (n,), and their mean rates over the last interval, (n, 4)."""

    bundles: np.ndarray[tuple[int], np.dtype[np.int64]]
    rates: FloatArray


@dataclass(frozen=True, eq=False)
class State:
    """The cluster at one moment: what is true, and what its brokers know of it.

    ``owner`` is int32 (N,) into the brokers. ``cpu`` is float64 (B,), the points sampled last, and ``counted`` the
    statistics counted last. ``busy`` (points x seconds) and ``passed`` (messages and bytes) add up for the next ones.
    """

    seconds: int
    owner: IntArray
    cpu: FloatArray
    counted: tuple[Counted, ...]
    busy: FloatArray
    passed: FloatArray


def rates_at(world: World, seconds: float) -> FloatArray:
    """Rates of each bundle, float64 (N, 4)."""
    pairs = [(traffic.factor(seconds), consumers.factor(seconds)) for traffic, consumers in world.shapes]
    factors = np.array([(within, within * out, within, within * out) for within, out in pairs])
    found: FloatArray = world.rates * factors[world.load]
    return found


def idle_at(world: World, seconds: float) -> FloatArray:
    """Points of each broker that no bundle causes, float64 (B,)."""
    found = world.background.copy()
    for burst in world.bursts:
        if burst.begin <= seconds < burst.end:
            found[burst.broker] += burst.points
    return found


def points_at(world: World, owner: IntArray, rates: FloatArray, seconds: float) -> FloatArray:
    """True CPU of each broker without noise, in points, float64 (B,); 0 for one that is away. 100 is all there is."""
    carried = np.bincount(owner, (rates[:, 2] + rates[:, 3]) / 2, len(world.brokers)) / MIB
    found = idle_at(world, seconds) + world.points_per_mib * carried / world.capacity
    return np.where(world.present(seconds), np.minimum(found, 100.0), 0.0)


def begin(world: World, owner: IntArray) -> State:
    """A cluster that has run like this for a while: every broker has sampled, and counted all it owns."""
    rates = rates_at(world, 0)
    points = points_at(world, owner, rates, 0)
    since_sample = (MINUTE_SECONDS - world.cpu_second) % MINUTE_SECONDS
    since_counted = (MINUTE_SECONDS - world.stats_second) % MINUTE_SECONDS
    return State(
        seconds=0,
        owner=owner,
        cpu=np.where(world.present(0), _noisy(world, points, -1), FIRST_CPU),
        counted=tuple(_counted(owner, rates, at) for at in range(len(world.brokers))),
        busy=points * since_sample,
        passed=rates * since_counted[owner][:, None],
    )


def step(world: World, state: State) -> State:
    """The same cluster five seconds later."""
    state = _left(world, replace(state, seconds=state.seconds + STEP_SECONDS))
    rates = rates_at(world, state.seconds - STEP_SECONDS / 2)
    points = points_at(world, state.owner, rates, state.seconds - STEP_SECONDS / 2)
    state = replace(state, busy=state.busy + points * STEP_SECONDS, passed=state.passed + rates * STEP_SECONDS)
    return _count(world, _sample(world, state))


def moved(state: State, bundle: int, destination: int) -> State:
    """The bundle has landed; its new owner begins to count it."""
    owner, passed = state.owner.copy(), state.passed.copy()
    owner[bundle], passed[bundle] = destination, 0.0
    return replace(state, owner=owner, passed=passed)


def _left(world: World, state: State) -> State:
    """What belonged to a broker that went is placed by the others at random, blind to load, as AvgShedder does it."""
    present = world.present(state.seconds)
    lost = np.flatnonzero(~present[state.owner])
    if not lost.size:
        return state
    owner, passed = state.owner.copy(), state.passed.copy()
    owner[lost] = _random(world, state.seconds, 1).choice(np.flatnonzero(present), lost.size)
    passed[lost] = 0.0
    return replace(state, owner=owner, passed=passed)


def _sample(world: World, state: State) -> State:
    """New CPU samples of the brokers whose second it is and which were up for the whole minute."""
    due = _due(state, world.cpu_second)
    if not due.any():
        return state
    up = world.present(state.seconds) & (world.joins_at <= state.seconds - MINUTE_SECONDS)
    sampled = _noisy(world, state.busy / MINUTE_SECONDS, state.seconds)
    return replace(state, cpu=np.where(due & up, sampled, state.cpu), busy=np.where(due, 0.0, state.busy))


def _count(world: World, state: State) -> State:
    """New statistics of the brokers whose second it is."""
    due = _due(state, world.stats_second)
    if not due.any():
        return state
    counted, means = list(state.counted), state.passed / MINUTE_SECONDS
    for at in np.flatnonzero(due).tolist():
        counted[at] = _counted(state.owner, means, at)
    passed = np.where(due[state.owner][:, None], 0.0, state.passed)
    return replace(state, counted=tuple(counted), passed=passed)


def _due(state: State, second: IntArray) -> BoolArray:
    return np.equal(second, state.seconds % MINUTE_SECONDS)


def _counted(owner: IntArray, rates: FloatArray, broker: int) -> Counted:
    own = np.flatnonzero(owner == broker)
    return Counted(own, rates[own])


def _noisy(world: World, points: FloatArray, when: int) -> FloatArray:
    """Two samples are never equal: an equal one would be no new one."""
    noise = _random(world, when, 0).standard_normal(points.size) * world.noise_points
    return np.maximum(points + noise, 0.01)


def _random(world: World, when: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng((world.seed, when + MINUTE_SECONDS, purpose))
