"""A model of a Pulsar cluster in steps of five seconds: brokers, bundles, and when a broker notices what. Pure.

A broker's CPU is ``background + points_per_mib x MiB/s / capacity``, plus noise (fit to the charts of apache/pulsar
#22946, within 6 points). It samples CPU once a minute, as the mean since the sample before, and counts its bundles'
rates once a stats interval, each broker at its own second: so a moved bundle is on both reports or on neither for up to
a minute, and its first statistics are of part of an interval (both as measured on 4.0.8, scaled to the default
statsUpdateFrequencyInSecs of 60). A bundle that nobody serves carries nothing, and then as much again as usual until
its clients have caught up. Random numbers are functions of the seed and the time.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.linear import usage
from lbd.simulate.placing import at_random, least_message_rate
from lbd.simulate.world import MIB, MINUTE_SECONDS, STEP_SECONDS, Counted, State, World

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbd.model import BoolArray, FloatArray, IntArray

__all__ = [
    "FIRST_CPU",
    "MIB",
    "MINUTE_SECONDS",
    "STEP_SECONDS",
    "Counted",
    "State",
    "World",
    "begin",
    "idle_at",
    "moved",
    "noisy",
    "placed",
    "points_at",
    "rates_at",
    "served_now",
    "step",
]

FIRST_CPU = 1e-7
"""What a broker reports before its first sample: seen on 4.0.8, not 0."""

HANDED_OVER_SECONDS = 0.15
"""From the end of one owner until clients are served by the next: 0.13 to 0.2 s on 4.0.8."""

LEAST_POINTS = 0.01
"""A broker that does nothing still uses something, and never twice the same."""

START_UP_POINTS = 10.0
"""Of a broker's first minute: 67, 38 and 39 points were sampled on 4.2.4 for a true 57, 27 and 27."""


def rates_at(world: World, seconds: float) -> FloatArray:
    """Rates of each bundle while it is served, float64 (N, 4)."""
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
    found[seconds - world.membership.at(seconds).started_at < MINUTE_SECONDS] += START_UP_POINTS
    return found


def points_at(world: World, owner: IntArray, rates: FloatArray, seconds: float) -> FloatArray:
    """True CPU of each broker without noise, in points, float64 (B,); 0 for one that is away. 100 is all there is."""
    carried = np.bincount(owner, (rates[:, 2] + rates[:, 3]) / 2, len(world.brokers)) / MIB
    found = usage(idle_at(world, seconds), world.points_per_mib / world.capacity, carried)
    return np.where(world.present(seconds), np.minimum(found, 100.0), 0.0)


def begin(world: World, owner: IntArray) -> State:
    """A cluster that has run like this for a while: every broker has sampled, and counted all it owns."""
    rates = rates_at(world, 0)
    points = points_at(world, owner, rates, 0)
    since_sample = (MINUTE_SECONDS - world.cpu_second) % MINUTE_SECONDS
    since_counted = (world.stats_interval_seconds - world.stats_second) % world.stats_interval_seconds
    never, always = np.full(owner.size, inf), np.full(owner.size, -inf)
    return State(
        seconds=0,
        owner=owner,
        cpu=np.where(world.present(0), noisy(world, points, -1), FIRST_CPU),
        counted=tuple(Counted(own, rates[own]) for own in _own(owner, len(world.brokers))),
        busy=points * since_sample,
        passed=rates * since_counted[owner][:, None],
        placed_from=never,
        served_from=always,
        missed=np.zeros(owner.size),
    )


def step(world: World, state: State) -> State:
    """The same cluster five seconds later."""
    state = replace(state, seconds=state.seconds + STEP_SECONDS)
    middle = state.seconds - STEP_SECONDS / 2
    rates = rates_at(world, middle)
    if state.disturbed:
        state, flowing = _flowing(state)
        rates *= flowing[:, None]
    points = points_at(world, state.owner, rates, middle)
    state = replace(state, busy=state.busy + points * STEP_SECONDS, passed=state.passed + rates * STEP_SECONDS)
    state = _members_changed(world, state)
    if state.disturbed:
        state = placed(world, state)
    return _count(world, _sample(world, state))


def moved(state: State, bundle: int, destination: int, unserved_seconds: float = 0.0) -> State:
    """The bundle has landed; its new owner begins to count it, and to serve it after so many seconds."""
    return _landed(state, np.array([bundle]), np.array([destination], dtype=np.int32), unserved_seconds)


def served_now(state: State) -> BoolArray:
    """Bundles that somebody serves at this moment, bool (N,)."""
    found: BoolArray = state.owned & (state.served_from <= state.seconds)
    return found


def _landed(state: State, bundles: NDArray[np.intp], owners: IntArray, unserved_seconds: float = 0.0) -> State:
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


def _members_changed(world: World, state: State) -> State:
    """What belonged to a broker that went belongs to nobody; one that comes knows nothing."""
    if not world.membership.changed(state.seconds - STEP_SECONDS, state.seconds):
        return state
    members = world.membership.at(state.seconds)
    nothing = Counted(np.zeros(0, dtype=np.int64), np.zeros((0, 4)))
    lost = state.owned & ~members.present[state.owner]
    return replace(
        state,
        cpu=np.where(members.present, state.cpu, FIRST_CPU),
        busy=np.where(members.present, state.busy, 0.0),
        counted=tuple(
            one if here else nothing for one, here in zip(state.counted, members.present.tolist(), strict=True)
        ),
        passed=np.where(lost[:, None], 0.0, state.passed),
        placed_from=np.where(lost, members.placed_from[state.owner], state.placed_from),
        disturbed=True,
    )


def placed(world: World, state: State) -> State:
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


def _flowing(state: State) -> tuple[State, FloatArray]:
    """How much of its traffic each bundle carried in the step, as a factor: float64 (N,)."""
    served = np.clip((state.seconds - state.served_from) / STEP_SECONDS, 0.0, 1.0) * state.owned
    unserved_seconds = (1.0 - served) * STEP_SECONDS
    missed = state.missed + unserved_seconds
    caught_up = np.minimum(missed, served * STEP_SECONDS)
    missed -= caught_up
    found = replace(
        state,
        missed=missed,
        disturbed=bool((served < 1.0).any() or missed.any()),
        unserved_bundle_seconds=state.unserved_bundle_seconds + float(unserved_seconds.sum()),
    )
    return found, served + caught_up / STEP_SECONDS


def _sample(world: World, state: State) -> State:
    """New CPU samples of the brokers whose second it is and which were up for the whole minute."""
    due = np.equal(world.cpu_second, state.seconds % MINUTE_SECONDS)
    if not due.any():
        return state
    members = world.membership.at(state.seconds)
    up = members.present & (members.started_at <= state.seconds - MINUTE_SECONDS)
    sampled = noisy(world, state.busy / MINUTE_SECONDS, state.seconds)
    return replace(state, cpu=np.where(due & up, sampled, state.cpu), busy=np.where(due, 0.0, state.busy))


def _count(world: World, state: State) -> State:
    """New statistics of the brokers whose second it is."""
    due = np.equal(world.stats_second, state.seconds % world.stats_interval_seconds) & world.present(state.seconds)
    if not due.any():
        return state
    counted, passed = list(state.counted), state.passed.copy()
    owner = np.where(state.owned, state.owner, -1) if state.disturbed else state.owner
    for at in np.flatnonzero(due).tolist():
        own = np.flatnonzero(owner == at)
        counted[at] = Counted(own, passed[own] / world.stats_interval_seconds)
        passed[own] = 0.0
    return replace(state, counted=tuple(counted), passed=passed)


def _own(owner: IntArray, brokers: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    return [np.flatnonzero(owner == at) for at in range(brokers)]


def noisy(world: World, points: FloatArray, when: int) -> FloatArray:
    """CPU samples of these points, float64 (B,), at that second. No two are equal: an equal one would be no new one."""
    noise = _random(world, when, 0).standard_normal(points.size) * world.noise_points
    least = LEAST_POINTS + np.abs(noise) / 1000
    return np.maximum(points + noise, least)


def _random(world: World, when: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng((world.seed, when + MINUTE_SECONDS, purpose))
