"""Moves and splits of a journal: all of them, or the newest, also while another process writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

import msgspec

from lbd.fields import derived, shared
from lbd.model import BundleClients, Result  # noqa: TC001 - the document of the API is made from the fields
from lbd.permit.served import Served  # noqa: TC001 - as above
from lbd.split.plan import Cut, SplitResult
from lbd.store.database import STORE_NAME, reading
from lbd.store.journal_lines import (
    Entry,
    Intent,
    OutcomeLine,
    PlacementLine,
    ServedLine,
    SplitEnded,
    SplitIntent,
    decoded,
)
from lbd.text import HOUR_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping
    from pathlib import Path


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


def joined(moves: MutableMapping[str, MoveRecord], entry: Entry) -> None:
    """Add one more entry to ``moves``, by id: each move once, in the order in which they were intended."""
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


def history(state_dir: Path) -> list[MoveRecord]:
    """All moves of the journal in a state directory, in the order in which they were intended; none without a journal.

    Raises :class:`~lbd.errors.UsageError` for a store that cannot be read.
    """
    return _moves(state_dir, "SELECT CAST(entry AS BLOB) FROM journal ORDER BY number")


MOST_MOVES = 1000
"""Most moves that the page gets for a range of time."""

NEWEST = """
SELECT CAST(entry AS BLOB) FROM journal WHERE move IN (
    SELECT move FROM journal WHERE event IN ('intent', 'placing') ORDER BY number DESC LIMIT ?
) ORDER BY number
"""


def newest_moves(state_dir: Path, last: int) -> list[MoveRecord]:
    """The last moves, those under way included, the newest first. Raises as :func:`history`."""
    return _moves(state_dir, NEWEST, last)[::-1]


def _moves(state_dir: Path, query: str, *values: object) -> list[MoveRecord]:
    moves: dict[str, MoveRecord] = {}
    for entry in _entries(state_dir, query, *values):
        joined(moves, entry)
    return list(moves.values())


def _entries(state_dir: Path, query: str, *values: object) -> list[Entry]:
    with reading(state_dir / STORE_NAME) as store:
        return [decoded(entry) for (entry,) in store.rows(query, *values)] if store is not None else []


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
        by_up = self.now - max(self.up - up, 0.0)
        return by_up if at > self.now or by_up > at + STEP_SECONDS else at

    def settled(self, at: float, up: float | None) -> float:
        """The same for a time that is stored: a time that has passed stays as it is."""
        return at if at <= self.now else self.shown(at, up)


ALWAYS = Now(inf)
"""Whenever it was: times stay as they were written."""


@dataclass(frozen=True)
class SplitRecord:
    """One split that was requested at ``at`` (epoch seconds). ``end`` is None while it is open."""

    at: float
    cut: Cut
    end: SplitEnded | None = None

    @property
    def may_have_cut(self) -> bool:
        """Whether it counts: anything but a range that is known to have stayed whole."""
        return self.end is None or self.end.result is not SplitResult.NOT_SPLIT


def within_hour(splits: Iterable[SplitRecord], now: float) -> int:
    """Splits within the hour before ``now``; those that certainly cut nothing are not counted."""
    return sum(split.at > now - HOUR_SECONDS and split.may_have_cut for split in splits)


def split_or_attempted(attempted_at: Mapping[str, float], splits: Iterable[SplitRecord]) -> dict[str, float]:
    """The last attempt on each bundle, or when it came out of a split, whichever was later.

    Parts may be moved at once, and are not split again so soon.
    """
    latest = dict(attempted_at)
    for outcome in (split.end for split in splits if split.end is not None):
        latest |= {part: max(latest.get(part, 0.0), outcome.at) for part in outcome.parts}
    return latest


def read_splits(state_dir: Path) -> list[SplitRecord]:
    """All splits of the journal in a state directory, in the order in which they were intended.

    Raises :class:`~lbd.errors.UsageError` for a store that cannot be read.
    """
    splits = SplitHistory()
    for entry in _entries(state_dir, "SELECT CAST(entry AS BLOB) FROM journal ORDER BY number"):
        match entry:
            case SplitIntent():
                splits.begin(entry)
            case SplitEnded():
                splits.end(entry)
    return sorted(splits.all(), key=lambda split: split.at)


class SplitHistory:
    """The splits of the entries so far, in the order in which they were written."""

    def __init__(self, boot: str = "") -> None:
        self._boot = boot
        self._splits: dict[str, SplitRecord] = {}
        self._up: dict[str, float] = {}

    def begin(self, entry: SplitIntent) -> None:
        """Add an intent."""
        self._splits[entry.split] = SplitRecord(entry.at, derived(Cut, entry))
        if entry.up is not None and self._boot and entry.boot == self._boot:
            self._up[entry.split] = entry.up

    def names(self) -> set[str]:
        """The ids."""
        return set(self._splits)

    def end(self, entry: SplitEnded) -> None:
        """Add an outcome."""
        if entry.split in self._splits:
            self._splits[entry.split] = replace(self._splits[entry.split], end=entry)

    def settle(self, time: Now, keep_seconds: float) -> None:
        """Forget splits that are too old, except the open ones; times later than now become now."""
        since = time.now - keep_seconds
        self._splits = {
            name: replace(split, at=time.settled(split.at, self._up.get(name)))
            for name, split in self._splits.items()
            if split.end is None or time.shown(split.at, self._up.get(name)) > since
        }

    def open(self) -> tuple[tuple[str, SplitRecord], ...]:
        """Splits without an outcome, with their ids, oldest first."""
        return tuple((name, split) for name, split in self._splits.items() if split.end is None)

    def all(self, time: Now = ALWAYS) -> tuple[SplitRecord, ...]:
        """The splits of the last day, and the open ones, with times on the clock as it is set now."""
        return tuple(self._shown(name, split, time) for name, split in self._splits.items())

    def _shown(self, name: str, split: SplitRecord, time: Now) -> SplitRecord:
        """A split takes seconds: its end is as much later as it was written."""
        shown_at = time.shown(split.at, self._up.get(name))
        if shown_at == split.at or split.end is None:
            return replace(split, at=shown_at)
        ended_at = max(shown_at, split.end.at + (shown_at - split.at))
        return replace(split, at=shown_at, end=msgspec.structs.replace(split.end, at=min(ended_at, time.now)))
