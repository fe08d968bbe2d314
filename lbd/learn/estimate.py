"""Estimate of a calibration by the footers of a history's files alone: rounds, bytes, time, memory, days kept."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lbd.errors import UsageError
from lbd.learn.choose import DEALS, FINALISTS, MOST_IN_INCIDENTS
from lbd.learn.incidents import BEFORE_SECONDS, INCIDENT_SECONDS, TIMES
from lbd.learn.spark import DEFAULTS, check_local_history, local_folder
from lbd.store.history import Folder
from lbd.store.history_tables import TABLES
from lbd.text import DAY_SECONDS, HOUR_SECONDS, counted, minutes_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lbd.store.history_round import HistorySettings

MEASURED = "docs/results/calibrate.md"
"""Source of the rates below: processor seconds by stage of 20 brokers with 2,000 bundles over seven days, and of 100
brokers with 65,000 bundles over half a day. Two sizes give what a round takes, and what a row of bundles takes."""

START_SECONDS = 17.0
READ_SECONDS_A_ROW = 7.3e-6
FIT_SECONDS_A_ROUND, FIT_SECONDS_A_ROW = 2.2e-3, 1.0e-6
REPLAY_SECONDS_A_ROUND, REPLAY_SECONDS_A_ROW = 1.3e-4, 1.6e-7
LEAST_MOVES_TIMES = 15.0
"""A replay of least-moves takes as many times as long as one of AvgShedder."""

INCIDENT_TIMES = 8.0
"""A round of an incident takes as many times as long as one of history: brokers are apart, so each round decides.
Measured with 2,000 bundles only."""

INCIDENTS = 5
"""Kinds of them."""

DRIVER_SHARE = 1.4
"""Memory of Spark's Java, as a multiple of its heap."""

WORKER_BYTES, WORKER_BYTES_A_ROW, WORKER_BYTES_A_SAMPLE = 300e6, 260.0, 280.0
"""Memory of a Python worker: by itself, for each row of bundles in an hour, for it has one hour at a time, and for each
sample of a broker, for it has those of all days, once more while it joins them, and the courses of four replays."""

QUARTER_DAYS = 90


class CalibrationEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The expected work of ``lbd calibrate``. ``days`` are those that history covers, ``rows`` those of each table, and
    ``unreadable_files`` have no footer. ``replays`` are candidates times deals of noise over all of it, and at most
    ``more_replays`` those of the best with noise dealt anew. ``processor_seconds`` of all but these and incidents,
    ``most_processor_seconds`` with both, and memory in bytes come from rates that were measured on another machine.
    ``cores`` are those on which Spark would run here, null for a cluster.
    """

    days: float
    rounds: int
    rows: dict[str, int]
    bytes: int
    files: int
    unreadable_files: int
    candidates: int
    deals: int
    replays: int
    more_replays: int
    processor_seconds: float
    most_processor_seconds: float
    cores: int | None
    driver_bytes: float
    worker_bytes: float
    bytes_a_day: float
    max_bytes: int
    retention_days: int
    kept_days: float

    def lines(self) -> Iterator[str]:
        """The text of the command."""
        unreadable = f"; {counted(self.unreadable_files, 'file')} cannot be read" if self.unreadable_files else ""
        yield (
            f"History: {self.days:.1f} days, {counted(self.rounds, 'round')}, {self.rows['broker_rounds']:,} rows of "
            f"brokers and {self.rows['bundle_rounds']:,} of bundles, {_size(self.bytes)} in "
            f"{counted(self.files, 'file')} (by their footers){unreadable}."
        )
        work = f"{counted(self.candidates, 'setting')} x {counted(self.deals, 'deal')} of noise"
        yield (
            f"Work: {work} = {counted(self.replays, 'replay')} of {counted(self.rounds, 'round')}; at most "
            f"{self.more_replays} more of the best, and these in incidents."
        )
        divided = f"divide by {self.cores} for {counted(self.cores, 'core')}; " if self.cores else ""
        yield (
            f"Time: some {minutes_text(self.processor_seconds)} of processor time, up to "
            f"{minutes_text(self.most_processor_seconds)} with the best again and in incidents "
            f"({divided}measured rates, {MEASURED})."
        )
        driver, worker = _size(self.driver_bytes), _size(self.worker_bytes)
        yield f"Memory: some {driver} for Spark's driver and {worker} for each worker."
        yield (
            f"Kept: history grows by {_size(self.bytes_a_day)} a day. {int(self.kept_days)} days are kept "
            f"(history.max_bytes {_size(self.max_bytes)}, history.retention_days {self.retention_days}); "
            f"{QUARTER_DAYS} days would take {_size(QUARTER_DAYS * self.bytes_a_day)}."
        )


def estimated(
    history: str,
    master: str,
    conf: Mapping[str, str],
    limits: HistorySettings,
    *,
    candidates: int,
    deals: int,
    strategies: tuple[str, ...],
) -> CalibrationEstimate:
    """The estimate for a history on this machine; ``strategies`` are those whose settings are tried.

    Raises :class:`UsageError` for a history that is elsewhere, has no file, or none with a footer that can be read.
    """
    check_local_history(history, master)
    root = local_folder(history, master)
    if root is None:
        raise UsageError(f"{history}: --estimate reads footers of files on this machine; name a folder with --history")
    rows, size, files, torn, seconds = _footers(Folder(root))
    if not rows["decisions"] or not seconds:
        raise UsageError(f"{history}: no file of decisions has a footer that can be read, with two rounds or more")
    days, rounds, bundle_rows = seconds / DAY_SECONDS, rows["decisions"], rows["bundle_rounds"]
    more = max(DEALS - deals, 0) * (FINALISTS + 1)
    replay = REPLAY_SECONDS_A_ROUND * rounds + REPLAY_SECONDS_A_ROW * bundle_rows
    replay *= sum(LEAST_MOVES_TIMES if name == "least-moves" else 1.0 for name in strategies) / len(strategies)
    reading = START_SECONDS + (READ_SECONDS_A_ROW + FIT_SECONDS_A_ROW) * bundle_rows + FIT_SECONDS_A_ROUND * rounds
    injected = TIMES * INCIDENTS * (BEFORE_SECONDS + INCIDENT_SECONDS) / seconds
    again = replay * (more + INCIDENT_TIMES * injected * (min(candidates, MOST_IN_INCIDENTS) + 1))
    search = reading + replay * candidates * deals
    a_day = size / days
    return CalibrationEstimate(
        days=days,
        rounds=rounds,
        rows=dict(rows),
        bytes=size,
        files=files,
        unreadable_files=torn,
        candidates=candidates,
        deals=deals,
        replays=candidates * deals,
        more_replays=more,
        processor_seconds=search,
        most_processor_seconds=search + again,
        cores=_cores(master),
        driver_bytes=DRIVER_SHARE * _bytes(conf.get(HEAP, DEFAULTS[HEAP])),
        worker_bytes=WORKER_BYTES
        + WORKER_BYTES_A_ROW * bundle_rows / max(seconds / HOUR_SECONDS, 1.0)
        + WORKER_BYTES_A_SAMPLE * rows["broker_rounds"],
        bytes_a_day=a_day,
        max_bytes=limits.max_bytes,
        retention_days=limits.retention_days,
        kept_days=min(limits.max_bytes / a_day, float(limits.retention_days)),
    )


HEAP = "spark.driver.memory"


def _footers(folder: Folder) -> tuple[Counter[str], int, int, int, float]:
    """Rows by table, bytes, files, files without a footer, and seconds from the first to the last round, by day."""
    rows, size, files, torn = Counter(dict.fromkeys(TABLES, 0)), 0, 0, 0
    rounds: defaultdict[str, list[float]] = defaultdict(list)
    for table in TABLES:
        for path in (path for day in folder.days(table) for path in sorted(day.glob("[!._]*.parquet"))):
            files, size = files + 1, size + path.stat().st_size
            try:
                footer: Any = pq.read_metadata(path)
            except (pa.ArrowException, OSError):
                torn += 1
                continue
            rows[table] += footer.num_rows
            if table == "decisions":
                rounds[path.parent.name] += _ends(footer)
    return rows, size, files, torn, sum(max(ends) - min(ends) for ends in rounds.values() if ends)


def _ends(footer: Any) -> Iterator[float]:  # noqa: ANN401 - pyarrow has no types
    """Epoch seconds of the first and the last round of each row group, as far as its statistics have them."""
    for index in range(footer.num_row_groups):
        statistics = footer.row_group(index).column(TIME_COLUMN).statistics
        if statistics is not None and statistics.has_min_max:
            yield from (statistics.min.timestamp(), statistics.max.timestamp())


TIME_COLUMN = 0
"""Position of ``t`` in each table."""


def _cores(master: str) -> int | None:
    """The cores on which Spark would run here; None for a cluster."""
    local = re.fullmatch(r"local(?:\[([0-9]+|\*)(?:,.*)?\])?", master)
    if local is None:
        return None
    return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)


_UNITS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def _bytes(text: str) -> float:
    """Bytes of a size as Spark writes them: ``8g``, ``2048m``; without a unit MiB. Raises :class:`UsageError`."""
    size = re.fullmatch(r"([0-9]+)([bkmgt]?)b?", text.strip().lower())
    if size is None:
        raise UsageError(f"--conf {HEAP}={text}: no size; wanted one such as 8g")
    return float(int(size[1]) << _UNITS[size[2] or "m"])


def _size(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"
