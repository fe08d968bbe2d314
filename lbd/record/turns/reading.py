"""Reading kept turns, the newest first: what is asked about is mostly recent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lbd.errors import UsageError
from lbd.files import refused
from lbd.record.turns import segments
from lbd.record.turns.lines import FORMAT, Header, Same, Turn, decoded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class KeptTurns:
    """The turns kept in a folder, as they are when it is first asked; ``torn_lines`` were passed over so far.

    Iterating raises :class:`~lbd.errors.UsageError` for a file that cannot be read, or is of a newer format.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._newest: tuple[Path, list[Turn]] | None = None
        self._torn: dict[Path, int] = {}

    @property
    def torn_lines(self) -> int:
        """Lines that could not be read, of the files looked at."""
        return sum(self._torn.values())

    def __iter__(self) -> Iterator[Turn]:
        """Every turn, the newest first."""
        files = self._files()
        for path in reversed(files):
            yield from reversed(self._kept(path) if path == files[-1] else self._turns(path))

    def find(self, number: int) -> Turn | None:
        """The turn of this number, or the quiet ones that it is among."""
        before = [path for path in self._files() if segments.first_turn(path) <= number]
        found = (turn for path in before[-1:] for turn in self._turns(path))
        return next((turn for turn in found if turn.turn <= number <= turn.last), None)

    def oldest(self) -> int:
        """Number of the oldest turn that is kept; 0 when nothing is."""
        return next((turn.turn for path in self._files() for turn in self._turns(path)), 0)

    def _files(self) -> list[Path]:
        try:
            return segments.files(self._folder)
        except OSError as error:
            raise refused(self._folder, error, "read") from error

    def _kept(self, path: Path) -> list[Turn]:
        """The newest file, which every question begins with, is read once."""
        if self._newest is None or self._newest[0] != path:
            self._newest = path, self._turns(path)
        return self._newest[1]

    def _turns(self, path: Path) -> list[Turn]:
        """A file's turns, oldest first; one that was removed meanwhile has none, one that was packed is read so."""
        for candidate in (path, segments.packed(path)):
            try:
                return self._joined(candidate)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise refused(path, error, "read") from error
        return []

    def _joined(self, path: Path) -> list[Turn]:
        found: list[Turn] = []
        self._torn[path] = 0
        for line in segments.lines_of(path):
            match decoded(line) if line.strip() else Header(FORMAT):
                case None:
                    self._torn[path] += 1
                case Turn() as turn:
                    found.append(turn)
                case Same() as same if found and found[-1].turn == same.turn:
                    found[-1] = msgspec.structs.replace(found[-1], repeated=same.repeated, until=same.until)
                case Header(format=form) if form > FORMAT:
                    raise UsageError(f"{path}: kept turns of format {form}, this lbd reads up to {FORMAT}")
        return found


def last_number(folder: Path) -> int:
    """Number of the last turn that anything is known of, 0 for none. Raises OSError."""
    newest = segments.files(folder)[-1:]
    found = [segments.first_turn(path) for path in newest]
    for path in newest:
        for line in segments.lines_of(path):
            match decoded(line):
                case Turn() as turn:
                    found.append(turn.turn)
                case Same() as same:
                    found.append(same.turn + same.repeated)
    return max(found, default=0)
