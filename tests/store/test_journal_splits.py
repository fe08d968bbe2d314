"""Splits in the journal: what rests, what counts, what a kill leaves open, and what an older lbd makes of the lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.model import Outcome, Result, Unload
from lbd.split.plan import Cut, CutOutcome, SplitResult
from lbd.store.database import STORE_NAME
from lbd.store.journal import Journal, read
from lbd.store.moves import history
from tests.journals import entries

if TYPE_CHECKING:
    from pathlib import Path


WHOLE, LOW, HIGH = (
    f"t/n/{span}" for span in ("0x00000000_0x80000000", "0x00000000_0x40000000", "0x40000000_0x80000000")
)
CUT = Cut(WHOLE, "b1:8080", "topic_count_equally_divide", (0x40000000,), "by hand, ann")
DAY = 86_400.0


def ended(result: SplitResult = SplitResult.SPLIT) -> CutOutcome:
    """How the split ended."""
    return CutOutcome(CUT, result, CUT.positions if result is SplitResult.SPLIT else (), "b1:8080", "", 0.0712)


def whole(bundle: str) -> CutOutcome:
    """A split that cut nothing."""
    return CutOutcome(Cut(bundle, "b1:8080", "range_equally_divide", (5,)), SplitResult.NOT_SPLIT)


def opened(folder: Path, at: float) -> Journal:
    """A journal whose clock stands."""
    return Journal(folder / STORE_NAME, lambda: at)


def test_the_lines_are_what_other_programs_read(tmp_path: Path):
    """Intent before, outcome after; positions as numbers, parts by their full names."""
    journal = opened(tmp_path, 100.0)
    journal.conclude_split(journal.intend_split(CUT), ended())
    journal.close()
    intent, outcome = entries(tmp_path)

    assert intent == {
        "event": "split",
        "at": 100.0,
        "split": outcome["split"],
        "bundle": WHOLE,
        "owner": "b1:8080",
        "algorithm": "topic_count_equally_divide",
        "positions": [0x40000000],
        "reason": "by hand, ann",
    }
    assert outcome == {
        "event": "split-outcome",
        "at": 100.0,
        "split": intent["split"],
        "result": "split",
        "bundle": WHOLE,
        "parts": [LOW, HIGH],
        "owner": "b1:8080",
        "seconds": 0.071,
    }


def test_what_rests(tmp_path: Path):
    """The old name as after an unload, from the intent on. Parts may be moved at once, and are not split so soon."""
    journal = opened(tmp_path, 100.0)
    name = journal.intend_split(CUT)
    assert journal.attempted_at == {WHOLE: 100.0}
    journal.conclude_split(name, ended())
    assert journal.attempted_at == {WHOLE: 100.0}
    assert journal.split_or_attempted_at == {WHOLE: 100.0, LOW: 100.0, HIGH: 100.0}


def test_a_part_that_was_moved_since_rests_from_then_on(tmp_path: Path):
    """And one that stayed whole from its last move on: the later of both counts."""
    now = [100.0]
    journal = Journal(tmp_path / STORE_NAME, lambda: now[0])
    journal.conclude_split(journal.intend_split(CUT), ended())
    journal.conclude_split(journal.intend_split(Cut(HIGH, "b1:8080", "range_equally_divide", (5,))), whole(HIGH))
    now[0] = 1300.0
    for bundle in (LOW, HIGH):
        journal.intend(Unload(bundle, "b1:8080", "b2:8080", 1.0, 1.0), 1)
    rests = {WHOLE: 100.0, LOW: 1300.0, HIGH: 1300.0}
    assert journal.split_or_attempted_at == rests
    assert read(tmp_path / STORE_NAME).split_or_attempted_at == rests


@pytest.mark.parametrize(
    ("result", "counts"), [(None, True), *((one, one is not SplitResult.NOT_SPLIT) for one in SplitResult)]
)
def test_what_may_have_cut_counts(result: SplitResult | None, counts: bool, tmp_path: Path):
    """Also while it is open."""
    journal = opened(tmp_path, 100.0)
    name = journal.intend_split(CUT)
    if result is not None:
        journal.conclude_split(name, ended(result))
    assert [split.may_have_cut for split in journal.splits] == [counts]


def test_an_open_one_is_found_again(tmp_path: Path):
    """With all that was intended, after a kill, however old it is."""
    opened(tmp_path, 100.0).intend_split(CUT)
    later = opened(tmp_path, 100.0 + 9 * DAY)
    later.conclude(later.intend(move := Unload(LOW, "b1:8080", "b2:8080", 1.0, 1.0), 1), _landed(move))

    [(_, found)] = opened(tmp_path, 100.0 + 9 * DAY).open_splits
    assert (found.at, found.cut) == (100.0, CUT)


def _landed(unload: Unload) -> Outcome:
    return Outcome(unload, Result.LANDED, unload.destination)


@pytest.mark.parametrize(("days", "splits"), [(0.5, 1), (1.5, 0)])
def test_a_day_is_known(days: float, splits: int, tmp_path: Path):
    """The budget counts an hour; what is older than a day is only history."""
    journal = opened(tmp_path, 100.0)
    journal.conclude_split(journal.intend_split(CUT), ended())
    later = opened(tmp_path, 100.0 + days * DAY)
    later.conclude(later.intend(move := Unload("t/n/other", "b1:8080", "b2:8080", 1.0, 1.0), 1), _landed(move))

    past = read(tmp_path / STORE_NAME, 100.0 + days * DAY)
    assert len(past.splits) == splits
    assert past.attempted_at[WHOLE] == 100.0


def test_a_clock_that_was_set_back(tmp_path: Path):
    """A split of later happened now, and ages from then on."""
    opened(tmp_path, 500.0).intend_split(CUT)
    assert [split.at for split in opened(tmp_path, 100.0).splits] == [100.0]


def test_moves_are_told_without_splits(tmp_path: Path):
    """``lbd history`` lists moves."""
    journal = opened(tmp_path, 100.0)
    journal.conclude_split(journal.intend_split(CUT), ended())
    move = Unload(LOW, "b1:8080", "b2:8080", 1.0, 1.0)
    journal.conclude(journal.intend(move, 1), _landed(move))
    assert [one.bundle for one in history(tmp_path)] == [LOW]
