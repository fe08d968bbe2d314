"""A history that was read and checked: its windows without the days that lack much, and its checks. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lbd.errors import UsageError
from lbd.learn.choose import FEWEST_WINDOWS
from lbd.learn.features import MINUTE_SECONDS, MinuteScores, minute_scores
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
from lbd.learn.rounds import (
    BUNDLES,
    counts,
    days_of_wrong_clock,
    last_settings,
    reports,
    turn_gaps,
    without,
)
from lbd.learn.spark import HOW
from lbd.learn.window import hourly, joined, names_to_bytes, pack, reported_traffic, to_bytes, without_bundles
from lbd.learn.workers import Packing, columns_of
from lbd.store.calibration import CalibratedLoad
from lbd.store.history_tables import COLUMNS
from lbd.text import DAY_SECONDS, HOUR_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from lbd.learn.window import Window
    from lbd.learn.workers import Columns, PackedHistory, Rows, Task, Workers
    from lbd.load.scoring import Weights


if TYPE_CHECKING:
    OfStretch = Callable[["Stretch", Task], Iterable[Mapping[str, object]]]

# --- rows of days, windows and hours: their columns, with types, also where all values are null

DAYS = {
    "day": pa.int64(),
    "overtaken": pa.list_(pa.int64()),
    "turn_gaps": pa.list_(pa.int64()),
    "last": pa.int64(),
    "strategy": pa.string(),
    "settings": pa.string(),
    **columns_of(ReadCounts),
}
WINDOWS = {
    "number": pa.int64(),
    "rounds": pa.int64(),
    "begins": pa.float64(),
    "ends": pa.float64(),
    "brokers": pa.list_(pa.string()),
    "most_brokers": pa.int64(),
    "minutes": pa.binary(),
    "points": pa.binary(),
    "packed": pa.binary(),
}
HOURS = {
    "number": pa.int64(),
    "rounds_short": pa.int64(),
    "carried": pa.float64(),
    "reported": pa.float64(),
    "bundles": pa.binary(),
    "packed": pa.binary(),
    **HOUR_COLUMNS,
}


def day_row(decisions: pa.Table, broker_rounds: pa.Table) -> Iterator[dict[str, object]]:
    """The counts of a day that was read, and the settings of its last round."""
    read, overtaken = counts(decisions, broker_rounds)
    last, strategy, settings = last_settings(decisions)
    in_force = {"last": last, "strategy": strategy, "settings": settings, "turn_gaps": turn_gaps(decisions)}
    yield {"day": last // (DAY_SECONDS * 1000), "overtaken": list(overtaken), **in_force, **asdict(read)}


NO_BUNDLES = pa.schema([(name, COLUMNS["bundle_rounds"][name][0]) for name in BUNDLES]).empty_table()


def window_row(
    decisions: pa.Table, broker_rounds: pa.Table, *, overtaken: Collection[int], weights: Weights
) -> dict[str, object]:
    """A window without bundles, packed, and what is known of it without unpacking it."""
    window = pack(reports(decisions, broker_rounds, overtaken), NO_BUNDLES)
    scored = minute_scores(window, weights)
    return {
        "rounds": window.at.size,
        "begins": float(window.at[0]) if window.at.size else None,
        "ends": float(window.at[-1]) if window.at.size else None,
        "brokers": list(window.brokers),
        "most_brokers": int(window.present.sum(axis=1).max(initial=0)),
        "minutes": scored.minutes.tobytes(),
        "points": scored.points.tobytes(),
        "packed": to_bytes(window),
    }


def hour_row(
    decisions: pa.Table, broker_rounds: pa.Table, bundles: pa.Table, *, overtaken: Collection[int]
) -> dict[str, object]:
    """An hour with its bundles, packed, and how complete it is. History has all bundles on the hour."""
    window = pack(reports(decisions, broker_rounds, overtaken), without(bundles, overtaken))
    carried, reported = reported_traffic(window)
    return {
        "rounds_short": int(np.count_nonzero(reported < (1 - NOTICED_SHARE) * carried)),
        "carried": float(carried.sum()),
        "reported": float(reported.sum()),
        "bundles": names_to_bytes(window.bundles),
        "packed": to_bytes(window),
        **as_columns(hour_counts(decisions, broker_rounds, bundles, overtaken)),
    }


def window_scores(row: Mapping[str, Any]) -> MinuteScores:
    """The scores in a row of :data:`WINDOWS`."""
    minutes, brokers = np.frombuffer(row["minutes"], np.int64), tuple(row["brokers"])
    return MinuteScores(minutes, brokers, np.frombuffer(row["points"]).reshape(minutes.size, len(brokers)))


# --- reading

UNSEEN_HOURS = 0.1
"""Hours that a whole window may lack: before the first round of a day, and while lbd is restarted."""


def window_length(covered_seconds: float) -> int:
    """A day, or less where there are too few days: whole hours, for bundles are whole on the hour. The first is only
    what the second begins with.
    """
    hours = max(int(covered_seconds / HOUR_SECONDS / (FEWEST_WINDOWS + 1) + UNSEEN_HOURS), 1)
    return min(hours * HOUR_SECONDS, DAY_SECONDS)


@dataclass(frozen=True, eq=False)
class CheckedHistory:
    """The ``numbers`` of the windows that may be learned from, of ``seconds`` each, with the times of their
    first and last rounds (``spans``) and their ``scores``; and all ``bundles`` in them.

    ``read`` counts what was read and left out, ``checks`` say how good that was. ``torn`` are the files, ``lost`` the
    days that are left out; ``days`` is the time that the rest covers, ``load`` what was carried then. ``strategy`` and
    ``settings`` were in force last.
    """

    packed: PackedHistory
    bundles: tuple[str, ...]
    numbers: tuple[int, ...]
    spans: tuple[tuple[float, float], ...]
    seconds: int
    scores: tuple[MinuteScores, ...]
    read: ReadCounts
    checks: tuple[QualityCheck, ...]
    torn: tuple[str, ...]
    lost: tuple[LostDay, ...]
    days: float
    load: CalibratedLoad
    strategy: str | None
    settings: str | None

    @property
    def last_brokers(self) -> frozenset[str]:
        """The brokers with a sample in its last hour: others are gone, or have another name now."""
        last = self.scores[-1]
        late = last.points[last.minutes > last.minutes[-1] - HOUR_SECONDS // MINUTE_SECONDS]
        return frozenset(compress(last.brokers, np.isfinite(late).any(axis=0).tolist()))

    @property
    def hours(self) -> tuple[int, int]:
        """The first hour of all of it, and the one after the last."""
        return self.hours_of(self.numbers[0])[0], self.hours_of(self.numbers[-1])[1]

    def hours_of(self, number: int) -> tuple[int, int]:
        """The same of a window."""
        hours = self.seconds // HOUR_SECONDS
        return number * hours, (number + 1) * hours

    def run(self, tasks: Sequence[Task], function: OfStretch, columns: Columns) -> Rows:
        """The rows that this function makes of each task's stretch of it."""
        over = partial(_over_stretch, bundles=self.bundles, function=function)
        return self.packed.run(self.numbers, tasks, over, columns)


@dataclass(frozen=True, eq=False)
class Stretch:
    """The brokers of a stretch of history, all of it (``whole``); its ``hours`` can be read once."""

    whole: Window
    hours: Iterator[tuple[int, Window]]

    def hourly(self, whole: Window) -> Iterator[Window]:
        """Its windows of an hour, with the brokers as they are in ``whole``."""
        return hourly(whole, self.hours)


def _over_stretch(
    windows: Iterator[Window],
    hours: Iterator[tuple[int, Window]],
    task: Task,
    *,
    bundles: tuple[str, ...],
    function: OfStretch,
) -> Iterable[Mapping[str, object]]:
    whole = reduce(joined, windows)
    return function(Stretch(without_bundles(whole, bundles), hours), task)


def read_history(workers: Workers, history: str, weights: Weights, tell: Callable[[str], None]) -> CheckedHistory:
    """Read a history and check it; ``tell`` is called with the name of each stage as it begins.

    Raises :class:`UsageError` for a history that cannot be read or holds no usable round, and
    :class:`~lbd.errors.ObserveError` for a history with too much bad data.
    """
    tell("reading history")
    files = workers.files()
    torn = damage(files)
    days = workers.days(torn, day_row, DAYS)
    wrong = days_of_wrong_clock({day["day"]: day["turn_gaps"] for day in days})
    read = ReadCounts.total([_read(day, wrong=day["day"] in wrong) for day in days])
    days = [day for day in days if day["day"] not in wrong]
    if not read.rounds_kept:
        raise UsageError(f"{history}: history holds no round; {HOW}")
    checks = (*file_checks(len(files), torn.values()), *row_checks(read))
    refuse_bad(history, checks)
    tell("packing windows")
    seconds, overtaken = window_length(read.seconds_seen), frozenset(at for day in days for at in day["overtaken"])
    packed = workers.packed(
        torn,
        Packing(seconds, partial(window_row, overtaken=overtaken, weights=weights), WINDOWS),
        Packing(HOUR_SECONDS, partial(hour_row, overtaken=overtaken), HOURS),
    )
    rows = [row for row in packed.windows([name for name in WINDOWS if name != "packed"]) if row["rounds"] > 1]
    if not rows:
        raise UsageError(f"{history}: no two rounds in a row with a sample in them; {HOW}")
    by_hour = [
        row
        for row in packed.hours([name for name in HOURS if name not in {"packed", "bundles"}])
        if row["number"] // HOURS_A_DAY not in wrong
    ]
    hours = [counted for row in by_hour for counted in from_columns(row)]
    lost = lost_days(hours)
    without_days = wrong.union(day.day for day in lost)
    usable = [row for row in rows if not without_days.intersection(_days_of(row["number"], seconds))]
    numbers = {row["number"] for row in usable}
    learned = [row for row in by_hour if row["number"] * HOUR_SECONDS // seconds in numbers]
    short, carried, reported = (sum(row[name] for row in learned) for name in ("rounds_short", "carried", "reported"))
    spanned = 1 + hours[-1].hour // HOURS_A_DAY - hours[0].hour // HOURS_A_DAY
    checks = (*checks, day_check(len(lost), spanned), traffic_check(short, carried, reported))
    refuse_bad(history, checks)
    in_force = max(days, key=lambda day: day["last"])
    if not usable:
        raise UsageError(
            f"{history}: no window is left without a day that is left out: {'; '.join(day.text for day in lost)}"
        )
    return CheckedHistory(
        packed=packed,
        bundles=packed.bundles(),
        numbers=tuple(row["number"] for row in usable),
        spans=tuple((row["begins"], row["ends"]) for row in usable),
        seconds=seconds,
        scores=tuple(window_scores(row) for row in usable),
        read=read,
        checks=checks,
        torn=tuple(torn),
        lost=lost,
        days=sum(day["seconds_seen"] for day in days if day["day"] not in without_days) / DAY_SECONDS,
        load=CalibratedLoad(
            min(row["most_brokers"] for row in usable),
            max(row["most_brokers"] for row in usable),
            max(counted.carried for counted in hours if counted.hour // HOURS_A_DAY not in without_days),
        ),
        strategy=in_force["strategy"],
        settings=in_force["settings"],
    )


def _read(day: Mapping[str, Any], *, wrong: bool) -> ReadCounts:
    """Counts of a day; of one that only a wrong clock showed all rounds are overtaken, and no time was seen."""
    read = ReadCounts(**{name: day[name] for name in columns_of(ReadCounts)})
    if not wrong:
        return read
    return replace(read, rounds_kept=0, rounds_overtaken=read.rounds_overtaken + read.rounds_kept, seconds_seen=0.0)


def _days_of(window: int, seconds: int) -> range:
    """The days since 1970 that a window has a part of."""
    return range(window * seconds // DAY_SECONDS, ((window + 1) * seconds - 1) // DAY_SECONDS + 1)
