"""The store survives kills, power cuts, damage and strangers: nothing promised is lost, nothing foreign is followed."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import msgspec
import numpy as np
import pytest

from lbd.errors import UsageError
from lbd.load.capacity import Peak, Peaks
from lbd.load.samples import BrokerSamples
from lbd.model import Averages, Outcome, Result, Unload
from lbd.store import database
from lbd.store.control import Control, Pause
from lbd.store.database import SCHEMA_VERSION, STORE_NAME, Database, reading, writing
from lbd.store.drains import Drains, Work, Works
from lbd.store.journal import Journal, read
from lbd.store.moves import history
from lbd.store.state import StateDir, TurnMemory, load_peaks, load_samples, save_peaks, save_samples
from lbd.store.turn_record import TurnRecord, Verdict
from lbd.store.turns import KeptTurns, Turns
from tests import disks
from tests.journals import entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def unload(number: int) -> Unload:
    """One move of a bundle of its own."""
    return Unload(f"t/n/{number}", "a:80", "b:80", 1.0, 1.0)


def journal_at(folder: Path) -> Journal:
    return Journal(folder / STORE_NAME, lambda: 100.0)


def moved(journal: Journal, number: int) -> None:
    journal.conclude(journal.intend(unload(number), 1), Outcome(unload(number), Result.LANDED, "b:80"))


class Everything:
    """Writes something of everything that the store holds, numbered from 1, as a running lbd does."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._journal = folder, journal_at(folder)
        self._turns = Turns(folder)
        self.writers: dict[str, Callable[[int], object]] = {
            "moves": lambda number: moved(self._journal, number),
            "turns": self._keep_turn,
            "samples": lambda number: save_samples(folder, {"a:80": a_sample(number)}),
            "orders": lambda number: Control(folder).pause(Pause(number, None, "", "ann")),
            "drains": lambda number: Drains(folder).save(Works(fill=msgspec.structs.replace(FILL, total=number))),
            "peaks": lambda number: save_peaks(folder, Peaks((Peak(0, number, 1.0, {}, 1, 85.0),))),
            "counters": lambda number: StateDir(folder).save(
                TurnMemory(written_at=number), (an_average(number), number)
            ),
        }

    def _keep_turn(self, number: int) -> None:
        self._turns.keep(TurnRecord(at=number, sentence="", verdict=Verdict("balanced"), error=str(number)))
        if self._turns.trouble:
            raise UsageError(self._turns.trouble)

    def write(self, number: int) -> None:
        """All of it is on disk when this returns: what needs no sync of its own comes before the last that has one."""
        for write in self.writers.values():
            write(number)

    def close(self) -> None:
        self._journal.close()


FILL = Work(kind="fill", broker="b:80", request="r", begun_at=1.0)


def a_sample(number: int) -> BrokerSamples:
    """Of this second."""
    return BrokerSamples(
        np.array([float(number)]), np.zeros((1, 4)), np.zeros((1, 5)), np.zeros(1, np.int32), (1.0,) * 5, 1.0
    )


def an_average(number: int) -> Averages:
    """Of a bundle with this number."""
    return Averages([f"t/n/{number}"], np.zeros((1, 4)), np.zeros((1, 4)), np.zeros(1, np.int32))


LAST: dict[str, Callable[[Path], float]] = {
    "moves": lambda folder: len(history(folder)),
    "turns": lambda folder: max((turn.at for turn in KeptTurns(folder)), default=0),
    "samples": lambda folder: sum(own.at.max() for own in load_samples(folder, 1000).values()),
    "orders": lambda folder: pause.since if (pause := Control(folder).paused(1000)) else 0,
    "drains": lambda folder: fill.total if (fill := Drains(folder).works().fill) else 0,
    "peaks": lambda folder: max((peak.at for peak in load_peaks(folder).hours), default=0),
    "counters": lambda folder: StateDir(folder).load().written_at,
    "averages": lambda folder: float("".join(StateDir(folder).load_averages(100).bundles).rpartition("/")[2] or 0),
}
"""The number of the last that is there, of everything."""


def last(folder: Path) -> list[float]:
    """The same, read."""
    return [float(read_last(folder)) for read_last in LAST.values()]


def test_a_look_at_a_store_that_another_thread_has_just_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The file is read; a write of that thread is no end of the store."""
    path = tmp_path / STORE_NAME
    with closing(Database.open(path)) as store:
        store.put({"name": b"value"})
    monkeypatch.setitem(database._open, path, store)
    assert database.value(path, "name") == b"value"


# --- power cuts: every write of SQLite is recorded, and the files are made anew as a disk may have them at any moment


class _Disk(apsw.VFS):
    """A file system that notes what is written, in order: ``(name, what, offset, bytes)``."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, int, bytes]] = []
        super().__init__("recording", "unix")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - named by apsw
        return _File(self, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:  # noqa: N802
        self.log.append((Path(name).name, "delete", 0, b""))
        super().xDelete(name, sync)


def recording(path: Path | str, **_: Any) -> apsw.Connection:
    """What sqlite3.connect would open, on such a disk."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    return apsw.Connection(str(path), flags, vfs="recording")


class _File(apsw.VFSFile):
    def __init__(self, disk: _Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = Path(path or "").name
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.log.append((self._name, "write", offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.log.append((self._name, "truncate", size, b""))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.log.append((self._name, "sync", 0, b""))
        super().xSync(flags)


@pytest.fixture(scope="module")
def recorded() -> tuple[list[tuple[str, str, int, bytes]], list[tuple[int, str, str]]]:
    """What a life of a journal wrote, and its promises: from which operation on which move is known to be what."""
    disk = _Disk()
    promises: list[tuple[int, str, str]] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(database.sqlite3, "connect", recording)
        with closing(journal_at(Path(folder))) as journal:
            for number in range(6):
                move = journal.intend(unload(number), 1)
                promises.append((len(disk.log), move, "open"))
                journal.conclude(move, Outcome(unload(number), Result.LANDED, "b:80"))
                promises.append((len(disk.log), move, "landed"))
                if number == 3:
                    journal._store._connection.execute("PRAGMA wal_checkpoint(RESTART)")
    return disk.log, promises


def files_after(log: list[tuple[str, str, int, bytes]], chance: random.Random) -> dict[str, bytes]:
    """The files after a power cut: what was synced is there, of what was written since then any part, also torn."""
    synced = {name: max((at for at, entry in enumerate(log) if entry[:2] == (name, "sync")), default=-1)
              for name in {entry[0] for entry in log}}  # fmt: skip
    files: dict[str, bytearray] = defaultdict(bytearray)
    for at, (name, what, offset, data) in enumerate(log):
        if at > synced[name] and what != "delete":
            if chance.random() < 0.3:
                continue
            data = data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data  # noqa: PLW2901
        content = files[name]
        if what == "write":
            content.extend(b"\0" * (offset - len(content)))
            content[offset : offset + len(data)] = data
        elif what == "truncate":
            del content[offset:]
        elif what == "delete":
            files.pop(name, None)
    return {name: bytes(content) for name, content in files.items()}


@pytest.mark.landing
@pytest.mark.security("power cuts at every write of the store, with torn and lost writes: nothing promised is lost")
@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_any_write(
    recorded: tuple[list[tuple[str, str, int, bytes]], list[tuple[int, str, str]]], seed: int, tmp_path: Path
) -> None:
    """What a call had promised before is there, the call under way is there wholly or not at all."""
    log, promises = recorded
    first = promises[0][0]
    for cut in range(first, len(log) + 1):
        for name, content in files_after(log[:cut], random.Random(f"{seed} {cut}")).items():
            (tmp_path / name).write_bytes(content)
        known = {move: what for at, move, what in promises if at <= cut}
        following = next((move for at, move, _ in promises if at > cut), "")
        with closing(journal_at(tmp_path)):
            told = {move.move: move.result.value if move.result is not None else "open" for move in history(tmp_path)}
        assert {move: told.get(move) for move in known if move != following}.items() <= known.items() | told.items()
        for move, what in known.items():
            assert told[move] == what or (move == following and told[move] == "landed"), (cut, move)
        assert len(told) <= len(known) + 1
        for file in tmp_path.iterdir():
            file.unlink()


@pytest.fixture(scope="module")
def recorded_whole() -> tuple[list[tuple[str, str, int, bytes]], list[int]]:
    """The same of everything that is in the store: after which operation each number is promised."""
    disk, promised = _Disk(), list[int]()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(database.sqlite3, "connect", recording)
        with closing(Everything(Path(folder))) as everything:
            for number in range(1, 5):
                everything.write(number)
                promised.append(len(disk.log))
    return disk.log, promised


@pytest.mark.landing
@pytest.mark.security("power cuts among all that the store holds: what came before a sync is there, in any table")
def test_a_power_cut_among_all_tables(
    recorded_whole: tuple[list[tuple[str, str, int, bytes]], list[int]], tmp_path: Path
) -> None:
    """A write without a sync of its own may be lost until the next one that has it, and never comes by halves."""
    log, promised = recorded_whole
    for cut in range(promised[0], promised[-1] + 1):
        for name, content in files_after(log[:cut], random.Random(cut)).items():
            (tmp_path / name).write_bytes(content)
        number = sum(cut >= at for at in promised)
        assert [number <= found <= number + 1 for found in last(tmp_path)] == [True] * len(LAST), (cut, last(tmp_path))
        for file in tmp_path.iterdir():
            file.unlink()


# --- kills


KILLED = """
import os, sys
from pathlib import Path
from tests.store.test_database import journal_at, unload
journal = journal_at(Path(sys.argv[1]))
while True:
    print(journal.intend(unload(0), 1), flush=True)
"""

KILLED_WHOLE = """
import itertools, sys
from pathlib import Path
from tests.store.test_database import Everything
everything = Everything(Path(sys.argv[1]))
for number in itertools.count(1):
    everything.write(number)
    print(number, flush=True)
"""


@pytest.mark.landing
@pytest.mark.security("SIGKILL between the writes of the store: every promised intent is there")
def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    """What was printed had been written; the next process writes on."""
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            promised = [process.stdout.readline().strip() for _ in range(20)]
            process.kill()
            promised += [line.strip() for line in process.stdout if line.endswith("\n")]
        assert set(promised) <= {move for move, _ in read(tmp_path / STORE_NAME).open}
    with closing(journal_at(tmp_path)) as journal:
        moved(journal, 1)


@pytest.mark.landing
@pytest.mark.security("SIGKILL among all that the store holds: what was written is there, in every table")
def test_a_kill_among_all_tables(tmp_path: Path) -> None:
    """Also what needs no sync: the system has it."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_WHOLE, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        written = [int(process.stdout.readline()) for _ in range(5)]
        process.kill()
        written += [int(line) for line in process.stdout if line.endswith("\n")]
    assert {written[-1] <= found <= written[-1] + 1 for found in last(tmp_path)} == {True}


# --- damage


@pytest.mark.landing
@pytest.mark.security("620 damaged stores: read, or refused in one line that says what to do", cases=620)
def test_damage_is_seen_or_harmless(tmp_path: Path) -> None:
    """Bytes changed, cut off, or not lbd's: no traceback, and an entry that is read is one that was written."""
    with closing(Everything(tmp_path)) as everything:
        for number in range(1, 41):
            everything.write(number)
    whole, written = (tmp_path / STORE_NAME).read_bytes(), entries(tmp_path)
    refused = 0
    for case in range(620):
        chance, content = random.Random(case), bytearray(whole)
        match case % 4:
            case 0:
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            case 1:
                begin = chance.randrange(len(content))
                content[begin : begin + 512] = b"\0" * len(content[begin : begin + 512])
            case 2:
                del content[chance.randrange(len(content)) :]
            case _:
                page = 4096 * chance.randrange(len(content) // 4096)
                content[page : page + 4096] = chance.randbytes(4096)
        for name in (STORE_NAME, f"{STORE_NAME}-wal", f"{STORE_NAME}-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / STORE_NAME).write_bytes(content)
        try:
            with closing(journal_at(tmp_path)) as journal:
                moved(journal, 99)
            list(LAST.values())[case % len(LAST)](tmp_path)
        except UsageError as error:
            refused += 1
            assert str(tmp_path / STORE_NAME) in str(error) or "no entry" in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
            told = ("forgets it", "put a backup", "move it away", "not a store", "lbd run writes them anew")
            assert any(words in str(error) for words in told)  # noqa: PT017
    assert refused > 300
    assert len(written) == 80


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ""),
        (b"not a database, but long enough to be one " * 100, "store is damaged: file is not a database"),
    ],
    ids=["empty", "text"],
)
def test_what_is_no_database(content: bytes, message: str, tmp_path: Path) -> None:
    """An empty file is a store that was just begun; another file stays as it is."""
    (tmp_path / STORE_NAME).write_bytes(content)
    if not message:
        journal_at(tmp_path).close()
        return
    with pytest.raises(UsageError, match=message):
        journal_at(tmp_path)
    assert (tmp_path / STORE_NAME).read_bytes() == content


def test_one_that_a_journal_cannot_be_read_from_is_open_no_more(tmp_path: Path) -> None:
    """Else the store that is put back in its place would be refused as a replaced one, until the process ends."""
    journal_at(tmp_path).close()
    good, path = (tmp_path / STORE_NAME).read_bytes(), tmp_path / STORE_NAME
    with closing(sqlite3.connect(path)) as store:
        store.execute("DROP TABLE journal")
        store.commit()
    with pytest.raises(UsageError, match="no such table: journal"):
        journal_at(tmp_path)
    path.unlink()
    path.write_bytes(good)
    with writing(path) as store:
        store.put({"x": b"y"})


@pytest.mark.parametrize("call", [Database.open, read, lambda path: history(path.parent)])
@pytest.mark.parametrize(
    ("pragma", "message"),
    [
        (
            f"user_version = {SCHEMA_VERSION + 1}",
            f"store of schema {SCHEMA_VERSION + 1}, this lbd has {SCHEMA_VERSION}; run the lbd that wrote it",
        ),
        ("application_id = 7", "not a store of lbd"),
    ],
)
def test_another_version_is_refused(pragma: str, message: str, call: Callable[[Path], object], tmp_path: Path) -> None:
    """By writers and readers alike, older and newer ones, and so is another program's database."""
    journal_at(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / STORE_NAME)) as connection:
        connection.execute(f"PRAGMA {pragma}")
    with pytest.raises(UsageError, match=message):
        call(tmp_path / STORE_NAME)


# --- the files


@pytest.mark.parametrize("name", [STORE_NAME, f"{STORE_NAME}-wal"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_taken_away_is_seen(name: str, how: str, tmp_path: Path) -> None:
    """No intent is written where the next process would not read it; when it is put back, moves go on."""
    with closing(journal_at(tmp_path)) as journal:
        moved(journal, 0)
        (tmp_path / name).rename(tmp_path / "away")
        if how == "replaced":
            shutil.copy(tmp_path / "away", tmp_path / name)
        with pytest.raises(UsageError, match=f"{name} was removed or replaced while lbd runs on it; stop lbd"):
            journal.intend(unload(1), 1)
        (tmp_path / "away").rename(tmp_path / name)
        moved(journal, 1)
    assert len(history(tmp_path)) == 2


@pytest.mark.parametrize("name", sorted(LAST.keys() - {"averages"}))
def test_nothing_is_written_to_another_file_of_that_name(name: str, tmp_path: Path) -> None:
    """Whoever writes: it would be lost, and what is there is another's."""
    with closing(Everything(tmp_path)) as everything:
        everything.write(1)
        (tmp_path / STORE_NAME).rename(tmp_path / "away")
        shutil.copy(tmp_path / "away", tmp_path / STORE_NAME)
        before = (tmp_path / STORE_NAME).read_bytes()
        with pytest.raises(UsageError, match="was removed or replaced while lbd runs on it"):
            everything.writers[name](2)
        assert (tmp_path / STORE_NAME).read_bytes() == before


@pytest.mark.security("links, FIFOs and folders planted under the names of the store: not followed")
@pytest.mark.parametrize("name", [STORE_NAME, f"{STORE_NAME}-wal", f"{STORE_NAME}-shm"])
@pytest.mark.parametrize("plant", ["link", "dangling", "hard link", "fifo", "folder"])
def test_planted_files_are_refused(name: str, plant: str, tmp_path: Path) -> None:
    """By writers and readers, and what they lead to is as before."""
    state, precious = tmp_path / "state", tmp_path / "precious"
    state.mkdir()
    precious.write_text("precious")
    {
        "link": lambda: (state / name).symlink_to(precious),
        "dangling": lambda: (state / name).symlink_to(tmp_path / "absent"),
        "hard link": lambda: (state / name).hardlink_to(precious),
        "fifo": lambda: os.mkfifo(state / name),
        "folder": (state / name).mkdir,
    }[plant]()
    for call in (journal_at, history):
        with pytest.raises(UsageError, match=f"{name} (is no regular file|has a second name)"):
            call(state)
    assert precious.read_text() == "precious"
    assert not (tmp_path / "absent").exists()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users reach."""
    with disks.open_to_all() as folder:
        yield folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root opens files as somebody else")
def test_what_root_makes_belongs_to_the_service(open_path: Path) -> None:
    """Root opens the files as the owner of the directory, and is root again."""
    os.chown(open_path, 12345, 12345)
    with closing(journal_at(open_path)) as journal:
        assert os.geteuid() == 0
        moved(journal, 0)
        assert {file.stat().st_uid for file in open_path.iterdir()} == {12345}


def test_another_user_reads_what_nobody_writes(open_path: Path) -> None:
    """Also without the right to make files beside the store, as SQLite would for its log."""
    with closing(journal_at(open_path)) as journal:
        moved(journal, 0)
    script = "import os, sys; from pathlib import Path; from lbd.store.moves import history; os.setuid(12345)"
    script += "; print(len(history(Path(sys.argv[1]))))"
    if os.geteuid() != 0:
        pytest.skip("only root becomes somebody else")
    command = [sys.executable, "-c", script, str(open_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == "1\n"


@pytest.mark.landing
def test_another_user_reads_all_of_it_while_lbd_writes(open_path: Path) -> None:
    """Who may not write there, as a person with lbd explain or history."""
    script = "import encodings.cp437, os, sys; from pathlib import Path; from tests.store.test_database import last"
    script += "; os.setuid(12345); print(last(Path(sys.argv[1])))"
    command = [sys.executable, "-c", script, str(open_path)]
    if os.geteuid() != 0:
        pytest.skip("only root becomes somebody else")
    with closing(Everything(open_path)) as everything:
        everything.write(1)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        everything.write(2)
    assert not done.stderr, done.stderr
    assert json.loads(done.stdout) == [1] * len(LAST)


# --- locks


@contextmanager
def held(path: Path) -> Iterator[int]:
    """An open file that this process has locked."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_a_file_system_with_locks_is_taken(tmp_path: Path) -> None:
    """A second open file gets neither kind of lock."""
    with held(tmp_path / "lock") as descriptor:
        database.refuse_without_locks(descriptor, tmp_path / "lock")


@pytest.mark.parametrize("kind", ["_whole_lock", "_record_lock"])
def test_a_file_system_without_locks_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a second open file gets the lock, too, as on some network file systems."""
    monkeypatch.setattr(database, kind, lambda _: None)
    with (
        held(tmp_path / "lock") as descriptor,
        pytest.raises(UsageError, match="locks do not hold on this file system"),
    ):
        database.refuse_without_locks(descriptor, tmp_path / "lock")


def test_a_person_who_holds_the_file_holds_up_a_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the intent is refused; nothing is sent without it."""
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    with closing(journal_at(tmp_path)) as journal, closing(sqlite3.connect(tmp_path / STORE_NAME)) as person:
        person.execute("BEGIN IMMEDIATE")
        with pytest.raises(UsageError, match="database is locked; no unload is sent without it"):
            journal.intend(unload(0), 1)
        person.rollback()
        moved(journal, 0)


# --- copies


def test_a_backup_while_it_is_written(tmp_path: Path) -> None:
    """Is a whole store of some moment; it is put in place of a lost one."""
    backup, done = tmp_path / "backup.db", threading.Event()
    with closing(Everything(tmp_path)) as everything:

        def write() -> None:
            for number in range(1, 60):
                everything.write(number)
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        with closing(sqlite3.connect(tmp_path / STORE_NAME)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target, pages=1)
        writer.join()
    shutil.copy(backup, tmp_path / STORE_NAME)
    restored = last(tmp_path)
    assert max(restored) - min(restored) <= 1
    with closing(journal_at(tmp_path)) as journal:
        moved(journal, 0)


@pytest.mark.landing
def test_the_log_does_not_grow_for_ever(tmp_path: Path) -> None:
    """Also beside readers that come and go; after the end it is gone."""
    with closing(journal_at(tmp_path)) as journal:
        for number in range(700):
            moved(journal, number)
            if number % 50 == 0:
                history(tmp_path)
        assert (tmp_path / f"{STORE_NAME}-wal").stat().st_size < 8 << 20
    assert sorted(file.name for file in tmp_path.iterdir()) == [STORE_NAME]


def test_reading_nothing_makes_nothing(tmp_path: Path) -> None:
    """A reader makes no store."""
    with reading(tmp_path / STORE_NAME) as store, suppress(AttributeError):
        assert store is None
    assert list(tmp_path.iterdir()) == []
