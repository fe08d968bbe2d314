"""The store: one SQLite file in the state directory, written by the holder of that directory and read by anybody.

Each write is a transaction of its own that is on disk when the call returns (``synchronous=FULL``): a kill or a power
cut leaves all of it or nothing. The write-ahead log lets others read at any time without holding up a write.

Root runs commands in a directory that belongs to the user of the service. So the files are opened as that user: a link
that he planted leads root nowhere that he could not go himself.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
import struct
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from lbd.errors import UsageError
from lbd.files import REPLACED, STARTS_AGAIN, directory, refused, sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


STORE_NAME = "lbd.db"
SCHEMA_VERSION = 2
APPLICATION_ID = 0x6C62644A
"""``lbdJ`` in the header of the file: another program's database is not taken for lbd's."""

SCHEMA = """
CREATE TABLE journal (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    event TEXT NOT NULL,
    move TEXT NOT NULL,
    bundle TEXT NOT NULL,
    entry TEXT NOT NULL
) STRICT;
CREATE INDEX journal_by_move ON journal (move);
CREATE INDEX journal_by_event ON journal (event);
CREATE TABLE owners (
    number INTEGER PRIMARY KEY CHECK (number = 1),
    seen_at REAL NOT NULL,
    owners BLOB NOT NULL
) STRICT;
CREATE TABLE unknown_moves (
    number INTEGER PRIMARY KEY CHECK (number = 1),
    moves TEXT NOT NULL
) STRICT;
"""
"""``journal``: one entry a row (``journal_lines.py``) as JSON, with its time in epoch seconds, its event, the id of its
move or split (empty for a leader's note), and its bundle. ``owners`` and ``unknown_moves`` have one row each
(``owners.py``)."""

BUSY_SECONDS = 5.0
"""How long a write waits for another one: a backup, or a person's ``sqlite3``, may hold the file for a moment."""

OF_BEFORE = "journal.jsonl"
"""The journal of an lbd that kept it in files of lines."""


class Database:
    """An open store. Not thread-safe: its owner has a lock."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection
        self._files = {name: identity for name in _names(path) if (identity := _identity(path.parent, name))}

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the store to write, made where it is missing; only the holder of the directory may.

        Raises :class:`UsageError` where it cannot be opened, is damaged, of another schema, or on a file system
        without locks.
        """
        with _told(path), _as_owner(path.parent):
            refuse_other_than_files(path)
            is_new = not path.exists()
            connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                _prepare(connection, path)
                if is_new:
                    sync(path.parent)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    @classmethod
    def in_memory(cls) -> Self:
        """An empty store that no file has."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.executescript(SCHEMA)
        return cls(Path(":memory:"), connection)

    @property
    def lost(self) -> str:
        """The file that is no longer the one that was opened, as text; empty while all are there."""
        for name, identity in self._files.items():
            if _identity(self._path.parent, name) != identity:
                return f"{self._path.with_name(name)} {REPLACED}; {STARTS_AGAIN}"
        return ""

    def write(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Execute the statement for each row, in one transaction that is on disk when this returns.

        Raises :class:`UsageError`, and nothing has changed then.
        """
        with _told(self._path):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows that a query answers. Raises :class:`UsageError`."""
        with _told(self._path):
            return self._connection.execute(statement, values).fetchall()

    @property
    def damage(self) -> str:
        """What SQLite finds wrong with the file, in one line; empty where all is well."""
        with _told(self._path):
            return _damage(self._connection)

    def close(self) -> None:
        """Close the file, once; it then stands alone, without a log, unless somebody reads it at this moment."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()


@contextmanager
def reading(path: Path) -> Iterator[Database | None]:
    """The store to read, beside whoever writes it; None where there is none. Raises :class:`UsageError`."""
    with _told(path):
        refuse_older(path.parent)
        refuse_other_than_files(path)
        connection = _connected_to_read(path) if path.exists() else None
    if connection is None:
        yield None
        return
    try:
        with _told(path):
            _refuse_other_versions(connection, path)
        yield Database(path, connection)
    finally:
        connection.close()


def _connected_to_read(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def damage(path: Path) -> str:
    """What is wrong with the bytes of a store, as text; empty where nothing is, or none is there.

    Raises :class:`UsageError` where it cannot be read at all.
    """
    try:
        with reading(path) as store:
            return store.damage if store is not None else ""
    except UsageError as error:
        if type(error.__cause__) is sqlite3.DatabaseError:  # and not one of its kinds, as for a lock
            return str(error.__cause__)
        raise


def refuse_older(folder: Path) -> None:
    """Raises :class:`UsageError` for the state directory of an lbd that had no store."""
    if (folder / OF_BEFORE).exists():
        raise UsageError(
            f"{folder}: {OF_BEFORE} is of an lbd before 0.1.0, whose state this one does not read; "
            "stop that lbd, move the directory away, and wait for guardrails.cool_down_minutes before the next start"
        )


def refuse_without_locks(descriptor: int, path: Path) -> None:
    """Raises :class:`UsageError` on a file system on which a second process gets a lock, too.

    ``descriptor`` is of the file ``path``, which this process holds by ``flock``. SQLite goes by record locks, which
    another open file of this process gets refused as another process would.
    """
    second = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        _record_lock(descriptor)
        for lock in (_whole_lock, _record_lock):
            try:
                lock(second)
            except BlockingIOError:
                continue
            raise UsageError(
                f"{path.parent}: locks do not hold on this file system, so two lbds could work on it; "
                "set state_dir to a directory on a local disk"
            )
    except OSError as error:
        raise UsageError(
            f"{path.parent}: locks cannot be had on this file system: {error.strerror}; "
            "set state_dir to a directory on a local disk"
        ) from error
    finally:
        os.close(second)


_SET_OPEN_FILE_LOCK = 37
"""``F_OFD_SETLK`` of Linux, which Python 3.11 has no name for: a record lock of the open file, not of the process."""


def _whole_lock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _record_lock(descriptor: int) -> None:
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1 << 40, 1, 0)
    fcntl.fcntl(descriptor, _SET_OPEN_FILE_LOCK, lock)


def refuse_other_than_files(path: Path) -> None:
    """Raises OSError where one of the names of the store leads elsewhere, or to no regular file."""
    with suppress(FileNotFoundError), directory(path.parent) as folder:
        for name in _names(path):
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    raise OSError(errno.EINVAL, f"{name} is no regular file")
                if status.st_nlink > 1:
                    raise OSError(errno.EMLINK, f"{name} has a second name")


def _names(path: Path) -> tuple[str, str, str]:
    """The file, its write-ahead log, and the index of that, which processes share."""
    return path.name, f"{path.name}-wal", f"{path.name}-shm"


def _identity(folder: Path, name: str) -> tuple[int, int] | None:
    """Device and inode of a file, None where there is none."""
    try:
        with directory(folder) as walked:
            status = os.stat(name, dir_fd=walked, follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Have writes be durable, make the tables of a new file, and check those of an old one."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("BEGIN IMMEDIATE")
    if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        for statement in filter(str.strip, SCHEMA.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")
    _refuse_other_versions(connection, path)
    if wrong := _damage(connection):
        raise sqlite3.DatabaseError(wrong)


def _damage(connection: sqlite3.Connection) -> str:
    """What SQLite finds wrong, in one line; empty where all is well."""
    words = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if words == "ok" else " ".join(words.replace("***", "").split())


def _refuse_other_versions(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise UsageError(f"{path}: not a store of lbd; move it away")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"{path}: store of schema {version}, this lbd has {SCHEMA_VERSION}; "
            "run the lbd that wrote it, or move the file away and lose its cool-downs and open moves"
        )


@contextmanager
def _as_owner(folder: Path) -> Iterator[None]:
    """Root opens files as the owner of their directory; this holds for all threads, and ends when they are open."""
    owner = folder.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    group = os.getegid()
    try:
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
    except PermissionError:  # a container's root, which may not become anybody
        yield
        return
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn an error of SQLite or of the system into a :class:`UsageError` of one line."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise UsageError(f"{path}: store cannot be read or written: {error}; no unload is sent without it") from error
    except sqlite3.DatabaseError as error:
        raise UsageError(
            f"{path}: store is damaged: {error}; stop lbd, put a backup in its place (without {path.name}-wal), "
            "or accept the loss with lbd run --new-journal"
        ) from error
    except OSError as error:
        raise refused(path, error, "opened") from error
