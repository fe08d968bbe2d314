"""A simulated cluster behind Pulsar's admin REST API on loopback, one port for each broker.

The model (``simulate/cluster.py``) says what brokers carry and report; who owns what, and who places it where, stands
in ``book.py``. Load, samples and sessions go by the cluster's clock, which may run faster than this machine's. What
takes milliseconds on real brokers, unloads, lookups and clients that come back, takes as long here at any speed.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from lbd.simulate.fake_pulsar.answers import Answers
from lbd.simulate.fake_pulsar.book import Book, Owned
from lbd.simulate.fake_pulsar.bundles import Closing
from lbd.simulate.fake_pulsar.clients import Clients
from lbd.simulate.fake_pulsar.clock import Clock
from lbd.simulate.fake_pulsar.configuration import Configuration
from lbd.simulate.fake_pulsar.faults import Fault, Faults, Switch
from lbd.simulate.fake_pulsar.faulty import spoilt
from lbd.simulate.fake_pulsar.http import Door, Doors, Reply, Request
from lbd.simulate.fake_pulsar.policies import Policies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lbd.simulate.cluster import State, World

__all__ = ["FakePulsar", "Fault", "Owned", "Request", "Switch"]

UNLOAD_SECONDS = 0.024
"""How long an owner closes a bundle with one topic before it answers 204 (4.0.8, p50)."""

REMEMBERED_REQUESTS = 10_000
CLOSED_WITHIN_SECONDS = 1.0


class FakePulsar:
    """A running cluster, from ``with`` to its end. Thread-safe.

    ``state`` is of ``world``, at its beginning. The brokers get addresses on loopback, ``names`` says which of
    ``world.brokers`` each one is. ``speed`` is how many seconds pass in one of this machine, ``begun_at`` the first of
    them (epoch seconds; None: now), ``clients`` how many each bundle has, ``runtime`` what broker.conf says otherwise
    than the default. Raises :class:`OSError` when no port is to be had.
    """

    def __init__(
        self,
        world: World,
        state: State,
        *,
        speed: float = 1.0,
        begun_at: float | None = None,
        clients: int = 1,
        cluster: str = "simulated",
        version: str = "4.0.8",
        runtime: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self.clock = Clock(speed, begun_at)
        self.faults, self.policies = Faults(), Policies()
        self.requests: deque[Request] = deque(maxlen=REMEMBERED_REQUESTS)
        self.begun_at = self.clock.now() - state.seconds
        self._lock, self._stopped = threading.RLock(), False
        self._doors = Doors()
        self._ports = _doors(len(world.brokers), port, self._answer)
        self.names = dict(zip((door.id for door in self._ports), world.brokers, strict=True))
        self._book = Book(world, state, tuple(self.names), version, self.faults, self.policies)
        Clients(self._book, clients, lambda: self.clock.speed)
        configuration = Configuration(cluster, version, runtime or {})
        self._answers = Answers(self._book, configuration, self.policies, self.begun_at)

    def __enter__(self) -> Self:
        self._doors.start()
        with self._lock:
            self._open_and_shut()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close every port and connection: neither an answer under way nor who looks at it later opens one again."""
        with self._lock:
            self._stopped = True
        self._doors.stop()
        for door in self._ports:
            door.shut()
        for door in self._ports:
            door.empty(CLOSED_WITHIN_SECONDS)

    # -- what it is

    @property
    def brokers(self) -> tuple[str, ...]:
        """Ids of all brokers, also of those that are not there (yet): ``host:port``."""
        return tuple(self.names)

    @property
    def admin_urls(self) -> tuple[str, ...]:
        """Web addresses of the brokers that answer."""
        with self._lived():
            return tuple(f"http://{broker.id}" for broker in self._book.brokers.values() if broker.up)

    @property
    def speed(self) -> float:
        """Seconds of the cluster in one of this machine."""
        return self.clock.speed

    def now(self) -> float:
        """The time of the cluster, epoch seconds."""
        return self.clock.now()

    def model(self) -> tuple[World, State]:
        """The cluster as it is now; the last of its brokers stands for nobody."""
        with self._lived():
            return self._book.world, self._book.state

    def owners(self) -> dict[str, str | None]:
        """Who owns each bundle, None: nobody."""
        with self._lived():
            return {bundle: self._book.owner(bundle) for bundle in self._book.bundles}

    def history(self) -> tuple[Owned, ...]:
        """Each change of an owner, in order; seconds are those of the run, which began at ``begun_at``."""
        with self._lived():
            return tuple(self._book.history)

    @property
    def leader(self) -> str | None:
        """Who leads, or is believed to."""
        with self._lived():
            return self._book.leader

    @property
    def affinity(self) -> dict[str, str]:
        """What the leader has noted, by bundle or by range."""
        with self._lived():
            return dict(self._book.affinity)

    # -- what is done to it

    def forward(self, seconds: float) -> None:
        """Let so many seconds pass at once."""
        self.clock.forward(seconds)
        with self._lived():
            pass

    def kill(self, broker: str) -> None:
        """Kill -9: it does not answer, and is listed, and leads if it led, until its session ends."""
        with self._lived():
            self._book.die(broker)

    def leave(self, broker: str) -> None:
        """An orderly stop."""
        with self._lived():
            self._book.leave(broker)

    def start(self, broker: str) -> None:
        """Start one that is not there."""
        with self._lived():
            self._book.start(broker)

    def lead(self, broker: str | None) -> None:
        """Another leader, or none."""
        with self._lived():
            self._book.lead(broker)

    # -- how it answers

    @contextmanager
    def _lived(self) -> Iterator[None]:
        """Hold the lock over a cluster that has caught up with its clock; what starts or ends in it is seen at once."""
        with self._lock:
            self._book.advance(self.clock.now() - self.begun_at)
            self._open_and_shut()
            try:
                yield
            finally:
                self._open_and_shut()

    def _open_and_shut(self) -> None:
        for door in () if self._stopped else self._ports:
            up = self._book.brokers[door.id].up
            if up and not door.open:
                self._doors.open(door)
            elif door.open and not up:
                self._doors.shut(door)

    def _answer(self, asked: Request) -> Reply:
        """The broker's answer, faults included, with its own idea of the time."""
        if self.faults.take(Fault.LEADER_CHANGES, asked.broker, asked.path) is not None:
            with self._lived():
                self._book.lead_another()
        death = self.faults.take(Fault.BROKER_DIES, asked.broker, asked.path)
        if death is None:
            return spoilt(self.faults, asked, self._usual, self.clock.now)
        if death.acts:
            self._usual(asked)
        self.kill(asked.broker)
        return Reply(silent=True)

    def _usual(self, asked: Request) -> Reply:
        try:
            with self._lived():
                self.requests.append(asked)
                return self._answers(asked)
        except Closing as unload:
            time.sleep(UNLOAD_SECONDS)
            with self._lived():
                return Reply(204) if self._book.closed(unload.bundle) else Reply(silent=True)


def _doors(number: int, port: int, answers: Callable[[Request], Reply]) -> list[Door]:
    """A port for each broker, at an address of its own where the system has them: isolation policies go by hosts."""
    with ExitStack() as undone:
        found = []
        for at in range(number):
            found.append(_door(f"127.0.{at // 250}.{at % 250 + 1}", port, answers))
            undone.callback(found[-1].server_close)
        undone.pop_all()
    return found


def _door(host: str, port: int, answers: Callable[[Request], Reply]) -> Door:
    try:
        return Door(host, port, answers)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        return Door("127.0.0.1", 0, answers)
