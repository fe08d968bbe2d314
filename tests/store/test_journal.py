"""What the journal says of moves, and how it survives time, threads and full disks."""

from __future__ import annotations

import resource
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lbd.errors import UsageError
from lbd.model import Outcome, Result, Unload
from lbd.split.plan import Cut, CutOutcome, SplitResult
from lbd.store import journal as journals
from lbd.store.database import STORE_NAME
from lbd.store.journal import Journal, Past, read
from lbd.store.moves import MoveRecord, history, newest_moves
from tests import disks
from tests.journals import entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


FIRST, SECOND = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
DAY = 86_400.0
SENT = {"source": "a:80", "destination": "b:80", "msg_rate": 200.0, "throughput": 20_000.0}


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


def written(path: Path, *events: str) -> None:
    """Make a journal of these events."""
    with opened(path) as journal:
        work(journal, *events)


def open_bundles(past: Past | Journal) -> list[str]:
    """Bundles of the moves without an outcome."""
    return [unload.bundle for _, unload in past.open]


def prune(journal: Journal) -> None:
    """Prune as if the journal had grown too long, keeping none for history."""
    journal._most_entries, journal._prune_beyond = 0, -1
    journal._prune_when_long()


def bundle(number: int) -> str:
    """A bundle for each number."""
    return f"t/n/0x{number:08x}_0xffffffff"


def fill(journal: Journal, what: str, number: int) -> None:
    """One move, placement or split from its intent to its end."""
    unload = move(bundle(number))
    if what == "moved":
        journal.conclude(journal.intend(unload, 1), ended(unload))
    elif what == "placed":
        journal.placed(ended(unload))
    else:
        cut = Cut(unload.bundle, "a:80", "range_equally_divide", (number + 1,), "why")
        journal.conclude_split(journal.intend_split(cut), CutOutcome(cut, SplitResult.SPLIT))


class TestEntries:
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
            assert past == Past(journal.attempted_at, journal.open, journal.notes, journal.sent)

    def test_an_entry_is_one_json_object(self, tmp_path: Path) -> None:
        """What, when, which move, and how it ended."""
        written(tmp_path / STORE_NAME, "i1", "n1", "x1")
        intent, outcome, note = entries(tmp_path)
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

    @pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
    def test_numbers_that_json_has_not_hide_no_move(self, number: float, tmp_path: Path) -> None:
        """They are written as 0, for an entry with null could not be read again."""
        with opened(tmp_path / "j") as journal:
            identity = journal.intend(Unload(FIRST, "a:80", "b:80", number, number), 1)
            assert open_bundles(read(tmp_path / "j")) == [FIRST]
            journal.conclude(identity, Outcome(move(), Result.UNKNOWN, None, seconds=number))
        assert replace(read(tmp_path / "j"), sent=()) == Past({FIRST: 100.0})

    @pytest.mark.parametrize("words", ["\ud800", "a\nb\x00", "x" * 3_000_000])
    def test_whatever_a_broker_answers_can_be_written(self, words: str, tmp_path: Path) -> None:
        """Half characters, line ends, pages of HTML: one entry that can be read."""
        with opened(tmp_path / "j") as journal:
            identity = journal.intend(move(), 1)
            journal.conclude(identity, Outcome(move(), Result.FAILED, None, words))
        assert replace(read(tmp_path / "j"), sent=()) == Past({FIRST: 100.0})

    def test_a_name_that_is_no_text_is_told(self, tmp_path: Path) -> None:
        """It raises before anything is sent."""
        with opened(tmp_path / "j") as journal, pytest.raises(UsageError, match="is no UTF-8 text; no unload"):
            journal.intend(move("t/n/\udcff"), 1)


class TestReading:
    def test_an_absent_journal_is_an_empty_one(self, tmp_path: Path) -> None:
        """Nothing was ever moved."""
        assert read(tmp_path / "absent") == Past()

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
        """Of an unload that no leader may have got; also after a pruning. It ends when all are known to be gone."""
        with opened(tmp_path / "j") as journal:
            for noted, leader, older in outcomes:
                found = Outcome(move(), Result.FAILED, "a:80", noted=noted, leader=leader, older_note=older)
                journal.conclude(journal.intend(move(), 1), found)
            held = journal.notes
            prune(journal)
            assert read(tmp_path / "j").notes == held
            journal.note(FIRST, None, None)
            assert read(tmp_path / "j").notes == {}
        assert held[FIRST].brokers == brokers

    @pytest.mark.parametrize("call", [read, lambda path: Journal(path, ticking())])
    def test_a_journal_that_cannot_be_read_is_told(self, call: Callable[[Path], object], tmp_path: Path) -> None:
        """One line that names the file; no unload without a journal."""
        with pytest.raises(UsageError, match="no regular file") as caught:
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


class TestPruning:
    def test_what_still_holds_stays(self, tmp_path: Path) -> None:
        """Open intents, notes, what was sent within a day, the last attempt on each bundle; nothing else."""
        with opened(tmp_path / STORE_NAME) as journal:
            work(journal, "i1", "o1", "i1", "n1", "i2")
            held = read(tmp_path / STORE_NAME)
            prune(journal)
            assert read(tmp_path / STORE_NAME) == held
        now = [100.0 + 2 * DAY]
        with closing(Journal(tmp_path / STORE_NAME, lambda: now[0])) as journal:
            prune(journal)
            assert journal.attempted_at == {FIRST: 102.0, SECOND: 104.0} == read(tmp_path / STORE_NAME).attempted_at
            assert (open_bundles(journal), list(journal.notes)) == ([SECOND], [FIRST])
            work(journal, "o2", "x1")
            now[0] += 7 * DAY
            prune(journal)
            assert entries(tmp_path) == []

    @pytest.mark.parametrize("write", ["moved", "placed", "split"])
    def test_it_happens_by_itself_whatever_fills_the_journal(
        self, write: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The newest entries stay for history, and a daemon that only places or only splits does not fill the disk."""
        monkeypatch.setattr(journals, "PRUNED_ENTRIES", 100)
        now = iter(range(0, 1_000_000_000, 100_000))
        with closing(Journal(tmp_path / STORE_NAME, lambda: float(next(now)), most_entries=50)) as journal:
            for number in range(200):
                fill(journal, write, number)
            kept = entries(tmp_path)
        assert 50 <= len(kept) < 150
        assert kept[-1]["bundle"] == bundle(199)

    def test_what_no_longer_counts_is_forgotten_while_lbd_runs(self, tmp_path: Path) -> None:
        """A day of requests and a week of attempts stay in memory, not all since the start."""
        clock = [0.0]
        with closing(Journal(tmp_path / STORE_NAME, lambda: clock[0])) as journal:
            for number in range(40):
                clock[0] = number * DAY / 4
                fill(journal, "moved", number)
            assert (len(journal.sent), len(journal.attempted_at), len(journal.landings)) == (4, 29, 4)

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
        """Also when it is read again."""
        with closing(Journal(tmp_path / "j", lambda: DAY)) as journal:
            for result in (Result.FAILED, Result.LANDED):
                journal.conclude(journal.intend(move(), 1), Outcome(move(), result, "a:80"))
            assert [one.failed for one in journal.sent] == [True, False]
        assert [one.failed for one in read(tmp_path / "j", DAY).sent] == [True, False]

    def test_where_a_bundle_ended_is_known_as_long_as_it_counts(self, tmp_path: Path) -> None:
        """It is not always where it was meant to go; nothing is known of what is under way."""
        with closing(Journal(tmp_path / "j", lambda: DAY)) as journal:
            journal.conclude(journal.intend(move(), 1), Outcome(move(), Result.ELSEWHERE, "c:80"))
            journal.intend(move(), 1)
            assert [one.owner for one in journal.sent] == ["c:80", None]
        assert sorted(str(one.owner) for one in read(tmp_path / "j", DAY).sent) == ["None", "c:80"]


class TestHistory:
    def test_a_move_with_its_end(self, tmp_path: Path) -> None:
        """All that the two lines say of it."""
        written(tmp_path / STORE_NAME, "i1", "o1")
        (told,) = history(tmp_path)
        assert told == MoveRecord(
            told.move, 100.0, FIRST, "a:80", "b:80", 1, 200.0, 20_000.0, "30.0 points apart",
            Result.LANDED, "b:80", "in words", 0.123, 101.0,
        )  # fmt: skip

    def test_an_open_move_has_no_result(self, tmp_path: Path) -> None:
        """Nor a time when it ended."""
        written(tmp_path / STORE_NAME, "i1")
        assert [(one.result, one.ended_at) for one in history(tmp_path)] == [(None, None)]

    @pytest.mark.parametrize("where", ["absent", "."])
    def test_no_journal_is_no_moves(self, where: str, tmp_path: Path) -> None:
        """A state directory that was never used is no error."""
        assert list(history(tmp_path / where)) == []

    @pytest.mark.parametrize("last", [0, 1, 3, 100])
    def test_the_newest_come_first(self, last: int, tmp_path: Path) -> None:
        """The last moves by their intents, with what came of them later; splits and notes are no moves."""
        with opened(tmp_path / STORE_NAME) as journal:
            under_way = journal.intend(move(), 1)
            for number in range(5):
                fill(journal, ("moved", "placed", "split")[number % 3], number)
                journal.note(bundle(number), "b:80", None)
            assert newest_moves(tmp_path, last) == history(tmp_path)[::-1][:last]
            journal.conclude(under_way, ended(move()))
            assert newest_moves(tmp_path, last) == history(tmp_path)[::-1][:last]


class TestAmendedOutcomes:
    """A broker acted later than it was waited for: the last line on a move holds, everywhere."""

    LATE = replace(ended(move(), result=Result.LANDED), detail="was failed before", amended=True)

    def amended(self, path: Path, between: int = 0) -> Journal:
        """A move that failed, other moves, and then the line that it landed all the same."""
        journal = Journal(path, ticking())
        first = journal.intend(move(), 1)
        journal.conclude(first, Outcome(move(), Result.FAILED, "a:80", "HTTP 500", noted="a:80", leader="l:80"))
        for number in range(between):
            unload = move(f"t/n/{number}")
            journal.conclude(journal.intend(unload, 1), ended(unload))
        journal.amend(first, self.LATE)
        return journal

    @pytest.mark.parametrize("between", [0, 3], ids=["at once", "later"])
    def test_history_and_budgets_tell_the_last_one(self, between: int, tmp_path: Path) -> None:
        """It ended when it was first told to; a journal that is read again knows the same."""
        journal = self.amended(tmp_path / STORE_NAME, between)
        told = history(tmp_path)[0]
        assert (told.result, told.owner, told.detail) == (Result.LANDED, "b:80", "was failed before")
        assert told.ended_at == 101.0
        for past in (journal, read(tmp_path / STORE_NAME)):
            assert [(one.failed, one.owner) for one in past.sent if one.bundle == FIRST] == [(False, "b:80")]
            assert open_bundles(past) == []
        journal.close()

    def test_notes_stay_as_they_were(self, tmp_path: Path) -> None:
        """What leaders have noted is not what an amendment is about."""
        self.amended(tmp_path / "j").close()
        assert read(tmp_path / "j").notes[FIRST].broker == "a:80"

    def test_a_bundle_that_is_no_more_is_read_back(self, tmp_path: Path) -> None:
        """As any other outcome."""
        with opened(tmp_path / STORE_NAME) as journal:
            journal.conclude(journal.intend(move(), 1), Outcome(move(), Result.GONE, None, "it was split"))
        assert [one.result for one in history(tmp_path)] == [Result.GONE]


class TestFailedWrites:
    def test_a_file_that_may_not_grow(self, tmp_path: Path) -> None:
        """An intent that cannot be written raises before anything is sent, and is not open; the next one is whole."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        log = tmp_path / f"{STORE_NAME}-wal"
        with opened(tmp_path / STORE_NAME) as journal:
            work(journal, "i1")
            resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 50, hard))
            try:
                with pytest.raises(UsageError, match=f"{STORE_NAME}: store cannot be read or written: .*; no unload"):
                    journal.intend(move(SECOND), 1)
                with pytest.raises(UsageError, match="store cannot be read or written"):
                    work(journal, "o1")
                assert open_bundles(journal) == open_bundles(read(tmp_path / STORE_NAME)) == [FIRST]
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            work(journal, "o1")
        assert replace(read(tmp_path / STORE_NAME), sent=()) == Past({FIRST: 100.0})

    def test_a_disk_that_is_really_full(self, small_disk: Path) -> None:
        """Intents fail; with room again moves go on, and every move that was promised is there."""
        filler = small_disk / "filler"
        promised: list[str] = []
        with opened(small_disk / STORE_NAME) as journal:
            filler.write_bytes(b"x" * (disks.free(small_disk) - 40_960))
            with pytest.raises(UsageError, match="full"):
                promised.extend(journal.intend(move(f"t/n/{number}"), 1) for number in range(1000))
            filler.unlink()
            for identity in promised[:3]:
                journal.conclude(identity, ended(move()))
        assert [identity for identity, _ in read(small_disk / STORE_NAME).open] == promised[3:]
        assert [told.move for told in history(small_disk)] == promised


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    with disks.small_disk(tmp_path, 512) as disk:
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
        """A pruning in one thread must not see half of what another one does."""
        with opened(tmp_path / "j") as journal:
            thread = threading.Thread(target=call, args=(journal,))
            with journal._lock:
                thread.start()
                thread.join(0.05)
                assert thread.is_alive()
            thread.join()

    def test_moves_of_many_threads(self, tmp_path: Path) -> None:
        """Each is there once with its end, while others look on."""
        path = tmp_path / STORE_NAME
        journal = Journal(path, ticking())
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
        told = history(tmp_path)
        assert len({one.move for one in told}) == len(told) == 200
        assert {one.result for one in told} == {Result.LANDED}
        assert (open_bundles(read(path)), read(path).notes) == ([], {})
