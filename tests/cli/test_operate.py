"""What people on call do with a running lbd: what they are told, JSON, exit codes, and never a stack trace."""

from __future__ import annotations

import json
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import timedelta, timezone
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.cli import main
from lbd.cli.options import duration
from lbd.cli.status_text import common_end
from lbd.files import user_name
from lbd.model import BundleClients, Outcome, Unload
from lbd.model import Result as Ended
from lbd.permit.budget import LastHour
from lbd.permit.served import ServiceResult
from lbd.reason import Reason
from lbd.remedy import next_step
from lbd.store.control import Control, Pause, RequestResult, Resumption, UnloadRequest
from lbd.store.database import STORE_NAME, value
from lbd.store.drains import Drain, Drains
from lbd.store.journal import Journal
from lbd.store.orders import ORDERS
from lbd.store.shared import SharedOrders
from lbd.store.state import StateDir
from lbd.store.status import BrokerStatus, HitStatus, PairStatus, Status, UnfinishedStatus, write_status
from lbd.store.turn_record import Verdict
from lbd.store.turns import ReportedBundles, save_bundles
from lbd.text import duration_text, local, zone_names, zoned
from tests.builders import put_value
from tests.cli.conftest import lbd
from tests.disks import small_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


BUNDLES = [f"shop/orders/0x{number << 28:08x}_0x{(number + 1) << 28:08x}" for number in range(8)]
B1, B2, B3 = (f"broker-{number}.pulsar.svc.cluster.local:8080" for number in (1, 2, 3))

_JSON = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(st.integers())


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LBD_") or name == "SUDO_USER"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LBD_STATE_DIR", str(tmp_path))


RESUME = "When the work is done, let lbd go on: `lbd resume`"


def told(folder: Path, age_seconds: float = 4.0, **changes: Any) -> Status:
    """The status that a daemon in this process wrote so long ago."""
    at = time.time() - age_seconds
    values: dict[str, Any] = {
        "pid": os.getpid(),
        "version": "0.1.0",
        "at": at,
        "interval_seconds": 15.0,
        "next_turn_at": at + 15,
        "turns": 1234,
        "cluster": "prod",
        "sentence": "No move: balanced.",
        "requests": 31,
        "seconds": 0.42,
        "gap_points": 12.3,
        "last_hour": LastHour(12, 11, 14),
    }
    found = Status(**{**values, **changes})
    write_status(folder, found)
    return found


def _spoilt(key: str, value: object) -> bytes:
    """A status in which one field is of another kind, or of another time."""
    values = {"pid": 1, "version": "", "at": time.time(), "interval_seconds": 15, "next_turn_at": 0, "turns": 0}
    return json.dumps({**values, "cluster": "c", "sentence": "No move.", key: value}).encode()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """The state directory, held by this process as a daemon holds it."""
    with StateDir(tmp_path).locked():
        yield tmp_path


class TestStatus:
    def test_all_is_well(self, daemon: Path) -> None:
        """Exit 0, the heading and the last sentence."""
        told(daemon)
        found = lbd("status")
        assert (found.exit_code, found.stderr) == (0, "")
        first, *rest = found.stdout.splitlines()
        assert first.startswith(f"lbd        running, process {os.getpid()}, version 0.1.0, cluster prod: last turn ")
        assert rest == [
            "mode       auto: lbd moves bundles by itself",
            "last turn  No move: balanced.",
            "gap        12.3 points between the highest and the lowest score",
            "last hour  12 moves of 11 bundles, 14 attempts",
            "turns      1,234; the last one made 31 requests in 0.42 s",
        ]

    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ("interval_second: 15", "interval_second: no such setting; did you mean interval_seconds?"),
            ("weights: {cpu: much}", "weights.cpu: 'much': "),
            ("weights: {cpu: 0, bandwidth_in: 0, bandwidth_out: 0}", "every broker would score 0 points"),
            ("split: [", "not YAML"),
        ],
    )
    def test_wrong_settings_hide_no_lbd(self, line: str, problem: str, daemon: Path, tmp_path: Path) -> None:
        """It goes on with those that it read before: what is wrong is said, and then what it does."""
        told(daemon)
        file = tmp_path / "lbd.yaml"
        file.write_text(f"state_dir: {daemon}\n{line}\n", encoding="utf-8")
        for command in ("status", "history", "explain"):
            found = lbd(command, "--config", file)
            assert found.exit_code == lbd(command).exit_code
            assert found.stderr.startswith(f"{file}: ")
            assert problem in found.stderr
            assert (
                f"left out here, where state_dir is {daemon}; an lbd that runs keeps the settings that it has\n"
                in found.stderr
            )
        assert lbd("status", "--config", file).stdout.startswith("lbd        running, ")
        assert lbd("dry-run", "--config", file).exit_code == 2

    def test_the_verdict_stands_below_the_sentence(self, daemon: Path) -> None:
        """In words for a person, in parts for a program."""
        told(daemon, turn=7, verdict=Verdict("not-fixable", "too-large", "a -> b 37.0 points apart"))
        lines = lbd("status").stdout.splitlines()
        assert lines[3] == "verdict    no move possible, too-large: a -> b 37.0 points apart"
        found = json.loads(lbd("status", "--format", "json").stdout)
        assert found["turn"] == 7
        assert found["verdict"] == {
            "kind": "not-fixable",
            "reason": "too-large",
            "detail": "a -> b 37.0 points apart",
            "samples": None,
        }

    def test_everything_at_once(self, daemon: Path) -> None:
        """Pause, hold, error, warnings, moves under way, brokers with bars, pairs with hits."""
        now = time.time()
        Control(daemon).pause(Pause(now - 1080, now + 4330, "broker upgrade", "alice"))
        told(
            daemon,
            hold="paused",
            observe_only=True,
            mode="observe",
            error="the cluster is gone",
            warnings=["3 lines cannot be read"],
            brokers=[
                BrokerStatus(B2, None, None, None, None, 4),
                BrokerStatus(B1, 83.7, "bandwidth_in", 6215, 1.8e6, 24),
            ],
            pairs=[PairStatus(B1, B2, 37.0, HitStatus(3, 8, 1, 2))],
            unfinished=[
                UnfinishedStatus(BUNDLES[0], B1, B2, now - 3),
                UnfinishedStatus(BUNDLES[1], B1, None, 0.0),
            ],
        )
        found = lbd("status")
        lines = found.stdout.splitlines()
        assert found.exit_code == 0
        assert lines[2].startswith("PAUSED     until ")
        assert lines[2].endswith(" (18 min): broker upgrade")
        assert " (ends in 1 h 12 min), by alice since " in lines[2]
        assert lines[1] == "mode       observe: lbd says what it would move, and moves nothing"
        assert lines[3:14] == [
            "hold       paused: nothing new is moved while it lasts",
            "last turn  No move: balanced.",
            f"to do      {RESUME}; or wait about 1 h 12 min: lbd goes on when the pause ends",
            "error      the cluster is gone",
            "warning    3 lines cannot be read",
            "gap        12.3 points between the highest and the lowest score",
            "last hour  12 moves of 11 bundles, 14 attempts",
            "turns      1,234; the last one made 31 requests in 0.42 s",
            f"under way  {BUNDLES[0]} {B1} -> {B2}, for 3 s",
            f"under way  {BUNDLES[1]} {B1} -> (the broker chooses), waits for its turn",
            "",
        ]
        hot, cold = lines[15:17]
        assert hot.split() == [B1, "83.7", "█" * 17 + "···", "bandwidth", "in", "6,215", "1.8", "24"]
        assert cold.split() == [B2, "?", "·" * 20, "-", "?", "?", "4"]
        assert lines[-1].split(maxsplit=4) == [B1, "->", B2, "37.0", "low 3 of 8, high 1 of 2"]

    def test_json(self, daemon: Path) -> None:
        """The file's content and what else there is to know; nothing beside it on stdout."""
        status = told(daemon, brokers=[BrokerStatus(B1, 83.7, "cpu", 6215, 1.8e6, 24)])
        Control(daemon).pause(Pause(status.at, None, "", "alice"))
        found = json.loads(lbd("status", "--format", "json").stdout)
        own = {**msgspec.to_builtins(status), "steps": found["steps"]}
        assert found.items() >= own.items()
        assert found["todo"] == [RESUME]
        assert [step["reason"] for step in found["steps"]] == ["paused"]
        assert (found["running"], found["late"], found["paused"]["by"]) == (os.getpid(), False, "alice")
        assert found["age_seconds"] >= 4

    @pytest.mark.parametrize("form", ["text", "json"])
    @pytest.mark.parametrize(
        ("age_seconds", "words"),
        [(95, "last turn 95 s ago, wanted every 15 s"), (-95, "ahead of this clock (was it set back?)")],
    )
    def test_a_late_turn_is_loud(
        self, age_seconds: float, words: str, form: str, daemon: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Exit 3 and one line on stderr, beside all that is known."""
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now)
        told(daemon, age_seconds)
        found = lbd("status", "--format", form)
        assert found.exit_code == 3
        assert found.stderr.startswith(f"Error: lbd (process {os.getpid()}): last turn 9")
        assert found.stderr.endswith(f"{words}\n")
        assert len(found.stderr.splitlines()) == 1
        assert "No move: balanced." in found.stdout

    def test_a_full_disk_is_why_a_turn_is_late(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The turns go on, move nothing, and cannot be written down: what is shown is of before."""
        with small_disk(tmp_path, 256) as disk, StateDir(disk).locked():
            monkeypatch.setenv("LBD_STATE_DIR", str(disk))
            told(disk, 95)
            with (disk / "ballast").open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(b"x" * 512)
            found = lbd("status")
        assert found.exit_code == 3
        words = f"{disk} has no space left, so later turns cannot be shown: see lbd's log\n"
        assert found.stderr.endswith(f"wanted every 15 s; {words}")

    @pytest.mark.parametrize(
        ("age_seconds", "first"),
        [(4, "running, process "), (25, "running, process "), (76, "LATE, process ")],
    )
    def test_a_late_one_does_not_begin_with_running(self, age_seconds: float, first: str, daemon: Path) -> None:
        """Nor does a turn that is due come in 0 s."""
        told(daemon, age_seconds)
        line = lbd("status").stdout.splitlines()[0]
        assert line.startswith(f"lbd        {first}")
        assert ("next in " in line, "next due " in line) == (age_seconds < 15, 15 < age_seconds < 45)

    def test_it_is_watched(self, daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Shown again and again until Ctrl-C, which is no failure; also while no lbd answers in time."""
        looks = iter([4, 400])

        def next_look(_: float) -> None:
            age = next(looks, None)
            if age is None:
                raise KeyboardInterrupt
            told(daemon, age)

        told(daemon)
        monkeypatch.setattr("lbd.cli.status.time.sleep", next_look)
        found = lbd("status", "--watch")
        assert found.exit_code == 0
        assert found.stdout.count("last turn  No move: balanced.") == 3
        assert "wanted every 15 s" in found.stderr
        assert lbd("status", "--watch", "--format", "json").exit_code == 2

    @pytest.mark.parametrize("form", ["text", "json"])
    def test_none_runs(self, form: str, tmp_path: Path) -> None:
        """Exit 3 however fresh the file is."""
        told(tmp_path, 1.0)
        found = lbd("status", "--format", form)
        assert found.exit_code == 3
        assert found.stderr.startswith(f"Error: {tmp_path}: no lbd runs on this state directory; last turn 1 s ago")
        assert ("NOT RUNNING" in found.stdout) is (form == "text")

    def test_what_a_killed_one_left_open(self, tmp_path: Path) -> None:
        """The journal knows what was asked for; what waited for its turn never was."""
        first, second = (UnfinishedStatus(bundle, B1, B2, 0.0) for bundle in BUNDLES[:2])
        with closing(Journal(tmp_path / "lbd.db", time.time)) as journal:
            journal.intend(Unload(first.bundle, B1, B2, 1.0, 1.0), 1)
        told(tmp_path, unfinished=[first, second])
        found, shown = lbd("status"), json.loads(lbd("status", "--format", "json").stdout)
        assert f"left open  {first.bundle} {B1} -> {B2}: the next start of lbd resolves it" in found.stdout
        assert second.bundle not in found.stdout
        assert [one["bundle"] for one in shown["unfinished"]] == [first.bundle]

    def test_a_journal_that_cannot_be_read_does_not_hide_the_status(self, tmp_path: Path) -> None:
        """It is said, beside all that is known."""
        told(tmp_path)
        (tmp_path / "lbd.db").mkdir()
        found = lbd("status")
        assert (found.exit_code, "No move: balanced." in found.stdout) == (3, True)
        assert "warning    what it left open is not known: " in found.stdout

    def test_a_restarted_one_that_has_not_turned_yet(self, daemon: Path) -> None:
        """The file is another process's."""
        told(daemon, 95, pid=1)
        found = lbd("status")
        assert found.exit_code == 3
        words = f"last turn 95 s ago, by process 1: process {os.getpid()} has ended none yet, wanted every 15 s"
        assert words in found.stderr

    def test_none_ever_ran(self, tmp_path: Path) -> None:
        """Exit 3, as for one that has ended: which directory, and how to name another."""
        found = lbd("status", "--format", "json")
        assert (found.exit_code, found.stdout) == (3, "")
        assert found.stderr.startswith(f"Error: {tmp_path}: no lbd run has ended a turn on this state directory")

    def test_the_first_turn_is_under_way(self, daemon: Path) -> None:
        """One runs and has told nothing: exit 3, not wrong usage."""
        found = lbd("status")
        assert found.exit_code == 3
        assert found.stderr.startswith(f"Error: lbd (process {os.getpid()}) runs, but {daemon}: no lbd run")

    def test_control_characters_do_not_reach_the_terminal(self, daemon: Path) -> None:
        """Nor do markup and line ends."""
        told(
            daemon, sentence="No\x1b[31m move\n[bold]: \x07", brokers=[BrokerStatus("b\x1b1", 1.0, "c\x07pu", 1, 1, 1)]
        )
        found = lbd("status")
        assert "last turn  No [31m move [bold]:" in found.stdout
        assert "\x1b" not in found.stdout
        assert "\x07" not in found.stdout

    @settings(max_examples=50)
    @given(st.binary() | st.builds(_spoilt, st.sampled_from(Status.__struct_fields__), _JSON))
    def test_junk_is_told_in_one_line(self, content: bytes) -> None:
        """Exit 0, 2 or 3, whatever stands in the files."""
        with tempfile.TemporaryDirectory() as name, StateDir(Path(name)).locked():
            (Path(name) / "status.json").write_bytes(content)
            put_value(Path(name), ORDERS, content)
            found = CliRunner().invoke(main, ["status"], env={"LBD_STATE_DIR": name}, catch_exceptions=False)
            assert found.exit_code in {0, 2, 3}
            assert len(found.stderr.splitlines()) == (found.exit_code != 0)


class TestPause:
    @pytest.mark.usefixtures("daemon")
    def test_without_end(self, tmp_path: Path) -> None:
        """Who and until when; the file says the same."""
        found = lbd("pause", "--reason", "broker\nupgrade \x1b")
        pause = Control(tmp_path).paused(time.time())
        assert pause is not None
        assert (pause.until, pause.reason) == (None, "broker upgrade")
        assert found.stdout == f"Paused until lbd resume, by {pause.by}: broker upgrade.\n"
        assert found.exit_code == 0

    @pytest.mark.usefixtures("daemon")
    def test_for_a_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It ends by itself; behind sudo the person is named."""
        monkeypatch.setenv("SUDO_USER", "alice")
        found = lbd("pause", "--for", "1h30m")
        pause = Control(tmp_path).paused(time.time())
        assert pause is not None
        assert pause.until == pause.since + 5400
        assert found.stdout == f"Paused until {zoned(pause.until)} (ends in 1 h 30 min), by alice.\n"

    def test_where_several_share_orders_and_none_runs_here(self, tmp_path: Path) -> None:
        """A pause is added for when this lbd leads; what the leader published only the leader ends."""
        config, orders = tmp_path / "lbd.yaml", SharedOrders(tmp_path, time.time)
        config.write_text(
            f"state_dir: {tmp_path}\nleader: {{enabled: true}}\npulsar: {{service_url: 'pulsar://127.0.0.1:1'}}\n"
        )
        orders.lead(lambda _: None)
        Control(tmp_path, orders).pause(Pause(1.0, None, "upgrade", "bob"))
        Drains(tmp_path, orders).begin(Drain("b:80", 1.0, None, "bob"))
        words = "several lbds share their orders (leader.enabled), and none runs here: only the leader takes orders"
        for command in (["resume"], ["drain", "b:80", "--release"]):
            found = lbd("--config", str(config), *command)
            assert (found.exit_code, found.stderr) == (4, f"Error: {words}\n")
        assert lbd("--config", str(config), "pause", "--for-next", "--for", "1h").exit_code == 0
        assert Control(tmp_path).paused(time.time()) == Pause(1.0, None, "upgrade", "bob")
        assert [drain.broker for drain in Drains(tmp_path).all()] == ["b:80"]

    @pytest.mark.usefixtures("daemon")
    def test_again(self, tmp_path: Path) -> None:
        """It replaces, and says what."""
        Control(tmp_path).pause(Pause(time.time() - 600, None, "upgrade", "bob"))
        found = lbd("pause", "--for", "2h")
        assert "\nThis replaces the pause until lbd resume, by bob since " in found.stdout
        assert found.stdout.endswith(" (10 min): upgrade.\n")

    def test_without_a_daemon(self, tmp_path: Path) -> None:
        """Exit 3 and no pause, unless it is for the next one.

        The directory is not made: one that lbd does not use would hold nothing.
        """
        config = _config(tmp_path, tmp_path / "new")
        refused = lbd("--config", config, "pause", "--for-next")
        assert (refused.exit_code, "there is no such directory; lbd run makes it" in refused.stderr) == (2, True)
        (tmp_path / "new").mkdir()
        found = lbd("--config", config, "pause")
        told = "no lbd runs on this state directory, and nothing was paused; --for-next pauses the next one"
        assert (found.exit_code, found.stderr) == (3, f"Error: {tmp_path / 'new'}: {told}\n")
        assert Control(tmp_path / "new").paused(time.time()) is None
        found = lbd("--config", config, "pause", "--for-next")
        assert found.exit_code == 0
        assert found.stdout.endswith(f"No lbd is running on {tmp_path / 'new'}; the pause holds for the next one.\n")
        assert Control(tmp_path / "new").paused(time.time()) is not None

    def test_json(self, tmp_path: Path) -> None:
        """JSON on stdout, words on stderr."""
        Control(tmp_path).pause(Pause(1.0, None, "old", "bob"))
        found = lbd("pause", "--for-next", "--format", "json")
        shown = json.loads(found.stdout)
        assert (shown["replaced"]["reason"], shown["paused"]["until"], shown["running"]) == ("old", None, None)
        assert "Paused until lbd resume" in found.stderr

    @pytest.mark.parametrize(
        "words",
        ["", "2", "h", "-2h", "2 h", "1.5h", "30m1h", "2h2h", "0s", "0h0m", "3651d", "9" * 30 + "s", "²h", "1w"],
    )
    def test_no_duration(self, words: str, tmp_path: Path) -> None:
        """Exit 2, what was seen and what would be right; nothing is paused."""
        found = lbd("pause", "--for", words)
        assert found.exit_code == 2
        assert f"{words!r} is no duration; wanted 90s, 15m, 2h, 1d, 1h30m" in " ".join(found.stderr.split("\n"))
        assert Control(tmp_path).paused(time.time()) is None

    def test_a_directory_that_cannot_be_written(self, tmp_path: Path) -> None:
        """Exit 2 and its name."""
        (tmp_path / "file").write_text("", encoding="utf-8")
        found = lbd("--config", _config(tmp_path, tmp_path / "file"), "pause", "--for-next")
        assert found.exit_code == 2
        assert found.stderr.startswith(f"Error: {tmp_path / 'file' / 'lock'}: cannot be read")


class TestResume:
    def test_it_says_what_ended(self, daemon: Path) -> None:
        """Whose pause, and why it was."""
        until = time.time() + 600
        Control(daemon).pause(Pause(until - 1200, until, "upgrade", "bob"))
        found = lbd("resume")
        assert found.stdout.startswith(f"Ended the pause until {zoned(until)}, by bob since ")
        assert found.stdout.endswith(" (10 min): upgrade.\n")
        assert Control(daemon).paused(time.time()) is None

    @pytest.mark.usefixtures("daemon")
    def test_nothing_was_paused(self) -> None:
        """Exit 0 all the same."""
        found = lbd("resume")
        assert (found.exit_code, found.stdout) == (0, "Nothing was paused.\n")

    def test_what_is_not_served_is_passed(self, daemon: Path) -> None:
        """From now on, and not what is found out later; a restart of lbd changes nothing."""
        before = time.time()
        told(daemon, ended_by_resume=["not-served of t/n: lbd goes on, though clients are not back"])
        found = lbd("resume", "--reason", "they are test clients")
        ended = "Ended the hold not-served of t/n: lbd goes on, though clients are not back.\n"
        assert (found.exit_code, found.stdout) == (0, ended)
        resumed = Control(daemon).resumed
        assert resumed is not None
        assert before <= resumed.time <= time.time()
        assert resumed.reason == "they are test clients"

    def test_the_status_shows_for_an_hour_who_resumed_and_why(self, daemon: Path) -> None:
        """Whoever comes next wonders why lbd moves again."""
        for minutes, shown in ((59, True), (61, False)):
            told(daemon, resumed=Resumption(time.time() - minutes * 60, "ann", "upgrade is done"))
            assert (f"resumed    {minutes} min ago by ann: upgrade is done\n" in lbd("status").stdout) is shown

    def test_the_status_and_doctor_name_no_hold_that_has_ended(self, daemon: Path) -> None:
        """Until the next turn, which may take a minute: who resumed asks at once whether it helped."""
        told(daemon, hold="paused", verdict=Verdict("blocked", "paused"), steps=[next_step(Reason.PAUSED)])
        lbd("resume", "--reason", "upgrade is done")
        found = lbd("status").stdout
        assert "\nhold " not in found
        assert "\nverdict    waiting: what held the last turn has ended; the next turn decides\n" in found
        assert "upgrade is done\n" in found
        assert "blocked" not in lbd("doctor").stdout

    def test_it_had_ended_by_itself(self, daemon: Path) -> None:
        """And that is said."""
        Control(daemon).pause(Pause(time.time() - 900, time.time() - 600, "upgrade", "bob"))
        found = lbd("resume")
        assert found.stdout.startswith("Nothing was paused: the pause until ")
        assert " (ended 10 min ago), by bob since " in found.stdout

    def test_junk_is_cleared(self, daemon: Path) -> None:
        """What counted as a pause counts no more."""
        Control(daemon).pause(Pause(1.0, None, "", "bob"))
        put_value(daemon, ORDERS, b"\xff")
        found = lbd("resume")
        assert found.exit_code == 0
        assert "the orders cannot be read" in found.stdout
        assert Control(daemon).paused(time.time()) is None

    def test_json_without_a_daemon(self, tmp_path: Path) -> None:
        """JSON on stdout, words on stderr."""
        found = lbd("resume", "--format", "json")
        assert json.loads(found.stdout) == {"ended": None, "holds": [], "running": None}
        assert found.stderr == f"Nothing was paused.\nNo lbd is running on {tmp_path}.\n"


SERVE = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from lbd.api.published import Board
from lbd.api.server import Server, listen_locally
from lbd.config import Settings
from lbd.model import Result
from lbd.operations.requests import Requests
from lbd.store.control import RequestResult
from lbd.store.orders import Orders
from lbd.store.state import StateDir
folder, code, result = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
requests = Requests()

def ask(request, gone):
    if code < 0:
        requests.on_new = lambda: (requests.next(0.0) if code == TAKEN else None, (folder / "came").touch())
        found = requests.ask(request, gone)
        (folder / "fresh").write_text(str(requests.next(0.0)))
        (folder / "fresh").rename(folder / "left")
        return found
    sentence = f"{request.bundle} to {request.destination} for {request.by}, {request.override}."
    return RequestResult(code, sentence, Result(result) if result else None, "b2", request.id), False

backend = SimpleNamespace(
    ask=ask, board=Board(), settings=Settings(), state_dir=folder, orders=Orders(folder), now=time.time
)
with StateDir(folder).locked():
    server = Server(backend, listen_locally(folder / "lbd.sock"), local=True)
    print("held", flush=True)
    time.sleep(600)
"""
TAKEN, WAITS = -1, -2
"""What becomes of a request that is not answered."""


@contextmanager
def serving(folder: Path, code: int, result: str = "") -> Iterator[int]:
    """A process that answers commands like this, or never."""
    command = [sys.executable, "-c", SERVE.replace("TAKEN", str(TAKEN)), str(folder), str(code), result]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            yield process.pid
        finally:
            process.kill()


def until(path: Path) -> str:
    """The content of a file, as soon as there is one."""
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return path.read_text()


class TestUnload:
    @pytest.mark.parametrize("code", [0, 4, 5])
    def test_a_running_lbd_answers(self, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its sentence on stdout, its exit code; the kernel names the user, and root may name another."""
        monkeypatch.setenv("SUDO_USER", "alice")
        user = "alice" if os.geteuid() == 0 else user_name(os.geteuid())
        with serving(tmp_path, code, "landed") as pid:
            found = lbd("unload", BUNDLES[0], "--apply", "--to", "b3:8080", "--override", "ticket 7")
        assert found.exit_code == code
        assert found.stdout == f"{BUNDLES[0]} to b3:8080 for {user}, ticket 7.\n"
        assert found.stderr == f"Asked lbd (process {pid}); waiting up to 2 min for its answer.\n"

    def test_json(self, tmp_path: Path) -> None:
        """The answer as it is."""
        with serving(tmp_path, 5, "landed-elsewhere"):
            found = lbd("unload", BUNDLES[0], "--apply", "--to", "b3:8080", "--format", "json")
        shown = json.loads(found.stdout)
        assert shown.keys() == {"exit_code", "sentence", "result", "owner", "id"}
        assert (shown["exit_code"], shown["result"], shown["owner"]) == (5, "landed-elsewhere", "b2")
        assert shown["sentence"] in found.stderr

    def test_no_answer_in_time(self, tmp_path: Path) -> None:
        """Exit 5; it is under way and may yet be done."""
        with serving(tmp_path, TAKEN):
            found = lbd("unload", BUNDLES[0], "--apply", "--to", "b3:8080", "--timeout", 1)
        assert found.exit_code == 5
        assert found.stdout == "No answer within 1 s: it is under way, see /v1/moves, or lbd history.\n"

    def test_nobody_took_it(self, tmp_path: Path) -> None:
        """Exit 5; it was withdrawn and is never done."""
        with serving(tmp_path, WAITS):
            found = lbd("unload", BUNDLES[0], "--apply", "--to", "b3:8080", "--timeout", 1)
            assert until(tmp_path / "left") == "None"
        assert found.exit_code == 5
        assert found.stdout == "No answer within 1 s: nothing was begun.\n"

    def test_interrupted(self, tmp_path: Path) -> None:
        """Ctrl-C withdraws it, too."""
        command = [
            "env",
            "--default-signal=INT",
            sys.executable,
            "-m",
            "lbd",
            "unload",
            BUNDLES[0],
            "--apply",
            "--to",
            "b3:8080",
        ]
        with (
            serving(tmp_path, WAITS),
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        ):
            until(tmp_path / "came")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert until(tmp_path / "left") == "None"

    def test_an_lbd_that_is_killed_meanwhile(self, tmp_path: Path) -> None:
        """Exit 5, at once, with where the truth is: nobody knows whether it was begun."""
        with serving(tmp_path, TAKEN) as pid, ThreadPoolExecutor(1) as pool:
            asked = pool.submit(lbd, "unload", BUNDLES[0], "--apply", "--to", "b3:8080")
            until(tmp_path / "came")
            os.kill(pid, signal.SIGKILL)
            found = asked.result(30)
        assert found.exit_code == 5
        assert found.stdout == (
            f"lbd (process {pid}) ended the connection before it answered: "
            "the unload may be done or under way, see lbd history.\n"
        )

    def test_one_that_accepts_no_commands(self, daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Exit 4 and what it may be, instead of waiting."""
        monkeypatch.setattr("lbd.api.client.START_SECONDS", 0.3)
        found = lbd("unload", BUNDLES[0], "--apply", "--to", "b3:8080")
        assert found.exit_code == 4
        assert f"{daemon}: lbd (process {os.getpid()}) accepts no commands at lbd.sock: it is a command" in found.stderr

    def test_without_a_daemon(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """This process does it, with the same answer."""
        from lbd.daemon import standalone as byhand

        asked: list[UnloadRequest] = []

        @contextmanager
        def working(settings: Any) -> Iterator[Callable[[UnloadRequest], RequestResult]]:
            assert settings.state_dir == tmp_path
            yield lambda request: asked.append(request) or RequestResult(4, "Refused: cool-down.")

        monkeypatch.setattr(byhand, "working", working)
        found = lbd("unload", BUNDLES[0], "--apply", "--to", "b3:8080")
        assert (found.exit_code, found.stdout, found.stderr) == (4, "Refused: cool-down.\n", "")
        assert [(one.bundle, one.destination, one.override) for one in asked] == [(BUNDLES[0], "b3:8080", None)]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (
                ["nonsense", "--to", "b3:8080"],
                "'nonsense' is no bundle, topic or namespace; wanted tenant/namespace/0xLLLLLLLL_0xUUUUUUUU, tenant/",
            ),
            (["t/n/0x80000000_0x00000000", "--to", "b3:8080"], "the lower end of the range must be below the upper"),
            ([BUNDLES[0], "--to", " "], "--to: the broker is empty; wanted host:port, or no --to at all"),
            ([BUNDLES[0], "--to", "b3:8080", "--override", " "], "--override: the reason is empty"),
            ([BUNDLES[0], "--to", "b3:8080", "--timeout", "0"], "'--timeout'"),
        ],
        ids=["no bundle", "backwards", "no destination", "no reason", "no time"],
    )
    def test_wrong_usage(self, arguments: list[str], words: str, daemon: Path) -> None:
        """Exit 2 before anything is asked for."""
        found = lbd("unload", *arguments, "--apply")
        assert found.exit_code == 2
        assert words in found.stderr
        assert value(daemon / STORE_NAME, ORDERS) is None


@pytest.fixture
def moved(tmp_path: Path) -> list[float]:
    """A journal of five moves, an hour apart; returns when each was intended."""
    results = [
        (Ended.LANDED, B3, ""),
        (Ended.LANDED, B3, ""),
        (Ended.ELSEWHERE, B2, "a client was faster"),
        (Ended.FAILED, B1, "409"),
        (None, None, ""),
    ]
    clock = [time.time() - 5 * 3600 - 60]
    journal = Journal(tmp_path / "lbd.db", lambda: clock[0])
    for number, (result, owner, detail) in enumerate(results):
        clock[0] += 3600
        unload = Unload(BUNDLES[number], B1, B3, 195.0, 1e5, "37.0 points apart")
        move = journal.intend(unload, 2 if number == 3 else 1)
        if result is not None:
            journal.conclude(move, Outcome(unload, result, owner, detail, seconds=0.42))
    journal.close()
    return [clock[0] - 3600 * (4 - number) for number in range(5)]


class TestHistory:
    def test_a_line_for_each_move(self, moved: list[float]) -> None:
        """The newest last; where no terminal is, each line is whole."""
        found = lbd("history")
        header, *lines, summary = found.stdout.splitlines()
        assert found.exit_code == 0
        assert header.split()[0] == "time"
        assert [line.split("  ")[:2] for line in lines] == [
            [local(at), bundle] for at, bundle in zip(moved, BUNDLES, strict=False)
        ]
        assert [line.split(f"{B1} -> {B3}")[1].split(maxsplit=2) for line in lines] == [
            ["landed", "0.42", "37.0 points apart"],
            ["landed", "0.42", "37.0 points apart"],
            ["landed-elsewhere", "0.42", f"owner {B2}; a client was faster; 37.0 points apart"],
            ["failed", "0.42", f"owner {B1}; attempt 2; 409; 37.0 points apart"],
            ["open", "-", "37.0 points apart"],
        ]
        assert summary == "5 moves: 2 landed, 1 landed-elsewhere, 1 failed, 1 open"

    def test_a_note_that_several_moves_share_stands_once(self, tmp_path: Path) -> None:
        """Below them, as in lbd plan; JSON has each reason whole."""
        notes = ("; one wave", "; one wave; alone", "")
        journal = Journal(tmp_path / "lbd.db", time.time)
        for number, note in enumerate(notes):
            unload = Unload(BUNDLES[number], B1, B3, 195.0, 1e5, f"{number} points off{note}")
            journal.conclude(journal.intend(unload, 1), Outcome(unload, Ended.LANDED, B3, seconds=0.42))
        journal.close()
        _, *lines, shared, _ = lbd("history").stdout.splitlines()
        assert [line.split("0.42  ")[1] for line in lines] == ["0 points off", "1 points off; alone", "2 points off"]
        assert shared == "2 of 3 moves: one wave"
        rows = json.loads(lbd("history", "--format", "json").stdout)
        assert [row["reason"] for row in rows] == [f"{number} points off{note}" for number, note in enumerate(notes)]

    def test_a_move_is_told_with_its_clients(self, tmp_path: Path) -> None:
        """Before all else; of one whose clients are not back, with the reason. What is not known is not told."""
        journal = Journal(tmp_path / "lbd.db", time.time)
        ends = (
            ServiceResult("yes", BundleClients(2, 2, 3), 0.42),
            ServiceResult("no", None, None, "persistent://shop/orders/x: HTTP 500"),
            ServiceResult("unknown", None, None, "it had no clients before the move"),
        )
        for bundle, end in zip(BUNDLES, ends, strict=False):
            unload = Unload(bundle, B1, B3, 195.0, 1e5, "why", clients_before=BundleClients(2, 2, 3))
            move = journal.intend(unload, 1)
            journal.conclude(move, Outcome(unload, Ended.LANDED, B3, seconds=0.42))
            journal.serve(move, journal.landings[move], end)
        journal.close()
        _, *lines, _ = lbd("history").stdout.splitlines()
        assert [line.split("0.42  ")[1] for line in lines] == [
            "clients are back, after 0.4 s; why",
            "clients are not back; persistent://shop/orders/x: HTTP 500; why",
            "why",
        ]
        rows = json.loads(lbd("history", "--format", "json").stdout)
        assert [row["served"] for row in rows] == ["yes", "no", "unknown"]
        assert rows[0]["clients_before"] == {"topics": 2, "producers": 2, "consumers": 3}

    @pytest.mark.parametrize(
        ("options", "numbers"),
        [
            (["--last", "2"], [3, 4]),
            (["--since", "2h"], [3, 4]),
            (["--since", "3650d"], [0, 1, 2, 3, 4]),
            (["--bundle", BUNDLES[1]], [1]),
            (["--bundle", "shop/orders"], [0, 1, 2, 3, 4]),
            (["--bundle", "shop/"], [0, 1, 2, 3, 4]),
            (["--broker", B2], [2]),
            (["--broker", B2.partition(":")[0]], [2]),
            (["--broker", B3, "--last", "1"], [4]),
            (["--broker", B1, "--since", "2h", "--bundle", BUNDLES[3]], [3]),
        ],
    )
    @pytest.mark.usefixtures("moved")
    def test_filters(self, options: list[str], numbers: list[int]) -> None:
        """By number, age, bundle or namespace, and broker; JSON is one array."""
        found = json.loads(lbd("history", "--format", "json", *options).stdout)
        assert [one["bundle"] for one in found] == [BUNDLES[number] for number in numbers]

    @pytest.mark.parametrize("options", [["--bundle", "shop/ord"], ["--broker", "broker"], ["--broker", B1 + "1"]])
    @pytest.mark.usefixtures("moved")
    def test_an_unknown_name_is_no_empty_history(self, options: list[str], tmp_path: Path) -> None:
        """Exit 2 once reports are kept; a reported bundle that never moved has an empty history."""
        assert lbd("history", *options).exit_code == 0
        other, none = "shop/other/0x00000000_0xffffffff", np.zeros(1, dtype=np.int8)
        reported = ReportedBundles(time.time(), (B1,), [other], none.astype(np.int32), none, np.zeros((1, 2)))
        save_bundles(tmp_path, reported)
        assert lbd("history", "--bundle", other).exit_code == 0
        found = lbd("history", *options)
        assert (found.exit_code, found.stdout) == (2, "")
        assert f"Error: {' '.join(options)}: no such " in found.stderr

    @pytest.mark.usefixtures("moved")
    def test_json(self) -> None:
        """All of a move, with null for what is not known yet; the summary goes to stderr."""
        found = lbd("history", "--format", "json", "--last", "2")
        failed, still_open = json.loads(found.stdout)
        assert (failed["result"], failed["owner"], failed["attempt"], failed["seconds"]) == ("failed", B1, 2, 0.42)
        assert (still_open["result"], still_open["owner"], still_open["ended_at"]) == (None, None, None)
        summary = "5 moves: 2 landed, 1 landed-elsewhere, 1 failed, 1 open; the last 2 are shown (--last N)\n"
        assert found.stderr == summary

    @pytest.mark.parametrize("form", ["text", "json"])
    def test_none(self, form: str, tmp_path: Path) -> None:
        """No journal, no moves; where not even its directory is there, that is said. Nothing is created."""
        found = lbd("--config", _config(tmp_path, tmp_path / "absent"), "history", "--format", form)
        assert found.exit_code == 0
        told = f"There is no {tmp_path / 'absent'}: wanted the state_dir of the lbd that moved them.\n"
        expected = ("No moves.\n", told) if form == "text" else ("[]\n", f"{told}No moves.\n")
        assert (found.stdout, found.stderr) == expected
        assert not (tmp_path / "absent").exists()

    def test_a_journal_that_cannot_be_read(self, tmp_path: Path) -> None:
        """Exit 2 and its name."""
        (tmp_path / "lbd.db").mkdir()
        found = lbd("history")
        assert found.exit_code == 2
        assert found.stderr.startswith(f"Error: {tmp_path / 'lbd.db'}: ")

    @pytest.mark.usefixtures("moved")
    def test_local_time(self) -> None:
        """The zone of whoever looks is named at the top."""
        found = _process("history", TZ="XYZ-5:30")
        assert found.startswith("time (XYZ)")


class TestOnATerminal:
    @pytest.mark.usefixtures("moved")
    def test_history_fits(self) -> None:
        """Names that Kubernetes made long lose what they have in common, reasons go to lines of their own."""
        lines = _on_terminal(110, "history").splitlines()
        assert max(map(len, lines)) <= 110
        assert " broker-1 -> broker-3 " in lines[1]
        assert "    owner broker-1; attempt 2; 409; 37.0 points apart" in lines
        assert lines[-2] == "brokers are named without .pulsar.svc.cluster.local:8080"

    @pytest.mark.usefixtures("moved")
    def test_history_with_room(self) -> None:
        """Nothing is shortened where everything fits."""
        assert f"{B1} -> {B3}" in _on_terminal(250, "history")

    def test_status_fits(self, daemon: Path) -> None:
        """In 80 columns."""
        pair = PairStatus(B1, B2, 37.0, HitStatus(3, 8, 1, 2))
        brokers = [BrokerStatus(B1, 83.7, "cpu", 6215, 1.8e6, 24), BrokerStatus(B2, 10.0, "cpu", 1, 1.0, 4)]
        told(daemon, brokers=brokers, pairs=[pair], sentence=f"No move: {B1} -> {B2}: waiting.", cluster="c")
        lines = [line.rstrip() for line in _on_terminal(80, "status").splitlines()]
        assert max(map(len, lines[1:])) <= 80
        assert "last turn  No move: broker-1 -> broker-2: waiting." in lines


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (0.4, "0 s"),
        (95, "95 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (4330, "1 h 12 min"),
        (86_400 + 7200, "1 day 2 h"),
        (3 * 86_400, "3 days"),
        (float("inf"), "inf s"),
    ],
)
def test_spoken(seconds: float, words: str) -> None:
    """Two units at most."""
    assert duration_text(seconds) == words


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86_400), ("1h30m", 5400), ("1d1h1m1s", 90_061), ("007m", 420)],
)
def test_duration(words: str, seconds: float) -> None:
    """Numbers with their units, the largest first."""
    import click

    assert duration(click.Context(main), click.Option(["--for"]), words) == seconds


@pytest.mark.parametrize("at", [1e300, -1e300, 1e15])
def test_no_time(at: float) -> None:
    """A number that is no time is shown as it is."""
    assert local(at) == zoned(at) == f"{at:g}"


@pytest.mark.parametrize(
    ("names", "end"),
    [
        ([B1, B2, B3], ".pulsar.svc.cluster.local:8080"),
        (["b-1.x:8080", "b-11.x:8080"], ".x:8080"),
        (["10.0.1.5:8080", "10.0.2.5:8080"], ":8080"),
        (["b1:8080", "b2:8081"], ""),
        (["b1:8080"], ""),
        (["b1:8080", "b1:8080"], ""),
        (["b1", "b2"], ""),
        ([], ""),
    ],
)
def test_common_end(names: list[str], end: str) -> None:
    """A domain or a port, never part of a name."""
    assert common_end(names) == end


def _config(folder: Path, state_dir: Path) -> Path:
    """A configuration file, which the environment would win over."""
    del os.environ["LBD_STATE_DIR"]
    path = folder / "lbd.yaml"
    path.write_text(json.dumps({"state_dir": str(state_dir)}), encoding="utf-8")
    return path


def _process(*arguments: str, **environ: str) -> str:
    command = [sys.executable, "-m", "lbd", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environ}).stdout


def _on_terminal(columns: int, *arguments: str) -> str:
    """What a person sees in a terminal of this width, without colours."""
    shown, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(
        [sys.executable, "-m", "lbd", *arguments],
        stdout=terminal,
        stderr=subprocess.PIPE,
        env={**environ, "TERM": "dumb"},
    ) as process:
        os.close(terminal)
        content = b""
        try:
            while part := os.read(shown, 4096):
                content += part
        except OSError:
            pass
        assert process.stderr is not None
        assert process.stderr.read() == b""
    os.close(shown)
    return content.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("times", "names"),
    [((1781500000.0,), "CEST"), ((1781500000.0, 1795900000.0, 1795950000.0), "CEST, CET")],
    ids=["summer", "until winter"],
)
def test_a_heading_names_the_zones_of_its_rows(monkeypatch: pytest.MonkeyPatch, times: tuple[float, ...], names: str):
    """Rows of the summer, which are looked at in winter, stand in summer time."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        assert zone_names(times) == names
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("hours", "told"), [(0, "2026-11-22T10:00:00Z"), (2, "2026-11-22T12:00:00+02:00")])
def test_a_time_in_a_sentence_names_its_zone(hours: int, told: str):
    """By its distance from UTC, which needs no table of abbreviations."""
    assert zoned(1795341600.0, timezone(timedelta(hours=hours))) == told
