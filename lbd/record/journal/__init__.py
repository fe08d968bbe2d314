"""The journal: the only truth about moves, cool-downs and budgets. Intent is on disk before a request, outcome after.

One JSON object a line (``lines.py``) in ``journal.jsonl``. A kill tears at most the last line; lines that cannot be
read are passed over and counted. A file that has grown too long is set aside (``segments.py``), and the next one begins
with what still holds (``past.py``): the live file alone says what a start must know. ``moves.py`` reads them all.
"""

from __future__ import annotations

import math
import secrets
import threading
from typing import TYPE_CHECKING

from lbd.errors import UsageError
from lbd.permit.budget import DAY_SECONDS
from lbd.record.journal.following import Following
from lbd.record.journal.lines import (
    FORMAT,
    Ended,
    Entry,
    Header,
    Intent,
    Noted,
    Placing,
    SplitEnded,
    SplitIntent,
    encoded,
    text,
)
from lbd.record.journal.moves import History, Move, history
from lbd.record.journal.past import Note, Past, read, state_of
from lbd.record.journal.segments import LIVE_NAME, Appender, prune, rotate, tidy
from lbd.record.journal.splits import Split, split_or_attempted, splits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lbd.model import Outcome, Unload
    from lbd.permit.budget import Sent
    from lbd.split.cut import Cut, CutOutcome

__all__ = [
    "KEEP_SECONDS",
    "LIVE_NAME",
    "Following",
    "History",
    "Journal",
    "Move",
    "Note",
    "Past",
    "Split",
    "history",
    "read",
    "splits_of",
]

MAX_BYTES = 8 << 20
KEEP_SECONDS = 7 * 86_400.0
KEEP_FILES = 10
RETRY_BYTES = 1 << 20
"""After a rotation that failed, the file grows by so much until the next try."""


class Journal:
    """An open journal. Every line is on disk when the call returns; thread-safe.

    ``torn_lines`` is how many lines could not be read. ``rotation_failure`` is one line on why the file could not be
    rotated, empty when it could: lines go on to the same file then.
    """

    def __init__(
        self,
        path: Path,
        now: Callable[[], float],
        *,
        max_bytes: int = MAX_BYTES,
        keep_seconds: float = KEEP_SECONDS,
        keep_files: int = KEEP_FILES,
    ) -> None:
        """Open or begin the journal at ``path``; only the holder of the state directory may.

        Beyond ``max_bytes`` the file is rotated, after an outcome; attempts are kept for ``keep_seconds``, and the
        ``keep_files`` youngest of the older files. Raises :class:`UsageError` when the file cannot be read or written,
        or is of a newer format.
        """
        self._path, self._now = path, now
        self._max_bytes, self._keep_seconds, self._keep_files = max_bytes, keep_seconds, keep_files
        self._lock = threading.RLock()
        self._run, self._count = secrets.token_hex(4), 0
        self._state = state_of(path)
        self._state.settle(now(), keep_seconds)
        tidy(path)
        self._file = _opened(path)
        self._rotate_beyond = self._limit(self._state.carried)
        self.torn_lines = self._state.torn_lines
        self.rotation_failure = ""

    @property
    def open(self) -> tuple[tuple[str, Unload], ...]:
        """Moves without an outcome, with their ids: those of a process that was killed, and those in flight."""
        with self._lock:
            return self._state.open()

    @property
    def attempted_at(self) -> Mapping[str, float]:
        """When each bundle was last attempted, now at the latest."""
        with self._lock:
            self._follow_clock()
            return dict(self._state.attempted_at)

    @property
    def sent(self) -> tuple[Sent, ...]:
        """What was sent within the last day at least: every attempt, those without an outcome among them."""
        with self._lock:
            self._follow_clock()
            return self._state.in_order()

    @property
    def notes(self) -> Mapping[str, Note]:
        """What leaders may still have noted as destinations, by bundle."""
        with self._lock:
            return dict(self._state.notes)

    def intend(self, unload: Unload, attempt: int) -> str:
        """Write that ``unload`` is about to be asked for; returns the id that its outcome refers to.

        Raises :class:`UsageError` when it cannot be written, as all that writes here does.
        """
        with self._lock:
            at, move = self._next()
            ends = (unload.bundle, unload.source, unload.destination)
            rates = (_finite(unload.msg_rate), _finite(unload.throughput))
            self._append(Intent(at, move, *ends, attempt, *rates, text(unload.reason)))
            return move

    def placed(self, outcome: Outcome) -> None:
        """Write what became of a bundle that nobody owned: it rests from now on, and counts in no budget."""
        found, proven = outcome.unload, (outcome.result, outcome.owner, text(outcome.detail))
        seconds = round(_finite(outcome.seconds), 3)
        with self._lock:
            ends = (*self._next(), found.bundle, found.destination or "")
            self._append(Placing(*ends, *proven, seconds, text(found.reason)))
            self._rotate_when_long()

    def _next(self) -> tuple[float, str]:
        """The time, and the id of what is written now."""
        at = self._now()
        self._count += 1
        return at, f"{int(at * 1000):x}-{self._run}-{self._count}"

    def conclude(self, move: str, outcome: Outcome) -> None:
        """Write how the move ended. A file that is too long then is rotated; that never raises."""
        proven = (outcome.result, outcome.owner, outcome.unload.bundle, text(outcome.detail))
        seconds = round(_finite(outcome.seconds), 3)
        with self._lock:
            noted = outcome.noted, outcome.leader
            self._append(Ended(self._now(), move, *proven, seconds, *noted, older_note=outcome.older_note))
            self._rotate_when_long()

    @property
    def open_splits(self) -> tuple[tuple[str, Split], ...]:
        """Splits without an outcome, with their ids: those of a process that was killed, and the one in flight."""
        with self._lock:
            return self._state.splits.open()

    @property
    def splits(self) -> tuple[Split, ...]:
        """What was split, or tried to, within the last day at least."""
        with self._lock:
            self._state.splits.settle(self._now(), DAY_SECONDS)
            return self._state.splits.all()

    @property
    def split_or_attempted_at(self) -> Mapping[str, float]:
        """When each bundle was last attempted, or came out of a split: it is not split again so soon."""
        return split_or_attempted(self.attempted_at, self.splits)

    def intend_split(self, cut: Cut) -> str:
        """Write that ``cut`` is about to be asked for; returns the id that its outcome refers to.

        From then on the bundle rests as after an unload: a plan made from older reports still knows its name.
        """
        with self._lock:
            at, split = self._next()
            asked = (cut.bundle, cut.owner, cut.algorithm, cut.positions)
            self._append(SplitIntent(at, split, *asked, text(cut.reason)))
            return split

    def conclude_split(self, split: str, outcome: CutOutcome) -> None:
        """Write how the split ended."""
        proven = (outcome.result, outcome.cut.bundle, outcome.parts, outcome.owner, text(outcome.detail))
        with self._lock:
            self._append(SplitEnded(self._now(), split, *proven, round(_finite(outcome.seconds), 3)))
            self._rotate_when_long()

    def note(self, bundle: str, broker: str | None, leader: str | None) -> None:
        """Write what ``leader`` now has noted as the bundle's destination; None: nothing any more."""
        with self._lock:
            self._append(Noted(self._now(), bundle, broker, leader))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _follow_clock(self) -> None:
        """What was written before the clock was set back happened at that moment, and ages from then on."""
        now = self._now()
        if any(at > now for at in self._state.attempted_at.values()):
            self._state.settle(now, self._keep_seconds)

    def _append(self, *entries: Entry) -> None:
        try:
            lines = [encoded(entry) for entry in entries]
            header = b"" if self._file.size else encoded(Header(FORMAT, entries[0].at))
            self._file.write(header + b"".join(lines))
        except (OSError, UnicodeEncodeError) as error:
            why = getattr(error, "strerror", error)
            raise UsageError(f"{self._path}: journal cannot be written: {why}; no unload is sent without it") from error
        for entry, line in zip(entries, lines, strict=True):
            self._state.take(entry, line)

    def _rotate_when_long(self) -> None:
        if self._file.size > self._rotate_beyond:
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
        at = self._now()
        self._state.settle(at, self._keep_seconds)
        carried = self._state.carried_over()
        fresh = rotate(self._path, at, encoded(Header(FORMAT, at, len(carried))) + carried)
        old, self._file = self._file, fresh
        self._rotate_beyond = self._limit(len(carried))
        old.close()

    def _limit(self, carried: int) -> int:
        """What is carried over may fill most of a file: then half of each file at least is new."""
        return max(self._max_bytes, 2 * min(carried, self._file.size))


def _opened(path: Path) -> Appender:
    try:
        return Appender(path)
    except OSError as error:
        raise UsageError(f"{path}: journal cannot be opened: {error.strerror}; is state_dir writable?") from error


def _finite(number: float) -> float:
    """JSON has no NaN and no infinity; a line with one could not be read again."""
    return number if math.isfinite(number) else 0.0
