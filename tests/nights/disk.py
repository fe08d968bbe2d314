"""The disks of machines: what a kill leaves there, and what fails, fills or takes long.

SQLite writes in C, so whole commits fail or are slow here; a torn write is the store's own test.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.nights.scheduler import scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

FAILS = 1 / 3
"""Of the commits of a flaky disk."""


class Disk:
    """Knows which machine locked which open file, and opened which database; all machines have folders of their own.

    ``full`` are machines whose disks take nothing more, ``failing`` how many of a machine's next commits fail,
    ``flaky`` those of which a third fails, by chance, and ``slow`` how many seconds each commit and sync takes.
    """

    def __init__(self) -> None:
        self._locked: dict[str, dict[int, Path]] = defaultdict(dict)
        self._databases: dict[str, list[sqlite3.Connection]] = defaultdict(list)
        self.full: set[str] = set()
        self.failing: Counter[str] = Counter()
        self.flaky: dict[str, Random] = {}
        self.slow: dict[str, float] = {}

    def release(self, machine: str) -> None:
        """As the system does when a process ends."""
        for descriptor, path in self._locked.pop(machine, {}).items():
            with suppress(OSError):
                if _opened(descriptor) == path:
                    os.close(descriptor)
        for connection in self._databases.pop(machine, ()):
            connection.close()

    def heal(self) -> None:
        """Nothing fails any more."""
        self.full.clear()
        self.failing.clear()
        self.flaky.clear()
        self.slow.clear()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take note of locks and databases until the end, and have commits and syncs fail or last."""
        lock, connect, sync, disk = fcntl.flock, sqlite3.connect, os.fsync, self

        class WatchedConnection(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                if sql == "COMMIT" and (number := disk._fails()):
                    raise _error(number)
                return super().execute(sql, parameters)

        def flock(file: Any, operation: int) -> None:
            lock(file, operation)
            descriptor = file if isinstance(file, int) else file.fileno()
            self._locked[_machine()][descriptor] = _opened(descriptor)

        def connected(*args: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*args, **{**options, "check_same_thread": False, "factory": WatchedConnection})
            self._databases[_machine()].append(connection)
            return connection

        def fsync(descriptor: int) -> None:
            if self._fails():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(descriptor)

        with ExitStack() as replaced:
            replaced.enter_context(mock.patch.object(fcntl, "flock", flock))
            replaced.enter_context(mock.patch.object(sqlite3, "connect", connected))
            replaced.enter_context(mock.patch.object(os, "fsync", fsync))
            yield

    def _fails(self) -> int:
        """Something is about to be on disk: SQLite's number of what prevents it, 0 where all is well."""
        machine = _machine()
        if machine in self.slow:
            scheduler().sleep(self.slow[machine])
        if self.failing[machine] > 0:
            self.failing[machine] -= 1
            return sqlite3.SQLITE_IOERR
        if machine in self.flaky and self.flaky[machine].random() < FAILS:
            return sqlite3.SQLITE_IOERR
        return sqlite3.SQLITE_FULL if machine in self.full else 0


def _error(number: int) -> sqlite3.OperationalError:
    """As SQLite raises it."""
    error = sqlite3.OperationalError("database or disk is full" if number == sqlite3.SQLITE_FULL else "disk I/O error")
    error.sqlite_errorcode = number
    return error


def _opened(descriptor: int) -> Path:
    """The file that a descriptor is of."""
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def _machine() -> str:
    current = scheduler().current
    return "world" if current is None else current.machine
