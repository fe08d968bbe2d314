"""The newest moves of a journal that somebody else writes: each look reads only what has come since the one before."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import IO, TYPE_CHECKING

from lbd.errors import UsageError
from lbd.record.journal.lines import LONGEST_LINE, decoded
from lbd.record.journal.moves import Move, joined
from lbd.record.journal.segments import LIVE_NAME, rotated

if TYPE_CHECKING:
    from pathlib import Path

KEPT = 1000
"""Moves that can be told, those under way among them. At least half of a file that has been rotated is new: some
6,000 moves."""


class Following:
    """Follows the journal of a state directory. Thread-safe.

    The first look reads the live file and the one before it, the others what was appended since.
    """

    def __init__(self, state_dir: Path, kept: int = KEPT) -> None:
        self._path, self._kept = state_dir / LIVE_NAME, kept
        self._lock = threading.Lock()
        self._moves: OrderedDict[str, Move] = OrderedDict()
        self._inode: int | None = None
        self._at = 0

    def newest(self, last: int) -> list[Move]:
        """So many moves, those under way included, the newest first; at most ``kept``.

        Raises :class:`UsageError` for a file that cannot be read or is of a newer format.
        """
        with self._lock:
            try:
                self._look()
            except FileNotFoundError:
                pass  # nothing was ever moved
            except OSError as error:
                raise UsageError(f"{self._path}: journal cannot be read: {error.strerror}") from error
            found = list(self._moves.values())
        return found[: -last - 1 : -1]

    def _look(self) -> None:
        """The live file is opened before the older ones are listed: one that is rotated meanwhile is among them."""
        with self._path.open("rb") as live:
            found = os.fstat(live.fileno())
            if found.st_ino == self._inode and found.st_size < self._at:
                self._moves.clear()  # the disk was full, and what could not be written was taken back
                self._inode = None
            if found.st_ino != self._inode:
                self._read_older()
                self._inode, self._at = found.st_ino, 0
            self._read(live)

    def _read_older(self) -> None:
        """The rest of the file that was live at the last look, and those after it; the newest where it is not there."""
        files = rotated(self._path)
        for at, path in enumerate(files):
            if path.stat().st_ino == self._inode:
                files = files[at:]
                break
        else:
            files, self._at = files[-1:], 0
        for path in files:
            with path.open("rb") as file:
                self._read(file)
            self._at = 0

    def _read(self, file: IO[bytes]) -> None:
        """Whole lines: the end of one that is being written is there the next time."""
        file.seek(self._at)
        while line := file.readline(LONGEST_LINE):
            if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                return
            joined(self._moves, decoded(line, self._path))
            self._at += len(line)
            if len(self._moves) > self._kept:
                self._forget()

    def _forget(self) -> None:
        """The oldest that has ended: what is open stands in the next file again, and would be taken for new there."""
        ended = (name for name, move in self._moves.items() if move.result is not None)
        if (oldest := next(ended, None)) is not None:
            del self._moves[oldest]
