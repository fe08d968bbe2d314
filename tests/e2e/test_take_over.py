"""lbd and the brokers' own shedder on real brokers: never both, and what was there comes back whatever is killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lbd.store.state import KeptTakeOver
from tests.e2e import probe
from tests.e2e.artifacts import CURRENT_VERSIONS
from tests.e2e.balancing import run
from tests.e2e.settings import AS_DELIVERED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

KEY = "loadBalancerSheddingEnabled"
CONFIGURATION = "/admin/v2/brokers/configuration"
OTHER_VERSIONS = ["5.0.0-M1", "3.3.6", "2.11.0"]
KILLS, KILLS_AT_LENGTH = 8, 16
DEADLINE_SECONDS = 20.0

LATEST_KILL_SECONDS = 0.25
"""An observation, a take-over and a second observation take 0.1 to 0.2 s here, a release 0.1 s."""

PHASES = {"run": "taking", "release": "releasing"}
"""What stands in the note while the brokers are being changed, for 0.03 to 0.1 s."""

PROCESS = """
import json, sys, time
from pathlib import Path
from lbd.config import load
from lbd.daemon import take_over as taking_over
from lbd.daemon.engine import engine

settings = load(Path(sys.argv[1]), {}).settings
print("ready", flush=True)
if sys.argv[2] == "release":
    print(taking_over.release(settings), flush=True)
    sys.exit()
with engine(settings) as balancer:
    while True:
        seen = balancer.turn().observation
        print(json.dumps([list(seen.shedding_on), seen.shedding_note, seen.seconds]), flush=True)
        time.sleep(0.2)
"""
"""A process that turns as a daemon does, or releases; it says when it begins, so that a kill hits its work."""


class Site:
    """A cluster, a state directory, and processes of lbd on it that are killed."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.note = KeptTakeOver(directory / "state")
        self.status = directory / "state" / "status.json"
        self.running: list[subprocess.Popen[str]] = []
        self.left: Counter[str] = Counter()

    def config(self, mode: str) -> Path:
        path = self.directory / f"{mode}.yaml"
        values = {"pulsar": {"admin_urls": self.cluster.admin_urls}, "state_dir": str(self.directory / "state")}
        path.write_text(yaml.safe_dump({**values, "in_broker_shedding": mode}))
        return path

    def lbd(self, *words: str, mode: str = "take-over") -> subprocess.CompletedProcess[str]:
        """A command of lbd, to its end."""
        return run([sys.executable, "-m", "lbd", *words, "--config", str(self.config(mode))])

    def start(self, work: str) -> subprocess.Popen[str]:
        """A process that begins its work at this moment."""
        command = [sys.executable, "-c", PROCESS, str(self.config("take-over")), work]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LBD_")}
        found = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True, env=environ
        )
        self.running.append(found)
        assert found.stdout is not None
        assert found.stdout.readline() == "ready\n"
        return found

    def daemon(self, config: Path) -> subprocess.Popen[str]:
        """`lbd run`, as its users start it."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LBD_")}
        command = [sys.executable, "-m", "lbd", "run", "--config", str(config)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        self.running.append(subprocess.Popen(command, text=True, env=environ, **quiet))
        return self.running[-1]

    def end(self) -> None:
        """kill -9 for all that still run."""
        for process in self.running:
            process.kill()
            process.communicate()
        self.running.clear()

    def phase(self) -> str:
        """What the note says; it may go at any moment."""
        note = self.note.load()
        return "no note" if note is None else note.phase

    def turned(self, phase: str) -> None:
        """Waits until a daemon has ended a turn since the last call and the note says so."""
        began = time.monotonic()
        while self.phase() != phase or not self.status.exists():
            assert time.monotonic() - began < DEADLINE_SECONDS, f"{self.phase()}, status: {self.status.exists()}"
            time.sleep(0.02)
        self.status.unlink()

    def killed(self, work: str, after_seconds: float, *, changing: bool) -> None:
        """A process that is killed so long after it began, or began to change the brokers; and what it left behind."""
        self.start(work)
        began = time.monotonic()
        while changing and self.phase() != PHASES[work] and time.monotonic() - began < LATEST_KILL_SECONDS:
            time.sleep(0.001)
        time.sleep(after_seconds * (0.2 if changing else 1.0))
        self.end()
        self.left[f"{work}: {self.phase()}, override {self.override}"] += 1

    # -- the second observer

    @property
    def override(self) -> str | None:
        found: str | None = probe.get(self.cluster, 0, f"{CONFIGURATION}/values").get(KEY)
        return found

    def by_hand(self, value: str | None) -> None:
        """What an operator does; returns when all brokers run with it."""
        url = f"{self.cluster.admin_urls[0]}{CONFIGURATION}/{KEY}"
        answer = (
            probe.ask(self.cluster, "DELETE", url)
            if value is None
            else probe.ask(self.cluster, "POST", f"{url}/{value}")
        )
        assert answer.ok, answer.text

    def shedding(self) -> list[str]:
        """What each broker runs with."""
        brokers = range(len(self.cluster.brokers))
        return [probe.get(self.cluster, index, f"{CONFIGURATION}/runtime")[KEY] for index in brokers]

    def wait(self, wanted: str) -> float:
        """Until all brokers run with it; how long that took."""
        began = time.monotonic()
        while set(self.shedding()) != {wanted}:
            assert time.monotonic() - began < DEADLINE_SECONDS, f"{self.shedding()}, wanted {wanted}"
            time.sleep(0.01)
        return time.monotonic() - began

    def operator_sets(self, value: str | None) -> None:
        """Set or delete the override by hand; on 2.11 a deleted one only goes on at once when it said the same."""
        self.by_hand("true" if value is None else value)
        self.wait(value or "true")
        if value is None:
            self.by_hand(None)


@pytest.fixture
def site(cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    """Brokers whose files say that they shed, without an override before and after the test."""
    found = Site(cluster, tmp_path)
    found.operator_sets(None)
    yield found
    found.end()
    found.operator_sets(None)


def told(process: subprocess.Popen[str]) -> Any:
    """The next line of an observing process."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def killed_and_released(site: Site, before: str | None, kills: int) -> None:
    """Runs and releases that are killed at random moments, in a random order, until a release ends."""
    chance = random.Random(f"{site.cluster.spec.version} {before}")
    while site.left.total() < kills:
        for work in ["run", *chance.choices(["run", "release", "release"], k=chance.randrange(4))]:
            site.killed(work, chance.uniform(0.0, LATEST_KILL_SECONDS), changing=chance.random() < 0.6)
        done = site.lbd("release")

        assert done.returncode == 0, done.stderr
        assert (site.override, site.note.load() is not None) == (before, False), (
            f"{done.stdout} after {dict(site.left)}"
        )
        assert site.wait("true") < 1.0, done.stdout


@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], settings=AS_DELIVERED)
def test_refuse_changes_nothing(site: Site):
    """Exit 4 that names who sheds; no override and no note."""
    done = site.lbd("run", "--once", mode="refuse")

    assert done.returncode == 4, done.stderr
    assert (site.override, site.shedding(), site.note.load() is not None) == (None, ["true"] * 3, False)


@pytest.mark.cluster(versions=CURRENT_VERSIONS, settings=AS_DELIVERED)
def test_taken_over_until_it_is_released(site: Site, tell: Callable[[str], None]):
    """Off on every broker in the first round, again after an operator turned it on, and on a broker that joins."""
    process = site.start("run")
    first = told(process)
    assert (first[:2], site.override, site.shedding()) == ([[], ""], "false", ["false"] * 3)
    site.by_hand("true")
    back = site.wait("false")
    site.cluster.kill_broker(2)
    site.cluster.start_broker(2)
    assert site.shedding() == ["false"] * 3
    refused = site.lbd("release")
    site.end()
    released = site.lbd("release")
    tell(f"first round {first[2]:.2f} s; off again {back:.2f} s after an operator's true; {released.stdout.strip()}")

    assert refused.returncode == 4
    assert "stop it before lbd release" in refused.stderr
    assert (site.override, site.note.load() is not None) == ("true", False)
    assert site.wait("true") < 1.0


@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], settings=AS_DELIVERED)
@pytest.mark.parametrize("before", [None, "true"])
def test_whatever_is_killed_it_comes_back(before: str | None, site: Site, tell: Callable[[str], None]):
    """kill -9 of runs and releases at random moments: a release in the end gives back exactly what was there."""
    site.operator_sets(before)
    killed_and_released(site, before, KILLS)
    tell(f"{site.cluster.spec.version}, override before {before}: {dict(site.left)}")


@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], settings=AS_DELIVERED)
def test_an_operators_false_stays(site: Site):
    """Nothing to take over, so nothing to give back, also after a kill."""
    site.operator_sets("false")
    process = site.start("run")
    assert told(process)[:2] == [[], ""]
    site.end()
    done = site.lbd("release")

    assert done.stdout.startswith("Nothing to give back: ")
    assert (site.override, site.shedding(), site.note.load() is not None) == ("false", ["false"] * 3, False)


@pytest.mark.cluster(versions=["4.2.4", "4.0.8"], settings=AS_DELIVERED)
def test_the_daemon_itself(site: Site):
    """`lbd run` takes over; killed, it leaves shedding off; the next one gives it back at its stop, when told to."""
    config = site.config("take-over")
    site.daemon(config)
    site.wait("false")
    site.turned("taken")
    site.end()
    assert (site.override, site.phase()) == ("false", "taken")
    config.write_text(config.read_text() + "restore_on_stop: true\n")
    second = site.daemon(config)
    site.turned("taken")
    second.terminate()

    assert second.wait(20) == 0
    assert (site.override, site.note.load() is not None) == (None, False)
    assert site.wait("true") < 1.0


@pytest.mark.soak
@pytest.mark.cluster(versions=OTHER_VERSIONS, settings=AS_DELIVERED)
@pytest.mark.parametrize("before", [None, "true"])
def test_whatever_is_killed_on_every_version(before: str | None, site: Site, tell: Callable[[str], None]):
    """The same elsewhere; 2.11 runs on with a deleted override until a restart, unless it is told what to run with."""
    site.operator_sets(before)
    killed_and_released(site, before, KILLS_AT_LENGTH)
    tell(f"{site.cluster.spec.version}, override before {before}: {dict(site.left)}")
