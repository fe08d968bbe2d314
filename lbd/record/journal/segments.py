"""The files of a journal: one that grows by whole lines, and older ones beside it, named by when they were rotated."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lbd.files import FILE_MODE, FRESH, sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIVE_NAME = "journal.jsonl"
STAMP = "%Y%m%dT%H%M%S.%f"
STAMP_GLOB = "[0-9]" * 8 + "T" + "[0-9]" * 6 + "." + "[0-9]" * 6
COPY = ".old"
"""Ending of a copy under way, where the file system has no hard links."""


class Appender:
    """A file that grows by whole lines, each on disk when the call returns.

    What a failed write left is taken back; where even that fails, the next line starts on a line of its own.
    """

    def __init__(self, path: Path, *, anew: bool = False) -> None:
        """Open ``path``, or create it; ``anew`` drops what it held. Raises OSError."""
        self._folder = path.parent
        self._folder_synced = False
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (os.O_TRUNC if anew else 0)
        self._descriptor = os.open(path, flags, FILE_MODE)
        self._torn = self.size > 0 and os.pread(self._descriptor, 1, self.size - 1) != b"\n"

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
        if not self._folder_synced:
            _sync_names(self._folder)
            self._folder_synced = True

    def renamed(self) -> None:
        """The file has another name from now on, which is on disk with the next line at the latest."""
        self._folder_synced = False

    def close(self) -> None:
        """Close the file, once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _put(self, content: bytes) -> None:
        left = memoryview(content)
        while left:
            left = left[os.write(self._descriptor, left) :]

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
    fresh, kept = _beside(path, FRESH), _rotated_name(path, at)
    file = Appender(fresh, anew=True)
    try:
        _give_away(fresh, path)
        file.write(content)
        _keep(path, kept)
        _sync_names(path.parent)
        fresh.replace(path)
    except OSError:
        file.close()
        _remove(fresh, _beside(path, COPY), kept)
        raise
    file.renamed()
    return file


def prune(path: Path, keep_files: int) -> None:
    """Remove the oldest of the older files. Raises OSError."""
    files = rotated(path)
    for file in files[: max(len(files) - keep_files, 0)]:
        file.unlink(missing_ok=True)


def tidy(path: Path) -> None:
    """Undo what a rotation that was cut off left: half files, and a second name of the live one."""
    with suppress(OSError):
        _remove(*(file for file in rotated(path) if file.samefile(path)))
    _remove(_beside(path, FRESH), _beside(path, COPY))


def _remove(*files: Path) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink()


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _give_away(fresh: Path, like: Path) -> None:
    """What root rotates by hand stays the daemon's to write, and whoever could read it still can."""
    shutil.copymode(like, fresh)
    if os.geteuid() == 0:
        wanted = like.stat()
        os.chown(fresh, wanted.st_uid, wanted.st_gid)


def _keep(path: Path, kept: Path) -> None:
    """The live file under another name as well, by a copy where the file system has no hard links."""
    try:
        kept.hardlink_to(path)
    except OSError:
        copy = _beside(path, COPY)
        shutil.copyfile(path, copy)
        _sync(copy)
        copy.replace(kept)


def _rotated_name(path: Path, at: float) -> Path:
    """Names sort by time also when the clock was set back."""
    stamp = datetime.fromtimestamp(at, UTC)
    newest = max((found for found, _ in _stamped(path)), default=None)
    if newest is not None and newest >= stamp:
        stamp = newest + timedelta(microseconds=1)
    return path.with_name(f"{path.stem}-{stamp.strftime(STAMP)}{path.suffix}")


def _stamped(path: Path) -> Iterator[tuple[datetime, Path]]:
    for file in path.parent.glob(f"{path.stem}-{STAMP_GLOB}{path.suffix}"):
        stamp = file.name[len(path.stem) + 1 : len(file.name) - len(path.suffix)]
        with suppress(ValueError):
            yield datetime.strptime(stamp, STAMP).replace(tzinfo=UTC), file


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_names(folder: Path) -> None:
    """Some network file systems cannot sync a directory, and have no need to."""
    try:
        sync(folder)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EBADF}:
            raise
