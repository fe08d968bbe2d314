"""The journal: the only truth about moves and cool-downs. Intent is on disk before a request is sent, outcome after.

One JSON object a line in ``journal.jsonl``. A kill tears at most the last line; torn lines are passed over and counted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import msgspec

from lbd.errors import UsageError
from lbd.model import Outcome, Result, Unload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


class Intent(msgspec.Struct, frozen=True, tag="intent", tag_field="event", omit_defaults=True):
    """An unload is about to be asked for."""

    at: float
    move: str
    bundle: str
    source: str
    destination: str | None
    attempt: int = 1
    msg_rate: float = 0.0
    throughput: float = 0.0
    reason: str = ""


class Ended(msgspec.Struct, frozen=True, tag="outcome", tag_field="event", omit_defaults=True):
    """What became of an intent, as proven by asking who owns the bundle."""

    at: float
    move: str
    result: Result
    owner: str | None
    detail: str = ""
    seconds: float = 0.0
    affinity_left: bool = False


_LINE = msgspec.json.Decoder(Intent | Ended)
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True)
class Past:
    """What the journal says: ``attempted_at`` the last attempt on each bundle, ``open`` intents without an outcome."""

    attempted_at: Mapping[str, float] = field(default_factory=dict)
    open: tuple[tuple[str, Unload], ...] = ()
    torn_lines: int = 0


class Journal:
    """An open journal. Every line is on disk when the call returns.

    ``attempted_at`` is when each bundle was last attempted, ``torn_lines`` how many lines could not be read.
    """

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        past = read(path)
        self._now = now
        self._path = path
        self._count = 0
        self._open = dict(past.open)
        self._file = _open(path)
        self.attempted_at = dict(past.attempted_at)
        self.torn_lines = past.torn_lines

    @property
    def open(self) -> tuple[tuple[str, Unload], ...]:
        """Moves without an outcome, with their ids: those of a process that was killed, and the one in flight."""
        return tuple(self._open.items())

    def intend(self, unload: Unload, attempt: int) -> str:
        """Write that ``unload`` is about to be asked for; returns the id that its outcome refers to."""
        at = self._now()
        self._count += 1
        move = f"{int(at * 1000):x}-{os.getpid():x}-{self._count}"
        ends = (unload.bundle, unload.source, unload.destination)
        self._append(Intent(at, move, *ends, attempt, unload.msg_rate, unload.throughput, unload.reason))
        self._open[move] = unload
        self.attempted_at[unload.bundle] = at
        return move

    def conclude(self, move: str, outcome: Outcome) -> None:
        """Write how the move ended."""
        proven = (outcome.result, outcome.owner, outcome.detail)
        self._append(Ended(self._now(), move, *proven, round(outcome.seconds, 3), outcome.affinity_left))
        self._open.pop(move, None)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, line: Intent | Ended) -> None:
        try:
            self._file.write(_ENCODER.encode(line) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise UsageError(
                f"{self._path}: journal cannot be written: {error.strerror}; no unload is sent without it"
            ) from error


def read(path: Path) -> Past:
    """What a journal says; an absent file is an empty one."""
    attempted_at: dict[str, float] = {}
    opened: dict[str, Intent] = {}
    torn = 0
    for line in _lines(path):
        try:
            entry = _LINE.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            torn += 1
            continue
        if isinstance(entry, Intent):
            attempted_at[entry.bundle] = max(entry.at, attempted_at.get(entry.bundle, entry.at))
            opened[entry.move] = entry
        else:
            opened.pop(entry.move, None)
    return Past(attempted_at, tuple((move, _unload(intent)) for move, intent in opened.items()), torn)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from (line for line in file if line.strip())
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{path}: journal cannot be read: {error.strerror}") from error


def _open(path: Path) -> IO[bytes]:
    """Append; a torn last line is ended first, so that the next entry starts on a line of its own."""
    try:
        file = path.open("ab+")
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
    except OSError as error:
        raise UsageError(f"{path}: journal cannot be opened: {error.strerror}; is state_dir writable?") from error
    return file


def _unload(intent: Intent) -> Unload:
    return Unload(intent.bundle, intent.source, intent.destination, intent.msg_rate, intent.throughput, intent.reason)
