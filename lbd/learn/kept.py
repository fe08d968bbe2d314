"""Results of a calibration are kept until it has ended: after Ctrl-C or a kill the same command goes on.

Kept are the rows of each part, a few tasks that the workers run together. A part is found again by a digest of all that
its rows come from: lbd's version, the files of history, the windows, the tasks, and the function with its arguments.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from hashlib import sha256
from types import FunctionType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from lbd import __version__
from lbd.files import as_usage_error, decoded, make_directory, replace
from lbd.text import counted, duration_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from lbd.learn.quality import FileRows
    from lbd.learn.workers import Columns, OfDay, OfTask, PackedHistory, Packing, Rows, Task, Workers

FILES = "files.json"
"""How the first run began (:class:`FirstRun`)."""


class FirstRun(msgspec.Struct, frozen=True):
    """The files of history that the parts are of, for a daemon goes on writing while a calibration waits to be resumed;
    and how many tasks are one part, for a cluster may have other executors then.
    """

    names: list[str]
    at_once: int


@dataclass(frozen=True)
class Done:
    """How far a run has come: tasks ``done`` out of ``total``, ``computed`` of them now, in ``seconds``."""

    done: int
    total: int
    computed: int
    seconds: float

    @property
    def words(self) -> str:
        """``8 of 15 parts, about 4 min left``; without the time before a first part has ended."""
        remaining = self.seconds / self.computed * (self.total - self.done) if self.computed else None
        about = f", about {duration_text(remaining)} left" if remaining else ""
        return f"{self.done:,} of {counted(self.total, 'part')}{about}"


class KeptWorkers:
    """Other workers, whose results are kept in ``folder``. ``at_once`` tasks are one part."""

    def __init__(self, workers: Workers, folder: Path, at_once: int) -> None:
        self._workers, self._folder, self._first = workers, folder, FirstRun([], at_once)
        self._newer: Collection[str] = ()
        self._read = ""
        self._history: KeptHistory | None = None

    @property
    def done(self) -> Done | None:
        """How far the present run has come; None before the first."""
        return self._history.done if self._history is not None else None

    def files(self) -> list[FileRows]:
        """The files that the kept parts are of, where all of these are there still; else all, and nothing is kept."""
        files = self._workers.files()
        names, first = {file.name for file in files}, decoded(self._folder / FILES, FirstRun)
        if first is None or not names.issuperset(first.names):
            first = FirstRun(sorted(names), self._first.at_once)
        self._newer = names.difference(first.names)
        own = [file for file in files if file.name not in self._newer]
        self._first, self._read = first, digest(own)
        return own

    def reconnect_seconds(self) -> float | None:
        """As measured when the first run over these files asked: with another value no replay would be kept."""
        path = self._folder / f"reconnect-{self._read}.json"
        measured = decoded(path, list[float | None])
        if measured is None:
            measured = [self._workers.reconnect_seconds()]
            with as_usage_error(path):
                make_directory(self._folder)
                replace(path, json.dumps(measured).encode())
        return measured[0]

    def days(self, without: Collection[str], function: OfDay, columns: Columns) -> Rows:
        """Read again: it takes less than the replays."""
        return self._workers.days({*without, *self._newer}, function, columns)

    def packed(self, without: Collection[str], windows: Packing, hours: Packing) -> KeptHistory:
        """The history of those files, whose runs are kept."""
        packed = self._workers.packed({*without, *self._newer}, windows, hours)
        source = digest((__version__, self._read, sorted(without), windows, hours))
        self._history = KeptHistory(packed, self._folder, source, self._first)
        return self._history


class KeptHistory:
    """A packed history whose runs are kept. ``source`` is the digest of its origin."""

    def __init__(self, packed: PackedHistory, folder: Path, source: str, first: FirstRun) -> None:
        self._packed, self._folder, self._source, self._first = packed, folder, source, first
        self.done: Done | None = None

    def windows(self, names: Sequence[str]) -> Rows:
        """These columns of each window."""
        return self._packed.windows(names)

    def hours(self, names: Sequence[str]) -> Rows:
        """These columns of each hour."""
        return self._packed.hours(names)

    def bundles(self) -> tuple[str, ...]:
        """The names of all bundles, sorted."""
        return self._packed.bundles()

    def run(self, windows: Collection[int], tasks: Sequence[Task], function: OfTask, columns: Columns) -> Rows:
        """The rows of each task, out of the folder where they are kept."""
        if self.done is None:
            with as_usage_error(self._folder):
                make_directory(self._folder)
                replace(self._folder / FILES, msgspec.json.encode(self._first))
        source = digest((self._source, sorted(windows), function, sorted(columns)))
        at_once = self._first.at_once
        parts = [tasks[begin : begin + at_once] for begin in range(0, len(tasks), at_once)]
        paths = [self._folder / f"{digest((source, part))}.parquet" for part in parts]
        rows: Rows = []
        missing = []
        for part, path in zip(parts, paths, strict=True):
            if (own := _rows(path)) is None:
                missing.append((part, path))
            else:
                rows += own
        started, done = time.monotonic(), len(tasks) - sum(len(part) for part, _ in missing)
        self.done = Done(done, len(tasks), 0, 0.0)
        for part, path in missing:
            own = self._packed.run(windows, part, function, columns)
            with as_usage_error(path):
                replace(path, _parquet(own, columns), durable=False)
            rows += own
            computed = self.done.computed + len(part)
            self.done = Done(done + computed, len(tasks), computed, time.monotonic() - started)
        return rows


def _rows(path: Path) -> Rows | None:
    """Rows as they were kept; None where none are, or where a power cut has torn them."""
    try:
        rows: Rows = pq.read_table(path).to_pylist()
    except (FileNotFoundError, pa.ArrowException):
        return None
    return rows


def _parquet(rows: Rows, columns: Columns) -> memoryview:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items()))), sink)
    return memoryview(sink.getvalue())


def digest(value: object) -> str:
    """The same for equal values, also in another process; values are plain ones, arrays, records and functions."""
    return sha256(json.dumps(value, default=_plain, sort_keys=True).encode()).hexdigest()[:32]


def _plain(value: object) -> Any:  # noqa: ANN401, PLR0911 - what JSON takes, by kind
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
    if isinstance(value, BaseModel):
        return [type(value).__name__, value.model_dump(mode="json")]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if is_dataclass(value):
        return [type(value).__name__, {each.name: getattr(value, each.name) for each in fields(value)}]
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, pa.DataType | Enum):
        return str(value)
    if isinstance(value, FunctionType):
        return value.__qualname__
    raise TypeError(f"no digest of {type(value).__name__}")
