"""The daemon on a simulated cluster, in this process: what it does is true, and nothing of it stays."""

from __future__ import annotations

import signal
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from lbd.cli.demo_picture import serving
from lbd.clock import Timebase
from lbd.config import ApiSettings, Settings
from lbd.daemon.engine import engine
from lbd.demo import BUSY_PEAK, DAY_SECONDS, RUNTIME, SPEED, DemoProgress, Stage, free, stage
from lbd.simulate.cluster import cluster
from lbd.simulate.fake_pulsar import FakePulsar
from lbd.simulate.scenario import load, settled
from lbd.store.journal import read
from lbd.store.status import read_status
from lbd.turn.record import gap_points, turn_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lbd.daemon.engine import Engine

PATIENCE_SECONDS = 60.0

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket.* type=2,:ResourceWarning")
"""Where there is no systemd, sdnotify drops the socket that it would have used."""


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """The daemon takes them for itself."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@contextmanager
def staged(seconds: float) -> Iterator[Stage]:
    """The demo's own cluster."""
    scenario = load("demo")
    with stage(scenario, settled(scenario, Settings(interval_seconds=15), {}), 1, seconds) as found:
        yield found


def run(found: Stage, seconds: float, then: Callable[[], None] | None = None) -> None:
    """Let it run so long at most; ``then`` is called instead of its end."""
    timer = threading.Timer(seconds, then or found.end)
    timer.start()
    try:
        found.run()
    finally:
        timer.cancel()
        timer.join()


def _landed(progress: DemoProgress) -> int:
    return sum(move.state == "landed" for move in progress.moves)


def test_what_it_shows_is_what_the_journal_and_the_cluster_say():
    """Each move that landed is in the journal, counted in the scorecard, and where the cluster's own book has it."""
    with staged(60) as found:
        found.on_move = lambda progress: found.end() if _landed(progress) > 1 else None
        run(found, 60)
        landed = {move.bundle: move.destination for move in found.progress.moves if move.state == "landed"}
        assert len(landed) >= 2
        assert {bundle: found.cluster.owners()[bundle] for bundle in landed} == landed
        kept = read(found.settings.state_dir / "lbd.db")
        assert set(kept.attempted_at) == set(landed)
        assert kept.open == ()
        card = found.truth.scorecard(found.settings)
        assert card.moves == len(landed)
        assert card.last.gap_points < card.first.gap_points - 5
        assert (found.settings.state_dir / "lbd.log").read_text().count('"event": "landed: ') == len(landed)


def test_nothing_of_it_stays():
    """No thread, no port, no folder."""
    before = set(threading.enumerate())
    with staged(60) as found:
        run(found, 1.5)
        folder, brokers = found.settings.state_dir, found.cluster.brokers
        assert folder.is_dir()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert set(threading.enumerate()) - before == set()
    assert not folder.exists()
    for broker in brokers:
        host, port = broker.split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)


def test_its_clock_begins_in_the_past_and_ends_at_the_present():
    """And goes on at the machine's pace: so what is written down has true ages for who reads it afterwards.

    The bounds are those of a busy machine, which is late by seconds: at the demo's speed a second more is twelve.
    """
    before = time.time()
    with staged(2) as found:
        assert before <= found.cluster.begun_at + 2 * (SPEED - 1) <= time.time()
        seen: list[float] = []

        def over() -> None:
            found.live_on()
            seen.append(found.cluster.now() - time.time())
            time.sleep(1)
            found.end()

        run(found, 2, over)
        assert abs(seen[0]) < 60
        assert abs(found.cluster.now() - time.time() - seen[0]) < 60
        status = read_status(found.settings.state_dir)
        assert abs(status.at - time.time()) < 120
        assert status.next_turn_at is None or 10 < status.next_turn_at - status.at < 16  # None: moves are under way


@pytest.mark.soak
def test_lbd_goes_on_moving_after_the_story_has_ended(tmp_path: Path):
    """Once it has relieved the first hot broker the cluster is balanced; a busy day takes moves again."""
    scenario = load("demo")
    world, state = cluster(scenario, 1)
    with FakePulsar(world, state, runtime=RUNTIME) as brokers:
        changes = {"pulsar.admin_urls": brokers.admin_urls, "state_dir": tmp_path / "state"}
        settings = settled(scenario, Settings(interval_seconds=30), changes)
        moves: list[int] = []
        with engine(settings, timebase=Timebase(brokers.now, lambda: brokers.speed)) as balancer:
            for seconds in (600, DAY_SECONDS):
                moves.append(0)
                for _ in range(int(seconds / settings.interval_seconds)):
                    moves[-1] += len(balancer.turn().plan.unloads)
                    assert balancer.wait(PATIENCE_SECONDS)
                    brokers.forward(settings.interval_seconds)
                if len(moves) == 1:
                    assert pair_gap(balancer) < settings.avg_shedder.low_threshold
                    brokers.begin_days(DAY_SECONDS, BUSY_PEAK)
        assert moves[0] == 10
        assert 2 <= moves[1] <= 12


def pair_gap(balancer: Engine) -> float:
    """Points between the highest and the lowest score, as a turn record has them."""
    found = gap_points(turn_record(balancer.turn(), balancer.timebase.now()).brokers)
    assert found is not None
    return found


def test_a_port_that_is_taken_is_not_taken_for_the_demo_s():
    """It takes another one, and says so where it says what can be tried."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        wanted = ApiSettings(listen=f"127.0.0.1:{other.getsockname()[1]}")
        assert free(wanted) == "127.0.0.1:0"
        assert f"http://127.0.0.1:9 ({wanted.listen} is taken) shows it" in serving(
            "", "", "http://127.0.0.1:9", wanted
        )
    assert free(wanted) == wanted.listen
    assert "taken" not in serving("", "", wanted.url(), wanted)
    assert free(ApiSettings(enabled=False)) == ApiSettings().listen
