"""Rows of history, as Arrow tables of one stretch of time, into a window. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lbd.learn.window import Window
from lbd.model import RESOURCES
from lbd.record.history.tables import RATES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbd.model import BoolArray, FloatArray, IntArray

    Positions = NDArray[np.signedinteger[Any]]


def pack(brokers: pa.Table, bundles: pa.Table) -> Window:
    """A window out of its rows.

    ``brokers`` has a row for each broker with a report in each round, whose numbers are null where it had no new
    sample; ``bundles`` those of the table ``bundle_rounds``. Rows may come in any order.
    """
    at, round_of = np.unique(_milliseconds(brokers), return_inverse=True)
    names, broker_of = _indexed(brokers["broker"])
    fresh = _grid(brokers["topics"].is_valid(), round_of, broker_of, at.size, len(names), fill=False)
    used = np.stack([_numbers(brokers, name, round_of, broker_of, at.size, len(names)) for name in RESOURCES], axis=2)
    totals = np.stack([_numbers(brokers, name, round_of, broker_of, at.size, len(names)) for name in RATES], axis=2)
    started = _numbers(brokers, "started_at", round_of, broker_of, at.size, len(names)) / 1000
    listed = np.zeros(fresh.shape, dtype=np.bool_)
    listed[round_of, broker_of] = True
    last = _last_fresh(fresh)
    known = last >= 0
    column = np.arange(len(names))[None, :]
    doubted = _grid(brokers["doubt"].is_valid(), round_of, broker_of, at.size, len(names), fill=False)
    bundle_names, changes = _changes(bundles, at, names)
    return Window(
        brokers=names,
        bundles=bundle_names,
        at=at / 1000.0,
        used=np.where(known[:, :, None], used[last, column], np.nan),
        totals=np.where(known[:, :, None], totals[last, column], np.nan),
        present=listed & known,
        fresh=fresh,
        doubted=doubted[last, column] & known,
        started_at=np.where(known, started[last, column], np.nan),
        **changes,
    )


def _milliseconds(table: pa.Table) -> NDArray[np.int64]:
    found: NDArray[np.int64] = table["t"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
    return found


def _indexed(column: pa.ChunkedArray) -> tuple[tuple[str, ...], IntArray]:
    """The distinct values, sorted, and the position of each row's among them; -1 for null."""
    names = tuple(sorted(name for name in pc.unique(column).to_pylist() if name is not None))
    return names, _positions(column, names)


def _positions(column: pa.ChunkedArray, names: tuple[str, ...]) -> IntArray:
    found = pc.index_in(column, pa.array(names, pa.string()))
    positions: IntArray = pc.fill_null(found, -1).to_numpy().astype(np.int32)
    return positions


def _grid(
    values: pa.ChunkedArray, rounds: Positions, brokers: Positions, height: int, width: int, *, fill: bool
) -> BoolArray:
    found = np.full((height, width), fill, dtype=np.bool_)
    found[rounds, brokers] = values.to_numpy()
    return found


def _numbers(table: pa.Table, name: str, rounds: Positions, brokers: Positions, height: int, width: int) -> FloatArray:
    found = np.full((height, width), np.nan)
    column = table[name]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    found[rounds, brokers] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return found


def _last_fresh(fresh: BoolArray) -> NDArray[np.int64]:
    """For each round and broker the last round with a new sample, -1 before the first: int64 (T, B)."""
    rounds = np.where(fresh, np.arange(len(fresh))[:, None], -1)
    found: NDArray[np.int64] = np.maximum.accumulate(rounds, axis=0)
    return found


def _changes(
    table: pa.Table, at: NDArray[np.int64], brokers: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of all bundles, and what changed of them, by round."""
    names, bundle = _indexed(table["bundle"])
    seen = _milliseconds(table)
    rounds = np.searchsorted(at, seen).astype(np.int32)
    inside = rounds < at.size
    owner = _positions(table["broker"], brokers)
    order = np.flatnonzero(inside)[np.lexsort((owner[inside], bundle[inside], seen[inside]))]
    rates = np.stack([table[name].to_numpy(zero_copy_only=False) for name in RATES], axis=1).astype(np.float32)
    return names, {
        "change_round": rounds[order],
        "change_bundle": bundle[order],
        "change_owner": owner[order],
        "change_rates": np.nan_to_num(rates[order], posinf=0.0),
    }
