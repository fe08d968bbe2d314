"""Many steps of the cluster at once, while nobody comes, goes, is unserved or catches up: a month in minutes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lbd.simulate.cluster import idle_at, noisy
from lbd.simulate.world import MIB, MINUTE_SECONDS, STEP_SECONDS, Counted, State, World

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray, IntArray


def steps_at_once(world: World, state: State, until: float) -> int:
    """How many steps may be made at once, at most until then; 0 where something is going on.

    No broker samples or counts twice in them.
    """
    most = min(MINUTE_SECONDS, world.stats_interval_seconds, int(until - state.seconds)) // STEP_SECONDS
    ahead = state.seconds + most * STEP_SECONDS
    return 0 if state.disturbed or world.membership.changed(state.seconds, ahead) else most


def leap(world: World, state: State, steps: int) -> State:
    """The cluster so many steps later, as ``cluster.step`` makes them but for the last bits of sums.

    ``steps`` is at least 1, and at most :func:`steps_at_once`.
    """
    ahead = _Ahead(world, state, steps)
    cpu, busy = ahead.sampled()
    counted, passed = ahead.counted()
    seconds = state.seconds + steps * STEP_SECONDS
    return replace(state, seconds=seconds, cpu=cpu, busy=busy, counted=counted, passed=passed)


@dataclass(frozen=True, eq=False)
class _Ahead:
    """The next ``steps`` (n) steps of a cluster in which bundles stay where they are."""

    world: World
    state: State
    steps: int

    @cached_property
    def ends(self) -> IntArray:
        """The seconds at which the steps end, (n,)."""
        return self.state.seconds + STEP_SECONDS * np.arange(1, self.steps + 1, dtype=np.int32)

    @cached_property
    def factors(self) -> FloatArray:
        """On messages and bytes in, and on those out, of each load in each step: float64 (n, L, 2)."""
        found = [
            [(within := traffic.factor(at), within * consumers.factor(at)) for traffic, consumers in self.world.shapes]
            for at in (self.ends - STEP_SECONDS / 2).tolist()
        ]
        return np.array(found, dtype=np.float64)

    def due(self, second: IntArray, interval_seconds: int) -> IntArray:
        """The step at whose end each broker's second comes, int32 (B,); ``n`` or more: in none of them."""
        return (second - self.state.seconds - STEP_SECONDS) % interval_seconds // STEP_SECONDS

    def sampled(self) -> tuple[FloatArray, FloatArray]:
        """CPU samples, and what has added up for the next ones."""
        world, state = self.world, self.state
        busy = np.concatenate([state.busy[None], state.busy + np.cumsum(self._points() * STEP_SECONDS, axis=0)])
        due = self.due(world.cpu_second, MINUTE_SECONDS)
        members, cpu, left = world.membership.at(state.seconds), state.cpu.copy(), busy[-1].copy()
        for step in np.unique(due[due < self.steps]).tolist():
            now, so_far = int(self.ends[step]), busy[step + 1]
            own = due == step
            up = own & members.present & (members.started_at <= now - MINUTE_SECONDS)
            cpu[up] = noisy(world, so_far / MINUTE_SECONDS, now)[up]
            left[own] -= so_far[own]
        return cpu, left

    def _points(self) -> FloatArray:
        """True CPU in the middle of each step, float64 (n, B)."""
        world, (loads, brokers) = self.world, (len(self.world.shapes), len(self.world.brokers))
        cell = world.load * brokers + self.state.owner
        mass = [np.bincount(cell, world.rates[:, at], loads * brokers).reshape(loads, brokers) for at in (2, 3)]
        carried = (self.factors[:, :, 0] @ mass[0] + self.factors[:, :, 1] @ mass[1]) / 2 / MIB
        idle = np.stack([idle_at(world, at) for at in (self.ends - STEP_SECONDS / 2).tolist()])
        points = np.minimum(idle + world.points_per_mib * carried / world.capacity, 100.0)
        return np.where(self._present, points, 0.0)

    @property
    def _present(self) -> BoolArray:
        return self.world.present(self.state.seconds)

    def counted(self) -> tuple[tuple[Counted, ...], FloatArray]:
        """Statistics of the brokers, and what has passed for the next ones."""
        world, state = self.world, self.state
        flowed = np.concatenate([np.zeros((1, *self.factors.shape[1:])), np.cumsum(self.factors, axis=0)])
        flowed = np.tile(flowed * STEP_SECONDS, 2)
        counted, passed = list(state.counted), state.passed + world.rates * flowed[-1][world.load]
        due = self.due(world.stats_second, world.stats_interval_seconds)
        for at in np.flatnonzero((due < self.steps) & self._present).tolist():
            own, until = np.flatnonzero(state.owner == at), flowed[due[at] + 1]
            rates, load = world.rates[own], world.load[own]
            counted[at] = Counted(own, (state.passed[own] + rates * until[load]) / world.stats_interval_seconds)
            passed[own] = rates * (flowed[-1] - until)[load]
        return tuple(counted), passed
