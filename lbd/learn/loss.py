"""Loss: what a day of history lacks beside what its own decisions say there should be. Pure.

Each round is in ``decisions``, with the brokers that reported. So a sample without a decision shows a lost decision, a
broker that reported in a minute and has no sample shows a lost sample, and traffic that brokers carried and no bundle
has shows lost bundles: in its first minutes of each hour a history has every bundle. Brokers may report only some of
their bundles, and sample seldom. So a day lacks what it has less of than is usual in the same history.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lbd.learn.rounds import rounds, samples
from lbd.learn.window import milliseconds
from lbd.store.history import utc_day
from lbd.text import DAY_SECONDS, HOUR_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from lbd.model import FloatArray


LOST_SHARE = 0.05
"""A day that lacks more is left out: a broker that restarts is without samples for two minutes, and lbd for one."""

HOURS_A_DAY = DAY_SECONDS // HOUR_SECONDS
_MINUTE, _HOUR = 60_000, 3_600_000


@dataclass(frozen=True)
class HourCounts:
    """Counts of an ``hour`` since 1970: what history has of it, and what its decisions say there should be.

    ``rounds`` have a sample or a change of a bundle, ``decided`` of them a decision. ``reports`` are minutes in which a
    broker had a report, added up over brokers, ``sampled`` those with a sample. ``carried`` is the traffic of the
    brokers of its first round by their first sample, ``reported`` that of the bundles by their first row, bytes/s in +
    out. Brokers that come later carry what others did before.
    """

    hour: int
    rounds: int
    decided: int
    reports: int
    sampled: int
    carried: float
    reported: float


@dataclass(frozen=True)
class LostDay:
    """A day since 1970 that is left out; the share of ``what`` that it lacks."""

    day: int
    share: float
    what: str

    @property
    def text(self) -> str:
        """``2026-11-05 is left out: 48 % of its bundles' traffic is missing``."""
        missing = (
            f"{100 * self.share:.0f} % of its {self.what} is missing"
            if self.share < 1
            else f"its {self.what} is missing"
        )
        return f"{utc_day(self.day * DAY_SECONDS)} is left out: {missing}"


DECISIONS, SAMPLES, TRAFFIC = "record of rounds", "record of brokers", "record of bundles' traffic"


def hour_counts(
    decisions: pa.Table, broker_rounds: pa.Table, bundles: pa.Table, overtaken: Collection[int] = ()
) -> list[HourCounts]:
    """The counts of each hour that history has anything of, in the order of time."""
    own = rounds(decisions)
    valid = ~np.isin(own.times, np.fromiter(overtaken, np.int64))
    brokers = decisions["brokers"].take(pa.array(own.row[valid])).combine_chunks()
    listed_at = own.times[valid][pc.list_parent_indices(brokers).to_numpy()]
    measured = samples(broker_rounds)
    measured_at, changed_at = milliseconds(measured), milliseconds(bundles)
    names = pc.unique(pa.chunked_array([pc.list_flatten(brokers), *measured["broker"].chunks], pa.string()))
    listed_code, measured_code = _codes(pc.list_flatten(brokers), names), _codes(measured["broker"], names)
    listed = _pairs(listed_at // _MINUTE, listed_code)
    sampled = np.intersect1d(listed, _pairs(measured_at // _MINUTE, measured_code))
    news = np.setdiff1d(np.union1d(measured_at, changed_at), np.fromiter(overtaken, np.int64))
    totals = _first_of_hours(*_of_first_rounds(listed_at, listed_code, measured, measured_code))
    owned = bundles.filter(bundles["broker"].is_valid())
    traffic = _first_of_hours(owned, _codes(owned["bundle"], pc.unique(owned["bundle"])))
    columns = {
        "rounds": _by_hour(news // _HOUR),
        "decided": _by_hour(news[np.isin(news, own.times[valid])] // _HOUR),
        "reports": _by_hour((listed >> _BITS) // 60),
        "sampled": _by_hour((sampled >> _BITS) // 60),
        "carried": totals,
        "reported": traffic,
    }
    hours = sorted(set().union(*columns.values()))
    return [HourCounts(hour, **{name: counts.get(hour, 0) for name, counts in columns.items()}) for hour in hours]


_BITS = 20
"""A broker's position among all is below a million."""


def _codes(names: pa.Array | pa.ChunkedArray, among: pa.Array) -> NDArray[np.int64]:
    codes: NDArray[np.int64] = pc.index_in(names, among).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _pairs(time: NDArray[np.int64], code: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each time and code once, in one number."""
    return np.unique((time << _BITS) + code)


def _of_first_rounds(
    listed_at: NDArray[np.int64], listed_code: NDArray[np.int64], rows: pa.Table, code: NDArray[np.int64]
) -> tuple[pa.Table, NDArray[np.int64]]:
    """The rows, with their codes, of the brokers in the first round of each hour; all of an hour without a round."""
    order = np.argsort(listed_at, kind="stable")
    listed_at, listed_code = listed_at[order], listed_code[order]
    hours, begins, hour = np.unique(listed_at // _HOUR, return_index=True, return_inverse=True)
    first = listed_at == listed_at[begins][hour]
    own = milliseconds(rows) // _HOUR
    there = np.isin((own << _BITS) + code, _pairs(listed_at[first] // _HOUR, listed_code[first]))
    there |= ~np.isin(own, hours)
    return rows.filter(pa.array(there)), code[there]


def _by_hour(hours: NDArray[np.int64]) -> dict[int, Any]:
    distinct, count = np.unique(hours, return_counts=True)
    return dict(zip(distinct.tolist(), count.tolist(), strict=True))


def _first_of_hours(rows: pa.Table, code: NDArray[np.int64]) -> dict[int, Any]:
    """The traffic of the first rows that each code has in each hour, in + out, added up by hour."""
    times = milliseconds(rows)
    hours = times // _HOUR
    order = np.lexsort((times, code, hours))
    new = np.ones(order.size, dtype=np.bool_)
    new[1:] = (np.diff(hours[order]) != 0) | (np.diff(code[order]) != 0)
    first = order[new]
    traffic = _finite(rows["throughput_in"])[first] + _finite(rows["throughput_out"])[first]
    total: defaultdict[int, float] = defaultdict(float)
    for hour, bytes_s in zip(hours[first].tolist(), traffic.tolist(), strict=True):
        total[hour] += bytes_s
    return dict(total)


def _finite(column: pa.ChunkedArray) -> FloatArray:
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(values), np.maximum(values, 0.0), 0.0)


def lost_days(hours: Iterable[HourCounts]) -> tuple[LostDay, ...]:
    """The days that lack more than :data:`LOST_SHARE` of anything, in the order of time, with what they lack most of;
    and those between the first and the last that history has nothing of.
    """
    rows = list(hours)
    if not rows:
        return ()
    column = {field.name: np.array([getattr(row, field.name) for row in rows], float) for field in fields(HourCounts)}
    day = column["hour"].astype(np.int64) // HOURS_A_DAY
    first, last = int(day.min()), int(day.max())
    days = last - first + 1
    of_day = {name: np.bincount(day - first, own, days).astype(np.float64) for name, own in column.items()}
    sampled, reported = _shares(column["reports"], column["sampled"]), _shares(of_day["carried"], of_day["reported"])
    lacks = {
        DECISIONS: 1.0 - _shares(of_day["rounds"], of_day["decided"]),
        SAMPLES: 1.0 - _shares(of_day["reports"], of_day["sampled"]) / _usual(sampled, 0.9),
        TRAFFIC: 1.0 - reported / _usual(reported[reported > 0], 0.5),
    }
    lost = []
    for number in range(days):
        empty = not of_day["rounds"][number]
        share = {record: 1.0 if empty else float(np.nan_to_num(lack[number])) for record, lack in lacks.items()}
        what = max(share, key=lambda record: share[record])
        if share[what] > LOST_SHARE:
            lost.append(LostDay(first + number, share[what], what))
    return tuple(lost)


def _shares(expected: FloatArray, there: FloatArray) -> FloatArray:
    """The parts that are there as shares of those expected, NaN where nothing is expected."""
    shares: FloatArray = np.divide(there, expected, out=np.full(expected.size, np.nan), where=expected > 0)
    return shares


def _usual(shares: FloatArray, quantile: float) -> float:
    """A usual share, 1 where nothing is known: brokers sample alike in all hours, and report bundles differently."""
    positive = shares[np.isfinite(shares) & (shares > 0)]
    return float(np.quantile(positive, quantile)) if positive.size else 1.0


def as_columns(hours: Sequence[HourCounts]) -> dict[str, object]:
    """Several hours as lists by column, for a row of a table."""
    rows = [asdict(hour) for hour in hours]
    return {f"hours_{field.name}": [row[field.name] for row in rows] for field in fields(HourCounts)}


def from_columns(row: Mapping[str, Any]) -> list[HourCounts]:
    """The hours in a row of :func:`as_columns`."""
    columns = [row[f"hours_{field.name}"] for field in fields(HourCounts)]
    return [HourCounts(*values) for values in zip(*columns, strict=True)]


HOUR_COLUMNS = {
    f"hours_{field.name}": pa.list_(pa.float64() if field.type == "float" else pa.int64())
    for field in fields(HourCounts)
}
"""The columns of :func:`as_columns`, with their types."""
