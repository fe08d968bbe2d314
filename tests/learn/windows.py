"""Builders of windows: rows of history as a reader finds them, packed without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from lbd.learn.window import pack
from lbd.model import RESOURCES
from lbd.store.history_tables import COLUMNS, RATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from lbd.learn.window import Window

SAMPLE = (*RESOURCES, *RATES, "topics", "started_at", "doubt")
BEGUN = datetime(2026, 1, 5, tzinfo=UTC)


def minute(number: float) -> datetime:
    """So many minutes after the beginning."""
    return BEGUN + timedelta(minutes=number)


def broker(at: float, name: str = "a", cpu: float | None = 50.0, **other: Any) -> dict[str, Any]:
    """A broker's report of a round; one with ``cpu`` None has no new sample."""
    if cpu is None:
        return {"t": minute(at), "broker": name}
    return {"t": minute(at), "broker": name, "cpu": cpu, "memory": 25.0, "topics": 1, "started_at": BEGUN, **other}


def bundle(
    at: float, name: str = "t/n/1", owner: str | None = "a", rate: float = 100.0, **other: Any
) -> dict[str, Any]:
    """A row of ``bundle_rounds``: the same rate in all four."""
    return {"t": minute(at), "bundle": name, "broker": owner, **dict.fromkeys(RATES, rate), **other}


def window(brokers: Sequence[Mapping[str, Any]], bundles: Sequence[Mapping[str, Any]] = ()) -> Window:
    """These rows, packed."""
    return pack(_table(brokers, "broker_rounds", ("t", "broker", *SAMPLE)), _table(bundles, "bundle_rounds", None))


def packed(root: Path) -> Window:
    """All of a history that fits into one window."""
    samples = {(row["t"], row["broker"]): row for row in read(root, "broker_rounds")}
    rounds = read(root, "decisions")
    reports = [{**samples.get((one["t"], name), {}), "t": one["t"], "broker": name} for one in rounds
               for name in one["brokers"]]  # fmt: skip
    return window(reports, list(read(root, "bundle_rounds")))


def read(root: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    found: list[dict[str, Any]] = ds.dataset(root / "v1" / table, format="parquet").to_table().to_pylist()
    return found


def _table(rows: Sequence[Mapping[str, Any]], table: str, columns: Iterable[str] | None) -> pa.Table:
    kinds = COLUMNS[table]
    schema = pa.schema([(name, kinds[name][0]) for name in columns or kinds])
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)
