"""A real broker that stops and goes on, again and again: its load falls, its health check is slow, it gets nothing."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.e2e import skew
from tests.e2e.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

STOPPED_SECONDS, GOING_SECONDS = 3.0, 0.3
"""A check waits for more than a second in six of ten cases, and its session with ZooKeeper (30 s) lives on."""

PATIENCE_SECONDS = 600.0
"""Three of five checks in a row, one each half minute, must be slow."""

EVEN = skew.Scenario(rate=900.0, shares=(0.34, 0.33, 0.33), warm_up_seconds=10.0)


@contextmanager
def stuttering(cluster: Cluster, index: int) -> Iterator[None]:
    """A broker that stands still most of the time, as with a full heap or a disk that hangs."""
    ended = threading.Event()

    def stop_and_go() -> None:
        while not ended.is_set():
            cluster.kill_broker(index, signal.SIGSTOP)
            ended.wait(STOPPED_SECONDS)
            cluster.kill_broker(index, signal.SIGCONT)
            ended.wait(GOING_SECONDS)

    thread = threading.Thread(target=stop_and_go, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.soak
@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(versions=["4.2.4"])
def test_a_broker_that_stutters_is_named_and_gets_nothing(
    cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]
):
    """Within minutes; from then on no bundle is sent to it."""
    slow = cluster.brokers[2]
    with skew.skewed(cluster, "stutter", EVEN), Daemon(cluster, tmp_path) as daemon, stuttering(cluster, 2):
        seconds = _named_after(daemon, slow)
        before = len(daemon.moves())
        time.sleep(60)
        moves = daemon.moves()[before:]
    tell(f"named after {seconds:.0f} s; {len(moves)} moves in the minute after")
    assert slow not in {move.destination for move in moves}


def _named_after(daemon: Daemon, broker: str) -> float:
    begun = time.monotonic()
    while f"nothing goes to {broker}: slow-broker" not in daemon.log.read_text(errors="replace"):
        if time.monotonic() - begun > PATIENCE_SECONDS:
            raise AssertionError(f"{broker} was not named; the log ends with\n{daemon.last_lines()}")
        time.sleep(1)
    return time.monotonic() - begun
