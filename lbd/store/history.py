"""History on disk: ``v1/<table>/day=YYYY-MM-DD/<name>.parquet``, written by turns and read back as load reports.

Each round appends changed bundles, every new sample of the brokers, every decision and every move. A file is written
under a hidden name and renamed when it is complete, so that readers never see half of one. Brokers of the extensible
manager report only their largest bundles; such a round stores what they reported.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lbd.errors import UsageError
from lbd.files import FRESH, NO_FILE, YEAR_10000, make_directory, move, reading, remove, remove_directory, replacing
from lbd.model import RESOURCES, Rows
from lbd.store.history_tables import COLUMNS, COUNTS, RATES, TABLES, VERSION, TableRows, schema, table_version
from lbd.store.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lbd.model import BoolArray, FloatArray, IntArray, Snapshot
    from lbd.store.history_round import HistoryRound, HistorySettings


def known_rates(snapshot: Snapshot) -> Snapshot:
    """The round without bundles whose rates are unknown: stored as 0, they would be learned as idle."""
    rows = snapshot.rows
    if not snapshot.partial or rows.reported.all():
        return snapshot
    reported = np.flatnonzero(rows.reported)
    there, position = np.unique(rows.bundle[reported], return_inverse=True)
    counts = rows.count(rows.reported)
    start = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    rows = rows.taken(reported, start, position.astype(np.int32))
    return replace(snapshot, bundles=[snapshot.bundles[row] for row in there.tolist()], rows=rows)


# --- bundles that have changed enough to be stored again
# Most bundles hardly change from one minute to the next; stored whole, a week of 20 brokers with 2,000 bundles each
# minute is 20 million rows.

STEP = 0.05
"""Rates are stored again if one of them has changed by more than this fraction, and all of them once an hour. A replay
then differs by single bundles from one over every sample (docs/calibrate.md)."""

FLOORS = np.array([1.0, 1.0, 1024.0, 1024.0])
"""Changes below a message or a KiB per second are none, whatever fraction they are."""


@dataclass(frozen=True, eq=False)
class Stored:
    """The last stored values of each of ``bundles``.

    ``rates`` is float64 (N, 4), NaN if never stored; ``counts`` int64 (N, 3); ``owner`` int32 (N,) into ``brokers``, -1
    if nobody reported the bundle.
    """

    brokers: tuple[str, ...]
    bundles: list[str]
    rates: FloatArray
    counts: NDArray[np.int64]
    owner: IntArray

    @classmethod
    def nothing(cls, brokers: tuple[str, ...] = (), bundles: list[str] | None = None) -> Stored:
        """The state in which none of these bundles is stored yet."""
        bundles = bundles or []
        size = len(bundles)
        rates, counts = np.full((size, 4), np.nan), np.full((size, 3), -1, dtype=np.int64)
        return cls(brokers, bundles, rates, counts, np.full(size, -1, dtype=np.int32))

    def forgotten(self) -> Stored:
        """The state in which all of them are to be stored again, and those that nobody reports any more are gone."""
        return replace(Stored.nothing(self.brokers, self.bundles), owner=self.owner)


@dataclass(frozen=True, eq=False)
class ChangedRows:
    """``rows`` are positions in a snapshot's rows, int64 (k,); ``gone`` are bundles that no broker reports any more."""

    rows: NDArray[np.int64]
    gone: tuple[str, ...]


def changes(before: Stored, snapshot: Snapshot, fresh: BoolArray, step: float) -> tuple[Stored, ChangedRows]:
    """The state after storing a round, and the rows to store. ``fresh`` is bool (B,): other rows are not new.

    A bundle is stored when its owner or one of its counts differs from the stored one, or one of its rates has changed
    by more than the fraction ``step``.
    """
    stored, gone = _aligned(before, snapshot)
    table, owner = snapshot.rows, snapshot.rows.owner()
    own = np.flatnonzero(fresh[owner])
    bundle, rates = table.bundle[own], table.rates[own]
    limit = np.maximum(np.abs(stored.rates[bundle]) * step, FLOORS if step else 0.0)
    with np.errstate(invalid="ignore"):
        moved = ~(np.abs(rates - stored.rates[bundle]) <= limit)  # written so that NaN is a change
    counted = (table.counts[own] != stored.counts[bundle]).any(axis=1)
    elsewhere = owner[own] != stored.owner[bundle]
    rows = own[(moved & ~_both_unknown(rates, stored.rates[bundle])).any(axis=1) | counted | elsewhere]
    return _stored(stored, table, owner, rows), ChangedRows(rows, gone)


def _both_unknown(new: FloatArray, old: FloatArray) -> BoolArray:
    """NaN again is no change; a bundle that was never stored is recognized by its owner."""
    unknown: BoolArray = np.isnan(new) & np.isnan(old)
    return unknown


def _stored(stored: Stored, table: Rows, owner: IntArray, rows: NDArray[np.int64]) -> Stored:
    rates, counts, owned = stored.rates.copy(), stored.counts.copy(), stored.owner.copy()
    bundle = table.bundle[rows]
    rates[bundle], counts[bundle], owned[bundle] = table.rates[rows], table.counts[rows], owner[rows]
    return replace(stored, rates=rates, counts=counts, owner=owned)


def _aligned(before: Stored, snapshot: Snapshot) -> tuple[Stored, tuple[str, ...]]:
    """The stored values in the order of this snapshot's bundles and brokers, and the bundles without report."""
    old = snapshot.positions_in(before.bundles)
    stayed = old >= 0
    aligned = Stored.nothing(snapshot.brokers.ids, snapshot.bundles)
    aligned.rates[stayed], aligned.counts[stayed] = before.rates[old[stayed]], before.counts[old[stayed]]
    aligned.owner[stayed] = _owners(before, aligned.brokers, before.owner[old[stayed]])
    unreported = before.owner >= 0
    unreported[old[stayed]] = False
    return aligned, tuple(before.bundles[row] for row in np.flatnonzero(unreported).tolist())


def _owners(before: Stored, brokers: tuple[str, ...], owner: IntArray) -> IntArray:
    """Owners by their position among other brokers; -1 for brokers that left."""
    if before.brokers == brokers:
        return owner
    position = {broker: at for at, broker in enumerate(brokers)}
    moved = np.array([*(position.get(broker, -1) for broker in before.brokers), -1], dtype=np.int32)
    owners: IntArray = moved[owner]
    return owners


# --- files

TORN = "torn"
GROUP_ROWS = 1 << 17
"""Rows of a row group of a packed day: a reader holds one group at a time."""

_REPLACES = b"lbd.replaces"

_JUNK = (pa.ArrowException, ValueError, KeyError)
"""Errors that reading damaged bytes raises, beside OSError."""


def utc_day(seconds: float) -> str:
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

    def put(self, table: str, started_at: float, batches: Sequence[pa.RecordBatch]) -> Path:
        """Write one file into the day of ``started_at`` (epoch seconds). Raises OSError, and leaves nothing then."""
        day = self.table(table) / f"day={utc_day(started_at)}"
        for folder in (self.root, self.root / f"v{VERSION}", self.table(table), day):
            make_directory(folder)
        name = f"part-{round(started_at * 1000):013d}"
        path = next(path for path in _names(day, name) if not path.exists())
        _written(path, pa.Table.from_batches(batches, schema(table)).schema, batches)
        return path

    def set_aside(self) -> int:
        """Move incomplete files of a killed process to ``torn/``, and remove parts that a packed day has replaced.

        Returns the number of files in ``torn/``. Raises OSError.
        """
        for path in self.root.glob(f"v*/*/day=*/.*{FRESH}"):
            self._tear(path)
        for table in TABLES:
            for day in self.days(table):
                self._unlink_replaced(day)
        return len(list((self.root / TORN).glob("*")))

    def pack(self, before: str) -> None:
        """Make one file of each day before the day ``before``; files that cannot be read, or have a damaged page, are
        set aside.

        Raises OSError; the files stay as they were then.
        """
        for table in TABLES:
            for day in self.days(table):
                if day.name.removeprefix("day=") < before:
                    self._pack(table, day)

    def _pack(self, table: str, day: Path) -> None:
        parts = sorted(path for path in day.glob("*.parquet") if self._readable(path))
        if len(parts) < 2:
            return
        metadata = {_REPLACES: json.dumps([path.name for path in parts]).encode()}
        kind = schema(table).with_metadata({**(schema(table).metadata or {}), **metadata})
        taken = {path.name for path in parts}.union(*map(_replaced, parts))
        path = next(path for path in _names(day, "day") if path.name not in taken)
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
            for name in _replaced(path) if path.exists() else ():  # another packed day may have replaced it
                remove(day / Path(name).name)

    def _readable(self, path: Path) -> bool:
        if _footer(path) is None:
            self._tear(path)
            return False
        return True

    def _tear(self, path: Path) -> None:
        make_directory(self.root / TORN)
        move(path, self.root / TORN / f"{path.parent.parent.name}-{path.name.lstrip('.')}")

    def prune(self, now: float, retention_days: int, max_bytes: int) -> None:
        """Remove days that are too old, then the oldest until the rest fits. Raises OSError."""
        oldest = (datetime.fromtimestamp(now, UTC) - timedelta(days=retention_days)).strftime("%Y-%m-%d")
        days = sorted({day.name for table in TABLES for day in self.days(table)})
        sizes = {day: sum(path.stat().st_size for path in self._files(day)) for day in days}
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
        for index, path in enumerate(files):
            if sum(sizes[index:]) <= max_bytes:
                return
            remove(path)

    def _remove(self, day: str) -> None:
        for table in TABLES:
            folder = self.table(table) / day
            if folder.is_dir():
                for path in folder.iterdir():
                    remove(path)
                remove_directory(folder)

    def _files(self, day: str = "day=*") -> Iterator[Path]:
        for table in TABLES:
            yield from self.table(table).glob(f"{day}/*.parquet")


def _replaced(path: Path) -> list[str]:
    """The names of the files that a packed day replaces."""
    footer = _footer(path)
    with suppress(msgspec.MsgspecError, RecursionError):
        names: list[str] = msgspec.json.decode(
            ((footer and footer.metadata) or {}).get(_REPLACES, b"[]"), type=list[str]
        )
        return names
    return []


def _names(day: Path, name: str) -> Iterator[Path]:
    yield day / f"{name}.parquet"
    for number in range(1, 1_000_000):
        yield day / f"{name}-{number}.parquet"


def _groups(parts: Iterable[Path], kind: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of several files, in groups that fit in memory.

    Raises KeyError for a file without one of the columns, ArrowInvalid for values that the type of one cannot hold.
    """
    waiting: list[pa.RecordBatch] = []
    for path in parts:
        with reading(path) as raw, pq.ParquetFile(raw, page_checksum_verification=True) as file:
            for batch in file.iter_batches(GROUP_ROWS):
                columns = [batch[field.name].cast(field.type) for field in kind]
                waiting.append(pa.RecordBatch.from_arrays(columns, schema=kind))
                if sum(batch.num_rows for batch in waiting) >= GROUP_ROWS:
                    yield from _joined(waiting, kind)
                    waiting = []
    yield from _joined(waiting, kind)


def _footer(path: Path) -> pq.FileMetaData | None:
    """A file's footer; None of one that is not whole. Raises OSError where the disk is what fails."""
    try:
        with reading(path) as file:
            return pq.read_metadata(file)
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
    """Raise the error again if the disk failed: its errors have an errno, Arrow's for damaged pages have none."""
    if isinstance(error, OSError) and error.errno is not None and error.errno not in NO_FILE:
        raise error


def _joined(batches: list[pa.RecordBatch], kind: pa.Schema) -> list[pa.RecordBatch]:
    if not batches:
        return []
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches, kind).combine_chunks().to_batches()
    return joined


def _written(path: Path, kind: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """On disk, whole, under its name, when the call returns; or not at all. Raises OSError, and what ``batches`` raise.

    Without checksums nineteen of twenty bytes that a disk changes only make other numbers (measured).
    """
    with replacing(path) as file, pq.ParquetWriter(file, kind, compression="zstd", write_page_checksum=True) as writer:
        for batch in batches:
            writer.write_batch(batch)


# --- writing

FLUSH_SECONDS = 600.0
"""A file of each table is written so often: larger files are smaller in sum, and a kill loses no more."""

FLUSH_ROWS = 500_000
"""Rows that wait at most before they are written: some 50 MB."""

WHOLE_SECONDS = 3600.0
"""In its first round of each hour every bundle is stored, whether it changed or not: reading can begin there."""

MOST_ROWS = 3 * FLUSH_ROWS
"""Rows that wait at most while nothing can be written; further rounds are lost, and counted."""


@dataclass
class HistoryWriter:
    """Appends rounds to a folder. Not thread-safe. ``lost`` counts the rounds that could not be kept.

    A bundle's rates are stored again if one of them has changed by more than the fraction ``step``. 0: every sample is.
    """

    root: Path
    settings: HistorySettings
    step: float = STEP
    lost: int = 0
    torn: int = 0
    trouble: str = ""
    _waiting: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: {table: [] for table in TABLES})
    _stored: Stored = field(default_factory=Stored.nothing)
    _hour: float = np.nan
    _first: float = np.nan
    _last: float = np.nan

    def __post_init__(self) -> None:
        try:
            self.torn = Folder(self.root).set_aside()
        except OSError as error:
            self._fail(error)

    def begin_after(self, brokers: tuple[str, ...], bundles: list[str], owner: IntArray) -> None:
        """Go on after the reports of another process: of these bundles, those that are not in the next round are gone.

        ``owner`` is int32 (N,) into ``brokers``.
        """
        self._stored = replace(Stored.nothing(brokers, bundles), owner=owner)

    def add(self, round_: HistoryRound) -> None:
        """Add a round; it is on disk after at most ten minutes of rounds. Disk errors are not raised."""
        if not round_.is_news:
            return
        taken_at = round_.snapshot.taken_at
        if self._rows and (
            utc_day(taken_at) != utc_day(self._first) or not 0 <= taken_at - self._first < FLUSH_SECONDS
        ):
            self.flush()
        if self._rows >= MOST_ROWS:
            self.lost += 1
            return
        self._first = taken_at if not self._rows else self._first
        self._last = taken_at
        for rows in self._tables(round_):
            self._waiting[rows.table].append(rows.batch())
        if self._rows >= FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the waiting rows; pack days that are over into one file a table, and remove the oldest days."""
        if np.isnan(self._last):
            return
        folder = Folder(self.root)
        try:
            try:
                for table, batches in self._waiting.items():
                    if batches:
                        folder.put(table, self._first, batches)
                        batches.clear()
                folder.pack(utc_day(self._last))
            finally:  # old days make room on a full disk
                folder.prune(self._last, self.settings.retention_days, self.settings.max_bytes)
        except OSError as error:
            self._fail(error)
        else:
            self.trouble = ""
        pa.default_memory_pool().release_unused()  # Arrow leaves MB of free room in the C heap of its thread

    @property
    def _rows(self) -> int:
        return sum(batch.num_rows for batches in self._waiting.values() for batch in batches)

    def _fail(self, error: OSError) -> None:
        where = f"{self.root}: history cannot be written: {error.strerror or error}"
        self.trouble = f"{where}; {self._rows:,} rows wait, balancing goes on"

    def _tables(self, round_: HistoryRound) -> list[TableRows]:
        tables = [_decision(round_), _brokers(round_), self._bundles(round_), _moves(round_)]
        return [rows for rows in tables if len(rows.columns["t"])]

    def _bundles(self, round_: HistoryRound) -> TableRows:
        taken_at = round_.snapshot.taken_at
        if taken_at // WHOLE_SECONDS != self._hour:
            self._stored, self._hour = self._stored.forgotten(), taken_at // WHOLE_SECONDS
        snapshot = known_rates(round_.snapshot)
        self._stored, changed = changes(self._stored, snapshot, round_.fresh, self.step)
        return _changed(snapshot, changed)


def _milliseconds(seconds: float, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.full(count, round(seconds * 1000), dtype=np.int64)


def _changed(snapshot: Snapshot, changed: ChangedRows) -> TableRows:
    table, none = snapshot.rows, [None] * len(changed.gone)
    bundle = table.bundle[changed.rows].tolist()
    owner = table.owner()[changed.rows].tolist()
    rates, counts = table.rates[changed.rows].astype(np.float32), table.counts[changed.rows]
    values = {
        **{name: rates[:, column] for column, name in enumerate(RATES)},
        **{name: counts[:, column].clip(max=2**31 - 1) for column, name in enumerate(COUNTS)},
    }
    return TableRows(
        "bundle_rounds",
        {
            "t": _milliseconds(snapshot.taken_at, len(bundle) + len(none)),
            "bundle": [*(snapshot.bundles[row] for row in bundle), *changed.gone],
            "broker": [*(snapshot.brokers.ids[position] for position in owner), *none],
            **{name: [*column.tolist(), *none] for name, column in values.items()},
        },
    )


def _brokers(round_: HistoryRound) -> TableRows:
    """One row for each broker with a new sample."""
    brokers, fresh = round_.snapshot.brokers, round_.fresh
    own = np.flatnonzero(fresh)
    listed = round_.snapshot.rows.count(round_.snapshot.rows.listed)
    used = {name: round_.used[own, column] for column, name in enumerate(RESOURCES)}
    return TableRows(
        "broker_rounds",
        {
            "t": _milliseconds(round_.snapshot.taken_at, own.size),
            "broker": [brokers.ids[at] for at in own],
            **used,
            "score": round_.scores[own],
            "binding": [round_.binding[at] for at in own],
            **{name: brokers.rates[own, column] for column, name in enumerate(RATES)},
            "topics": brokers.topics[own],
            "bundles": listed[own],
            "started_at": [
                round(started * 1000) if np.isfinite(started) else None for started in brokers.started_at[own].tolist()
            ],
            "version": [brokers.versions[at] for at in own],
            "doubt": [round_.doubts[at] for at in own],
        },
    )


def _decision(round_: HistoryRound) -> TableRows:
    time = _milliseconds(round_.snapshot.taken_at, 1)
    values = {name: [value] for name, value in round_.decision.items()}
    return TableRows("decisions", {"t": time, "brokers": [list(round_.snapshot.brokers.ids)], **values})


def _moves(round_: HistoryRound) -> TableRows:
    names = [name for name in COLUMNS["moves"] if name != "t"]
    time = _milliseconds(round_.snapshot.taken_at, len(round_.moves))
    return TableRows("moves", {"t": time, **{name: [move[name] for move in round_.moves] for name in names}})


# --- reading, as rounds of load reports in the order of time
# Bundles are stored when they change, and all of them once an hour: a round has the last stored values of each.

_ORDER = ("broker_rounds", "bundle_rounds", "decisions")
"""The order within one round: the decision comes after everything that it was based on."""

_VERIFIED = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)

_RESOURCES = {
    "cpu": "cpu",
    "memory": "memory",
    "directMemory": "direct_memory",
    "bandwidthIn": "bandwidth_in",
    "bandwidthOut": "bandwidth_out",
}
_TOTALS = {
    "msgRateIn": "msg_rate_in",
    "msgRateOut": "msg_rate_out",
    "msgThroughputIn": "throughput_in",
    "msgThroughputOut": "throughput_out",
}
_COUNTS = {"topics": "topics", "producerCount": "producers", "consumerCount": "consumers"}


@dataclass
class _Cluster:
    """The last known values of each broker and bundle."""

    brokers: dict[str, dict[str, Any]] = field(default_factory=dict)
    stats: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    owner: dict[str, str] = field(default_factory=dict)

    def take(self, table: str, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if table == "broker_rounds":
                self.brokers[row["broker"]] = _broker(row)
            elif table == "bundle_rounds":
                self._place(row)

    def _place(self, row: dict[str, Any]) -> None:
        bundle, broker = row["bundle"], row["broker"]
        before = self.owner.pop(bundle, None)
        if before is not None:
            self.stats[before].pop(bundle, None)
        if broker is not None:
            self.owner[bundle] = broker
            numbers = {**_TOTALS, **_COUNTS}
            self.stats.setdefault(broker, {})[bundle] = {key: _number(row[name]) for key, name in numbers.items()}

    def reports(self, brokers: list[str]) -> dict[str, bytes]:
        """The load report of each broker, as JSON."""
        return {broker: msgspec.json.encode(self._report(broker)) for broker in brokers if broker in self.brokers}

    def _report(self, broker: str) -> dict[str, Any]:
        stats = self.stats.get(broker, {})
        return {**self.brokers[broker], "lastStats": stats, "bundles": list(stats)}


def _number(value: float | None) -> float | str:
    return "NaN" if value is None else value


def _broker(row: dict[str, Any]) -> dict[str, Any]:
    report: dict[str, Any] = {key: _usage(row[name]) for key, name in _RESOURCES.items()}
    report |= {key: _number(row[name]) for key, name in _TOTALS.items()}
    report |= {"numTopics": row["topics"], "brokerVersionString": row["version"] or ""}
    if row["started_at"] is not None:
        report["startTimestamp"] = round(row["started_at"].timestamp() * 1000)
    return report


def _usage(percent: float | None) -> dict[str, float]:
    return {"usage": -1.0, "limit": -1.0} if percent is None else {"usage": percent, "limit": 100.0}


def rounds(root: Path, since: float, until: float) -> Iterator[tuple[float, dict[str, bytes]]]:
    """Each round with a new sample between two times (epoch seconds): when it was, and the brokers' load reports.

    Raises :class:`UsageError` where there is no history, or one of a newer version.
    """
    cluster = _Cluster()
    streams = [_grouped(root, table, since - WHOLE_SECONDS, until) for table in _ORDER]
    merged = merge(*streams, key=lambda group: (group[0], _ORDER.index(group[1])))
    for time, tables in groupby(merged, key=lambda group: group[0]):
        rows_of = {table: rows for _, table, rows in tables}
        for table in _ORDER:
            cluster.take(table, rows_of.get(table, []))
        if time >= since and "broker_rounds" in rows_of and "decisions" in rows_of:
            yield time, cluster.reports(rows_of["decisions"][-1]["brokers"])


def _grouped(root: Path, table: str, since: float, until: float) -> Iterator[tuple[float, str, list[dict[str, Any]]]]:
    """The rows of a table, by round."""
    for day in sorted((root / f"v{VERSION}" / table).glob("day=*")):
        read = day_rows(day, table, since, until)
        times = read.column("t").to_pylist()
        start = 0
        for time, same in groupby(times):
            size = sum(1 for _ in same)
            yield time.timestamp(), table, read.slice(start, size).to_pylist()
            start += size


def day_rows(day: Path, table: str, since: float, until: float = YEAR_10000 - 1) -> pa.Table:
    """A day's rows between two times (epoch seconds), in the order of time; ``day`` is a folder of the table.

    Raises :class:`UsageError` for files that cannot be read, or are of a newer version.
    """
    files = sorted(day.glob("*.parquet"))
    try:
        for path in files:
            _known(path)
        limits = _when(since), _when(until)
        within = (pc.field("t") >= limits[0]) & (pc.field("t") <= limits[1])
        read = ds.dataset(list(map(str, files)), schema(table), format=_VERIFIED).to_table(filter=within)
    except (OSError, pa.ArrowInvalid) as error:
        raise UsageError(f"{day}: cannot be read: {error}") from error
    return read.sort_by("t")


def _when(seconds: float) -> pa.Scalar:
    return pa.scalar(datetime.fromtimestamp(max(seconds, 0.0), UTC), pa.timestamp("ms", tz="UTC"))


def _known(path: Path) -> None:
    with reading(path) as file:
        version = table_version(pq.read_schema(file))
    if version is None or version > VERSION:
        raise UsageError(f"{path}: history of version {version or 'unknown'}, this lbd reads up to {VERSION}")


# --- reading, as scores over time: a few rows at a time and in one thread, for a daemon that turns meanwhile

BATCH_ROWS = 2048
"""Rows read at once. A decision names every broker: this number of them takes 10 MB with 100 brokers."""


def scores(root: Path, since: float, until: float) -> Iterator[Scores]:
    """The scores of each day between two times (epoch seconds): in each stored round those of the brokers that had a
    report, each by its last sample of that day or the one before.

    Raises :class:`UsageError` as :func:`rounds` does. Nothing there is no days.
    """
    newest: dict[str, float] = {}
    for day in Folder(root).days("decisions"):
        if utc_day(since) <= day.name.removeprefix("day=") <= utc_day(until):
            day_scores, newest = _scores(Folder(root), day.name, newest)
            within = (day_scores.at >= since) & (day_scores.at <= until)
            yield replace(day_scores, at=day_scores.at[within], points=day_scores.points[within])


@dataclass
class _Cells:
    """Cells of a table of times and brokers: ``at`` when, ``column`` which broker of ``brokers``, and values."""

    brokers: dict[str, int]
    at: list[FloatArray] = field(default_factory=list)
    column: list[IntArray] = field(default_factory=list)
    values: list[FloatArray] = field(default_factory=list)

    def add(self, at: FloatArray, names: pa.Array, values: FloatArray) -> None:
        coded = names.dictionary_encode()
        columns = [self.brokers.setdefault(name, len(self.brokers)) for name in coded.dictionary.to_pylist()]
        self.at.append(at)
        self.column.append(np.array(columns, dtype=np.int32)[coded.indices.to_numpy()])
        self.values.append(values)

    def table(self) -> tuple[FloatArray, FloatArray]:
        """The times in their order (T,), and the values (T, B); NaN where a broker has none."""
        times, row = np.unique(np.concatenate([np.zeros(0), *self.at]), return_inverse=True)
        table = np.full((times.size, len(self.brokers)), np.nan)
        if self.at:
            table[row, np.concatenate(self.column)] = np.concatenate(self.values)
        return times, table


def _scores(folder: Folder, day: str, before: Mapping[str, float]) -> tuple[Scores, dict[str, float]]:
    """A day's scores, and the last score of each broker; ``before`` has those of the day before."""
    brokers = {broker: index for index, broker in enumerate(before)}
    reported, sampled = _Cells(brokers), _Cells(brokers)
    for batch in _batches(folder.table("decisions") / day, ["t", "brokers"]):
        names, index = batch["brokers"], pc.list_parent_indices(batch["brokers"]).to_numpy()
        reported.add(_seconds(batch)[index], pc.list_flatten(names), np.ones(index.size))
    for batch in _batches(folder.table("broker_rounds") / day, ["t", "broker", "score"]):
        score = batch["score"].to_numpy(zero_copy_only=False)
        sampled.add(_seconds(batch), batch["broker"], np.where(np.isnan(score), np.inf, score))
    times, there = reported.table()
    sampled_at, points = sampled.table()
    points = np.vstack([[before.get(broker, np.nan) for broker in brokers], points])
    last = np.where(np.isnan(points), 0, np.arange(len(points))[:, None])
    points = np.take_along_axis(points, np.maximum.accumulate(last, axis=0), axis=0)
    round_points = np.where(np.isnan(there), np.nan, points[np.searchsorted(sampled_at, times, side="right")])
    round_points[np.isinf(round_points)] = np.nan  # a sample without a score
    return Scores(times, tuple(brokers), round_points), dict(zip(brokers, points[-1].tolist(), strict=True))


def _batches(day: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a day, as they stand in its files. Raises :class:`UsageError`."""
    for path in sorted(day.glob("*.parquet")):
        try:
            _known(path)
            with reading(path) as raw, pq.ParquetFile(raw, page_checksum_verification=True) as file:
                yield from file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)
        except (OSError, pa.ArrowInvalid) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from error


def _seconds(batch: pa.RecordBatch) -> FloatArray:
    """The time of each row, epoch seconds."""
    times: FloatArray = batch["t"].cast(pa.int64()).to_numpy() / 1000.0
    return times
