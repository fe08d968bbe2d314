"""A window: a stretch of history as arrays, all that a replay needs of it. Pure.

What brokers report is small, and is there for all rounds of a history. What bundles carry is not: it comes hour by hour
(:func:`hourly`), so that no more of it is in memory at a time than all bundles change in an hour.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lbd.load.estimate import CPU
from lbd.model import BYTES_IN, BYTES_OUT, RESOURCES
from lbd.store.history_tables import RATES
from lbd.text import HOUR_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from lbd.model import BoolArray, FloatArray, IntArray


LONGEST_SILENCE_SECONDS = 180.0
"""Rounds further apart than three CPU samples have a gap between them that nothing is known about."""


@dataclass(frozen=True, eq=False)
class Window:
    """``T`` rounds of ``B`` brokers, and the ``K`` changes of their bundles' rates and owners meanwhile.

    ``at`` is float64 (T,), epoch seconds. ``used`` is float64 (T, B, 5), percent of the limit, NaN where none is known
    or the broker is away; ``totals`` float64 (T, B, 4), what it says that it carries, NaN where it does not.
    ``present``, ``fresh`` and ``doubted`` are bool (T, B): the broker has a report, a new sample in it, and the live
    turn did not trust it.
    ``started_at`` is float64 (T, B), epoch seconds, NaN if unreported. ``capacity`` is float64 (T, B), a broker's CPU
    as a fraction of what it usually has: 1 in history, less in an incident. Change ``k`` is seen in round
    ``change_round[k]`` (int32, ascending): bundle ``change_bundle[k]`` (int32) is owned by ``change_owner[k]`` (int32
    into the brokers, -1 for nobody) with ``change_rates[k]``, float32 (K, 4), and ``change_clients[k]`` producers and
    consumers (int32).
    """

    brokers: tuple[str, ...]
    bundles: tuple[str, ...]
    at: FloatArray
    used: FloatArray
    totals: FloatArray
    present: BoolArray
    fresh: BoolArray
    doubted: BoolArray
    started_at: FloatArray
    capacity: FloatArray
    change_round: IntArray
    change_bundle: IntArray
    change_owner: IntArray
    change_rates: FloatArray
    change_clients: IntArray

    def changes(self) -> list[slice]:
        """For each round its changes."""
        edges = np.searchsorted(self.change_round, np.arange(self.at.size + 1))
        return [slice(begin, end) for begin, end in pairwise(edges.tolist())]

    def from_round(self, first: int) -> Window:
        """The same without its first rounds: what changed in them is seen in the first that is left."""
        rounds = {name: getattr(self, name)[first:] for name in ("at", *OF_BROKERS)}
        return replace(self, **rounds, change_round=np.maximum(self.change_round - first, 0).astype(np.int32))


def joined(first: Window, second: Window) -> Window:
    """Two stretches as one; ``second`` is later. A bundle of the first that the second does not know is gone then."""
    brokers = tuple(sorted({*first.brokers, *second.brokers}))
    bundles = tuple(sorted({*first.bundles, *second.bundles}))
    old, new = renumbered(first, brokers, bundles, 0), renumbered(second, brokers, bundles, first.at.size)
    removed = _gone(np.flatnonzero(~np.isin(bundles, second.bundles)).astype(np.int32))
    removed["change_round"] += first.at.size
    _carried(old, new)
    values = {key: np.concatenate([old[key], removed.get(key, new[key][:0]), new[key]]) for key in new}
    return Window(brokers, bundles, **values)


def _carried(old: dict[str, Any], new: dict[str, Any]) -> None:
    """A broker is away before its first sample of a stretch; where that comes soon, the last one before it holds."""
    if not (old["at"].size and new["at"].size):
        return
    for broker in np.flatnonzero(old["present"][-1] & new["present"].any(axis=0)).tolist():
        first = int(np.argmax(new["present"][:, broker]))
        if new["at"][first] - new["at"][0] <= LONGEST_SILENCE_SECONDS:
            for key in OF_BROKERS.keys() - {"fresh"}:
                new[key][:first, broker] = old[key][-1, broker]


def renumbered(window: Window, brokers: tuple[str, ...], bundles: tuple[str, ...], rounds: int) -> dict[str, Any]:
    """The columns, ``rounds`` later, numbered by these brokers and bundles, which may be more than the window has."""
    broker, bundle = (_positions(own, among) for own, among in ((window.brokers, brokers), (window.bundles, bundles)))
    columns: dict[str, Any] = {"at": window.at}
    for key, nothing in OF_BROKERS.items():
        own = getattr(window, key)
        columns[key] = np.full((own.shape[0], len(brokers), *own.shape[2:]), nothing, dtype=own.dtype)
        columns[key][:, broker] = own
    return columns | {
        "change_round": (window.change_round + rounds).astype(np.int32),
        "change_bundle": bundle[window.change_bundle],
        "change_owner": np.append(broker, np.int32(-1))[window.change_owner],
        "change_rates": window.change_rates,
        "change_clients": window.change_clients,
    }


OF_BROKERS = {
    "used": np.nan,
    "totals": np.nan,
    "present": False,
    "fresh": False,
    "doubted": False,
    "started_at": np.nan,
    "capacity": 1.0,
}
"""Columns with a row for each round and one for each broker, and what stands there of a broker that is away."""


def _positions(names: tuple[str, ...], among: tuple[str, ...]) -> IntArray:
    position = {name: at for at, name in enumerate(among)}
    return np.array([position[name] for name in names], dtype=np.int32)


# --- hour by hour

OF_BUNDLES = ("change_round", "change_bundle", "change_owner", "change_rates", "change_clients")


def without_bundles(window: Window, bundles: tuple[str, ...]) -> Window:
    """The same with none of its changes, numbered by these bundles."""
    return replace(window, bundles=bundles, **{name: getattr(window, name)[:0] for name in OF_BUNDLES})


def hourly(whole: Window, hours: Iterable[tuple[int, Window]]) -> Iterator[Window]:
    """A stretch as windows of an hour that follow one another, with the brokers and bundles of ``whole``.

    Of ``whole`` the rounds and brokers are taken, of the ``hours``, each with how many passed since 1970 and in the
    order of time, the changes of bundles. On the hour history has all bundles: those that are not in an hour after one
    that is missing are gone.
    """
    broker, bundle = _index(whole.brokers), _index(whole.bundles)
    expected: int | None = None
    for hour, own in hours:
        first, end = np.searchsorted(whole.at, (hour * HOUR_SECONDS, (hour + 1) * HOUR_SECONDS)).tolist()
        if first == end:
            continue
        times = whole.at[first:end]
        numbers = np.fromiter((bundle[name] for name in own.bundles), np.int32, len(own.bundles))
        owners = np.fromiter((*(broker[name] for name in own.brokers), -1), np.int32, len(own.brokers) + 1)
        rounds = np.searchsorted(times, own.at[own.change_round]).astype(np.int32)
        changes: dict[str, Any] = {
            "change_round": rounds,
            "change_bundle": numbers[own.change_bundle],
            "change_owner": owners[own.change_owner],
            "change_rates": own.change_rates,
            "change_clients": own.change_clients,
        }
        if expected not in {None, hour}:
            gone = np.setdiff1d(np.arange(len(whole.bundles), dtype=np.int32), numbers)
            changes = {name: np.concatenate([_gone(gone)[name], values]) for name, values in changes.items()}
        inside = changes["change_round"] < times.size
        rows = {name: getattr(whole, name)[first:end] for name in OF_BROKERS}
        columns: dict[str, Any] = rows | {name: values[inside] for name, values in changes.items()}
        yield replace(whole, at=times, **columns)
        expected = hour + 1


def _index(names: tuple[str, ...]) -> dict[str, int]:
    return {name: index for index, name in enumerate(names)}


def _gone(bundles: IntArray) -> dict[str, Any]:
    """Changes in the first round after which nobody has these bundles."""
    return {
        "change_round": np.zeros(bundles.size, dtype=np.int32),
        "change_bundle": bundles,
        "change_owner": np.full(bundles.size, -1, dtype=np.int32),
        "change_rates": np.zeros((bundles.size, 4), dtype=np.float32),
        "change_clients": np.zeros(bundles.size, dtype=np.int32),
    }


def as_one(stretches: Iterable[Window]) -> Window:
    """Windows with the same brokers and bundles that follow one another, as one."""
    parts = list(stretches)
    begins = np.cumsum([0, *(part.at.size for part in parts)])
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in ("at", *OF_BROKERS, *OF_BUNDLES)
    }
    rounds = [part.change_round + begin for part, begin in zip(parts, begins[:-1].tolist(), strict=True)]
    columns["change_round"] = np.concatenate(rounds).astype(np.int32)
    return replace(parts[0], **columns)


def reported_traffic(window: Window) -> tuple[FloatArray, FloatArray]:
    """Bytes/s that the brokers carry, in + out, and those of all bundles with an owner: float64 (T,) each."""
    totals = np.where(window.present, window.totals[:, :, BYTES_IN] + window.totals[:, :, BYTES_OUT], np.nan)
    order, steps = _steps(window)
    return np.nansum(totals, axis=1), np.cumsum(np.bincount(window.change_round[order], steps, window.at.size))


def bundle_traffic(hour: Window) -> FloatArray:
    """Bytes/s that each bundle carried in an hour, in + out, added up over its rounds: float64 (N,)."""
    order, steps = _steps(hour)
    rounds = hour.at.size - hour.change_round[order]
    traffic: FloatArray = np.bincount(hour.change_bundle[order], steps * rounds, len(hour.bundles)).astype(np.float64)
    return traffic


def _steps(window: Window) -> tuple[NDArray[np.intp], FloatArray]:
    """The changes in the order of bundles, (K,), and the rise of bytes/s, in + out, that each is, float64 (K,)."""
    rates = window.change_rates.astype(np.float64)
    carried = np.where(window.change_owner >= 0, rates[:, BYTES_IN] + rates[:, BYTES_OUT], 0.0)
    order = np.argsort(window.change_bundle, kind="stable")  # of each bundle the changes stay in the order of time
    same = np.diff(window.change_bundle[order], prepend=-1) == 0
    return order, carried[order] - np.where(same, np.roll(carried[order], 1), 0.0)


_NAMES = ("brokers", "bundles")


def to_bytes(window: Window) -> bytes:
    """The window packed; an hour of 65,000 bundles, where a third changes each minute, takes some twenty megabytes."""
    values: dict[str, Any] = {field.name: getattr(window, field.name) for field in fields(Window)}
    values |= {name: np.frombuffer(names_to_bytes(values[name]), dtype=np.uint8) for name in _NAMES}
    buffer = BytesIO()
    np.savez_compressed(buffer, **values)
    return buffer.getvalue()


def from_bytes(packed: bytes) -> Window:
    """The window that :func:`to_bytes` packed."""
    with np.load(BytesIO(packed), allow_pickle=False) as arrays:
        values: dict[str, Any] = {name: arrays[name] for name in arrays.files}
    return Window(**{**values, **{name: names_from_bytes(values[name].tobytes()) for name in _NAMES}})


def names_to_bytes(names: Iterable[str]) -> bytes:
    """The names packed; none has a line end."""
    return "\n".join(names).encode()


def names_from_bytes(packed: bytes) -> tuple[str, ...]:
    """The names that :func:`names_to_bytes` packed."""
    return tuple(packed.decode().split("\n")) if packed else ()


# --- from rows of history, as Arrow tables, to a window

if TYPE_CHECKING:
    Positions = NDArray[np.signedinteger[Any]]


def pack(brokers: pa.Table, bundles: pa.Table) -> Window:
    """A window out of its rows.

    ``brokers`` has a row for each broker with a report in each round, whose numbers are null where it had no new
    sample; ``bundles`` those of the table ``bundle_rounds``. Rows may come in any order.
    """
    times, round_of = np.unique(milliseconds(brokers), return_inverse=True)
    names, broker_of = _indexed(brokers["broker"])
    fresh = _grid(brokers["topics"].is_valid(), round_of, broker_of, times.size, len(names), fill=False)
    used = np.stack([_numbers(brokers, key, round_of, broker_of, times.size, len(names)) for key in RESOURCES], axis=2)
    totals = np.stack([_numbers(brokers, key, round_of, broker_of, times.size, len(names)) for key in RATES], axis=2)
    started = _numbers(brokers, "started_at", round_of, broker_of, times.size, len(names)) / 1000
    listed = np.zeros(fresh.shape, dtype=np.bool_)
    listed[round_of, broker_of] = True
    last = _last_fresh(fresh)
    sampled = last >= 0
    column = np.arange(len(names))[None, :]
    doubted = _grid(brokers["doubt"].is_valid(), round_of, broker_of, times.size, len(names), fill=False)
    bundle_names, changes = _changes(bundles, times, names)
    return Window(
        brokers=names,
        bundles=bundle_names,
        at=times / 1000.0,
        used=np.where(sampled[:, :, None], used[last, column], np.nan),
        totals=np.where(sampled[:, :, None], totals[last, column], np.nan),
        present=listed & sampled,
        fresh=fresh,
        doubted=doubted[last, column] & sampled,
        started_at=np.where(sampled, started[last, column], np.nan),
        capacity=np.ones(fresh.shape),
        **changes,
    )


def milliseconds(table: pa.Table) -> NDArray[np.int64]:
    """The time of each row, int64 (R,), milliseconds since 1970."""
    since: NDArray[np.int64] = table["t"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
    return since


def _indexed(column: pa.ChunkedArray) -> tuple[tuple[str, ...], IntArray]:
    """The distinct values, sorted, and the position of each row's among them; -1 for null."""
    names = tuple(sorted(name for name in pc.unique(column).to_pylist() if name is not None))
    return names, _row_positions(column, names)


def _row_positions(column: pa.ChunkedArray, names: tuple[str, ...]) -> IntArray:
    indices = pc.index_in(column, pa.array(names, pa.string()))
    positions: IntArray = pc.fill_null(indices, -1).to_numpy().astype(np.int32)
    return positions


def _grid(
    values: pa.ChunkedArray, rounds: Positions, brokers: Positions, height: int, width: int, *, fill: bool
) -> BoolArray:
    grid = np.full((height, width), fill, dtype=np.bool_)
    grid[rounds, brokers] = values.to_numpy()
    return grid


def _numbers(table: pa.Table, name: str, rounds: Positions, brokers: Positions, height: int, width: int) -> FloatArray:
    grid = np.full((height, width), np.nan)
    column = table[name]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    grid[rounds, brokers] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return grid


def _last_fresh(fresh: BoolArray) -> NDArray[np.int64]:
    """For each round and broker the last round with a new sample, -1 before the first: int64 (T, B)."""
    rounds = np.where(fresh, np.arange(len(fresh))[:, None], -1)
    last: NDArray[np.int64] = np.maximum.accumulate(rounds, axis=0)
    return last


def _changes(
    table: pa.Table, round_times: NDArray[np.int64], brokers: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of all bundles, and the changes of their rates and owners by round."""
    names, bundle = _indexed(table["bundle"])
    times = milliseconds(table)
    rounds = np.searchsorted(round_times, times).astype(np.int32)
    inside = rounds < round_times.size
    owner = _row_positions(table["broker"], brokers)
    order = np.flatnonzero(inside)[np.lexsort((owner[inside], bundle[inside], times[inside]))]
    rates = np.stack([table[name].to_numpy(zero_copy_only=False) for name in RATES], axis=1).astype(np.float32)
    producers, consumers = (pc.fill_null(table[name], 0).to_numpy() for name in ("producers", "consumers"))
    return names, {
        "change_round": rounds[order],
        "change_bundle": bundle[order],
        "change_owner": owner[order],
        "change_rates": np.nan_to_num(rates[order], posinf=0.0),
        "change_clients": (producers + consumers)[order].astype(np.int32),
    }


# --- noise resampling, because the moves of a replay depend on single samples that come by chance
# Whether a threshold is hit eight times in a row, or seven, is noise if the gap is near it. Replays of the same samples
# all agree on it, whenever they start; so a choice by them alone is a choice by chance.

AROUND = 15
"""Samples on either side, half an hour in all: what lasts longer is no noise, and stays where it was."""


def dealt(window: Window, seed: int) -> Window:
    """The same, with what each broker's samples of CPU have beside the median of those around them at other times.

    Seed 0 is the window as it was recorded. A broker with few samples keeps them.
    """
    if seed == 0:
        return window
    random, used = np.random.default_rng(seed), window.used.copy()
    for broker in range(len(window.brokers)):
        own = np.flatnonzero(window.fresh[:, broker] & np.isfinite(used[:, broker, CPU]))
        shift = int(random.integers(1, max(own.size, 2)))
        if own.size > 2 * AROUND:
            level = _level(used[own, broker, CPU])
            drawn = np.clip(level + np.roll(used[own, broker, CPU] - level, shift), 0.0, 100.0)
            used[own[0] :, broker, CPU] = np.repeat(drawn, np.diff(own, append=len(used)))
    return replace(window, used=used)


def _level(samples: FloatArray) -> FloatArray:
    """The median of those around each, float64 (n,): a step up or down stays one."""
    padded = np.pad(samples, AROUND, mode="edge")
    medians: FloatArray = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * AROUND + 1), axis=1)
    return medians
