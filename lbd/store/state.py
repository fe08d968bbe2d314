"""State between turns beside the journal, in its store, and the lock on the directory of both.

Counters and averages are read once; counters are written each turn, and every few turns averages with them. The samples
that slopes are fitted to survive a restart, too.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.errors import RefusedError, UsageError
from lbd.files import (
    DAMAGED,
    FRESH,
    REPLACED,
    STARTS_AGAIN,
    YEAR_10000,
    At,
    as_usage_error,
    growing,
    hold,
    is_found,
    move,
    remove,
)
from lbd.load.capacity import Peak, Peaks, hour_of
from lbd.load.samples import GO_STALE_SECONDS, BrokerSamples
from lbd.model import RESOURCES, Averages, Hits, Memory, PlacementMemory, UsualLoad
from lbd.permit.evidence import Sample
from lbd.permit.progress import Progress
from lbd.permit.slow import HealthRecord
from lbd.pulsar.broker_configuration import SHEDDING_ENABLED
from lbd.pulsar.override_note import TakeOverNote
from lbd.store.arrays import names_of, packed_arrays, packed_names, stored_arrays
from lbd.store.database import (
    LOCK,
    LOST,
    STORE_NAME,
    Database,
    damage,
    json_of,
    json_value,
    lost,
    missing,
    put_json,
    refuse_without_locks,
    writing,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from lbd.model import FloatArray, IntArray


MEMORY, AVERAGES, SAMPLES = "memory", "averages", "samples"
"""Their names in the store."""

AVERAGES_GO_STALE_SECONDS = 15 * 60.0
OWN = "set state_dir, or LBD_STATE_DIR, to a directory that this user may write to"
LOCK_TRIES, LOCK_PAUSE_SECONDS = 3, 0.1


class TurnMemory(msgspec.Struct, frozen=True):
    """The memory that a turn hands to the next one.

    ``members`` are the active brokers last seen, ``members_since`` when that set last changed, ``members_joined`` and
    ``members_left`` how, ``departures`` when brokers went within the last hour. ``changed_at`` is when the owner of a
    bundle changed without lbd, for as long as it rests therefore. ``progress`` is the progress of moves.
    ``hits``, ``loads``, ``unloaded_at`` and ``placing`` are the
    strategy's :class:`~lbd.model.Memory`. ``health`` has the last health checks of each broker. ``counted_by`` is the
    rule by which hits and loads were counted; empty where that was not written down.
    """

    written_at: At = 0.0
    hits: dict[str, Hits] = {}
    samples: dict[str, Sample] = {}
    members: list[str] = []
    members_since: At = 0.0
    members_joined: list[str] = []
    members_left: list[str] = []
    departures: list[At] = []
    changed_at: dict[str, At] = {}
    progress: Progress = Progress()
    loads: dict[str, UsualLoad] = {}
    unloaded_at: dict[str, At] = {}
    placing: PlacementMemory = PlacementMemory()
    health: dict[str, HealthRecord] = {}
    counted_by: str = ""

    @property
    def memory(self) -> Memory:
        """The strategy's memory."""
        return Memory(self.hits, self.loads, self.unloaded_at, self.placing)

    def with_memory(self, memory: Memory) -> TurnMemory:
        """The same with the strategy's new memory."""
        return msgspec.structs.replace(
            self,
            hits=dict(memory.hits),
            loads=dict(memory.loads),
            unloaded_at=dict(memory.unloaded_at),
            placing=memory.placing,
        )

    def at(self, now: float, gap_seconds: float, counted_by: str = "") -> TurnMemory:
        """The part that still holds: after a gap, a clock that went back, or under another rule than they were
        ``counted_by``, counters and averages start from zero.
        """
        unloaded_at = {broker: min(at, now) for broker, at in self.unloaded_at.items()}
        memory = msgspec.structs.replace(self, members_since=min(self.members_since, now), unloaded_at=unloaded_at)
        is_other = bool(self.counted_by and counted_by) and self.counted_by != counted_by
        if 0 <= now - self.written_at <= gap_seconds and not is_other:
            return memory
        return msgspec.structs.replace(memory, hits={}, loads={}, placing=PlacementMemory())


class StateDir:
    """A state directory. Only its holder creates it, once: a directory removed under a running lbd stays gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = path / STORE_NAME
        self._lock_path = path / LOCK
        self._lock: int | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for this process, made where it is missing.

        Raises :class:`RefusedError` when another lbd holds it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.path}: state_dir cannot be created: {error.strerror}; {OWN}") from error
        with ExitStack() as held:
            try:
                held.enter_context(hold(self.path))
                descriptor = growing(self._lock_path, append=False)
            except OSError as error:
                raise UsageError(f"{self.path}: state_dir is not writable: {error.strerror}; {OWN}") from error
            held.callback(os.close, descriptor)
            try:
                _lock(descriptor)
            except BlockingIOError as error:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                raise RefusedError(
                    f"{self.path}: another lbd (process {holder}) works on this state directory"
                ) from error
            refuse_without_locks(descriptor, self._lock_path)
            if not is_found(self._lock_path, descriptor):
                raise RefusedError(f"{self._lock_path}: another lbd has just replaced it; try again")
            if not os.fstat(descriptor).st_size:
                Database.open(self.store).close()
            _sign(descriptor)
            self._tidy()
            self._lock = descriptor
            try:
                yield
            finally:
                self._lock = None

    @property
    def lost(self) -> str:
        """Which part of the directory this process no longer holds, as text; empty while it holds all.

        Another lbd may hold the directory of that name now, and would not see what is written here.
        """
        if self._lock is None or is_found(self._lock_path, self._lock):
            return ""
        what = self._lock_path if self.path.is_dir() else self.path
        return f"{what} {REPLACED}; {STARTS_AGAIN}"

    @property
    def journal_lost(self) -> str:
        """Why the journal is gone, as text; empty where it is there, or nothing was ever written here.

        Raises :class:`UsageError` for a store that cannot be read at all.
        """
        if gone := missing(self.store):
            return gone
        wrong = damage(self.store)
        return f"{self.store} is damaged ({wrong}): {LOST}" if wrong else ""

    def forget_journal(self) -> None:
        """Accept that the journal is lost, and begin anew; its remains stay beside it as ``lbd.db.lost``."""
        with as_usage_error(self.store):
            if os.path.lexists(self.store):
                move(self.store, self.store.with_name(f"{STORE_NAME}.lost"))
            for ending in ("-wal", "-shm"):
                remove(self.store.with_name(f"{STORE_NAME}{ending}"))
        Database.open(self.store, anew=True).close()

    def _tidy(self) -> None:
        """Remove incomplete new files of a killed process; nobody else writes here."""
        with suppress(OSError):
            for path in self.path.glob(f"*{FRESH}"):
                remove(path)

    def load(self) -> TurnMemory:
        """The saved memory; empty when there is none. Raises :class:`UsageError` where it cannot be read."""
        return json_value(self.store, MEMORY, TurnMemory) or TurnMemory()

    def save(self, memory: TurnMemory, averages: tuple[Averages, float] | None = None) -> None:
        """Replace the saved memory, and averages with their time, both or none; on disk when this returns."""
        with writing(self.store) as store:
            store.put({MEMORY: json_of(memory), **(_averages(*averages) if averages is not None else {})})

    def load_averages(self, now: float) -> Averages:
        """The saved averages, unless they are older than 15 minutes, from a later time, or unreadable."""
        try:
            with stored_arrays(self.store, AVERAGES) as file:
                if file is None:
                    return Averages.empty()
                written_at, bundles = float(file["written_at"]), names_of(file["bundles"])
                short, long = (file[name].astype(np.float64, casting="safe") for name in ("short", "long"))
                averages = Averages(bundles, short, long, file["samples"].astype(np.int32, casting="safe"))
        except (*DAMAGED, OSError, UsageError):
            return Averages.empty()
        valid = 0 <= now - written_at <= AVERAGES_GO_STALE_SECONDS and _aligned(averages)
        return averages if valid else Averages.empty()

    def save_averages(self, averages: Averages, now: float) -> None:
        """Replace the saved averages. A power cut may bring the former ones back, which are as good after a minute."""
        with writing(self.store) as store:
            store.put(_averages(averages, now), durable=False)


def _averages(averages: Averages, now: float) -> dict[str, memoryview]:
    columns = {"short": averages.short, "long": averages.long, "samples": averages.samples}
    return {AVERAGES: packed_arrays(written_at=now, bundles=packed_names(averages.bundles), **columns)}


def _sign(descriptor: int) -> None:
    """Write the holder's process id, for people; on a full disk the lock works without it."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _lock(descriptor: int) -> None:
    """``lbd status`` asks with a lock that it holds for microseconds: one refusal is no other lbd yet."""
    for _ in range(LOCK_TRIES - 1):
        with suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(LOCK_PAUSE_SECONDS)
    return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Scratch:
    """A store in memory: for turns that must leave no trace, and for recordings."""

    def __init__(self, memory: TurnMemory | None = None, averages: Averages | None = None) -> None:
        self._memory = memory or TurnMemory()
        self._averages = averages or Averages.empty()

    def load(self) -> TurnMemory:
        """The memory saved last."""
        return self._memory

    def save(self, memory: TurnMemory) -> None:
        """Keep for the next :meth:`load`."""
        self._memory = memory

    def load_averages(self, now: float) -> Averages:
        """The averages saved last, however old."""
        del now
        return self._averages

    def save_averages(self, averages: Averages, now: float) -> None:
        """Keep for the next :meth:`load_averages`."""
        del now
        self._averages = averages


def _aligned(averages: Averages) -> bool:
    size = len(averages.bundles)
    return averages.short.shape == averages.long.shape == (size, 4) and averages.samples.shape == (size,)


# --- counters and averages of a running lbd

AVERAGES_EVERY_SECONDS = 60.0
"""They are large, and the loss of a minute of them after a kill changes a mean of ten samples by one."""


class Remembered:
    """The memory and averages of a :class:`StateDir`, cached for one process. Raises as that does."""

    def __init__(self, state: StateDir) -> None:
        self._state = state
        self._memory: TurnMemory | None = None
        self._averages: Averages | None = None
        self._averaged_at = 0.0
        self._written_at = 0.0

    def load(self) -> TurnMemory:
        """The counters saved last; empty if the directory was lost before they were read."""
        if self._memory is None:
            if self._lost:
                return TurnMemory()
            self._memory = self._state.load()
        return self._memory

    def save(self, memory: TurnMemory) -> None:
        """Save the counters, on disk when the call returns; only in memory if the directory is lost (a hold)."""
        if not self._lost:
            averages = self._due_averages
            self._state.save(memory, averages)
            self._written_at = self._written_at if averages is None else averages[1]
        self._memory = memory

    def load_averages(self, now: float) -> Averages:
        """The averages saved last, unless they are older than 15 minutes or from a later time."""
        if self._averages is None:
            return self._state.load_averages(now)
        fresh = 0 <= now - self._averaged_at <= AVERAGES_GO_STALE_SECONDS
        return self._averages if fresh else Averages.empty()

    def save_averages(self, averages: Averages, now: float) -> None:
        """Keep the averages; once a minute they are saved with the counters."""
        self._averages, self._averaged_at = averages, now

    @property
    def _due_averages(self) -> tuple[Averages, float] | None:
        fresh = 0 <= self._averaged_at - self._written_at < AVERAGES_EVERY_SECONDS
        return None if self._averages is None or fresh else (self._averages, self._averaged_at)

    @property
    def _lost(self) -> str:
        return self._state.lost or lost(self._state.store)

    def close(self) -> None:
        """Write averages that are not on disk yet."""
        if self._averages is not None and self._averaged_at > self._written_at and not self._lost:
            self._state.save_averages(self._averages, self._averaged_at)
            self._written_at = self._averaged_at


# --- samples of brokers


def load_samples(state_dir: Path, now: float) -> Mapping[str, BrokerSamples]:
    """The saved samples of the last day; none where they are missing or unreadable.

    lbd gathers new ones within an hour: that is no reason to stop.
    """
    try:
        with stored_arrays(state_dir / STORE_NAME, SAMPLES) as file:
            samples = _brokers(file) if file is not None else {}
        stale = now - GO_STALE_SECONDS
        recent = {broker: own.where((own.at <= now) & (own.at > stale)) for broker, own in samples.items()}
    except (*DAMAGED, OSError, UsageError):
        return {}
    return {broker: own for broker, own in recent.items() if own.at.size}


def save_samples(state_dir: Path, samples: Mapping[str, BrokerSamples]) -> None:
    """Replace the saved samples. A power cut may bring the former ones back. Raises :class:`~lbd.errors.UsageError`."""
    own = {broker: series for broker, series in samples.items() if series.at.size}
    content = packed_arrays(
        brokers=packed_names(own),
        sizes=np.array([series.at.size for series in own.values()], dtype=np.int64),
        started_at=np.array([series.started_at for series in own.values()], dtype=np.float64),
        hardware=np.array([series.hardware for series in own.values()], dtype=np.float64).reshape(-1, len(RESOURCES)),
        at=_joined([series.at for series in own.values()], (0,)),
        carried=_joined([series.carried for series in own.values()], (0, 4)),
        used=_joined([series.used for series in own.values()], (0, len(RESOURCES))),
        since_change=_joined([series.since_change.astype(np.float64) for series in own.values()], (0,)),
    )
    with writing(state_dir / STORE_NAME) as store:
        store.put({SAMPLES: content}, durable=False)


def _joined(columns: list[FloatArray], empty: tuple[int, ...]) -> FloatArray:
    return np.concatenate(columns) if columns else np.zeros(empty)


def _brokers(file: Mapping[str, FloatArray]) -> dict[str, BrokerSamples]:
    """The samples in the value. Raises ValueError, KeyError or IndexError where its columns do not fit together."""
    names = names_of(file["brokers"])
    times, carried, used = (file[name].astype(np.float64, casting="safe") for name in ("at", "carried", "used"))
    since: IntArray = file["since_change"].astype(np.int32)
    ends = np.cumsum(file["sizes"]).tolist()
    hardware, started_at = file["hardware"], file["started_at"]
    total, brokers = (ends[-1] if ends else 0), len(names)
    shapes = [times.shape, since.shape, carried.shape, used.shape, hardware.shape, started_at.shape]
    expected = [(total,), (total,), (total, 4), (total, 5), (brokers, 5), (brokers,)]
    if shapes != expected or len(ends) != brokers or (np.diff([0, *ends]) < 0).any():
        raise ValueError("columns of unlike length")
    return {
        name: BrokerSamples(
            times[begin:end],
            carried[begin:end],
            used[begin:end],
            since[begin:end],
            tuple(hardware[row].tolist()),
            float(started_at[row]),
        )
        for row, (name, begin, end) in enumerate(zip(names, [0, *ends], ends, strict=False))
    }


# --- peaks of the load by hour, over a week: a restart wants as many brokers as before

PEAKS = "peaks"
"""Their name in the store."""


def load_peaks(state_dir: Path) -> Peaks:
    """The saved peaks; none where there are none. Raises :class:`~lbd.errors.UsageError` where they are damaged."""
    hours = json_value(state_dir / STORE_NAME, PEAKS, tuple[Peak, ...])
    if not all(map(_is_sound, hours or ())):
        raise UsageError(f"{state_dir / STORE_NAME}: {PEAKS} cannot be read: it has an hour that no clock shows")
    return Peaks(hours or ())


def save_peaks(state_dir: Path, peaks: Peaks) -> None:
    """Replace what is kept, on disk when this returns. Raises :class:`~lbd.errors.UsageError`."""
    put_json(state_dir / STORE_NAME, PEAKS, peaks.hours)


def _is_sound(peak: Peak) -> bool:
    """A load that has lasted for minutes may belong to the hour before."""
    return 0 <= peak.at < YEAR_10000 and 0 <= peak.hour - hour_of(peak.at) <= 1


# --- in-broker shedding that lbd took over: what the brokers are owed survives a kill -9

TAKE_OVER = "take-over"
"""Its name in the store."""

_BY_HAND = f"before that set or delete the override of {SHEDDING_ENABLED} by hand"


class KeptTakeOver:
    """The note in the store of a state directory; only the holder of that may change it. Raises :class:`UsageError`."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / STORE_NAME
        self.place = str(self._path)

    def load(self) -> TakeOverNote | None:
        """The note, None when there is none; lbd does not guess what one says that cannot be read."""
        try:
            return json_value(self._path, TAKE_OVER, TakeOverNote)
        except UsageError as error:
            raise UsageError(f"{error}; {_BY_HAND}") from error

    def save(self, note: TakeOverNote) -> None:
        """Replace the note, on disk when this returns."""
        try:
            put_json(self._path, TAKE_OVER, note)
        except UsageError as error:
            raise UsageError(f"{error}; without it nothing is taken over or given back") from error

    def remove(self) -> None:
        """Forget the take-over."""
        try:
            with writing(self._path) as store:
                store.remove(TAKE_OVER)
        except UsageError as error:
            raise UsageError(f"{error}; shedding is given back, and lbd release removes the note on it") from error
