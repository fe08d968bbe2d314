"""The demo: a simulated cluster and the daemon on it, put together as ``lbd run`` does it, but on a faster clock."""

from __future__ import annotations

import errno
import secrets
import socket
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lbd import log
from lbd.clock import Timebase
from lbd.daemon.engine import engine
from lbd.daemon.service import Service
from lbd.errors import UsageError
from lbd.model import Outcome, Result
from lbd.score.scorecard import ClusterTruth, Moved, Scorecard, Trace, scorecard
from lbd.simulate.cluster import cluster as built
from lbd.simulate.cluster import rates_at
from lbd.simulate.fake_pulsar import FakePulsar
from lbd.simulate.run import cluster_truth, placement_between
from lbd.turn.record import gap_points, turn_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.config import ApiSettings, Settings
    from lbd.daemon.engine import Engine
    from lbd.model import BoolArray, Skip
    from lbd.score.bounds import BundleHistory
    from lbd.simulate.scenario import Scenario
    from lbd.store.turn_record import Planned, TurnRecord
    from lbd.turn.parts import TurnResult


WAITS, SENT, NOT_SENT = "waits", "sent", "not sent"
"""States of a move that has not ended, and of one that never began; else the state is the outcome's word."""


@dataclass(frozen=True)
class DemoMove:
    """One move: its ``state``, when it was reached (epoch seconds), and details of it."""

    bundle: str
    source: str
    destination: str
    state: str
    at: float
    detail: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state not in {WAITS, SENT}


@dataclass(frozen=True)
class Sentence:
    """A sentence, when it was first said, and in how many turns running; its numbers are the last ones."""

    at: float
    sentence: str
    turns: int = 1


@dataclass(frozen=True)
class DemoProgress:
    """Progress of the daemon; ``first`` is the first turn that had brokers, ``last`` the last turn."""

    first: TurnRecord | None = None
    last: TurnRecord | None = None
    sentences: tuple[Sentence, ...] = ()
    moves: tuple[DemoMove, ...] = ()

    def turned(self, turn: TurnRecord) -> DemoProgress:
        """The same after one more turn; some of its moves may have ended before its record came."""
        first = self.first or (turn if turn.brokers else None)
        over = {move.bundle for move in self.moves if move.ended and move.at >= turn.at}
        planned = tuple(_planned(unload, turn.at) for unload in turn.unloads if unload.bundle not in over)
        sentences = _merge_sentences(self.sentences, turn)
        return replace(self, first=first, last=turn, sentences=sentences, moves=(*self.moves, *planned))

    def ended(self, outcome: Outcome | Skip, at: float) -> DemoProgress:
        """The same after a move has ended, or was not sent."""
        if isinstance(outcome, Outcome):
            unload = outcome.unload
            words = "; ".join(filter(None, (f"in {outcome.seconds:.2f} s", outcome.detail)))
            end = DemoMove(unload.bundle, unload.source, unload.destination or "", outcome.result.value, at, words)
        else:
            planned = next((move for move in reversed(self.moves) if move.bundle == outcome.what), None)
            brokers = (planned.source, planned.destination) if planned is not None else ("", "")
            end = DemoMove(outcome.what, *brokers, NOT_SENT, at, outcome.reason.message(outcome.detail))
        return replace(self, moves=(*(move for move in self.moves if not _same(move, end)), end))

    @property
    def gaps(self) -> tuple[float, float] | None:
        """Points between the highest and the lowest score at first and now; None before two brokers report."""
        if self.first is None or self.last is None:
            return None
        first, last = gap_points(self.first.brokers), gap_points(self.last.brokers)
        return (first, last) if first is not None and last is not None else None


def _merge_sentences(sentences: tuple[Sentence, ...], turn: TurnRecord) -> tuple[Sentence, ...]:
    if sentences and _gist(sentences[-1].sentence) == _gist(turn.sentence):
        return (*sentences[:-1], replace(sentences[-1], sentence=turn.sentence, turns=sentences[-1].turns + 1))
    return (*sentences, Sentence(turn.at, turn.sentence))


def _gist(sentence: str) -> str:
    """The sentence up to its numbers in brackets."""
    return sentence.partition(" (")[0]


def _planned(unload: Planned, at: float) -> DemoMove:
    return DemoMove(unload.bundle, unload.source, unload.destination or "", WAITS, at)


def _same(move: DemoMove, end: DemoMove) -> bool:
    return move.bundle == end.bundle and not move.ended


# --- the true state of the simulated cluster, for the scorecard: no noise, no delay of reports


class Truth:
    """Observes a cluster from its beginning on; its last broker stands for nobody."""

    def __init__(self, cluster: FakePulsar) -> None:
        self._cluster = cluster
        self._first_owner, self._first_present = cluster.model()[1].owner, self._present()
        self._truths = [self._look()]
        self._moves: list[Moved] = []
        self._shown_at: float | None = None

    def look(self, *, shown: bool) -> None:
        """Keep how it is now; ``shown``: reports show two brokers as far apart as the high threshold."""
        self._truths.append(self._look())
        if shown and self._shown_at is None:
            self._shown_at = self._truths[-1].seconds

    def ended(self, outcome: Outcome) -> None:
        """A move has ended; only those that landed count."""
        if outcome.result is Result.LANDED and outcome.owner is not None:
            unload, seconds = outcome.unload, self._cluster.now() - self._cluster.begun_at
            self._moves.append(Moved(seconds, unload.bundle, unload.source, outcome.owner, unload.throughput))

    def scorecard(self, settings: Settings) -> Scorecard:
        """Scorecard of the run up to now."""
        self._truths.append(self._look())
        trace = Trace(
            truths=tuple(self._truths),
            moves=tuple(self._moves),
            brokers=self._cluster.brokers,
            shown_at_seconds=self._shown_at,
            placement=self._placement(),
            unserved_bundle_seconds=self._unserved(),
        )
        return scorecard(trace, settings.avg_shedder.low_threshold, settings.avg_shedder.high_threshold)

    def _present(self) -> BoolArray:
        """The brokers that answer, bool (B,)."""
        up = set(self._cluster.admin_urls)
        return np.array([f"http://{broker}" in up for broker in self._cluster.brokers], dtype=np.bool_)

    def _look(self) -> ClusterTruth:
        world, state = self._cluster.model()
        rates, seconds = rates_at(world, state.seconds), float(state.seconds)
        return cluster_truth(world, state, self._first_owner, rates, self._present(), seconds)

    def _placement(self) -> BundleHistory | None:
        """Placement, judged by the load of now; None once a broker has left: lbd did not place its bundles."""
        present = self._present()
        if (self._first_present & ~present).any():
            return None
        world, state = self._cluster.model()
        owners = (self._first_owner, state.owner)
        return placement_between(world, owners, state.seconds, np.append(present, False))  # False: nobody

    def _unserved(self) -> float:
        """For how long nobody owned a bundle, in bundle-seconds, by the cluster's own book."""
        lost, total = dict[str, float](), 0.0
        for change in self._cluster.history():
            if change.owner is None:
                lost[change.bundle] = change.seconds
            else:
                total += change.seconds - lost.pop(change.bundle, change.seconds)
        now = self._cluster.now() - self._cluster.begun_at
        return total + sum(now - since for since in lost.values())


# --- stage

SPEED = 12.0
"""A turn then takes about a second, and brokers sample their CPU every five seconds instead of each minute."""

PORTS = range(28080, 28090)
"""The first that is free is every broker's, each on an address of its own; where none is the system chooses."""

DAY_SECONDS, BUSY_PEAK = 24 * 60.0, 2.0
"""Length of a served demo's simulated day, and the factor on the traffic of one broker's bundles at its middle.
For half of the day the brokers are further apart than the low threshold. A day takes four to six moves, half of what
``guardrails.max_unloads_per_hour`` allows."""

RUNTIME = {"loadBalancerSheddingEnabled": "false"}
"""Two balancers would undo each other's moves; lbd would refuse to move anything."""

LOG = "lbd.log"


class Stage:
    """A cluster, a daemon, and the progress of both. The daemon's threads call ``on_turn`` and ``on_move``."""

    def __init__(self, cluster: FakePulsar, balancer: Engine) -> None:
        self.cluster, self.settings = cluster, balancer.settings
        self.progress = DemoProgress()
        self.on_turn: Callable[[TurnRecord], None] = lambda _: None
        self.on_move: Callable[[DemoProgress], None] = lambda _: None
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

    def live_on(self) -> None:
        """Go on at the pace of this machine's clock, with traffic that changes day by day."""
        self.cluster.clock.speed = 1.0
        self.cluster.begin_days(DAY_SECONDS, BUSY_PEAK)
        self._service.plan_again()

    @property
    def flying(self) -> frozenset[str]:
        """Bundles whose unload was sent and has no outcome yet."""
        return frozenset(unload.bundle for unload in self._balancer.unfinished if self._balancer.since(unload))

    def _turned(self, record: TurnResult) -> None:
        turn = turn_record(record, self.cluster.now())
        apart = gap_points(turn.brokers)
        with self._lock:
            self.progress = self.progress.turned(turn)
            self.truth.look(shown=apart is not None and apart >= self.settings.avg_shedder.high_threshold)
        self.on_turn(turn)

    def _moved(self, outcome: Outcome | Skip) -> None:
        with self._lock:
            self.progress = progress = self.progress.ended(outcome, self.cluster.now())
            if isinstance(outcome, Outcome):
                self.truth.ended(outcome)
        self.on_move(progress)


@contextmanager
def stage(scenario: Scenario, settings: Settings, seed: int, seconds: float) -> Iterator[Stage]:
    """A cluster and its daemon, started and stopped; nothing is left behind. The log stands in the state directory.

    The cluster's time begins in the past, so that both clocks are equal after ``seconds`` on this machine.
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
        folder = tempfile.TemporaryDirectory(prefix="lbd-demo-")
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"no temporary folder for lbd's state: {why}; wanted one in TMPDIR") from error
    with folder as name:
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
