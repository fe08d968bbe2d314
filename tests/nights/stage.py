"""The stage of a night: simulated brokers, the lbds on them, and what all who act there do with these.

Each lbd is the daemon as it is: service, turns, executor, journal, orders and election. Replaced are threads and clocks
(``scheduler.py``), planned times (``schedule.py``), connections to brokers (``network.py``), the client of the leader
topic (``topic.py``), disks (``disk.py``) and the API.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from lbd.config import Settings
from lbd.daemon.engine import engine
from lbd.daemon.service import Service
from lbd.errors import LbdError
from lbd.pulsar.broker_configuration import SHEDDING_ENABLED
from lbd.simulate.cluster import cluster as built
from lbd.simulate.scenario import Scenario
from tests.nights.disk import Disk
from tests.nights.network import Network
from tests.nights.observer import LOOK_SECONDS, Observer
from tests.nights.scheduler import BEGINS_AT
from tests.nights.topic import KEEP_ALIVE_SECONDS, Topic
from tests.simulate.faulty import FaultyPulsar

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from pathlib import Path

    from lbd.daemon.engine import Engine
    from lbd.model import Unload
    from lbd.simulate.answers import Request
    from lbd.turn.parts import TurnResult
    from tests.nights.scheduler import Scheduler

UNLOADS_PER_HOUR, OF_BROKER_PER_HOUR, COOL_DOWN_MINUTES = 10, 8, 10.0
STANDS_STILL_MINUTES = 3.0
"""Instead of an hour, so that a night shows what comes after it."""

NAMESPACES = ("orders", "mail", "search")
MODES = ("auto", "auto", "auto", "approve")
NUMBERS_OF_LBDS, NUMBERS_OF_BROKERS = (2, 2, 2, 3), (3, 3, 4)
UNLOAD_SECONDS = (0.05, 0.05, 1.0, 8.0)
"""How long a broker takes to close a bundle's topics."""

TRAFFIC_PER_TURN = (0.1, 1.0, 1.0)
"""The shares of all traffic that a turn may move. All of it lets a plan have several bundles, and a miss come again."""

SHEDDING = ("refuse", "refuse", "take-over")
QUIET = (False, True)
"""Whether there are quiet hours: some minutes of the night, by each machine's own clock."""

STANDBYS_EVERY_SECONDS = 10
"""Of lbds that stand by the orders are looked at so often."""

CLIENTS = (1, 1, 1, 0)
"""How many clients each bundle has; without any, nobody but lbd has it placed again."""

_NUMBERS = re.compile(r"[0-9][0-9.:TZ-]*")


def _scenario(brokers: int) -> dict[str, Any]:
    load = zip(NAMESPACES, (1, 2, 3), (150, 60, 30), strict=True)
    return {
        "about": "A few brokers, one of them hot.",
        "source": "tests/nights",
        "stock": "not measured",
        "hours": 4,
        "brokers": [{"id": f"b{number}", "background": 20} for number in range(1, brokers + 1)],
        "load": [
            {
                "name": name,
                "brokers": [f"b{number}"],
                "mib_per_second": rate,
                "bundles": 8,
                "topics": 16,
                "spread": 0.3,
            }
            for name, number, rate in load
        ],
    }


@dataclass
class Lbd:
    """A running lbd. ``ended_at`` is when its last turn ended, ``sentence`` what that came to."""

    engine: Engine
    service: Service
    ended_at: float
    error: LbdError | None = None
    sentence: str = ""


class Stage:
    """A cluster, its lbds, and the observer; all by ``seed``."""

    def __init__(self, running: Scheduler, seed: int, folder: Path) -> None:
        self.running, self.seed, self._folder, self._prefix = running, seed, folder, f"{folder}/"
        random = Random(f"stage {seed}")
        self.machines = tuple(f"lbd-{number}" for number in range(1, 1 + random.choice(NUMBERS_OF_LBDS)))
        self._mode = random.choice(MODES)
        more = Random(f"settings {seed}")
        begin = 60.0 * more.randint(3, 10) - BEGINS_AT % 60.0
        self.quiet = (begin, begin + 60.0 * more.randint(2, 6)) if more.choice(QUIET) else None
        """The first and the last second of quiet hours, by clocks that nobody has set."""
        self._shedding, self._traffic = more.choice(SHEDDING), more.choice(TRAFFIC_PER_TURN)
        self.network, self.disk = Network(seed), Disk()
        self.topic = Topic(seed, lambda machine: machine not in self.network.cut)
        self.lbds: dict[str, Lbd] = {}
        self._restarts: dict[str, float] = {}
        self.at_unload: list[tuple[Callable[[str, Unload, str], bool], Callable[[str, Unload], None]]] = []
        """Whether a machine's unload at a broker is the one that is meant, and what gets both, each for one."""
        self._last = threading.local()
        self.at_step: list[tuple[int, Callable[[], None]]] = []
        self.story: list[str] = []
        self.turns, self._last_words = 0, dict[str, str]()
        world, state = built(Scenario.model_validate(_scenario(random.choice(NUMBERS_OF_BROKERS))), seed)
        off = {SHEDDING_ENABLED: "false"}
        self.cluster = FaultyPulsar(world, state, ports=self.network, runtime=off, clients=random.choice(CLIENTS))
        self.cluster.unload_seconds = random.choice(UNLOAD_SECONDS)
        self.observer = Observer(
            lambda: running.seconds,
            lambda: self.cluster._book.history,
            self.tell,
            per_hour=UNLOADS_PER_HOUR,
            of_broker_per_hour=OF_BROKER_PER_HOUR,
            cool_down_seconds=60 * COOL_DOWN_MINUTES,
        )
        self._isolated: dict[str, tuple[float, frozenset[str]]] = {}
        self.observer.forbidden = self._forbidden
        self.observer.is_bundle = lambda bundle: bundle in self.cluster._book.bundles
        self.observer.quiet_since = self._quiet_since
        self.observer.checked_at = lambda: self._last.checked_at
        running.on_step = self._step
        self.network.on_request = self._request
        self.network.on_redirect = self.observer.redirected

    def tell(self, line: str) -> None:
        """Add to the story."""
        self.story.append(f"{self.running.seconds:10.3f} {line.replace(self._prefix, '')}")

    def later(self, seconds: float, then: Callable[[], object], what: str) -> None:
        """Do something then, and tell it as ``what``."""

        def run() -> None:
            self.running.sleep(seconds)
            self.tell(what)
            then()

        self.running.spawn(run, what, "world")

    def heat(self, broker: str, factor: float) -> None:
        """Have the bundles of a broker carry so many times as much."""
        owners = self.cluster.owners()
        self.tell(f"bundles of {broker} carry {factor:.1f} times as much")
        self.cluster.scale({bundle: factor if owner == broker else 0.7 for bundle, owner in owners.items()})

    def give(self, bundle: str, broker: str) -> None:
        """An administrator has a broker take a bundle, beside all lbds."""
        self.tell(f"somebody gives {bundle} to {broker}")
        with self.cluster._lived():
            self.cluster._book.transfer(bundle, broker)

    # -- policies

    def isolate(self, namespace: str, hosts: frozenset[str] | None) -> None:
        """Give a namespace brokers of its own; None: it may be wherever others may."""
        policies = self.cluster.policies.isolation
        if hosts is None:
            policies.pop(namespace, None)
            self._isolated.pop(namespace, None)
            return
        policies[namespace] = {"namespaces": [namespace], "primary": sorted(hosts), "secondary": []}
        self._isolated[namespace] = self.running.seconds, hosts

    def let_all_roam(self) -> None:
        """No policy is left."""
        for namespace in tuple(self._isolated):
            self.isolate(namespace, None)

    def _forbidden(self, bundle: str, broker: str) -> float | None:
        namespace, host = bundle.rpartition("/")[0], broker.partition(":")[0]
        if namespace in self._isolated:
            since, hosts = self._isolated[namespace]
            return None if host in hosts else since
        return next((since for since, hosts in self._isolated.values() if host in hosts), None)

    # -- clocks

    def set_clock(self, machine: str, seconds: float) -> None:
        """Set it ahead, or back, by so much."""
        self.running.skew[machine] = self.running.skew.get(machine, 0.0) + seconds
        self.observer.clock_set_at[machine] = self.running.seconds

    def make_quiet(self, machine: str) -> None:
        """Set it to the first second of quiet hours, which there are."""
        assert self.quiet is not None
        self.set_clock(machine, self.quiet[0] - self.running.seconds - self.running.skew.get(machine, 0.0))

    def _quiet_since(self, machine: str) -> float | None:
        if self.quiet is None:
            return None
        begin, end = self.quiet
        skew = self.running.skew.get(machine, 0.0)
        if not begin <= self.running.seconds + skew < end:
            return None
        return max(begin - skew, self.observer.clock_set_at.get(machine, 0.0))

    def _quiet_hours(self) -> list[dict[str, str]]:
        times = self.quiet or ()
        shown = [datetime.fromtimestamp(BEGINS_AT + seconds, UTC).strftime("%H:%M") for seconds in times]
        return [dict(zip(("from", "to"), shown, strict=True))] if shown else []

    # -- lbds

    def start(self, machine: str) -> None:
        """Start an lbd, for the first time or anew."""
        self.tell(f"{machine} starts")
        self.running.spawn(partial(self._live, machine), "main", machine)

    def end(self, machine: str, seconds: float) -> None:
        """As by SIGTERM; it is started again so many ``seconds`` after its end."""
        self.tell(f"{machine} is told to end")
        self._restarts[machine] = seconds
        self.running.spawn(self.lbds[machine].service.end, "told to end", machine)

    def kill(self, machine: str, seconds: float) -> None:
        """Kill -9; it is started again after so many ``seconds``."""
        if machine not in self.lbds:
            return
        self.tell(f"{machine} is killed")
        del self.lbds[machine]
        self.topic.expel(machine)
        self.disk.release(machine)
        self.observer.gone(machine)
        self.later(seconds, partial(self.start, machine), f"{machine} is started again")
        self.running.kill(machine)  # last: a task that ends its own machine does not come back from here

    def leave(self) -> None:
        """An lbd that was told to end waits no longer: as a kill."""
        current = self.running.current
        assert current is not None
        self.kill(current.machine, self._restarts.pop(current.machine, 10.0))

    def go_on(self, machine: str) -> None:
        """As by SIGCONT: what it was about to do when it was stopped, it does now."""
        if self.running.is_stopped(machine):
            self.observer.excused_until[machine] = self.running.seconds
            self.running.go_on(machine)

    def checks(self) -> None:
        """The running task has made the last check before a request: if it stands still now, it cannot know."""
        self._last.checked_at = self.running.seconds

    @property
    def follower(self) -> str:
        """The broker that owns most of those that do not lead: an unload of its bundles is redirected."""
        book = self.cluster._book
        return max(self.cluster.brokers, key=lambda broker: (broker != book.leader, len(book.owned(broker)), broker))

    @property
    def leader(self) -> str | None:
        """The machine whose lbd believes that it leads."""
        return next((machine for machine, lbd in self.lbds.items() if lbd.engine.leading.leading), None)

    def _live(self, machine: str) -> None:
        try:
            with engine(self._settings(machine)) as running:
                daemon = Service(running, None)
                daemon.on_move = partial(self.observer.ended, machine)
                daemon.on_turn = partial(self._turned, machine)
                self.observer.opens(machine, running)
                self.lbds[machine] = Lbd(running, daemon, self.running.seconds)
                daemon.live()
        except LbdError as error:
            self.tell(f"{machine} ends: {error}")
            self._restarts.setdefault(machine, 10.0)
        self.lbds.pop(machine, None)
        self.observer.gone(machine)
        self.later(self._restarts.pop(machine), partial(self.start, machine), f"{machine} is started again")

    def _settings(self, machine: str) -> Settings:
        folder = self._folder / machine
        folder.mkdir(exist_ok=True)
        return Settings.model_validate(
            {
                "pulsar": {
                    "admin_urls": [f"http://{broker}" for broker in self.cluster.brokers],
                    "service_url": "pulsar://broker-1:6650",
                },
                "state_dir": str(folder),
                "mode": self._mode,
                "history": {"enabled": False},
                "api": {"enabled": False},
                "leader": {"enabled": True},
                "in_broker_shedding": self._shedding,
                "avg_shedder": {"hit_count_low": 2, "hit_count_high": 1},
                "guardrails": {
                    "max_unloads_per_hour": UNLOADS_PER_HOUR,
                    "max_unloads_per_broker_per_hour": OF_BROKER_PER_HOUR,
                    "quiet_hours": self._quiet_hours(),
                    "cool_down_minutes": COOL_DOWN_MINUTES,
                    "max_traffic_per_hour": 1000.0,
                    "max_traffic_per_turn": self._traffic,
                    "stand_still_minutes": STANDS_STILL_MINUTES,
                },
            }
        )

    def _turned(self, machine: str, record: TurnResult) -> None:
        self.turns += 1
        lbd = self.lbds[machine]
        lbd.ended_at, lbd.error, lbd.sentence = self.running.seconds, record.error, record.sentence
        if record.error is None:
            self.observer.turned(machine)
        words = _NUMBERS.sub("#", record.sentence)
        if self._last_words.get(machine) != words:  # what an lbd says again and again is no news
            self._last_words[machine] = words
            self.tell(f"{machine} turn {record.number}: {record.sentence}")
        self.observer.says(machine, record.sentence)

    def log(self, event: str, facts: MutableMapping[str, Any]) -> None:
        """A line of an lbd's log."""
        current = self.running.current
        if "turn" not in facts and current is not None:
            self.tell(f"{current.machine} log: {event} {facts.get('failure') or facts.get('why') or ''}".rstrip())
            self.observer.says(current.machine, event)

    def _request(self, machine: str, request: Request) -> None:
        lbd = self.lbds.get(machine)
        if lbd is None:
            return
        unload = self.observer.leaves(machine, lbd.engine, request)
        for planned in self.at_unload if unload is not None else ():
            wants, happen = planned
            if wants(machine, unload, request.broker):
                self.at_unload.remove(planned)
                happen(machine, unload)
                return

    def _step(self) -> None:
        if self.at_step:
            due = [happen for step, happen in self.at_step if step <= self.running.steps]
            self.at_step = [planned for planned in self.at_step if planned[0] > self.running.steps]
            for happen in due:
                happen()
        self.observer.step()

    def watch(self) -> None:
        """Each second, for ever: the topic's broker hears nothing of a machine that stands still or is cut off."""
        silent = dict.fromkeys(self.machines, 0.0)
        while True:
            self.running.sleep(LOOK_SECONDS)
            unheard = {machine for machine in self.machines if not self.topic.reaches(machine)}
            stopped = {machine for machine in self.machines if self.running.is_stopped(machine)}
            for machine in self.machines:
                silent[machine] = silent[machine] + LOOK_SECONDS if machine in unheard | stopped else 0.0
                if silent[machine] > KEEP_ALIVE_SECONDS:
                    self.topic.expel(machine)
            leaders = [machine for machine, lbd in self.lbds.items() if lbd.engine.leading.leading]
            writer = self.topic.writer
            self.observer.look(leaders, writer.machine if writer else None, stopped, unheard, self.disk.full)
            self.observer.look_at_brokers(self.cluster.listed, leads=self._leads(), sheds=self._sheds())
            self.observer.look_at_doubts(self._able())
            stand_by = self.lbds.keys() if round(self.running.seconds) % STANDBYS_EVERY_SECONDS == 0 else ()
            for machine in {*leaders, *stand_by}:
                self.running.spawn(partial(self._checks_orders, machine), "a look at the orders", machine)

    def _leads(self) -> bool:
        """Whether a broker leads that answers."""
        port = self.network.ports.get(self.cluster._book.leader or "")
        return port is not None and port.open and not port.hung

    def _sheds(self) -> bool:
        return any(
            self.cluster.configuration.running(broker)[SHEDDING_ENABLED] == "true" for broker in self.cluster.listed
        )

    def _able(self) -> set[str]:
        """The machines that could ask every broker now, and write down what it says."""
        ports, disk = self.network.ports.values(), self.disk
        fails = (switch.fits(switch.fault, switch.broker or "", "", "GET") for switch in self.cluster.faults._switches)
        if any(fails) or any(not port.open or port.hung for port in ports):
            return set()
        failing = {machine for machine, number in disk.failing.items() if number}
        unable = {*self.network.cut, *disk.full, *failing, *disk.flaky, *disk.slow}
        return {machine for machine in self.lbds if machine not in unable and not self.running.is_stopped(machine)}

    def _checks_orders(self, machine: str) -> None:
        """In a task of its own machine.

        One that leads no more and has not heard of it knows no order that was given since: it can write no intent.
        """
        lbd, writer = self.lbds.get(machine), self.topic.writer
        if lbd is None or (lbd.engine.leading.leading and (writer is None or writer.machine != machine)):
            return
        with suppress(LbdError):  # orders that cannot be read are a pause
            look = self.observer.leads if lbd.engine.leading.leading else self.observer.stands_by
            look(machine, lbd.engine)
