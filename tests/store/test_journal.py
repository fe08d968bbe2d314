"""The journal survives what happens to files: kills, full disks, lines that are none, and time."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import stat
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lbd.errors import UsageError
from lbd.model import Outcome, Result, Unload
from lbd.store import append_log
from lbd.store.journal import Journal, LeaderNote, Past, read
from lbd.store.moves import MoveRecord, history
from tests import disks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


FIRST, SECOND = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
DAY = 86_400.0
SENT = {"source": "a:80", "destination": "b:80", "msg_rate": 200.0, "throughput": 20_000.0}
HEADER = b'{"event":"journal","format":1,"at":1}\n'


def move(bundle: str = FIRST) -> Unload:
    """An unload from a to b."""
    return Unload(bundle, "a:80", "b:80", 200.0, 20_000.0, "30.0 points apart")


def ended(unload: Unload, noted: str | None = None, result: Result = Result.LANDED) -> Outcome:
    """How it ended."""
    return Outcome(unload, result, "b:80", "in words", seconds=0.1234, noted=noted, leader="l:80" if noted else None)


def ticking(start: float = 100.0) -> Callable[[], float]:
    """A clock that advances by one second whenever it is read: the first line is written at ``start``."""
    times = iter(range(100_000))
    return lambda: start - 1 + next(times)


@contextmanager
def opened(path: Path, start: float = 100.0, **options: Any) -> Iterator[Journal]:
    """A journal with a ticking clock, closed in the end."""
    journal = Journal(path, ticking(start), **options)
    try:
        yield journal
    finally:
        journal.close()


def work(journal: Journal, *events: str) -> None:
    """``i1`` intends the first bundle, ``o1`` concludes it, ``n1`` leaves a note, ``x1`` forgets it."""
    for event in events:
        unload = move(FIRST if event[1] == "1" else SECOND)
        ids = {one.bundle: identity for identity, one in journal.open}
        if event[0] == "i":
            journal.intend(unload, 1)
        elif event[0] == "x":
            journal.note(unload.bundle, None, None)
        else:
            journal.conclude(ids[unload.bundle], ended(unload, "b:80" if event[0] == "n" else None))


def written(path: Path, *events: str) -> bytes:
    """The bytes of a journal after these events."""
    with opened(path) as journal:
        work(journal, *events)
    return path.read_bytes()


def lines(path: Path) -> list[dict[str, Any]]:
    """The lines as JSON."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def open_bundles(past: Past | Journal) -> list[str]:
    """Bundles of the moves without an outcome."""
    return [unload.bundle for _, unload in past.open]


class TestLines:
    @pytest.mark.parametrize(
        ("events", "attempted", "still_open", "noted"),
        [
            ((), {}, [], []),
            (("i1",), {FIRST: 100.0}, [FIRST], []),
            (("i1", "o1"), {FIRST: 100.0}, [], []),
            (("i1", "o1", "i1"), {FIRST: 102.0}, [FIRST], []),
            (("i1", "i2", "o1"), {FIRST: 100.0, SECOND: 101.0}, [SECOND], []),
            (("i1", "o1", "i2", "o2"), {FIRST: 100.0, SECOND: 102.0}, [], []),
            (("i1", "n1", "i2", "n2"), {FIRST: 100.0, SECOND: 102.0}, [], [FIRST, SECOND]),
            (("i1", "n1", "i1"), {FIRST: 102.0}, [FIRST], [FIRST]),
            (("i1", "n1", "i1", "o1"), {FIRST: 102.0}, [], []),
            (("i1", "n1", "x1"), {FIRST: 100.0}, [], []),
            (("i1", "n1", "x2"), {FIRST: 100.0}, [], [FIRST]),
        ],
    )
    def test_what_was_written_is_read(
        self,
        events: tuple[str, ...],
        attempted: dict[str, float],
        still_open: list[str],
        noted: list[str],
        tmp_path: Path,
    ) -> None:
        """Each attempt starts a cool-down; an intent without outcome is open; the last word on a note holds."""
        with opened(tmp_path / "j") as journal:
            work(journal, *events)
            past = read(tmp_path / "j")
            assert (past.attempted_at, open_bundles(past), list(past.notes)) == (attempted, still_open, noted)
            assert past.torn_lines == 0
            assert past == Past(journal.attempted_at, journal.open, 0, journal.notes, journal.sent)

    def test_a_line_is_one_json_object(self, tmp_path: Path) -> None:
        """As a person greps them: what, when, which move, and how it ended."""
        written(tmp_path / "j", "i1", "n1", "x1")
        header, intent, outcome, note = lines(tmp_path / "j")
        assert header == {"event": "journal", "format": 1, "at": 100.0}
        assert intent == {
            "event": "intent",
            "at": 100.0,
            "move": intent["move"],
            "bundle": FIRST,
            "source": "a:80",
            "destination": "b:80",
            "msg_rate": 200.0,
            "throughput": 20_000.0,
            "reason": "30.0 points apart",
        }
        assert outcome == {
            "event": "outcome",
            "at": 101.0,
            "move": intent["move"],
            "result": "landed",
            "owner": "b:80",
            "bundle": FIRST,
            "detail": "in words",
            "seconds": 0.123,
            "noted": "b:80",
            "leader": "l:80",
        }
        assert note == {"event": "note", "at": 102.0, "bundle": FIRST, "noted": None}

    def test_moves_have_ids_of_their_own(self, tmp_path: Path) -> None:
        """Also those of one bundle in the same millisecond, and of a process with the same id."""
        ids: set[str] = set()
        for _ in range(2):
            journal = Journal(tmp_path / "j", lambda: 100.0)
            ids |= {journal.intend(move(), attempt) for attempt in (1, 2, 3)}
            journal.close()
        assert len(ids) == 6

    def test_a_line_is_on_disk_when_the_call_returns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Synced, and another reader sees it while the journal is still open."""
        synced: list[int] = []
        sync = os.fsync
        monkeypatch.setattr(
            os, "fsync", lambda descriptor: (synced.append(os.fstat(descriptor).st_size), sync(descriptor))
        )
        with opened(tmp_path / "j") as journal:
            identity = journal.intend(move(), 1)
            assert synced[0] == (tmp_path / "j").stat().st_size
            assert read(tmp_path / "j").open == ((identity, move()),)
            journal.conclude(identity, ended(move()))
            assert synced[-1] == (tmp_path / "j").stat().st_size
            assert read(tmp_path / "j").open == ()

    @pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
    def test_numbers_that_json_has_not_hide_no_move(self, number: float, tmp_path: Path) -> None:
        """They are written as 0, for a line with null could not be read again."""
        with opened(tmp_path / "j") as journal:
            identity = journal.intend(Unload(FIRST, "a:80", "b:80", number, number), 1)
            assert open_bundles(read(tmp_path / "j")) == [FIRST]
            journal.conclude(identity, Outcome(move(), Result.UNKNOWN, None, seconds=number))
        assert replace(read(tmp_path / "j"), sent=()) == Past({FIRST: 100.0})

    @pytest.mark.parametrize("words", ["\ud800", "a\nb\x00", "x" * 3_000_000])
    def test_whatever_a_broker_answers_can_be_written(self, words: str, tmp_path: Path) -> None:
        """Half characters, line ends, pages of HTML: one line that can be read."""
        with opened(tmp_path / "j") as journal:
            identity = journal.intend(move(), 1)
            journal.conclude(identity, Outcome(move(), Result.FAILED, None, words))
        assert replace(read(tmp_path / "j"), sent=()) == Past({FIRST: 100.0})
        assert len((tmp_path / "j").read_bytes().splitlines()) == 3

    def test_a_name_that_is_no_text_is_told(self, tmp_path: Path) -> None:
        """It raises before anything is sent."""
        with opened(tmp_path / "j") as journal, pytest.raises(UsageError, match="surrogates not allowed; no unload"):
            journal.intend(move("t/n/\udcff"), 1)


class TestReading:
    def test_an_absent_journal_is_an_empty_one(self, tmp_path: Path) -> None:
        """Nothing was ever moved."""
        assert read(tmp_path / "absent") == Past()

    def test_a_journal_is_not_begun_before_its_first_line(self, tmp_path: Path) -> None:
        """The header comes with it."""
        assert written(tmp_path / "j") == b""
        assert read(tmp_path / "j") == Past()

    def test_a_torn_last_line_is_passed_over(self, tmp_path: Path) -> None:
        """The outcome that a kill tore is not known, so its intent stays open."""
        (tmp_path / "j").write_bytes(written(tmp_path / "j", "i1", "o1")[:-10])
        past = read(tmp_path / "j")
        assert (open_bundles(past), past.torn_lines) == ([FIRST], 1)

    @pytest.mark.parametrize(("cut", "torn"), [(10, 1), (1, 0)])
    def test_the_next_entry_starts_on_a_line_of_its_own(self, cut: int, torn: int, tmp_path: Path) -> None:
        """After a torn line what follows is readable; a line that only misses its end is kept."""
        (tmp_path / "j").write_bytes(written(tmp_path / "j", "i1", "o1")[:-cut])
        with opened(tmp_path / "j", 200.0) as journal:
            journal.intend(move(SECOND), 1)
        past = read(tmp_path / "j")
        assert past.attempted_at == {FIRST: 100.0, SECOND: 200.0}
        assert (open_bundles(past), past.torn_lines) == ([FIRST, SECOND] if torn else [SECOND], torn)

    @pytest.mark.parametrize(
        "damage",
        [
            b'{"event": "intent", "at": 1',
            b"\x00\x00\x00\x00",
            b"\x00" * (3 << 20),
            b"\xff\xfe",
            b"[]",
            b'{"a":' * 100_000,
            b'{"event": "something new"}',
            b'{"event": "outcome"}',
            b'{"event": "outcome", "at": 1, "move": "m", "result": "landed", "owner": null}',
            b'{"event": "outcome", "at": 1, "move": "m", "result": "teleported", "owner": null, "bundle": "b"}',
            b'{"event": "journal", "format": "x", "at": 1}',
            *(
                b'{"event": "intent", "at": %s, "move": "m", "bundle": "b", "source": "s", "destination": "d"}' % at
                for at in (b"NaN", b"null", b"true", b'"1"', b"1e308", b"1e999", b"-1", b"253402300800")
            ),
        ],
    )
    def test_a_damaged_line_in_the_middle_hides_nothing_else(self, damage: bytes, tmp_path: Path) -> None:
        """It is counted, once; the lines before and after it hold."""
        header, intent, outcome, other = written(tmp_path / "j", "i1", "o1", "i2").splitlines()
        (tmp_path / "j").write_bytes(b"\n".join([header, intent, damage, outcome, b"", b"  ", other, b""]))
        past = read(tmp_path / "j")
        assert past.attempted_at == {FIRST: 100.0, SECOND: 102.0}
        assert (open_bundles(past), past.torn_lines) == ([SECOND], 1)
        told = history(tmp_path / "j")
        assert [one.bundle for one in told] == [FIRST, SECOND]
        assert told.torn_lines == 1

    def test_fields_of_a_later_version_are_ignored(self, tmp_path: Path) -> None:
        """A journal that a newer lbd has written in the same format can be read."""
        later = [{**line, "later": [1]} for line in map(json.loads, written(tmp_path / "j", "i1").splitlines())]
        (tmp_path / "j").write_text("".join(json.dumps(line) + "\n" for line in later), encoding="utf-8")
        assert read(tmp_path / "j").attempted_at == {FIRST: 100.0}

    @pytest.mark.parametrize("call", [read, lambda path: Journal(path, ticking()), lambda path: list(history(path))])
    def test_a_newer_format_is_refused(self, call: Callable[[Path], object], tmp_path: Path) -> None:
        """The file, the format seen, the one readable, and what to do; the file is left as it is."""
        content = b'{"event":"journal","format":2,"at":1,"new":{}}\n'
        (tmp_path / "j").write_bytes(content)
        with pytest.raises(
            UsageError, match=r"j: journal of format 2, this lbd reads up to 1; run the newer lbd"
        ) as caught:
            call(tmp_path / "j")
        assert "\n" not in str(caught.value)
        assert (tmp_path / "j").read_bytes() == content

    def test_a_note_outlives_its_intent(self, tmp_path: Path) -> None:
        """The outcome names the bundle itself: a damaged intent does not lose what the leader may have."""
        header, intent, outcome = written(tmp_path / "j", "i1", "n1").splitlines()
        (tmp_path / "j").write_bytes(b"\n".join([header, intent[:-9], outcome]))
        assert read(tmp_path / "j").notes == {FIRST: LeaderNote(FIRST, "b:80", "l:80", 101.0)}

    @pytest.mark.parametrize(
        ("outcomes", "brokers"),
        [
            ([("b:80", "l:80", True)], ("b:80",)),
            ([("b:80", "l:80", True), ("c:80", "l:80", False)], ("c:80",)),
            ([("b:80", "l:80", False), ("c:80", "l:80", True)], ("c:80", "b:80")),
            ([("b:80", "l:80", False), ("c:80", None, True)], ("c:80", "b:80")),
            ([("b:80", "l:80", False), ("c:80", "m:80", True)], ("c:80",)),
            ([("b:80", "l:80", False), ("c:80", "l:80", True), ("b:80", "l:80", True)], ("b:80", "c:80")),
            ([("b:80", "l:80", False), ("c:80", "l:80", True), ("d:80", "l:80", True)], ("d:80", "c:80", "b:80")),
            ([("b:80", "l:80", False), ("c:80", "l:80", True), ("a:80", "l:80", False)], ("a:80",)),
        ],
        ids=["none", "replaced", "not replaced", "by whom", "another leads", "back", "two", "named in the end"],
    )
    def test_an_older_note_holds_until_it_is_known_to_be_replaced(
        self, outcomes: list[tuple[str, str | None, bool]], brokers: tuple[str, ...], tmp_path: Path
    ) -> None:
        """Of an unload that no leader may have got; also in the next file, and it ends when all are told to be gone."""
        with opened(tmp_path / "j") as journal:
            for noted, leader, older in outcomes:
                found = Outcome(move(), Result.FAILED, "a:80", noted=noted, leader=leader, older_note=older)
                journal.conclude(journal.intend(move(), 1), found)
            held = journal.notes
            journal._rotate()
            assert read(tmp_path / "j").notes == held
            journal.note(FIRST, None, None)
            assert read(tmp_path / "j").notes == {}
        assert held[FIRST].brokers == brokers

    @pytest.mark.parametrize("call", [read, lambda path: Journal(path, ticking())])
    def test_a_journal_that_cannot_be_read_is_told(self, call: Callable[[Path], object], tmp_path: Path) -> None:
        """One line that names the file; no unload without a journal."""
        with pytest.raises(UsageError, match="journal cannot be") as caught:
            call(tmp_path)
        assert str(tmp_path) in str(caught.value)


class TestTime:
    @pytest.mark.parametrize(
        ("now", "attempted"),
        [
            (100.0, {FIRST: 100.0, SECOND: 100.0}),
            (50.0, {FIRST: 50.0, SECOND: 50.0}),
            (101.0, {FIRST: 100.0, SECOND: 101.0}),
            (100.0 + 7 * DAY, {FIRST: 100.0, SECOND: 102.0}),
            (101.0 + 7 * DAY, {SECOND: 102.0}),
            (1e9, {}),
        ],
    )
    def test_attempts_are_neither_in_the_future_nor_kept_for_ever(
        self, now: float, attempted: dict[str, float], tmp_path: Path
    ) -> None:
        """After a clock that was ahead a bundle rests once, not for years; what is a week old is forgotten."""
        written(tmp_path / "j", "i1", "o1", "i2")
        journal = Journal(tmp_path / "j", lambda: now)
        assert journal.attempted_at == attempted == read(tmp_path / "j", now, 7 * DAY).attempted_at
        assert open_bundles(journal) == [SECOND]
        journal.close()

    def test_the_last_line_holds_after_the_clock_was_set_back(self, tmp_path: Path) -> None:
        """The order of the lines is the order of events, whatever the clock said."""
        written(tmp_path / "j", "i1", "o1")
        with opened(tmp_path / "j", 20.0) as journal:
            work(journal, "i1", "o1")
        assert read(tmp_path / "j").attempted_at == {FIRST: 20.0}

    def test_a_note_is_no_later_than_now(self, tmp_path: Path) -> None:
        """A clock that was ahead does not make it young for ever."""
        written(tmp_path / "j", "i1", "n1")
        assert read(tmp_path / "j", 50.0).notes[FIRST].at == 50.0


class TestRotation:
    def test_the_next_file_begins_with_what_still_holds(self, tmp_path: Path) -> None:
        """A header, open intents word for word, notes, attempts; the old file is named by when it was rotated."""
        path = tmp_path / "journal.jsonl"
        with opened(path, 1_795_271_300.0) as journal:
            work(journal, "i1", "o1", "i1", "n1", "i2")
            before, held = path.read_bytes(), read(path)
            moves = [line["move"] for line in lines(path) if line["event"] == "intent"]
            journal._rotate()
            assert journal.rotation_failure == ""
        assert sorted(file.name for file in tmp_path.iterdir()) == [
            "journal-20261121T142825.000000.jsonl",
            "journal.jsonl",
        ]
        assert (tmp_path / "journal-20261121T142825.000000.jsonl").read_bytes() == before
        content = path.read_bytes()
        assert lines(path) == [
            {
                "event": "journal",
                "format": 1,
                "at": 1_795_271_305.0,
                "carried": len(content) - content.index(b"\n") - 1,
            },
            json.loads(before.splitlines()[-1]),
            {"event": "note", "at": 1_795_271_303.0, "bundle": FIRST, "noted": "b:80", "leader": "l:80"},
            {"event": "attempt", "at": 1_795_271_300.0, "bundle": FIRST, "move": moves[0], **SENT, "owner": "b:80"},
            {"event": "attempt", "at": 1_795_271_302.0, "bundle": FIRST, "move": moves[1], **SENT, "owner": "b:80"},
            {"event": "attempt", "at": 1_795_271_304.0, "bundle": SECOND},
        ]
        assert read(path) == held

    def test_what_was_sent_within_a_day_is_carried_over(self, tmp_path: Path) -> None:
        """Every attempt once, retries and open ones among them; of older ones only the last on each bundle."""
        times = iter([0.0, 1.0, 1.0, DAY, DAY, DAY + 1, DAY + 2, DAY + 3])
        journal = Journal(tmp_path / "j", lambda: next(times))
        for unload, attempt in ((move(), 1), (move(SECOND), 1), (move(SECOND), 2)):
            identity = journal.intend(unload, attempt)
            if attempt == 1:
                journal.conclude(identity, ended(unload))
        journal._rotate()
        journal._rotate()
        journal.close()
        found = read(tmp_path / "j")
        assert found.attempted_at == {FIRST: 1.0, SECOND: DAY + 1}
        assert [(one.at, one.bundle, one.attempt) for one in found.sent] == [(DAY, SECOND, 1), (DAY + 1, SECOND, 2)]
        assert (found.sent[0].source, found.sent[0].destination) == ("a:80", "b:80")

    def test_what_was_sent_is_no_later_than_now(self, tmp_path: Path) -> None:
        """A clock that was ahead does not use budgets up for longer than a day."""
        written(tmp_path / "j", "i1", "o1")
        assert [one.at for one in read(tmp_path / "j", 50.0).sent] == [50.0]
        assert read(tmp_path / "j", 100.0 + DAY).sent == ()

    def test_a_clock_that_is_set_back_meanwhile(self, tmp_path: Path) -> None:
        """What was written before happened at that moment, and ages from then on."""
        clock = [10 * DAY]
        with closing(Journal(tmp_path / "j", lambda: clock[0])) as journal:
            journal.conclude(journal.intend(move(), 1), ended(move()))
            clock[0] = DAY
            assert ([one.at for one in journal.sent], dict(journal.attempted_at)) == ([DAY], {FIRST: DAY})
            clock[0] = DAY + 50
            assert ([one.at for one in journal.sent], dict(journal.attempted_at)) == ([DAY], {FIRST: DAY})

    def test_what_never_left_its_source_is_known_as_such(self, tmp_path: Path) -> None:
        """Also after the file was rotated."""
        with closing(Journal(tmp_path / "j", lambda: DAY)) as journal:
            for result in (Result.FAILED, Result.LANDED):
                journal.conclude(journal.intend(move(), 1), Outcome(move(), result, "a:80"))
            assert [one.failed for one in journal.sent] == [True, False]
            journal._rotate()
        assert [one.failed for one in read(tmp_path / "j", DAY).sent] == [True, False]

    def test_where_a_bundle_ended_is_known_as_long_as_it_counts(self, tmp_path: Path) -> None:
        """It is not always where it was meant to go; nothing is known of what is under way."""
        with closing(Journal(tmp_path / "j", lambda: DAY)) as journal:
            journal.conclude(journal.intend(move(), 1), Outcome(move(), Result.ELSEWHERE, "c:80"))
            journal.intend(move(), 1)
            assert [one.owner for one in journal.sent] == ["c:80", None]
            journal._rotate()
        assert sorted(str(one.owner) for one in read(tmp_path / "j", DAY).sent) == ["None", "c:80"]

    def test_fields_of_a_later_version_are_carried_over_in_open_intents(self, tmp_path: Path) -> None:
        """They are kept word for word."""
        intent = {**json.loads(written(tmp_path / "j", "i1").splitlines()[1]), "later": [1]}
        (tmp_path / "j").write_text(json.dumps(intent), encoding="utf-8")
        with opened(tmp_path / "j") as journal:
            journal._rotate()
        assert lines(tmp_path / "j")[1] == intent

    def test_it_happens_after_an_outcome_once_the_file_is_too_long(self, tmp_path: Path) -> None:
        """Never before the outcome is on disk, and not at an intent or a note."""
        with opened(tmp_path / "j", max_bytes=550) as journal:
            work(journal, "i1", "i2", "x1", "x2")
            assert append_log.rotated(tmp_path / "j") == []
            assert (tmp_path / "j").stat().st_size > 550
            work(journal, "o1")
            assert len(append_log.rotated(tmp_path / "j")) == 1
            work(journal, "o2")
            assert len(append_log.rotated(tmp_path / "j")) == 1
        assert [(one.bundle, one.result) for one in history(tmp_path / "j")] == [
            (FIRST, Result.LANDED),
            (SECOND, Result.LANDED),
        ]

    def test_what_is_carried_over_does_not_make_it_rotate_again(self, tmp_path: Path) -> None:
        """Half of each file is new, also where a week's attempts alone exceed the limit, and after a restart."""
        for _ in range(3):
            with opened(tmp_path / "j", max_bytes=2_000) as journal:
                for number in range(200):
                    unload = move(f"t/n/{number}")
                    journal.conclude(journal.intend(unload, 1), ended(unload))
        assert len(append_log.rotated(tmp_path / "j")) < 16
        assert len(read(tmp_path / "j").attempted_at) == 200
        assert len(list(history(tmp_path / "j"))) < 600
        before = append_log.rotated(tmp_path / "j")
        with opened(tmp_path / "j", max_bytes=2_000) as journal:
            work(journal, "i1", "o1")
        assert append_log.rotated(tmp_path / "j") == before

    def test_old_attempts_are_left_behind(self, tmp_path: Path) -> None:
        """The live file stays small, whatever was moved before."""
        now = [0.0]
        journal = Journal(tmp_path / "j", lambda: now[0], keep_seconds=DAY)
        work(journal, "i1", "o1")
        now[0] = DAY
        work(journal, "i2", "o2")
        now[0] += 1
        assert journal.attempted_at == {FIRST: 0.0, SECOND: DAY}
        journal._rotate()
        assert journal.attempted_at == {SECOND: DAY} == read(tmp_path / "j").attempted_at
        journal.close()

    def test_only_the_youngest_files_are_kept(self, tmp_path: Path) -> None:
        """The oldest go first; files with other names are nobody's business."""
        (tmp_path / "journal-before-upgrade.jsonl").touch()
        with opened(tmp_path / "journal.jsonl", 0.0, keep_files=2) as journal:
            for _ in range(4):
                work(journal, "i1", "o1")
                journal._rotate()
        names = sorted(file.name for file in tmp_path.iterdir())
        assert names == [
            "journal-19700101T000008.000000.jsonl",
            "journal-19700101T000011.000000.jsonl",
            "journal-before-upgrade.jsonl",
            "journal.jsonl",
        ]
        assert [one.at for one in history(tmp_path)] == [6.0, 9.0]

    def test_names_sort_by_time_after_the_clock_was_set_back(self, tmp_path: Path) -> None:
        """Otherwise the newest file would be removed as the oldest."""
        for start in (5000.0, 1000.0, 1000.0):
            with opened(tmp_path / "j", start) as journal:
                work(journal, "i1", "o1")
                journal._rotate()
        assert [file.name[17:] for file in append_log.rotated(tmp_path / "j")] == [".000000", ".000001", ".000002"]
        assert [one.at for one in history(tmp_path / "j")] == [5000.0, 1000.0, 1000.0]

    def test_the_new_file_is_on_disk_before_the_old_one_gives_way(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Content, its sync, the second name, its sync, the replacement, its sync: a power cut finds a whole file."""
        steps: list[str] = []

        def noting(name: str) -> None:
            real = getattr(os, name)
            monkeypatch.setattr(os, name, lambda *args, **options: (steps.append(name), real(*args, **options))[1])

        with opened(tmp_path / "j") as journal:
            work(journal, "i1", "o1")
            for name in ("write", "fsync", "link", "replace"):
                noting(name)
            journal._rotate()
        assert steps == ["write", "fsync", "fsync", "link", "fsync", "replace", "fsync"]

    def test_a_file_system_without_links(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The old file is copied instead."""
        with opened(tmp_path / "j") as journal:
            work(journal, "i1", "o1")
            before = (tmp_path / "j").read_bytes()
            monkeypatch.setattr(os, "link", failing(errno.EPERM))
            journal._rotate()
            assert journal.rotation_failure == ""
        assert [file.read_bytes() for file in append_log.rotated(tmp_path / "j")] == [before]
        assert len(list(tmp_path.iterdir())) == 2

    def test_who_could_read_the_file_still_can(self, tmp_path: Path) -> None:
        """A rotation does not take back what an administrator gave."""
        with opened(tmp_path / "j") as journal:
            work(journal, "i1", "o1")
            (tmp_path / "j").chmod(0o664)
            journal._rotate()
        assert (tmp_path / "j").stat().st_mode & 0o777 == 0o664

    def test_a_second_name_left_by_a_kill_is_taken_away(self, tmp_path: Path) -> None:
        """Lines would go on into both; half files go as well."""
        path = tmp_path / "j"
        written(path, "i1", "o1")
        (tmp_path / "j-20261121T141505.000000").hardlink_to(path)
        (tmp_path / "j.new").touch()
        (tmp_path / "j.old").touch()
        written(path, "i2")
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("step", ["write", "link", "replace", "fsync"])
    def test_a_rotation_that_fails_changes_nothing(
        self, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is told in one line, lines go on to the old file, and it is tried again after another MiB."""
        with opened(tmp_path / "j", max_bytes=500_000) as journal:
            work(journal, "i1", "n1", "i2")
            before = read(tmp_path / "j")
            with monkeypatch.context() as patched:
                patched.setattr(os, step, failing(errno.ENOSPC))
                patched.setattr(shutil, "copyfileobj", failing(errno.ENOSPC))
                journal._rotate()
            assert "rotating the journal failed: [Errno 28] No space left on device" in journal.rotation_failure
            assert str(tmp_path / "j") in journal.rotation_failure
            assert "\n" not in journal.rotation_failure
            assert list(tmp_path.iterdir()) == [tmp_path / "j"]
            assert read(tmp_path / "j") == before
            work(journal, "o2")
            for number in range(120):
                journal.conclude(journal.intend(move(), 1), Outcome(move(), Result.FAILED, None, "x" * 10_000))
                assert bool(journal.rotation_failure) is (number < 101)
            assert len(append_log.rotated(tmp_path / "j")) == 1
        assert len(list(history(tmp_path / "j"))) == 122

    def test_a_swap_that_may_not_be_on_disk_stops_the_next_unload(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The name of the new file is synced with the next line at the latest, or the line is not written."""
        replace = os.replace
        with opened(tmp_path / "j") as journal:
            work(journal, "i1", "o1")
            with monkeypatch.context() as patched:

                def last_that_worked(*names: str, **folders: int) -> None:
                    replace(*names, **folders)
                    patched.setattr(append_log, "sync", failing(errno.EIO))

                patched.setattr(os, "replace", last_that_worked)
                journal._rotate()
                assert "Input/output error" in journal.rotation_failure
                with pytest.raises(UsageError, match="Input/output error; no unload"):
                    journal.intend(move(SECOND), 1)
            work(journal, "i2")
        assert open_bundles(read(tmp_path / "j")) == [SECOND]

    def test_a_directory_that_cannot_be_synced_is_done_without(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Some network file systems refuse it."""
        real = os.fsync

        def of_files(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "Invalid argument")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", of_files)
        with opened(tmp_path / "j") as journal:
            work(journal, "i1", "o1")
            journal._rotate()
            assert journal.rotation_failure == ""


class TestHistory:
    def test_a_move_with_its_end(self, tmp_path: Path) -> None:
        """All that the two lines say of it."""
        written(tmp_path / "journal.jsonl", "i1", "o1")
        (told,) = history(tmp_path)
        assert told == MoveRecord(
            told.move, 100.0, FIRST, "a:80", "b:80", 1, 200.0, 20_000.0, "30.0 points apart",
            Result.LANDED, "b:80", "in words", 0.123, 101.0,
        )  # fmt: skip

    def test_an_open_move_has_no_result(self, tmp_path: Path) -> None:
        """Nor a time when it ended."""
        written(tmp_path / "journal.jsonl", "i1")
        assert [(one.result, one.ended_at) for one in history(tmp_path)] == [(None, None)]

    @pytest.mark.parametrize("where", ["absent", "."])
    def test_no_journal_is_no_moves(self, where: str, tmp_path: Path) -> None:
        """A state directory that was never used is no error."""
        assert list(history(tmp_path / where)) == []

    @pytest.mark.parametrize("rotations", range(6))
    def test_all_files_are_told_in_the_order_of_the_intents(self, rotations: int, tmp_path: Path) -> None:
        """Wherever the files are cut: a move that goes over the cut is told once, with its end."""
        events = ["i1", "i2", "o2", "i2", "o1", "o2"]
        with opened(tmp_path / "j") as journal:
            for number, event in enumerate(events):
                work(journal, event)
                if number <= rotations:
                    journal._rotate()
        told = [(one.bundle, one.result) for one in history(tmp_path / "j")]
        assert told == [(FIRST, Result.LANDED), (SECOND, Result.LANDED), (SECOND, Result.LANDED)]

    def test_a_copy_of_the_live_file_is_not_told_again(self, tmp_path: Path) -> None:
        """As after a kill between two steps of a rotation, in a directory that was copied since."""
        written(tmp_path / "j", "i1", "o1", "i2")
        shutil.copy(tmp_path / "j", tmp_path / "j-20261121T141505.000000")
        with opened(tmp_path / "j") as journal:
            work(journal, "o2", "i1")
        told = [(one.bundle, one.result) for one in history(tmp_path / "j")]
        assert told == [(FIRST, Result.LANDED), (SECOND, Result.LANDED), (FIRST, None)]

    @pytest.mark.parametrize("first", ["rotated", "listed"])
    def test_a_rotation_while_it_is_read_hides_nothing(
        self, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The file that was live a moment ago is read, under either name."""
        with opened(tmp_path / "j") as journal:
            work(journal, "i1", "o1", "i2", "o2")
            listed = append_log.rotated

            def rotated_meanwhile(path: Path) -> list[Path]:
                found = listed(path)
                journal._rotate()
                return found if first == "listed" else listed(path)

            monkeypatch.setattr("lbd.store.moves.rotated", rotated_meanwhile)
            assert [one.bundle for one in history(tmp_path / "j")] == [FIRST, SECOND]

    def test_an_old_file_that_is_removed_while_it_is_read_is_done_without(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A rotation meanwhile may take the oldest one."""
        written(tmp_path / "j", "i1", "o1")
        monkeypatch.setattr("lbd.store.moves.rotated", lambda path: [path.with_name("gone")])
        assert [one.bundle for one in history(tmp_path / "j")] == [FIRST]

    def test_a_move_that_never_ended_costs_no_time(self, tmp_path: Path) -> None:
        """What waits behind it is told at the end, in a moment."""
        outcome = b'{"event":"outcome","at":2,"move":"%d","result":"landed","owner":null,"bundle":"b"}\n'
        intent = b'{"event":"intent","at":1,"move":"%d","bundle":"b","source":"s","destination":"d"}\n'
        (tmp_path / "j").write_bytes(
            intent % 0 + b"".join(intent % n + outcome % n for n in range(1, 30_000)) + outcome % 0
        )
        told = history(tmp_path / "j")
        assert [int(one.move) for one in told] == list(range(30_000))
        assert told.torn_lines == 0


def failing(number: int) -> Callable[..., Any]:
    """A call that fails."""

    def call(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


class TestAmendedOutcomes:
    """A broker acted later than it was waited for: the last line on a move holds, everywhere."""

    LATE = replace(ended(move(), result=Result.LANDED), detail="was failed before", amended=True)

    def amended(self, path: Path, between: int = 0) -> Journal:
        """A move that failed, other moves, and then the line that it landed all the same."""
        journal = Journal(path, ticking(), max_bytes=2_000)
        first = journal.intend(move(), 1)
        journal.conclude(first, Outcome(move(), Result.FAILED, "a:80", "HTTP 500", noted="a:80", leader="l:80"))
        for number in range(between):
            unload = move(f"t/n/{number}")
            journal.conclude(journal.intend(unload, 1), ended(unload))
        journal.amend(first, self.LATE)
        return journal

    @pytest.mark.parametrize("between", [0, 3, 200], ids=["at once", "later", "in another file"])
    def test_history_and_budgets_tell_the_last_one(self, between: int, tmp_path: Path) -> None:
        """It ended when it was first told to; a journal that is read again knows the same."""
        journal = self.amended(tmp_path / "j", between)
        told = next(iter(history(tmp_path / "j")))
        assert (told.result, told.owner, told.detail) == (Result.LANDED, "b:80", "was failed before")
        assert told.ended_at == 101.0
        for past in (journal, read(tmp_path / "j")):
            assert [(one.failed, one.owner) for one in past.sent if one.bundle == FIRST] == [(False, "b:80")]
            assert open_bundles(past) == []
        journal.close()

    def test_notes_stay_as_they_were(self, tmp_path: Path) -> None:
        """What leaders have noted is not what an amendment is about."""
        self.amended(tmp_path / "j").close()
        assert read(tmp_path / "j").notes[FIRST].broker == "a:80"

    def test_its_format_is_that_of_an_outcome(self, tmp_path: Path) -> None:
        """An lbd that does not know of amendments reads it, and tells the first outcome."""
        self.amended(tmp_path / "j").close()
        first, last = (line for line in lines(tmp_path / "j") if line["event"] == "outcome")
        assert {**last, "amended": True} == last
        assert first.keys() <= last.keys() | {"noted", "leader"}
        assert "amended" not in first

    def test_a_bundle_that_is_no_more_is_read_back(self, tmp_path: Path) -> None:
        """As any other outcome."""
        with opened(tmp_path / "j") as journal:
            journal.conclude(journal.intend(move(), 1), Outcome(move(), Result.GONE, None, "it was split"))
        assert [one.result for one in history(tmp_path / "j")] == [Result.GONE]


class TestFailedWrites:
    def test_a_full_disk_stops_the_unload(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An intent that cannot be written raises before anything is sent, and is not open."""
        with opened(tmp_path / "j") as journal:
            with monkeypatch.context() as patched:
                patched.setattr(os, "write", failing(errno.ENOSPC))
                with pytest.raises(
                    UsageError, match="j: journal cannot be written: No space left on device; no unload"
                ):
                    journal.intend(move(), 1)
            assert (journal.open, dict(journal.attempted_at)) == ((), {})
            journal.intend(move(SECOND), 1)
        assert list(read(tmp_path / "j").attempted_at) == [SECOND]

    @pytest.mark.parametrize("step", ["write", "fsync"])
    @pytest.mark.parametrize("stuck", [False, True], ids=["taken back", "not taken back"])
    def test_what_a_failed_write_left_spoils_nothing(
        self, step: str, stuck: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is taken back, or where even that fails, the next line starts on a line of its own."""
        real_write = os.write

        def half(descriptor: int, content: bytes) -> int:
            if len(content) < 100:
                raise OSError(errno.EDQUOT, "Disk quota exceeded")
            return real_write(descriptor, content[:150])

        with opened(tmp_path / "j") as journal:
            work(journal, "i1")
            with monkeypatch.context() as patched:
                patched.setattr(os, step, half if step == "write" else failing(errno.EIO))
                if stuck:
                    patched.setattr(os, "ftruncate", failing(errno.EIO))
                for _ in range(2):
                    with pytest.raises(UsageError, match="cannot be written"):
                        journal.intend(move(SECOND), 1)
            work(journal, "o1", "i1")
            with monkeypatch.context() as patched:
                patched.setattr(os, step, half if step == "write" else failing(errno.EIO))
                with pytest.raises(UsageError, match="cannot be written"):
                    journal.intend(move(SECOND), 1)
            work(journal, "o1")
        past = read(tmp_path / "j")
        assert past.attempted_at[FIRST] == max(one.at for one in history(tmp_path / "j") if one.bundle == FIRST)
        assert FIRST not in open_bundles(past)
        assert past.torn_lines == (2 if stuck and step == "write" else 0)

    def test_a_file_that_may_not_grow(self, tmp_path: Path) -> None:
        """The kernel takes half a line; the next one is whole."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        with opened(tmp_path / "j") as journal:
            work(journal, "i1")
            resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "j").stat().st_size + 50, hard))
            try:
                with pytest.raises(UsageError, match="File too large"):
                    work(journal, "o1")
                assert open_bundles(journal) == [FIRST]
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            work(journal, "o1")
        assert replace(read(tmp_path / "j"), sent=()) == Past({FIRST: 100.0})

    def test_a_disk_that_is_really_full(self, small_disk: Path) -> None:
        """Lines fail, a rotation fails; with room again both go on, and every move that was promised is there."""
        filler = small_disk / "filler"
        filler.write_bytes(b"x" * 45_056)
        promised: list[str] = []
        with opened(small_disk / "j") as journal:
            with pytest.raises(UsageError, match="No space left on device"):
                promised.extend(journal.intend(move(f"t/n/{number}"), 1) for number in range(1000))
            journal._rotate()
            assert "No space left on device" in journal.rotation_failure
            filler.unlink()
            assert sorted(file.name for file in small_disk.iterdir()) == ["j"]
            for identity in promised[:10]:
                journal.conclude(identity, ended(move()))
            journal._rotate()
            assert journal.rotation_failure == ""
        past = read(small_disk / "j")
        assert [identity for identity, _ in past.open] == promised[10:]
        assert [one.move for one in history(small_disk / "j")] == promised
        assert past.torn_lines == history(small_disk / "j").torn_lines == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    with disks.small_disk(tmp_path, 64) as disk:
        yield disk


class TestThreads:
    @pytest.mark.parametrize(
        "call",
        [
            lambda journal: journal.intend(move(), 1),
            lambda journal: journal.conclude("m", ended(move())),
            lambda journal: journal.note(FIRST, None, None),
            lambda journal: journal.open,
            lambda journal: journal.notes,
            lambda journal: journal.attempted_at,
            lambda journal: journal.close(),
        ],
        ids=["intend", "conclude", "note", "open", "notes", "attempted_at", "close"],
    )
    def test_a_call_waits_for_the_one_before_it(self, call: Callable[[Journal], object], tmp_path: Path) -> None:
        """A rotation in one thread must not see half of what another one does."""
        with opened(tmp_path / "j") as journal:
            thread = threading.Thread(target=call, args=(journal,))
            with journal._lock:
                thread.start()
                thread.join(0.05)
                assert thread.is_alive()
                assert (tmp_path / "j").read_bytes() == b""
            thread.join()

    def test_moves_of_many_threads(self, tmp_path: Path) -> None:
        """Each is there once with its end, through many rotations, while others look on."""
        path = tmp_path / "j"
        journal = Journal(path, ticking(), max_bytes=2_000, keep_files=1000)
        done = threading.Event()
        failures: list[Exception] = []

        def act(worker: int) -> None:
            try:
                for number in range(25):
                    unload = move(f"t/n/{worker}-{number}")
                    journal.conclude(journal.intend(unload, 1), ended(unload, "b:80"))
                    journal.note(unload.bundle, None, None)
            except Exception as error:  # noqa: BLE001
                failures.append(error)

        def look() -> None:
            while not done.is_set():
                read(path)
                noted = journal.notes
                assert noted.keys() <= journal.attempted_at.keys()

        looker = threading.Thread(target=look)
        workers = [threading.Thread(target=act, args=(worker,)) for worker in range(8)]
        for thread in (looker, *workers):
            thread.start()
        for thread in workers:
            thread.join()
        done.set()
        looker.join()
        journal.close()
        assert failures == []
        told = list(history(path))
        assert len({one.move for one in told}) == len(told) == 200
        assert {one.result for one in told} == {Result.LANDED}
        assert (open_bundles(read(path)), read(path).notes) == ([], {})
