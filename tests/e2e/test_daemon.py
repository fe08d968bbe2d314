"""The daemon on real brokers: what must not make it move, what must, and that kills lose nothing."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import naming, placing, scenarios, skew
from tests.e2e.daemon import SETTINGS, SHEDDER, Daemon
from tests.e2e.kills import Hot, Storm, schedule
from tests.e2e.landing import CLIENTS
from tests.e2e.meters import Meters
from tests.e2e.traffic import Traffic
from tests.e2e.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.cluster import Cluster

SHORT_SESSION = {"metadataStoreSessionTimeoutMillis": "6000"}
"""A dead leader is replaced after this; the default of 30 s would only make the test longer."""

TRUSTED_SECONDS = 115.0
"""Until a broker is that old, its samples hold its start-up work: they are taken once a minute."""

EVEN = skew.Scenario(rate=1500.0, shares=(0.34, 0.33, 0.33), warm_up_seconds=10.0)
BY_HAND = {
    **SETTINGS,
    "interval_seconds": 1,
    "avg_shedder": {**SHEDDER, "hit_count_low": 10_000, "hit_count_high": 10_000},
    "guardrails": {
        "cool_down_minutes": 0,
        "membership_settle_seconds": 0,
        "max_moves_per_bundle": 0,
        "ping_pong_window_hours": 0,
        "max_unloads_per_hour": 0,
        "max_unloads_per_day": 0,
        "max_unloads_per_broker_per_hour": 0,
    },
}
"""A daemon that moves nothing of its own will, and what it is asked for without delay, however often."""


@pytest.mark.soak
@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(versions=["4.2.4"], full_jit=True, settings=SHORT_SESSION)
def test_a_minutes_spike_and_a_restart_move_nothing(cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]):
    """One hot minute on one broker and the first samples of another that was restarted: no move, no hit for it."""
    born = time.time()
    with skew.skewed(cluster, "spike", EVEN) as running, Daemon(cluster, tmp_path) as daemon, Meters(cluster) as meters:
        _until(born + TRUSTED_SECONDS - 30)
        cluster.kill_broker(2)
        reborn = time.time()
        cluster.start_broker(2)
        _until(born + TRUSTED_SECONDS)
        cluster.burn(0)
        counted, gap = _watched(daemon, meters, time.time() + 60)
        cluster.quench(0)
        counted_after, gap_after = _watched(daemon, meters, reborn + TRUSTED_SECONDS)
        moves, ended = daemon.moves(), daemon.terminate()
        result = running.traffic.stop()

    tell(f"reported gap up to {max(gap, gap_after):.0f} points, hits {dict(counted | counted_after)}, {ended}")
    assert max(gap, gap_after) > 30, "the spike was not seen"
    assert counted[cluster.brokers[0]] + counted_after[cluster.brokers[0]] > 0, "the spike was not counted"
    assert counted[cluster.brokers[2]] + counted_after[cluster.brokers[2]] == 0
    assert moves == []
    assert result.lost == 0
    assert (ended.code, daemon.noise()) == (0, [])
    assert ended.seconds < 5


def _until(at: float) -> None:
    time.sleep(max(0.0, at - time.time()))


def _watched(daemon: Daemon, meters: Meters, until: float) -> tuple[Counter[str], float]:
    """The most hits that each broker had, and the widest reported gap, until a moment."""
    most: Counter[str] = Counter()
    gap = 0.0
    while time.time() < until:
        for broker, hits in daemon.hits().items():
            most[broker] = max(most[broker], *hits.values())
        gap = max(gap, meters.reported_gap())
        time.sleep(0.5)
    return most, gap


@pytest.mark.soak
@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(brokers=0, versions=["4.2.4"])
@pytest.mark.parametrize("place", ["cold", "hot"])
def test_a_noisy_neighbour_is_named_and_not_fled(
    no_cluster: str, tmp_path: Path, tell: Callable[[str], None], place: str
):
    """A burner beside a broker: a few moves at most, then lbd says that the load is not its bundles'."""
    row = _scenario(f"burner-{place}", no_cluster, tmp_path, tell)

    assert row["moves"] <= (0 if place == "cold" else 8)
    assert row["background-load named: turns, from s, to s"] is not None
    assert all(at < 240 for at in row["moves of turns after s"])


@pytest.mark.soak
@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(brokers=0, versions=["4.2.4"])
def test_a_broker_that_joins_is_let_settle_and_then_used(no_cluster: str, tmp_path: Path, tell: Callable[[str], None]):
    """Nothing moves for half a minute; then the new broker gets one bundle, and others once it has warmed up."""
    row = _scenario("s2", no_cluster, tmp_path, tell)

    assert row["moves of turns after s"], "nothing was moved"
    assert row["moves of turns after s"][0] >= 30
    assert row["moves per turn"][0] == 1
    assert row["moves"] == row["bundles"], "a bundle was moved twice"
    assert row["true gap first, last"][1] < 15


@pytest.mark.soak
@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(brokers=0, versions=["4.2.4"])
@pytest.mark.parametrize("name", ["s4", "spike"])
def test_what_passes_moves_nothing(no_cluster: str, tmp_path: Path, tell: Callable[[str], None], name: str):
    """Consumers that go off and on each minute, and a neighbour that is noisy for one minute."""
    assert _scenario(name, no_cluster, tmp_path, tell)["moves"] == 0


def _scenario(name: str, version: str, directory: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    row = scenarios.run(name, scenarios.Tried(version), directory)
    tell(json.dumps(row))
    assert row["denied by the brokers"] == []
    assert row["lost"] == 0
    return row


@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(versions=["4.2.4"], late=4)
def test_moves_survive_kills(cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]):
    """Twenty moves under six clients; lbd dies twice in the midst of one, the leader once."""
    survive(cluster, tmp_path, tell, 20, schedule(20, lbd=2, leader=1, broker=0))


@pytest.mark.soak
@pytest.mark.usefixtures("quotas")
@pytest.mark.cluster(settings=SHORT_SESSION)
def test_two_hundred_moves_survive_kills(cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]):
    """The same at length, with brokers restarted in between, on every version."""
    survive(cluster, tmp_path, tell, 200, schedule(200, lbd=16, leader=2, broker=2))


def survive(
    cluster: Cluster, directory: Path, tell: Callable[[str], None], moves: int, victims: dict[int, Any]
) -> None:
    """Whatever is killed: nothing acknowledged is lost, and the brokers confirm the journal line by line."""
    bundles = placing.namespace(cluster, f"kills{time.time_ns()}", 24)
    rates = {naming.topic_in(bundle): 1.0 for bundle in bundles}
    with (
        Traffic(cluster, rates, clients=CLIENTS) as traffic,
        Witness(cluster) as witness,
        Daemon(cluster, directory, BY_HAND) as daemon,
    ):
        hot = Hot(cluster, bundles)
        storm = Storm(cluster, daemon, hot, victims)
        begun = time.time()
        storm.run(moves)
        seconds = time.time() - begun
        time.sleep(4)  # so that the witness has seen what the last outcome claims
        denied, ended = daemon.contradictions(witness, hot.brought_back), daemon.terminate()
        told = daemon.moves()
        result = traffic.stop()

    tell(_kill_row(cluster, storm, Counter(str(move.result) for move in told), seconds, result.lost))
    assert len(told) >= moves, f"only {len(told)} of {moves} moves: {storm.codes} {storm.said}"
    assert [move for move in told if move.result is None] == []
    assert denied == []
    assert storm.lies == []
    assert storm.codes.keys() <= {0, 3, 4, 5}, storm.said  # 3: it died before the command reached it
    assert storm.killed == Counter(victims.values())
    assert storm.mid_move > 0, "no kill hit a move"
    assert result.lost == 0
    assert ended.code == 0, daemon.last_lines()


def _kill_row(cluster: Cluster, storm: Storm, results: Counter[str], seconds: float, lost: int) -> str:
    found = {
        "version": cluster.spec.version,
        "results": results,
        "exit codes": storm.codes,
        "killed": storm.killed,
        "kills of lbd in the midst of a move": storm.mid_move,
        "seconds": round(seconds),
        "lost": lost,
        "said": dict(storm.said.most_common(6)),
    }
    return json.dumps(found)
