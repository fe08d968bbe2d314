"""Kept turns: what is merged, how files grow and go, and what a kill or a full disk leaves."""

from __future__ import annotations

import errno
import gzip
import json
import os
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.errors import UsageError
from lbd.store import turns as segments
from lbd.store.turn_record import (
    BrokerRecord,
    OutcomeRecord,
    PairRecord,
    Planned,
    SkipLine,
    TurnRecord,
    Verdict,
    decoded,
    encoded,
)
from lbd.store.turns import TURNS_FOLDER, KeptTurns, ReportedBundles, Turns, load_bundles, save_bundles

if TYPE_CHECKING:
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
    return list(reversed(list(KeptTurns(folder / TURNS_FOLDER))))


def live(folder: Path) -> Path:
    """The growing file."""
    return segments.files(folder / TURNS_FOLDER)[-1]


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

    def test_a_quiet_night_is_two_lines(self, tmp_path: Path) -> None:
        """However many turns it has: the line that counts them is written over."""
        turns = writer(tmp_path)
        quiet = [turn(at * 0.1, brokers=[seen(fresh=False)]) for at in range(12_000)]
        for one in quiet:
            turns.keep(one)
        assert len(live(tmp_path).read_bytes().splitlines()) == 3
        assert [(one.turn, one.last, one.ended_at) for one in kept(tmp_path)] == [(1, 12_000, quiet[-1].at)]


class TestFiles:
    def test_numbers_go_on_after_a_restart(self, tmp_path: Path) -> None:
        """In the same file, and after the quiet turns that were only counted."""
        first = writer(tmp_path)
        for at in range(3):
            first.keep(turn(at))
        first.close()
        assert writer(tmp_path).keep(turn(5)) == 4
        assert [(one.turn, one.last) for one in kept(tmp_path)] == [(1, 3), (4, 4)]
        assert len(segments.files(tmp_path / TURNS_FOLDER)) == 1

    def test_old_files_are_compressed_and_the_oldest_go(self, tmp_path: Path) -> None:
        """All of it stays within what was allowed, and what is there is read as one."""
        turns, limit = writer(tmp_path, 1 << 20), 1 << 20
        random = np.random.default_rng(1)
        for at in range(4000):
            turns.keep(turn(at, sentence=random.bytes(400).hex(), error=str(at)))
            assert sum(path.stat().st_size for path in (tmp_path / TURNS_FOLDER).iterdir()) <= limit
        endings = [path.name[segments.DIGITS :] for path in segments.files(tmp_path / TURNS_FOLDER)]
        numbers = [one.turn for one in kept(tmp_path)]
        assert set(endings[:-1]) == {".jsonl.gz"}
        assert numbers == list(range(numbers[0], 4001))
        assert 1000 < numbers[0] < 3000

    def test_a_single_turn_is_found_by_its_number(self, tmp_path: Path) -> None:
        """Also one among quiet ones, and none that is gone or not yet there."""
        turns = writer(tmp_path)
        for at in (0, 1, 2, 60, 120):
            turns.keep(turn(at))
        found = KeptTurns(tmp_path / TURNS_FOLDER)
        assert [(one.turn if (one := found.find(number)) else None) for number in range(7)] == [
            None, 1, 1, 1, 4, 5, None,
        ]  # fmt: skip

    def test_a_newer_format_is_refused(self, tmp_path: Path) -> None:
        """With the file's name and both numbers."""
        (tmp_path / TURNS_FOLDER).mkdir()
        path = segments.segment_path(tmp_path / TURNS_FOLDER, 1)
        path.write_text('{"event": "turns", "format": 2}\n')
        with pytest.raises(UsageError, match=f"{path}: kept turns of format 2, this lbd reads up to 1"):
            kept(tmp_path)

    def test_text_that_no_file_can_hold(self, tmp_path: Path) -> None:
        """Halves of characters, as a broker may send them."""
        writer(tmp_path).keep(turn(error="bad \ud800 name"))
        assert [one.error for one in kept(tmp_path)] == ["bad ? name"]


class TestKills:
    @given(cut=st.integers(min_value=1, max_value=700), repeats=st.integers(min_value=0, max_value=3))
    @settings(max_examples=60, deadline=None)
    def test_any_end_may_be_missing(self, tmp_path_factory: pytest.TempPathFactory, cut: int, repeats: int) -> None:
        """What was whole before the cut is read, the rest is counted, and the next lbd goes on behind it."""
        folder = tmp_path_factory.mktemp("kept")
        turns = writer(folder)
        for at in (0, 60):
            turns.keep(turn(at, error=str(at)))
        for at in range(repeats):
            turns.keep(turn(61 + at, error="60"))
        turns.close()
        content = live(folder).read_bytes()
        left = content[: max(len(content) - cut, 0)]
        live(folder).write_bytes(left)
        whole = [one for line in left.splitlines() if isinstance(one := decoded(line), TurnRecord)]
        assert [one.turn for one in kept(folder)] == [one.turn for one in whole]
        number = writer(folder).keep(turn(200, error="after"))
        assert [one.error for one in kept(folder)] == [*(one.error for one in whole), "after"]
        assert number > max((one.last for one in kept(folder)[:-1]), default=0)

    def test_torn_lines_are_counted_once(self, tmp_path: Path) -> None:
        """However often the file is looked at."""
        turns = writer(tmp_path)
        turns.keep(turn())
        turns.close()
        with live(tmp_path).open("ab") as file:
            file.write(b'{"event": "turn", "at": 18')
        writer(tmp_path).keep(turn(5))
        reader = KeptTurns(tmp_path / TURNS_FOLDER)
        assert [one.turn for one in reader] == [one.turn for one in reader] == [2, 1]
        assert reader.torn_lines == 1

    def test_a_compressed_file_that_is_cut_off(self, tmp_path: Path) -> None:
        """What can be read of it is read, the rest counts as a torn line."""
        (tmp_path / TURNS_FOLDER).mkdir()
        packed = segments.packed(segments.segment_path(tmp_path / TURNS_FOLDER, 1))
        lines = b"".join(encoded(turn(at, turn=at + 1, sentence=os.urandom(500).hex())) for at in range(200))
        packed.write_bytes(gzip.compress(lines)[:-2000])
        reader = KeptTurns(tmp_path / TURNS_FOLDER)
        numbers = [one.turn for one in reader]
        assert 50 < len(numbers) < 200
        assert reader.torn_lines >= 1

    def test_a_file_both_plain_and_compressed(self, tmp_path: Path) -> None:
        """As after a kill between the two: it is told once."""
        turns = writer(tmp_path)
        turns.keep(turn())
        content = live(tmp_path).read_bytes()
        segments.packed(live(tmp_path)).write_bytes(gzip.compress(content))
        assert [one.turn for one in kept(tmp_path)] == [1]


class TestTrouble:
    def test_a_full_disk_stops_the_record_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No exception, a line of trouble with how many are lost; when there is room again, it goes on whole."""
        turns, write, room = writer(tmp_path), os.pwrite, [10_000]

        def full(descriptor: int, content: bytes, at: int) -> int:
            if not room[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            part = bytes(content)[: room[0]]
            room[0] -= len(part)
            return write(descriptor, part, at)

        monkeypatch.setattr(os, "pwrite", full)
        numbers = [turns.keep(turn(at, error="x" * 3000 + str(at))) for at in range(6)]
        assert numbers == [1, 2, 3, 4, 5, 6]
        assert "No space left on device; the last 3 turns are not kept" in turns.trouble
        room[0] = 100_000
        assert turns.keep(turn(9)) == 7
        assert turns.trouble == ""
        assert [one.turn for one in kept(tmp_path)] == [1, 2, 3, 7]

    def test_no_place_at_all(self, tmp_path: Path) -> None:
        """A file where the folder should be: each turn has its number, and trouble is told."""
        (tmp_path / TURNS_FOLDER).write_text("in the way")
        turns = writer(tmp_path)
        assert [turns.keep(turn(at)) for at in range(3)] == [1, 2, 3]
        assert turns.trouble.startswith(f"{tmp_path / TURNS_FOLDER}: cannot be written: ")

    def test_a_file_that_cannot_be_compressed_stays_plain(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And is compressed with the next one."""
        turns, pack = writer(tmp_path), segments.pack

        def refuse(path: Path) -> None:
            raise OSError(errno.ENOSPC, str(path))

        monkeypatch.setattr(segments, "pack", refuse)
        turns.keep(turn(0, error="x" * 100_000))
        assert (live(tmp_path).suffix, turns.trouble) == (".jsonl", "")
        monkeypatch.setattr(segments, "pack", pack)
        turns.keep(turn(1, error="x" * 100_000))
        assert [path.suffix for path in segments.files(tmp_path / TURNS_FOLDER)] == [".gz", ".gz"]
        assert [one.turn for one in kept(tmp_path)] == [1, 2]


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

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"junk", json.dumps({}).encode()])
    def test_junk_is_said(self, tmp_path: Path, content: bytes) -> None:
        """A torn file is not an empty cluster."""
        (tmp_path / "bundles.npz").write_bytes(content)
        with pytest.raises(UsageError, match=r"bundles\.npz: is torn or not of this format; lbd run writes it anew"):
            load_bundles(tmp_path)

    def test_none_was_kept(self, tmp_path: Path) -> None:
        """Before the first turn that keeps them."""
        assert load_bundles(tmp_path) is None
