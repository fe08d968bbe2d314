"""A running daemon and the people who steer it: pause, unloads by hand, status, observing, and a stop in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from lbd.files import user_name
from lbd.simulate.faults import Reply
from lbd.store.control import Control, Pause
from tests.builders import state_begun
from tests.daemon.test_service import eventually, journal, running, settings_for
from tests.fake_pulsar import COLD, HOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.daemon.test_service import Daemon
    from tests.fake_pulsar import FakePulsar


def lbd(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    """A command on the daemon's own settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LBD_")}
    command = [sys.executable, "-m", "lbd", *words, "--config", str(daemon.config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean, check=False)


def not_asked_for(daemon: Daemon) -> int:
    """How many moves its turns have told of, in one sentence or in several, that were never sent."""
    return sum(int(number) for line in daemon.notified.heard for number in re.findall(r"(\d+) not asked for", line))


def balanced(pulsar: FakePulsar) -> None:
    """Nothing to do for the strategy."""
    pulsar.sample(40.0, 41.0, 42.0)


def by_hand_only(pulsar: FakePulsar, folder: Path) -> dict[str, Any]:
    """Settings under which the strategy never wants anything."""
    return settings_for(pulsar, folder, avg_shedder={"low_threshold": 95, "high_threshold": 99})


class TestPause:
    def test_a_pause_holds_and_ends_by_a_word(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Said who and why, over a start of lbd too; after it the next new sample moves."""
        Control(state_begun(tmp_path / "state").path).pause(Pause(time.time(), None, "upgrade of the cluster", "ann"))
        with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
            told = daemon.notified.wait_for("STATUS=")
            apart = f"{pulsar.ids[0]} -> {pulsar.ids[2]} are 70.0 points apart"
            assert told == f"STATUS=No move: paused: by ann until lbd resume: upgrade of the cluster; {apart}."
            assert journal(tmp_path) == []
            assert lbd(daemon, "resume").returncode == 0
            pulsar.sample(81.0, 46.0, 11.0)
            daemon.notified.wait_for("STATUS=Begins to move 3 bundles.")
            assert daemon.end() == 0

    def test_a_pause_gives_up_what_was_planned(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The unload in flight ends; what was not begun is told as not sent."""
        settings = settings_for(pulsar, tmp_path)
        settings["guardrails"]["unload_spacing_seconds"] = 600
        with running(tmp_path, settings) as daemon:
            daemon.notified.wait_for("STATUS=Begins to move 3 bundles.")
            eventually(lambda: len(journal(tmp_path)) == 2)
            lbd(daemon, "pause")
            while not_asked_for(daemon) < 2:
                daemon.notified.wait_for("STATUS=")
            daemon.notified.wait_for("STATUS=No move: paused")
        assert [line["event"] for line in journal(tmp_path)] == ["intent", "outcome"]


class TestByHand:
    def test_an_unload_lands_and_says_so(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The daemon does it: same journal, same proof; the cool-down holds for the next one, unless overridden."""
        first, second, third = pulsar.ids
        with running(tmp_path, by_hand_only(pulsar, tmp_path)) as daemon:
            landed = lbd(daemon, "unload", HOT[0], "--apply", "--to", third)
            rests = lbd(daemon, "unload", HOT[0], "--apply", "--to", second)
            pulsar.sample(5.0, 10.0, 81.0)
            passed = lbd(daemon, "unload", HOT[0], "--apply", "--to", first, "--override", "told to")
        assert landed.returncode == 0, landed
        assert f"{HOT[0]}: {first} -> {third}: landed in" in landed.stdout
        assert (rests.returncode, "cool-down" in rests.stdout + rests.stderr) == (4, True), rests
        assert passed.returncode == 0, passed
        assert pulsar.owners[HOT[0]] == first
        assert "overriding limits: told to" in journal(tmp_path)[2]["reason"]

    @pytest.mark.parametrize(
        ("bundle", "to", "code", "words"),
        [
            ("t/n/0x00000000_0x00000001", 0, 2, "is no bundle of t/n"),
            (COLD, 2, 4, "has it already"),
            (HOT[0], 1, 4, "destination-overloaded"),
            (HOT[0], 3, 2, "'b:80' is no active broker"),
        ],
    )
    def test_what_is_not_safe_is_refused(
        self, bundle: str, to: int, code: int, words: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Exit 4, or 2 for a name that the cluster does not know, and the reason; an override does not help."""
        pulsar.sample(80.0, 84.0, 10.0)
        with running(tmp_path, by_hand_only(pulsar, tmp_path)) as daemon:
            done = lbd(daemon, "unload", bundle, "--apply", "--to", [*pulsar.ids, "b:80"][to], "--override", "I insist")
        assert (done.returncode, words in done.stdout + done.stderr) == (code, True), done
        assert pulsar.asked("/unload") == []

    def test_without_a_daemon_the_command_does_it_itself(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The same judgement, journal and proof."""
        with running(tmp_path, by_hand_only(pulsar, tmp_path)) as daemon:
            daemon.notified.wait_for("STATUS=")
            daemon.end()
            landed = lbd(daemon, "unload", HOT[0], "--apply", "--to", pulsar.ids[2])
        assert landed.returncode == 0, landed
        assert pulsar.owners[HOT[0]] == pulsar.ids[2]
        assert [line["event"] for line in journal(tmp_path)] == ["intent", "outcome"]

    def test_a_stop_still_answers_what_is_under_way(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """And refuses what waits behind it: nothing is left for the next start."""
        pulsar.fault("/unload", Reply(204, delay_seconds=8.0), broker=pulsar.ids[0], times=1, after_acting=True)
        with running(tmp_path, by_hand_only(pulsar, tmp_path)) as daemon, ThreadPoolExecutor(1) as pool:
            first = pool.submit(lbd, daemon, "unload", HOT[0], "--apply", "--to", pulsar.ids[2])
            eventually(lambda: bool(pulsar.asked("/unload", "PUT")))
            command = ["-m", "lbd", "unload", HOT[1], "--apply", "--to", pulsar.ids[2], "--config", str(daemon.config)]
            with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True) as second:
                assert second.stderr is not None
                assert second.stderr.readline().startswith("Asked lbd (process ")
                time.sleep(1.0)
                assert daemon.end() == 0
                assert second.wait(30) == 4
            landed = first.result(30)
        assert (landed.returncode, ": landed in " in landed.stdout) == (0, True), landed
        assert pulsar.owners[HOT[1]] == pulsar.ids[0]


class TestBeside:
    def test_turns_go_on_while_a_move_is_under_way(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A broker that closes topics for seconds holds no observing; meanwhile nothing new is planned."""
        pulsar.fault("/unload", Reply(204, delay_seconds=3.0), broker=pulsar.ids[0], times=1, after_acting=True)
        with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
            daemon.notified.wait_for("STATUS=Begins to move 3 bundles.")
            for extra in range(5):
                pulsar.sample(80.0 + extra, 45.0 + extra, 10.0 + extra)
                assert "moves-unfinished: 3 under way" in daemon.notified.wait_for("STATUS=")
            daemon.notified.wait_for("STATUS=Moved")
            eventually(lambda: len(journal(tmp_path)) == 6)
            daemon.end()
        assert [line["event"] for line in daemon.lines()].count("Begins to move 3 bundles.") == 1

    def test_status_shows_the_last_turn(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Of a daemon that runs; afterwards it says that none does."""
        with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
            daemon.notified.wait_for("STATUS=Moved")
            eventually((tmp_path / "state" / "status.json").exists)
            alive = lbd(daemon, "status", "--format", "json")
            daemon.end()
            dead = lbd(daemon, "status")
        told = json.loads(alive.stdout)
        assert alive.returncode == 0, alive.stderr
        assert [broker["id"] for broker in told["brokers"]] == pulsar.ids
        assert dead.returncode == 3

    def test_a_stop_hands_over_what_does_not_end(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A broker that answers never: the process ends in time, and the next start finds the true outcome."""
        pulsar.fault("/unload", Reply(204, delay_seconds=30.0), broker=pulsar.ids[0], after_acting=True)
        quick = (
            "import lbd.daemon.service as s; s.STOP_SECONDS = 1; s.LEAVE_SECONDS = 2; from lbd.cli import main; main()"
        )
        settings = settings_for(pulsar, tmp_path)
        with running(tmp_path, settings, program=("-c", quick)) as daemon:
            daemon.notified.wait_for("STATUS=Begins")
            eventually(lambda: len(journal(tmp_path)) == 1)
            began = time.monotonic()
            assert daemon.end() == 0
            assert time.monotonic() - began < 10
            assert daemon.lines()[-1]["handed_over"] == 1
        (tmp_path / "notify").unlink()
        pulsar.faults.off()
        with running(tmp_path, settings) as daemon:
            eventually(lambda: len(journal(tmp_path)) >= 2)
            assert journal(tmp_path)[1]["result"] == "landed"
            daemon.end()


class TestObserving:
    def test_beside_brokers_that_shed_by_themselves(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """What would move is told all the same, and that it could not be: lbd is tried before anything is changed."""
        for broker in pulsar.brokers:
            broker.runtime["loadBalancerSheddingEnabled"] = "true"
        with running(tmp_path, settings_for(pulsar, tmp_path), words=("--observe",)) as daemon:
            daemon.notified.wait_for("STATUS=Would move 3 bundles.")
            daemon.end()
        assert {one.method for one in pulsar.requests} == {"GET"}
        told = "\n".join(skip for line in daemon.lines() for skip in line.get("skips", ()))
        assert "lbd run would move nothing: " in told

    def test_it_says_once_what_would_move(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Nothing is asked of any broker; the same imbalance is not said again, a new one is."""
        with running(tmp_path, settings_for(pulsar, tmp_path), words=("--observe",)) as daemon:
            daemon.notified.wait_for("STATUS=Would move 3 bundles.")
            for extra in range(1, 4):
                pulsar.sample(80.0 + extra, 45.0 + extra, 10.0 + extra)
                daemon.notified.wait_for("STATUS=No move: observe-only")
            balanced(pulsar)
            daemon.notified.wait_for("STATUS=No move: cluster: balanced")
            pulsar.sample(81.0, 45.0, 9.0)
            daemon.notified.wait_for("STATUS=Would move 3 bundles.")
            daemon.end()
        assert {one.method for one in pulsar.requests} == {"GET"}
        assert journal(tmp_path) == []


class TestApproving:
    def test_nothing_moves_until_somebody_has_applied_the_plan(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A kill -9 drops it: the next start proposes it again, and only then it can be applied."""
        settings = settings_for(pulsar, tmp_path, mode="approve")
        with running(tmp_path, settings) as daemon:
            proposed = daemon.notified.wait_for("STATUS=Proposes to move 3 bundles (plan ")
            name = proposed.removesuffix(".").rpartition(" ")[2]
            eventually(lambda: f"proposal   plan {name}, until " in lbd(daemon, "status").stdout)
            unknown = lbd(daemon, "apply", "01234567")
            daemon.end(signal.SIGKILL)
            gone = json.loads(lbd(daemon, "status", "--format", "json").stdout)
        (tmp_path / "notify").unlink()
        words = f"Refused: plan 01234567 is not known, or has expired; plan {name} waits for approval (lbd plan).\n"
        assert (unknown.returncode, unknown.stdout, gone["proposal"]) == (4, words, None)
        assert (journal(tmp_path), {one.method for one in pulsar.requests}) == ([], {"GET"})
        with running(tmp_path, settings) as daemon:
            pulsar.sample(81.0, 46.0, 11.0)
            assert daemon.notified.wait_for("STATUS=Proposes") == proposed
            landed = lbd(daemon, "apply", name, "--reason", "tonight")
            assert daemon.end() == 0
        assert (landed.returncode, landed.stdout) == (0, "3 moves: 3 landed.\n"), landed
        intents = [line for line in journal(tmp_path) if line["event"] == "intent"]
        assert [line["reason"] for line in intents] == [f"plan {name}, {user_name(os.getuid())}: tonight"] * 3
        assert [line["event"] for line in journal(tmp_path)].count("outcome") == 3


def test_a_clock_that_jumps_begins_the_count_anew(pulsar: FakePulsar, tmp_path: Path):
    """A state directory from the future: counters and averages begin anew, bundles do not rest for years."""
    state = tmp_path / "state"
    state.mkdir()
    future = time.time() + 10 * 365 * 86_400
    (state / "memory.json").write_text(
        json.dumps({"format": 1, "written_at": future, "hits": {pulsar.ids[0]: {"low": 9, "high": 9}}})
    )
    intent = {"event": "intent", "at": future, "move": "m", "bundle": HOT[0], "source": "a", "destination": "b"}
    outcome = {"event": "outcome", "at": future, "move": "m", "result": "landed", "owner": "b", "bundle": HOT[0]}
    (state / "journal.jsonl").write_text(f"{json.dumps(intent)}\n{json.dumps(outcome)}\n")
    with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
        daemon.notified.wait_for("STATUS=Begins")
        assert daemon.end(signal.SIGTERM) == 0
    kept = json.loads((state / "memory.json").read_text())
    assert kept["written_at"] < future
