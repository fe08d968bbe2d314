"""A history that was read and checked: its windows without the days that lack much, and what was found. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lbd.errors import UsageError
from lbd.learn.choose import FEWEST_WINDOWS
from lbd.learn.features import MinuteScores, minute_scores
from lbd.learn.loss import HOUR_COLUMNS, HOURS_A_DAY, LostDay, as_columns, from_columns, hour_counts, lost_days
from lbd.learn.quality import (
    NOTICED_SHARE,
    QualityCheck,
    ReadCounts,
    damage,
    day_check,
    file_checks,
    refuse_bad,
    row_checks,
    traffic_check,
)
from lbd.learn.rounds import counts, last_settings, reports, without
from lbd.learn.spark import HOW
from lbd.learn.window import pack, reported_traffic, to_bytes
from lbd.learn.workers import columns_of
from lbd.text import DAY_SECONDS, HOUR_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from lbd.learn.workers import Windows, Workers
    from lbd.load.scoring import Weights


# --- rows of days and windows: their columns, with types, also where all values are null

DAYS = {
    "day": pa.int64(),
    "overtaken": pa.list_(pa.int64()),
    "last": pa.int64(),
    "strategy": pa.string(),
    "settings": pa.string(),
    **columns_of(ReadCounts),
}
WINDOWS = {
    "window": pa.int64(),
    "rounds": pa.int64(),
    "brokers": pa.list_(pa.string()),
    "rounds_short": pa.int64(),
    "carried": pa.float64(),
    "reported": pa.float64(),
    "minutes": pa.binary(),
    "points": pa.binary(),
    "packed": pa.binary(),
    **HOUR_COLUMNS,
}


def day_row(decisions: pa.Table, broker_rounds: pa.Table) -> Iterator[dict[str, object]]:
    """What was read of a day, and the settings of its last round."""
    read, overtaken = counts(decisions, broker_rounds)
    last, strategy, settings = last_settings(decisions)
    in_force = {"last": last, "strategy": strategy, "settings": settings}
    yield {"day": last // (DAY_SECONDS * 1000), "overtaken": list(overtaken), **in_force, **asdict(read)}


def window_row(
    decisions: pa.Table, broker_rounds: pa.Table, bundles: pa.Table, *, overtaken: Collection[int], weights: Weights
) -> dict[str, object]:
    """A window, packed, and what is known of it without unpacking it."""
    window = pack(reports(decisions, broker_rounds, overtaken), without(bundles, overtaken))
    carried, reported = reported_traffic(window)
    scored = minute_scores(window, weights)
    return {
        "rounds": window.at.size,
        "brokers": list(window.brokers),
        "rounds_short": int(np.count_nonzero(reported < (1 - NOTICED_SHARE) * carried)),
        "carried": float(carried.sum()),
        "reported": float(reported.sum()),
        "minutes": scored.minutes.tobytes(),
        "points": scored.points.tobytes(),
        "packed": to_bytes(window),
        **as_columns(hour_counts(decisions, broker_rounds, bundles, overtaken)),
    }


def window_scores(row: Mapping[str, Any]) -> MinuteScores:
    """The scores in a row of :data:`WINDOWS`."""
    minutes, brokers = np.frombuffer(row["minutes"], np.int64), tuple(row["brokers"])
    return MinuteScores(minutes, brokers, np.frombuffer(row["points"]).reshape(minutes.size, len(brokers)))


# --- reading

UNSEEN_HOURS = 0.1
"""Of a window that is whole all the same: before the first round of a day, and while lbd is restarted."""


def window_length(covered_seconds: float) -> int:
    """A day, or less where there are too few days: whole hours, for bundles are whole on the hour. The first is only
    what the second begins with.
    """
    hours = max(int(covered_seconds / HOUR_SECONDS / (FEWEST_WINDOWS + 1) + UNSEEN_HOURS), 1)
    return min(hours * HOUR_SECONDS, DAY_SECONDS)


@dataclass(frozen=True, eq=False)
class CheckedHistory:
    """The ``numbers`` of the windows that may be learned from, of so many ``seconds`` each, and their ``scores``.

    ``read`` counts what was read and left out, ``checks`` say how good that was. ``torn`` are the files, ``lost`` the
    days that are left out; ``days`` is the time that the rest covers. ``strategy`` and ``settings`` were in force last.
    """

    windows: Windows
    numbers: tuple[int, ...]
    seconds: int
    scores: tuple[MinuteScores, ...]
    read: ReadCounts
    checks: tuple[QualityCheck, ...]
    torn: tuple[str, ...]
    lost: tuple[LostDay, ...]
    days: float
    strategy: str | None
    settings: str | None


def read_history(workers: Workers, history: str, weights: Weights, tell: Callable[[str], None]) -> CheckedHistory:
    """Read a history and check it; ``tell`` is called with the name of each stage as it begins.

    Raises :class:`UsageError` for a history that cannot be read or holds no usable round, and
    :class:`~lbd.errors.ObserveError` for one of which too much is bad.
    """
    tell("reading history")
    files = workers.files()
    torn = damage(files)
    days = workers.days(torn, day_row, DAYS)
    read = ReadCounts.total([ReadCounts(**{name: day[name] for name in columns_of(ReadCounts)}) for day in days])
    if not read.rounds_kept:
        raise UsageError(f"{history}: history holds no round; {HOW}")
    checks = (*file_checks(len(files), torn.values()), *row_checks(read))
    refuse_bad(history, checks)
    tell("packing windows")
    seconds, overtaken = window_length(read.seconds_seen), frozenset(at for day in days for at in day["overtaken"])
    windows = workers.windows(torn, seconds, partial(window_row, overtaken=overtaken, weights=weights), WINDOWS)
    rows = windows.rows([name for name in WINDOWS if name not in {"window", "packed"}])
    if not rows:
        raise UsageError(f"{history}: no two rounds in a row with a sample in them; {HOW}")
    hours = [one for row in rows for one in from_columns(row)]
    lost = lost_days(hours)
    without_days = {one.day for one in lost}
    kept = [row for row in rows if not without_days.intersection(_days_of(row["window"], seconds))]
    short, carried, reported = (sum(row[name] for row in kept) for name in ("rounds_short", "carried", "reported"))
    spanned = 1 + hours[-1].hour // HOURS_A_DAY - hours[0].hour // HOURS_A_DAY
    checks = (*checks, day_check(len(lost), spanned), traffic_check(short, carried, reported))
    refuse_bad(history, checks)
    in_force = max(days, key=lambda day: day["last"])
    if not kept:
        raise UsageError(
            f"{history}: no window is left without a day that is left out: {'; '.join(one.text for one in lost)}"
        )
    return CheckedHistory(
        windows=windows,
        numbers=tuple(row["window"] for row in kept),
        seconds=seconds,
        scores=tuple(window_scores(row) for row in kept),
        read=read,
        checks=checks,
        torn=tuple(torn),
        lost=lost,
        days=sum(day["seconds_seen"] for day in days if day["day"] not in without_days) / DAY_SECONDS,
        strategy=in_force["strategy"],
        settings=in_force["settings"],
    )


def _days_of(window: int, seconds: int) -> range:
    """The days since 1970 that a window has a part of."""
    return range(window * seconds // DAY_SECONDS, ((window + 1) * seconds - 1) // DAY_SECONDS + 1)
