"""Rounds and samples of a stretch of history, none twice, and what was left out of them and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lbd.learn.quality import ReadCounts
from lbd.learn.window import LONGEST_SILENCE_SECONDS, milliseconds
from lbd.model import RESOURCES
from lbd.store.history_tables import COLUMNS, RATES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from lbd.model import BoolArray


SAMPLE = (*RESOURCES, *RATES, "topics", "started_at", "doubt")
"""The columns of a broker's sample that are used."""


@dataclass(frozen=True, eq=False)
class Rounds:
    """Rounds in the order of time, each once: ``times`` int64 (R,), milliseconds since 1970; ``row`` in the table.

    ``overtaken``, bool (R,), are those whose time came a second time after a clock was set back: turns that were
    recorded before and after have higher numbers. Where none follows soon, turns were only counted anew, as after
    ``turns/`` was removed. Imported rounds have no number.
    """

    times: NDArray[np.int64]
    row: NDArray[np.int64]
    overtaken: BoolArray


def rounds(decisions: pa.Table) -> Rounds:
    """The rounds of a day; of a round that is recorded twice the one with the later turn."""
    times, turn = milliseconds(decisions), pc.fill_null(decisions["turn"], 0).to_numpy().astype(np.int64)
    order = np.lexsort((turn, times))
    last = np.flatnonzero(np.diff(times[order], append=np.iinfo(np.int64).max))
    row = order[last]
    return Rounds(times[row], row, _overtaken(times[row], turn[row]))


def _overtaken(times: NDArray[np.int64], turn: NDArray[np.int64]) -> BoolArray:
    if not times.size:
        return np.zeros(0, dtype=np.bool_)
    before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(turn)[:-1]])
    end = np.searchsorted(times, times + round(LONGEST_SILENCE_SECONDS * 1000), side="right")
    edges = np.stack([np.arange(times.size), end], axis=1).ravel()
    soon = np.maximum.reduceat(np.append(turn, 0), edges)[::2]
    passed: BoolArray = (turn > 0) & (turn < before) & (before < soon)
    return passed


def turn_gaps(decisions: pa.Table) -> list[int]:
    """The lowest and the highest turn of a day; then of each gap the turns before and after it, one after the other.

    In a gap later turns are missing, and at least half of the time that they take has passed: where turns were counted
    anew, or another lbd went on, no time has.
    """
    own = rounds(decisions)
    turn = pc.fill_null(decisions["turn"], 0).to_numpy().astype(np.int64)[own.row]
    times, turn = own.times[turn > 0], turn[turn > 0]
    if not turn.size:
        return []
    missing, passed = np.diff(turn), np.diff(times)
    of_turn = passed[missing > 0] / missing[missing > 0]
    gap = (missing > 1) & (passed >= missing * np.median(of_turn) / 2) if of_turn.size else np.zeros(0, dtype=np.bool_)
    gaps: list[int] = np.stack([turn[:-1][gap], turn[1:][gap]], axis=1).ravel().tolist()
    return [int(turn.min()), int(turn.max()), *gaps]


def days_of_wrong_clock(gaps: Mapping[int, Sequence[int]]) -> set[int]:
    """The days that a clock showed in the middle of another day, by the :func:`turn_gaps` of each.

    In a gap of that day all turns of this one were made: the clock was set to this day, and back.
    """
    days = {day: np.array(own, np.int64).reshape(-1, 2) for day, own in gaps.items() if own}
    return {
        day
        for day, ((lowest, highest), *_) in days.items()
        if any(((own[1:, 0] < lowest) & (highest < own[1:, 1])).any() for own in days.values())
    }


@dataclass(frozen=True, eq=False)
class _Samples:
    """Faults of rows of samples, bool (R,) each: no number at all, one below zero, NaN or infinity."""

    missing: BoolArray
    negative: BoolArray
    not_finite: BoolArray

    @property
    def valid(self) -> BoolArray:
        """Those with a number, and with none that is below zero or not finite."""
        valid: BoolArray = ~self.missing & ~self.negative & ~self.not_finite
        return valid


def _samples(table: pa.Table) -> _Samples:
    columns = [table[name].cast(pa.float64()) for name in RESOURCES]
    values = np.stack([column.to_numpy(zero_copy_only=False) for column in columns], axis=1)
    null = np.stack([column.is_null().to_numpy() for column in columns], axis=1)
    finite = np.isfinite(values)
    wrong = null, np.where(finite, values, 0.0) < 0, ~finite & ~null
    missing, negative, not_finite = (
        np.logical_and.reduce(wrong[0], 1),
        *(np.logical_or.reduce(fault, 1) for fault in wrong[1:]),
    )
    return _Samples(missing, negative, not_finite)


def samples(table: pa.Table) -> pa.Table:
    """Samples of brokers, one for each broker and round: ``t``, ``broker`` and :data:`SAMPLE`.

    Samples without any number, or with one that is below zero or not finite, are left out.
    """
    valid = table.select(("t", "broker", *SAMPLE)).filter(pa.array(_samples(table).valid))
    numbered = valid.append_column("row", pa.array(np.arange(valid.num_rows)))
    first = numbered.group_by(["t", "broker"]).aggregate([("row", "min")])
    return valid.take(first["row_min"])


def reports(decisions: pa.Table, broker_rounds: pa.Table, overtaken: Collection[int] = ()) -> pa.Table:
    """A row for each broker with a report in each round: ``t``, ``broker`` and :data:`SAMPLE`, which is null without a
    new sample. Rounds at the times ``overtaken``, milliseconds since 1970, are left out.
    """
    own = rounds(decisions)
    rows = own.row[~np.isin(own.times, np.fromiter(overtaken, np.int64))]
    distinct = decisions.select(["t", "brokers"]).take(pa.array(rows))
    brokers = distinct["brokers"].combine_chunks()
    reported = pa.table({"t": distinct["t"].take(pc.list_parent_indices(brokers)), "broker": pc.list_flatten(brokers)})
    return reported.join(samples(broker_rounds), ["t", "broker"])


def last_settings(decisions: pa.Table) -> tuple[int, str | None, str | None]:
    """The time of a day's last round, milliseconds since 1970, and the strategy and its settings that were in force."""
    own = rounds(decisions)
    if not own.times.size:
        return 0, None, None
    last = int(own.row[-1])
    return int(own.times[-1]), decisions["strategy"][last].as_py(), decisions["settings"][last].as_py()


def without(bundles: pa.Table, overtaken: Collection[int]) -> pa.Table:
    """Changes of bundles without those of the rounds at these times, milliseconds since 1970."""
    if not overtaken:
        return bundles
    return bundles.filter(pa.array(~np.isin(milliseconds(bundles), np.fromiter(overtaken, np.int64))))


def counts(decisions: pa.Table, broker_rounds: pa.Table) -> tuple[ReadCounts, tuple[int, ...]]:
    """Counts of a day, read and left out; and the times of overtaken rounds, milliseconds since 1970.

    The first round of a day follows none: what happened between two days is neither silence nor time that was covered.
    """
    own, rows = rounds(decisions), _samples(broker_rounds)
    valid = samples(broker_rounds)
    since = np.diff(own.times[~own.overtaken]) / 1000
    read = ReadCounts(
        samples_read=broker_rounds.num_rows,
        samples_missing=int(rows.missing.sum()),
        samples_negative=int(rows.negative.sum()),
        samples_not_finite=int(rows.not_finite.sum()),
        samples_kept=valid.num_rows,
        samples_doubted=valid.num_rows - valid["doubt"].null_count,
        rounds_read=decisions.num_rows,
        rounds_kept=int((~own.overtaken).sum()),
        rounds_overtaken=int(own.overtaken.sum()),
        rounds_apart=_apart(decisions["brokers"].take(pa.array(own.row)).to_pylist()),
        gaps=int((since > LONGEST_SILENCE_SECONDS).sum()),
        seconds_seen=float(np.minimum(since, LONGEST_SILENCE_SECONDS).sum()),
        seconds_silent=float(np.maximum(since - LONGEST_SILENCE_SECONDS, 0.0).sum()),
    )
    return read, tuple(own.times[own.overtaken].tolist())


def _apart(brokers: Sequence[Sequence[str]]) -> int:
    """The number of rounds that share no broker with the one before; rounds without any broker do not count."""
    pairs = ((before, now) for before, now in pairwise(brokers) if before != now and before and now)
    return sum(not set(before).intersection(now) for before, now in pairs)


BUNDLES = ("t", "bundle", "broker", *RATES, "producers", "consumers")

USED = {
    "decisions": ("t", "turn", "brokers", "strategy", "settings"),
    "broker_rounds": ("t", "broker", *SAMPLE),
    "bundle_rounds": BUNDLES,
}
"""The tables that a calibration reads, and the columns that it uses of each."""

NEEDED = {
    "decisions": ("t", "turn", "brokers"),
    "broker_rounds": ("t", "broker", "cpu", *RATES, "topics"),
    "bundle_rounds": BUNDLES,
}
"""The columns of :data:`USED` that have a value somewhere in each file: some brokers or imports lack the others."""


def table_of(rows: pa.Table, name: str) -> pa.Table:
    """The rows of one table out of those of several, which have nulls in the columns of the others."""
    own = rows.filter(pc.equal(rows["table"], name)).select(USED[name])
    return own.cast(pa.schema([(column, COLUMNS[name][column][0]) for column in USED[name]]))
