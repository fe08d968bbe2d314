"""Kept turns: what each turn saw, decided and why, for ``lbd explain``. A record that never stops the balancing.

One JSON object a line (``lines.py``) in ``turns/`` of the state directory (``segments.py``). Quiet turns that say the
same as the one before are counted on one line beside it. ``bundles.py`` keeps who owned what lately, ``reading.py``
reads it all, with a running lbd or without.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from lbd.record.turns import segments
from lbd.record.turns.lines import FORMAT, Header, PairSeen, Same, Turn, encoded
from lbd.record.turns.reading import last_number
from lbd.record.turns.settings import TurnsSettings

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FOLDER", "Turns", "TurnsSettings"]

FOLDER = "turns"
FILES = 16
"""The growing file is at most this part of all: so much goes at once when room is made."""

FULL_EVERY_SECONDS = 60.0
"""Scores of a calm cluster are kept once a minute: brokers sample CPU no more often."""

SAME_WIDTH = 96
"""Lines that are written over are all as long as this, so that one never leaves the end of another."""


class Turns:
    """The writer of kept turns; only the holder of the state directory may be one.

    ``trouble`` is one line on why turns are not kept at present, empty when they are. Nothing here raises.
    """

    def __init__(self, state_dir: Path, max_bytes: int) -> None:
        self._folder, self.max_bytes = state_dir / FOLDER, max_bytes
        self.trouble, self._lost = "", 0
        self._tail: segments.Tail | None = None
        self._before: Turn | None = None
        self._same_at: int | None = None
        self._number = 0
        try:
            self._number = last_number(self._folder)
        except OSError as error:
            self._fail(error)

    def keep(self, turn: Turn) -> int:
        """Keep a turn and return its number, which it has whether or not it could be written."""
        self._number += 1
        try:
            self._put(msgspec.structs.replace(turn, turn=self._number))
        except OSError as error:
            self._fail(error)
        else:
            self.trouble, self._lost = "", 0
        return self._number

    def close(self) -> None:
        """Close what is open."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _put(self, turn: Turn) -> None:
        if self._before is not None and self._tail is not None and _quiet(self._before, turn):
            self._repeat(self._before, turn, self._tail)
            return
        tail = self._opened(turn.turn)
        tail.write(encoded(turn))
        self._before, self._same_at = turn, None
        if tail.size > self.max_bytes // FILES:
            self._set_aside()

    def _repeat(self, before: Turn, turn: Turn, tail: segments.Tail) -> None:
        line = encoded(Same(before.turn, before.repeated + 1, turn.at))[:-1].ljust(SAME_WIDTH) + b"\n"
        if self._same_at is None:
            self._same_at = tail.write(line)
        else:
            tail.rewrite(line, self._same_at)
        self._before = msgspec.structs.replace(before, repeated=before.repeated + 1, until=turn.at)

    def _opened(self, number: int) -> segments.Tail:
        """The growing file, or a new one where the newest is full."""
        if self._tail is None:
            self._folder.mkdir(exist_ok=True)
            newest = segments.growing(self._folder, self.max_bytes // FILES)
            self._tail = segments.Tail(newest or segments.name_of(self._folder, number))
            if self._tail.size == 0:
                self._tail.write(encoded(Header(FORMAT)))
        return self._tail

    def _set_aside(self) -> None:
        """The file has grown too long. One that cannot be compressed now, as on a full disk, is so later."""
        self.close()
        self._before = None
        segments.prune(self._folder, self.max_bytes - self.max_bytes // FILES)
        for path in segments.files(self._folder):
            if path.name.endswith(segments.PLAIN):
                with suppress(OSError):
                    segments.pack(path)

    def _fail(self, error: OSError) -> None:
        """Begin anew with the next turn; balancing goes on."""
        self._lost += 1
        self.close()
        self._before = None
        number = "the last turn is" if self._lost == 1 else f"the last {self._lost:,} turns are"
        self.trouble = (
            f"{self._folder}: cannot be written: {error.strerror or error}; {number} not kept for lbd explain, "
            "balancing goes on"
        )


def _quiet(before: Turn, turn: Turn) -> bool:
    """Nothing happened, the same is said, and no new sample is lost that is a minute younger than the one kept."""
    if turn.unloads or turn.outcomes or turn.refused or before.unloads or before.outcomes or before.refused:
        return False
    age = turn.at - before.at
    new = any(broker.fresh for broker in turn.brokers) and age >= FULL_EVERY_SECONDS
    return age >= 0 and not new and _said(before) == _said(turn)


def _said(turn: Turn) -> tuple[object, ...]:
    """What a person would call the same: numbers may differ, reasons, counters and trust may not."""
    verdict = (turn.verdict.kind, turn.verdict.reason, turn.verdict.samples)
    hold = turn.hold.reason if turn.hold is not None else None
    pairs = [(pair.source, pair.destination, pair.low, pair.high, pair.fired, _calm(pair)) for pair in turn.pairs]
    skips = [(skip.what, skip.reason) for skip in turn.skips]
    brokers = [(broker.id, broker.to_settle, broker.doubt) for broker in turn.brokers]
    return verdict, hold, turn.acts, turn.error, turn.unfinished, pairs, skips, brokers


def _calm(pair: PairSeen) -> str | None:
    """A turn without a new sample waits like the one before it."""
    return "waiting" if pair.reason == "no-new-sample" else pair.reason
