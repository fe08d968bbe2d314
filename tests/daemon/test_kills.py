"""kill -9 at every step of a turn that moves: nothing is lost, nothing is done twice, every outcome is true."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import pytest

from lbd.act.executor import Executor
from lbd.act.ownership import ActClock
from lbd.act.unload import Unloader
from lbd.api.client import LocalClient
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.store.control import UnloadRequest
from lbd.store.journal import Journal
from lbd.store.status import running
from tests import fake_pulsar, journals
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.model import Outcome, Skip
    from lbd.simulate.answers import Reply, Request
    from tests.fake_pulsar import FakePulsar


@pytest.fixture(scope="module")
def build() -> Iterator[subprocess.Popen[str]]:
    """The process that forks turns; importing lbd once for all of them."""
    command = [sys.executable, "-m", "tests.daemon.killed"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LBD_")}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]


@dataclass
class Scene:
    """A hot cluster, a state directory, and what the brokers really did with unloads."""

    pulsar: FakePulsar
    folder: Path
    build: subprocess.Popen[str]
    released: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    die_at: int | None = None
    child: int = 0

    def watch(self) -> None:
        """Count each bundle that a broker let go, and each request before and after it took effect; kill at one."""
        usual_release, usual_answer = self.pulsar.closed, self.pulsar.reply

        def release(bundle: str) -> bool:
            self.released[bundle] += 1
            return usual_release(bundle)

        def answer(asked: Request) -> Reply:
            self._step()
            reply = usual_answer(asked)
            self._step()
            return reply

        self.pulsar.closed, self.pulsar.reply = release, answer  # type: ignore[method-assign]

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self.die_at:
            os.kill(self.child, signal.SIGKILL)

    def turn(self, die: int | None = None) -> int:
        """One turn in a process of its own; its exit code, -9 when it was killed."""
        self._begin(die, serves=False)
        return int(_pipe(self.build.stdout).readline())

    def command(self, die: int | None = None) -> tuple[int, dict[str, Any]]:
        """One unload that a process of its own is sent through its socket; its exit code, and what the client got."""
        self._begin(die, serves=True)
        until = time.monotonic() + 60
        while running(self.folder) is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        wanted = UnloadRequest("r", fake_pulsar.HOT[0], self.pulsar.ids[2], None, "ann", 0.0, 60.0)
        found = LocalClient(self.folder, "lbd").command(wanted)
        return int(_pipe(self.build.stdout).readline()), found

    def _begin(self, die: int | None, *, serves: bool) -> None:
        settings = {
            "pulsar": {"admin_urls": self.pulsar.urls, "read_timeout_seconds": LIMIT_SECONDS},
            "state_dir": str(self.folder),
            "avg_shedder": {"hit_count_high": 1, "hit_count_low": 1},
            "guardrails": {"max_traffic_per_turn": 1.0, "membership_settle_seconds": 0, "unload_spacing_seconds": 0},
            "api": {"enabled": False},
        }
        with self.pulsar.lock:
            _pipe(self.build.stdin).write(json.dumps({"settings": settings, "die": die, "serves": serves}) + "\n")
            _pipe(self.build.stdin).flush()
            self.child = int(_pipe(self.build.stdout).readline())

    def recover(self) -> list[Outcome | Skip]:
        """The next start, so much later that no broker can still be closing topics."""
        told: list[Outcome | Skip] = []
        journal = Journal(self.folder / "lbd.db", time.time)
        executor = Executor(journal, lambda: time.time() + 100, told.append)
        admin = Admin(PulsarSettings(admin_urls=tuple(self.pulsar.urls)))
        executor.recover(lambda: Unloader(admin, ActClock(time.monotonic, time.sleep)), 10)
        assert executor.unfinished == ()
        journal.close()
        return told


def _pipe(found: IO[str] | None) -> IO[str]:
    assert found is not None
    return found


@contextmanager
def scene(folder: Path, build: subprocess.Popen[str], thieves: tuple[int, ...] = ()) -> Iterator[Scene]:
    """Eight hot bundles of which three will be moved; clients pull the first ones to these brokers."""
    with fake_pulsar.hot_broker() as pulsar:
        for bundle in fake_pulsar.HOT:
            pulsar.steals[bundle] = [pulsar.ids[thief] for thief in thieves]
        found = Scene(pulsar, folder, build)
        found.watch()
        yield found


def entries(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Intents and outcomes of the journal, by move."""
    found: dict[str, dict[str, Any]] = {"intent": {}, "outcome": {}}
    for entry in journals.entries(folder):
        if entry["event"] in found:
            assert entry["move"] not in found[entry["event"]], "told twice"
            found[entry["event"]][entry["move"]] = entry
    return found["intent"], found["outcome"]


def check(seen: Scene) -> None:
    """What must hold after any kill and the next start."""
    intents, outcomes = entries(seen.folder)
    assert intents.keys() == outcomes.keys(), "an intent without its outcome"
    asked = Counter(intent["bundle"] for intent in intents.values())
    for bundle, times in seen.released.items():
        assert times <= asked[bundle], f"{bundle} was unloaded {times} times for {asked[bundle]} intents"
    last = {intents[move]["bundle"]: outcome for move, outcome in outcomes.items()}
    for bundle, outcome in last.items():
        assert outcome["owner"] == seen.pulsar.owners[bundle], f"{bundle}: told {outcome['owner']}"
        assert outcome["result"] in {"landed", "landed-elsewhere", "failed"}
    assert None not in seen.pulsar.owners.values(), "a bundle that nobody owns"
    for bundle, noted in seen.pulsar.affinity.items():
        assert noted in {seen.pulsar.owners[bundle], last[bundle].get("noted")}, "a note that nobody is told of"


def test_the_turn_itself(build: subprocess.Popen[str], tmp_path: Path):
    """Without a kill three bundles land, so there is something to kill."""
    with scene(tmp_path, build) as seen:
        assert seen.turn() == 0
        assert sum(seen.released.values()) == 3
        assert seen.recover() == []
        check(seen)


def _kills(number: int) -> pytest.MarkDecorator:
    return pytest.mark.security("SIGKILL at requests of a move: every intent gets its true outcome", cases=number)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("thieves", "every", "kills"),
    [
        pytest.param((), 2, 25, id="landing", marks=_kills(25)),
        pytest.param((0,), 6, 25, id="coming back", marks=_kills(25)),
        pytest.param((1,), 2, 25, id="pulled elsewhere", marks=_kills(25)),
    ],
)
def test_killed_at_requests(
    thieves: tuple[int, ...], every: int, kills: int, build: subprocess.Popen[str], tmp_path: Path
):
    """Before or after requests of the moves take effect at a broker; nights (``tests/nights``) kill at any step."""
    with scene(tmp_path / "whole", build, thieves) as seen:
        assert seen.turn() == 0
        steps = seen.steps
        first = 2 * next(at for at, one in enumerate(seen.pulsar.requests) if "topicHashPositions" in one.path)
    killed = 0
    for step in range(first + 1, steps + 1, every):
        with scene(tmp_path / str(step), build, thieves) as seen:
            seen.die_at = step
            killed += seen.turn() == -signal.SIGKILL
            seen.die_at = None
            seen.recover()
            check(seen)
    assert killed >= kills


@pytest.mark.security("SIGKILL within each write of the journal: every intent gets its true outcome", cases=6)
def test_killed_within_every_write_of_the_journal(build: subprocess.Popen[str], tmp_path: Path):
    """Only a process shows this: to a night (``tests/nights``) a write is one step."""
    for number in range(1, 7):
        with scene(tmp_path / str(number), build) as seen:
            assert seen.turn(number) == -signal.SIGKILL
            seen.recover()
            check(seen)


def check_command(seen: Scene, found: dict[str, Any]) -> None:
    """What must hold of a command after any kill and the next start: nothing twice, and what is told is true."""
    intents, outcomes = entries(seen.folder)
    bundle, wanted = fake_pulsar.HOT[0], seen.pulsar.ids[2]
    assert len(intents) <= 1, "executed twice"
    assert seen.released[bundle] <= len(intents)
    assert found["exit_code"] in {0, 5}, found
    if found["exit_code"] == 0:
        assert (seen.pulsar.owners[bundle], [one["result"] for one in outcomes.values()]) == (wanted, ["landed"])
    else:
        assert "see lbd history" in found["sentence"], found
    check(seen)


@pytest.mark.soak
@pytest.mark.security("SIGKILL at requests of a command: not executed twice, its caller learns where to look", cases=9)
def test_a_command_killed_at_every_request(build: subprocess.Popen[str], tmp_path: Path):
    """Before or after each request to a broker takes effect, from the first look to the proof."""
    with scene(tmp_path / "whole", build) as seen:
        code, found = seen.command()
        assert (code, found["exit_code"], found["owner"]) == (0, 0, seen.pulsar.ids[2]), found
        check_command(seen, found)
        steps = seen.steps
    killed = 0
    for step in range(1, steps + 1, max(steps // 12, 1)):
        with scene(tmp_path / str(step), build) as seen:
            seen.die_at = step
            code, found = seen.command()
            killed += code == -signal.SIGKILL
            seen.die_at = None
            seen.recover()
            check_command(seen, found)
    assert killed >= 9


@pytest.mark.security("SIGKILL within the journal's writes of a command: not executed twice, never lost", cases=2)
def test_a_command_killed_within_every_write_of_the_journal(build: subprocess.Popen[str], tmp_path: Path):
    """The intent is on disk before the request, the outcome before the answer; the client learns where to look."""
    for number in (1, 2):
        with scene(tmp_path / str(number), build) as seen:
            code, found = seen.command(number)
            assert (code, found["exit_code"]) == (-signal.SIGKILL, 5), found
            seen.recover()
            check_command(seen, found)
