"""A calibration without Spark: the same functions over the same files, days and windows, one after the other."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lbd.config import Settings
from lbd.learn.calibrate import Calibration, CalibrationRequest, calibrate
from lbd.learn.quality import FileRows
from lbd.learn.rounds import NEEDED, USED
from lbd.learn.window import from_bytes, milliseconds, names_from_bytes
from lbd.store.history_tables import VERSION, schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from lbd.learn.workers import Columns, OfDay, OfTask, Packing, Rows, Task


def calibrated(
    root: Path, candidates: int = 4, settings: Settings | None = None, reconnect_seconds: float | None = None
) -> Calibration:
    """What calibration makes of a history."""
    return calibrate(
        InProcess(root, reconnect_seconds),
        CalibrationRequest(str(root), settings or Settings(), candidates, 1, lambda _: None),
    )


class InProcess:
    """The workers of this process."""

    def __init__(self, root: Path, reconnect_seconds: float | None = None) -> None:
        self._reconnect_seconds = reconnect_seconds
        self._root = root / f"v{VERSION}"

    def files(self) -> list[FileRows]:
        """By pyarrow, with checksums."""
        return [
            _file(name, path) for name in NEEDED for path in sorted((self._root / name).glob("day=*/[!._]*.parquet"))
        ]

    def reconnect_seconds(self) -> float | None:
        """As given."""
        return self._reconnect_seconds

    def days(self, without: Collection[str], function: OfDay, columns: Columns) -> Rows:
        """In the order of days."""
        decisions, brokers = (self._parts(name, without, 86_400) for name in ("decisions", "broker_rounds"))
        days = (function(decisions(number), brokers(number)) for number in decisions.numbers | brokers.numbers)
        return _typed((row for rows in days for row in rows), columns)

    def packed(self, without: Collection[str], windows: Packing, hours: Packing) -> InProcessHistory:
        """In memory."""
        return InProcessHistory(
            self._packed(without, windows, ("decisions", "broker_rounds")),
            self._packed(without, hours, tuple(USED)),
            windows.seconds // hours.seconds,
        )

    def _packed(self, without: Collection[str], packing: Packing, tables: Sequence[str]) -> Rows:
        parts = [self._parts(name, without, packing.seconds) for name in tables]
        numbers = sorted(set().union(*(part.numbers for part in parts)))
        rows = ({"number": number, **packing.function(*(part(number) for part in parts))} for number in numbers)
        return _typed(rows, packing.columns)

    def _parts(self, name: str, without: Collection[str], seconds: int) -> Parts:
        files = [one.name for one in self.files() if one.table == name and one.name not in without]
        return Parts(ds.dataset(files, schema(name)).to_table(columns=list(USED[name])), seconds)


class Parts:
    """The rows of a table by spans of so many seconds."""

    def __init__(self, rows: pa.Table, seconds: int) -> None:
        self._rows, self._number = rows, milliseconds(rows) // (seconds * 1000)
        self.numbers = set(np.unique(self._number).tolist())

    def __call__(self, number: int) -> pa.Table:
        return self._rows.filter(pa.array(self._number == number))


class InProcessHistory:
    """Windows and hours in memory, so many hours a window."""

    def __init__(self, windows: Rows, hours: Rows, hours_a_window: int) -> None:
        self._windows, self._hours, self._hours_a_window = windows, hours, hours_a_window

    def windows(self, names: Sequence[str]) -> Rows:
        """As they are."""
        return [{name: row[name] for name in ("number", *names)} for row in self._windows]

    def hours(self, names: Sequence[str]) -> Rows:
        """As they are."""
        return [{name: row[name] for name in ("number", *names)} for row in self._hours]

    def bundles(self) -> tuple[str, ...]:
        """Of all hours."""
        return tuple(sorted({name for row in self._hours for name in names_from_bytes(row["bundles"])}))

    def run(self, windows: Collection[int], tasks: Sequence[Task], function: OfTask, columns: Columns) -> Rows:
        """One after the other."""
        made: Rows = []
        for task in tasks:
            own = (
                from_bytes(row["packed"])
                for row in self._windows
                if row["number"] in windows
                and row["number"] * self._hours_a_window < task.end
                and (row["number"] + 1) * self._hours_a_window > task.first
            )
            hours = (
                (row["number"], from_bytes(row["packed"]))
                for row in self._hours
                if task.first <= row["number"] < task.end and row["number"] // self._hours_a_window in windows
            )
            made += _typed(function(own, hours, task), columns)
        return made


def _typed(rows: Iterable[Mapping[str, object]], columns: Columns) -> Rows:
    """As they come back: with these columns and types, and no others."""
    typed = [dict(row) for row in rows]
    assert all(row.keys() == columns.keys() for row in typed)
    found: Rows = pa.Table.from_pylist(typed, schema=pa.schema(list(columns.items()))).to_pylist()
    return found


def _file(name: str, path: Path) -> FileRows:
    values: defaultdict[str, int] = defaultdict(int)
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError):
        return FileRows(name, str(path), None, 0, values)
    rows: Any = file.metadata.num_rows
    try:
        read = file.read()
        read = pa.table(
            {key: read[key].cast(schema(name).field(key).type) for key in NEEDED[name] if key in read.column_names}
        )
    except (pa.ArrowException, OSError):
        return FileRows(name, str(path), rows, 0, values)
    values |= {key: pc.count(read[key]).as_py() for key in read.column_names}
    return FileRows(name, str(path), rows, rows, values)
