"""What the lines of a journal come to: cool-downs, what was sent, open moves, and what leaders may still have noted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lbd.model import Result, Unload
from lbd.permit.budget import DAY_SECONDS, Sent
from lbd.record.journal.lines import (
    Attempt,
    Ended,
    Entry,
    Header,
    Intent,
    Noted,
    Placing,
    SplitEnded,
    SplitIntent,
    encoded,
    entries,
)
from lbd.record.journal.splits import Split, Splits, split_or_attempted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Note:
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
        """All that it may have; one of them is what it has."""
        return (self.broker, *self.older)

    def instead_of(self, broker: str, leader: str | None) -> tuple[str, ...]:
        """What may stand there where ``leader`` may have got a request to note ``broker``; another one knows none."""
        if None not in {leader, self.leader} and leader != self.leader:
            return ()
        return tuple(one for one in self.brokers if one != broker)


@dataclass(frozen=True)
class Past:
    """What the journal says: ``attempted_at`` the last attempt on each bundle, ``open`` intents without an outcome.

    ``notes`` are the leader notes not known to be gone, by bundle. ``torn_lines`` could not be read. ``sent`` is what
    was sent within the last day at least, oldest first; ``splits`` what was split then, or tried to.
    """

    attempted_at: Mapping[str, float] = field(default_factory=dict)
    open: tuple[tuple[str, Unload], ...] = ()
    torn_lines: int = 0
    notes: Mapping[str, Note] = field(default_factory=dict)
    sent: tuple[Sent, ...] = ()
    splits: tuple[Split, ...] = ()

    @property
    def split_or_attempted_at(self) -> dict[str, float]:
        """See :attr:`Journal.split_or_attempted_at`."""
        return split_or_attempted(self.attempted_at, self.splits)


class State:
    """What the lines so far come to; a line that is written goes through the same rules as one that is read.

    ``intents`` are the open ones with their bytes, ``sent`` is what was sent within the last day, both by move;
    ``carried`` is the header's.
    """

    def __init__(self) -> None:
        self.attempted_at: dict[str, float] = {}
        self.intents: dict[str, tuple[Intent, bytes]] = {}
        self.sent: dict[str, Sent] = {}
        self.notes: dict[str, Note] = {}
        self.splits = Splits()
        self.torn_lines = 0
        self.carried = 0

    def take(self, entry: Entry | None, line: bytes) -> None:
        """Count one more line in. The last line on a bundle holds, whatever the clock said when it was written."""
        match entry:
            case None:
                self.torn_lines += 1
            case Header():
                self.carried = entry.carried
            case Intent():
                self.intents[entry.move] = (entry, line.strip() + b"\n")
                self._attempted(entry)
            case Attempt():
                self._attempted(entry)
            case Placing():
                self.attempted_at[entry.bundle] = entry.at
            case Noted():
                self._note(entry.bundle, entry.noted, entry.leader, entry.at, entry.older)
            case Ended():
                self._end(entry)
            case SplitIntent():
                self.attempted_at[entry.bundle] = entry.at
                self.splits.begin(entry, line)
            case SplitEnded():
                self.splits.end(entry, line)

    def settle(self, now: float, keep_seconds: float) -> None:
        """Forget attempts that are too old; what comes from a clock that was ahead happened now at the latest."""
        since = now - keep_seconds
        self.attempted_at = {bundle: min(at, now) for bundle, at in self.attempted_at.items() if at >= since}
        self.notes = {bundle: replace(note, at=min(note.at, now)) for bundle, note in self.notes.items()}
        day = now - DAY_SECONDS
        self.sent = {move: replace(one, at=min(one.at, now)) for move, one in self.sent.items() if one.at > day}
        self.splits.settle(now, DAY_SECONDS)

    def carried_over(self) -> bytes:
        """The lines from which the same state is read. Attempts come last: the last line on a bundle holds."""
        return b"".join(self._kept())

    def past(self) -> Past:
        """The state as a value."""
        return Past(
            dict(self.attempted_at), self.open(), self.torn_lines, dict(self.notes), self.in_order(), self.splits.all()
        )

    def in_order(self) -> tuple[Sent, ...]:
        """What was sent, oldest first: open intents are carried over before what was sent earlier and has ended."""
        return tuple(sorted(self.sent.values(), key=lambda one: one.at))

    def open(self) -> tuple[tuple[str, Unload], ...]:
        """Moves without an outcome, with their ids, oldest first."""
        return tuple((move, _unload(intent)) for move, (intent, _) in self.intents.items())

    def _attempted(self, entry: Intent | Attempt) -> None:
        self.attempted_at[entry.bundle] = entry.at
        if entry.move:
            ends, rates = (entry.bundle, entry.source, entry.destination), (entry.msg_rate, entry.throughput)
            ended = (entry.failed, entry.owner) if isinstance(entry, Attempt) else (False, None)
            self.sent[entry.move] = Sent(entry.at, *ends, entry.attempt, *rates, *ended)

    def _end(self, entry: Ended) -> None:
        self.intents.pop(entry.move, None)
        if entry.move in self.sent:
            failed = entry.result is Result.FAILED
            self.sent[entry.move] = replace(self.sent[entry.move], failed=failed, owner=entry.owner)
        bundle, noted = entry.bundle, entry.noted
        before = self.notes.get(bundle) if entry.older_note else None
        older = before.instead_of(noted, entry.leader) if before is not None and noted is not None else ()
        self._note(bundle, noted, entry.leader, entry.at, older)

    def _note(self, bundle: str, broker: str | None, leader: str | None, at: float, older: tuple[str, ...]) -> None:
        if broker is None:
            self.notes.pop(bundle, None)
        else:
            self.notes[bundle] = Note(bundle, broker, leader, at, older)

    def _kept(self) -> Iterator[bytes]:
        yield from (line for _, line in self.intents.values())
        yield from self.splits.kept()
        for note in self.notes.values():
            yield encoded(Noted(note.at, note.bundle, note.broker, note.leader, note.older))
        told: dict[str, float] = {}
        for move, one in self.sent.items():
            if move not in self.intents:
                ends, rates = (one.bundle, move, one.source, one.destination), (one.msg_rate, one.throughput)
                yield encoded(Attempt(one.at, *ends, one.attempt, *rates, one.failed, one.owner))
                told[one.bundle] = one.at
        for bundle, at in self.attempted_at.items():
            if told.get(bundle) != at:
                yield encoded(Attempt(at, bundle))


def state_of(path: Path) -> State:
    """What a live file says; an absent one is empty. Raises :class:`~lbd.errors.UsageError` as for its lines."""
    state = State()
    for entry, line in entries(path):
        state.take(entry, line)
    return state


def read(path: Path, now: float | None = None, keep_seconds: float = float("inf")) -> Past:
    """What a journal says; an absent file is an empty one.

    With ``now`` (epoch seconds), attempts are no later than that and at most ``keep_seconds`` old; without, they are as
    they stand in the file. Raises :class:`~lbd.errors.UsageError` when the file cannot be read or is of a newer format.
    """
    state = state_of(path)
    if now is not None:
        state.settle(now, keep_seconds)
    return state.past()


def _unload(intent: Intent) -> Unload:
    return Unload(intent.bundle, intent.source, intent.destination, intent.msg_rate, intent.throughput, intent.reason)
