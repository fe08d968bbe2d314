"""What is kept between turns beside the journal: counters and samples, the averages, and the lock on both."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.errors import RefusedError, UsageError
from lbd.files import DAMAGED
from lbd.model import Averages, Hits, Load, Memory, Placing
from lbd.permit.evidence import Sample
from lbd.permit.progress import Progress
from lbd.record.journal.segments import LIVE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = 1
AVERAGES_GO_STALE_SECONDS = 15 * 60.0
OWN = "set state_dir, or LBD_STATE_DIR, to a directory that this user may write to"
LOCK_TRIES, LOCK_PAUSE_SECONDS = 3, 0.1


class Kept(msgspec.Struct, frozen=True):
    """``memory.json``: what a turn hands to the next one.

    ``members`` are the active brokers last seen, ``members_since`` when that set last changed, ``departures`` when
    brokers went within the last hour. ``changed_at`` is when the owner of a bundle changed without lbd, for as long as
    it rests therefore. ``progress`` is what moves came to.
    ``hits``, ``loads``, ``unloaded_at`` and ``placing`` are the strategy's :class:`~lbd.model.Memory`.
    """

    format: int = FORMAT
    written_at: float = 0.0
    hits: dict[str, Hits] = {}
    samples: dict[str, Sample] = {}
    members: list[str] = []
    members_since: float = 0.0
    departures: list[float] = []
    changed_at: dict[str, float] = {}
    progress: Progress = Progress()
    loads: dict[str, Load] = {}
    unloaded_at: dict[str, float] = {}
    placing: Placing = Placing()

    @property
    def memory(self) -> Memory:
        """What the strategy is asked with."""
        return Memory(self.hits, self.loads, self.unloaded_at, self.placing)

    def with_memory(self, memory: Memory) -> Kept:
        """The same with what the strategy answered."""
        return msgspec.structs.replace(
            self,
            hits=dict(memory.hits),
            loads=dict(memory.loads),
            unloaded_at=dict(memory.unloaded_at),
            placing=memory.placing,
        )

    def at(self, now: float, gap_seconds: float) -> Kept:
        """The part that still holds: after a gap, or a clock that went back, counters and averages start anew."""
        unloaded_at = {broker: min(at, now) for broker, at in self.unloaded_at.items()}
        known = msgspec.structs.replace(self, members_since=min(self.members_since, now), unloaded_at=unloaded_at)
        if 0 <= now - self.written_at <= gap_seconds:
            return known
        return msgspec.structs.replace(known, hits={}, loads={}, placing=Placing())


class StateDir:
    """A state directory, created when missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: state_dir cannot be created: {error.strerror}; {OWN}") from error
        self.journal = path / LIVE_NAME

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for this process. Raises :class:`RefusedError` when another lbd holds it."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UsageError(f"{self.path}: state_dir is not writable: {error.strerror}; {OWN}") from error
        try:
            try:
                _lock(descriptor)
            except BlockingIOError as error:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                raise RefusedError(
                    f"{self.path}: another lbd (process {holder}) works on this state directory"
                ) from error
            _sign(descriptor)
            yield
        finally:
            os.close(descriptor)

    def load(self) -> Kept:
        """The kept memory; empty when there is none. A broken or newer file is a :class:`UsageError`."""
        path = self.path / "memory.json"
        try:
            kept = msgspec.convert(json.loads(path.read_bytes()), type=Kept, strict=False)
        except FileNotFoundError:
            return Kept()
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read: {error}; remove it to start with empty counters") from error
        if kept.format != FORMAT:
            raise UsageError(
                f"{path}: format {kept.format}, this lbd reads {FORMAT}; remove it to start with empty counters"
            )
        return kept

    def save(self, kept: Kept) -> None:
        """Replace the kept memory at once or not at all. A sample of 2.11 holds NaN, which msgspec's JSON has not."""
        self._replace("memory.json", json.dumps(msgspec.to_builtins(kept)).encode())

    def load_averages(self, now: float) -> Averages:
        """The kept averages, unless they are older than 15 minutes, from a later time, or unreadable."""
        path = self.path / "averages.npz"
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                written_at = float(file["written_at"])
                bundles = file["bundles"].tobytes().decode().split("\n") if file["bundles"].size else []
                short, long = (file[name].astype(np.float64, casting="safe") for name in ("short", "long"))
                found = Averages(bundles, short, long, file["samples"].astype(np.int32, casting="safe"))
        except (*DAMAGED, OSError):
            return Averages.empty()
        return found if 0 <= now - written_at <= AVERAGES_GO_STALE_SECONDS and _aligned(found) else Averages.empty()

    def save_averages(self, averages: Averages, now: float) -> None:
        """Replace the kept averages at once or not at all."""
        buffer = BytesIO()
        names = np.frombuffer("\n".join(averages.bundles).encode(), dtype=np.uint8)
        np.savez(
            buffer, written_at=now, bundles=names, short=averages.short, long=averages.long, samples=averages.samples
        )
        self._replace("averages.npz", buffer.getvalue())

    def _replace(self, name: str, content: bytes) -> None:
        target, fresh = self.path / name, self.path / f"{name}.new"
        try:
            with fresh.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(target)
        except OSError as error:
            raise UsageError(f"{target}: cannot be written: {error.strerror}") from error


def _sign(descriptor: int) -> None:
    """Who holds it, for people; on a full disk the lock holds without."""
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
    """The same for one process only: for turns that must leave no trace, and for recordings."""

    def __init__(self, kept: Kept | None = None, averages: Averages | None = None) -> None:
        self._kept = kept or Kept()
        self._averages = averages or Averages.empty()

    def load(self) -> Kept:
        """What was saved last."""
        return self._kept

    def save(self, kept: Kept) -> None:
        """Keep for the next :meth:`load`."""
        self._kept = kept

    def load_averages(self, now: float) -> Averages:
        """What was saved last, however old."""
        del now
        return self._averages

    def save_averages(self, averages: Averages, now: float) -> None:
        """Keep for the next :meth:`load_averages`."""
        del now
        self._averages = averages


def _aligned(found: Averages) -> bool:
    size = len(found.bundles)
    return found.short.shape == found.long.shape == (size, 4) and found.samples.shape == (size,)
