"""One night: two lbds on a cluster of three brokers, an hour with faults, then some minutes in which all is well.

Each lbd is the daemon as it is: service, turns, executor, journal, orders and election. Replaced are threads and clocks
(``scheduler.py``), planned times (``schedule.py``), connections to brokers (``network.py``), the client of the leader
topic (``topic.py``) and the API.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import structlog

from lbd.config import Settings
from lbd.daemon import api_backend, election, service
from lbd.daemon.engine import engine
from lbd.daemon.service import Service
from lbd.errors import LbdError
from lbd.pulsar import http
from lbd.simulate.cluster import cluster as built
from lbd.simulate.fake_pulsar import FakePulsar
from lbd.simulate.faults import Fault, Switch
from lbd.simulate.scenario import Scenario
from lbd.store.control import Control, Pause
from tests.nights.disk import Disk
from tests.nights.network import Network, sessions
from tests.nights.observer import Observer, ViolationError
from tests.nights.schedule import SimulatedSchedule
from tests.nights.scheduler import Scheduler, simulated
from tests.nights.topic import KEEP_ALIVE_SECONDS, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
    from pathlib import Path

    from lbd.daemon.engine import Engine
    from lbd.simulate.faults import Request
    from lbd.turn.parts import TurnResult

MACHINES = ("lbd-1", "lbd-2")
MINUTES = 60.0
FAULTS = 10
CALM_MINUTES = 6.0
"""An heir waits 20 s, an unmoved bundle is judged after 95 s, and an outcome in doubt for a minute."""

FIRST_SECONDS = 60.0
"""The first fault comes no sooner: both lbds have started by then."""

SHIFTS = 8
"""So often load shifts, with which lbd has something to move all night."""

REFUSALS = 3
"""So often the next unloads fail, and may be tried again: limits and cool-downs count each request."""

UNLOADS_PER_HOUR, COOL_DOWN_MINUTES = 10, 10.0
SILENT_SECONDS = 60.0
"""An lbd whose last turn ended longer ago, in a calm cluster, has stopped turning."""

_NUMBERS = re.compile(r"[0-9][0-9.:TZ-]*")

SCENARIO: dict[str, Any] = {
    "about": "Three brokers, one of them hot.",
    "source": "tests/nights",
    "stock": "not measured",
    "hours": 4,
    "brokers": [{"id": f"b{number}", "background": 20} for number in (1, 2, 3)],
    "load": [
        {"name": "orders", "brokers": ["b1"], "mib_per_second": 150, "bundles": 8, "topics": 16, "spread": 0.3},
        {"name": "mail", "brokers": ["b2"], "mib_per_second": 60, "bundles": 8, "topics": 16, "spread": 0.3},
        {"name": "search", "brokers": ["b3"], "mib_per_second": 30, "bundles": 8, "topics": 16, "spread": 0.3},
    ],
}


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


@dataclass
class _Lbd:
    """A running lbd."""

    engine: Engine
    service: Service
    ended_at: float
    error: LbdError | None = None


@dataclass(frozen=True)
class _Planned:
    """What happens at which second of the night; a fault has a number and a name."""

    seconds: float
    happen: Callable[[], None]
    number: int | None = None
    name: str = ""


class Night:
    """A cluster, its lbds, and what happens to them; all by ``seed``."""

    def __init__(self, running: Scheduler, seed: int, folder: Path, minutes: float, numbers: Collection[int]) -> None:
        self._running, self.seed, self._folder, self._numbers = running, seed, folder, numbers
        self._seconds = 60 * minutes
        self.network, self._disk = Network(seed), Disk()
        self._topic = Topic(seed, lambda machine: machine not in self.network.cut)
        self._lbds: dict[str, _Lbd] = {}
        self._ending: dict[str, float] = {}
        self._at_unload: list[Callable[[str], None]] = []
        """Gets the machine that sends the next unload, each for one of them."""
        self._at_step: list[tuple[int, Callable[[], None]]] = []
        self.story: list[str] = []
        self.faults: dict[int, str] = {}
        self.turns, self._last_words = 0, dict[str, str]()
        world, state = built(Scenario.model_validate(SCENARIO), seed)
        off = {"loadBalancerSheddingEnabled": "false"}
        self._cluster = FakePulsar(world, state, ports=self.network, runtime=off)
        self.observer = Observer(
            lambda: running.seconds,
            lambda: self._cluster._book.history,
            self.tell,
            per_hour=UNLOADS_PER_HOUR,
            cool_down_seconds=60 * COOL_DOWN_MINUTES,
        )

    def tell(self, line: str) -> None:
        """Add to the story."""
        self.story.append(f"{self._running.seconds:10.3f} {line}")

    def run(self) -> None:
        """Live through the night. Raises :class:`ViolationError`."""
        self._running.on_step = self._step
        self.network.on_request = self._request
        with self._cluster:
            for machine in MACHINES:
                self._start(machine)
            self._running.spawn(self._keep_alive, "keep-alive", "world")
            for fault in self._plan():
                self._running.sleep(fault.seconds - self._running.seconds)
                if fault.number is not None:
                    self.faults[fault.number] = fault.name
                fault.happen()
            self._running.sleep(self._seconds - self._running.seconds)
            self._make_well()
            self._running.sleep(60 * CALM_MINUTES)
            self._require_rest()

    # -- lbds

    def _settings(self, machine: str) -> Settings:
        folder = self._folder / machine
        folder.mkdir(exist_ok=True)
        return Settings.model_validate(
            {
                "pulsar": {
                    "admin_urls": [f"http://{broker}" for broker in self._cluster.brokers],
                    "service_url": "pulsar://broker-1:6650",
                },
                "state_dir": str(folder),
                "history": {"enabled": False},
                "api": {"enabled": False},
                "leader": {"enabled": True},
                "avg_shedder": {"hit_count_low": 2, "hit_count_high": 1},
                "guardrails": {
                    "max_unloads_per_hour": UNLOADS_PER_HOUR,
                    "cool_down_minutes": COOL_DOWN_MINUTES,
                    "max_traffic_per_hour": 1.0,
                },
            }
        )

    def _start(self, machine: str) -> None:
        self.tell(f"{machine} starts")
        self._running.spawn(partial(self._live, machine), "main", machine)

    def _live(self, machine: str) -> None:
        with engine(self._settings(machine)) as running:
            daemon = Service(running, None)
            daemon.on_move = partial(self.observer.ended, machine)
            daemon.on_turn = partial(self._turned, machine)
            self.observer.opens(machine, running)
            self._lbds[machine] = _Lbd(running, daemon, self._running.seconds)
            daemon.live()
        del self._lbds[machine]
        self._later(
            self._ending.pop(machine), partial(self._start, machine), f"{machine} has ended, and is started again"
        )

    def _turned(self, machine: str, record: TurnResult) -> None:
        self.turns += 1
        lbd = self._lbds[machine]
        lbd.ended_at, lbd.error = self._running.seconds, record.error
        words = _NUMBERS.sub("#", record.sentence)
        if self._last_words.get(machine) != words:  # what an lbd says again and again is no news
            self._last_words[machine] = words
            self.tell(f"{machine} turn {record.number}: {record.sentence}")
        self.observer.says(machine, record.sentence)

    def log(self, event: str, facts: MutableMapping[str, Any]) -> None:
        """A line of an lbd's log."""
        current = self._running.current
        if "turn" not in facts and current is not None:
            self.tell(f"{current.machine} log: {event} {facts.get('failure') or facts.get('why') or ''}".rstrip())
            self.observer.says(current.machine, event)

    def _request(self, machine: str, request: Request) -> None:
        lbd = self._lbds.get(machine)
        if lbd is None:
            return
        self.observer.leaves(machine, lbd.engine, request)
        if self._at_unload and request.path.endswith("/unload"):
            self._at_unload.pop(0)(machine)

    def _step(self) -> None:
        if self._at_step:
            due = [happen for step, happen in self._at_step if step <= self._running.steps]
            self._at_step = [planned for planned in self._at_step if planned[0] > self._running.steps]
            for happen in due:
                happen()
        self.observer.step()

    # -- faults

    def _plan(self) -> list[_Planned]:
        """What happens when. Each fault has a random stream of its own, so a night with fewer has the others alike."""
        kinds = (
            *[self._killed_soon] * 3,
            *[self._amid_a_move] * 6,
            self._ends,
            *[self._stands_still] * 3,
            *[self._cut_off] * 2,
            *[self._broker_dies] * 2,
            self._broker_leaves,
            *[self._broker_hangs] * 2,
            *[self._answers_wrongly] * 4,
            self._leader_changes,
            self._topic_gone,
            self._clock_is_set,
            *[self._person_pauses] * 2,
        )
        planned = [self._load_shifts(Random(f"shift {self.seed} {number}")) for number in range(SHIFTS)]
        planned += [self._unload_fails(Random(f"refusal {self.seed} {number}")) for number in range(REFUSALS)]
        for number in self._numbers:
            random = Random(f"fault {self.seed} {number}")
            seconds = random.uniform(FIRST_SECONDS, self._seconds)
            name, happen = random.choice(kinds)(random)
            planned.append(_Planned(seconds, happen, number, name))
        return sorted(planned, key=lambda fault: fault.seconds)

    def _later(self, seconds: float, then: Callable[[], object], what: str) -> None:
        def run() -> None:
            self._running.sleep(seconds)
            self.tell(what)
            then()

        self._running.spawn(run, what, "world")

    def _killed_soon(self, random: Random, machine: str = "") -> tuple[str, Callable[[], None]]:
        machine = machine or random.choice(MACHINES)
        return f"{machine} is killed", lambda: self._kill(machine, random)

    def _amid_a_move(self, random: Random) -> tuple[str, Callable[[], None]]:
        """What happens to the lbd that sends the next unload, a few steps later: before its answer, or just after."""
        kind = random.choice((self._killed_soon, self._stands_still, self._cut_off, self._person_pauses, self._ends))
        steps = random.randrange(80)

        def happen(machine: str) -> None:
            self._at_step.append((self._running.steps + steps, kind(random, machine)[1]))

        return f"{kind.__name__.strip('_')} at the next unload", lambda: self._at_unload.append(happen)

    def _kill(self, machine: str, random: Random) -> None:
        if machine not in self._lbds:
            return
        self.tell(f"{machine} is killed")
        del self._lbds[machine]
        self._running.kill(machine)
        self._topic.expel(machine)
        self._disk.release(machine)
        self._later(random.uniform(1.0, 120.0), partial(self._start, machine), f"{machine} is started again")

    def _ends(self, random: Random, machine: str = "") -> tuple[str, Callable[[], None]]:
        machine = machine or random.choice(MACHINES)
        seconds = random.uniform(1.0, 60.0)

        def happen() -> None:
            if machine in self._lbds:
                self.tell(f"{machine} is told to end")
                self._ending[machine] = seconds
                self._running.spawn(self._lbds[machine].service.end, "told to end", machine)

        return f"{machine} ends", happen

    def left(self) -> None:
        """An lbd that was told to end waits no longer: as a kill."""
        current = self._running.current
        assert current is not None
        self._kill(current.machine, Random(f"left {self.seed}"))

    def _stands_still(self, random: Random, machine: str = "") -> tuple[str, Callable[[], None]]:
        machine = machine or random.choice(MACHINES)
        seconds = random.choice((5.0, 20.0, 45.0, 90.0))

        def happen() -> None:
            self.tell(f"{machine} stands still for {seconds:.0f} s")
            self._running.stop(machine)
            self._later(seconds, partial(self._go_on, machine), f"{machine} goes on")

        return f"{machine} stands still", happen

    def _go_on(self, machine: str) -> None:
        self.observer.excused_until[machine] = self._running.seconds
        self._running.go_on(machine)

    def _cut_off(self, random: Random, machine: str = "") -> tuple[str, Callable[[], None]]:
        machine = machine or random.choice(MACHINES)
        seconds = random.uniform(3.0, 90.0)

        def happen() -> None:
            self.tell(f"{machine} reaches no broker for {seconds:.0f} s")
            self.network.cut.add(machine)
            self._later(seconds, lambda: self.network.cut.discard(machine), f"{machine} reaches brokers again")

        return f"{machine} is cut off", happen

    def _broker_dies(self, random: Random) -> tuple[str, Callable[[], None]]:
        broker = random.choice(self._cluster.brokers)

        def happen() -> None:
            self.tell(f"{broker} is killed")
            self._cluster.kill(broker)
            self._later(random.uniform(5.0, 300.0), lambda: self._cluster.start(broker), f"{broker} starts")

        return f"{broker} dies", happen

    def _broker_leaves(self, random: Random) -> tuple[str, Callable[[], None]]:
        broker = random.choice(self._cluster.brokers)

        def happen() -> None:
            self.tell(f"{broker} is stopped")
            self._cluster.leave(broker)
            self._later(random.uniform(5.0, 300.0), lambda: self._cluster.start(broker), f"{broker} starts")

        return f"{broker} leaves", happen

    def _broker_hangs(self, random: Random) -> tuple[str, Callable[[], None]]:
        broker, seconds = random.choice(self._cluster.brokers), random.uniform(5.0, 120.0)
        port = self.network.ports[broker]

        def happen() -> None:
            self.tell(f"{broker} hangs for {seconds:.0f} s")
            port.hung = True
            self._later(seconds, lambda: setattr(port, "hung", False), f"{broker} answers again")

        return f"{broker} hangs", happen

    def _answers_wrongly(self, random: Random) -> tuple[str, Callable[[], None]]:
        kinds = (
            *(Fault.NO_EFFECT, Fault.CONFLICT, Fault.CLOSES_LATE, Fault.NOT_ACTIVE, Fault.UNAVAILABLE, Fault.HTML),
            *(Fault.SLOW, Fault.SLOW, Fault.HALF_JSON, Fault.SILENT, Fault.NAN, Fault.LOST_TO_A_LOOKUP),
        )
        fault, acts = random.choice(kinds), random.random() < 0.5
        switch = Switch(fault, times=random.randint(1, 4), seconds=random.uniform(1.0, 40.0), acts=acts)

        def happen() -> None:
            self.tell(f"brokers: {fault.value} ({switch.times} times, {switch.seconds:.0f} s, acts: {acts})")
            self._cluster.faults.on(switch)

        return f"{fault.name}", happen

    def _leader_changes(self, random: Random) -> tuple[str, Callable[[], None]]:
        broker = random.choice(self._cluster.brokers)

        def happen() -> None:
            if broker in self._cluster.listed:
                self.tell(f"{broker} leads the brokers")
                self._cluster.lead(broker)

        return f"{broker} leads", happen

    def _topic_gone(self, random: Random) -> tuple[str, Callable[[], None]]:
        seconds = random.uniform(2.0, 60.0)

        def happen() -> None:
            self.tell(f"no broker has the leader topic for {seconds:.0f} s")
            self._topic.gone = True
            self._topic.writer = None
            self._later(seconds, lambda: setattr(self._topic, "gone", False), "the leader topic is there again")

        return "the leader topic is gone", happen

    def _load_shifts(self, random: Random) -> _Planned:
        broker, factor = random.choice(self._cluster.brokers), random.uniform(1.5, 3.0)

        def happen() -> None:
            owners = self._cluster.owners()
            self.tell(f"bundles of {broker} carry {factor:.1f} times as much")
            self._cluster.scale({bundle: factor if owner == broker else 0.7 for bundle, owner in owners.items()})

        return _Planned(random.uniform(0.0, self._seconds), happen)

    def _unload_fails(self, random: Random) -> _Planned:
        fault, times = random.choice((Fault.NO_EFFECT, Fault.NOT_ACTIVE, Fault.CONFLICT)), random.randint(1, 3)

        def happen() -> None:
            self.tell(f"brokers: {fault.value} ({times} times)")
            self._cluster.faults.on(Switch(fault, times=times))

        return _Planned(random.uniform(0.0, self._seconds), happen)

    def _clock_is_set(self, random: Random) -> tuple[str, Callable[[], None]]:
        machine, seconds = random.choice(MACHINES), random.choice((-3600.0, -60.0, 60.0, 3600.0))

        def happen() -> None:
            self.tell(f"the clock of {machine} is set by {seconds:+.0f} s")
            self._running.skew[machine] = self._running.skew.get(machine, 0.0) + seconds

        return f"the clock of {machine} is set", happen

    def _person_pauses(self, random: Random, machine: str = "") -> tuple[str, Callable[[], None]]:
        machine = machine or random.choice(MACHINES)
        seconds = random.uniform(60.0, 600.0)

        def happen() -> None:
            lbd = self._lbds.get(machine)
            if lbd is not None:
                self._running.spawn(lambda: self._pause(machine, lbd.engine, seconds), "person pauses", machine)

        return f"a person pauses {machine}", happen

    def _pause(self, machine: str, running: Engine, seconds: float) -> None:
        """Pause by one lbd, and resume by whichever leads then."""
        control = Control(running.settings.state_dir, running.orders)
        try:
            control.pause(Pause(running.timebase.now(), None, "night", "a person"))
        except LbdError as error:
            self.tell(f"{machine} refuses to pause: {error}")
            return
        self.observer.paused_since = self._running.seconds
        self.tell(f"{machine} has paused")
        self._later(seconds, self._resume, "a person resumes")

    def _resume(self) -> None:
        self.observer.paused_since = None
        for machine, lbd in list(self._lbds.items()):
            self._running.spawn(partial(self._resume_by, machine, lbd.engine), "person resumes", machine)

    def _resume_by(self, machine: str, running: Engine) -> None:
        with suppress(LbdError):
            Control(running.settings.state_dir, running.orders).resume()
            self.tell(f"{machine} has resumed")

    def _keep_alive(self) -> None:
        """The topic's broker hears nothing of a machine that stands still or is cut off."""
        silent = dict.fromkeys(MACHINES, 0.0)
        while True:
            self._running.sleep(1.0)
            for machine in MACHINES:
                away = machine in self.network.cut or self._running.is_stopped(machine)
                silent[machine] = silent[machine] + 1.0 if away else 0.0
                if silent[machine] > KEEP_ALIVE_SECONDS:
                    self._topic.expel(machine)

    # -- the end

    def _make_well(self) -> None:
        """Nothing fails any more."""
        self.tell("all is well from now on")
        self._at_unload.clear()
        self._cluster.faults.off()
        self._topic.gone = False
        self.network.cut.clear()
        for port in self.network.ports.values():
            port.hung = False
        for broker in self._cluster.brokers:
            self._cluster.start(broker)
        for machine in MACHINES:
            self._running.go_on(machine)
        self._resume()

    def _require_rest(self) -> None:
        """Raises :class:`ViolationError` where something still waits, or nobody leads."""
        leaders = [machine for machine, lbd in self._lbds.items() if lbd.engine.leading.leading]
        wrong = [] if len(leaders) == 1 else [f"{leaders} lead"]
        for machine, lbd in self._lbds.items():
            if self._running.seconds - lbd.ended_at > SILENT_SECONDS:
                wrong.append(f"{machine} has not turned since {lbd.ended_at:.0f}")
            if machine in leaders and lbd.engine.in_flight:
                wrong.append(f"{machine} has open moves: {lbd.engine.journal.open}")
            if lbd.engine.unfinished and lbd.engine.in_flight:
                wrong.append(f"{machine} does not end {lbd.engine.unfinished}")
            if machine in leaders and lbd.error is not None:
                wrong.append(f"{machine}: the last turn failed: {lbd.error}")
        if missing := set(MACHINES) - set(self._lbds):
            wrong.append(f"{sorted(missing)} do not run")
        if wrong:
            raise ViolationError(f"after {CALM_MINUTES:.0f} minutes in which nothing failed: {'; '.join(wrong)}")


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
def _replaced(night: Night) -> Iterator[None]:
    """What reaches out of the process, replaced until the end."""

    def log(_: object, __: str, facts: MutableMapping[str, Any]) -> None:
        night.log(facts.pop("event", ""), facts)
        raise structlog.DropEvent

    structlog.configure(processors=[log], wrapper_class=structlog.make_filtering_bound_logger(20))
    with ExitStack() as replaced:
        for target, name, value in (
            (http, "Sessions", sessions(night.network)),
            (election, "SharedLog", lambda *_: night._topic.connect()),
            (election, "LeaderTopic", _FakeLeaderTopic),
            (os, "_exit", lambda _: night.left()),
            (service, "Schedule", SimulatedSchedule),
            (api_backend, "Server", _NoServer),
            (api_backend, "listen_locally", lambda _: None),
        ):
            replaced.enter_context(mock.patch.object(target, name, value))
        replaced.enter_context(night._disk.watched())
        yield
    structlog.reset_defaults()


def live(seed: int, folder: Path, minutes: float = MINUTES, numbers: Collection[int] = range(FAULTS)) -> Result:
    """One night from its beginning to its end, or to what does not hold; of its faults those with these ``numbers``."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    failure = ""
    with simulated(seed) as running:
        night = Night(running, seed, folder, minutes, numbers)
        with _replaced(night):
            try:
                running.run(night.run)
            except Exception as error:  # noqa: BLE001 - whatever ends a night is its result
                failure = f"{type(error).__name__}: {error}"
        return Result(
            seed,
            failure,
            tuple(night.story),
            len(night.observer.sendings),
            night.turns,
            running.steps,
            night.network.requests,
            night.faults,
        )
