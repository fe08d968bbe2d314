"""The splits of a journal: those without an outcome, and those of the last day, which the budget counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.split.cut import Cut, SplitResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.record.journal.lines import SplitEnded, SplitIntent


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


class Splits:
    """What the lines so far come to, in the order in which they were written."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Split, bytes]] = {}

    def begin(self, entry: SplitIntent, line: bytes) -> None:
        """Count an intent in."""
        cut = Cut(entry.bundle, entry.owner, entry.algorithm, entry.positions, entry.reason)
        self._found[entry.split] = (Split(entry.at, cut), line.strip() + b"\n")

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
