"""The loop of a simulation: turn after turn of the real lbd, on a simulated cluster and its clock. Nothing waits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.act.orders import Pace
from lbd.cycle import CycleRecord, turn
from lbd.cycle.splitting import round_of
from lbd.model import Skip, bundle_namespace
from lbd.observe.observer import Observation
from lbd.pulsar.admin import Leader
from lbd.reason import Reason
from lbd.score.placement import Placement, Pools
from lbd.score.trace import Moved, Seen, Split, Trace
from lbd.simulate.build import cluster
from lbd.simulate.cluster import FIRST_CPU, MIB, STEP_SECONDS, idle_at, moved, points_at, rates_at, served_now, step
from lbd.simulate.cutting import Cutting
from lbd.simulate.leap import leap, steps_at_once
from lbd.simulate.moving import Moving, unload_seconds
from lbd.simulate.parts import parts_of
from lbd.simulate.reports import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.config import Settings
    from lbd.model import Unload
    from lbd.simulate.cluster import State
    from lbd.simulate.scenario import Scenario

BEGUN_AT = 1_767_571_200.0
"""Monday, 5 January 2026, midnight UTC: for quiet hours."""


@dataclass(frozen=True)
class Turned:
    """One turn of the run, ``seconds`` after its beginning, and how long lbd took for it."""

    seconds: float
    record: CycleRecord
    took_seconds: float


@dataclass
class Simulation:
    """A cluster under lbd. ``clock`` (seconds) only measures how long turns take."""

    scenario: Scenario
    settings: Settings
    seed: int
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._world, self._state = cluster(self.scenario, self.seed)
        self._first, self._first_owner = self._world, self._state.owner
        self._now = BEGUN_AT
        self._moving = Moving(Pace.of(self.settings.guardrails), lambda: self._now, self._refused, self._takes)
        self._isolation = self._world.isolation
        self._broker = {broker: at for at, broker in enumerate(self._world.brokers)}
        self._index()
        self._splits: list[Split] = []
        self._seen: list[Seen] = []
        self._moves: list[Moved] = []
        self._shown_at: float | None = None

    def turns(self) -> Iterator[Turned]:
        """Every turn of the run, the first of them at its beginning. Raises what a turn could not be finished for."""
        parts, seconds = parts_of(self, self._moving, self.settings, self._isolation), 0.0
        while seconds <= self.scenario.hours * 3600:
            self._forward(seconds)
            begun = self.clock()
            record = turn(parts)
            took = self.clock() - begun
            if record.error is not None:
                raise record.error
            self._seen.append(self._look(took))
            yield Turned(seconds, record, took)
            self._split(record)
            seconds += self.settings.interval_seconds

    def trace(self) -> Trace:
        """What the scorecard is made of."""
        return Trace(
            seen=tuple(self._seen),
            moves=tuple(self._moves),
            brokers=self._world.brokers,
            shown_at_seconds=self._shown_at,
            placement=self._placement(),
            unserved_bundle_seconds=self._state.unserved_bundle_seconds,
            splits=tuple(self._splits),
        )

    def observe(self) -> Observation:
        """The reports as they are now; the brokers do not shed by themselves."""
        world, seconds = self._world, self._state.seconds
        seen = replace(snapshot(world, self._state, BEGUN_AT), taken_at=self._now)
        members = world.membership.at(seconds)
        active = tuple(world.brokers[at] for at in np.flatnonzero(members.listed).tolist())
        leader = Leader(world.brokers[members.leader], "") if members.leads else None
        silent = dict.fromkeys(sorted(set(active) - set(seen.brokers.ids)), "does not answer")
        splitting = active if self.scenario.auto_bundle_split else ()
        return Observation(seen, "simulated", active, leader, silent, splitting_on=splitting)

    def _split(self, record: CycleRecord) -> None:
        """What this turn's round asks for: one of the two splits, never both."""
        by_lbd = self.settings.split.enabled and not self.scenario.auto_bundle_split
        if not (by_lbd or self.scenario.auto_bundle_split):
            return
        cutting = Cutting(self._first, self._world, self._state)
        if not by_lbd:
            cutting.by_brokers(record, self._moving.flying)
        elif seen := round_of(record, self._moving.split_or_attempted_at, self._moving.splits_within_hour):
            for found, reason in cutting.by_lbd(seen, self.settings):
                self._moving.was_split(found, reason)
        if cutting.made:
            self._world, self._state = cutting.world, cutting.state
            self._splits += cutting.made
            self._index()

    def _index(self) -> None:
        self._bundle = {bundle: at for at, bundle in enumerate(self._world.bundles)}

    def _forward(self, seconds: float) -> None:
        """Let the cluster live until then; what lands within a step is there at its end."""
        while self._state.seconds + STEP_SECONDS <= seconds:
            self._state = self._later(seconds)
            self._now = BEGUN_AT + self._state.seconds
            self._land()
            self._notice()
        self._now = BEGUN_AT + seconds
        self._land()
        self._notice()

    def _later(self, seconds: float) -> State:
        """One step, or many where nothing happens that has a time of its own."""
        steps = steps_at_once(self._world, self._state, seconds) if self._moving.idle else 0
        if steps > 1:
            found = leap(self._world, self._state, steps)
            if self._shown_at is not None or not self._may_show(found):
                return found
        return step(self._world, self._state)

    def _may_show(self, later: State) -> bool:
        """Whether some moment until then can have shown two brokers as far apart as the high threshold."""
        known = np.concatenate([self._state.cpu, later.cpu])[np.tile(self._world.present(later.seconds), 2)]
        return bool(np.ptp(known) >= self.settings.avg_shedder.high_threshold)

    def _land(self) -> None:
        for unload, took in self._moving.landed():
            assert unload.destination is not None
            bundle, destination = self._bundle[unload.bundle], self._broker[unload.destination]
            self._state = moved(self._state, bundle, destination, took)
            self._moves.append(self._moved(unload, unload.destination))

    def _moved(self, unload: Unload, destination: str) -> Moved:
        allowed = destination in self._allowed(bundle_namespace(unload.bundle))
        ends = (unload.source, destination)
        return Moved(self._now - BEGUN_AT, unload.bundle, *ends, unload.throughput, allowed)

    def _allowed(self, namespace: str) -> frozenset[str]:
        """Brokers that are there and on which policies let a namespace be."""
        up = np.flatnonzero(self._world.present(self._state.seconds))
        return self._isolation.brokers(namespace, [self._world.brokers[at] for at in up.tolist()])

    def _notice(self) -> None:
        """When reports first show two brokers as far apart as the high threshold."""
        if self._shown_at is None:
            known = self._state.cpu[self._world.answering(self._state.seconds) & (self._state.cpu > FIRST_CPU)]
            if known.size and np.ptp(known) >= self.settings.avg_shedder.high_threshold:
                self._shown_at = float(self._state.seconds)

    def _refused(self, unload: Unload) -> Skip | None:
        """What the executor checks before each request."""
        bundle = self._bundle.get(unload.bundle)
        if bundle is None:
            return Skip(unload.bundle, Reason.OWNER_CHANGED, "it was split; not sent")
        owner = self._world.brokers[self._state.owner[bundle]] if self._state.owned[bundle] else "nobody"
        up = self._world.present(self._state.seconds)
        if owner != unload.source:
            return Skip(unload.bundle, Reason.OWNER_CHANGED, f"{owner} owns it; not sent")
        if unload.destination is None or not up[self._broker[unload.destination]]:
            return Skip(unload.bundle, Reason.DESTINATION_FORBIDDEN, f"{unload.destination} is not there; not sent")
        return None

    def _takes(self, unload: Unload) -> float:
        destination = self._broker[unload.destination or ""]
        cold = not (self._state.owner == destination).any()
        return unload_seconds(int(self._world.topics[self._bundle[unload.bundle]]), cold=cold)

    def _look(self, took_seconds: float) -> Seen:
        """The truth at this moment, without noise and delay."""
        world, state = self._world, self._state
        rates = rates_at(world, state.seconds) * served_now(state)[:, None]
        points = points_at(world, state.owner, rates, state.seconds)
        carried = np.bincount(state.owner, rates[:, 2] + rates[:, 3], points.size).astype(np.float64)
        unmoved = points_at(world, self._first_owner[world.origin], rates, state.seconds)
        present = world.present(state.seconds)
        return Seen(self._now - BEGUN_AT, points[present], unmoved[present], present, carried, took_seconds)

    def _placement(self) -> Placement | None:
        """Not told where a broker left, or split bundles: what became of them was not lbd's doing."""
        world = self._world
        if world.membership.lost_any(self._state.seconds) or any(one.by == "brokers" for one in self._splits):
            return None
        seconds = self._heaviest()
        return Placement(
            sizes=rates_at(world, seconds)[:, 2:].sum(axis=1) / 2 / MIB,
            first=self._first_owner[world.origin],
            last=self._state.owner,
            idle=idle_at(world, seconds),
            slope=world.points_per_mib / world.capacity,
            present=world.present(seconds),
            pools=self._pools(),
        )

    def _heaviest(self) -> float:
        """When most was carried since the last move."""
        last = self._moves[-1].seconds if self._moves else 0.0
        since = [one for one in self._seen if one.seconds >= last] or self._seen[-1:]
        return max(since, key=lambda one: one.throughput).seconds

    def _pools(self) -> Pools:
        """A pool for each load: each is a namespace of its own."""
        names = [f"simulated/{load.name}" for load in self.scenario.load]
        allowed = [[broker in found for broker in self._world.brokers] for found in map(self._allowed, names)]
        return Pools(self._world.load, np.array(allowed, dtype=np.bool_))
