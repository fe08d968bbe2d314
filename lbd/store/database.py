"""The store: one SQLite file in the state directory, written by the holder of that directory and read by anybody.

Commands write orders of people there, too, beside whoever holds the directory.

Each write is a transaction: a kill or a power cut leaves all of it or nothing. It is on disk when the call returns
(``synchronous=FULL``), unless the caller can do without: a power cut then loses the last of these writes, and none that
came before a durable one. The write-ahead log lets others read at any time without holding up a write.

A process has a store open once. Who has something to write beside the journal does so in that one (:func:`writing`).

Root runs commands in a directory that belongs to the user of the service. So the files are opened as that user: a link
that he planted leads root nowhere that he could not go himself.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import stat
import struct
import threading
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote

import msgspec

from lbd.clock import boot_seconds
from lbd.errors import UsageError
from lbd.files import REPLACED, STARTS_AGAIN, directory, growing, read, refused, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType


Kind = TypeVar("Kind")

STORE_NAME, LOCK = "lbd.db", "lock"
SCHEMA_VERSION = 4
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
CREATE TABLE turns (
    number INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    until REAL NOT NULL,
    turn BLOB NOT NULL
) STRICT;
CREATE TABLE state (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;
"""
"""``journal``: one entry a row (``journal_lines.py``) as JSON, with its time in epoch seconds, its event, the id of its
move or split (empty for a leader's note), and its bundle.

``turns``: a kept turn a row (``turns.py``), with the ``last`` of the quiet turns that it stands for, and its time.

``state``: whatever has one value at a time, by its name, such as the orders of people."""

BUSY_SECONDS = 5.0
"""How long a write waits for another one: a backup, or a person's ``sqlite3``, may hold the file for a moment."""

LOST = (
    "cool-downs, budgets, open moves and orders of before are not known, and nothing is moved; stop lbd and put the "
    "journal back, or accept the loss with lbd run --new-journal"
)


class ClosedStoreError(UsageError):
    """Another thread has closed the store meanwhile: that is no damage, and the file can be read anew."""


class Database:
    """An open store; thread-safe."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection
        self._lock, self._durable, self._closed = threading.RLock(), True, False
        self._failing_since: float | None = None
        self._files = _identities(path.parent, _names(path))

    @classmethod
    def open(cls, path: Path, *, anew: bool = False) -> Self:
        """Open the store to write, made where none was ever made, or ``anew``. Anybody may read it, whatever the umask.

        Raises :class:`UsageError` where it cannot be opened, is gone, damaged, or of another schema.
        """
        with _StoreErrors(path), _as_owner(path.parent):
            refuse_other_than_files(path)
            is_new = not path.exists()
            if not anew and (gone := missing(path)):
                raise UsageError(gone)
            if is_new:
                os.close(growing(path))
            connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                _prepare(connection, path)
                if is_new:
                    sync(path.parent)
            except BaseException:
                connection.close()
                raise
        store = cls(path, connection)
        _open[_key(path)] = store
        return store

    @property
    def lost(self) -> str:
        """The file that is no longer the one that was opened, as text; empty while all are there."""
        there = _identities(self._path.parent, self._files)
        for name, identity in self._files.items():
            if there.get(name) != identity:
                return f"{self._path.with_name(name)} {REPLACED}; {STARTS_AGAIN}"
        return ""

    @property
    def unwritable_seconds(self) -> float:
        """Seconds since the first of the failed writes after which none has succeeded; 0 while writes succeed."""
        since = self._failing_since
        return 0.0 if since is None else boot_seconds() - since

    def write(self, statement: str, rows: Iterable[Sequence[object]], *, durable: bool = True) -> None:
        """Execute the statement for each row, in one transaction; on disk when this returns if it is ``durable``.

        Raises :class:`UsageError`, and nothing has changed then.
        """
        with self._transaction(durable=durable):
            self._connection.executemany(statement, rows)

    @contextmanager
    def _transaction(self, *, durable: bool = True) -> Iterator[None]:
        """Nobody else writes meanwhile; what is raised within undoes all of it."""
        with _StoreErrors(self._path), self._lock:
            self._refuse_closed()
            if durable is not self._durable:
                self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                before = self._changes
                yield
                self._connection.execute("COMMIT")
            except BaseException as error:
                if isinstance(error, sqlite3.Error) and self._failing_since is None:
                    self._failing_since = boot_seconds()
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            if self._changes > before:
                self._failing_since = None

    @property
    def _changes(self) -> int:
        """Rows that this connection has changed: the end of a transaction without any proves nothing of the disk."""
        return int(self._connection.execute("SELECT total_changes()").fetchone()[0])

    def put(self, values: Mapping[str, bytes | memoryview], *, durable: bool = True) -> None:
        """Replace values of ``state``, all of them or none. Raises as :meth:`write`."""
        self.write(_PUT, list(values.items()), durable=durable)

    def change(self, name: str, edit: Callable[[bytes | None], bytes | None]) -> None:
        """Replace a value of ``state`` by what ``edit`` makes of it, in one transaction: nobody changes it in between.

        On disk when this returns. ``edit`` must be quick, as every other write waits for it; what it raises ends the
        change. Raises as :meth:`write`.
        """
        with self._transaction():
            before = self.value(name)
            after = edit(before)
            if after is not None and after != before:
                self._connection.execute(_PUT, (name, after))

    def remove(self, name: str) -> None:
        """Remove a value of ``state``, on disk when this returns. Raises as :meth:`write`."""
        self.write("DELETE FROM state WHERE name = ?", [(name,)])

    def value(self, name: str) -> bytes | None:
        """A value of ``state``; None where there is none. Raises :class:`UsageError`."""
        rows = self.rows("SELECT value FROM state WHERE name = ?", name)
        return rows[0][0] if rows else None

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows that a query answers. Raises :class:`UsageError`."""
        with _StoreErrors(self._path), self._lock:
            self._refuse_closed()
            return self._connection.execute(statement, values).fetchall()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ClosedStoreError(f"{self._path}: store is closed, as this lbd ends")

    @property
    def damage(self) -> str:
        """The first fault that SQLite finds in the file, in one line; empty where all is well."""
        with _StoreErrors(self._path):
            return _damage(self._connection)

    def close(self) -> None:
        """Close the file, once; it then stands alone, without a log, unless somebody reads it at this moment."""
        if _open.get(_key(self._path)) is self:
            del _open[_key(self._path)]
        with self._lock:
            self._closed = True
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA journal_mode = DELETE")
            self._connection.close()


_PUT = "INSERT OR REPLACE INTO state (name, value) VALUES (?, ?)"

_open: dict[str, Database] = {}
"""The stores that this process writes to, as files are opened once: SQLite's locks do not hold one thread off another,
and a name may lead to another file than the one that is open."""


def _key(path: Path) -> str:
    name = str(path)
    return _normal(name) if name.startswith("/") else os.path.abspath(name)  # noqa: PTH100 - see _normal


_normal = lru_cache(os.path.normpath)
"""An absolute path without ``..``; ``resolve()`` would follow what is there now."""


@contextmanager
def writing(path: Path) -> Iterator[Database]:
    """The store to write to: that which this process has open, else it is opened for this alone.

    Raises :class:`UsageError` as :meth:`Database.open`, and where another file has the name of the open one now.
    """
    store = _open.get(_key(path))
    if store is None:
        with closing(Database.open(path)) as opened:
            yield opened
        return
    if lost := store.lost:
        raise UsageError(lost)
    yield store


def lost(path: Path) -> str:
    """See :attr:`Database.lost`; empty where this process has no such store open."""
    store = _open.get(_key(path))
    return store.lost if store is not None else ""


@contextmanager
def reading(path: Path) -> Iterator[Database | None]:
    """The store to read, beside whoever writes it; None where there is none. Raises :class:`UsageError`."""
    with _StoreErrors(path):
        refuse_other_than_files(path)
        connection = _connected_to_read(path) if path.exists() else None
    if connection is None:
        yield None
        return
    try:
        with _StoreErrors(path):
            _refuse_other_versions(connection, path)
        yield Database(path, connection)
    finally:
        connection.close()


def _connected_to_read(path: Path) -> sqlite3.Connection:
    name = f"file:{quote(str(path))}?mode=ro"
    return sqlite3.connect(name, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def value(path: Path, name: str) -> bytes | None:
    """A value of ``state``, read beside whoever writes; None where there is none. Raises :class:`UsageError`."""
    if (opened := _open.get(_key(path))) is not None:
        with suppress(ClosedStoreError):
            return opened.value(name)
    with reading(path) as store:
        return store.value(name) if store is not None else None


def damage(path: Path) -> str:
    """The first fault in the bytes of a store, as text; empty for a sound store, or without one.

    Raises :class:`UsageError` where it cannot be read at all.
    """
    try:
        with reading(path) as store:
            return store.damage if store is not None else ""
    except UsageError as error:
        if type(error.__cause__) is sqlite3.DatabaseError:  # and not one of its kinds, as for a lock
            return str(error.__cause__)
        raise


FORGET = "sqlite3 {path} \"DELETE FROM state WHERE name = '{name}'\" forgets it"


def json_value(path: Path, name: str, kind: type[Kind]) -> Kind | None:
    """A value of ``state`` that is JSON, as its type; None where there is none.

    NaN and infinity are numbers there. Raises :class:`UsageError`, with how it is forgotten, for one that is none.
    """
    content = value(path, name)
    try:
        if content is None:
            return None
        document = json.loads(content)
        json.dumps(document, ensure_ascii=False).encode()  # halves of characters are no text
        return msgspec.convert(document, type=kind, strict=False)
    except (ValueError, RecursionError, OverflowError) as error:
        raise UsageError(f"{path}: {name} cannot be read: {error}; {FORGET.format(path=path, name=name)}") from error


def json_of(value: object) -> bytes:
    """A value as JSON, to be read by :func:`json_value`. Raises :class:`UsageError` for text that is no UTF-8."""
    try:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{error.object!r} cannot be kept: it is no UTF-8 text") from error


def put_json(path: Path, name: str, value: object) -> None:
    """Replace a value of ``state`` with JSON, on disk when this returns. Raises :class:`UsageError`."""
    with writing(path) as store:
        store.put({name: json_of(value)})


def missing(path: Path) -> str:
    """How a store is gone that its directory once had, as text; empty where it is there, or none was ever made.

    The first to hold a directory makes its store, and then writes its process into ``lock``.
    """
    try:
        is_there = path.lstat().st_size > 0
        how = "empty"
    except FileNotFoundError:
        is_there, how = False, "missing"
    with suppress(OSError):
        if not is_there and read(path.with_name(LOCK)):
            return f"{path} is {how}, and {LOCK} is there: {LOST}"
    return ""


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


def _identities(folder: Path, names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Device and inode of each of these files that is there."""
    identities = {}
    with suppress(OSError), directory(folder) as walked:
        for name in names:
            with suppress(OSError):
                status = os.stat(name, dir_fd=walked, follow_symlinks=False)
                identities[name] = status.st_dev, status.st_ino
    return identities


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
    """The first fault that SQLite finds, in one line; empty where all is well."""
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


class _StoreErrors:
    """Turns an error of SQLite or of the system into a :class:`UsageError` of one line."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, sqlite3.DatabaseError | OSError):
            raise _refusal(self._path, error) from error


def _refusal(path: Path, error: sqlite3.DatabaseError | OSError) -> UsageError:
    if isinstance(error, OSError):
        return refused(path, error, "opened")
    if not isinstance(error, sqlite3.OperationalError):
        return UsageError(
            f"{path}: store is damaged: {error}; stop lbd, put a backup in its place (without {path.name}-wal), "
            "or accept the loss with lbd run --new-journal"
        )
    if error.sqlite_errorcode == sqlite3.SQLITE_READONLY and path.exists():
        number = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else errno.EACCES
        return refused(path, OSError(number, os.strerror(number)), "written")
    return UsageError(f"{path}: store cannot be read or written: {error}")
