"""What is kept between turns: replaced whole, held by one process, and dropped when it is too old to be true."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd.errors import RefusedError, UsageError
from lbd.model import Averages, Hits
from lbd.permit.evidence import Sample, unsettle
from lbd.store.database import value
from lbd.store.state import AVERAGES, AVERAGES_GO_STALE_SECONDS, MEMORY, Scratch, StateDir, TurnMemory
from tests.builders import put_value

if TYPE_CHECKING:
    from pathlib import Path


NOW = 1_800_000_000.0
HOLD = "import sys; from pathlib import Path; from lbd.store.state import StateDir\n"


def kept(**changes: object) -> TurnMemory:
    """A memory with something of everything in it."""
    values = {
        "written_at": NOW,
        "hits": {"a:80": Hits(3, 1)},
        "samples": {"a:80": Sample((10.0, 0.0, 0.0), NOW - 5, 4, 1, 7)},
        "members": ["a:80", "b:80"],
        "members_since": NOW - 1000,
    }
    return TurnMemory(**{**values, **changes})  # type: ignore[arg-type]


def averages(names: list[str] | None = None) -> Averages:
    """Averages of two bundles with names that are not ASCII."""
    found = ["t/n/0x00000000_0x80000000", "t/ü/0x80000000_0xffffffff"] if names is None else names
    size = len(found)
    rates = np.arange(size * 4, dtype=np.float64).reshape(size, 4)
    return Averages(found, rates, rates * 2, np.arange(1, size + 1, dtype=np.int32))


def same(first: Averages, second: Averages) -> bool:
    """Whether two averages are equal."""
    columns = ((first.short, second.short), (first.long, second.long), (first.samples, second.samples))
    return first.bundles == second.bundles and all(np.array_equal(one, other) for one, other in columns)


class TestMemory:
    def test_round_trip(self, tmp_path: Path) -> None:
        """What is saved is loaded, by another process's object too."""
        StateDir(tmp_path).save(kept())
        assert StateDir(tmp_path).load() == kept()

    def test_nothing_yet(self, tmp_path: Path) -> None:
        """A new state directory holds an empty memory; who holds it creates it, with its parents."""
        state = StateDir(tmp_path / "a" / "b")
        assert state.load() == TurnMemory()
        assert not state.path.parent.exists()
        with state.locked():
            assert state.path.is_dir()

    def test_nan_survives(self, tmp_path: Path) -> None:
        """A 2.11 report has no start time: the sample keeps NaN, or the next turn would see a restart."""
        sample = Sample((1.0, float("nan"), 0.0), float("nan"))
        StateDir(tmp_path).save(kept(samples={"a:80": sample}))
        found = StateDir(tmp_path).load().samples["a:80"]
        assert np.isnan(found.started_at)
        assert np.isnan(found.usage[1])

    def test_who_was_touched_when_lbd_was_killed_is_still_touched(self, tmp_path: Path) -> None:
        """No moment is known yet then: the time is infinite, which plain JSON has not either."""
        touched = unsettle(kept().samples, ["a:80"])
        StateDir(tmp_path).save(kept(samples=touched))
        found = StateDir(tmp_path).load().samples["a:80"]
        assert found == touched["a:80"]
        assert (found.to_settle, found.is_still, np.isinf(found.touched_at)) == (2, False, True)

    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            (b"", "cannot be read"),
            (b'{"format": 1, "hits"', "cannot be read"),
            (b"[]", "cannot be read"),
            (b"\xff\xfe", "cannot be read"),
            (b'{"hits": {"a": 3}}', "cannot be read"),
            (b'{"members": ["\\ud800"]}', "cannot be read"),
        ],
        ids=["empty", "half", "a list", "no text", "wrong shape", "half a character"],
    )
    def test_a_broken_value_is_told_with_what_to_do(self, content: bytes, complaint: str, tmp_path: Path) -> None:
        """It is not silently forgotten: counters would start anew on every turn."""
        put_value(tmp_path, MEMORY, content)
        with pytest.raises(UsageError, match=f"{complaint}.*forgets it"):
            StateDir(tmp_path).load()

    def test_replaced_at_once_or_not_at_all(self, tmp_path: Path) -> None:
        """A reader during many writes never sees half a file."""
        state = StateDir(tmp_path)
        state.save(kept())
        stop = threading.Event()
        seen: list[TurnMemory] = []

        def look() -> None:
            while not stop.is_set():
                seen.append(StateDir(tmp_path).load())

        reader = threading.Thread(target=look)
        reader.start()
        wanted = [kept(members=[f"b{number}:80"] * 500) for number in range(20)]
        for one in wanted:
            state.save(one)
        stop.set()
        reader.join()
        assert all(one in [kept(), *wanted] for one in seen)

    @pytest.mark.parametrize(
        ("passed", "hits"),
        [
            (0.0, {"a:80": Hits(3, 1)}),
            (180.0, {"a:80": Hits(3, 1)}),
            (180.1, {}),
            (86_400.0, {}),
            (-0.1, {}),
            (-3600.0, {}),
        ],
        ids=["at once", "just in time", "a gap", "a day", "the clock went back", "an hour back"],
    )
    def test_a_gap_resets_the_counters_alone(self, passed: float, hits: dict[str, Hits]) -> None:
        """Hits in a row are none over a gap; the samples still tell a new one from an old one."""
        since = min(NOW - 1000, NOW + passed)
        assert kept().at(NOW + passed, 180.0) == kept(hits=hits, members_since=since)


class TestAverages:
    @pytest.mark.parametrize("names", [None, [], ["t/n/0x00000000_0xffffffff"]])
    def test_round_trip(self, names: list[str] | None, tmp_path: Path) -> None:
        """Names and columns come back as they were."""
        StateDir(tmp_path).save_averages(averages(names), NOW)
        assert same(StateDir(tmp_path).load_averages(NOW + 1), averages(names))

    @pytest.mark.parametrize(
        ("passed", "there"),
        [
            (0.0, True),
            (AVERAGES_GO_STALE_SECONDS, True),
            (AVERAGES_GO_STALE_SECONDS + 0.1, False),
            (-0.1, False),
        ],
    )
    def test_stale_ones_are_dropped(self, passed: float, there: bool, tmp_path: Path) -> None:
        """After 15 minutes, or a clock that went back, averages start anew."""
        StateDir(tmp_path).save_averages(averages(), NOW)
        assert bool(StateDir(tmp_path).load_averages(NOW + passed).bundles) is there

    @pytest.mark.parametrize("kept_bytes", [0, 1, 50, 300, -1, -30, -200])
    def test_a_torn_value_is_as_good_as_none(self, kept_bytes: int, tmp_path: Path) -> None:
        """Averages are rebuilt from the reports; nothing stops for them."""
        state = StateDir(tmp_path)
        state.save_averages(averages(), NOW)
        put_value(tmp_path, AVERAGES, (value(state.store, AVERAGES) or b"")[:kept_bytes])
        assert same(state.load_averages(NOW), Averages.empty())

    def test_a_flipped_byte_never_stops_a_turn(self, tmp_path: Path) -> None:
        """Wherever the disk is wrong: the names that come back are all of them, or none."""
        state = StateDir(tmp_path)
        state.save_averages(averages(), NOW)
        whole = value(state.store, AVERAGES) or b""
        for at in range(0, len(whole), 5):
            put_value(tmp_path, AVERAGES, whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            assert state.load_averages(NOW).bundles in (averages().bundles, [])

    @pytest.mark.parametrize(
        "content", [b"PK\x03\x04 nothing of the kind", b"\x93NUMPY\x01\x00", b"words", b"\x80\x04K."]
    )
    def test_something_else_in_its_place(self, content: bytes, tmp_path: Path) -> None:
        """A value that is no averages, a pickle among them, is not loaded."""
        put_value(tmp_path, AVERAGES, content)
        assert same(StateDir(tmp_path).load_averages(NOW), Averages.empty())

    def test_columns_that_do_not_belong_together(self, tmp_path: Path) -> None:
        """Fewer names than rows would give bundles each other's numbers."""
        state = StateDir(tmp_path)
        state.save_averages(Averages(["one"], averages().short, averages().long, averages().samples), NOW)
        assert same(state.load_averages(NOW), Averages.empty())


class TestLock:
    def test_a_second_process_is_refused(self, tmp_path: Path) -> None:
        """It learns which process works there, with exit code 4 for who called it."""
        program = HOLD + "with StateDir(Path(sys.argv[1])).locked(): pass"
        with StateDir(tmp_path).locked():
            asked = subprocess.run(
                [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False, timeout=30
            )
        assert asked.returncode == 1
        assert "RefusedError" in asked.stderr
        assert "another lbd (process " in asked.stderr

    def test_a_killed_holder_leaves_no_lock(self, tmp_path: Path) -> None:
        """The kernel gives it back with the process, however that ends."""
        program = HOLD + "with StateDir(Path(sys.argv[1])).locked(): print(1, flush=True); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            with pytest.raises(RefusedError, match=f"process {holder.pid}"), StateDir(tmp_path).locked():
                pass
            holder.kill()
        with StateDir(tmp_path).locked():
            assert (tmp_path / "lock").exists()

    def test_it_is_given_back_after_an_error(self, tmp_path: Path) -> None:
        """Whatever a turn ends in, the next one can start."""
        with pytest.raises(ZeroDivisionError), StateDir(tmp_path).locked():
            raise ZeroDivisionError
        with StateDir(tmp_path).locked():
            pass

    def test_a_path_that_is_a_file(self, tmp_path: Path) -> None:
        """The directory that cannot be created is named."""
        (tmp_path / "file").write_text("", encoding="utf-8")
        with pytest.raises(UsageError, match="state_dir cannot be created"), StateDir(tmp_path / "file").locked():
            pass


def test_scratch_keeps_for_one_process() -> None:
    """The same contract without a directory, for turns that leave no trace."""
    scratch = Scratch()
    assert scratch.load() == TurnMemory()
    scratch.save(kept())
    scratch.save_averages(averages(), NOW)
    assert scratch.load() == kept()
    assert same(scratch.load_averages(NOW + 1e9), averages())


@pytest.mark.parametrize(("since", "expected"), [(NOW - 1000, NOW - 1000), (NOW, NOW), (NOW + 3600, NOW), (0.0, 0.0)])
def test_membership_never_changed_in_the_future(since: float, expected: float) -> None:
    """A clock that went back must not hold lbd until it has caught up."""
    for gap in (180.0, float("inf")):
        assert kept(written_at=since, members_since=since).at(NOW, gap).members_since == expected
