"""The four tables of history, as Parquet by day: columns, types and units. The docs are generated from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lbd.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


if TYPE_CHECKING:
    Column = Sequence[object] | NDArray[np.generic]

VERSION = 1
"""Version of the columns, in each file's metadata and in the folder's name; a reader refuses a newer one."""

RATES = ("msg_rate_in", "msg_rate_out", "throughput_in", "throughput_out")
"""Columns of what a broker or bundle carries, in the order of every rates array."""

COUNTS = ("topics", "producers", "consumers")
"""Columns of what a bundle holds, in the order of :attr:`~lbd.model.Rows.counts`."""

SENTENCES = frozenset({"sentence", "reason", "detail"})
"""Columns of free text, in which a broker's answer may be quoted."""

_FLOAT, _RATE, _TEXT = pa.float64(), pa.float32(), pa.string()
_WHEN = pa.timestamp("ms", tz="UTC")

COLUMNS: dict[str, dict[str, tuple[pa.DataType, str]]] = {
    "broker_rounds": {
        "t": (_WHEN, "when the round was taken"),
        "broker": (_TEXT, "host:port, as Pulsar names it"),
        "cpu": (_FLOAT, "percent of the limit; null: not known"),
        "memory": (_FLOAT, "percent of the JVM's heap"),
        "direct_memory": (_FLOAT, "percent of the limit"),
        "bandwidth_in": (_FLOAT, "percent of the limit; null: the NIC's speed is not known"),
        "bandwidth_out": (_FLOAT, "percent of the limit"),
        "score": (_FLOAT, "points, by the weights in force"),
        "binding": (_TEXT, "the resource behind the score"),
        "msg_rate_in": (_FLOAT, "messages/s"),
        "msg_rate_out": (_FLOAT, "messages/s"),
        "throughput_in": (_FLOAT, "bytes/s"),
        "throughput_out": (_FLOAT, "bytes/s"),
        "topics": (pa.int64(), "topics served"),
        "bundles": (pa.int32(), "bundles listed"),
        "started_at": (_WHEN, "when the broker started; null before Pulsar 3.0"),
        "version": (_TEXT, "of the broker"),
        "doubt": (_TEXT, "why the sample was not trusted; null: it was"),
    },
    "bundle_rounds": {
        "t": (_WHEN, "when the round was taken"),
        "bundle": (_TEXT, "tenant/namespace/range"),
        "broker": (_TEXT, "who reports it; null: nobody does any more"),
        "msg_rate_in": (_RATE, "messages/s"),
        "msg_rate_out": (_RATE, "messages/s"),
        "throughput_in": (_RATE, "bytes/s"),
        "throughput_out": (_RATE, "bytes/s"),
        "topics": (pa.int32(), "topics in it"),
        "producers": (pa.int32(), "connected producers"),
        "consumers": (pa.int32(), "connected consumers"),
    },
    "decisions": {
        "t": (_WHEN, "when the round was taken"),
        "turn": (pa.int64(), "number of the turn, as lbd explain knows it; 0: imported"),
        "brokers": (pa.list_(_TEXT), "those with a report"),
        "strategy": (_TEXT, "that was asked"),
        "settings": (_TEXT, "of the strategy, as JSON"),
        "all_settings": (_TEXT, "all that decide, as JSON like lbd.yaml; null: imported, or before there was this"),
        "sentence": (_TEXT, "what the turn said"),
        "verdict": (_TEXT, "balanced, partial, waiting, moving, blocked, held, not-fixable or unknown"),
        "hold": (_TEXT, "why nothing might fire; null: it might"),
        "acts": (pa.bool_(), "false: moves were only shown"),
        "planned": (pa.int32(), "unloads planned"),
        "skipped": (_TEXT, "bundles that stayed, by reason, as JSON"),
    },
    "moves": {
        "t": (_WHEN, "when the turn that tells of it was taken"),
        "turn": (pa.int64(), "number of that turn"),
        "bundle": (_TEXT, "tenant/namespace/range"),
        "source": (_TEXT, "who owned it"),
        "destination": (_TEXT, "where it was to go"),
        "owner": (_TEXT, "who owned it in the end; null: nobody, or not known"),
        "result": (_TEXT, "landed, landed-elsewhere, unowned, gone, failed or unknown"),
        "attempts": (pa.int32(), "how often it was asked for"),
        "seconds": (_FLOAT, "from the request to the proof"),
        "msg_rate": (_FLOAT, "messages/s in + out, as planned"),
        "throughput": (_FLOAT, "bytes/s in + out, as planned"),
        "reason": (_TEXT, "why it was moved"),
        "detail": (_TEXT, "what is to be said of the result"),
        "amended": (pa.bool_(), "true: corrects an earlier row of the move; null: before there was this"),
        "served": (_TEXT, "yes, no or unknown: whether clients are back, in a row of its own; null: not known yet"),
        "reconnect_seconds": (_FLOAT, "from the request until clients were back; null: not known"),
        "topics_before": (pa.int32(), "topics of the bundle by the source's report; null: it had none"),
        "producers_before": (pa.int32(), "producers, likewise"),
        "consumers_before": (pa.int32(), "consumers, likewise"),
        "topics_after": (pa.int32(), "topics by the destination's report when `served` was decided"),
        "producers_after": (pa.int32(), "producers, likewise"),
        "consumers_after": (pa.int32(), "consumers, likewise"),
    },
}
"""Columns of each table, by name: type and meaning."""

TABLES = tuple(COLUMNS)


def schema(table: str) -> pa.Schema:
    """The Arrow schema of a table; its metadata carries the version."""
    fields = [pa.field(name, kind) for name, (kind, _) in COLUMNS[table].items()]
    return pa.schema(fields, metadata={"lbd.history": json.dumps({"version": VERSION, "table": table})})


def table_version(arrow_schema: pa.Schema) -> int | None:
    """The version that a file names; None for a file that is not lbd's."""
    try:
        metadata = json.loads((arrow_schema.metadata or {})[b"lbd.history"])
        return int(metadata["version"])
    except (KeyError, ValueError, TypeError):
        return None


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of one table: a sequence for each column, all of one length."""

    table: str
    columns: Mapping[str, Column]

    def batch(self) -> pa.RecordBatch:
        """The same in Arrow's form; NaN and infinity are null, for no sum survives them."""
        kinds = COLUMNS[self.table]
        columns = {name: _clean(name, self.columns[name]) for name in kinds}
        arrays = [pa.array(columns[name], kind, from_pandas=True) for name, (kind, _) in kinds.items()]
        return pa.RecordBatch.from_arrays(arrays, schema=schema(self.table))


def _clean(name: str, column: Column) -> Column:
    """No numbers that are none, and no secrets in sentences."""
    if name in SENTENCES:
        return [redacted(words) if isinstance(words, str) else words for words in column]
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        return np.where(np.isfinite(column), column, np.nan)
    return column
