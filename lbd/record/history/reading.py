"""Reading history back as rounds of load reports, in the order of time.

Bundles are stored when they change, and whole once an hour: what is told of a round is what was stored of each last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lbd.errors import UsageError
from lbd.record.history.tables import VERSION, schema, version_of
from lbd.record.history.writer import WHOLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ORDER = ("broker_rounds", "bundle_rounds", "decisions")
"""Of one round: a decision is told when all that it saw is known."""

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
    """What is known of each broker and bundle so far."""

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
    found: dict[str, Any] = {key: _usage(row[name]) for key, name in _RESOURCES.items()}
    found |= {key: _number(row[name]) for key, name in _TOTALS.items()}
    found |= {"numTopics": row["topics"], "brokerVersionString": row["version"] or ""}
    if row["started_at"] is not None:
        found["startTimestamp"] = round(row["started_at"].timestamp() * 1000)
    return found


def _usage(percent: float | None) -> dict[str, float]:
    return {"usage": -1.0, "limit": -1.0} if percent is None else {"usage": percent, "limit": 100.0}


def rounds(root: Path, since: float, until: float) -> Iterator[tuple[float, dict[str, bytes]]]:
    """Each round with a new sample between two times (epoch seconds): when it was, and the brokers' load reports.

    Raises :class:`UsageError` where there is no history, or one of a newer version.
    """
    cluster = _Cluster()
    streams = [_grouped(root, table, since - WHOLE_SECONDS, until) for table in _ORDER]
    merged = merge(*streams, key=lambda found: (found[0], _ORDER.index(found[1])))
    for at, tables in groupby(merged, key=lambda found: found[0]):
        found = {table: rows for _, table, rows in tables}
        for table in _ORDER:
            cluster.take(table, found.get(table, []))
        if at >= since and "broker_rounds" in found and "decisions" in found:
            yield at, cluster.reports(found["decisions"][-1]["brokers"])


def _grouped(root: Path, table: str, since: float, until: float) -> Iterator[tuple[float, str, list[dict[str, Any]]]]:
    """The rows of a table, by round."""
    for day in sorted((root / f"v{VERSION}" / table).glob("day=*")):
        read = _day(day, table, since, until)
        times = read.column("t").to_pylist()
        begun = 0
        for at, same in groupby(times):
            size = sum(1 for _ in same)
            yield at.timestamp(), table, read.slice(begun, size).to_pylist()
            begun += size


def _day(day: Path, table: str, since: float, until: float) -> pa.Table:
    """A day's rows between two times, in the order of time."""
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
    version = version_of(pq.read_schema(path))
    if version is None or version > VERSION:
        raise UsageError(f"{path}: history of version {version or 'unknown'}, this lbd reads up to {VERSION}")
