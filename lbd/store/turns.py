"""Kept turns for ``lbd explain``: observations, decisions and reasons of each turn.

A failure to keep a turn never stops the balancing. One JSON object per line (``turn_record.py``) in ``turns/`` of the
state directory. Quiet turns with the same message as the one before are counted on one line beside it.
``turns/bundles.npz`` has each bundle's recent owner and why it stayed. Everything can be read with a running lbd or
without.
"""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from lbd.errors import UsageError
from lbd.files import DAMAGED, make_directory, reading, refused, remove, replace, replacing
from lbd.files import growing as opened
from lbd.reason import Reason
from lbd.store.turn_record import FORMAT, PairRecord, Same, TurnRecord, TurnsHeader, decoded, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.model import CodeArray, FloatArray, IntArray


MAX_BYTES = 64 << 20
"""Disk space for turns; the oldest are removed first. At the default interval that is more than a month of ten
brokers, or weeks of a hundred."""


# --- files: one that grows, and older ones, compressed; each is named by its first turn
# A kill may tear the last line of the growing file, and leave a file both plain and compressed; neither loses a turn
# that was kept before. Only compressed files are synced: after a power cut the last turns may be missing.

PLAIN, PACKED = ".jsonl", ".jsonl.gz"
DIGITS = 12
PACKING_LEVEL = 5
"""Turns are alike: a higher level takes twice the time for a tenth of the bytes."""

LONGEST_LINE = 64 << 20


class Tail:
    """The growing file. ``write`` appends whole lines, ``rewrite`` replaces the last line."""

    def __init__(self, path: Path) -> None:
        """Open or create it. Raises OSError."""
        self.path = path
        self._descriptor = opened(path, append=False)
        self.size = os.fstat(self._descriptor).st_size
        self._torn = self.size > 0 and os.pread(self._descriptor, 1, self.size - 1) != b"\n"

    def write(self, lines: bytes) -> int:
        """Append; returns where the lines begin. Raises OSError, after an incomplete write is undone."""
        start = self.size + self._torn
        try:
            self._put(b"\n" + lines if self._torn else lines, self.size)
        except OSError:
            self._cut(self.size)
            raise
        self._torn, self.size = False, start + len(lines)
        return start

    def rewrite(self, line: bytes, start: int) -> None:
        """Replace the last line, which began at ``start``; it never gets shorter. Raises OSError."""
        try:
            self._put(line, start)
        except OSError:
            self._cut(start)
            raise
        self.size = start + len(line)

    def close(self) -> None:
        """Close the file, once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _put(self, content: bytes, at: int) -> None:
        remaining = memoryview(content)
        while remaining:
            written = os.pwrite(self._descriptor, remaining, at)
            remaining, at = remaining[written:], at + written

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
            self.size = size
        except OSError:
            self._torn, self.size = True, os.fstat(self._descriptor).st_size


def files(folder: Path) -> list[Path]:
    """The files, oldest first; of one that is both plain and compressed the plain one."""
    paths: dict[int, Path] = {}
    for ending in (PACKED, PLAIN):
        for path in folder.glob(f"*{ending}"):
            stem = path.name.removesuffix(ending)
            if stem.isascii() and stem.isdigit():
                paths[int(stem)] = path
    return [paths[first] for first in sorted(paths)]


def first_turn(path: Path) -> int:
    """The turn that a file is named by."""
    return int(path.name.partition(".")[0])


def segment_path(folder: Path, turn: int) -> Path:
    """The plain file that begins with a turn."""
    return folder / f"{turn:0{DIGITS}d}{PLAIN}"


def segment_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, as far as they can be read: a compressed one may be cut off or damaged. Raises OSError."""
    with reading(path) as raw:
        file = gzip.GzipFile(fileobj=raw) if path.name.endswith(PACKED) else raw
        try:
            while line := file.readline(LONGEST_LINE):
                yield line
        except (EOFError, zlib.error, gzip.BadGzipFile):
            yield b"\0"


def growing(folder: Path, max_bytes: int) -> Path | None:
    """The file to go on with after a start; None where there is none, or it is full. Raises OSError."""
    newest = files(folder)[-1:]
    return next((path for path in newest if path.name.endswith(PLAIN) and path.stat().st_size <= max_bytes), None)


def packed(path: Path) -> Path:
    """The name of a file once it is compressed."""
    return path.with_name(path.name.partition(".")[0] + PACKED)


def pack(path: Path) -> None:
    """Compress a file that grows no more. Raises OSError, and the plain one is still there then."""
    with (
        reading(path) as source,
        replacing(packed(path)) as target,
        gzip.GzipFile(fileobj=target, mode="wb", compresslevel=PACKING_LEVEL, mtime=0) as stream,
    ):
        shutil.copyfileobj(source, stream, 1 << 20)
    remove(path)


def prune(folder: Path, max_bytes: int) -> None:
    """Remove the oldest files until the rest fits, and never the growing one. Raises OSError."""
    sizes = {path: path.stat().st_size for path in files(folder)}
    total = sum(sizes.values())
    for path in list(sizes)[:-1]:
        if total <= max_bytes:
            return
        remove(path)
        total -= sizes[path]


# --- ``turns/bundles.npz``

NAME = "bundles.npz"


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
        own = ((name, at) for at, name in enumerate(self.bundles) if name.startswith(f"{namespace}/0x"))
        return [(name, self._of(at)) for name, at in own]

    def _of(self, at: int) -> ReportedBundle:
        owner, label = self.brokers[int(self.owner[at])], Reason.of(int(self.codes[at])).label
        return ReportedBundle(self.at, owner, label, *map(float, self.rates[at]))


def save_bundles(folder: Path, reported: ReportedBundles) -> None:
    """Replace the file, at once or not at all; not synced, since it is rewritten all the time. Raises OSError."""
    buffer = BytesIO()
    names = np.frombuffer("\n".join(reported.bundles).encode(errors="replace"), dtype=np.uint8)
    brokers = np.frombuffer("\n".join(reported.brokers).encode(errors="replace"), dtype=np.uint8)
    with np.errstate(over="ignore"):  # of a broken report; nothing is decided on it
        rates = reported.rates.astype(np.float32)
    owner, codes = reported.owner, reported.codes
    np.savez(buffer, at=reported.at, bundles=names, brokers=brokers, owner=owner, codes=codes, rates=rates)
    replace(folder / NAME, buffer.getbuffer(), durable=False)


def load_bundles(folder: Path) -> ReportedBundles | None:
    """The bundles saved last; None if there are none. Raises :class:`UsageError` for a file that cannot be read."""
    path = folder / NAME
    try:
        with reading(path) as raw, np.load(raw, allow_pickle=False) as file:
            bundles, brokers = (file[name].tobytes().decode().split("\n") for name in ("bundles", "brokers"))
            columns = file["owner"], file["codes"], file["rates"].astype(np.float64)
            reported = ReportedBundles(float(file["at"]), tuple(brokers), bundles, *columns)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(path, error, "read") from error
    except DAMAGED as error:
        raise _torn(path) from error
    if not _aligned(reported):
        raise _torn(path)
    return reported


def _torn(path: Path) -> UsageError:
    mends = "lbd run writes it anew every few turns; without it, moves alone are told"
    return UsageError(f"{path}: is torn or not of this format; {mends}")


def _aligned(reported: ReportedBundles) -> bool:
    size = len(reported.bundles)
    shapes = (reported.owner.shape, reported.codes.shape, reported.rates.shape)
    known = reported.owner.size == 0 or (reported.owner.min() >= 0 and reported.owner.max() < len(reported.brokers))
    return shapes == ((size,), (size,), (size, 2)) and bool(known)


# --- reading, the newest first: most questions are about recent turns


class KeptTurns:
    """The turns kept in a folder, read when needed; ``torn_lines`` counts the lines passed over so far.

    Iterating raises :class:`~lbd.errors.UsageError` for a file that cannot be read, or is of a newer format.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._newest: tuple[Path, list[TurnRecord]] | None = None
        self._torn: dict[Path, int] = {}

    @property
    def torn_lines(self) -> int:
        """Lines that could not be read, in the files read so far."""
        return sum(self._torn.values())

    def __iter__(self) -> Iterator[TurnRecord]:
        """Every turn, the newest first."""
        files = self._files()
        for path in reversed(files):
            yield from reversed(self._newest_turns(path) if path == files[-1] else self._turns(path))

    def find(self, number: int) -> TurnRecord | None:
        """The turn of this number, or the record of quiet turns that includes it."""
        before = [path for path in self._files() if first_turn(path) <= number]
        turns = (turn for path in before[-1:] for turn in self._turns(path))
        return next((turn for turn in turns if turn.turn <= number <= turn.last), None)

    def oldest(self) -> int:
        """Number of the oldest turn that is kept; 0 when nothing is."""
        return next((turn.turn for path in self._files() for turn in self._turns(path)), 0)

    def _files(self) -> list[Path]:
        try:
            return files(self._folder)
        except OSError as error:
            raise refused(self._folder, error, "read") from error

    def _newest_turns(self, path: Path) -> list[TurnRecord]:
        """The turns of the newest file, which is read once: every question begins with it."""
        if self._newest is None or self._newest[0] != path:
            self._newest = path, self._turns(path)
        return self._newest[1]

    def _turns(self, path: Path) -> list[TurnRecord]:
        """A file's turns, oldest first; one that was removed meanwhile has none, one that was packed is read so."""
        for candidate in (path, packed(path)):
            try:
                return self._joined(candidate)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise refused(path, error, "read") from error
        return []

    def _joined(self, path: Path) -> list[TurnRecord]:
        turns: list[TurnRecord] = []
        self._torn[path] = 0
        for line in segment_lines(path):
            match decoded(line) if line.strip() else TurnsHeader(FORMAT):
                case None:
                    self._torn[path] += 1
                case TurnRecord() as turn:
                    turns.append(turn)
                case Same() as same if turns and turns[-1].turn == same.turn:
                    turns[-1] = msgspec.structs.replace(turns[-1], repeated=same.repeated, until=same.until)
                case TurnsHeader(format=form) if form > FORMAT:
                    raise UsageError(f"{path}: kept turns of format {form}, this lbd reads up to {FORMAT}")
        return turns


def last_number(folder: Path) -> int:
    """Number of the last turn in the folder, 0 for none. Raises OSError."""
    newest = files(folder)[-1:]
    numbers = [first_turn(path) for path in newest]
    for path in newest:
        for line in segment_lines(path):
            match decoded(line):
                case TurnRecord() as turn:
                    numbers.append(turn.turn)
                case Same() as same:
                    numbers.append(same.turn + same.repeated)
    return max(numbers, default=0)


# --- writing

TURNS_FOLDER = "turns"
FILES = 16
"""The growing file is at most this part of all: so much goes at once when room is made."""

FULL_EVERY_SECONDS = 60.0
"""Scores of a calm cluster are kept once a minute: brokers sample CPU no more often."""

SAME_WIDTH = 96
"""Length of all lines that are overwritten, so that a new line replaces the old one completely."""


class Turns:
    """The writer of kept turns; only the holder of the state directory may be one.

    ``trouble`` is one line on why turns are not kept at present, empty when they are. Nothing here raises.
    """

    def __init__(self, state_dir: Path, max_bytes: int = MAX_BYTES) -> None:
        self._folder, self._max_bytes = state_dir / TURNS_FOLDER, max_bytes
        self.trouble, self._lost = "", 0
        self._tail: Tail | None = None
        self._before: TurnRecord | None = None
        self._same_at: int | None = None
        self._number = 0
        try:
            self._number = last_number(self._folder)
        except OSError as error:
            self._fail(error)

    def keep(self, turn: TurnRecord) -> int:
        """Write a turn and return its number, which it has even if it could not be written."""
        self._number += 1
        try:
            self._put(msgspec.structs.replace(turn, turn=self._number))
        except OSError as error:
            self._fail(error)
        else:
            self.trouble, self._lost = "", 0
        return self._number

    def close(self) -> None:
        """Close what is open."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _put(self, turn: TurnRecord) -> None:
        if self._before is not None and self._tail is not None and _quiet(self._before, turn):
            self._repeat(self._before, turn, self._tail)
            return
        tail = self._opened(turn.turn)
        tail.write(encoded(turn))
        self._before, self._same_at = turn, None
        if tail.size > self._max_bytes // FILES:
            self._set_aside()

    def _repeat(self, before: TurnRecord, turn: TurnRecord, tail: Tail) -> None:
        line = encoded(Same(before.turn, before.repeated + 1, turn.at))[:-1].ljust(SAME_WIDTH) + b"\n"
        if self._same_at is None:
            self._same_at = tail.write(line)
        else:
            tail.rewrite(line, self._same_at)
        self._before = msgspec.structs.replace(before, repeated=before.repeated + 1, until=turn.at)

    def _opened(self, number: int) -> Tail:
        """The growing file, or a new one where the newest is full."""
        if self._tail is None:
            make_directory(self._folder)
            newest = growing(self._folder, self._max_bytes // FILES)
            self._tail = Tail(newest or segment_path(self._folder, number))
            if self._tail.size == 0:
                self._tail.write(encoded(TurnsHeader(FORMAT)))
        return self._tail

    def _set_aside(self) -> None:
        """Close and compress a full file. If that fails, as on a full disk, it is tried again later."""
        self.close()
        self._before = None
        prune(self._folder, self._max_bytes - self._max_bytes // FILES)
        for path in files(self._folder):
            if path.name.endswith(PLAIN):
                with suppress(OSError):
                    pack(path)

    def _fail(self, error: OSError) -> None:
        """Note the failure, and open the file again with the next turn; balancing goes on."""
        self._lost += 1
        self.close()
        self._before = None
        number = "the last turn is" if self._lost == 1 else f"the last {self._lost:,} turns are"
        self.trouble = (
            f"{self._folder}: cannot be written: {error.strerror or error}; {number} not kept for lbd explain, "
            "balancing goes on"
        )


def _quiet(before: TurnRecord, turn: TurnRecord) -> bool:
    """Whether nothing happened, the message is the same, and no sample a minute newer than the kept one is lost."""
    if any(one.outcomes or one.refused or (one.acts and one.unloads) for one in (before, turn)):
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
    crowded = [(one.group, one.broker) for one in turn.crowded]
    return verdict, hold, plan, turn.acts, turn.error, turn.unfinished, pairs, skips, brokers, crowded, turn.dear_kinds


def _pair_reason(pair: PairRecord) -> str | None:
    """A turn without a new sample waits like the one before it."""
    return "waiting" if pair.reason == "no-new-sample" else pair.reason


# --- kept turns and moves as JSON


def named(value: object) -> Any:  # noqa: ANN401 - JSON
    """The same with every field under its name: on disk many stand in arrays, to save room."""
    if isinstance(value, msgspec.Struct):
        return {name: named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: named(each) for name, each in value.items()}
    return [named(each) for each in value] if isinstance(value, (list, tuple)) else value
