"""What is told of the newest moves while the journal grows and is rotated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lbd.errors import UsageError
from lbd.model import Outcome, Result, Unload
from lbd.split.plan import Cut, CutOutcome, SplitResult
from lbd.store.append_log import LIVE_NAME
from lbd.store.journal import Journal
from lbd.store.moves import Following, history

if TYPE_CHECKING:
    from pathlib import Path


SMALL = 4096


def unload(number: int) -> Unload:
    return Unload(f"t/n/0x{number:08x}_0xffffffff", "a:1", "b:1", 1.0, 1.0, "why")


def moved(journal: Journal, number: int, result: Result = Result.LANDED) -> None:
    """One move from its intent to its end."""
    one = unload(number)
    journal.conclude(journal.intend(one, 1), Outcome(one, result, "b:1"))


def placed(journal: Journal, number: int) -> None:
    """One bundle that nobody owned."""
    journal.placed(Outcome(unload(number), Result.LANDED, "b:1"))


def split(journal: Journal, number: int) -> None:
    """One split from its intent to its end."""
    cut = Cut(f"t/n/0x{number:08x}_0xffffffff", "a:1", "range_equally_divide", (number + 1,), "why")
    journal.conclude_split(journal.intend_split(cut), CutOutcome(cut, SplitResult.SPLIT))


def told(following: Following, last: int = 1000) -> list[tuple[str, str | None]]:
    """Bundle and result of each move."""
    return [(move.bundle, move.result and move.result.value) for move in following.newest(last)]


class TestFollowing:
    def test_it_tells_what_history_tells_the_newest_first(self, tmp_path: Path):
        """After each step: an intent, its end, a rotation with a move under way, and lines after that."""
        following, now = Following(tmp_path), iter(range(10_000_000))
        assert following.newest(10) == []
        journal = Journal(tmp_path / LIVE_NAME, lambda: float(next(now)), max_bytes=SMALL)
        for number in range(100):
            moved(journal, number)
            if number % 3 == 0:
                assert following.newest(1000) == list(history(tmp_path))[::-1]
            if number % 40 == 0:
                under_way = journal.intend(unload(1000 + number), 1)
                assert following.newest(1)[0].move == under_way
        journal.close()
        assert following.newest(1000) == list(history(tmp_path))[::-1]
        assert [move.move for move in following.newest(3)] == [move.move for move in history(tmp_path)][:-4:-1]

    def test_an_amended_outcome_is_told_as_it_is_by_now(self, tmp_path: Path):
        """As history tells it."""
        following, now = Following(tmp_path), iter(range(100))
        journal = Journal(tmp_path / LIVE_NAME, lambda: float(next(now)))
        move = journal.intend(unload(1), 1)
        journal.conclude(move, Outcome(unload(1), Result.FAILED, "a:1", "HTTP 500"))
        assert told(following) == [(unload(1).bundle, "failed")]
        journal.amend(move, Outcome(unload(1), Result.LANDED, "b:1", "was failed before", amended=True))
        journal.close()
        assert told(following) == [(unload(1).bundle, "landed")]
        assert following.newest(9) == list(history(tmp_path))

    def test_one_that_begins_late_tells_as_many_as_it_keeps(self, tmp_path: Path):
        """Of a journal of several files only the last two are read."""
        now = iter(range(10_000_000))
        journal = Journal(tmp_path / LIVE_NAME, lambda: float(next(now)), max_bytes=SMALL, keep_seconds=1)
        for number in range(100):
            moved(journal, number)
        journal.close()
        assert told(Following(tmp_path, 5)) == [(unload(number).bundle, "landed") for number in range(99, 94, -1)]

    def test_several_rotations_between_two_looks_lose_nothing(self, tmp_path: Path):
        """The file that was live is found under its new name."""
        following, now = Following(tmp_path), iter(range(10_000_000))
        journal = Journal(tmp_path / LIVE_NAME, lambda: float(next(now)), max_bytes=SMALL, keep_seconds=1)
        moved(journal, 0)
        assert len(told(following)) == 1
        for number in range(1, 100):
            moved(journal, number)
        journal.close()
        assert len(list(tmp_path.glob("journal-*"))) > 2
        assert told(following) == [(unload(number).bundle, "landed") for number in range(99, -1, -1)]

    def test_a_line_that_is_half_written_is_told_when_it_is_whole(self, tmp_path: Path):
        """And junk is passed over."""
        journal = Journal(tmp_path / LIVE_NAME, lambda: 1.0)
        moved(journal, 1, Result.FAILED)
        journal.close()
        whole = (tmp_path / LIVE_NAME).read_bytes()
        (tmp_path / LIVE_NAME).write_bytes(b"junk\n" + whole[:-10])
        following = Following(tmp_path)
        assert told(following) == [(unload(1).bundle, None)]
        with (tmp_path / LIVE_NAME).open("ab") as file:
            file.write(whole[-10:])
        assert told(following) == [(unload(1).bundle, "failed")]

    def test_a_move_that_stays_open_does_not_come_back_as_the_newest(self, tmp_path: Path):
        """Each rotation carries its intent over."""
        following, now = Following(tmp_path, 20), iter(range(10_000_000))
        journal = Journal(tmp_path / LIVE_NAME, lambda: float(next(now)), max_bytes=SMALL, keep_seconds=1)
        under_way = journal.intend(unload(1000), 1)
        for number in range(100):
            moved(journal, number)
            assert following.newest(1)[0].bundle == unload(number).bundle
        assert len(list(tmp_path.glob("journal-*"))) > 2
        assert following.newest(20)[-1].move == under_way
        journal.close()

    def test_what_was_taken_back_is_not_told(self, tmp_path: Path):
        """A disk that was full: the file is shorter than it was."""
        journal = Journal(tmp_path / LIVE_NAME, lambda: 1.0)
        moved(journal, 1)
        short = (tmp_path / LIVE_NAME).stat().st_size
        moved(journal, 2)
        journal.close()
        following = Following(tmp_path)
        assert len(told(following)) == 2
        with (tmp_path / LIVE_NAME).open("r+b") as file:
            file.truncate(short)
        assert told(following) == [(unload(1).bundle, "landed")]

    def test_what_was_taken_back_takes_no_older_file_with_it(self, tmp_path: Path):
        """The file before the live one is read again as well."""
        now = iter(range(10_000_000))
        journal = Journal(tmp_path / LIVE_NAME, lambda: float(next(now)), max_bytes=SMALL, keep_seconds=1)
        for number in range(30):
            moved(journal, number)
        journal.close()
        following, live = Following(tmp_path), tmp_path / LIVE_NAME
        before = told(following)
        assert len(before) > live.read_bytes().count(b"intent") > 1
        lines = live.read_bytes().splitlines(keepends=True)
        os.truncate(live, live.stat().st_size - len(lines[-1]) - len(lines[-2]))
        assert told(following) == before[1:]

    def test_a_newer_format_is_refused(self, tmp_path: Path):
        """As everywhere, and as often as it is looked at."""
        (tmp_path / LIVE_NAME).write_text('{"event":"journal","format":99,"at":0}\n')
        following = Following(tmp_path)
        for _ in range(2):
            with pytest.raises(UsageError, match="format 99"):
                following.newest(1)


@pytest.mark.parametrize("write", [moved, placed, split])
def test_whatever_fills_the_journal_rotates_it(write: object, tmp_path: Path):
    """A daemon that only places or only splits does not fill the disk either."""
    now = iter(range(0, 1_000_000_000, 100_000))
    journal = Journal(tmp_path / LIVE_NAME, lambda: float(next(now)), max_bytes=SMALL, keep_seconds=1, keep_files=2)
    for number in range(200):
        write(journal, number)  # type: ignore[operator]
    journal.close()
    assert len(list(tmp_path.glob("journal-*"))) == 2
    assert (tmp_path / LIVE_NAME).stat().st_size < 2 * SMALL
