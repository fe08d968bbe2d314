"""One night: an hour in which things go wrong and people give orders, then some minutes in which all is well."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import structlog

from lbd.daemon import api_backend, election, service
from lbd.pulsar import http
from lbd.pulsar.broker_configuration import SHEDDING_ENABLED
from lbd.simulate.cluster import points_at, rates_at
from lbd.simulate.world import MIB
from tests.nights import faults, people
from tests.nights.network import sessions
from tests.nights.observer import Check
from tests.nights.schedule import SimulatedSchedule
from tests.nights.scheduler import Scheduler, simulated
from tests.nights.stage import Stage
from tests.simulate.faulty import Fault, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
    from pathlib import Path

MINUTES = 60.0
FAULTS, ORDERS, SCENES = 10, 6, 5
HAPPENINGS = range(FAULTS + ORDERS + SCENES)
CALM_MINUTES = 12.0
"""An heir waits 20 s, an unmoved bundle is judged after 95 s, an outcome in doubt for a minute, and brokers that came
back for two; then a hot broker is to be relieved."""

FIRST_SECONDS = 60.0
"""The first fault comes no sooner: the lbds have started by then."""

SHIFTS = 8
"""So often load shifts, with which lbd has something to move all night."""

REFUSALS = 3
"""So often the next unloads fail, and may be tried again: limits and cool-downs count each request."""

APPROVED_EVERY_SECONDS = 90.0
SILENT_SECONDS = 60.0
"""An lbd whose last turn ended longer ago, in a calm cluster, has stopped turning."""

HOT_POINTS, OTHER_POINTS, APART_POINTS = 60.0, 5.0, 40.0
"""In the calm the bundles of one broker cost it so many points, those of any other one so many. A broker is hot that
far above another one (``avg_shedder.high_threshold``)."""

RELIEVED_WITHIN_SECONDS = 420.0
"""A hot broker's first bundle moves within so long, where a limit does not forbid it."""


@dataclass(frozen=True)
class Result:
    """What came of a night. ``failure`` is empty where everything held."""

    seed: int
    failure: str
    story: tuple[str, ...]
    unloads: int
    turns: int
    steps: int
    requests: int
    faults: Mapping[int, str]

    @property
    def digest(self) -> str:
        """Of the whole story: equal for two nights that went alike."""
        return sha256("\n".join(self.story).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class _Planned:
    """What happens at which second of the night; a fault or an order has a number and a name."""

    seconds: float
    happen: Callable[[], None]
    number: int | None = None
    name: str = ""


class Night:
    """What happens on a stage, all by ``seed``; of its faults and orders those with these ``numbers``."""

    def __init__(self, running: Scheduler, seed: int, folder: Path, minutes: float, numbers: Collection[int]) -> None:
        self.stage, self._running, self._seed, self._numbers = Stage(running, seed, folder), running, seed, numbers
        self._seconds = 60 * minutes
        self.faults: dict[int, str] = {}

    def run(self) -> None:
        """Live through the night. Raises :class:`~tests.nights.observer.ViolationError`."""
        stage, running = self.stage, self._running
        with stage.cluster:
            for machine in stage.machines:
                stage.start(machine)
            running.spawn(stage.watch, "watch", "world")
            running.spawn(self._approve, "approvals", "world")
            for planned in self._plan():
                running.sleep(planned.seconds - running.seconds)
                if planned.number is not None:
                    self.faults[planned.number] = planned.name
                planned.happen()
            running.sleep(self._seconds - running.seconds)
            self._make_well()
            running.sleep(60 * CALM_MINUTES)
            self._require_rest()

    def _plan(self) -> list[_Planned]:
        """What happens when. Each has a random stream of its own, so a night with fewer has the others alike."""
        planned = [self._load_shifts(Random(f"shift {self._seed} {number}")) for number in range(SHIFTS)]
        planned += [self._unload_fails(Random(f"refusal {self._seed} {number}")) for number in range(REFUSALS)]
        if self.stage.quiet is not None:
            random = Random(f"quiet {self._seed}")
            happen = faults.quiet_amid_a_move(self.stage, random)
            planned.append(_Planned(random.uniform(FIRST_SECONDS, self._seconds), happen))
        planned.append(_Planned(0.0, faults.last_of_an_hour(self.stage)))
        for number in self._numbers:
            random = Random(f"fault {self._seed} {number}")
            seconds = random.uniform(FIRST_SECONDS, self._seconds)
            kinds = [faults.KINDS] * FAULTS + [people.KINDS] * ORDERS + [faults.SCENES] * SCENES
            name, happen = random.choice(kinds[number])(self.stage, random)
            planned.append(_Planned(seconds, happen, number, name))
        return sorted(planned, key=lambda one: one.seconds)

    def _load_shifts(self, random: Random) -> _Planned:
        broker, factor = random.choice(self.stage.cluster.brokers), random.uniform(1.5, 3.0)
        return _Planned(random.uniform(0.0, self._seconds), partial(self.stage.heat, broker, factor))

    def _unload_fails(self, random: Random) -> _Planned:
        fault, times = random.choice((Fault.NO_EFFECT, Fault.NOT_ACTIVE, Fault.CONFLICT)), random.randint(1, 3)

        def happen() -> None:
            self.stage.tell(f"brokers: {fault.value} ({times} times)")
            self.stage.cluster.faults.on(Switch(fault, times=times))

        return _Planned(random.uniform(0.0, self._seconds), happen)

    def _approve(self) -> None:
        while True:
            self._running.sleep(APPROVED_EVERY_SECONDS)
            people.approve(self.stage)

    # -- the end

    def _make_well(self) -> None:
        """Nothing fails any more, and nobody orders anything."""
        stage = self.stage
        stage.tell("all is well from now on")
        stage.at_unload.clear()
        stage.topic.at_intent.clear()
        stage.cluster.faults.off()
        stage.topic.gone = False
        stage.topic.deaf.clear()
        stage.network.heal()
        stage.disk.heal()
        stage.let_all_roam()
        stage.cluster.configuration.delete(SHEDDING_ENABLED)
        for broker in stage.cluster.brokers:
            stage.cluster.start(broker)
        for machine in stage.machines:
            stage.go_on(machine)
        for seconds in (30.0, 120.0):
            stage.later(seconds, partial(people.go_home, stage), "all people end what they have ordered")
        stage.later(150.0, self._heat_one, "one broker becomes hot")

    def _heat_one(self) -> None:
        """A load of which the other brokers can bear a part: what went before may have been more than all can."""
        cluster = self.stage.cluster
        most = max(cluster.brokers, key=lambda broker: (len(cluster._book.owned(broker)), broker))
        world, state = cluster.model()
        rates = rates_at(world, state.seconds)
        costs = dict(
            zip(world.bundles, (world.points_per_mib * (rates[:, 2] + rates[:, 3]) / 2 / MIB).tolist(), strict=True)
        )
        factors = {}
        for broker in cluster.brokers:
            owned = [bundle for bundle in cluster._book.owned(broker) if costs[bundle]]
            points = HOT_POINTS if broker == most else OTHER_POINTS
            factors |= {bundle: points / len(owned) / costs[bundle] for bundle in owned}
        cluster.scale(factors)
        self.stage.later(RELIEVED_WITHIN_SECONDS, self._require_relief, "the hot broker should be relieved by now")

    def _points(self) -> dict[str, float]:
        world, state = self.stage.cluster.model()
        points = points_at(world, state.owner, rates_at(world, state.seconds), state.seconds).tolist()
        return dict(zip(world.brokers[:-1], points[:-1], strict=True))

    def _require_relief(self) -> None:
        """Raises :class:`~tests.nights.observer.ViolationError` where a broker stayed hot, and something could go."""
        stage = self.stage
        observer, points = stage.observer, self._points()
        hot, cold = max(points, key=points.__getitem__), min(points, key=points.__getitem__)
        moved = {sending.bundle for sending in observer.sendings}
        free = set(stage.cluster._book.owned(hot)) - moved
        if points[hot] - points[cold] < APART_POINTS or observer.budget <= 0 or len(free) < 2:
            return
        if observer.idle_for() > RELIEVED_WITHIN_SECONDS:
            why = stage.lbds[stage.leader].sentence if stage.leader is not None else "nobody leads"
            words = f"{hot} has {points[hot]:.0f} points, {cold} {points[cold]:.0f}, and nothing moved: {why}"
            observer.report(Check.RELIEF, words)

    def _require_rest(self) -> None:
        """Raises :class:`~tests.nights.observer.ViolationError` where something still waits, or nobody leads."""
        stage = self.stage
        leaders = [machine for machine, lbd in stage.lbds.items() if lbd.engine.leading.leading]
        wrong = [] if len(leaders) == 1 else [f"{leaders} lead"]
        for machine, lbd in stage.lbds.items():
            if self._running.seconds - lbd.ended_at > SILENT_SECONDS:
                wrong.append(f"{machine} has not turned since {lbd.ended_at:.0f}")
            if machine in leaders and lbd.engine.in_flight and stage.observer.idle_for() > 2 * SILENT_SECONDS:
                wrong.append(f"{machine} has open moves: {lbd.engine.journal.open}")
            if machine in leaders and lbd.engine.draining.busy:
                wrong.append(f"{machine} still drains or fills: {lbd.sentence}")
            if machine in leaders and lbd.error is not None:
                wrong.append(f"{machine}: the last turn failed: {lbd.error}")
        if missing := set(stage.machines) - set(stage.lbds):
            wrong.append(f"{sorted(missing)} do not run")
        stage.observer.require(Check.REST, wrong)


class _NoServer:
    """In place of the API's server: it needs sockets, and an event loop of its own."""

    def __init__(self, *_: object, **__: object) -> None:
        """Listen to nobody."""

    def stop(self) -> None:
        """Nothing runs."""


@dataclass
class _FakeLeaderTopic:
    """In place of the admin client of the leader topic."""

    settings: object = None
    topic: str = ""
    calls: list[str] = field(default_factory=list)

    def create(self) -> None:
        """It is there."""

    def forget(self, seconds: float) -> None:
        """A night is too short for that."""

    def writers(self) -> tuple[()]:
        """Nobody but lbds writes it."""
        return ()

    def early_loss(self, seconds: float) -> str:
        """Its lines stay."""
        del seconds
        return ""


@contextmanager
def _replaced(stage: Stage) -> Iterator[None]:
    """What reaches out of the process, replaced until the end."""

    def log(_: object, __: str, facts: MutableMapping[str, Any]) -> None:
        stage.log(facts.pop("event", ""), facts)
        raise structlog.DropEvent

    send = http.Http._once

    def once(client: http.Http, *arguments: Any) -> http.Response:
        stage.checks()
        return send(client, *arguments)

    structlog.configure(processors=[log], wrapper_class=structlog.make_filtering_bound_logger(20))
    with ExitStack() as replaced:
        for target, name, value in (
            (http, "Sessions", sessions(stage.network)),
            (http.Http, "_once", once),
            (election, "SharedLog", lambda *_: stage.topic.connect()),
            (election, "LeaderTopic", _FakeLeaderTopic),
            (os, "_exit", lambda _: stage.leave()),
            (service, "Schedule", SimulatedSchedule),
            (api_backend, "Server", _NoServer),
            (api_backend, "listen_locally", lambda _: None),
        ):
            replaced.enter_context(mock.patch.object(target, name, value))
        replaced.enter_context(stage.disk.watched())
        yield
    structlog.reset_defaults()


def live(seed: int, folder: Path, minutes: float = MINUTES, numbers: Collection[int] = HAPPENINGS) -> Result:
    """One night from its beginning to its end, or to what does not hold; of its faults those with these ``numbers``."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    failure = ""
    with simulated(seed) as running:
        night = Night(running, seed, folder, minutes, numbers)
        stage = night.stage
        with _replaced(stage):
            try:
                running.run(night.run)
            except Exception as error:  # noqa: BLE001 - whatever ends a night is its result
                failure = f"{type(error).__name__}: {error}"
        return Result(
            seed,
            failure,
            tuple(stage.story),
            len(stage.observer.sendings),
            stage.turns,
            running.steps,
            stage.network.requests,
            night.faults,
        )
