"""Two hundred moves under six clients: reconnects as lbd and as the clients say them, beside Pulsar's own unload."""

from __future__ import annotations

import itertools
import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lbd.store.control import REFUSED
from tests.e2e import gaps, naming, placing, probe
from tests.e2e.artifacts import CURRENT_VERSIONS
from tests.e2e.balancing import run
from tests.e2e.daemon import Daemon
from tests.e2e.gaps import Moved
from tests.e2e.landing import CLIENTS
from tests.e2e.settings import STATS_SECONDS
from tests.e2e.test_daemon import BY_HAND
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.journal import Move

MOVES, BUNDLES, RATE = 200, 48, 3.0
PAUSE_SECONDS = 0.5
"""Pulsar's own unloads are paced as a drain paces its own."""
REPORTED_SECONDS = 4.0 * STATS_SECONDS
"""By then the load reports show all clients."""
TRUSTED_WITHIN_SECONDS = 300.0
PROVEN_WITHIN_SECONDS = 240.0
DRAINS_AT_MOST = 40
DIFFERS_SECONDS = 1.0


@pytest.mark.soak
@pytest.mark.cluster(versions=CURRENT_VERSIONS, own=True)
@pytest.mark.parametrize("at_once", [4, 1])
def test_two_hundred_moves_by_the_clients_own_clocks(
    cluster: Cluster, tmp_path: Path, tell: Callable[[str], None], at_once: int
):
    """All landed moves are served, and the seconds are those of the clients.

    No message is lost; one is not received where the client library lost a consumer, which its log shows.
    """
    topics = _load(cluster)
    with Traffic(cluster, dict.fromkeys(topics.values(), RATE), clients=CLIENTS, log_connections=True) as traffic:
        settings = {**BY_HAND, "drain": {"max_unloads_at_once": at_once}}
        with Daemon(cluster, tmp_path, settings) as daemon:
            time.sleep(REPORTED_SECONDS)
            begun = time.time()
            _drain_all(daemon, cluster)
            seconds = time.time() - begun
            landed = {move.id: move for move in daemon.moves() if move.result == "landed"}
            results = Counter(move.result for move in daemon.moves())
            told = daemon.served()
        plain = _unload_all(cluster, topics, at_once)
        result = traffic.stop()
        connected = gaps.created(traffic.client_log)
        stuck = gaps.stuck(connected)

    keys = {name: Moved(topics[move.bundle], move.asked_at, _host(move)) for name, move in landed.items()}
    stood = {one.moved: one for one in gaps.stood([*keys.values(), *plain], result.gaps, connected)}
    by_lbd = {moved: stood[moved] for moved in keys.values()}
    by_pulsar = [stood[moved] for moved in plain]
    differs = [
        abs(float(line["reconnect_seconds"]) - first)
        for name, line in told.items()
        if name in keys and line.get("reconnect_seconds") is not None
        if (first := by_lbd[keys[name]].first) is not None
    ]
    served = Counter(str(told[name]["served"]) if name in told else "none" for name in landed)
    version = f"{cluster.spec.version}, {at_once} at once"
    tell(f"| {version} | lbd drain | {gaps.row([*by_lbd.values()])} |")
    tell(f"| {version} | Pulsar's unload | {gaps.row(by_pulsar)} |")
    tell(
        f"{version}: {dict(results)} in {seconds:.0f} s; served {dict(served)}; {len(differs)} told and true seconds "
        f"differ by {gaps.p50_p99_max(differs)}; "
        f"{result.duplicates} duplicates of {result.sent}; stuck: {stuck}, not received {result.lost_by_topic}"
    )
    longest = sorted([*by_lbd.values(), *by_pulsar], key=lambda one: -one.gap)[:5]
    tell(f"{version}: longest {[(round(one.gap, 1), one.moved.topic, round(one.moved.asked_at)) for one in longest]}")
    for log in cluster.work.glob("*.log"):
        shutil.copy(log, tmp_path)
    assert len(landed) >= MOVES
    assert served == {"yes": len(landed)}
    assert len(differs) == len(landed)
    assert gaps.p99(differs) < DIFFERS_SECONDS
    assert result.lost_by_topic.keys() <= {topic for topic, _, _ in stuck}


def _host(move: Move) -> str:
    return f"{str(move.owner).partition(':')[0]}:"


def _load(cluster: Cluster) -> dict[str, str]:
    """The bundles of a namespace, which lie on all brokers alike, with the topic of each."""
    bundles = placing.namespace(cluster, f"gaps{time.time_ns()}", BUNDLES)
    topics = {bundle: naming.topic_in(bundle) for bundle in bundles}
    for topic in topics.values():
        placing.create_topic(cluster, topic)
    placing.place_all(cluster, {one: cluster.brokers[number % 3] for number, one in enumerate(bundles)})
    return topics


def _drain_all(daemon: Daemon, cluster: Cluster) -> None:
    """One broker after the other is drained, until so many bundles have landed; each time all clients are proven back.

    A bundle that is moved again before that cannot be proven.
    """
    deadline = time.monotonic() + TRUSTED_WITHIN_SECONDS
    for number in range(DRAINS_AT_MOST):
        broker = cluster.brokers[number % 3]
        words = ("drain", broker, "--apply", "--reason", "a test", "--override", "one after the other")
        while (done := run(daemon.command(*words))).returncode == REFUSED and not number:
            assert time.monotonic() < deadline, done.stdout + done.stderr
            time.sleep(5)  # a broker's first minutes are no ground to move on
        run(daemon.command("drain", broker, "--release"))
        _wait_proven(daemon)
        if sum(move.result == "landed" for move in daemon.moves()) >= MOVES:
            return


def _wait_proven(daemon: Daemon) -> None:
    deadline = time.monotonic() + PROVEN_WITHIN_SECONDS
    while time.monotonic() < deadline:
        told = daemon.served()
        if all(move.id in told for move in daemon.moves() if move.result == "landed"):
            return
        time.sleep(1)


def _unload_all(cluster: Cluster, topics: dict[str, str], at_once: int) -> list[Moved]:
    """As many unloads without a destination: all bundles of one broker after the other, as a person's script does."""

    def unload(bundle: str) -> Moved:
        asked_at = time.time()
        status = placing.unload(cluster, bundle)
        time.sleep(PAUSE_SECONDS)
        if status != 204:
            raise probe.ProbeError(f"unload of {bundle} answered {status} instead of 204")
        return Moved(topics[bundle], asked_at)

    found: list[Moved] = []
    for broker in itertools.cycle(range(3)):
        own = sorted(probe.owned(cluster, broker) & topics.keys())
        with ThreadPoolExecutor(at_once) as pool:
            found += pool.map(unload, own)
        time.sleep(gaps.BELONGS_SECONDS)
        if len(found) >= MOVES:
            return found
    raise AssertionError
