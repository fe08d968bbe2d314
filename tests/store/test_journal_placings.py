"""Placements in the journal: the bundle rests, no budget counts it, and history tells of it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from lbd.model import Outcome, Result, Unload
from lbd.store.database import STORE_NAME
from lbd.store.journal import Journal, read
from lbd.store.moves import history

if TYPE_CHECKING:
    from pathlib import Path


BUNDLE = "t/n/0x00000000_0x80000000"


def placed(result: Result = Result.LANDED, owner: str | None = "b:80") -> Outcome:
    """A bundle that nobody owned."""
    return Outcome(Unload(BUNDLE, "", "b:80", 0.0, 0.0, "by hand, ann"), result, owner, "in words", seconds=0.25)


def test_a_placement_rests_and_counts_in_no_budget(tmp_path: Path):
    """Read again it is as it was written: nothing open, nothing sent, nothing unreadable."""
    path = tmp_path / STORE_NAME
    with closing(Journal(path, lambda: 100.0)) as journal:
        journal.placed(placed())
        assert journal.attempted_at == {BUNDLE: 100.0}
        assert (journal.sent, journal.open) == ((), ())
    past = read(path)
    assert (past.attempted_at, past.sent, past.open) == ({BUNDLE: 100.0}, (), ())


def test_the_rest_outlives_its_process(tmp_path: Path):
    """And history tells of it once."""
    path = tmp_path / STORE_NAME
    with closing(Journal(path, lambda: 100.0)) as journal:
        journal.placed(placed())
        journal.conclude(journal.intend(Unload("t/n/0x80000000_0xffffffff", "a:80", "b:80", 1.0, 1.0), 1), placed())
    with closing(Journal(path, lambda: 101.0)) as again:
        assert again.attempted_at[BUNDLE] == 100.0
    assert [move.bundle for move in history(tmp_path)] == [BUNDLE, "t/n/0x80000000_0xffffffff"]


def test_history_tells_how_it_ended(tmp_path: Path):
    """From nobody, to the broker wanted, and who has it."""
    path = tmp_path / STORE_NAME
    with closing(Journal(path, lambda: 100.0)) as journal:
        journal.placed(placed(Result.ELSEWHERE, "c:80"))
    (move,) = history(tmp_path)
    ends = (move.bundle, move.source, move.destination, move.result, move.owner)
    assert ends == (BUNDLE, "", "b:80", Result.ELSEWHERE, "c:80")
    assert (move.at, move.ended_at, move.seconds, move.reason) == (99.75, 100.0, 0.25, "by hand, ann")
