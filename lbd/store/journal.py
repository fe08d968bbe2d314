"""The journal: the only truth about moves, cool-downs and budgets. Intent is on disk before a request, outcome after.

One JSON object per line (``journal_lines.py``) in ``journal.jsonl``. A kill tears at most the last line; unreadable
lines are skipped and counted. A file that has grown too long is rotated (``append_log.py``), and the next one starts
with the state that still holds: the live file alone has everything that a start needs. ``moves.py`` reads all files.
"""

from __future__ import annotations

import math
import secrets
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from lbd.errors import UsageError
from lbd.fields import derived
from lbd.files import REPLACED, STARTS_AGAIN
from lbd.model import Outcome, Result, Unload
from lbd.permit.budget import Sent
from lbd.permit.served import Landing, Unserved
from lbd.store.append_log import Appender, prune, rotate, tidy
from lbd.store.journal_lines import (
    FORMAT,
    Attempt,
    Entry,
    Intent,
    JournalHeader,
    Noted,
    OutcomeLine,
    PlacementLine,
    ServedLine,
    SplitEnded,
    SplitIntent,
    encoded,
    entries,
    text,
)
from lbd.store.moves import (
    ALWAYS,
    Now,
    SplitHistory,
    SplitRecord,
    split_or_attempted,
)
from lbd.text import DAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
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
        return tuple(one for one in self.brokers if one != broker)


@dataclass(frozen=True)
class Past:
    """The state of a journal: ``attempted_at`` the last attempt on each bundle, ``open`` intents without an outcome.

    ``notes`` are the leader notes not known to be gone, by bundle. ``torn_lines`` could not be read. ``sent`` are the
    requests of the last day at least, oldest first; ``splits`` the splits and attempted splits of that time.
    """

    attempted_at: Mapping[str, float] = field(default_factory=dict)
    open: tuple[tuple[str, Unload], ...] = ()
    torn_lines: int = 0
    notes: Mapping[str, LeaderNote] = field(default_factory=dict)
    sent: tuple[Sent, ...] = ()
    splits: tuple[SplitRecord, ...] = ()

    @property
    def split_or_attempted_at(self) -> dict[str, float]:
        """See :attr:`Journal.split_or_attempted_at`."""
        return split_or_attempted(self.attempted_at, self.splits)


@dataclass(frozen=True)
class _Landed:
    """A landing with the lines from which it is read again; ``served`` is the last line on its service."""

    landing: Landing
    lines: bytes
    served: ServedLine | None = None


class JournalState:
    """The state after the lines so far; the same rules apply to lines read and to lines written.

    ``intents`` are the open intents with their bytes, ``sent`` the requests of the last day, both by move; ``carried``
    is the header's. ``amended_at`` is when an outcome was amended last, ``served_at`` the time of the last line on its
    service, by move. ``boot`` names this start of the machine, ``_up`` has the times since then on the clock that
    nobody can set, by bundle and by move. ``_landed`` are the landed moves without a line on their service, and those
    that are not served.
    """

    def __init__(self, boot: str = "") -> None:
        self._boot = boot
        self._up: dict[str, float] = {}
        self.attempted_at: dict[str, float] = {}
        self.intents: dict[str, tuple[Intent, bytes]] = {}
        self.sent: dict[str, Sent] = {}
        self.amended_at: dict[str, float] = {}
        self.served_at: dict[str, float] = {}
        self._landed: dict[str, _Landed] = {}
        self.notes: dict[str, LeaderNote] = {}
        self.splits = SplitHistory(boot)
        self.torn_lines = 0
        self.carried = 0

    def take(self, entry: Entry | None, line: bytes) -> None:
        """Add one more line. The last line on a bundle holds, whatever the clock showed when it was written."""
        match entry:
            case None:
                self.torn_lines += 1
            case JournalHeader():
                self.carried = entry.carried
            case Intent():
                self._moved_on(entry.bundle, "it was moved again before its clients were seen")
                self.intents[entry.move] = (entry, line.strip() + b"\n")
                self._attempted(entry)
            case Attempt():
                self._attempted(entry)
            case PlacementLine():
                self._rests(entry)
            case Noted():
                self._note(entry.bundle, entry.noted, entry.leader, entry.at, entry.older)
            case OutcomeLine():
                self._end(entry)
            case ServedLine():
                self._serve(entry)
            case SplitIntent() | SplitEnded():
                self._split(entry, line)

    def settle(self, time: Now, keep_seconds: float) -> None:
        """Forget attempts that are too old; times from a clock that was ahead become now."""
        now, shown, up = time.now, time.shown, self._up.get
        since, day = now - keep_seconds, now - DAY_SECONDS
        attempted = {name: at for name, at in self.attempted_at.items() if shown(at, up(name)) >= since}
        sent = {move: one for move, one in self.sent.items() if shown(one.at, up(move)) > day}
        self.attempted_at = {name: time.settled(at, up(name)) for name, at in attempted.items()}
        self.sent = {move: replace(one, at=time.settled(one.at, up(move))) for move, one in sent.items()}
        self.notes = {bundle: replace(note, at=min(note.at, now)) for bundle, note in self.notes.items()}
        self.amended_at = {move: at for move, at in self.amended_at.items() if move in self.sent}
        self.served_at = {move: at for move, at in self.served_at.items() if move in self.sent}
        self._landed = {move: one for move, one in self._landed.items() if move in self.sent}
        self._up = {name: up for name, up in self._up.items() if name in self.attempted_at or name in self.sent}
        self.splits.settle(time, DAY_SECONDS)

    def carried_over(self) -> bytes:
        """The lines from which the same state is read. Attempts come last: the last line on a bundle holds."""
        return b"".join(self._carried_lines())

    def past(self, time: Now = ALWAYS) -> Past:
        """The state as a value."""
        known = self.attempts(time), self.open(), self.torn_lines, dict(self.notes), self.in_order(time)
        return Past(*known, self.splits.all(time))

    def attempts(self, time: Now = ALWAYS) -> dict[str, float]:
        """When each bundle was attempted last, as the clock that is set now would have shown it."""
        return {bundle: time.shown(at, self._up.get(bundle)) for bundle, at in self.attempted_at.items()}

    def in_order(self, time: Now = ALWAYS) -> tuple[Sent, ...]:
        """The requests, oldest first: open intents are carried over before earlier requests that have ended."""
        shown = ((one, time.shown(one.at, self._up.get(move))) for move, one in self.sent.items())
        sent = (one if at == one.at else replace(one, at=at) for one, at in shown)
        return tuple(sorted(sent, key=lambda one: one.at))

    def open(self) -> tuple[tuple[str, Unload], ...]:
        """Moves without an outcome, with their ids, oldest first."""
        return tuple((move, derived(Unload, intent)) for move, (intent, _) in self.intents.items())

    def landings(self) -> dict[str, Landing]:
        """Landed moves not known yet to be served or not, by their ids, oldest first."""
        return {move: one.landing for move, one in self._landed.items() if one.served is None}

    def unserved(self) -> dict[str, Unserved]:
        """Moves whose clients are not back, by their ids, oldest first."""
        return {
            move: Unserved(one.landing, one.served.at, one.served.served_detail)
            for move, one in self._landed.items()
            if one.served is not None
        }

    def _moved_on(self, bundle: str, since: str) -> None:
        """The bundle moves on: drop its unserved landings, and note in open ones why their service stays unknown."""
        for move, one in list(self._landed.items()):
            if one.landing.bundle != bundle:
                continue
            if one.served is None:
                self._landed[move] = replace(one, landing=replace(one.landing, since=since))
            else:
                del self._landed[move]

    def _split(self, entry: SplitIntent | SplitEnded, line: bytes) -> None:
        if isinstance(entry, SplitEnded):
            self.splits.end(entry, line)
            return
        self._moved_on(entry.bundle, "it was split before its clients were seen")
        self._rests(entry)
        self.splits.begin(entry, line)

    def _serve(self, entry: ServedLine) -> None:
        self.served_at[entry.move] = entry.at
        one = self._landed.pop(entry.move, None)
        if one is not None and entry.served == "no" and not entry.lifted and not one.landing.since:
            self._landed[entry.move] = replace(one, served=entry)

    def _land(self, entry: OutcomeLine, open_move: tuple[Intent, bytes]) -> None:
        """Leader notes are stored apart, so the carried line of the outcome has none."""
        intent, line = open_move
        unload = derived(Unload, intent)
        outcome = derived(Outcome, entry, unload=unload, attempts=intent.attempt)
        bare = msgspec.structs.replace(entry, noted=None, leader=None, older_note=False)
        self._landed[entry.move] = _Landed(Landing(outcome, intent.at, entry.at), line + encoded(bare))

    def _rests(self, entry: Intent | Attempt | PlacementLine | SplitIntent) -> None:
        self.attempted_at[entry.bundle] = entry.at
        self._happened(entry.bundle, entry)

    def _happened(self, name: str, entry: Intent | Attempt | PlacementLine | SplitIntent) -> None:
        if entry.up is not None and self._boot and entry.boot == self._boot:
            self._up[name] = entry.up
        else:
            self._up.pop(name, None)

    def _attempted(self, entry: Intent | Attempt) -> None:
        self._rests(entry)
        if entry.move:
            self._happened(entry.move, entry)
            self.sent[entry.move] = derived(Sent, entry)
            if isinstance(entry, Attempt) and entry.amended_at is not None:
                self.amended_at[entry.move] = entry.amended_at

    def _end(self, entry: OutcomeLine) -> None:
        open_move = self.intents.pop(entry.move, None)
        if open_move is not None and entry.result is Result.LANDED:
            self._land(entry, open_move)
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

    def _carried_lines(self) -> Iterator[bytes]:
        for landed in self._landed.values():
            before = landed.landing.unload.clients_before
            if before is not None and before.connected:  # for others the service cannot be known
                yield landed.lines + (encoded(landed.served) if landed.served is not None else b"")
        yield from (line for _, line in self.intents.values())
        yield from self.splits.lines()
        for note in self.notes.values():
            yield encoded(Noted(note.at, note.bundle, note.broker, note.leader, note.older))
        attempted: dict[str, float] = {}
        for move, one in self.sent.items():
            if move not in self.intents:
                boot, up = self._when(move)
                amended_at = self.amended_at.get(move)
                yield encoded(derived(Attempt, one, move=move, amended_at=amended_at, boot=boot, up=up))
                attempted[one.bundle] = one.at
        for bundle, at in self.attempted_at.items():
            if attempted.get(bundle) != at:
                boot, up = self._when(bundle)
                yield encoded(Attempt(at, bundle, boot=boot, up=up))

    def _when(self, name: str) -> tuple[str, float | None]:
        return (self._boot, self._up[name]) if name in self._up else ("", None)


def live_state(path: Path, boot: str = "") -> JournalState:
    """The state of a live file; an absent one is empty. Raises :class:`~lbd.errors.UsageError` as for its lines."""
    state = JournalState(boot)
    for entry, line in entries(path):
        state.take(entry, line)
    return state


def read(
    path: Path, now: float | None = None, keep_seconds: float = float("inf"), *, boot: Moment | None = None
) -> Past:
    """The state of a journal; an absent file is an empty one.

    With ``now`` (epoch seconds), attempts are no later than that and at most ``keep_seconds`` old, also by the clock
    that nobody can set where ``boot`` is now on it; without, they are as they stand in the file. Raises
    :class:`~lbd.errors.UsageError` when the file cannot be read or is of a newer format.
    """
    state = live_state(path, boot.boot if boot is not None else "")
    if now is None:
        return state.past()
    time = Now(now, boot.up if boot is not None else None)
    state.settle(time, keep_seconds)
    return state.past(time)


# --- the journal

MAX_BYTES = 8 << 20
KEEP_SECONDS = 7 * 86_400.0
KEEP_FILES = 10
RETRY_BYTES = 1 << 20
"""After a rotation that failed, the file grows by so much until the next try."""


class Journal:
    """An open journal. Every line is on disk when the call returns; thread-safe.

    ``torn_lines`` is how many lines could not be read. ``rotation_failure`` is one line on why the file could not be
    rotated, empty when it could: further lines go to the same file then. ``state_lost`` returns why the state directory
    is no longer this process's: the next process would not read what is written here, so no intent is written.
    """

    def __init__(
        self,
        path: Path,
        now: Callable[[], float],
        *,
        max_bytes: int = MAX_BYTES,
        keep_seconds: float = KEEP_SECONDS,
        keep_files: int = KEEP_FILES,
        state_lost: Callable[[], str] = lambda: "",
        boot: Callable[[], Moment | None] = lambda: None,
    ) -> None:
        """Open or begin the journal at ``path``; only the holder of the state directory may.

        Beyond ``max_bytes`` the file is rotated, after an outcome; attempts are kept for ``keep_seconds``, and the
        ``keep_files`` youngest of the older files. ``boot`` is the clock that nobody can set: by it, too, rests and
        budgets last as long as they should, where ``now`` was set ahead. Raises :class:`UsageError` when the file
        cannot be read or written, or is of a newer format.
        """
        self._path, self._now, self._boot, self._state_lost = path, now, boot, state_lost
        self._max_bytes, self._keep_seconds, self._keep_files = max_bytes, keep_seconds, keep_files
        self._lock = threading.RLock()
        self._run, self._count = secrets.token_hex(4), 0
        began = boot()
        self._state = live_state(path, began.boot if began is not None else "")
        self._state.settle(self._time(), keep_seconds)
        tidy(path)
        self._file = _opened(path)
        self._rotate_beyond = self._limit(self._state.carried)
        self.torn_lines = self._state.torn_lines
        self.rotation_failure = ""

    @property
    def lost(self) -> str:
        """Why no intent may be written, as text; empty while the files are those that were opened."""
        with self._lock:
            is_found = self._file.is_found
        return self._state_lost() or ("" if is_found else f"{self._path} {REPLACED}; {STARTS_AGAIN}")

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
            return self._state.unserved()

    def serve(self, move: str, landing: Landing, service: ServiceResult) -> None:
        """Write whether a move that landed is served."""
        fields = {"served_detail": text(service.served_detail)}
        with self._lock:
            self._append(derived(ServedLine, service, at=self._now(), move=move, bundle=landing.bundle, **fields))
            self._rotate_when_long()

    def intend(self, unload: Unload, attempt: int) -> str:
        """Write that ``unload`` is about to be requested; returns the id that its outcome refers to.

        Raises :class:`UsageError` when it cannot be written, as every method that writes does.
        """
        with self._lock:
            self._refuse_when_lost()
            at, move = self._next()
            fields = {"attempt": attempt, "reason": text(unload.reason), **self._moment()}
            rates = {"msg_rate": _finite(unload.msg_rate), "throughput": _finite(unload.throughput)}
            self._append(derived(Intent, unload, at=at, move=move, **rates, **fields))
            return move

    def placed(self, outcome: Outcome) -> None:
        """Write the outcome of placing an unowned bundle: it rests from now on, and counts in no budget."""
        wanted = outcome.unload
        fields = {"destination": wanted.destination or "", "reason": text(wanted.reason)}
        with self._lock:
            at, move = self._next()
            proven = {**_proven(outcome), **fields, **self._moment()}
            self._append(derived(PlacementLine, outcome, wanted, at=at, move=move, **proven))
            self._rotate_when_long()

    def _next(self) -> tuple[float, str]:
        """The time, and a new id."""
        at = self._now()
        self._count += 1
        return at, f"{int(at * 1000):x}-{self._run}-{self._count}"

    def conclude(self, move: str, outcome: Outcome) -> None:
        """Write the outcome of the move. A file that is too long then is rotated; that never raises."""
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
            self._rotate_when_long()

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
            at, split = self._next()
            self._append(derived(SplitIntent, cut, at=at, split=split, reason=text(cut.reason), **self._moment()))
            return split

    def conclude_split(self, split: str, outcome: CutOutcome) -> None:
        """Write how the split ended."""
        proven = {"parts": outcome.parts, **_proven(outcome)}
        with self._lock:
            self._append(derived(SplitEnded, outcome, outcome.cut, at=self._now(), split=split, **proven))
            self._rotate_when_long()

    def note(self, bundle: str, broker: str | None, leader: str | None) -> None:
        """Write the destination that ``leader`` now has noted for the bundle; None: no note any more."""
        with self._lock:
            self._append(Noted(self._now(), bundle, broker, leader))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _time(self) -> Now:
        moment = self._boot()
        return Now(self._now(), moment.up if moment is not None else None)

    def _moment(self) -> dict[str, object]:
        """Now, on the clock that nobody can set, as a line has it."""
        moment = self._boot()
        return {"boot": moment.boot, "up": round(moment.up, 3)} if moment is not None else {}

    def _follow_clock(self) -> Now:
        """After the clock was set back, times later than now become now, and age from there."""
        time = self._time()
        if any(at > time.now for at in self._state.attempted_at.values()):
            self._state.settle(time, self._keep_seconds)
        return time

    def _append(self, *entries: Entry) -> None:
        try:
            lines = [encoded(entry) for entry in entries]
            header = b"" if self._file.size else encoded(JournalHeader(FORMAT, entries[0].at))
            self._file.write(header + b"".join(lines))
        except (OSError, UnicodeEncodeError) as error:
            why = getattr(error, "strerror", error)
            raise UsageError(f"{self._path}: journal cannot be written: {why}; no unload is sent without it") from error
        for entry, line in zip(entries, lines, strict=True):
            self._state.take(entry, line)

    def _refuse_when_lost(self) -> None:
        if lost := self.lost:
            raise UsageError(f"{lost}; no unload is sent without its journal")

    def _rotate_when_long(self) -> None:
        if self._file.size > self._rotate_beyond and self._file.is_found:
            self._rotate()

    def _rotate(self) -> None:
        self._rotate_beyond = self._file.size + RETRY_BYTES
        try:
            self._begin_file()
            self._file.sync_name()
            prune(self._path, self._keep_files)
        except (OSError, ValueError, OverflowError) as error:
            self.rotation_failure = (
                f"{self._path}: rotating the journal failed: {error}; "
                "nothing is lost, it is tried again when the file has grown further"
            )
        else:
            self.rotation_failure = ""

    def _begin_file(self) -> None:
        time = self._time()
        at = time.now
        self._state.settle(time, self._keep_seconds)
        carried = self._state.carried_over()
        fresh = rotate(self._path, at, encoded(JournalHeader(FORMAT, at, len(carried))) + carried)
        old, self._file = self._file, fresh
        self._rotate_beyond = self._limit(len(carried))
        old.close()

    def _limit(self, carried: int) -> int:
        """Bytes beyond which to rotate: carried lines may fill most of a file, so at least half of each file is new."""
        return max(self._max_bytes, 2 * min(carried, self._file.size))


def _opened(path: Path) -> Appender:
    try:
        return Appender.of(path)
    except OSError as error:
        raise UsageError(f"{path}: journal cannot be opened: {error.strerror}; is state_dir writable?") from error


def _proven(outcome: Outcome | CutOutcome) -> dict[str, object]:
    """The fields that a line stores in another form."""
    return {"detail": text(outcome.detail), "seconds": round(_finite(outcome.seconds), 3)}


def _finite(number: float) -> float:
    """JSON has no NaN and no infinity; a line with one could not be read again."""
    return number if math.isfinite(number) else 0.0
