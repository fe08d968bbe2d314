"""The daemon as a real process: what systemd hears, signals, reload, and a turn after the other."""

from __future__ import annotations

import ast
import inspect
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from structlog.testing import capture_logs

from lbd.config import load
from lbd.daemon.service import Rereading
from lbd.daemon.status import log_level
from lbd.errors import ObserveError, UnheardError, UsageError
from lbd.foreign import is_printable
from lbd.simulate.answers import refused
from lbd.turn.parts import TurnResult
from tests import journals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lbd.errors import LbdError
    from tests.fake_pulsar import FakePulsar

PATIENCE_SECONDS = 60.0


@pytest.mark.parametrize(
    ("error", "level"),
    [(None, "INFO"), (ObserveError("no broker answers"), "ERROR"), (UnheardError("told nothing yet"), "INFO")],
)
def test_how_loudly_a_turn_is_told(error: LbdError | None, level: str):
    """One that has only begun to listen to brokers has not failed: nobody is to be woken by it."""
    assert logging.getLevelName(log_level(TurnResult(error=error))) == level


class Notified:
    """A notify socket of the test's own, as systemd gives to its services.

    It is read all the time, because the kernel keeps no more than some ten messages, and a daemon does not wait.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self._came, self._waited_for = threading.Condition(), 0
        self.heard: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while message := self._socket.recv(4096):
            with self._came:
                self.heard.append(message.decode())
                self._came.notify()

    def _next(self, start: str) -> str | None:
        fresh = range(self._waited_for, len(self.heard))
        found = next((index for index in fresh if self.heard[index].startswith(start)), None)
        self._waited_for = len(self.heard) if found is None else found + 1
        return None if found is None else self.heard[found]

    def wait_for(self, start: str) -> str:
        """The first message with this start that has not been waited for yet."""
        found: list[str | None] = []

        def came() -> bool:
            found[:] = [self._next(start)]
            return found != [None]

        with self._came:
            if not self._came.wait_for(came, PATIENCE_SECONDS):
                raise AssertionError(f"{start!r} was not heard, but {self.heard}")
        return str(found[0])

    def close(self) -> None:
        """Close the socket."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._socket.close()


class Daemon:
    """A running ``lbd run``."""

    def __init__(
        self,
        folder: Path,
        notified: Notified,
        settings: dict[str, Any],
        words: tuple[str, ...] = (),
        program: tuple[str, ...] = ("-m", "lbd"),
        **environ: str,
    ) -> None:
        self.config = folder / "lbd.yaml"
        self.notified = notified
        self.log = folder / "log"
        self.write(settings)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("LBD_")}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program, "run", "--config", str(self.config), *words],
                env={**clean, "NOTIFY_SOCKET": str(notified.path), **environ},
                stdout=log,
                stderr=log,
            )

    def write(self, settings: dict[str, Any]) -> None:
        """Replace the settings file."""
        self.config.write_text(yaml.safe_dump(settings))

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)

    def lines(self) -> list[dict[str, Any]]:
        """The structured log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextmanager
def running(folder: Path, settings: dict[str, Any], **more: Any) -> Iterator[Daemon]:
    """A daemon that has said READY; killed at the end, whatever happened."""
    notified = Notified(folder)
    daemon = Daemon(folder, notified, settings, **more)
    try:
        notified.wait_for("READY=1")
        yield daemon
    finally:
        daemon.process.kill()
        daemon.process.wait()
        notified.close()


def settings_for(pulsar: FakePulsar, folder: Path, **changes: Any) -> dict[str, Any]:
    """A turn a fifth of a second, one hit is enough."""
    return {
        "pulsar": {"admin_urls": pulsar.urls},
        "state_dir": str(folder / "state"),
        "interval_seconds": 0.2,
        "api": {"enabled": False},
        "avg_shedder": {"hit_count_high": 1, "hit_count_low": 1},
        "guardrails": {
            "max_traffic_per_turn": 1.0,
            "membership_settle_seconds": 0,
            "unload_spacing_seconds": 0,
        },
        **changes,
    }


def journal(folder: Path) -> list[dict[str, Any]]:
    """Every intent and outcome of the journal."""
    return [entry for entry in journals.entries(folder / "state") if entry["event"] in {"intent", "outcome"}]


def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds; at the end of the patience, say which one, and what it saw instead."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(f"it never held within {PATIENCE_SECONDS:g} s: {_described(condition)}")
        time.sleep(0.05)


def _described(condition: Callable[[], object]) -> str:
    """The source of a condition, and the values of what it compares or calls."""
    try:
        source = " ".join(inspect.getsource(condition).split())
        body = source[source.index("lambda:") + len("lambda:") :]
        tree = next(filter(None, (_parsed(body[:end]) for end in range(len(body), 0, -1))))
    except (OSError, TypeError, ValueError, StopIteration):
        return f"{condition!r}"
    names = {**condition.__globals__, **inspect.getclosurevars(condition).nonlocals}
    parts = [tree.left, *tree.comparators] if isinstance(tree, ast.Compare) else [tree]
    shown = (ast.unparse(part) for part in parts if not isinstance(part, ast.Constant))
    return f"{ast.unparse(tree)}; " + "; ".join(f"{part} is {eval(part, names)!r:.1000}" for part in shown)


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return None


def test_what_never_held_is_described(monkeypatch: pytest.MonkeyPatch):
    """With the values at the end."""
    monkeypatch.setattr("tests.daemon.test_service.PATIENCE_SECONDS", 0.0)
    heard = ["READY=1"]
    with pytest.raises(AssertionError, match=r"len\(heard\) == 2; len\(heard\) is 1"):
        eventually(lambda: len(heard) == 2)


def test_it_balances_says_so_and_ends_well(pulsar: FakePulsar, tmp_path: Path):
    """READY, a STATUS a turn, STOPPING, exit 0; what it moved is where it said."""
    with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
        daemon.notified.wait_for("STATUS=Begins to move 3 bundles.")
        daemon.notified.wait_for("STATUS=Moved")
        daemon.notified.wait_for("STATUS=No move")
        eventually(lambda: [line.get("result") for line in journal(tmp_path)].count("landed") == 3)
        code = daemon.end()
        daemon.notified.wait_for("STOPPING=1")

    assert code == 0
    assert [line["event"] for line in daemon.lines()].count("Begins to move 3 bundles.") == 1
    assert {line["event"][:6] for line in daemon.lines() if "owner" in line} == {"landed"}
    assert daemon.lines()[-1]["event"] == "stopped"


@pytest.mark.security("a line end or an escape in a broker's error, towards systemd")
def test_systemd_gets_printable_text_only(pulsar: FakePulsar, tmp_path: Path):
    """A message of sd_notify is one assignment a line: a broker must not add WATCHDOG=trigger."""
    pulsar.fault("load-report", refused(500, "a\x1b[2J\x00WATCHDOG=trigger\u202eb"))
    with running(tmp_path, settings_for(pulsar, tmp_path, log={"format": "json"})) as daemon:
        status = daemon.notified.wait_for("STATUS=")
        daemon.end()
    assert "(a?[2J?WATCHDOG=trigger?b)" in status
    assert is_printable(status)


def test_a_second_daemon_on_the_same_state_is_refused(pulsar: FakePulsar, tmp_path: Path):
    """Exit 4, and the process that holds it is named."""
    with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
        command = [sys.executable, "-m", "lbd", "run", "--config", str(daemon.config)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)

    assert second.returncode == 4
    assert f"another lbd (process {daemon.process.pid}) works on this state directory" in second.stderr


def test_a_reload_takes_all_settings_or_none(pulsar: FakePulsar, tmp_path: Path):
    """A bad file is said in one line and the old settings stay; a good one holds from the next turn on."""
    with running(tmp_path, settings_for(pulsar, tmp_path, interval_seconds=60)) as daemon:
        daemon.notified.wait_for("STATUS=")
        daemon.write({"interval_second": 1})
        daemon.process.send_signal(signal.SIGHUP)
        daemon.notified.wait_for("RELOADING=1")
        daemon.notified.wait_for("READY=1")
        daemon.write(settings_for(pulsar, tmp_path, interval_seconds=0.2))
        daemon.process.send_signal(signal.SIGHUP)
        daemon.notified.wait_for("RELOADING=1")
        for _ in range(4):
            daemon.notified.wait_for("STATUS=")
        code = daemon.end()

    events = {line["event"]: line for line in daemon.lines()}
    assert code == 0
    assert "interval_second: no such setting; did you mean interval_s" in events["settings stay as they were"]["why"]
    assert events["settings read again"]["interval_seconds"] == 0.2


@pytest.mark.parametrize("content", [None, "", "# all of it was here\n"], ids=["gone", "empty", "comments"])
def test_a_settings_file_that_says_nothing_any_more_is_a_mishap(content: str | None, tmp_path: Path):
    """Its defaults would take guardrails away: a reload refuses them, and takes what stands there next."""
    path, environ = tmp_path / "lbd.yaml", {"LBD_INTERVAL_SECONDS": "5"}
    path.write_text("guardrails: {excluded_namespaces: [t/n]}")
    read = Rereading(lambda: load(path if path.exists() else None, environ))
    assert read().guardrails.excluded_namespaces == ("t/n",)
    path.unlink()
    if content is not None:
        path.write_text(content)
    for _ in range(2):
        with pytest.raises(UsageError, match=r"lbd\.yaml: gone, or without settings by now"):
            read()
    path.write_text("profile: live")
    assert read().guardrails.excluded_namespaces == ()


def test_a_former_setting_stops_no_daemon(tmp_path: Path):
    """Its log says what holds instead."""
    path = tmp_path / "lbd.yaml"
    path.write_text("interval_seconds: 5\nguardrails: {stand_still_after_rounds: 9}")
    with capture_logs() as logged:
        assert Rereading(lambda: load(path, {}))().interval_seconds == 5
    (line,) = logged
    assert (line["log_level"], line["event"]) == ("warning", "a former setting has no effect")
    assert line["why"].startswith(f"{path}: guardrails.stand_still_after_rounds: no setting any more, always 3; 9 has ")


def test_a_file_that_changes_is_noticed_once(tmp_path: Path):
    """Also one that cannot be used; one that is gone for a moment has not changed."""
    path = tmp_path / "lbd.yaml"
    path.write_text("interval_seconds: 5")
    read = Rereading(lambda: load(path, {}))
    read()
    assert not read.changed()
    path.unlink()
    assert not read.changed()
    for text in ("interval_seconds: 6", "interval_second: 7"):
        path.write_text(text)
        assert [read.changed(), read.changed()] == [True, False]


def test_a_renewed_certificate_is_noticed(tmp_path: Path):
    """In Kubernetes it arrives as new settings do, and nobody sends a signal."""
    files = {name: tmp_path / f"{name}.pem" for name in ("cert_file", "key_file")}
    for file in files.values():
        file.write_text("first")
    path = tmp_path / "lbd.yaml"
    path.write_text(yaml.safe_dump({"api": {"tls": {name: str(file) for name, file in files.items()}}}))
    read = Rereading(lambda: load(path, {}))
    read()
    assert not read.changed()
    for file in files.values():
        file.write_text("second")
        assert [read.changed(), read.changed()] == [True, False]


def test_settings_from_the_environment_alone_are_read_again():
    """There never was a file."""
    read = Rereading(lambda: load(None, {"LBD_INTERVAL_SECONDS": "5"}))
    assert [read().interval_seconds, read().interval_seconds] == [5.0, 5.0]


def test_the_watchdog_is_fed_while_turns_end(pulsar: FakePulsar, tmp_path: Path):
    """At half of what systemd asks for."""
    with running(tmp_path, settings_for(pulsar, tmp_path), WATCHDOG_USEC="1000000") as daemon:
        for _ in range(4):
            daemon.notified.wait_for("WATCHDOG=1")


def turns_told(daemon: Daemon) -> int:
    """How many turns its log has."""
    return daemon.log.read_text().count('"turn": ')


def test_a_clock_that_is_set_back_stops_nothing(pulsar: FakePulsar, tmp_path: Path):
    """Turns were planned for times that come again in an hour; it is said once."""
    pulsar.sample(40.0, 41.0, 42.0)
    with running(tmp_path, settings_for(pulsar, tmp_path), program=("-m", "tests.daemon.clock_set")) as daemon:
        daemon.notified.wait_for("STATUS=")
        daemon.process.send_signal(signal.SIGUSR1)
        eventually(lambda: "was set back by 3600 s; turns go on from now" in daemon.log.read_text())
        turns = turns_told(daemon)
        eventually(lambda: turns_told(daemon) > turns + 2)
        assert daemon.end() == 0
    assert daemon.log.read_text().count("was set") == 1


def test_a_cluster_that_goes_away_is_waited_for(pulsar: FakePulsar, tmp_path: Path):
    """Each turn says why nothing is seen; when the brokers are back, it goes on."""
    with running(tmp_path, settings_for(pulsar, tmp_path)) as daemon:
        daemon.notified.wait_for("STATUS=")
        for broker in pulsar.ids:
            pulsar.kill(broker)
        daemon.notified.wait_for("STATUS=No move: GET http")

        assert daemon.process.poll() is None
        assert daemon.end(signal.SIGINT) == 0
