"""A calibration that was cut short goes on where it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from lbd.config import Settings
from lbd.errors import UsageError
from lbd.learn.calibrate import CalibrationRequest, calibrate
from lbd.learn.kept import FILES, Done, KeptWorkers, digest
from lbd.learn.quality import FileRows
from lbd.learn.workers import Packing, Task
from tests.learn.in_process import InProcess, calibrated

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from lbd.learn.workers import Columns, OfTask, PackedHistory, Rows

TASKS = [Task(number, number + 1) for number in range(6)]
COLUMNS = {"first": pa.int64(), "times": pa.int64()}


@dataclass
class Cut:
    """A packed history that counts the tasks it runs, and is interrupted after some."""

    packed: PackedHistory | None = None
    ends_after: int = 1_000
    ran: list[Task] = field(default_factory=list)

    def run(self, windows: Collection[int], tasks: Sequence[Task], function: OfTask, columns: Columns) -> Rows:
        """As the other history does; without one, what the function makes of the tasks alone."""
        if len(self.ran) >= self.ends_after:
            raise KeyboardInterrupt
        self.ran += tasks
        if self.packed is not None:
            return self.packed.run(windows, tasks, function, columns)
        return [dict(row) for task in tasks for row in function(iter(()), iter(()), task)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.packed, name)


@dataclass
class Few:
    """Workers with a file for each letter, whose history has nothing but what is run over it."""

    letters: str
    history: Cut
    without: Collection[str] = ()

    def files(self) -> list[FileRows]:
        """Of one table."""
        return [FileRows("decisions", letter, 1, 1, {"t": 1}) for letter in self.letters]

    def reconnect_seconds(self) -> float | None:
        """Not measured."""
        return None

    def days(self, without: Collection[str], function: object, columns: Columns) -> Rows:
        """None."""
        return [dict.fromkeys(columns, str(function))][:0] if without else []

    def packed(self, without: Collection[str], windows: Packing, hours: Packing) -> Any:
        """What is left out is noted."""
        self.without = set(without) if windows.seconds > hours.seconds else ()
        return self.history


def times(_: object, __: object, task: Task, *, by: int) -> list[dict[str, int]]:
    """A row of a task."""
    return [{"first": task.first, "times": task.first * by}]


def ran(
    folder: Path, letters: str = "ab", *, by: int = 10, at_once: int = 1, ends_after: int = 1_000
) -> tuple[list[int], Cut, Few]:
    """The results of all tasks, and what ran for that. None where it was interrupted."""
    workers = Few(letters, Cut(ends_after=ends_after))
    kept = KeptWorkers(workers, folder, at_once)
    kept.files()
    packed = kept.packed({"torn"}, Packing(7_200, times, COLUMNS), Packing(3_600, times, COLUMNS))
    rows = packed.run([1, 2], TASKS, partial(times, by=by), COLUMNS)
    assert kept.done == packed.done
    return [row["times"] for row in sorted(rows, key=lambda row: row["first"])], workers.history, workers


ALL = [0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize(("at_once", "first", "second"), [(1, 2, 4), (2, 2, 4), (4, 4, 2), (100, 6, 0)])
def test_each_task_is_run_once(tmp_path: Path, at_once: int, first: int, second: int):
    """Parts that had ended when the first run was interrupted are not run by the second one."""
    if second:
        with pytest.raises(KeyboardInterrupt):
            ran(tmp_path / "unfinished", at_once=at_once, ends_after=first)
    else:
        ran(tmp_path / "unfinished", at_once=at_once)
    found, history, _ = ran(tmp_path / "unfinished", at_once=at_once)
    assert (found, len(history.ran)) == (ALL, second)


@pytest.mark.parametrize(
    ("letters", "runs", "without"),
    [
        ("ab", 0, {"torn"}),
        ("abc", 0, {"torn", "c"}),  # written since: the answer is of the files of then
        ("ac", 6, {"torn"}),  # packed into another file since: all anew, with the newest
    ],
)
def test_it_stays_with_the_files_of_the_first_run(tmp_path: Path, letters: str, runs: int, without: set[str]):
    """A daemon goes on writing history while a calibration waits to be resumed."""
    ran(tmp_path / "unfinished", "ab")
    found, history, workers = ran(tmp_path / "unfinished", letters)
    assert (found, len(history.ran), workers.without) == (ALL, runs, without)


def test_it_stays_with_the_parts_of_the_first_run(tmp_path: Path):
    """A cluster has more executors, or fewer, when the same command goes on."""
    ran(tmp_path / "unfinished", at_once=4)
    found, history, _ = ran(tmp_path / "unfinished", at_once=3)
    assert (found, len(history.ran)) == (ALL, 0)


def test_another_function_is_run(tmp_path: Path):
    """As with other settings or another model: what was kept is of no use."""
    ran(tmp_path / "unfinished", by=10)
    found, history, _ = ran(tmp_path / "unfinished", by=100)
    assert (found, len(history.ran)) == ([10 * value for value in ALL], 6)


def test_a_torn_part_is_run_again(tmp_path: Path):
    """A power cut leaves files without content."""
    folder = tmp_path / "unfinished"
    ran(folder)
    for path in [path for path in folder.iterdir() if path.name != FILES][:2]:
        path.write_bytes(b"")
    found, history, _ = ran(folder)
    assert (found, len(history.ran)) == (ALL, 2)


def test_a_torn_list_of_files_is_named(tmp_path: Path):
    """Nothing is computed by it, and nothing of it is lost: a person may remove the folder."""
    ran(tmp_path / "unfinished")
    (tmp_path / "unfinished" / FILES).write_bytes(b'["a",')
    with pytest.raises(UsageError, match=r"files\.json: cannot be read: "):
        ran(tmp_path / "unfinished")


@dataclass
class CutInProcess(InProcess):
    """Workers of a history that are interrupted."""

    root: Path
    cut: Cut

    def __post_init__(self) -> None:
        super().__init__(self.root)

    def packed(self, without: Collection[str], windows: Packing, hours: Packing) -> Any:
        """In memory."""
        self.cut.packed = super().packed(without, windows, hours)
        return self.cut


@pytest.mark.landing
def test_the_answer_is_that_of_a_run_in_one_go(history: Path, tmp_path: Path):
    """To the last bit: what was kept is what had been computed."""
    request = CalibrationRequest(str(history), Settings(), 4, 1, lambda _: None)
    cut, rest = Cut(ends_after=2), Cut()
    with pytest.raises(KeyboardInterrupt):
        calibrate(KeptWorkers(CutInProcess(history, cut), tmp_path / "unfinished", 1), request)
    found = calibrate(KeptWorkers(CutInProcess(history, rest), tmp_path / "unfinished", 1), request)
    assert len(cut.ran) == 2
    assert not {*cut.ran}.intersection(rest.ran)
    assert found.choice == calibrated(history).choice


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.arange(3.0), np.arange(4.0)),
        (np.arange(3), np.arange(3.0)),
        (partial(digest, value=1), partial(digest, value=2)),
        (frozenset({1, 2}), frozenset({1, 3})),
        (Settings(), Settings(interval_seconds=7)),
    ],
)
def test_other_values_have_other_digests(one: object, other: object):
    """And equal ones the same."""
    assert digest(one) != digest(other)
    assert digest([one]) == digest([one])


def test_what_has_no_digest_is_an_error():
    """A value that is silently the same for all would give the rows of another run."""
    with pytest.raises(TypeError, match="no digest of object"):
        digest(object())


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (Done(0, 15, 0, 0.0), "0 of 15 parts"),
        (Done(8, 15, 0, 0.0), "8 of 15 parts"),
        (Done(8, 15, 4, 240.0), "8 of 15 parts, about 7 min left"),
        (Done(15, 15, 4, 240.0), "15 of 15 parts"),
    ],
)
def test_it_says_how_far_it_is(done: Done, words: str):
    """By its pace now: what was kept took no time."""
    assert done.words == words


@dataclass
class Measured(Few):
    """Workers of a history in which moves are measured meanwhile."""

    seconds: float | None = None

    def reconnect_seconds(self) -> float | None:
        """As measured by now."""
        return self.seconds


@pytest.mark.parametrize(("letters", "seconds"), [("ab", 2.0), ("abc", 2.0), ("ac", 3.0)])
def test_moves_that_are_measured_since_change_no_cost(tmp_path: Path, letters: str, seconds: float):
    """Else every replay that was kept would be made again, for it has another scale."""

    def asked(letters: str, seconds: float) -> float | None:
        workers = KeptWorkers(Measured(letters, Cut(), seconds=seconds), tmp_path / "unfinished", 1)
        workers.files()
        return workers.reconnect_seconds()

    ran(tmp_path / "unfinished", "ab")
    assert asked("ab", 2.0) == 2.0
    assert asked(letters, 3.0) == seconds
