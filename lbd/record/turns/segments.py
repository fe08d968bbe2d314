"""The files of kept turns, each named by its first turn: one that grows, and older ones, compressed.

A kill may tear the last line of the growing file, and leave a file both plain and compressed; neither loses a turn that
was kept before. Nothing is synced but a file that was compressed: after a power cut the last turns may be missing.
"""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from lbd.files import FILE_MODE, FRESH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAIN, PACKED = ".jsonl", ".jsonl.gz"
DIGITS = 12
PACKING_LEVEL = 5
"""Turns are alike: a higher level takes twice the time for a tenth of the bytes."""

LONGEST_LINE = 64 << 20


class Tail:
    """The growing file. ``write`` appends whole lines, ``rewrite`` writes the line of before anew."""

    def __init__(self, path: Path) -> None:
        """Open or create it. Raises OSError."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        self.size = os.fstat(self._descriptor).st_size
        self._torn = self.size > 0 and os.pread(self._descriptor, 1, self.size - 1) != b"\n"

    def write(self, lines: bytes) -> int:
        """Append; returns where the lines begin. Raises OSError, and what was written of them is taken back."""
        start = self.size + self._torn
        try:
            self._put(b"\n" + lines if self._torn else lines, self.size)
        except OSError:
            self._cut(self.size)
            raise
        self._torn, self.size = False, start + len(lines)
        return start

    def rewrite(self, line: bytes, start: int) -> None:
        """Replace the last line, which began at ``start``; it never gets shorter. Raises OSError."""
        try:
            self._put(line, start)
        except OSError:
            self._cut(start)
            raise
        self.size = start + len(line)

    def close(self) -> None:
        """Close the file, once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _put(self, content: bytes, at: int) -> None:
        left = memoryview(content)
        while left:
            written = os.pwrite(self._descriptor, left, at)
            left, at = left[written:], at + written

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
            self.size = size
        except OSError:
            self._torn, self.size = True, os.fstat(self._descriptor).st_size


def files(folder: Path) -> list[Path]:
    """The files, oldest first; of one that is both plain and compressed the plain one."""
    found: dict[int, Path] = {}
    for ending in (PACKED, PLAIN):
        for path in folder.glob(f"*{ending}"):
            stem = path.name.removesuffix(ending)
            if stem.isascii() and stem.isdigit():
                found[int(stem)] = path
    return [found[first] for first in sorted(found)]


def first_turn(path: Path) -> int:
    """The turn that a file is named by."""
    return int(path.name.partition(".")[0])


def name_of(folder: Path, turn: int) -> Path:
    """The plain file that begins with a turn."""
    return folder / f"{turn:0{DIGITS}d}{PLAIN}"


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, as far as they can be read: a compressed one may be cut off or damaged. Raises OSError."""
    with gzip.open(path, "rb") if path.name.endswith(PACKED) else path.open("rb") as file:
        try:
            while line := file.readline(LONGEST_LINE):
                yield line
        except (EOFError, zlib.error, gzip.BadGzipFile):
            yield b"\0"


def growing(folder: Path, max_bytes: int) -> Path | None:
    """The file to go on with after a start; None where there is none, or it is full. Raises OSError."""
    newest = files(folder)[-1:]
    return next((path for path in newest if path.name.endswith(PLAIN) and path.stat().st_size <= max_bytes), None)


def packed(path: Path) -> Path:
    """The name of a file once it is compressed."""
    return path.with_name(path.name.partition(".")[0] + PACKED)


def pack(path: Path) -> None:
    """Compress a file that grows no more. Raises OSError, and the plain one is still there then."""
    target_path = packed(path)
    fresh = path.with_name(target_path.name + FRESH)
    try:
        with path.open("rb") as source, fresh.open("wb") as target:
            with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=PACKING_LEVEL, mtime=0) as stream:
                shutil.copyfileobj(source, stream, 1 << 20)
            target.flush()
            os.fchmod(target.fileno(), FILE_MODE)
            os.fsync(target.fileno())
        fresh.replace(target_path)
        path.unlink()
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def prune(folder: Path, max_bytes: int) -> None:
    """Remove the oldest files until the rest fits, and never the growing one. Raises OSError."""
    sizes = {path: path.stat().st_size for path in files(folder)}
    total = sum(sizes.values())
    for path in list(sizes)[:-1]:
        if total <= max_bytes:
            return
        path.unlink(missing_ok=True)
        total -= sizes[path]
