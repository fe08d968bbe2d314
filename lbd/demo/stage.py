"""A simulated cluster and the daemon on it, put together as ``lbd run`` does it, but for a faster clock."""

from __future__ import annotations

import errno
import secrets
import socket
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lbd import log
from lbd.cycle.keeping import kept
from lbd.daemon.engine import engine
from lbd.daemon.service import Service
from lbd.daemon.timebase import Timebase
from lbd.demo.seen import Seen, gap
from lbd.demo.truth import Truth
from lbd.errors import UsageError
from lbd.model import Outcome
from lbd.simulate.build import cluster as built
from lbd.simulate.fake_pulsar import FakePulsar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.api.settings import ApiSettings
    from lbd.config import Settings
    from lbd.cycle import CycleRecord
    from lbd.daemon.engine import Engine
    from lbd.model import Skip
    from lbd.record.turns.lines import Turn
    from lbd.simulate.scenario import Scenario

SPEED = 12.0
"""A turn takes a second or so then, and a CPU sample, which brokers take once a minute, five."""

PORTS = range(28080, 28090)
"""The first that is free is every broker's, each on an address of its own; where none is the system chooses."""

RUNTIME = {"loadBalancerSheddingEnabled": "false"}
"""Two balancers would undo each other's moves; lbd would refuse to move anything."""

LOG = "lbd.log"


class Stage:
    """A cluster, a daemon, and what is seen of both. ``on_turn`` and ``on_move`` hear from the daemon's threads."""

    def __init__(self, cluster: FakePulsar, balancer: Engine) -> None:
        self.cluster, self.settings = cluster, balancer.settings
        self.seen = Seen()
        self.on_turn: Callable[[Turn], None] = lambda _: None
        self.on_move: Callable[[Seen], None] = lambda _: None
        self._balancer = balancer
        self._lock = threading.Lock()
        self.truth = Truth(cluster)
        self._service = Service(balancer, None)
        self._service.on_turn, self._service.on_move = self._turned, self._moved

    def run(self) -> None:
        """Turn after turn until :meth:`end`, SIGTERM or SIGINT. Only from the main thread."""
        self._service.run()

    def end(self) -> None:
        """Begin no further turn; :meth:`run` returns when what is under way has ended."""
        self._service.end()

    @property
    def api(self) -> str | None:
        """Where the daemon's API listens, None where it does not."""
        return self._service.api

    def slow_down(self) -> None:
        """Go on at the pace of this machine's clock."""
        self.cluster.clock.speed = 1.0
        self._service.plan_again()

    @property
    def flying(self) -> frozenset[str]:
        """Bundles whose unload was sent and has no outcome yet."""
        return frozenset(one.bundle for one in self._balancer.unfinished if self._balancer.since(one))

    def _turned(self, record: CycleRecord) -> None:
        turn = kept(record, self.cluster.now())
        apart = gap(turn)
        with self._lock:
            self.seen = self.seen.turned(turn)
            self.truth.look(shown=apart is not None and apart >= self.settings.avg_shedder.high_threshold)
        self.on_turn(turn)

    def _moved(self, ended: Outcome | Skip) -> None:
        with self._lock:
            self.seen = seen = self.seen.ended(ended, self.cluster.now())
            if isinstance(ended, Outcome):
                self.truth.ended(ended)
        self.on_move(seen)


@contextmanager
def stage(scenario: Scenario, settings: Settings, seed: int, seconds: float) -> Iterator[Stage]:
    """All of it, from beginning to end; nothing of it is left behind. Its log is a file beside what the daemon keeps.

    The cluster's time begins in the past, so that after so many ``seconds`` of this machine both clocks are equal.
    Raises :class:`UsageError` where no temporary folder, or no port, is to be had.
    """
    with _folder() as folder, _cluster(scenario, seed, time.time() - seconds * (SPEED - 1)) as cluster:
        pulsar = settings.pulsar.model_copy(update={"admin_urls": cluster.admin_urls})
        api = settings.api.model_copy(update={"token_file": _token(folder), "listen": free(settings.api)})
        own = settings.model_copy(update={"pulsar": pulsar, "state_dir": folder, "api": api})
        timebase = Timebase(cluster.now, lambda: cluster.speed)
        with (
            (folder / LOG).open("w", encoding="utf-8") as file,
            log.written_to(file, own.log.level),
            engine(own, timebase=timebase) as balancer,
        ):
            yield Stage(cluster, balancer)


def free(api: ApiSettings) -> str:
    """Where the API can listen: where it is wanted, and where that is taken, on a port that the system chooses."""
    if not api.enabled:
        return api.listen
    family = socket.AF_INET6 if ":" in api.host else socket.AF_INET
    try:
        with socket.create_server((api.host, api.port), family=family):
            return api.listen
    except OSError:
        return api.listen.rpartition(":")[0] + ":0"


def _token(folder: Path) -> Path:
    """A token of its own, so that a pause can be tried over the API too."""
    path = folder / "token"
    path.touch(0o600)
    path.write_text(f"{secrets.token_urlsafe()}\n")
    return path


@contextmanager
def _folder() -> Iterator[Path]:
    try:
        found = tempfile.TemporaryDirectory(prefix="lbd-demo-")
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"no temporary folder for lbd's state: {why}; wanted one in TMPDIR") from error
    with found as name:
        yield Path(name)


def _cluster(scenario: Scenario, seed: int, begun_at: float) -> FakePulsar:
    world, state = built(scenario, seed)
    for port in (*PORTS, 0):
        try:
            return FakePulsar(world, state, speed=SPEED, begun_at=begun_at, runtime=RUNTIME, port=port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"no port on loopback for a simulated broker: {error.strerror or error}") from error
    raise UsageError("no port on loopback for a simulated broker: all are taken")
