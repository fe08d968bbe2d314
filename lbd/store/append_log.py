"""The files of a journal: one that grows by whole lines, and older ones beside it, named by their rotation time."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

from lbd.files import FRESH, growing, is_found, link, reading, remove, replacing, sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


LIVE_NAME = "journal.jsonl"
STAMP = "%Y%m%dT%H%M%S.%f"
COPY = ".old"
"""Ending of an incomplete copy, from an older lbd."""

STAMP_GLOB = "[0-9]" * 8 + "T" + "[0-9]" * 6 + "." + "[0-9]" * 6


class Appender:
    """A file that grows by whole lines, each on disk when the call returns.

    A failed write is undone; where even that fails, the next line starts on a line of its own.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor
        self._name_synced = False
        self._torn = self.size > 0 and os.pread(descriptor, 1, self.size - 1) != b"\n"

    @classmethod
    def of(cls, path: Path) -> Self:
        """Open ``path``, or create it. Raises OSError."""
        return cls(path, growing(path))

    @property
    def is_found(self) -> bool:
        """Whether its name still leads to this file, so that the next process to open it reads what is written here."""
        return is_found(self._path, self._descriptor)

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._descriptor).st_size

    def write(self, lines: bytes) -> None:
        """Append whole lines. Raises OSError, and the file is as before then."""
        before = self.size
        try:
            self._put(b"\n" + lines if self._torn else lines)
            os.fsync(self._descriptor)
            self.sync_name()
        except BaseException:
            self._take_back(before)
            raise
        self._torn = False

    def sync_name(self) -> None:
        """Put the file's name on disk, unless it is known to be there. Raises OSError."""
        if not self._name_synced:
            sync(self._path.parent)
            self._name_synced = True

    def renamed(self) -> None:
        """Note that the file has got its name, which is synced with the next line at the latest."""
        self._name_synced = False

    def close(self) -> None:
        """Close the file, once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _put(self, content: bytes) -> None:
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(self._descriptor, remaining) :]

    def _take_back(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError:
            self._torn = True


def rotated(path: Path) -> list[Path]:
    """The older files of the journal whose live file is ``path``, oldest first."""
    return [file for _, file in sorted(_stamped(path))]


def rotate(path: Path, at: float, content: bytes) -> Appender:
    """Go on in a new live file that begins with ``content``; the old one stays beside it, named by ``at``.

    A kill at any point leaves the old live file or the new one, whole. Raises OSError, and nothing has changed then.
    """
    old = _rotated_name(path, at)
    with ExitStack() as undone:
        with replacing(path, durable=False) as file:
            fresh = Appender(path, os.dup(file.fileno()))
            undone.callback(fresh.close)
            fcntl.fcntl(file.fileno(), fcntl.F_SETFL, os.O_APPEND)
            fresh.write(content)
            undone.callback(_remove, old)
            _keep(path, old)
            sync(path.parent)
        undone.pop_all()
    fresh.renamed()
    return fresh


def prune(path: Path, keep_files: int) -> None:
    """Remove the oldest of the older files. Raises OSError."""
    files = rotated(path)
    for file in files[: max(len(files) - keep_files, 0)]:
        remove(file)


def tidy(path: Path) -> None:
    """Clean up after an interrupted rotation: incomplete files, and a second name of the live one."""
    with suppress(OSError):
        _remove(*(file for file in rotated(path) if file.samefile(path)))
    half = (path.name + ending for ending in (FRESH, COPY))
    _remove(*path.parent.glob(f".{path.name}.*{FRESH}"), *map(path.with_name, half))


def _remove(*files: Path) -> None:
    for file in files:
        with suppress(OSError):
            remove(file)


def _keep(path: Path, old: Path) -> None:
    """Link the live file to a second name, or copy it where the file system has no hard links."""
    try:
        link(path, old)
    except OSError:
        with reading(path) as live, replacing(old) as copy:
            shutil.copyfileobj(live, copy)


def _rotated_name(path: Path, at: float) -> Path:
    """Names sort by time also when the clock was set back."""
    stamp = datetime.fromtimestamp(at, UTC)
    newest = max((other for other, _ in _stamped(path)), default=None)
    if newest is not None and newest >= stamp:
        stamp = newest + timedelta(microseconds=1)
    return path.with_name(f"{path.stem}-{stamp.strftime(STAMP)}{path.suffix}")


def _stamped(path: Path) -> Iterator[tuple[datetime, Path]]:
    for file in path.parent.glob(f"{path.stem}-{STAMP_GLOB}{path.suffix}"):
        stamp = file.name[len(path.stem) + 1 : len(file.name) - len(path.suffix)]
        with suppress(ValueError):
            yield datetime.strptime(stamp, STAMP).replace(tzinfo=UTC), file
