"""What a killed machine leaves on disk: no lock of its files, no transaction that was not committed."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections import defaultdict
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.nights.scheduler import scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator


class Disk:
    """Knows which machine locked which open file, and opened which database; all machines have folders of their own."""

    def __init__(self) -> None:
        self._locked: dict[str, dict[int, Path]] = defaultdict(dict)
        self._databases: dict[str, list[sqlite3.Connection]] = defaultdict(list)

    def release(self, machine: str) -> None:
        """As the system does when a process ends."""
        for descriptor, path in self._locked.pop(machine, {}).items():
            with suppress(OSError):
                if _opened(descriptor) == path:
                    os.close(descriptor)
        for connection in self._databases.pop(machine, ()):
            connection.close()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take note of locks and databases until the end."""
        lock, connect = fcntl.flock, sqlite3.connect

        def flock(file: Any, operation: int) -> None:
            lock(file, operation)
            descriptor = file if isinstance(file, int) else file.fileno()
            self._locked[_machine()][descriptor] = _opened(descriptor)

        def connected(*args: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*args, **{**options, "check_same_thread": False})
            self._databases[_machine()].append(connection)
            return connection

        with ExitStack() as replaced:
            replaced.enter_context(mock.patch.object(fcntl, "flock", flock))
            replaced.enter_context(mock.patch.object(sqlite3, "connect", connected))
            yield


def _opened(descriptor: int) -> Path:
    """The file that a descriptor is of."""
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def _machine() -> str:
    current = scheduler().current
    return "world" if current is None else current.machine
