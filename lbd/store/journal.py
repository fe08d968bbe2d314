"""The journal: the only truth about moves, cool-downs and budgets. Intent is on disk before a request, outcome after.

One entry (``journal_lines.py``) is one row of the store (``database.py``), on disk when the call returns. What holds
is folded from the entries in their order; entries that nothing hangs on any more are pruned, the oldest first.
"""

from __future__ import annotations

import math
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from lbd.errors import UsageError
from lbd.fields import derived
from lbd.model import Outcome, Result, Unload
from lbd.permit.budget import Sent
from lbd.permit.served import Landing, Unserved
from lbd.store.database import Database, reading
from lbd.store.journal_lines import (
    Entry,
    Intent,
    Noted,
    OutcomeLine,
    PlacementLine,
    ServedLine,
    SplitEnded,
    SplitIntent,
    decoded,
    encoded,
    event,
    text,
)
from lbd.store.moves import (
    ALWAYS,
    Now,
    SplitHistory,
    SplitRecord,
    split_or_attempted,
)
from lbd.text import DAY_SECONDS, HOUR_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lbd.clock import Moment
    from lbd.permit.served import ServiceResult
    from lbd.split.plan import Cut, CutOutcome


@dataclass(frozen=True)
class LeaderNote:
    """A ``broker`` that the ``leader`` (None: not known which) may have as the bundle's destination since ``at``.

    ``older`` are those that it may have instead, the newest first: nothing proved that a request to replace them came.
    """

    bundle: str
    broker: str
    leader: str | None
    at: float
    older: tuple[str, ...] = ()

    @property
    def brokers(self) -> tuple[str, ...]:
        """All destinations that the leader may have; it has one of them."""
        return (self.broker, *self.older)

    def instead_of(self, broker: str, leader: str | None) -> tuple[str, ...]:
        """Notes that may remain if ``leader`` may have got a request to note ``broker``; another leader has none."""
        if None not in {leader, self.leader} and leader != self.leader:
            return ()
        return tuple(noted for noted in self.brokers if noted != broker)


@dataclass(frozen=True)
class Past:
    """The state of a journal: ``attempted_at`` the last attempt on each bundle, ``open`` intents without an outcome.

    ``notes`` are the leader notes not known to be gone, by bundle. ``sent`` are the requests of the last day at least,
    oldest first; ``splits`` the splits and attempted splits of that time.
    """

    attempted_at: Mapping[str, float] = field(default_factory=dict)
    open: tuple[tuple[str, Unload], ...] = ()
    notes: Mapping[str, LeaderNote] = field(default_factory=dict)
    sent: tuple[Sent, ...] = ()
    splits: tuple[SplitRecord, ...] = ()

    @property
    def split_or_attempted_at(self) -> dict[str, float]:
        """See :attr:`Journal.split_or_attempted_at`."""
        return split_or_attempted(self.attempted_at, self.splits)


@dataclass(frozen=True)
class _Landed:
    """A landing; ``served`` is the last entry on its service."""

    landing: Landing
    served: ServedLine | None = None


class JournalState:
    """The state after the entries so far; the same rules apply to entries read and to entries written.

    ``intents`` are the open intents, ``sent`` the requests of the last day, both by move. ``amended_at`` is when an
    outcome was amended last, ``served_at`` the time of the last entry on its service, by move. ``boot`` names this
    start of the machine, ``_up`` has the times since then on the clock that nobody can set, by bundle and by move.
    ``_landed`` are the landed moves without an entry on their service, and those that are not served, ``_landed_of``
    these moves by bundle. ``_last`` is the move or split that attempted a bundle last.
    """

    def __init__(self, boot: str = "") -> None:
        self._boot = boot
        self._up: dict[str, float] = {}
        self._last: dict[str, str] = {}
        self.attempted_at: dict[str, float] = {}
        self.intents: dict[str, Intent] = {}
        self.sent: dict[str, Sent] = {}
        self.amended_at: dict[str, float] = {}
        self.served_at: dict[str, float] = {}
        self._missed: dict[str, Intent] = {}
        """The intents of moves that ended without a landing, which may still be seen later."""
        self._landed: dict[str, _Landed] = {}
        self._landed_of: dict[str, set[str]] = {}
        self.notes: dict[str, LeaderNote] = {}
        self.splits = SplitHistory(boot)

    def add(self, entry: Entry) -> None:
        """Add one more entry. The last one on a bundle holds, whatever the clock showed when it was written."""
        match entry:
            case Intent():
                self._moved_on(entry.bundle, "it was moved again before its clients were seen")
                self.intents[entry.move] = entry
                self.sent[entry.move] = derived(Sent, entry)
                self._rests(entry, entry.move)
                self._happened(entry.move, entry)
            case PlacementLine():
                self._rests(entry, entry.move)
            case Noted():
                self._note(entry.bundle, entry.noted, entry.leader, entry.at, entry.older)
            case OutcomeLine():
                self._end(entry)
            case ServedLine():
                self._serve(entry)
            case SplitIntent():
                self._moved_on(entry.bundle, "it was split before its clients were seen")
                self._rests(entry, entry.split)
                self.splits.begin(entry)
            case SplitEnded():
                self.splits.end(entry)

    def settle(self, time: Now, keep_seconds: float) -> None:
        """Forget attempts that are too old; times from a clock that was ahead become now."""
        now, shown, up = time.now, time.shown, self._up.get
        since, day = now - keep_seconds, now - DAY_SECONDS
        attempted = {name: at for name, at in self.attempted_at.items() if shown(at, up(name)) >= since}
        requests = {move: request for move, request in self.sent.items() if shown(request.at, up(move)) > day}
        self.attempted_at = {name: time.settled(at, up(name)) for name, at in attempted.items()}
        self.sent = {move: replace(sent, at=time.settled(sent.at, up(move))) for move, sent in requests.items()}
        self.notes = {bundle: replace(note, at=min(note.at, now)) for bundle, note in self.notes.items()}
        self.amended_at = {move: at for move, at in self.amended_at.items() if move in self.sent}
        self.served_at = {move: at for move, at in self.served_at.items() if move in self.sent}
        self._missed = {move: intent for move, intent in self._missed.items() if move in self.sent}
        for move, landed in list(self._landed.items()):
            served = landed.served
            if served is not None and served.at > now:
                self._landed[move] = replace(landed, served=msgspec.structs.replace(served, at=now))
            elif move not in self.sent and (served is None or served.at <= since):
                self._drop_landing(move, landed.landing.bundle)
        self._up = {name: up for name, up in self._up.items() if name in self.attempted_at or name in self.sent}
        self._last = {bundle: move for bundle, move in self._last.items() if bundle in self.attempted_at}
        self.splits.settle(time, DAY_SECONDS)

    def needed(self) -> tuple[set[str], set[str]]:
        """Moves and splits, and bundles, from whose entries the same state is folded."""
        moves = (
            self.intents.keys()
            | self.sent.keys()
            | self._landed.keys()
            | self.splits.names()
            | set(self._last.values())
        )
        return moves, set(self.notes)

    def past(self, time: Now = ALWAYS) -> Past:
        """The state as a value."""
        return Past(self.attempts(time), self.open(), dict(self.notes), self.in_order(time), self.splits.all(time))

    def attempts(self, time: Now = ALWAYS) -> dict[str, float]:
        """When each bundle was attempted last, as the clock that is set now would have shown it."""
        return {bundle: time.shown(at, self._up.get(bundle)) for bundle, at in self.attempted_at.items()}

    def in_order(self, time: Now = ALWAYS) -> tuple[Sent, ...]:
        """The requests, oldest first: open intents are carried over before earlier requests that have ended."""
        shown = ((sent, time.shown(sent.at, self._up.get(move))) for move, sent in self.sent.items())
        requests = (sent if at == sent.at else replace(sent, at=at) for sent, at in shown)
        return tuple(sorted(requests, key=lambda sent: sent.at))

    def open(self) -> tuple[tuple[str, Unload], ...]:
        """Moves without an outcome, with their ids, oldest first."""
        return tuple((move, derived(Unload, intent)) for move, intent in self.intents.items())

    def landings(self) -> dict[str, Landing]:
        """Landed moves not known yet to be served or not, by their ids, oldest first."""
        return {move: landed.landing for move, landed in self._landed.items() if landed.served is None}

    def unserved(self) -> dict[str, Unserved]:
        """Moves whose clients are not back, by their ids, oldest first."""
        return {
            move: Unserved(landed.landing, landed.served.at, landed.served.served_detail)
            for move, landed in self._landed.items()
            if landed.served is not None
        }

    def _moved_on(self, bundle: str, since: str) -> None:
        """The bundle moves on: drop its unserved landings, and note in open ones why their service stays unknown."""
        for move in tuple(self._landed_of.get(bundle, ())):
            landed = self._landed[move]
            if landed.served is None:
                self._landed[move] = replace(landed, landing=replace(landed.landing, since=since))
            else:
                self._drop_landing(move, bundle)

    def _drop_landing(self, move: str, bundle: str) -> _Landed | None:
        self._landed_of.get(bundle, set()).discard(move)
        return self._landed.pop(move, None)

    def _serve(self, entry: ServedLine) -> None:
        self.served_at[entry.move] = entry.at
        landed = self._drop_landing(entry.move, entry.bundle)
        if landed is not None and entry.served == "no" and not entry.lifted and not landed.landing.since:
            self._add_landing(entry.move, entry.bundle, replace(landed, served=entry))

    def _land(self, entry: OutcomeLine, intent: Intent) -> None:
        outcome = derived(Outcome, entry, unload=derived(Unload, intent), attempts=intent.attempt)
        self._add_landing(entry.move, entry.bundle, _Landed(Landing(outcome, intent.at, entry.at)))

    def _add_landing(self, move: str, bundle: str, landed: _Landed) -> None:
        self._landed[move] = landed
        self._landed_of.setdefault(bundle, set()).add(move)

    def _rests(self, entry: Intent | PlacementLine | SplitIntent, name: str) -> None:
        self.attempted_at[entry.bundle] = entry.at
        self._last[entry.bundle] = name
        self._happened(entry.bundle, entry)

    def _happened(self, name: str, entry: Intent | PlacementLine | SplitIntent) -> None:
        if entry.up is not None and self._boot and entry.boot == self._boot:
            self._up[name] = entry.up
        else:
            self._up.pop(name, None)

    def _end(self, entry: OutcomeLine) -> None:
        intent = self.intents.pop(entry.move, None)
        if intent is None and self._last.get(entry.bundle) == entry.move:
            intent = self._missed.pop(entry.move, None)
        if intent is not None and entry.result is Result.LANDED:
            self._land(entry, intent)
        elif intent is not None:
            self._missed[entry.move] = intent
        if entry.move in self.sent:
            failed = entry.result is Result.FAILED
            self.sent[entry.move] = replace(self.sent[entry.move], failed=failed, owner=entry.owner, ended_at=entry.at)
        if entry.amended:
            self.amended_at[entry.move] = entry.at
            return
        bundle, noted = entry.bundle, entry.noted
        before = self.notes.get(bundle) if entry.older_note else None
        older = before.instead_of(noted, entry.leader) if before is not None and noted is not None else ()
        self._note(bundle, noted, entry.leader, entry.at, older)

    def _note(self, bundle: str, broker: str | None, leader: str | None, at: float, older: tuple[str, ...]) -> None:
        if broker is None:
            self.notes.pop(bundle, None)
        else:
            self.notes[bundle] = LeaderNote(bundle, broker, leader, at, older)


def read(
    path: Path, now: float | None = None, keep_seconds: float = float("inf"), *, boot: Moment | None = None
) -> Past:
    """The state of the journal of a store; an absent file is an empty one.

    With ``now`` (epoch seconds), attempts are no later than that and at most ``keep_seconds`` old, also by the clock
    that nobody can set where ``boot`` is now on it; without, they are as they stand in the file. Raises
    :class:`~lbd.errors.UsageError` when the file cannot be read or is of another schema.
    """
    state = JournalState(boot.boot if boot is not None else "")
    with reading(path) as store:
        _fold(state, store)
    if now is None:
        return state.past()
    time = Now(now, boot.up if boot is not None else None)
    state.settle(time, keep_seconds)
    return state.past(time)


def _fold(state: JournalState, store: Database | None) -> None:
    """Add all entries of a store to a state."""
    for (entry,) in store.rows("SELECT CAST(entry AS BLOB) FROM journal ORDER BY number") if store is not None else ():
        state.add(decoded(entry))


# --- the journal

KEEP_SECONDS = 7 * 86_400.0
MOST_ENTRIES = 50_000
"""Some 25,000 moves and 25 MB: at the default of 30 moves an hour without a pause that is a month."""

PRUNED_ENTRIES = 1000
"""Entries between two prunings: each one looks at the whole table."""

INSERT = "INSERT INTO journal (at, event, move, bundle, entry) VALUES (?, ?, ?, ?, ?)"
PRUNE = """
DELETE FROM journal WHERE number <= (SELECT max(number) FROM journal) - ?
    AND move NOT IN (SELECT value FROM json_each(?)) AND bundle NOT IN (SELECT value FROM json_each(?))
"""


class Journal:
    """The open journal of a store. Every entry is on disk when the call returns; thread-safe.

    ``state_lost`` returns why the state directory is no longer this process's: the next process would not read what is
    written here, so no intent is written. ``term`` is how often this lbd has come to lead; 0 for one that is alone.
    """

    term = 0

    def __init__(
        self,
        path: Path,
        now: Callable[[], float],
        *,
        most_entries: int = MOST_ENTRIES,
        keep_seconds: float = KEEP_SECONDS,
        state_lost: Callable[[], str] = lambda: "",
        boot: Callable[[], Moment | None] = lambda: None,
    ) -> None:
        """Open or begin the journal in the store at ``path``; only the holder of the state directory may.

        Attempts are kept for ``keep_seconds``; beyond ``most_entries`` the oldest entries are pruned, except those that
        the state hangs on. ``boot`` is the clock that nobody can set: by it, too, rests and budgets last as long as
        they should, where ``now`` was set ahead. Raises :class:`UsageError` when the store cannot be read or written,
        or is of another schema.
        """
        self._path, self._now, self._boot, self._state_lost = path, now, boot, state_lost
        self._most_entries, self._keep_seconds = most_entries, keep_seconds
        self._lock = threading.RLock()
        self._run, self._count = secrets.token_hex(4), 0
        began = boot()
        self._state = JournalState(began.boot if began is not None else "")
        self._store = Database.open(path)
        try:
            _fold(self._state, self._store)
            self._settle(self._time())
            self._entries = self._counted()
        except BaseException:
            self._store.close()
            raise
        self._prune_beyond = max(most_entries, self._entries) + PRUNED_ENTRIES

    @property
    def lost(self) -> str:
        """Why no intent may be written, as text; empty while the files are those that were opened."""
        with self._lock:
            return self._state_lost() or self._store.lost

    @property
    def unwritable_seconds(self) -> float:
        """See :attr:`~lbd.store.database.Database.unwritable_seconds`."""
        return self._store.unwritable_seconds

    @property
    def open(self) -> tuple[tuple[str, Unload], ...]:
        """Moves without an outcome, with their ids: those of a process that was killed, and those in flight."""
        with self._lock:
            return self._state.open()

    @property
    def attempted_at(self) -> Mapping[str, float]:
        """When each bundle was last attempted, now at the latest."""
        with self._lock:
            return self._state.attempts(self._follow_clock())

    @property
    def sent(self) -> tuple[Sent, ...]:
        """The requests of the last day at least: every attempt, also without an outcome."""
        with self._lock:
            return self._state.in_order(self._follow_clock())

    @property
    def notes(self) -> Mapping[str, LeaderNote]:
        """Destinations that leaders may still have noted, by bundle."""
        with self._lock:
            return dict(self._state.notes)

    @property
    def landings(self) -> Mapping[str, Landing]:
        """Landed moves not known yet to be served or not, by their ids."""
        with self._lock:
            return self._state.landings()

    @property
    def unserved(self) -> Mapping[str, Unserved]:
        """Moves whose clients are not back, by their ids."""
        with self._lock:
            if self._state.unserved():
                self._follow_clock()
            return self._state.unserved()

    def serve(self, move: str, landing: Landing, service: ServiceResult) -> None:
        """Write whether a move that landed is served."""
        fields = {"served_detail": text(service.served_detail)}
        with self._lock:
            self._append(derived(ServedLine, service, at=self._now(), move=move, bundle=landing.bundle, **fields))
            self._prune_when_long()

    def intend(self, unload: Unload, attempt: int) -> str:
        """Write that ``unload`` is about to be requested; returns the id that its outcome refers to.

        Raises :class:`UsageError` when it cannot be written, as every method that writes does.
        """
        with self._lock:
            self._refuse_when_lost()
            time, move = self._next()
            fields = {"attempt": attempt, "reason": text(unload.reason), **self._moment()}
            rates = {"msg_rate": _finite(unload.msg_rate), "throughput": _finite(unload.throughput)}
            self._append(derived(Intent, unload, at=time, move=move, **rates, **fields))
            return move

    def placed(self, outcome: Outcome) -> None:
        """Write the outcome of placing an unowned bundle: it rests from now on, and counts in no budget."""
        unload = outcome.unload
        fields = {"destination": unload.destination or "", "reason": text(unload.reason)}
        with self._lock:
            time, move = self._next()
            proven = {**_proven(outcome), **fields, **self._moment()}
            self._append(derived(PlacementLine, outcome, unload, at=time, move=move, **proven))
            self._prune_when_long()

    def _next(self) -> tuple[float, str]:
        """The time, and a new id."""
        time = self._now()
        self._count += 1
        return time, f"{int(time * 1000):x}-{self._run}-{self._count}"

    def conclude(self, move: str, outcome: Outcome) -> None:
        """Write the outcome of the move."""
        self._end(move, outcome, amended=False)

    def confirm(self, move: str, again: bool) -> None:
        """Check that requests of ``move`` may still begin, with ``again`` by a new proof. A single lbd always may.

        Raises :class:`~lbd.errors.LbdError` when they may not.
        """

    def amend(self, move: str, outcome: Outcome) -> None:
        """Write a new outcome of a move that had one."""
        self._end(move, outcome, amended=True)

    def _end(self, move: str, outcome: Outcome, *, amended: bool) -> None:
        with self._lock:
            proven = {**_proven(outcome), "amended": amended}
            self._append(derived(OutcomeLine, outcome, outcome.unload, at=self._now(), move=move, **proven))
            self._prune_when_long()

    @property
    def open_splits(self) -> tuple[tuple[str, SplitRecord], ...]:
        """Splits without an outcome, with their ids: those of a process that was killed, and the one in flight."""
        with self._lock:
            return self._state.splits.open()

    @property
    def splits(self) -> tuple[SplitRecord, ...]:
        """Splits and attempted splits of the last day at least."""
        with self._lock:
            time = self._time()
            self._state.splits.settle(time, DAY_SECONDS)
            return self._state.splits.all(time)

    @property
    def split_or_attempted_at(self) -> Mapping[str, float]:
        """When each bundle was last attempted, or came out of a split: it is not split again so soon."""
        return split_or_attempted(self.attempted_at, self.splits)

    def intend_split(self, cut: Cut) -> str:
        """Write that ``cut`` is about to be requested; returns the id that its outcome refers to.

        From then on the bundle rests as after an unload: a plan made from older reports still knows its name.
        """
        with self._lock:
            self._refuse_when_lost()
            time, split = self._next()
            self._append(derived(SplitIntent, cut, at=time, split=split, reason=text(cut.reason), **self._moment()))
            return split

    def conclude_split(self, split: str, outcome: CutOutcome) -> None:
        """Write how the split ended."""
        proven = {"parts": outcome.parts, **_proven(outcome)}
        with self._lock:
            self._append(derived(SplitEnded, outcome, outcome.cut, at=self._now(), split=split, **proven))
            self._prune_when_long()

    def note(self, bundle: str, broker: str | None, leader: str | None) -> None:
        """Write the destination that ``leader`` now has noted for the bundle; None: no note any more."""
        with self._lock:
            self._append(Noted(self._now(), bundle, broker, leader))

    def close(self) -> None:
        """Close the store."""
        with self._lock:
            self._store.close()

    def _time(self) -> Now:
        moment = self._boot()
        return Now(self._now(), moment.up if moment is not None else None)

    def _moment(self) -> dict[str, object]:
        """Now, on the clock that nobody can set, as a line has it."""
        moment = self._boot()
        return {"boot": moment.boot, "up": round(moment.up, 3)} if moment is not None else {}

    def _follow_clock(self) -> Now:
        """Forget once an hour what is too old; times later than now, after the clock was set back, age from now on."""
        time = self._time()
        unserved = (move.at for move in self._state.unserved().values())
        is_due = not 0 <= time.now - self._settled_at < HOUR_SECONDS
        if is_due or any(at > time.now for at in (*self._state.attempted_at.values(), *unserved)):
            self._settle(time)
        return time

    def _settle(self, time: Now) -> None:
        self._state.settle(time, self._keep_seconds)
        self._settled_at = time.now

    def _append(self, *entries: Entry) -> None:
        try:
            rows = [(entry.at, event(entry), _name(entry), entry.bundle, encoded(entry).decode()) for entry in entries]
        except UnicodeEncodeError as error:
            raise UsageError(f"{self._path}: {error.object!r} is no UTF-8 text; no unload is sent for it") from error
        try:
            self._store.write(INSERT, rows)
        except UsageError as error:
            raise UsageError(f"{error}; no unload is sent without it") from error
        self._entries += len(entries)
        for entry in entries:
            self._state.add(entry)

    def _refuse_when_lost(self) -> None:
        if lost := self.lost:
            raise UsageError(f"{lost}; no unload is sent without its journal")

    def _prune_when_long(self) -> None:
        """Delete the oldest entries that nothing hangs on. A failure is that of the next write, too, which tells it."""
        if self._entries <= self._prune_beyond:
            return
        self._settle(self._time())
        needed = [msgspec.json.encode(sorted(names)).decode() for names in self._state.needed()]
        with suppress(UsageError):
            self._store.write(PRUNE, [(self._most_entries, *needed)])
            self._entries = self._counted()
        self._prune_beyond = self._entries + PRUNED_ENTRIES

    def _counted(self) -> int:
        return int(self._store.rows("SELECT count(*) FROM journal")[0][0])


def _name(entry: Entry) -> str:
    """The id of its move or split; empty for a leader's note."""
    return getattr(entry, "move", "") or getattr(entry, "split", "")


def _proven(outcome: Outcome | CutOutcome) -> dict[str, object]:
    """The fields that a line stores in another form."""
    return {"detail": text(outcome.detail), "seconds": round(_finite(outcome.seconds), 3)}


def _finite(number: float) -> float:
    """JSON has no NaN and no infinity; a line with one could not be read again."""
    return number if math.isfinite(number) else 0.0
