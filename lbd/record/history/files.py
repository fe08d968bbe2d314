"""The files of history: ``v1/<table>/day=YYYY-MM-DD/<name>.parquet``, as Spark and every other reader finds them.

A file is written under a hidden name and renamed when it is whole, so that readers never see half of one.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lbd.files import sync
from lbd.record.history.tables import TABLES, VERSION, schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

TORN = "torn"
NEW = ".new"
GROUP_ROWS = 1 << 17
"""Rows of a row group of a packed day: what a reader holds at once."""

_REPLACES = b"lbd.replaces"

_JUNK = (pa.ArrowException, ValueError, KeyError)
"""What reading raises, beside OSError, for bytes that are not those that were written."""


def day_of(seconds: float) -> str:
    """The UTC day of epoch seconds, as folders name it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True)
class Folder:
    """``history/`` of a state directory, or any other place for the same."""

    root: Path

    def table(self, table: str) -> Path:
        """Where the days of a table are."""
        return self.root / f"v{VERSION}" / table

    def days(self, table: str) -> list[Path]:
        """A table's days, the oldest first."""
        return sorted(self.table(table).glob("day=*"))

    def put(self, table: str, begun: float, batches: Sequence[pa.RecordBatch]) -> Path:
        """Write one file into the day of ``begun`` (epoch seconds). Raises OSError, and leaves nothing then."""
        day = self.table(table) / f"day={day_of(begun)}"
        day.mkdir(parents=True, exist_ok=True)
        name = f"part-{round(begun * 1000):013d}"
        path = next(path for path in _names(day, name) if not path.exists())
        _written(path, pa.Table.from_batches(batches, schema(table)).schema, batches)
        return path

    def set_aside(self) -> int:
        """What a kill left half written goes to ``torn/``, and parts that a packed day has replaced go for good.

        Returns how many files are torn by now. Raises OSError.
        """
        for path in self.root.glob(f"v*/*/day=*/.*{NEW}"):
            self._tear(path)
        for table in TABLES:
            for day in self.days(table):
                self._unlink_replaced(day)
        return len(list((self.root / TORN).glob("*")))

    def pack(self, before: str) -> None:
        """Make one file of each day before the day ``before``; files that cannot be read, or have a damaged page, are
        set aside.

        Raises OSError; what was there then stays.
        """
        for table in TABLES:
            for day in self.days(table):
                if day.name.removeprefix("day=") < before:
                    self._pack(table, day)

    def _pack(self, table: str, day: Path) -> None:
        parts = sorted(path for path in day.glob("*.parquet") if self._readable(path))
        if len(parts) < 2:
            return
        told = {_REPLACES: json.dumps([path.name for path in parts]).encode()}
        kind = schema(table).with_metadata({**(schema(table).metadata or {}), **told})
        path = next(path for path in _names(day, "day") if not path.exists())
        try:
            _written(path, kind, _groups(parts, kind))
        except (OSError, *_JUNK):
            damaged = [part for part in parts if not _sound(part, kind)]
            for part in damaged:
                self._tear(part)
            if not damaged:
                raise
            self._pack(table, day)
            return
        self._unlink_replaced(day)

    def _unlink_replaced(self, day: Path) -> None:
        for path in sorted(day.glob("day*.parquet")):
            footer = _footer(path)
            with suppress(ValueError):
                for name in json.loads(((footer and footer.metadata) or {}).get(_REPLACES, b"[]")):
                    (day / name).unlink(missing_ok=True)

    def _readable(self, path: Path) -> bool:
        if _footer(path) is None:
            self._tear(path)
            return False
        return True

    def _tear(self, path: Path) -> None:
        (self.root / TORN).mkdir(exist_ok=True)
        path.replace(self.root / TORN / f"{path.parent.parent.name}-{path.name.lstrip('.')}")

    def prune(self, now: float, retention_days: int, max_bytes: int) -> None:
        """Remove days that are too old, then the oldest until the rest fits. Raises OSError."""
        oldest = (datetime.fromtimestamp(now, UTC) - timedelta(days=retention_days)).strftime("%Y-%m-%d")
        days = sorted({day.name for table in TABLES for day in self.days(table)})
        sizes = {day: self._size(day) for day in days}
        for day in days:
            if day.removeprefix("day=") < oldest or (sum(sizes.values()) > max_bytes and len(sizes) > 1):
                self._remove(day)
                del sizes[day]
        if sum(sizes.values()) > max_bytes:
            self._thin(max_bytes)

    def _thin(self, max_bytes: int) -> None:
        """One day alone is too much: its oldest files go."""
        files = sorted(self._files(), key=lambda path: path.stat().st_mtime)
        sizes = [path.stat().st_size for path in files]
        for at, path in enumerate(files):
            if sum(sizes[at:]) <= max_bytes:
                return
            path.unlink()

    def _remove(self, day: str) -> None:
        for table in TABLES:
            folder = self.table(table) / day
            if folder.is_dir():
                for path in folder.iterdir():
                    path.unlink()
                folder.rmdir()

    def _size(self, day: str) -> int:
        return sum(path.stat().st_size for path in self._files(day))

    def _files(self, day: str = "day=*") -> Iterator[Path]:
        for table in TABLES:
            yield from self.table(table).glob(f"{day}/*.parquet")


def _names(day: Path, name: str) -> Iterator[Path]:
    yield day / f"{name}.parquet"
    for number in range(1, 1_000_000):
        yield day / f"{name}-{number}.parquet"


def _groups(parts: Iterable[Path], kind: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of several files, in groups that fit in memory."""
    waiting: list[pa.RecordBatch] = []
    for path in parts:
        with _opened(path) as file:
            for batch in file.iter_batches(GROUP_ROWS):
                waiting.append(batch)
                if sum(one.num_rows for one in waiting) >= GROUP_ROWS:
                    yield from _joined(waiting, kind)
                    waiting = []
    yield from _joined(waiting, kind)


def _opened(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, page_checksum_verification=True)


def _footer(path: Path) -> pq.FileMetaData | None:
    """A file's footer; None of one that is not whole. Raises OSError where the disk is what fails."""
    try:
        return pq.read_metadata(path)
    except (OSError, *_JUNK) as error:
        _raise_of_disk(error)
        return None


def _sound(path: Path, kind: pa.Schema) -> bool:
    """Whether all of its rows can be read. Raises OSError where the disk is what fails."""
    try:
        for _ in _groups([path], kind):
            pass
    except (OSError, *_JUNK) as error:
        _raise_of_disk(error)
        return False
    return True


def _raise_of_disk(error: Exception) -> None:
    """What a disk fails with has a number; what Arrow says of a damaged footer or page is an OSError without."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error


def _joined(batches: list[pa.RecordBatch], kind: pa.Schema) -> list[pa.RecordBatch]:
    if not batches:
        return []
    found: list[pa.RecordBatch] = (
        pa.Table.from_batches(batches).select(kind.names).cast(kind).combine_chunks().to_batches()
    )
    return found


def _written(path: Path, kind: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """On disk, whole, under its name, when the call returns; or not at all. Raises OSError, and what ``batches`` raise.

    Without checksums nineteen of twenty bytes that a disk changes only make other numbers (measured).
    """
    fresh = path.with_name(f".{path.name}{NEW}")
    try:
        with fresh.open("wb") as file:
            with pq.ParquetWriter(file, kind, compression="zstd", write_page_checksum=True) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync(path.parent)
    except (OSError, *_JUNK):
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
