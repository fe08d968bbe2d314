"""All moves of all files of a journal."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from lbd.model import Result  # noqa: TC001 - the API's document is made from the fields
from lbd.record.journal.lines import Ended, Entry, Intent, Placing, entries
from lbd.record.journal.segments import LIVE_NAME, rotated

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Move:
    """One attempt to move a bundle. Times are epoch seconds, ``msg_rate`` messages/s, ``throughput`` bytes/s.

    While it is open, or when nobody ever wrote how it ended, ``result`` and ``ended_at`` are None. ``source`` is empty
    where a bundle that nobody owned was placed.
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


class History(Iterator[Move]):
    """Each move once, in the order in which they were intended; ``torn_lines`` counts the lines passed over so far.

    What stands in two files, as after a kill while rotating, is told once. A move is told when those before it are:
    one that was never concluded holds those after it in memory, at most all that the files have.
    """

    def __init__(self, path: Path) -> None:
        self.torn_lines = 0
        self._waiting: OrderedDict[str, Move] = OrderedDict()
        self._seen: set[str] = set()
        self._moves = self._joined(path)

    def __next__(self) -> Move:
        return next(self._moves)

    def _joined(self, path: Path) -> Iterator[Move]:
        for entry in all_entries(path):
            if isinstance(entry, Intent | Placing):
                if entry.move in self._seen:
                    continue
                self._seen.add(entry.move)
            self.torn_lines += entry is None
            joined(self._waiting, entry)
            if isinstance(entry, Ended | Placing):
                yield from self._concluded()
        yield from self._waiting.values()

    def _concluded(self) -> Iterator[Move]:
        while self._waiting and next(iter(self._waiting.values())).result is not None:
            yield self._waiting.popitem(last=False)[1]


def joined(moves: MutableMapping[str, Move], entry: Entry | None) -> None:
    """Count one more line in, among ``moves`` by their names: each once, in the order in which they were intended."""
    match entry:
        case Intent():
            moves.setdefault(entry.move, _begun(entry))
        case Placing():
            moves.setdefault(entry.move, _placed(entry))
        case Ended():
            move = moves.get(entry.move)
            if move is not None and move.result is None:
                moves[entry.move] = _ended(move, entry)


def _begun(entry: Intent) -> Move:
    asked = (entry.attempt, entry.msg_rate, entry.throughput, entry.reason)
    return Move(entry.move, entry.at, entry.bundle, entry.source, entry.destination, *asked)


def _placed(entry: Placing) -> Move:
    proven = (entry.result, entry.owner, entry.detail, entry.seconds, entry.at)
    asked = (entry.destination, 1, 0.0, 0.0, entry.reason)
    return Move(entry.move, entry.at - entry.seconds, entry.bundle, "", *asked, *proven)


def _ended(move: Move, entry: Ended) -> Move:
    return replace(
        move, result=entry.result, owner=entry.owner, detail=entry.detail, seconds=entry.seconds, ended_at=entry.at
    )


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
