"""The splits of a journal: those without an outcome, those of the last day, which the budget counts, or all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.record.journal.lines import SplitEnded, SplitIntent
from lbd.record.journal.moves import all_entries
from lbd.record.journal.segments import LIVE_NAME
from lbd.split.cut import Cut, SplitResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

HOUR_SECONDS = 3600.0


@dataclass(frozen=True)
class Split:
    """One split that was asked for at ``at`` (epoch seconds). ``ended`` is None while it is open."""

    at: float
    cut: Cut
    ended: SplitEnded | None = None

    @property
    def may_have_cut(self) -> bool:
        """Whether it counts: anything but a range that is known to have stayed whole."""
        return self.ended is None or self.ended.result is not SplitResult.NOT_SPLIT


def within_hour(splits: Iterable[Split], now: float) -> int:
    """Splits within the hour before ``now``; those that certainly cut nothing are not counted."""
    return sum(one.at > now - HOUR_SECONDS and one.may_have_cut for one in splits)


def split_or_attempted(attempted_at: Mapping[str, float], splits: Iterable[Split]) -> dict[str, float]:
    """The last attempt on each bundle, or when it came out of a split, whichever was later.

    Parts may be moved at once, and are not split again so soon.
    """
    found = dict(attempted_at)
    for ended in (split.ended for split in splits if split.ended is not None):
        found |= {part: max(found.get(part, 0.0), ended.at) for part in ended.parts}
    return found


def splits_of(where: Path) -> list[Split]:
    """All splits of the journal in a state directory, in the order in which they were intended.

    Raises :class:`~lbd.errors.UsageError` for a file that cannot be read or is of a newer format.
    """
    found = Splits()
    for entry in all_entries(where / LIVE_NAME):
        match entry:
            case SplitIntent():
                found.begin(entry, b"")
            case SplitEnded():
                found.end(entry, b"")
    return sorted(found.all(), key=lambda split: split.at)


class Splits:
    """What the lines so far come to, in the order in which they were written."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Split, bytes]] = {}

    def begin(self, entry: SplitIntent, line: bytes) -> None:
        """Count an intent in."""
        cut = Cut(entry.bundle, entry.owner, entry.algorithm, entry.positions, entry.reason)
        self._found[entry.split] = (Split(entry.at, cut), line.strip() + b"\n")

    def knows(self, split: str) -> bool:
        """Whether its intent is among the lines."""
        return split in self._found

    def end(self, entry: SplitEnded, line: bytes) -> None:
        """Count an outcome in."""
        if entry.split in self._found:
            split, intent = self._found[entry.split]
            self._found[entry.split] = (replace(split, ended=entry), intent + line.strip() + b"\n")

    def settle(self, now: float, keep_seconds: float) -> None:
        """Forget those that are too old, but not the open ones; none was asked for later than now."""
        self._found = {
            name: (replace(split, at=min(split.at, now)), lines)
            for name, (split, lines) in self._found.items()
            if split.ended is None or split.at > now - keep_seconds
        }

    def open(self) -> tuple[tuple[str, Split], ...]:
        """Splits without an outcome, with their ids, oldest first."""
        return tuple((name, split) for name, (split, _) in self._found.items() if split.ended is None)

    def all(self) -> tuple[Split, ...]:
        """Those of the last day, and the open ones."""
        return tuple(split for split, _ in self._found.values())

    def kept(self) -> Iterator[bytes]:
        """The lines from which the same is read."""
        yield from (lines for _, lines in self._found.values())
