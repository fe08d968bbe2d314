"""Kept turns: what is merged, how old ones go, and what damage or a full disk leaves."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from lbd.errors import UsageError
from lbd.store import turns as module
from lbd.store.database import STORE_NAME, Database, writing
from lbd.store.turn_record import (
    BrokerRecord,
    OutcomeRecord,
    PairRecord,
    Planned,
    SkipLine,
    TurnRecord,
    Verdict,
)
from lbd.store.turns import KeptTurns, ReportedBundles, Turns, load_bundles, save_bundles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NOW = 1_800_000_000.0
A, B = "broker-1:8080", "broker-2:8080"


def seen(name: str = A, score: float = 40.0, **changes: Any) -> BrokerRecord:
    """One broker with a new sample."""
    return msgspec.structs.replace(BrokerRecord(name, score, "cpu", 100.0, 1e4, 8, fresh=True), **changes)


def turn(at: float = 0.0, **changes: Any) -> TurnRecord:
    """A calm turn, ``at`` seconds after the first one."""
    values: dict[str, Any] = {
        "at": NOW + at,
        "sentence": "No move: cluster: balanced.",
        "verdict": Verdict("balanced"),
        "brokers": [seen(), seen(B, 35.0)],
    }
    return TurnRecord(**{**values, **changes})


def waiting(low: int, at: float = 0.0, *, fresh: bool = True, reason: str = "waiting") -> TurnRecord:
    """A turn in which the pair has so many hits."""
    pair = PairRecord(A, B, 30.0, low=low, low_wanted=8, reason=reason)
    brokers = [seen(score=70.0, fresh=fresh), seen(B, fresh=fresh)]
    return turn(at, verdict=Verdict("waiting", "waiting", samples=8 - low), pairs=[pair], brokers=brokers)


def writer(folder: Path, max_bytes: int = 1 << 20) -> Turns:
    """A daemon's writer."""
    return Turns(folder, max_bytes)


def kept(folder: Path) -> list[TurnRecord]:
    """What a reader finds, oldest first."""
    return list(reversed(list(KeptTurns(folder))))


def row_count(folder: Path) -> int:
    """How many rows they take."""
    with closing(sqlite3.connect(folder / STORE_NAME)) as store:
        return int(store.execute("SELECT count(*) FROM turns").fetchone()[0])


@pytest.fixture(autouse=True)
def store(tmp_path: Path) -> Iterator[Database]:
    """The store of the directory, open as a running lbd has it."""
    with closing(Database.open(tmp_path / STORE_NAME)) as opened:
        yield opened


class TestMerging:
    @pytest.mark.parametrize(
        ("second", "merged"),
        [
            (turn(15), True),
            (turn(59, brokers=[seen(score=44.0), seen(B, 35.0)]), True),
            (turn(60), False),
            (turn(900, brokers=[seen(fresh=False), seen(B, 35.0, fresh=False)]), True),
            (turn(-5), False),
            (turn(15, verdict=Verdict("unknown")), False),
            (turn(15, hold=SkipLine("cluster", "paused", "by alice")), False),
            (turn(15, error="the disk is full"), False),
            (turn(15, unloads=[Planned("t/n/0x0_0x1", A, B)]), False),
            (turn(15, outcomes=[OutcomeRecord("t/n/0x0_0x1", A, B, "landed")]), False),
            (turn(15, refused=[SkipLine("t/n/0x0_0x1", "round-stopped")]), False),
            (turn(15, skips=[SkipLine(A, "first-sample")]), False),
            (turn(15, brokers=[seen(), seen(B, 35.0, to_settle=1)]), False),
            (turn(15, brokers=[seen()]), False),
            (turn(15, acts=False), False),
        ],
    )
    def test_only_a_quiet_turn_is_counted_instead_of_kept(
        self, tmp_path: Path, second: TurnRecord, merged: bool
    ) -> None:
        """Nothing happened, the same is said, and the scores kept are younger than a minute."""
        turns = writer(tmp_path)
        assert (turns.keep(turn()), turns.keep(second)) == (1, 2)
        assert [(one.turn, one.last) for one in kept(tmp_path)] == ([(1, 2)] if merged else [(1, 1), (2, 2)])

    def test_a_turn_after_a_deed_is_kept(self, tmp_path: Path) -> None:
        """Also when it says what the one before said."""
        turns = writer(tmp_path)
        for at in (0, 1):
            turns.keep(turn(at, unloads=[Planned("t/n/0x0_0x1", A, B)]))
        assert [one.turn for one in kept(tmp_path)] == [1, 2]

    def test_a_proposal_that_stands_is_one_line(self, tmp_path: Path) -> None:
        """Nothing is begun; another plan is news."""
        turns, moves = writer(tmp_path), [Planned(f"t/n/0x{number}_0x{number + 1}", A, B) for number in range(2)]
        for at, unloads in ((0, moves), (15, moves), (30, moves), (45, moves[:1])):
            turns.keep(turn(at, acts=False, unloads=unloads))
        assert [(one.turn, one.last) for one in kept(tmp_path)] == [(1, 3), (4, 4)]

    def test_hits_are_news_and_silence_is_not(self, tmp_path: Path) -> None:
        """A pair that waits for the next sample is one line for each hit."""
        turns = writer(tmp_path)
        for low in range(1, 4):
            turns.keep(waiting(low, low * 60.0))
            for more in (15, 30, 45):
                turns.keep(waiting(low, low * 60.0 + more, fresh=False, reason="no-new-sample"))
        assert [(one.turn, one.last, one.ended_at - NOW) for one in kept(tmp_path)] == [
            (1, 4, 105),
            (5, 8, 165),
            (9, 12, 225),
        ]

    def test_a_quiet_night_is_one_row(self, tmp_path: Path) -> None:
        """However many turns it has: they are counted in the row of the first."""
        turns = writer(tmp_path)
        quiet = [turn(at * 0.1, brokers=[seen(fresh=False)]) for at in range(2_000)]
        for one in quiet:
            turns.keep(one)
        assert row_count(tmp_path) == 1
        assert [(one.turn, one.last, one.ended_at) for one in kept(tmp_path)] == [(1, 2_000, quiet[-1].at)]


class TestRows:
    def test_numbers_go_on_after_a_restart(self, tmp_path: Path) -> None:
        """After the quiet turns that were only counted."""
        first = writer(tmp_path)
        for at in range(3):
            first.keep(turn(at))
        assert writer(tmp_path).keep(turn(5)) == 4
        assert [(one.turn, one.last) for one in kept(tmp_path)] == [(1, 3), (4, 4)]

    def test_the_oldest_go(self, tmp_path: Path, store: Database) -> None:
        """All of it stays within what was allowed, also after a restart, and the store does not grow on."""
        turns, limit, sizes = writer(tmp_path, 100_000), 100_000, list[int]()
        random = np.random.default_rng(1)
        for at in range(1000):
            turns = writer(tmp_path, limit) if at == 700 else turns
            turns.keep(turn(at, sentence=random.bytes(400).hex(), error=str(at)))
            sizes.append(store.rows("PRAGMA page_count")[0][0])
        numbers = [one.turn for one in kept(tmp_path)]
        assert numbers == list(range(numbers[0], 1001))
        assert 700 < numbers[0] < 900
        assert sizes[-1] <= 1.1 * sizes[len(sizes) // 2]

    def test_a_turn_larger_than_all_room_is_kept_alone(self, tmp_path: Path) -> None:
        """What was done last is always told."""
        turns = writer(tmp_path, 100)
        for at in range(3):
            turns.keep(turn(at, error=str(at)))
        assert [one.turn for one in kept(tmp_path)] == [3]

    def test_many_are_read_bit_by_bit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A reader that takes its time sees each turn once, also those of a lbd that goes on meanwhile."""
        monkeypatch.setattr(module, "FIRST_ROWS", 2)
        turns = writer(tmp_path)
        for at in range(9):
            turns.keep(turn(at, error=str(at)))
        reader = iter(KeptTurns(tmp_path))
        first = next(reader)
        turns.keep(turn(10, error="10"))
        assert [first.turn, *(one.turn for one in reader)] == list(range(9, 0, -1))

    def test_a_single_turn_is_found_by_its_number(self, tmp_path: Path) -> None:
        """Also one among quiet ones, and none that is gone or not yet there."""
        turns = writer(tmp_path)
        for at in (0, 1, 2, 60, 120):
            turns.keep(turn(at))
        found = KeptTurns(tmp_path)
        assert [(one.turn if (one := found.find(number)) else None) for number in range(7)] == [
            None, 1, 1, 1, 4, 5, None,
        ]  # fmt: skip

    def test_text_that_no_file_can_hold(self, tmp_path: Path) -> None:
        """Halves of characters, as a broker may send them."""
        writer(tmp_path).keep(turn(error="bad \ud800 name"))
        assert [one.error for one in kept(tmp_path)] == ["bad ? name"]


class TestTrouble:
    @pytest.mark.parametrize("junk", [b"", b"junk", b"x\x9c\x03\x00\x00\x00\x00\x01"])
    def test_a_row_that_cannot_be_read_is_counted_once(self, tmp_path: Path, junk: bytes) -> None:
        """However often it is looked at; the others are told."""
        turns = writer(tmp_path)
        for at in range(3):
            turns.keep(turn(at, error=str(at)))
        with writing(tmp_path / STORE_NAME) as store:
            store.write("UPDATE turns SET turn = ? WHERE number = 2", [(junk,)])
        reader = KeptTurns(tmp_path)
        assert [one.turn for one in reader] == [one.turn for one in reader] == [3, 1]
        assert (reader.unreadable, reader.find(2)) == (1, None)

    def test_a_full_disk_stops_the_record_alone(self, tmp_path: Path, store: Database) -> None:
        """No exception, a line of trouble with how many are lost; when there is room again, it goes on."""
        turns = writer(tmp_path)
        turns.keep(turn(0, error="0"))
        pages = store.rows("PRAGMA page_count")[0][0]
        store.rows(f"PRAGMA max_page_count = {pages}")
        numbers = [turns.keep(turn(at, error=np.random.default_rng(at).bytes(9000).hex())) for at in range(1, 4)]
        assert numbers == [2, 3, 4]
        assert "database or disk is full; the last 3 turns are not kept" in turns.trouble
        store.rows("PRAGMA max_page_count = 1000000")
        assert turns.keep(turn(9)) == 5
        assert turns.trouble == ""
        assert [one.turn for one in kept(tmp_path)] == [1, 5]

    def test_a_store_that_is_gone(self, tmp_path: Path) -> None:
        """Each turn has its number, and trouble is told."""
        turns = writer(tmp_path)
        (tmp_path / STORE_NAME).rename(tmp_path / "away")
        assert [turns.keep(turn(at)) for at in range(3)] == [1, 2, 3]
        assert turns.trouble.startswith(f"{tmp_path / STORE_NAME} was removed or replaced while lbd runs on it")
        assert not (tmp_path / STORE_NAME).exists()


class TestBundles:
    def test_they_come_back(self, tmp_path: Path) -> None:
        """Owners, codes, and rates to the digits that people read."""
        found = ReportedBundles(
            NOW,
            (A, B),
            ["t/n/0x0_0x1", "t/n/0x1_0x2"],
            np.array([1, 0], dtype=np.int32),
            np.array([20, 0], dtype=np.int8),
            np.array([[10.5, 1e6], [0, 0]]),
        )
        save_bundles(tmp_path, found)
        back = load_bundles(tmp_path)
        assert back is not None
        assert (back.at, back.bundles, back.codes.tolist(), back.rates.tolist()) == (
            NOW, found.bundles, [20, 0], found.rates.tolist(),
        )  # fmt: skip
        assert [seen.owner for name in back.bundles if (seen := back.of(name)) is not None] == [B, A]

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"junk", b"{}"])
    def test_junk_is_said(self, tmp_path: Path, content: bytes, store: Database) -> None:
        """What is damaged is not an empty cluster."""
        store.put({module.BUNDLES: content})
        with pytest.raises(UsageError, match=r"lbd\.db: the owners of bundles cannot be read; lbd run"):
            load_bundles(tmp_path)

    def test_none_was_kept(self, tmp_path: Path) -> None:
        """Before the first turn that keeps them."""
        assert load_bundles(tmp_path) is None
