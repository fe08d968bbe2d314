"""``lbd demo`` as a person runs it: on a terminal, into a file, ended in the middle, kept up. Nothing is left."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from click.testing import CliRunner
from rich.console import Console

from lbd.cli import main
from lbd.cli.demo import can_draw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket.* type=2,:ResourceWarning")
"""Where there is no systemd, sdnotify drops the socket that it would have used."""

PATIENCE_SECONDS = 60.0
FIRST_PICTURE_SECONDS = 10.0


@pytest.fixture(autouse=True)
def hangs_up() -> Iterator[None]:
    """A demo that is begun under nohup outlives its terminal; these are not, whatever the tests are begun under."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the demo keeps what it keeps; nothing may be left there."""
    found = tmp_path / "tmp"
    found.mkdir()
    yield found
    assert list(found.iterdir()) == []


def environ(folder: Path, **more: str) -> dict[str, str]:
    """Nothing of lbd's settings, and a folder for temporary files."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LBD_") and name != "NO_COLOR"}
    return {**clean, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1", **more}


def demo(*words: str) -> Result:
    """The whole of it, in this process, into a file."""
    return CliRunner().invoke(main, ["demo", *words], prog_name="lbd")


def listener(host: str, port: int) -> str | None:
    """The socket that listens there, as the kernel numbers it."""
    address = f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
    rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return next((row[9] for row in rows if (row[1], row[3]) == (address, "0A")), None)


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """One that goes on."""
    command = [sys.executable, "-m", "lbd", "demo", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environ(folder), start_new_session=True, **pipes)


def read_until(process: subprocess.Popen[str], part: str) -> str:
    """What it says up to and with a line."""
    said = ""
    assert process.stdout is not None
    while part not in said:
        if not (found := process.stdout.readline()):
            rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
            pytest.fail(f"{part!r} was not said, but {said}{rest}{errors} (exit code {process.returncode})")
        said += found
    return said


class TestIntoAFile:
    def test_a_port_that_is_taken(self):
        """Another one is every broker's, and nothing is different."""
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("127.0.0.1", 28080))
                taken.listen()
            except OSError:
                pass  # it is taken by somebody else, which is as good
            done = demo("--seconds", "1")
        assert done.exit_code == 0
        assert "http://127.0.0.1:28080 " not in done.stdout
        assert " apart  No move: 127.0.0.1:" in done.stdout

    def test_no_folder_for_its_state(self):
        """One line, and the setting to change."""
        with mock.patch("tempfile.TemporaryDirectory", side_effect=OSError(30, "Read-only file system")):
            done = demo("--seconds", "1")
        assert done.exit_code == 2
        assert "Error: no temporary folder for lbd's state: Read-only file system; wanted one in TMPDIR" in done.output

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (("--seconds", "nan"), "nan is not in the range 1<=x<=3600"),
            (("--seconds", "0"), "0.0 is not in the range"),
            (("--scenario", "nope"), "nope: no such scenario"),
            (("--scenario", "month"), "month: lasts 30 days of the cluster's time, and a demo at most 12 h"),
            (
                ("--scenario", "rolling-restart"),
                "nothing happens before minute 30 of the cluster's time, and 60 seconds",
            ),
            (("--seed", "-1"), "-1 is not in the range"),
        ],
    )
    def test_wrong_usage(self, words: tuple[str, str], told: str):
        """One line, and exit code 2."""
        done = demo(*words)
        assert (done.exit_code, told in done.stderr) == (2, True), done.stderr

    def test_a_cluster_that_needs_nothing(self, tmp_path: Path):
        """A scenario of one's own, here of a single broker: lbd says why it moves nothing."""
        path = tmp_path / "one.yaml"
        path.write_text("about: One.\nbrokers: [{id: a}]\nload: [{name: x, mib_per_second: 10, bundles: 3}]\n")
        done = demo("--seconds", "1", "--scenario", str(path))
        assert done.exit_code == 0
        assert "no scores  No move: too-few-brokers: 1 of 1 reports are usable, wanted 2." in done.stdout
        assert "bundles moved: 0, " in done.stdout

    def test_a_broker_that_leaves(self, tmp_path: Path):
        """It counts no more in the scorecard, and its bundles are no moves of lbd's."""
        path = tmp_path / "leaving.yaml"
        path.write_text(
            "about: One leaves.\nbrokers: [{id: a, background: 50}, {id: b, background: 50}, "
            "{id: c, background: 1, leaves_at_minutes: 0.1}]\nload: [{name: x, mib_per_second: 10, bundles: 30}]\n"
        )
        done = demo("--seconds", "3", "--scenario", str(path))
        assert done.exit_code == 0
        first, last = map(float, re.findall(r"highest - lowest, points +([0-9.]+) +([0-9.]+)", done.stdout)[0])
        assert first > 40
        assert last < 10
        assert "membership-changed" in done.stdout
        assert "bundles moved: 0, " in done.stdout
        assert "needed at least" not in done.stdout

    def test_nobody_reads_on(self, folder: Path):
        """It ends with its reader, without a trace."""
        process = started(folder)
        read_until(process, "apart")
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.wait(PATIENCE_SECONDS)
        assert process.stderr.read() == ""
        process.stderr.close()


class TestEnding:
    def test_in_the_middle(self, folder: Path):
        """What the daemon says of its turns, each landing, and a clean end while moves are under way, with the
        scorecard of what is true of the cluster.
        """
        process = started(folder)
        said = read_until(process, "landed")
        address = re.search(r"http://([0-9.]+):(\d+)", said)
        assert address is not None
        listening = listener(address[1], int(address[2]))
        assert listening is not None
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, errors) == (0, "")
        assert listener(address[1], int(address[2])) != listening  # another test's demo may have the port by now
        gaps = [float(one) for one in re.findall(r"^ *\d+:\d\d +([0-9.]+) apart", said, re.MULTILINE)]
        assert gaps[0] > 50
        assert "Begins to move" in said
        landed = re.findall(r"simulated/orders/\S+ \S+ -> \S+: landed in", said + rest)
        first, last = map(float, re.findall(r"highest - lowest, points +([0-9.]+) +([0-9.]+)", rest)[0])
        assert last < first
        assert f"bundles moved: {len(landed)}, " in rest
        assert "What next:" in rest

    def test_under_nohup_a_closed_terminal_is_nothing(self, folder: Path):
        """What was started to live on does."""
        command = ["nohup", sys.executable, "-m", "lbd", "demo"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen(command, text=True, env=environ(folder), start_new_session=True, **pipes)
        read_until(process, "apart")
        process.send_signal(signal.SIGHUP)
        read_until(process, "apart")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0

    def test_kept_up(self, folder: Path, tmp_path: Path):
        """Other commands work on it as on any cluster, by this machine's clock."""
        process = started(folder, "--seconds", "4", "--serve")
        said = read_until(process, "lbd.log")
        (state_dir,) = set(re.findall(r"LBD_STATE_DIR=(\S+)", said))
        (urls,) = set(re.findall(r"LBD_PULSAR__ADMIN_URLS='(\S+)'", said))
        config = tmp_path / "lbd.yaml"
        config.write_text("{}")
        known = {"LBD_STATE_DIR": state_dir, "LBD_PULSAR__ADMIN_URLS": urls, "LBD_CONFIG": str(config)}

        def lbd(*words: str) -> Result:
            return CliRunner(env=known).invoke(main, words, prog_name="lbd")

        status = lbd("status")
        assert status.exit_code == 0, status.output
        assert f"running, process {process.pid}" in status.stdout
        assert "last turn" in status.stdout
        planned = json.loads(lbd("dry-run", "--format", "json").stdout)
        assert planned["cluster"] == "simulated"
        assert lbd("doctor").exit_code == 0
        (broker, *_) = planned["brokers"]
        drained = lbd("drain", broker["id"])
        assert drained.exit_code == 0, drained.output
        split = lbd("split", "simulated/orders/0x00000000_0x0aaaaaaa")
        assert "Would split 1 bundle" in split.stdout, split.output
        plan = lbd("plan")
        assert plan.exit_code in {0, 4}, plan.output  # what moved a moment ago may still settle
        explained = lbd("explain", json.loads(lbd("status", "--format", "json").stdout)["brokers"][0]["id"])
        assert explained.exit_code == 0, explained.output
        moves = lbd("history").stdout
        assert "landed" in moves
        assert time.strftime("%Y-%m-%d", time.gmtime()) in moves
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, errors) == (0, "")
        assert "highest - lowest" not in rest


class Terminal:
    """A pseudo-terminal in which the demo runs."""

    def __init__(self, folder: Path, *words: str, **more: str) -> None:
        self.process, self._fd = pty.fork()
        if self.process == 0:
            command = [sys.executable, "-m", "lbd", "demo", *words]
            os.execve(sys.executable, command, environ(folder, **{"TERM": "xterm-256color", **more}))
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.begun_at = time.monotonic()
        self.shown = ""

    def until(self, part: str) -> float:
        """Wait until something is shown; seconds since the start."""
        ready = select.poll()
        ready.register(self._fd, select.POLLIN)
        while part not in self.shown:
            if time.monotonic() - self.begun_at > PATIENCE_SECONDS:
                raise self._ended(f"it never showed {part!r}")
            if ready.poll(100):
                self.shown += os.read(self._fd, 65_536).decode(errors="replace")
        return time.monotonic() - self.begun_at

    def gone(self) -> int:
        """Close the terminal; the exit code that follows."""
        os.close(self._fd)
        return self._exit_code()

    def press(self, key: bytes) -> int:
        """A key, and the exit code that follows."""
        os.write(self._fd, key)
        while True:
            try:
                self.shown += os.read(self._fd, 65_536).decode(errors="replace")
            except OSError:
                break
        os.close(self._fd)
        return self._exit_code()

    def _exit_code(self) -> int:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        raise self._ended("it did not end")

    def _ended(self, why: str) -> AssertionError:
        """Nothing goes on beside the tests that follow."""
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        return AssertionError(f"{why}; at last {self.shown[-3000:]}")


class TestOnATerminal:
    def test_the_first_picture_comes_soon_and_ctrl_c_ends_it(self, folder: Path):
        """Bars and pairs at once; at the end the cursor is there again, and the scorecard."""
        terminal = Terminal(folder)
        assert terminal.until("samples 15+") < FIRST_PICTURE_SECONDS
        terminal.until("moves: 5 planned")
        assert terminal.press(b"\x03") == 0
        assert terminal.shown.rfind("\x1b[?25h") > terminal.shown.rfind("\x1b[?25l")
        assert "highest - lowest, points" in terminal.shown
        assert "Traceback" not in terminal.shown

    def test_the_terminal_goes(self, folder: Path):
        """As when a window is closed: it ends, and does not live on unseen."""
        terminal = Terminal(folder, "--seconds", "1", "--serve")
        terminal.until("lbd.log")
        assert terminal.gone() == 0

    def test_without_colour(self, folder: Path):
        """NO_COLOR: the same picture, and no colour in it."""
        terminal = Terminal(folder, NO_COLOR="1")
        terminal.until("samples 15+")
        assert terminal.press(b"\x03") == 0
        assert "█" in terminal.shown
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.shown)


@pytest.mark.parametrize(
    ("terminal", "term", "encoding", "drawn"),
    [
        (True, "xterm-256color", "utf-8", True),
        (True, "dumb", "utf-8", False),
        (True, "xterm-256color", "ascii", False),
        (False, "xterm-256color", "utf-8", False),
    ],
)
def test_a_terminal_that_cannot_draw_gets_lines(*, terminal: bool, term: str, encoding: str, drawn: bool):
    """No cursor to move, no bars in its character set, or no terminal."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert can_draw(Console(file=file, force_terminal=terminal, _environ={"TERM": term})) is drawn
