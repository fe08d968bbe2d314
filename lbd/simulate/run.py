"""Runs of the real lbd on a cluster that it cannot touch: a simulated one here, a recorded one in ``compare/``.

All parts are real except brokers, clock and disk. A run starts no thread, reads no clock, and waits for nothing.
"""

from __future__ import annotations

import gzip
import heapq
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from lbd.act.executor import FinishedMoves, Pace, touched_brokers
from lbd.errors import RefusedError
from lbd.fields import derived
from lbd.model import RESOURCES, Outcome, Result, Skip, Unload, bundle_namespace
from lbd.observe.live_cpu import LiveCpuReader
from lbd.observe.observer import Observation
from lbd.observe.parse import BundleStats, LoadReport, Usage
from lbd.observe.topic_names import SpreadReader, TopicNames
from lbd.permit.policies import Isolation
from lbd.pulsar.admin import Leader
from lbd.reason import Reason
from lbd.score.bounds import BundleHistory
from lbd.score.gap import gap
from lbd.score.scorecard import ClusterTruth, Moved, SplitEvent, Trace, scorecard
from lbd.simulate.cluster import (
    FIRST_CPU,
    cluster,
    idle_at,
    moved,
    noisy_process_cpu,
    placed,
    points_at,
    rates_at,
    released,
    served_now,
    snapshot,
    split,
    step,
    topics_in,
)
from lbd.simulate.world import MIB, STEP_SECONDS
from lbd.split.plan import SplitResult, plan, plan_cut
from lbd.split.triggers import SplitSettings, too_large, within_namespaces
from lbd.store.journal import KEEP_SECONDS, JournalState
from lbd.store.journal_lines import Intent, OutcomeLine, SplitEnded, SplitIntent
from lbd.store.moves import Now, within_hour
from lbd.store.state import Scratch
from lbd.turn.parts import FreePolicies, Parts, TurnResult, reports_alone
from lbd.turn.splitting import choose, split_round
from lbd.turn.strategy_config import parts_of, slope_learner
from lbd.turn.turn import turn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lbd.act.executor import Limits
    from lbd.config import Settings
    from lbd.model import BoolArray, FloatArray, IntArray, ProcessCpu, Snapshot
    from lbd.permit.budget import Sent
    from lbd.score.scorecard import Scorecard
    from lbd.simulate.scenario import Scenario
    from lbd.simulate.world import ClusterState, World
    from lbd.split.plan import SplitPlan, Topic
    from lbd.split.triggers import Due
    from lbd.turn.parts import LiveCpuSource
    from lbd.turn.splitting import SplitRound


# --- moves: plans executed at the pace and with the journal's rules of the real executor
# Every unload lands at its destination; misses are tested on real brokers.

UNLOAD_SECONDS = 0.15
"""From the request until the new owner serves: 0.13 to 0.2 s on 4.0.8 under 3,000 msg/s, a topic in the bundle."""

TOPIC_SECONDS = 0.0007
"""More for each further topic: a second for 1,250 (apache/pulsar #359)."""

COLD_SECONDS = 1.3
"""Duration of the first unload towards a broker that has owned nothing yet, on 4.2.4."""


def unload_seconds(topics: int, *, cold: bool) -> float:
    """Seconds without an owner when a bundle moves; ``cold``: to a broker that has owned nothing before."""
    return max(UNLOAD_SECONDS + TOPIC_SECONDS * (topics - 1), COLD_SECONDS if cold else 0.0)


@dataclass(frozen=True)
class _SimulatedFlight:
    """One unload of a plan: when it is requested (epoch seconds), and how long it takes."""

    requested_at: float
    seconds: float
    move: str
    unload: Unload

    @property
    def lands_at(self) -> float:
        return self.requested_at + self.seconds


class Moving:
    """An actuator whose moves take simulated time. ``refuses`` is the check before each request, ``takes`` how many
    seconds a bundle is served by nobody.
    """

    acts = True

    def __init__(
        self,
        pace: Pace,
        now: Callable[[], float],
        refuses: Callable[[Unload], Skip | None],
        takes: Callable[[Unload], float] = lambda _: UNLOAD_SECONDS,
    ) -> None:
        self._pace, self._now, self._refuses, self._takes = pace, now, refuses, takes
        self._journal, self._number = JournalState(), 0
        self._waiting: deque[_SimulatedFlight] = deque()
        self._flying: list[_SimulatedFlight] = []
        self._outcomes: list[Outcome] = []
        self._skips: list[Skip] = []
        self._touched: set[str] = set()

    @property
    def flying(self) -> frozenset[str]:
        """Bundles whose unload was asked for and has not ended."""
        return frozenset(flight.unload.bundle for flight in self._flying)

    @property
    def attempted_at(self) -> Mapping[str, float]:
        """The last attempt on each bundle."""
        return self._journal.attempted_at

    @property
    def sent(self) -> tuple[Sent, ...]:
        """Requests of the last day, oldest first."""
        return self._journal.in_order()

    @property
    def split_or_attempted_at(self) -> Mapping[str, float]:
        """The last attempt on each bundle, or when it came out of a split."""
        return self._journal.past().split_or_attempted_at

    @property
    def splits_within_hour(self) -> int:
        """How many splits of lbd's there were."""
        return within_hour(self._journal.splits.all(), self._now())

    def was_split(self, split_plan: SplitPlan, reason: str) -> None:
        """Journal a split of lbd's, which took no time."""
        self._number += 1
        now, split, parts = self._now(), str(self._number), tuple(part.bundle for part in split_plan.parts)
        self._journal.add(derived(SplitIntent, plan_cut(split_plan, reason), at=now, split=split))
        self._journal.add(SplitEnded(now, split, SplitResult.SPLIT, split_plan.bundle, parts, split_plan.owner))

    def landed(self) -> list[tuple[Unload, float]]:
        """Let time pass until now and journal the requests sent meanwhile. Returns the unloads that landed since the
        last call, each with the seconds that it took.
        """
        now = self._now()
        while self._waiting and self._waiting[0].requested_at <= now:
            self._ask(self._waiting.popleft())
        landed = [flight for flight in self._flying if flight.lands_at <= now]
        self._flying = [flight for flight in self._flying if flight.lands_at > now]
        for flight in landed:
            self._conclude(flight)
        return [(flight.unload, flight.seconds) for flight in landed]

    def collect(self) -> FinishedMoves:
        """The moves that ended since the last call, as from the executor."""
        self._journal.settle(Now(self._now()), KEEP_SECONDS)
        unfinished = tuple(flight.unload for flight in (*self._flying, *self._waiting))
        self._touched |= touched_brokers(unfinished, self._outcomes)
        finished = FinishedMoves(tuple(self._outcomes), tuple(self._skips), None, unfinished, frozenset(self._touched))
        self._outcomes, self._skips = [], []
        return finished

    def settled(self) -> None:
        """Forget the touched bundles: they have been noted. Those under way are reported again."""
        self._touched.clear()

    def hand_over(self, plan: Sequence[Unload], limits: Limits) -> None:
        """One in flight for each source, ``spacing_seconds`` between two of them, ``at_once`` in all."""
        del limits
        free, lanes = [self._now()] * self._pace.at_once, dict[str, float]()
        for unload in plan:
            requested_at = max(heapq.heappop(free), lanes.get(unload.source, 0.0))
            self._number += 1
            flight = _SimulatedFlight(requested_at, self._takes(unload), str(self._number), unload)
            heapq.heappush(free, flight.lands_at)
            lanes[unload.source] = flight.lands_at + self._pace.spacing_seconds
            self._waiting.append(flight)
        self._waiting = deque(sorted(self._waiting, key=lambda flight: flight.requested_at))

    def halt(self, reason: Reason, detail: str) -> None:
        """Begin no more of what was handed over."""
        self._skips += [Skip(flight.unload.bundle, reason, detail) for flight in self._waiting]
        self._waiting.clear()

    def _ask(self, flight: _SimulatedFlight) -> None:
        refusal = self._refuses(flight.unload)
        if refusal is not None:
            self._skips.append(refusal)
            return
        self._journal.add(derived(Intent, flight.unload, at=flight.requested_at, move=flight.move))
        self._flying.append(flight)

    def _conclude(self, flight: _SimulatedFlight) -> None:
        outcome = Outcome(flight.unload, Result.LANDED, flight.unload.destination, seconds=flight.seconds)
        self._journal.add(derived(OutcomeLine, outcome, flight.unload, at=flight.lands_at, move=flight.move))
        self._outcomes.append(outcome)


# --- loop


@dataclass(frozen=True)
class Turned:
    """One turn of the run, ``seconds`` after its beginning."""

    seconds: float
    record: TurnResult


class WhatIf(ABC):
    """lbd over a cluster, from ``begun_at`` (epoch seconds) on. A subclass is the cluster.

    ``brokers`` are all that are ever there. ``rounds`` lets time pass until each round, and calls :meth:`land` whenever
    some has passed; ``observe`` are the reports of the round, ``present`` the brokers that are there. A bundle
    ``takes`` seconds to ``move`` to its destination; the result is whether policies allow that. ``truth`` is without
    noise and delay. ``placement`` is None where bundles changed hands by other means than lbd's moves. ``after`` each
    turn the brokers do what its round demands.
    """

    brokers: tuple[str, ...]

    @abstractmethod
    def rounds(self) -> Iterator[None]: ...
    @abstractmethod
    def observe(self) -> Observation: ...
    @abstractmethod
    def present(self) -> Sequence[str]: ...
    @abstractmethod
    def move(self, unload: Unload, destination: str, seconds: float) -> bool: ...
    @abstractmethod
    def truth(self) -> ClusterTruth: ...
    @abstractmethod
    def placement(self) -> BundleHistory | None: ...

    def __init__(self, settings: Settings, begun_at: float) -> None:
        self.settings, self._begun_at, self._now = settings, begun_at, begun_at
        self._moving = Moving(Pace.of(settings.guardrails), lambda: self._now, self.refused, self.takes)
        self._truths: list[ClusterTruth] = []
        self._moves: list[Moved] = []
        self._shown_at: float | None = None

    def takes(self, _: Unload) -> float:
        return UNLOAD_SECONDS

    def refused(self, unload: Unload) -> Skip | None:
        """Return why a request would not be sent, by the executor's checks before it; None: it would."""
        if unload.destination in self.present():
            return None
        return Skip(unload.bundle, Reason.DESTINATION_FORBIDDEN, f"{unload.destination} is not there; not sent")

    def parts(self) -> Parts:
        """The parts of a turn; no namespace has an isolation policy or is in an anti-affinity group."""
        parts = parts_of(self.settings, self, FreePolicies(Isolation()), self._moving, Scratch(), self._moving)
        in_waves = replace(parts.planning, in_waves=True)
        return replace(parts, planning=in_waves, learn=slope_learner(self.settings))

    def after(self, _: TurnResult) -> None:
        return

    def turns(self) -> Iterator[Turned]:
        """Every turn of the run, the first one at its beginning. Raises the error of a turn that fails."""
        parts = self.parts()
        for _ in self.rounds():
            record = turn(parts)
            if record.error is not None:
                raise record.error
            parts = replace(parts, rest=record.plan.rest)
            self._truths.append(self.truth())
            yield Turned(self._seconds, record)
            self.after(record)

    def trace(self) -> Trace:
        """Trace of the run, from which the scorecard is computed."""
        return Trace(
            truths=tuple(self._truths),
            moves=tuple(self._moves),
            brokers=self.brokers,
            shown_at_seconds=self._shown_at,
            placement=self.placement(),
            unserved_bundle_seconds=len(self._moves) * UNLOAD_SECONDS,
        )

    @property
    def _seconds(self) -> float:
        return self._now - self._begun_at

    def land(self) -> None:
        """Move the bundles whose unloads have landed by now."""
        for unload, took in self._moving.landed():
            assert unload.destination is not None
            allowed = self.move(unload, unload.destination, took)
            ends = (unload.source, unload.destination)
            self._moves.append(Moved(self._seconds, unload.bundle, *ends, unload.throughput, allowed))

    def show(self, points: FloatArray) -> None:
        """Keep when reports first show two brokers as far apart as the high threshold."""
        if self._shown_at is None and gap(points) >= self.settings.avg_shedder.high_threshold:
            self._shown_at = self._seconds


# --- a completed run, and its scorecard


@dataclass(frozen=True)
class Run:
    """A run that has ended: its scorecard, what that was made of, and the sentence of its last turn."""

    label: str
    card: Scorecard
    trace: Trace
    sentence: str


def run_to_end(label: str, what_if: WhatIf, thresholds: tuple[float, float], follow: Callable[[Turned], None]) -> Run:
    """Run to the end; ``follow`` gets each turn. The scorecard measures by these thresholds, low and high."""
    sentence = ""
    for turned in what_if.turns():
        sentence = turned.record.sentence
        follow(turned)
    trace = what_if.trace()
    return Run(label, scorecard(trace, *thresholds), trace, sentence)


# --- splits: by lbd's rule, or by the brokers' leader with Pulsar's own
# A split takes no time here and leaves clients connected: 0.05 to 0.1 s on 4.0.8, where no producer waited for more
# than 0.12 s. Brokers unload their split bundles at once (loadBalancerAutoUnloadSplitBundlesEnabled), and they are
# placed anew.

BROKERS = SplitSettings()
"""Settings of the brokers' own splits: the defaults of broker.conf."""


class Cutting:
    """A cluster whose bundles can be split; ``first`` is its world at the beginning of the run.

    ``world`` and ``state`` are those of now, ``made`` are the splits so far.
    """

    def __init__(self, first: World, world: World, state: ClusterState) -> None:
        self._first = first
        self.world, self.state = world, state
        self.made: list[SplitEvent] = []

    def number_of_bundles(self, namespace: str) -> int:
        """How many a namespace has."""
        return sum(bundle_namespace(bundle) == namespace for bundle in self.world.bundles)

    def look(self, bundle: str, settings: SplitSettings) -> SplitPlan:
        """Plan the split of a bundle. Raises :class:`RefusedError` for an unknown, unowned or too small one."""
        row = self._position(bundle)
        if row is None or not self.state.owned[row]:
            raise RefusedError(f"{bundle}: {'split already' if row is None else 'nobody owns it'}")
        owner = self.world.brokers[self.state.owner[row]]
        return plan(owner, bundle, settings.algorithm, tuple(self._topics(row)), settings.flow)

    def by_lbd(self, this_round: SplitRound, settings: Settings) -> tuple[Due, SplitPlan] | None:
        """The split by lbd's rule, and why; the parts stay where they are."""
        chosen = choose(self, settings, this_round).chosen
        if chosen is not None:
            self._cut(chosen[1], "lbd")
        return chosen

    def by_brokers(self, record: TurnResult, closing: Collection[str]) -> None:
        """Split the bundles of this turn that the leader would split, and place the parts; skip ``closing`` bundles."""
        for split_plan in self._due(record, closing):
            self._cut(split_plan, "brokers")
            parts = [self.world.bundles.index(part.bundle) for part in split_plan.parts]
            self.state = placed(self.world, released(self.state, np.array(parts)))

    def _due(self, record: TurnResult, closing: Collection[str]) -> list[SplitPlan]:
        """All bundles that are too large, while their namespaces have room. lbd averages as the leader does."""
        plans: list[SplitPlan] = []
        observation = record.observation
        if observation is None or record.facts is None or observation.leader is None:
            return plans
        large = too_large(observation.snapshot, record.facts.averages, BROKERS)
        due = [split for split in large if split.bundle not in closing]
        bundles = {name: self.number_of_bundles(name) for name in {bundle_namespace(split.bundle) for split in due}}
        for due_split in within_namespaces(due, bundles, BROKERS)[0]:
            with suppress(RefusedError):  # as a broker that finds nothing to cut, and answers 204
                plans.append(self.look(due_split.bundle, BROKERS))
        return plans

    def _cut(self, split_plan: SplitPlan, by: str) -> None:
        row = self.world.bundles.index(split_plan.bundle)
        self.world, self.state = split(self.world, self.state, row, split_plan.positions, split_plan.whole.topics)
        ends = (split_plan.bundle, split_plan.owner, len(split_plan.parts), by)
        self.made.append(SplitEvent(float(self.state.seconds), *ends))

    def _position(self, bundle: str) -> int | None:
        return self.world.bundles.index(bundle) if bundle in self.world.bundles else None

    def _topics(self, row: int) -> Iterator[Topic]:
        """Topics of a bundle, with equal shares of the rates that its owner has counted; 0 before it has."""
        counted = self.state.counted[self.state.owner[row]]
        rates = counted.rates[counted.bundles == row].sum(axis=0)
        topics = topics_in(self._first, self.world, row)
        messages, volume = (rates[[0, 1]].sum(), rates[[2, 3]].sum()) if topics else (0.0, 0.0)
        for topic in topics:
            yield replace(topic, msg_rate=float(messages) / len(topics), throughput=float(volume) / len(topics))


# --- run

BEGUN_AT = 1_767_571_200.0
"""Monday, 5 January 2026, midnight UTC: for quiet hours."""


class Simulation(WhatIf):
    """A simulated cluster under lbd: the same seed gives the same run."""

    def __init__(self, scenario: Scenario, settings: Settings, seed: int) -> None:
        super().__init__(settings, BEGUN_AT)
        self.scenario = scenario
        self._world, self._state = cluster(scenario, seed)
        self._first, self._first_owner = self._world, self._state.owner
        self.brokers = self._world.brokers
        self._broker = {broker: at for at, broker in enumerate(self.brokers)}
        self._index()
        self._splits: list[SplitEvent] = []

    def rounds(self) -> Iterator[None]:
        """A round at each interval; what lands within a step is there at its end."""
        seconds = 0.0
        while seconds <= self.scenario.hours * 3600:
            while self._state.seconds + STEP_SECONDS <= seconds:
                self._state = step(self._world, self._state)
                self._pass(self._state.seconds)
            self._pass(seconds)
            yield
            seconds += self.settings.interval_seconds

    def parts(self) -> Parts:
        live: LiveCpuSource = reports_alone
        if self.settings.asks_live_cpu:
            live = LiveCpuReader(self, lambda answer, brokers: list(map(answer, brokers)), lambda: self._now)
        spread = SpreadReader(
            self.settings.spread_in_force, TopicNames(self._topics, lambda: self._now, waits_seconds=inf)
        )
        return replace(super().parts(), policies=FreePolicies(self._world.isolation), live=live, spread=spread)

    def trace(self) -> Trace:
        """Trace of the run, from which the scorecard is computed."""
        unserved = self._state.unserved_bundle_seconds
        return replace(super().trace(), unserved_bundle_seconds=unserved, splits=tuple(self._splits))

    def observe(self) -> Observation:
        world, seconds = self._world, self._state.seconds
        reports = replace(snapshot(world, self._state, BEGUN_AT), taken_at=self._now)
        members = world.membership.at(seconds)
        active = tuple(self.brokers[at] for at in np.flatnonzero(members.listed).tolist())
        leader = Leader(self.brokers[members.leader], "") if members.leads else None
        silent = dict.fromkeys(sorted(set(active) - set(reports.brokers.ids)), "does not answer")
        splitting = active if self.scenario.auto_bundle_split else ()
        return Observation(reports, "simulated", active, leader, silent, splitting_on=splitting)

    def process_cpu(self, broker: str, *, deadline: float) -> ProcessCpu:
        """As :meth:`lbd.pulsar.admin.Admin.process_cpu`; it is answered at once."""
        del deadline
        return noisy_process_cpu(self._world, self._state, self._broker[broker])

    def refused(self, unload: Unload) -> Skip | None:
        bundle = self._bundle.get(unload.bundle)
        if bundle is None:
            return Skip(unload.bundle, Reason.OWNER_CHANGED, "it was split; not sent")
        owner = self.brokers[self._state.owner[bundle]] if self._state.owned[bundle] else "nobody"
        if owner != unload.source:
            return Skip(unload.bundle, Reason.OWNER_CHANGED, f"{owner} owns it; not sent")
        return super().refused(unload)

    def takes(self, unload: Unload) -> float:
        cold = not (self._state.owner == self._broker[unload.destination or ""]).any()
        return unload_seconds(int(self._world.topics[self._bundle[unload.bundle]]), cold=cold)

    def move(self, unload: Unload, destination: str, seconds: float) -> bool:
        self._state = moved(self._state, self._bundle[unload.bundle], self._broker[destination], seconds)
        return destination in self._world.isolation.brokers(bundle_namespace(unload.bundle), self.present())

    def truth(self) -> ClusterTruth:
        world, state = self._world, self._state
        rates = rates_at(world, state.seconds) * served_now(state)[:, None]
        return cluster_truth(world, state, self._first_owner, rates, world.present(state.seconds), self._seconds)

    def placement(self) -> BundleHistory | None:
        """None where a broker left, or split bundles: where bundles ended up was not lbd's doing."""
        world, owners = self._world, (self._first_owner, self._state.owner)
        if world.membership.lost_any(self._state.seconds) or any(split.by == "brokers" for split in self._splits):
            return None
        seconds = self._heaviest()
        return placement_between(world, owners, seconds, world.present(seconds))

    def after(self, record: TurnResult) -> None:
        """Split as this turn's round demands: by lbd or by the brokers, never both."""
        by_lbd = self.settings.split.enabled and not self.scenario.auto_bundle_split
        if not (by_lbd or self.scenario.auto_bundle_split):
            return
        cutting = Cutting(self._first, self._world, self._state)
        if not by_lbd:
            cutting.by_brokers(record, self._moving.flying)
        elif this_round := split_round(record, self._moving.split_or_attempted_at, self._moving.splits_within_hour):
            chosen = cutting.by_lbd(this_round, self.settings)
            if chosen is not None:
                self._moving.was_split(chosen[1], chosen[0].words)
        if cutting.made:
            self._world, self._state = cutting.world, cutting.state
            self._splits += cutting.made
            self._index()

    def _topics(self, namespace: str) -> list[str]:
        """As :meth:`lbd.pulsar.admin.Admin.topics`."""
        own = [at for at, name in enumerate(self._world.bundles) if bundle_namespace(name) == namespace]
        return [topic.name for at in own for topic in topics_in(self._first, self._world, at)]

    def _index(self) -> None:
        self._bundle = {bundle: at for at, bundle in enumerate(self._world.bundles)}

    def _pass(self, seconds: float) -> None:
        """Come to this time of the cluster."""
        self._now = BEGUN_AT + seconds
        self.land()
        if self._shown_at is None:
            cpu = self._state.cpu
            self.show(cpu[self._world.answering(self._state.seconds) & (cpu > FIRST_CPU)])

    def present(self) -> list[str]:
        return [self.brokers[at] for at in np.flatnonzero(self._world.present(self._state.seconds)).tolist()]

    def _heaviest(self) -> float:
        """When most was carried since the last move."""
        last = self._moves[-1].seconds if self._moves else 0.0
        since = [truth for truth in self._truths if truth.seconds >= last] or self._truths[-1:]
        return max(since, key=lambda truth: truth.throughput).seconds


def cluster_truth(
    world: World, state: ClusterState, first: IntArray, rates: FloatArray, present: BoolArray, seconds: float
) -> ClusterTruth:
    """The truth under these rates of bundles, (N, 4); ``first`` are the first owners, ``present`` the brokers that are
    there, bool (B,). Owners beyond those B stand for nobody.
    """
    size = present.size
    points = points_at(world, state.owner, rates, state.seconds)[:size]
    unmoved = points_at(world, first[world.origin], rates, state.seconds)[:size]
    carried = np.bincount(state.owner, rates[:, 2] + rates[:, 3], len(world.brokers))[:size].astype(np.float64)
    return ClusterTruth(seconds, points[present], unmoved[present], present, carried)


def placement_between(
    world: World, owners: tuple[IntArray, IntArray], seconds: float, present: BoolArray
) -> BundleHistory:
    """The first and the last ``owners`` of bundles, under the load of a time."""
    first, last = owners
    return BundleHistory(
        sizes=rates_at(world, seconds)[:, 2:].sum(axis=1) / 2 / MIB,
        first=first[world.origin],
        last=last,
        idle=idle_at(world, seconds),
        slope=world.points_per_mib / world.capacity,
        present=present,
    )


# --- a completed simulation


@dataclass(frozen=True, eq=False)
class Finished(Run):
    """A simulation that has ended."""

    scenario: Scenario
    settings: Settings
    seed: int

    @property
    def conclusion(self) -> str:
        """The last verdict by lbd's own view, as a sentence for people."""
        return f"In the end, by reports whose CPU is a noisy sample of a minute: {self.sentence}"


def finish(
    name: str, scenario: Scenario, settings: Settings, seed: int, follow: Callable[[Turned], None] = lambda _: None
) -> Finished:
    """Run the scenario to its end; ``follow`` gets each turn."""
    limits = settings.avg_shedder
    thresholds = (limits.low_threshold, limits.high_threshold)
    run = run_to_end(name, Simulation(scenario, settings, seed), thresholds, follow)
    return derived(Finished, run, scenario=scenario, settings=settings, seed=seed)


# --- load reports for a recording, as brokers would send them

RATES = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
"""Fields of a report for the columns of :attr:`lbd.model.Brokers.rates`."""


def load_reports(snapshot: Snapshot) -> dict[str, bytes]:
    """The report of each broker as JSON: parsed, they are the snapshot again."""
    return {broker: msgspec.json.encode(_report(snapshot, at)) for at, broker in enumerate(snapshot.brokers.ids)}


def estimated_bytes(snapshot: Snapshot, rounds: int, *, packed: bool) -> int:
    """Estimate the bytes of a recording of ``rounds`` like this one; ``packed``: with gzip.

    A round packs worse by itself than after others, so that a small cluster's becomes shorter than this.
    """
    line = b",".join(load_reports(snapshot).values())
    return rounds * len(gzip.compress(line) if packed else line)


def _report(snapshot: Snapshot, row: int) -> LoadReport:
    brokers = snapshot.brokers
    usages = map(Usage, brokers.usage[row].tolist(), brokers.limit[row].tolist())
    columns: dict[str, Any] = dict(zip((*RESOURCES, *RATES), (*usages, *brokers.rates[row].tolist()), strict=True))
    statistics, listed = _bundles(snapshot, row)
    return LoadReport(
        **columns,
        last_stats=statistics,
        bundles=listed,
        num_topics=int(brokers.topics[row]),
        broker_version_string=brokers.versions[row],
        start_timestamp=float(brokers.started_at[row]) * 1000,
        web_service_url=f"http://{brokers.ids[row]}",
    )


def _bundles(snapshot: Snapshot, row: int) -> tuple[dict[str, BundleStats], list[str]]:
    """Statistics by bundle, and the list of bundles."""
    rows, own = snapshot.rows, snapshot.rows.of(row)
    names = [snapshot.bundles[bundle] for bundle in rows.bundle[own].tolist()]
    rates, counts = rows.rates[own].tolist(), rows.counts[own].tolist()
    columns = zip(names, rates, counts, rows.reported[own].tolist(), strict=True)
    statistics = {name: BundleStats(*rate, *count) for name, rate, count, reported in columns if reported}
    return statistics, [name for name, listed in zip(names, rows.listed[own].tolist(), strict=True) if listed]
