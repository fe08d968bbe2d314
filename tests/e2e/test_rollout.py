"""Three brokers are restarted one after the other by ``lbd rollout --exec``, beside a plain restart."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from lbd.store.control import REFUSED
from tests.e2e import placing, probe
from tests.e2e.daemon import Daemon
from tests.e2e.test_daemon import BY_HAND
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.checker import Result
    from tests.e2e.cluster import Cluster

BUNDLES, RATE = 32, 10.0
ENDS_WITHIN_SECONDS = 1800.0
"""A restarted broker is trusted after three CPU samples: about three minutes for each."""
TRUSTED_WITHIN_SECONDS = 300.0
SETTINGS: dict[str, Any] = {**BY_HAND, "log": {"format": "json"}}

HAND_OVER = """
import pathlib, sys, time
folder, broker = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / "restart").write_text(broker)
while (folder / "restart").exists():
    time.sleep(0.1)
"""
"""The command of ``--exec``: it asks the test to restart a broker, whose processes are the test's, and waits."""


def _load(cluster: Cluster) -> tuple[str, list[str]]:
    """A namespace whose bundles lie on all brokers alike, and a topic in each."""
    bundles = placing.namespace(cluster, f"rollout{time.time_ns()}", BUNDLES)
    placing.place_all(cluster, {one: cluster.brokers[number % 3] for number, one in enumerate(bundles)})
    namespace = bundles[0].rpartition("/")[0]
    return namespace, [f"persistent://{namespace}/t{number}" for number in range(BUNDLES)]


def _restart(cluster: Cluster, broker: str) -> None:
    index = cluster.brokers.index(broker)
    cluster.kill_broker(index, signal.SIGTERM)
    cluster.start_broker(index)


def _gap(result: Result, since: float) -> str:
    """The longest time without a publish, and how many topics had one of a second."""
    gaps = [gap.seconds for gap in result.gaps if gap.at > since]
    return f"longest publish gap {max(gaps, default=0.0):.1f} s, {sum(gap >= 1 for gap in gaps)} of a second and more"


def _owners(cluster: Cluster, namespace: str) -> Counter[str]:
    return Counter(broker for owners in probe.owners(cluster, f"{namespace}/").values() for broker in owners)


@pytest.mark.soak
@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], own=True)
def test_a_plain_restart_of_all_brokers(cluster: Cluster, tell: Callable[[str], None]):
    """What a rollout is compared with: each broker is stopped and started, as soon as the one before is back."""
    namespace, topics = _load(cluster)
    with Traffic(cluster, dict.fromkeys(topics, RATE)) as load:
        time.sleep(20)
        started_at = time.time()
        for broker in cluster.brokers:
            _restart(cluster, broker)
        seconds = time.time() - started_at
        time.sleep(20)
        result = load.stop()
    tell(f"plain restart in {seconds:.0f} s; {_gap(result, started_at)}; bundles {_owners(cluster, namespace)}")
    assert result.lost == 0


@pytest.mark.soak
@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], own=True)
def test_a_rollout_restarts_each_broker_when_it_owns_nothing(
    cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]
):
    """No bundle moves more than twice, nothing is lost, and each broker has bundles again in the end."""
    namespace, topics = _load(cluster)
    script = tmp_path / "hand_over.py"
    script.write_text(HAND_OVER)
    command = f"{sys.executable} {script} {tmp_path} {{broker}}"
    with Daemon(cluster, tmp_path, SETTINGS) as daemon, Traffic(cluster, dict.fromkeys(topics, RATE)) as load:
        started_at = time.time()
        restarted, said = _rolled(cluster, tmp_path, daemon.command("rollout", "--all", "--exec", command))
        result = load.stop()
        moves = [move for move in daemon.moves() if move.asked_at > started_at]

    times = Counter(move.bundle for move in moves if move.owner not in {None, move.source})
    tell(
        f"rollout in {time.time() - started_at:.0f} s, {len(moves)} moves, at most {max(times.values())} of a bundle; "
        f"{_gap(result, started_at)}; bundles {_owners(cluster, namespace)}; {said.splitlines()[-1]}"
    )
    assert restarted == dict.fromkeys(cluster.brokers, 0), "bundles owned when each was restarted"
    assert max(times.values()) <= 2
    assert result.lost == 0
    assert _owners(cluster, namespace).keys() == set(cluster.brokers)


def _rolled(cluster: Cluster, folder: Path, command: list[str]) -> tuple[dict[str, int], str]:
    """How many bundles each broker owned when the rollout handed it over to be restarted, and what it said."""
    request, deadline, restarted = folder / "restart", time.monotonic() + ENDS_WITHIN_SECONDS, dict[str, int]()
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while process.poll() is None:
            assert time.monotonic() < deadline, "the rollout does not end"
            if request.exists() and (broker := request.read_text()):
                owners = probe.owners(cluster).items()
                restarted[broker] = sum(broker in ids for name, ids in owners if not name.startswith("pulsar/"))
                _restart(cluster, broker)
                request.unlink()
            time.sleep(0.1)

        said, _ = process.communicate()
        if process.returncode == 0:
            return restarted, said
        assert process.returncode == REFUSED, said
        assert not restarted, said
        assert time.monotonic() < deadline - ENDS_WITHIN_SECONDS + TRUSTED_WITHIN_SECONDS, said
        time.sleep(5)  # a broker's first minutes are no ground to move on
