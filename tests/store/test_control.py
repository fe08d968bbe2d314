"""The pause and the status: whole files, readable by all, and junk told in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.errors import UsageError
from lbd.store.control import Control, Pause
from lbd.store.database import STORE_NAME
from lbd.store.drains import Drain, Drains
from lbd.store.orders import ORDERS
from lbd.store.status import BrokerStatus, HitStatus, PairStatus, Status, UnfinishedStatus, read_status, running
from lbd.store.status import write_status as write
from tests.builders import put_value

if TYPE_CHECKING:
    from collections.abc import Iterator


NOW = float(int(time.time()))
"""Real, because answers are aged by the times of their files."""
BUNDLE = "t/n/0x00000000_0x80000000"
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def a_pause(until: float | None = NOW + 3600, **changes: Any) -> Pause:
    """A pause that began now."""
    return Pause(**{"since": NOW, "until": until, "reason": "broker upgrade", "by": "alice", **changes})


def a_status(**changes: Any) -> Status:
    """A status with something of everything in it."""
    values: dict[str, Any] = {
        "pid": 4711,
        "version": "0.1.0",
        "at": NOW,
        "interval_seconds": 15.0,
        "next_turn_at": NOW + 15,
        "turns": 12,
        "cluster": "c",
        "sentence": "No move.",
        "brokers": [
            BrokerStatus("b1:80", 83.7, "cpu", 6215.0, 1.8e6, 24),
            BrokerStatus("b2", None, None, None, None, 0),
        ],
        "pairs": [PairStatus("b1:80", "b2", 37.0, HitStatus(1, 8, 0, 2))],
        "unfinished": [UnfinishedStatus(BUNDLE, "b1:80", None, NOW - 3)],
        "warnings": ["torn"],
    }
    return Status(**{**values, **changes})


def names(folder: Path) -> list[str]:
    """Files in a folder below control/."""
    return sorted(path.name for path in folder.iterdir())


class TestPause:
    @pytest.mark.parametrize(
        ("until", "now", "paused"),
        [
            (None, NOW, True),
            (None, NOW + 1e9, True),
            (NOW + 60, NOW, True),
            (NOW + 60, NOW + 59.9, True),
            (NOW + 60, NOW + 60, False),
            (NOW + 60, NOW + 1e9, False),
            (NOW + 60, NOW - 1e6, True),
            (NOW - 60, NOW, False),
        ],
        ids=[
            "no end",
            "no end, much later",
            "begins",
            "nearly over",
            "over",
            "long over",
            "the clock went back",
            "past",
        ],
    )
    def test_it_ends_by_itself(self, until: float | None, now: float, paused: bool, tmp_path: Path) -> None:
        """At its time, however the clock got there."""
        Control(tmp_path).pause(a_pause(until))
        assert (Control(tmp_path).paused(now) == a_pause(until)) is paused

    def test_none_without_a_file(self, tmp_path: Path) -> None:
        """And without a state directory."""
        assert Control(tmp_path / "absent").paused(NOW) is None
        assert Control(tmp_path / "absent").resume() is None
        assert not (tmp_path / "absent").exists()

    def test_pausing_again_replaces(self, tmp_path: Path) -> None:
        """What is replaced is told; a pause that was over is not replaced."""
        control = Control(tmp_path)
        later = a_pause(None, since=NOW + 1, by="bob")
        assert control.pause(a_pause()) == (a_pause(), None)
        assert control.pause(later) == (later, a_pause())
        assert control.paused(NOW + 2) == later
        control.pause(a_pause(NOW + 5))
        last = a_pause(None, since=NOW + 6)
        assert control.pause(last) == (last, None)

    def test_resuming_tells_what_was_there(self, tmp_path: Path) -> None:
        """Also a pause that was over; afterwards there is none."""
        control = Control(tmp_path)
        control.pause(a_pause(NOW + 1))
        assert control.resume() == a_pause(NOW + 1)
        assert control.resume() is None

    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"null", b"[]", b"\xff\xfe\x00", b"{}", b'{"since": "now"}', b"[" * 200_000, b'{"until": 1}'],
        ids=["empty", "half", "null", "a list", "no text", "no fields", "wrong type", "deep", "a part"],
    )
    def test_junk_is_a_pause_without_end(self, content: bytes, tmp_path: Path) -> None:
        """When in doubt lbd does not move, and says why; resuming clears it."""
        control = Control(tmp_path)
        control.pause(a_pause())
        put_value(tmp_path, ORDERS, content)
        found = control.paused(NOW + 1e9)
        assert found is not None
        assert found.until is None
        assert "the orders cannot be read" in found.reason
        assert "\n" not in found.reason
        assert control.resume() is not None
        assert control.paused(NOW) is None

    @pytest.mark.parametrize("how", ["a folder", "no database", "lost"])
    def test_no_store_to_read(self, how: str, tmp_path: Path) -> None:
        """When in doubt nothing moves; nothing is written over it, and what is in the way is told in one line."""
        path = tmp_path / STORE_NAME
        if how == "a folder":
            path.mkdir()
        elif how == "no database":
            path.write_bytes(b"junk" * 1000)
        else:
            (tmp_path / "lock").write_text("1\n")
        left = names(tmp_path)
        assert (Control(tmp_path).paused(NOW) is not None) is (how != "lost")
        for steer in (Control(tmp_path).go_on, lambda now: Control(tmp_path).pause(a_pause(now))):
            with pytest.raises(UsageError) as told:
                steer(NOW)
            assert str(told.value).startswith(f"{tmp_path}")
            assert "\n" not in str(told.value)
        assert names(tmp_path) == left

    def test_a_look_that_fails_ends_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever resumes while the store cannot be read is told so; the drains that it holds go on."""
        Drains(tmp_path).begin(Drain("a:80", NOW, None, "ann"))

        def locked(*_: object) -> bytes:
            raise UsageError("database is locked")

        with monkeypatch.context() as patched:
            patched.setattr("lbd.store.orders.value", locked)
            with pytest.raises(UsageError, match="database is locked"):
                Control(tmp_path).go_on(NOW)
        assert [drain.broker for drain in Drains(tmp_path).all()] == ["a:80"]

    def test_everyone_may_read(self, tmp_path: Path) -> None:
        """Whatever the umask of whoever paused."""
        before = os.umask(0o077)
        try:
            Control(tmp_path).pause(a_pause())
            write(tmp_path, a_status())
        finally:
            os.umask(before)
        assert names(tmp_path) == [STORE_NAME, "status.json"]
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}


class TestStatus:
    def test_round_trip(self, tmp_path: Path) -> None:
        """What is written is read, NaN aside, which JSON has not."""
        write(tmp_path, a_status())
        assert read_status(tmp_path) == a_status()
        write(tmp_path, a_status(brokers=[BrokerStatus("b1", float("nan"), None, 1.0, 1.0, 1)]))
        assert read_status(tmp_path).brokers[0].score is None
        assert names(tmp_path) == ["status.json"]

    def test_none(self, tmp_path: Path) -> None:
        """Which directory was looked at, and how to name another."""
        with pytest.raises(UsageError, match=f"{tmp_path}: no lbd .* state_dir in --config FILE or LBD_STATE_DIR"):
            read_status(tmp_path)

    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            (b"", "cannot be read"),
            (b"\xff", "cannot be read"),
            (b"[]", "cannot be read"),
            (b'{"format": 1}', "cannot be read: Object missing required field"),
            (b'{"format": 2, "everything": "else"}', "format 2, this lbd reads 1"),
            (msgspec.json.encode(a_status(interval_seconds=0)), "cannot be read: Expected `float` > 0"),
            (msgspec.json.encode(a_status())[:-9], "cannot be read"),
        ],
        ids=["empty", "no text", "a list", "a part", "newer", "no interval", "half"],
    )
    def test_broken(self, content: bytes, complaint: str, tmp_path: Path) -> None:
        """One line with the file's name."""
        (tmp_path / "status.json").write_bytes(content)
        with pytest.raises(UsageError, match=complaint) as told:
            read_status(tmp_path)
        assert str(told.value).startswith(f"{tmp_path / 'status.json'}: ")

    @pytest.mark.parametrize(("age", "late"), [(0, False), (45, False), (45.1, True), (1e6, True), (-45.1, True)])
    def test_late(self, age: float, late: bool) -> None:
        """After three intervals, in both directions of the clock."""
        assert a_status().late(NOW + age) is late

    @pytest.mark.parametrize(("age", "late"), [(4, False), (30, False), (30.1, True), (-30.1, True)])
    def test_late_where_turns_are_frequent(self, age: float, late: bool) -> None:
        """A turn that waits for a broker takes longer than three seconds, and is no trouble."""
        assert a_status(interval_seconds=1.0).late(NOW + age) is late

    def test_it_cannot_be_written(self, tmp_path: Path) -> None:
        """Told in one line."""
        with pytest.raises(UsageError, match=r"status.json: cannot be written: No such file"):
            write(tmp_path / "absent", a_status())


HOLD = """
import sys, time
from pathlib import Path
from lbd.store.state import StateDir
with StateDir(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds tmp_path as a daemon does."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


class TestRunning:
    def test_the_holder_is_told(self, holder: subprocess.Popen[str], tmp_path: Path) -> None:
        """While it lives, and not when it was killed, though its id is still in the file."""
        assert running(tmp_path) == holder.pid
        holder.kill()
        holder.wait()
        assert (tmp_path / "lock").read_text().strip() == str(holder.pid)
        assert running(tmp_path) is None

    def test_none(self, tmp_path: Path) -> None:
        """No lock, no directory."""
        assert running(tmp_path) is None
        assert running(tmp_path / "absent") is None

    @pytest.mark.usefixtures("holder")
    def test_an_id_that_is_not_there_yet(self, tmp_path: Path) -> None:
        """The lock counts, not what stands in it."""
        for content in ("", "junk\n", "\x00" * 32, "-1", "²"):
            (tmp_path / "lock").write_text(content, encoding="utf-8")
            assert running(tmp_path) == 0

    def test_asking_leaves_the_lock_free(self, tmp_path: Path) -> None:
        """The next daemon can start."""
        from lbd.store.state import StateDir

        with StateDir(tmp_path).locked():
            pass
        assert running(tmp_path) is None
        with StateDir(tmp_path).locked():
            assert running(tmp_path) == os.getpid()


AS_NOBODY = """
import os, sys
from pathlib import Path
from lbd.errors import LbdError
from lbd.store.control import Control, Pause
from lbd.store.status import read_status, running
folder = Path(sys.argv[1])
os.setuid(65534)
try:
    print(eval(sys.argv[2]))
except LbdError as error:
    print(error)
"""


@as_root
@pytest.mark.landing
class TestOtherUsers:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Iterator[Path]:
        """A state directory that others can reach; pytest's own are closed to them."""
        with tempfile.TemporaryDirectory() as name:
            Path(name).chmod(0o755)
            yield Path(name)

    def _as_nobody(self, folder: Path, expression: str) -> str:
        command = [sys.executable, "-c", AS_NOBODY, str(folder), expression]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def test_may_ask_whether_one_runs(self, folder: Path) -> None:
        """Without any right to write."""
        from lbd.store.state import StateDir

        with StateDir(folder).locked():
            assert self._as_nobody(folder, "running(folder)") == str(os.getpid())
        assert self._as_nobody(folder, "running(folder)") == "None"

    def test_may_read(self, folder: Path) -> None:
        """Pause and status."""
        Control(folder).pause(a_pause())
        write(folder, a_status())
        both = f"Control(folder).paused({NOW}).by, read_status(folder).cluster"
        assert self._as_nobody(folder, both) == "('alice', 'c')"

    def test_are_told_who_may_write(self, folder: Path) -> None:
        """In one line."""
        Control(folder).pause(a_pause())
        told = self._as_nobody(folder, "Control(folder).resume()")
        assert told.startswith(f"{folder}/{STORE_NAME}: cannot be written: Permission denied; this is user ")
        assert told.endswith("do it as root")
        (folder / "lock").touch(0o600)
        assert "lock: cannot be read: Permission denied" in self._as_nobody(folder, "running(folder)")

    def test_own_what_root_makes_for_them(self, folder: Path) -> None:
        """A pause by root before the daemon's first start must not lock the daemon's user out."""
        os.chown(folder, NOBODY, NOBODY)
        Control(folder).pause(a_pause())
        assert {path.stat().st_uid for path in folder.rglob("*")} == {NOBODY}
        assert self._as_nobody(folder, "Control(folder).resume().by") == "alice"


def _junk() -> st.SearchStrategy[bytes]:
    """Bytes, halves of good files, any JSON, and good files with one field of another kind."""
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    )
    good = [msgspec.to_builtins(value) for value in (a_pause(), a_status())]
    keys = sorted({key for one in good for key in one})
    spoilt = st.builds(
        lambda one, key, value: {**one, key: value}, st.sampled_from(good), st.sampled_from(keys), values
    )
    whole = (values | spoilt).map(lambda value: json.dumps(value).encode())
    halves = st.builds(lambda one, at: one[: at % (len(one) + 1)], whole, st.integers(min_value=0))
    return st.binary() | whole | halves


@pytest.mark.security("any bytes as a control file: refused in one line")
@given(_junk())
def test_junk_raises_nothing_but_usage_errors(content: bytes) -> None:
    """Whatever stands in the files: a pause that cannot be read counts, the rest is told in one line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        control = Control(folder)
        put_value(folder, ORDERS, content)
        for path in ("status.json", "lock"):
            (folder / path).write_bytes(content)
        pause = control.paused(NOW)
        assert pause is None or isinstance(pause, Pause)
        assert running(folder) is None
        try:
            read_status(folder)
        except UsageError as error:
            assert "\n" not in str(error)  # noqa: PT017 - either a value or one line
