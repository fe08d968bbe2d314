"""Moves and splits of a journal: all of them, the open ones, or the newest, also while another process writes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from math import inf
from typing import IO, TYPE_CHECKING

import msgspec

from lbd.errors import UsageError
from lbd.fields import derived, shared
from lbd.files import reading
from lbd.model import BundleClients, Result  # noqa: TC001 - the document of the API is made from the fields
from lbd.permit.served import Served  # noqa: TC001 - as above
from lbd.split.plan import Cut, SplitResult
from lbd.store.append_log import LIVE_NAME, rotated
from lbd.store.journal_lines import (
    LONGEST_LINE,
    Entry,
    Intent,
    OutcomeLine,
    PlacementLine,
    ServedLine,
    SplitEnded,
    SplitIntent,
    decoded,
    entries,
    lines_with,
)
from lbd.text import HOUR_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


_AMENDED, _SERVED = b'"amended":true', b'"event":"served"'


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """One attempt to move a bundle. Times are epoch seconds, ``msg_rate`` messages/s, ``throughput`` bytes/s.

    While it is open, or when nobody ever wrote how it ended, ``result`` and ``ended_at`` are None. ``source`` is empty
    where a bundle that nobody owned was placed. ``served``: whether the bundle's clients are back, None while that is
    not known, and of a move that did not land; ``reconnect_seconds`` from the request until they were.
    """

    move: str
    at: float
    bundle: str
    source: str
    destination: str | None
    attempt: int = 1
    msg_rate: float = 0.0
    throughput: float = 0.0
    reason: str = ""
    result: Result | None = None
    owner: str | None = None
    detail: str = ""
    seconds: float = 0.0
    ended_at: float | None = None
    clients_before: BundleClients | None = None
    clients_after: BundleClients | None = None
    served: Served | None = None
    reconnect_seconds: float | None = None
    served_detail: str = ""


class History(Iterator[MoveRecord]):
    """Each move once, in the order in which they were intended; ``torn_lines`` counts the lines passed over so far.

    A move in two files, as after a kill while rotating, is returned once. Moves are returned in order: a move that was
    never concluded keeps all later ones in memory, at most all that the files have. Lines that follow an outcome are
    read first: amended outcomes, and whether clients are back.
    """

    def __init__(self, path: Path) -> None:
        self.torn_lines = 0
        self._waiting: OrderedDict[str, MoveRecord] = OrderedDict()
        self._known: set[str] = set()
        self._moves = self._joined(path)

    def __next__(self) -> MoveRecord:
        return next(self._moves)

    def _joined(self, path: Path) -> Iterator[MoveRecord]:
        later = _later_lines(path)
        for entry in all_entries(path):
            if isinstance(entry, Intent | PlacementLine):
                if entry.move in self._known:
                    continue
                self._known.add(entry.move)
            self.torn_lines += entry is None
            joined(self._waiting, entry)
            if isinstance(entry, OutcomeLine | PlacementLine):
                yield from self._concluded(later)
        yield from self._waiting.values()

    def _concluded(self, later: Mapping[str, Sequence[OutcomeLine | ServedLine]]) -> Iterator[MoveRecord]:
        while self._waiting and next(iter(self._waiting.values())).result is not None:
            name, move = self._waiting.popitem(last=False)
            for entry in later.get(name, ()):
                move = _ended(move, entry) if isinstance(entry, OutcomeLine) else _with(move, entry)
            yield move


def joined(moves: MutableMapping[str, MoveRecord], entry: Entry | None) -> None:
    """Add one more line to ``moves``, by id: each move once, in the order in which they were intended."""
    match entry:
        case Intent():
            moves.setdefault(entry.move, derived(MoveRecord, entry))
        case PlacementLine():
            started_at = entry.at - entry.seconds
            moves.setdefault(entry.move, derived(MoveRecord, entry, at=started_at, source="", ended_at=entry.at))
        case OutcomeLine():
            move = moves.get(entry.move)
            if move is not None and (move.result is None or entry.amended):
                moves[entry.move] = _ended(move, entry)
        case ServedLine():
            if entry.move in moves:
                moves[entry.move] = _with(moves[entry.move], entry)


def _ended(move: MoveRecord, entry: OutcomeLine) -> MoveRecord:
    """The move with its outcome. An amended outcome keeps the end and the duration of the first one."""
    return _with(move, entry, **({"seconds": move.seconds} if entry.amended else {"ended_at": entry.at}))


def _with(move: MoveRecord, entry: OutcomeLine | ServedLine, **more: float) -> MoveRecord:
    """The move with the fields of a later line, except the line's own time."""
    return replace(move, **{**shared(MoveRecord, entry), "at": move.at, "bundle": move.bundle, **more})


def _later_lines(path: Path) -> dict[str, list[OutcomeLine | ServedLine]]:
    """The lines that follow the outcome of a move, by move. Only lines that look like one are decoded."""
    lines: dict[str, list[OutcomeLine | ServedLine]] = {}
    for file in (*rotated(path), path):
        for line in lines_with(file, _AMENDED, _SERVED):
            entry = decoded(line, file)
            if isinstance(entry, ServedLine) or (isinstance(entry, OutcomeLine) and entry.amended):
                lines.setdefault(entry.move, []).append(entry)
    return lines


def history(where: Path) -> History:
    """All moves of the journal in a state directory, or of the journal whose live file is ``where``.

    Nothing there is no moves. Raises :class:`~lbd.errors.UsageError`, while it is read, for a file that cannot be read
    or is of a newer format.
    """
    return History(where / LIVE_NAME if where.is_dir() else where)


def all_entries(path: Path) -> Iterator[Entry | None]:
    """The live file is opened before the others are listed: one that is rotated meanwhile is among them then."""
    live = entries(path)
    first = list(islice(live, 1))
    older = chain.from_iterable(entries(file) for file in rotated(path))
    return (entry for entry, _ in chain(older, first, live))


# --- splits: those without an outcome, those of the last day (which the budget counts), or all

STEP_SECONDS = 2.0
"""A clock that goes a little too fast or too slow is not one that was set."""


@dataclass(frozen=True)
class Now:
    """The time: ``now`` as clocks show it (epoch seconds), ``up`` on the clock that nobody can set, None if unknown."""

    now: float
    up: float | None = None

    def shown(self, at: float, up: float | None) -> float:
        """The time of an event ``at`` and ``up`` on the clock as it is set now, the later one of both.

        So cool-downs and budgets last for as long as the slower of the two clocks says. An ``at`` later than now was
        written before the clock was set back; then ``up`` alone decides.
        """
        if up is None or self.up is None:
            return min(at, self.now)
        known = self.now - max(self.up - up, 0.0)
        return known if at > self.now or known > at + STEP_SECONDS else at

    def settled(self, at: float, up: float | None) -> float:
        """The same for a time that is stored: a time that has passed stays as it is."""
        return at if at <= self.now else self.shown(at, up)


ALWAYS = Now(inf)
"""Whenever it was: times stay as they were written."""


@dataclass(frozen=True)
class SplitRecord:
    """One split that was requested at ``at`` (epoch seconds). ``ended`` is None while it is open."""

    at: float
    cut: Cut
    ended: SplitEnded | None = None

    @property
    def may_have_cut(self) -> bool:
        """Whether it counts: anything but a range that is known to have stayed whole."""
        return self.ended is None or self.ended.result is not SplitResult.NOT_SPLIT


def within_hour(splits: Iterable[SplitRecord], now: float) -> int:
    """Splits within the hour before ``now``; those that certainly cut nothing are not counted."""
    return sum(one.at > now - HOUR_SECONDS and one.may_have_cut for one in splits)


def split_or_attempted(attempted_at: Mapping[str, float], splits: Iterable[SplitRecord]) -> dict[str, float]:
    """The last attempt on each bundle, or when it came out of a split, whichever was later.

    Parts may be moved at once, and are not split again so soon.
    """
    latest = dict(attempted_at)
    for outcome in (split.ended for split in splits if split.ended is not None):
        latest |= {part: max(latest.get(part, 0.0), outcome.at) for part in outcome.parts}
    return latest


def read_splits(where: Path) -> list[SplitRecord]:
    """All splits of the journal in a state directory, in the order in which they were intended.

    Raises :class:`~lbd.errors.UsageError` for a file that cannot be read or is of a newer format.
    """
    splits = SplitHistory()
    for entry in all_entries(where / LIVE_NAME):
        match entry:
            case SplitIntent():
                splits.begin(entry, b"")
            case SplitEnded():
                splits.end(entry, b"")
    return sorted(splits.all(), key=lambda split: split.at)


class SplitHistory:
    """The splits of the lines so far, in the order in which they were written."""

    def __init__(self, boot: str = "") -> None:
        self._boot = boot
        self._splits: dict[str, tuple[SplitRecord, bytes]] = {}
        self._up: dict[str, float] = {}

    def begin(self, entry: SplitIntent, line: bytes) -> None:
        """Add an intent."""
        self._splits[entry.split] = (SplitRecord(entry.at, derived(Cut, entry)), line.strip() + b"\n")
        if entry.up is not None and self._boot and entry.boot == self._boot:
            self._up[entry.split] = entry.up

    def knows(self, split: str) -> bool:
        """Whether its intent is among the lines."""
        return split in self._splits

    def end(self, entry: SplitEnded, line: bytes) -> None:
        """Add an outcome."""
        if entry.split in self._splits:
            split, intent = self._splits[entry.split]
            self._splits[entry.split] = (replace(split, ended=entry), intent + line.strip() + b"\n")

    def settle(self, time: Now, keep_seconds: float) -> None:
        """Forget splits that are too old, except the open ones; times later than now become now."""
        since = time.now - keep_seconds
        self._splits = {
            name: (replace(split, at=time.settled(split.at, self._up.get(name))), lines)
            for name, (split, lines) in self._splits.items()
            if split.ended is None or time.shown(split.at, self._up.get(name)) > since
        }

    def open(self) -> tuple[tuple[str, SplitRecord], ...]:
        """Splits without an outcome, with their ids, oldest first."""
        return tuple((name, split) for name, (split, _) in self._splits.items() if split.ended is None)

    def all(self, time: Now = ALWAYS) -> tuple[SplitRecord, ...]:
        """The splits of the last day, and the open ones, with times on the clock as it is set now."""
        return tuple(self._shown(name, split, time) for name, (split, _) in self._splits.items())

    def _shown(self, name: str, split: SplitRecord, time: Now) -> SplitRecord:
        """A split takes seconds: its end is as much later as it was written."""
        at = time.shown(split.at, self._up.get(name))
        if at == split.at or split.ended is None:
            return replace(split, at=at)
        ended_at = max(at, split.ended.at + (at - split.at))
        return replace(split, at=at, ended=msgspec.structs.replace(split.ended, at=min(ended_at, time.now)))

    def lines(self) -> Iterator[bytes]:
        """The lines that give the same state when they are read."""
        yield from (lines for _, lines in self._splits.values())


# --- newest moves of a journal that another process writes: each call reads only what is new

MOST_MOVES = 1000
"""Moves in memory, those under way included. At least half of a file that has been rotated is new: some 6,000 moves."""


class Following:
    """Follows the journal of a state directory. Thread-safe.

    The first call reads the live file and the one before it, further calls only what was appended since.
    """

    def __init__(self, state_dir: Path, limit: int = MOST_MOVES) -> None:
        self._path, self._limit = state_dir / LIVE_NAME, limit
        self._lock = threading.Lock()
        self._moves: OrderedDict[str, MoveRecord] = OrderedDict()
        self._inode: int | None = None
        self._at = 0

    def newest(self, last: int) -> list[MoveRecord]:
        """So many moves, those under way included, the newest first; at most ``limit``.

        Raises :class:`UsageError` for a file that cannot be read or is of a newer format.
        """
        with self._lock:
            try:
                self._look()
            except FileNotFoundError:
                pass  # nothing was ever moved
            except OSError as error:
                raise UsageError(f"{self._path}: journal cannot be read: {error.strerror}") from error
            moves = list(self._moves.values())
        return moves[: -last - 1 : -1]

    def _look(self) -> None:
        """The live file is opened before the older ones are listed: one that is rotated meanwhile is among them."""
        with reading(self._path) as live:
            stat = os.fstat(live.fileno())
            if stat.st_ino == self._inode and stat.st_size < self._at:
                self._moves.clear()  # the disk was full, and what could not be written was taken back
                self._inode = None
            if stat.st_ino != self._inode:
                self._read_older()
                self._inode, self._at = stat.st_ino, 0
            self._read(live)

    def _read_older(self) -> None:
        """Read the rest of the file that was live at the last call, and later files; the newest one if that is gone."""
        files = rotated(self._path)
        for at, path in enumerate(files):
            if path.stat().st_ino == self._inode:
                files = files[at:]
                break
        else:
            files, self._at = files[-1:], 0
        for path in files:
            with reading(path) as file:
                self._read(file)
            self._at = 0

    def _read(self, file: IO[bytes]) -> None:
        """Read whole lines: a line that is being written is complete at the next call."""
        file.seek(self._at)
        while line := file.readline(LONGEST_LINE):
            if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                return
            joined(self._moves, decoded(line, self._path))
            self._at += len(line)
            if len(self._moves) > self._limit:
                self._forget()

    def _forget(self) -> None:
        """Forget the oldest finished move: an open one stands in the next file again, and would count as new there."""
        finished = (name for name, move in self._moves.items() if move.result is not None)
        if (oldest := next(finished, None)) is not None:
            del self._moves[oldest]
