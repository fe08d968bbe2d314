"""Appends rounds: what changed of the bundles, every new sample of the brokers, every decision and every move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import RESOURCES
from lbd.record.history.changes import Changes, Stored, changes
from lbd.record.history.files import Folder, day_of
from lbd.record.history.tables import COLUMNS, COUNTS, RATES, TABLES, Rows
from lbd.record.history.told import told

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from lbd.model import Snapshot
    from lbd.record.history.round import Round
    from lbd.record.history.settings import HistorySettings

FLUSH_SECONDS = 600.0
"""A file of each table is written so often: larger files are smaller in sum, and a kill loses no more."""

FLUSH_ROWS = 500_000
"""Or when so many rows wait, which are some 50 MB."""

WHOLE_SECONDS = 3600.0
"""In its first round of each hour every bundle is stored, whether it changed or not: reading can begin there."""

KEPT_ROWS = 3 * FLUSH_ROWS
"""While nothing can be written, so many rows wait; what comes then is lost, and counted."""


@dataclass
class Writer:
    """Appends rounds to a folder. Not thread-safe. ``lost`` counts the rounds that could not be kept."""

    root: Path
    settings: HistorySettings
    lost: int = 0
    torn: int = 0
    trouble: str = ""
    _waiting: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: {table: [] for table in TABLES})
    _stored: Stored = field(default_factory=Stored.nothing)
    _hour: float = np.nan
    _begun: float = np.nan
    _last: float = np.nan

    def __post_init__(self) -> None:
        try:
            self.torn = Folder(self.root).set_aside()
        except OSError as error:
            self._fail(error)

    def add(self, found: Round) -> None:
        """Keep a round; it is on disk after at most ten minutes of rounds. Nothing is raised for what a disk does."""
        if not found.is_news:
            return
        at = found.snapshot.taken_at
        if self._rows and (day_of(at) != day_of(self._begun) or not 0 <= at - self._begun < FLUSH_SECONDS):
            self.flush()
        if self._rows >= KEPT_ROWS:
            self.lost += 1
            return
        self._begun = at if not self._rows else self._begun
        self._last = at
        for rows in self._tables(found):
            self._waiting[rows.table].append(rows.batch())
        if self._rows >= FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what waits; a day that is over becomes one file a table, and the oldest days go."""
        if np.isnan(self._last):
            return
        folder = Folder(self.root)
        try:
            for table, batches in self._waiting.items():
                if batches:
                    folder.put(table, self._begun, batches)
                    batches.clear()
            folder.pack(day_of(self._last))
            folder.prune(self._last, self.settings.retention_days, self.settings.max_bytes)
        except OSError as error:
            self._fail(error)
        else:
            self.trouble = ""

    @property
    def _rows(self) -> int:
        return sum(batch.num_rows for batches in self._waiting.values() for batch in batches)

    def _fail(self, error: OSError) -> None:
        where = f"{self.root}: history cannot be written: {error.strerror or error}"
        self.trouble = f"{where}; {self._rows:,} rows wait, balancing goes on"

    def _tables(self, found: Round) -> list[Rows]:
        tables = [_decision(found), _brokers(found), self._bundles(found), _moves(found)]
        return [rows for rows in tables if len(rows.columns["t"])]

    def _bundles(self, found: Round) -> Rows:
        at = found.snapshot.taken_at
        if at // WHOLE_SECONDS != self._hour:
            self._stored, self._hour = Stored.nothing(), at // WHOLE_SECONDS
        seen = told(found.snapshot)
        self._stored, changed = changes(self._stored, seen, found.fresh, self.settings.step)
        return _changed(seen, changed)


def _milliseconds(seconds: float, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.full(count, round(seconds * 1000), dtype=np.int64)


def _changed(snapshot: Snapshot, changed: Changes) -> Rows:
    table, none = snapshot.rows, [None] * len(changed.gone)
    at = table.bundle[changed.rows].tolist()
    owner = table.owner()[changed.rows].tolist()
    rates, counts = table.rates[changed.rows].astype(np.float32), table.counts[changed.rows]
    values = {
        **{name: rates[:, column] for column, name in enumerate(RATES)},
        **{name: counts[:, column].clip(max=2**31 - 1) for column, name in enumerate(COUNTS)},
    }
    return Rows(
        "bundle_rounds",
        {
            "t": _milliseconds(snapshot.taken_at, len(at) + len(none)),
            "bundle": [*(snapshot.bundles[one] for one in at), *changed.gone],
            "broker": [*(snapshot.brokers.ids[one] for one in owner), *none],
            **{name: [*column.tolist(), *none] for name, column in values.items()},
        },
    )


def _brokers(found: Round) -> Rows:
    """One row for each broker with a new sample; nothing else is news of a broker."""
    brokers, fresh = found.snapshot.brokers, found.fresh
    own = np.flatnonzero(fresh)
    listed = found.snapshot.rows.count(found.snapshot.rows.listed)
    used = {name: found.used[own, column] for column, name in enumerate(RESOURCES)}
    return Rows(
        "broker_rounds",
        {
            "t": _milliseconds(found.snapshot.taken_at, own.size),
            "broker": [brokers.ids[at] for at in own],
            **used,
            "score": found.scores[own],
            "binding": [found.binding[at] for at in own],
            **{name: brokers.rates[own, column] for column, name in enumerate(RATES)},
            "topics": brokers.topics[own],
            "bundles": listed[own],
            "started_at": [_started(brokers.started_at[at]) for at in own],
            "version": [brokers.versions[at] for at in own],
            "doubt": [found.doubts[at] for at in own],
        },
    )


def _started(seconds: float) -> int | None:
    return round(seconds * 1000) if np.isfinite(seconds) else None


def _decision(found: Round) -> Rows:
    at = _milliseconds(found.snapshot.taken_at, 1)
    values = {name: [value] for name, value in found.decision.items()}
    return Rows("decisions", {"t": at, "brokers": [list(found.snapshot.brokers.ids)], **values})


def _moves(found: Round) -> Rows:
    names = [name for name in COLUMNS["moves"] if name != "t"]
    at = _milliseconds(found.snapshot.taken_at, len(found.moves))
    return Rows("moves", {"t": at, **{name: [move[name] for move in found.moves] for name in names}})
