"""Kept turns for ``lbd explain``: observations, decisions and reasons of each turn.

A failure to keep a turn never stops the balancing. A turn is one row of the store: ``turn_record.py`` as JSON, by zlib.
Quiet turns with the same message as the one before are counted in its row. Beside them stands each bundle's recent
owner and why it stayed. Everything can be read with a running lbd or without.

Neither is on disk when the turn ends: after a power cut the last turns may be missing.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from lbd.errors import UsageError
from lbd.files import DAMAGED
from lbd.reason import Reason
from lbd.store.arrays import names_of, packed_arrays, packed_names, stored_arrays
from lbd.store.database import STORE_NAME, reading, writing
from lbd.store.turn_record import PairRecord, TurnRecord, decoded, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.model import CodeArray, FloatArray, IntArray
    from lbd.store.database import Database


MAX_BYTES = 64 << 20
"""Room for turns in the store; the oldest are removed first. At the default interval that is more than a month of ten
brokers, or two weeks of a hundred."""

PACKING_LEVEL = 5
"""Turns are alike: a higher level takes twice the time for a tenth of the bytes."""


# --- bundles as they were reported last

BUNDLES = "bundles"
"""Their name in the store."""


@dataclass(frozen=True)
class ReportedBundle:
    """One bundle: when (epoch seconds) and by whom it was reported, why it stayed, messages/s and bytes/s in + out."""

    at: float
    owner: str
    label: str
    msg_rate: float
    throughput: float


@dataclass(frozen=True, eq=False)
class ReportedBundles:
    """``bundles`` as ``brokers`` reported them at ``at`` (epoch seconds).

    ``owner`` is int32 (N,) into ``brokers``, ``codes`` int8 (N,) a :class:`~lbd.reason.Reason` code, ``rates`` float64
    (N, 2) messages/s and bytes/s in + out, short-term averages.
    """

    at: float
    brokers: tuple[str, ...]
    bundles: list[str]
    owner: IntArray
    codes: CodeArray
    rates: FloatArray

    def of(self, bundle: str) -> ReportedBundle | None:
        """A bundle by its full name; None if nobody reported it."""
        return self._of(self.bundles.index(bundle)) if bundle in self.bundles else None

    def all(self) -> Iterator[tuple[str, ReportedBundle]]:
        """Every bundle."""
        return ((name, self._of(index)) for index, name in enumerate(self.bundles))

    def of_namespace(self, namespace: str) -> list[tuple[str, ReportedBundle]]:
        """The bundles of a namespace."""
        own = ((name, row) for row, name in enumerate(self.bundles) if name.startswith(f"{namespace}/0x"))
        return [(name, self._of(row)) for name, row in own]

    def _of(self, row: int) -> ReportedBundle:
        owner, label = self.brokers[int(self.owner[row])], Reason.of(int(self.codes[row])).label
        return ReportedBundle(self.at, owner, label, *map(float, self.rates[row]))


def save_bundles(state_dir: Path, reported: ReportedBundles) -> None:
    """Replace what is kept, at once or not at all. Raises :class:`UsageError`."""
    names, brokers = packed_names(reported.bundles), packed_names(reported.brokers)
    with np.errstate(over="ignore"):  # of a broken report; nothing is decided on it
        rates = reported.rates.astype(np.float32)
    columns = {"owner": reported.owner, "codes": reported.codes, "rates": rates}
    content = packed_arrays(at=reported.at, bundles=names, brokers=brokers, **columns)
    with writing(state_dir / STORE_NAME) as store:
        store.put({BUNDLES: content}, durable=False)


def load_bundles(state_dir: Path) -> ReportedBundles | None:
    """The bundles saved last; None if there are none. Raises :class:`UsageError` where they cannot be read."""
    path = state_dir / STORE_NAME
    try:
        with stored_arrays(path, BUNDLES) as file:
            if file is None:
                return None
            bundles, brokers = names_of(file["bundles"]), names_of(file["brokers"])
            columns = file["owner"], file["codes"], file["rates"].astype(np.float64)
            reported = ReportedBundles(float(file["at"]), tuple(brokers), bundles, *columns)
    except (*DAMAGED, OSError) as error:
        raise _unreadable(path) from error
    if not _aligned(reported):
        raise _unreadable(path)
    return reported


def _unreadable(path: Path) -> UsageError:
    mends = "lbd run writes them anew every few turns; without them, moves alone are told"
    return UsageError(f"{path}: the owners of bundles cannot be read; {mends}")


def _aligned(reported: ReportedBundles) -> bool:
    size = len(reported.bundles)
    shapes = (reported.owner.shape, reported.codes.shape, reported.rates.shape)
    owned = reported.owner.size == 0 or (reported.owner.min() >= 0 and reported.owner.max() < len(reported.brokers))
    return shapes == ((size,), (size,), (size, 2)) and bool(owned)


# --- reading, the newest first: most questions are about recent turns

FIRST_ROWS, MOST_ROWS = 8, 512
"""Turns read at once: few for a question about the newest, many for one about all."""

COLUMNS = "SELECT number, last, until, turn FROM turns"


class KeptTurns:
    """The turns kept in a state directory, read when needed; ``unreadable`` counts those passed over so far.

    Iterating raises :class:`~lbd.errors.UsageError` for a store that cannot be read.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / STORE_NAME
        self._passed_over: set[int] = set()

    @property
    def unreadable(self) -> int:
        """Turns that could not be read, of those looked at so far."""
        return len(self._passed_over)

    def __iter__(self) -> Iterator[TurnRecord]:
        """Every turn, the newest first."""
        with reading(self._path) as store:
            if store is None:
                return
            before, many = 1 << 62, FIRST_ROWS
            while rows := store.rows(f"{COLUMNS} WHERE number < ? ORDER BY number DESC LIMIT ?", before, many):
                yield from self._decoded(rows)
                before, many = rows[-1][0], min(2 * many, MOST_ROWS)

    def find(self, number: int) -> TurnRecord | None:
        """The turn of this number, or the record of quiet turns that includes it."""
        turns = self._rows(f"{COLUMNS} WHERE number <= ? ORDER BY number DESC LIMIT 1", number)
        return next((turn for turn in turns if number <= turn.last), None)

    def oldest(self) -> int:
        """Number of the oldest turn that is kept; 0 when nothing is."""
        return next((turn.turn for turn in self._rows(f"{COLUMNS} ORDER BY number LIMIT 1")), 0)

    def _rows(self, statement: str, *values: object) -> Iterator[TurnRecord]:
        with reading(self._path) as store:
            rows = store.rows(statement, *values) if store is not None else []
        return self._decoded(rows)

    def _decoded(self, rows: list[tuple[Any, ...]]) -> Iterator[TurnRecord]:
        for number, last, until, packed in rows:
            turn = _unpacked(packed)
            if turn is None:
                self._passed_over.add(number)
            else:
                yield msgspec.structs.replace(turn, turn=number, repeated=last - number, until=until)


def _unpacked(packed: bytes) -> TurnRecord | None:
    try:
        return decoded(zlib.decompress(packed))
    except zlib.error:
        return None


# --- writing

FULL_EVERY_SECONDS = 60.0
"""Scores of a calm cluster are kept once a minute: brokers sample CPU no more often."""

PARTS = 16
"""Parts of the room for turns; one is freed at once when the room is full."""

BYTES = "SELECT coalesce(sum(length(turn)), 0) FROM turns"
PRUNE = """
DELETE FROM turns WHERE number < (SELECT max(number) FROM turns) AND number <= (
    SELECT max(number) FROM (SELECT number, sum(length(turn)) OVER (ORDER BY number DESC) AS bytes FROM turns)
    WHERE bytes > ?
)
"""


class Turns:
    """The writer of kept turns; only the holder of the state directory may be one.

    ``trouble`` is one line on why turns are not kept at present, empty when they are. Nothing here raises.
    """

    def __init__(self, state_dir: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path, self._max_bytes = state_dir / STORE_NAME, max_bytes
        self.trouble, self._lost = "", 0
        self._before: TurnRecord | None = None
        self._number, self._bytes, self._last_bytes = 0, 0, 0
        try:
            with reading(self._path) as store:
                if store is not None:
                    self._number = store.rows("SELECT max(last) FROM turns")[0][0] or 0
                    self._bytes = store.rows(BYTES)[0][0]
        except UsageError as error:
            self._fail(error)

    def keep(self, turn: TurnRecord) -> int:
        """Write a turn and return its number, which it has even if it could not be written."""
        self._number += 1
        try:
            with writing(self._path) as store:
                self._put(store, msgspec.structs.replace(turn, turn=self._number))
        except UsageError as error:
            self._fail(error)
        else:
            self.trouble, self._lost = "", 0
        return self._number

    def _put(self, store: Database, turn: TurnRecord) -> None:
        before = self._before
        if before is not None and _quiet(before, turn):
            newest = msgspec.structs.replace(turn, turn=before.turn, at=before.at)
            packed = zlib.compress(encoded(newest), PACKING_LEVEL)
            again = "UPDATE turns SET last = ?, until = ?, turn = ? WHERE number = ?"
            store.write(again, [(turn.turn, turn.at, packed, before.turn)], durable=False)
            self._before = msgspec.structs.replace(newest, repeated=turn.turn - before.turn, until=turn.at)
            self._bytes += len(packed) - self._last_bytes
            self._last_bytes = len(packed)
            return
        packed = zlib.compress(encoded(turn), PACKING_LEVEL)
        self._last_bytes = len(packed)
        store.write("INSERT INTO turns VALUES (?, ?, ?, ?)", [(turn.turn, turn.turn, 0.0, packed)], durable=False)
        self._before, self._bytes = turn, self._bytes + len(packed)
        if self._bytes > self._max_bytes:
            self._prune(store)

    def _prune(self, store: Database) -> None:
        """Remove the oldest turns until a part of the room is free."""
        store.write(PRUNE, [(self._max_bytes - self._max_bytes // PARTS,)], durable=False)
        self._bytes = store.rows(BYTES)[0][0]

    def _fail(self, error: UsageError) -> None:
        """Note the failure; the next turn is tried again, and balancing goes on."""
        self._lost += 1
        self._before = None
        number = "the last turn is" if self._lost == 1 else f"the last {self._lost:,} turns are"
        self.trouble = f"{error}; {number} not kept for lbd explain, balancing goes on"


def _quiet(before: TurnRecord, turn: TurnRecord) -> bool:
    """Whether nothing happened, the message is the same, and no sample a minute newer than the kept one is lost."""
    if any(each.outcomes or each.refused or (each.acts and each.unloads) for each in (before, turn)):
        return False
    age = turn.at - before.at
    new = any(broker.fresh for broker in turn.brokers) and age >= FULL_EVERY_SECONDS
    return age >= 0 and not new and _same_to_reader(before) == _same_to_reader(turn)


def _same_to_reader(turn: TurnRecord) -> tuple[object, ...]:
    """The part of a turn that makes it the same to a person: reasons, counters and trust, without numbers."""
    verdict = (turn.verdict.kind, turn.verdict.reason, turn.verdict.samples)
    hold = turn.hold.reason if turn.hold is not None else None
    pairs = [
        (pair.source, pair.destination, pair.low, pair.high, pair.fired, _pair_reason(pair)) for pair in turn.pairs
    ]
    skips = [(skip.what, skip.reason) for skip in turn.skips]
    brokers = [(broker.id, broker.to_settle, broker.doubt) for broker in turn.brokers]
    plan = [(unload.bundle, unload.source, unload.destination) for unload in turn.unloads]
    crowded = [(group.group, group.broker) for group in turn.crowded]
    return verdict, hold, plan, turn.acts, turn.error, turn.unfinished, pairs, skips, brokers, crowded, turn.dear_kinds


def _pair_reason(pair: PairRecord) -> str | None:
    """A turn without a new sample waits like the one before it."""
    return "waiting" if pair.reason == "no-new-sample" else pair.reason


# --- kept turns and moves as JSON


def named(value: object) -> Any:  # noqa: ANN401 - JSON
    """The same with every field under its name: many are kept in arrays, to save room."""
    if isinstance(value, msgspec.Struct):
        return {name: named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: named(each) for name, each in value.items()}
    return [named(each) for each in value] if isinstance(value, (list, tuple)) else value
