"""Three brokers are restarted one after the other by ``lbd rollout --exec``, beside a plain restart."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import pytest

from lbd.store.control import FAILED, REFUSED
from lbd.store.rollouts import Rollout, Rollouts
from tests.e2e import journal, naming, placing, probe
from tests.e2e.balancing import run
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
NO_LBD = 3
SETTINGS: dict[str, Any] = {**BY_HAND, "log": {"format": "json"}}
CHANGED = {"loadBalancerSheddingEnabled": "true", "loadBalancerAutoBundleSplitEnabled": "true"}
"""What lbd turns off, and has to give back: the first until it stops, the second until the rollout ends."""
TAKING_OVER: dict[str, Any] = {**SETTINGS, "in_broker_shedding": "take-over", "restore_on_stop": True}

KILLED_AT = {"drain begun", "restart", "restart away", "fill"}
"""Steps that are always long enough to be hit; of the others, and of moves, some are."""
BACK_WITHIN_SECONDS = 60.0
RESTARTED_WITHIN_SECONDS = 120.0
OVERRIDES = "/admin/v2/brokers/configuration/values"

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
    return namespace, [naming.topic_in(one) for one in bundles]


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
        reconnects = 0
        for broker in cluster.brokers:
            reconnects += _owners(cluster, namespace)[broker]
            _restart(cluster, broker)
        seconds = time.time() - started_at
        time.sleep(20)
        result = load.stop()
    tell(
        f"plain restart in {seconds:.0f} s; {reconnects} topics reconnected; {_gap(result, started_at)}; "
        f"bundles {_owners(cluster, namespace)}"
    )
    assert result.lost == 0


@pytest.mark.soak
@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], own=True)
def test_a_rollout_restarts_each_broker_when_it_owns_nothing(
    cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]
):
    """No bundle moves more than twice, nothing is lost, and each broker has bundles again in the end."""
    namespace, topics = _load(cluster)
    command = _command(tmp_path)
    with Daemon(cluster, tmp_path, SETTINGS) as daemon, Traffic(cluster, dict.fromkeys(topics, RATE)) as load:
        started_at = time.time()
        restarted, said = _rolled(cluster, tmp_path, daemon.command("rollout", "--all", "--exec", command))
        result = load.stop()
        moves = [move for move in daemon.moves() if move.asked_at > started_at]

    times = Counter(move.bundle for move in moves if move.owner not in {None, move.source})
    tell(
        f"rollout in {time.time() - started_at:.0f} s, {len(moves)} moves, at most {max(times.values())} of a bundle; "
        f"{_gap(result, started_at)}; bundles {_owners(cluster, namespace)}; {said}"
    )
    assert sorted(restarted) == [(broker, 0) for broker in cluster.brokers], "bundles owned at each restart"
    assert max(times.values()) <= 2
    assert result.lost == 0
    assert _owners(cluster, namespace).keys() == set(cluster.brokers)


@pytest.mark.soak
@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], own=True, settings=CHANGED)
def test_a_rollout_survives_kills_at_each_step(cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]):
    """kill -9 of lbd at each step of the rollout's file; the command is repeated as long as a rollout is under way.

    Once lbd comes back only when the command has restarted the broker: it must not be restarted again.
    """
    namespace, topics = _load(cluster)
    command = _command(tmp_path)
    with Daemon(cluster, tmp_path, TAKING_OVER) as daemon, Traffic(cluster, dict.fromkeys(topics, RATE)) as load:
        started_at = time.time()
        with Killer(daemon, tmp_path / "restart") as killer:
            restarted, said = _rolled(cluster, tmp_path, daemon.command("rollout", "--all", "--exec", command), killer)
        daemon.restart()
        minutes = (time.time() - started_at) / 60
        result = load.stop()
        moves = [move for move in daemon.moves() if move.asked_at > started_at]
        drains = json.loads(run(daemon.command("status", "--format", "json")).stdout)["drains"]
        ended = daemon.terminate()

    times = Counter(move.bundle for move in moves if move.owner not in {None, move.source})
    tell(
        f"rollout in {minutes:.1f} minutes, {len(killer.steps)} kills at {killer.steps}; exit codes {killer.codes}; "
        f"{len(moves)} moves, at most {max(times.values())} of a bundle; {_gap(result, started_at)}; "
        f"bundles {_owners(cluster, namespace)}; {said}"
    )
    assert sorted(restarted) == [(broker, 0) for broker in cluster.brokers], "bundles owned at each restart"
    assert max(times.values()) <= 2
    assert result.lost == 0
    assert {step.partition(" ")[2] for step in killer.steps} >= KILLED_AT
    assert all(f"{broker} {step}" in killer.steps for broker in cluster.brokers for step in KILLED_AT - {"fill"})
    assert killer.codes.keys() <= {0, NO_LBD, FAILED}
    assert (drains, _overrides(cluster), ended.code) == ([], {}, 0)


@pytest.mark.soak
@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], own=True, settings=CHANGED)
def test_a_broker_that_stays_away_ends_the_rollout(cluster: Cluster, tmp_path: Path, tell: Callable[[str], None]):
    """Within its time, with a reason that names the broker; no drain, no changed setting, no bundle is left behind."""
    namespace, topics = _load(cluster)
    command = _command(tmp_path)
    words = ("rollout", "--all", "--back-within", f"{BACK_WITHIN_SECONDS:.0f}s", "--exec", command)
    with Daemon(cluster, tmp_path, TAKING_OVER) as daemon, Traffic(cluster, dict.fromkeys(topics, RATE)) as load:
        restarted, said = _rolled(cluster, tmp_path, daemon.command(*words), code=FAILED, comes_back=False)
        seconds = time.time() - cluster.kills[-1][0]
        status = json.loads(run(daemon.command("status", "--format", "json")).stdout)
        splitting = _overrides(cluster).get("loadBalancerAutoBundleSplitEnabled")
        result = load.stop()
        ended = daemon.terminate()

    [(broker, owned)] = restarted
    owners = _owners(cluster, namespace)
    tell(f"ended {seconds:.0f} s after {broker} had left; bundles {owners}; {said}")
    assert owned == 0
    assert f"The rollout was stopped: {broker} did not come back within" in said
    assert "0 of 3 brokers were restarted" in said
    assert BACK_WITHIN_SECONDS <= seconds + 5 < BACK_WITHIN_SECONDS + 30
    assert (status["drains"], splitting, Rollouts(daemon.state).under_way()) == ([], None, None)
    assert (owners.total(), broker in owners) == (BUNDLES, False)
    assert result.lost == 0
    assert (_overrides(cluster), ended.code) == ({}, 0)


class Killer:
    """kill -9 for lbd at each step that the rollout's file shows, once, as soon as it shows it; it is started at once.

    Of the second broker lbd dies while the command restarts it, and comes back after that. ``codes`` are those of the
    command, which ends with lbd.
    """

    def __init__(self, daemon: Daemon, request: Path) -> None:
        self.steps: list[str] = []
        self.codes: Counter[int] = Counter()
        self._daemon, self._request = daemon, request
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1, "killer")

    def __enter__(self) -> Self:
        self._killing = self._pool.submit(self._kill)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()
        self.check()

    def check(self) -> None:
        """Raise what has ended it: lbd did not start."""
        if self._killing.done() and (error := self._killing.exception()) is not None:
            raise error

    def _kill(self) -> None:
        written = 0
        while not self._over.wait(0.001):
            step, restarted = self._step()
            moving = self._written() > written and step.endswith((" drain begun", " fill"))
            step += " moving" if moving and step in self.steps else ""
            if not step or step in self.steps:
                continue
            late = step.endswith(" restart") and restarted == 1
            self._wait_for(handed_over=True, least=late)
            self.steps.append(step)
            self._daemon.kill()
            self._wait_for(handed_over=False, least=late)
            self._daemon.start()
            written = self._written()

    def _step(self) -> tuple[str, int]:
        """The step in words, and how many brokers were restarted before; empty while no rollout is under way."""
        rollout = Rollouts(self._daemon.state).under_way()
        if rollout is None:
            return "", 0
        words = [rollout.broker, rollout.phase]
        words += ["begun"] if rollout.phase == "drain" and rollout.begun else []
        words += ["away"] if rollout.phase == "restart" and rollout.gone_at is not None else []
        return " ".join(words), len(rollout.done)

    def _written(self) -> int:
        return len(journal.entries(self._daemon.state))

    def _wait_for(self, *, handed_over: bool, least: bool) -> None:
        deadline = time.monotonic() + RESTARTED_WITHIN_SECONDS
        while least and self._request.exists() is not handed_over and time.monotonic() < deadline:
            time.sleep(0.01)


def _overrides(cluster: Cluster) -> dict[str, str]:
    """What of the settings that lbd changes differs from the brokers' files."""
    values = probe.get(cluster, next(index for index in range(3) if cluster.alive(index)), OVERRIDES)
    return {name: value for name, value in values.items() if name in CHANGED}


def _command(folder: Path) -> str:
    script = folder / "hand_over.py"
    script.write_text(HAND_OVER)
    return f"{sys.executable} {script} {folder} {{broker}}"


def _ended(rollouts: Rollouts) -> Rollout | None:
    """The rollout that has ended, None while it goes on; after a kill at its end the next lbd gives back first."""
    while (under_way := rollouts.under_way()) is not None and under_way.phase == "ended":
        time.sleep(0.1)
    return rollouts.last() if under_way is None else None


def _rolled(
    cluster: Cluster,
    folder: Path,
    command: list[str],
    killer: Killer | None = None,
    *,
    code: int = 0,
    comes_back: bool = True,
) -> tuple[list[tuple[str, int]], str]:
    """Each broker that was handed over to be restarted with the bundles that it owned, and how the rollout ended.

    After a kill of lbd the command is repeated, unless the rollout has ended by then: that would begin another one.
    """
    request, deadline = folder / "restart", time.monotonic() + ENDS_WITHIN_SECONDS
    restarted: list[tuple[str, int]] = []
    rollouts = Rollouts(folder / "state")
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while process.poll() is None:
            assert time.monotonic() < deadline, f"the rollout does not end: {rollouts.last()}"
            if request.exists() and (broker := request.read_text()):
                owners = probe.owners(cluster).items()
                owned = sum(broker in ids for name, ids in owners if not name.startswith("pulsar/"))
                restarted.append((broker, owned))
                if comes_back:
                    _restart(cluster, broker)
                else:
                    cluster.kill_broker(cluster.brokers.index(broker), signal.SIGTERM)
                request.unlink()
            time.sleep(0.1)

        said, _ = process.communicate()
        if process.returncode == code:
            return restarted, said.splitlines()[-1]
        if killer is not None and killer.steps:
            killer.check()
            killer.codes[process.returncode] += 1
            if (last := _ended(rollouts)) is not None:
                assert last.exit_code == code, last.sentence
                return restarted, last.sentence
            assert process.returncode in {NO_LBD, REFUSED, FAILED}, said
            time.sleep(0.5)
            continue
        assert process.returncode == REFUSED, said
        assert not restarted, said
        assert time.monotonic() < deadline - ENDS_WITHIN_SECONDS + TRUSTED_WITHIN_SECONDS, said
        time.sleep(5)  # a broker's first minutes are no ground to move on
