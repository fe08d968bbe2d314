"""A journal that several lbds have in common, through a topic which one of them at a time may write.

What the leader writes stands in the topic, too: an intent before its move is asked for, an outcome after it. The others
write down what they read there, so that each of them knows cool-downs, budgets and open moves when it comes to lead.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from lbd.errors import LbdError, RefusedError
from lbd.model import Unload
from lbd.permit.budget import DAY_SECONDS
from lbd.pulsar.settings import ACKNOWLEDGED_WITHIN_SECONDS
from lbd.record.journal import Journal
from lbd.record.journal.lines import At, Ended, Entry, Intent, Noted, Placing, SplitEnded, SplitIntent, encoded
from lbd.record.shared_orders import Ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lbd.split.cut import Cut


class Leads(msgspec.Struct, frozen=True, tag="leads", tag_field="event"):
    """Stands in the topic only: from here on ``name`` writes. ``term`` tells one time of leading from another."""

    at: At
    name: str
    term: str


Shared: TypeAlias = Entry | Leads | Ordered

_DECODER: msgspec.json.Decoder[Shared] = msgspec.json.Decoder(Shared)


def decoded(line: bytes) -> Shared | None:
    """A line of the topic; None for one that cannot be read."""
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def leads(at: float, name: str, term: str) -> bytes:
    """The line with which a leader begins."""
    return msgspec.json.encode(Leads(at, name, term))


class SharedJournal(Journal):
    """A journal whose intents are refused unless this lbd leads; thread-safe.

    ``on_foreign`` hears of each move that another lbd began or ended. What ended here is written here in any case, and
    told to the topic as soon as this lbd leads: a move that was made is never forgotten.
    """

    def __init__(self, path: Path, now: Callable[[], float], monotonic: Callable[[], float] = time.monotonic) -> None:
        """As :class:`Journal`; nobody leads yet."""
        super().__init__(path, now)
        self._monotonic = monotonic
        self._publish: Callable[[bytes], None] | None = None
        self._untold: list[bytes] = []
        self._leading = threading.Event()
        self.on_foreign: Callable[[Unload], None] = lambda _: None

    @property
    def leading(self) -> bool:
        """Whether intents may be written."""
        return self._leading.is_set()

    def lead(self, publish: Callable[[bytes], None]) -> None:
        """From now on lines are written with ``publish``, which returns when one is stored.

        It raises :class:`LbdError` where that failed, and so does this when what ended meanwhile cannot be told.
        """
        with self._lock:
            while self._untold:
                publish(self._untold[0])
                del self._untold[0]
            self._publish = publish
            self._leading.set()

    def resign(self) -> None:
        """Write no further intent; waits for no line that is on its way."""
        self._leading.clear()

    def intend(self, unload: Unload, attempt: int) -> str:
        """As :meth:`Journal.intend`, once it is acknowledged. Raises :class:`RefusedError` when this lbd leads no more.

        An intent that took too long stays open: who leads next asks what came of it.
        """
        begun = self._monotonic()
        move = super().intend(unload, attempt)
        self._in_time(begun)
        return move

    def intend_split(self, cut: Cut) -> str:
        """As :meth:`intend`, of a split."""
        begun = self._monotonic()
        split = super().intend_split(cut)
        self._in_time(begun)
        return split

    def take(self, lines: Sequence[Shared]) -> None:
        """Write down what is new in lines read from the topic. Raises :class:`UsageError` when it cannot be written."""
        with self._lock:
            fresh = self._fresh(lines)
            if fresh:
                super()._append(*fresh)
                self._rotate_when_long()
        for entry in fresh:
            if isinstance(entry, Intent):
                self.on_foreign(Unload(entry.bundle, entry.source, entry.destination, entry.msg_rate, entry.throughput))

    def _append(self, *entries: Entry) -> None:
        """An intent has to stand in the topic first; what has happened is written in any case."""
        for entry in entries:
            if isinstance(entry, Intent | SplitIntent):
                self._acknowledged(encoded(entry))
            else:
                self._tell(encoded(entry))
        super()._append(*entries)

    def _acknowledged(self, line: bytes) -> None:
        if self._publish is None or not self.leading:
            raise RefusedError("this lbd does not lead (leader.enabled), and who leads may move the same bundle")
        try:
            self._publish(line)
        except LbdError as error:
            self.resign()
            raise RefusedError(f"this lbd leads no more: {error}") from error

    def _tell(self, line: bytes) -> None:
        """A line that cannot be told waits for the next time of leading; another leader finds out by itself."""
        try:
            if self._publish is not None and self.leading:
                self._publish(line)
                return
        except LbdError:
            self.resign()
        self._untold.append(line)

    def _in_time(self, begun: float) -> None:
        """Whoever stood still in between, as by SIGSTOP, may have been replaced."""
        if (took := self._monotonic() - begun) > ACKNOWLEDGED_WITHIN_SECONDS:
            self.resign()
            limit = f"wanted {ACKNOWLEDGED_WITHIN_SECONDS:.0f}"
            raise RefusedError(f"this lbd leads no more: its intent took {took:.0f} s to be written, {limit}")

    def _fresh(self, lines: Sequence[Shared]) -> list[Entry]:
        """What this journal does not have; of a day at most, as budgets and open moves need no more."""
        since = self._now() - DAY_SECONDS
        begun, ended = set[str](), set[str]()
        noted: dict[str, str | None] = {}
        fresh: list[Entry] = []
        for entry in lines:
            if isinstance(entry, Leads | Ordered) or self._known(entry, (begun, ended), noted, since):
                continue
            if isinstance(entry, Noted | Ended) and entry.bundle is not None:
                noted[entry.bundle] = entry.noted
            ids = {getattr(entry, "move", ""), getattr(entry, "split", "")}
            if isinstance(entry, Intent | SplitIntent | Placing):
                begun |= ids
            elif isinstance(entry, Ended | SplitEnded):
                ended |= ids
            fresh.append(entry)
        return fresh

    def _known(
        self, entry: Entry, others: tuple[set[str], set[str]], noted: dict[str, str | None], since: float
    ) -> bool:
        """Lines come more than once: as this lbd's own, after a restart, and when a client sends again.

        ``others`` are moves and splits that begin and end in lines that are fresh, too, ``noted`` what these note last.
        The first outcome of a move holds.
        """
        (begun, ended), state, known = others, self._state, True
        match entry:
            case Intent():
                known = entry.at <= since or entry.move in begun or entry.move in state.sent
            case Ended():
                known = entry.move in ended or (entry.move not in state.intents and entry.move not in begun)
            case SplitIntent():
                known = entry.at <= since or entry.split in begun or state.splits.knows(entry.split)
            case SplitEnded():
                still_open = entry.split in dict(state.splits.open()) or entry.split in begun
                known = entry.split in ended or not still_open
            case Placing():
                known = entry.move in begun or entry.at <= max(since, state.attempted_at.get(entry.bundle, 0.0))
            case Noted():
                note = state.notes.get(entry.bundle)
                known = entry.at <= since or noted.get(entry.bundle, note.broker if note else None) == entry.noted
        return known
