"""Pause, drains and journal that several lbds share, through the topic that only the leader may write.

Each lbd obeys its own control files. The leader writes changes of its own files to the topic; the others apply them, so
that the next leader neither moves in a pause nor sends a bundle to a drained broker. ``control/shared.json`` has the
last written or applied state of each order: a control file that differs from it was ordered here since.

The leader's journal lines are in the topic, too: an intent before its move is requested, an outcome after it. The
others append what they read there, so that each knows cool-downs, budgets and open moves when it becomes the leader.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from lbd.clock import boot_seconds
from lbd.errors import LbdError, RefusedError, UsageError
from lbd.files import At, as_usage_error, directory, put_order
from lbd.files import decoded as files_decoded
from lbd.model import Unload
from lbd.pulsar.settings import ACKNOWLEDGED_WITHIN_SECONDS
from lbd.store.control import Control, Pause
from lbd.store.drains import Drain, Drains
from lbd.store.journal import Journal
from lbd.store.journal_lines import (
    Entry,
    Intent,
    Noted,
    OutcomeLine,
    PlacementLine,
    ServedLine,
    SplitEnded,
    SplitIntent,
    encoded,
)
from lbd.store.rollouts import Rollout, Rollouts
from lbd.text import DAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from lbd.clock import Moment
    from lbd.model import Outcome
    from lbd.split.plan import Cut, CutOutcome


FORMAT = 1
PAUSE, DRAIN, ROLLOUT = "pause", "drain ", "rollout"
ENDS_ARE_KEPT_SECONDS = 4 * 86_400.0
"""Twice as long as the topic keeps a line: one that is read again after its order has ended is known to be old."""

TICK_SECONDS = 0.001

Order: TypeAlias = Pause | Drain | Rollout


class Ordered(msgspec.Struct, frozen=True, tag="ordered", tag_field="event", omit_defaults=True):
    """The new state of one order, ``pause``, ``drain BROKER`` or ``rollout``; without a value the order has ended.

    ``at`` (epoch seconds) grows from line to line of an order, whatever the clocks of the writers show.
    """

    at: At
    order: str
    pause: Pause | None = None
    drain: Drain | None = None
    rollout: Rollout | None = None

    @property
    def value(self) -> Order | None:
        """The order itself, None where it has ended."""
        return self.pause or self.drain or self.rollout


class _KnownOrders(msgspec.Struct, frozen=True):
    """The last lines of the topic. Those of orders ``aside`` are not obeyed: another order was made here before."""

    format: int = FORMAT
    orders: dict[str, Ordered] = {}
    aside: set[str] = set()


class SharedOrders:
    """The orders of one lbd beside those of the topic; used by one thread.

    Every method raises :class:`UsageError` where a file cannot be read or written.
    """

    def __init__(self, state_dir: Path, now: Callable[[], float]) -> None:
        self._state_dir, self._now = state_dir, now
        self._control, self._drains, self._rollouts = Control(state_dir), Drains(state_dir), Rollouts(state_dir)
        self._path = state_dir / "control" / "shared.json"
        self._read: _KnownOrders | None = None

    def take(self, lines: Iterable[Ordered]) -> list[str]:
        """Apply lines of the topic to the control files, in their order; returns the changes as texts.

        An order that a person made here and that the topic does not know stays until it is ended here, or until this
        lbd leads: then the order that lasts longer holds. An end in the topic ends only the order that it belongs to.
        When in doubt lbd does not move.
        """
        fresh = [line for line in lines if line.at > self._last_at(line.order)]
        texts = [self._apply(line) for line in fresh]
        if fresh:
            self._save()
        return [text for text in texts if text]

    def publish(self, publish: Callable[[bytes], None], *, everything: bool = False) -> None:
        """As the leader: publish what has changed here, or ``everything`` in force, for instances that are new.

        ``publish`` returns when a line is stored, and raises :class:`~lbd.errors.LbdError` where that failed.
        """
        aside = sorted(self._known.aside & self._orders.keys())
        for key in aside:
            self._bring_back(key)
        local = self._local()
        keys = local.keys() | self._orders.keys()
        changed = [line for key in sorted(keys) if (line := self._change(key, local)) is not None]
        standing = [line for line in self._orders.values() if line.value is not None] if everything else []
        again = {line.order for line in changed}
        for line in (*changed, *(one for one in standing if one.order not in again)):
            publish(msgspec.json.encode(line))
            self._orders[line.order] = line
        if changed or aside:
            self._known.aside.clear()
            self._save()

    def _bring_back(self, key: str) -> None:
        """Obey the topic's order again, unless the order made here lasts at least as long."""
        line, order = self._orders[key], self._local().get(key)
        ends = _ends(line.value)
        if ends > max(self._now(), _ends(order)):
            self._obey(line)

    def _change(self, key: str, local: dict[str, Order]) -> Ordered | None:
        known, order = self._orders.get(key), local.get(key)
        if order == (known.value if known is not None else None):
            return None
        return _line(max(self._now(), self._last_at(key) + TICK_SECONDS), key, order)

    def _apply(self, line: Ordered) -> str:
        """Obey a line, unless another order was made here or the line has expired; returns the change as text.

        A line is known only after it was obeyed: after an error it is applied again, and no leader publishes the end of
        an order that never began.
        """
        order, known = self._local().get(line.order), self._orders.get(line.order)
        ordered_here = order is not None and (known is None or order != known.value)
        run_out = order is None and _ends(line.value) <= self._now()
        news = order != line.value and not ordered_here and not run_out
        if news:
            self._obey(line)
        self._orders[line.order] = line
        if ordered_here and line.value not in {None, order}:
            self._known.aside.add(line.order)
        else:
            self._known.aside.discard(line.order)
        return _order_text(line) if news and not _alike(line, order) else ""

    def _obey(self, line: Ordered) -> None:
        if line.pause is not None:
            self._control.pause(line.pause)
        elif line.drain is not None:
            self._drains.begin(line.drain)
        elif line.rollout is not None:
            self._rollouts.save(line.rollout)
        elif line.order == PAUSE:
            self._control.resume()
        elif line.order == ROLLOUT:
            self._rollouts.forget()
        else:
            self._drains.release(line.order.removeprefix(DRAIN))

    def _local(self) -> dict[str, Order]:
        """The orders in force here. Raises if the directory is gone or replaced: its orders have not ended."""
        with as_usage_error(self._state_dir), directory(self._state_dir):
            now = self._now()
        orders: dict[str, Order] = {DRAIN + broker: one for broker, one in self._drains.in_force(now).items()}
        others = {PAUSE: self._control.paused(now), ROLLOUT: self._rollouts.under_way()}
        return {**orders, **{key: one for key, one in others.items() if one is not None}}

    def _last_at(self, key: str) -> float:
        known = self._orders.get(key)
        return known.at if known is not None else -1.0

    @property
    def _known(self) -> _KnownOrders:
        """The lines last published or applied; none if the file cannot be read: all orders are published again then."""
        if self._read is None:
            try:
                known = files_decoded(self._path, _KnownOrders)
            except UsageError:
                known = None
            self._read = known if known is not None and known.format == FORMAT else _KnownOrders()
        return self._read

    @property
    def _orders(self) -> dict[str, Ordered]:
        return self._known.orders

    def _save(self) -> None:
        since = self._now() - ENDS_ARE_KEPT_SECONDS
        orders = {key: line for key, line in self._orders.items() if line.value is not None or line.at > since}
        known = _KnownOrders(orders=orders, aside=self._known.aside & orders.keys())
        put_order(self._state_dir, self._path, known)
        self._read = known


def _line(at: float, key: str, order: Order | None) -> Ordered:
    if isinstance(order, Pause):
        return Ordered(at, key, pause=order)
    if isinstance(order, Rollout):
        return Ordered(at, key, rollout=order)
    return Ordered(at, key, drain=order)


def _ends(order: Order | None) -> float:
    """Epoch seconds."""
    if order is None:
        return 0.0
    return math.inf if isinstance(order, Rollout) or order.until is None else order.until


def _alike(line: Ordered, order: Order | None) -> bool:
    """Whether a line has the same text as the order here: the same order, for longer."""
    return order is not None and _order_text(line) == _order_text(_line(line.at, line.order, order))


def _order_text(line: Ordered) -> str:
    if line.pause is not None:
        return f"paused, as the leader was told, by {line.pause.by}: {line.pause.reason or 'no reason was given'}"
    if line.drain is not None:
        return f"{line.drain.broker} is drained, as the leader was told, by {line.drain.by}"
    if line.rollout is not None:
        return f"a rollout is under way, as the leader was told, by {line.rollout.by}"
    return f"over, as the leader was told: {line.order}"


# --- the shared journal


class Leads(msgspec.Struct, frozen=True, tag="leads", tag_field="event"):
    """Stands in the topic only: from here on ``name`` writes. ``term`` distinguishes its periods as the leader."""

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

    ``on_foreign`` is called with each move that another lbd began or ended. Outcomes of this lbd are always written
    here, and published as soon as this lbd leads: a move that was made is never forgotten.
    """

    def __init__(
        self,
        path: Path,
        now: Callable[[], float],
        clock: Callable[[], float] = boot_seconds,
        *,
        state_lost: Callable[[], str] = lambda: "",
        boot: Callable[[], Moment | None] = lambda: None,
    ) -> None:
        """As :class:`Journal`; nobody leads yet. ``clock`` goes on while the machine is suspended."""
        super().__init__(path, now, state_lost=state_lost, boot=boot)
        self._clock = clock
        self._term, self._terms = 0, dict[str, int]()
        self._publish: Callable[[bytes], None] | None = None
        self._unpublished: list[bytes] = []
        self._leading = threading.Event()
        self.on_foreign: Callable[[Unload], None] = lambda _: None

    @property
    def leading(self) -> bool:
        """Whether intents may be written."""
        return self._leading.is_set()

    def lead(self, publish: Callable[[bytes], None]) -> None:
        """From now on lines are written with ``publish``, which returns when one is stored.

        It raises :class:`LbdError` where that failed, and so does this when waiting outcomes cannot be published.
        """
        with self._lock:
            while self._unpublished:
                publish(self._unpublished[0])
                del self._unpublished[0]
            self._publish = publish
            self._term += 1
            self._leading.set()

    def resign(self) -> None:
        """Write no further intent; waits for no line that is on its way."""
        self._leading.clear()

    def intend(self, unload: Unload, attempt: int) -> str:
        """As :meth:`Journal.intend`, once it is acknowledged. Raises :class:`RefusedError` when this lbd leads no more.

        An intent that took too long stays open: the next leader finds its outcome.
        """
        started_at = self._clock()
        with self._lock:
            move = super().intend(unload, attempt)
            self._terms[move] = self._term
        self._in_time(started_at)
        return move

    def conclude(self, move: str, outcome: Outcome) -> None:
        """As :meth:`Journal.conclude`."""
        super().conclude(move, outcome)
        self._terms.pop(move, None)

    def confirm(self, move: str, again: bool) -> None:
        """Check that this lbd has led since it wrote the intent; ``again``: prove it by writing the intent once more.

        Readers know an intent that they read twice. Raises :class:`RefusedError`.
        """
        term = self._term
        if not self.leading or self._terms.get(move, term) != term:
            raise RefusedError("another lbd may have led since the intent was written")
        if again:
            started_at = self._clock()
            with self._lock:
                intent, _ = self._state.intents.get(move, (None, b""))
                if intent is not None:
                    self._acknowledged(encoded(intent))
            self._in_time(started_at)
            self.confirm(move, again=False)

    def intend_split(self, cut: Cut) -> str:
        """As :meth:`intend`, of a split."""
        started_at = self._clock()
        with self._lock:
            split = super().intend_split(cut)
            self._terms[split] = self._term
        self._in_time(started_at)
        return split

    def conclude_split(self, split: str, outcome: CutOutcome) -> None:
        """As :meth:`Journal.conclude_split`."""
        super().conclude_split(split, outcome)
        self._terms.pop(split, None)

    def take(self, lines: Sequence[Shared]) -> None:
        """Write new lines of the topic to this journal. Raises :class:`UsageError` when it cannot be written."""
        with self._lock:
            fresh = self._fresh(lines)
            if fresh:
                super()._append(*fresh)
                self._rotate_when_long()
        for entry in fresh:
            if isinstance(entry, Intent):
                self.on_foreign(Unload(entry.bundle, entry.source, entry.destination, entry.msg_rate, entry.throughput))

    def _append(self, *entries: Entry) -> None:
        """Write lines: an intent only after the topic has it, a line on something that happened in any case."""
        for entry in entries:
            if isinstance(entry, Intent | SplitIntent):
                self._acknowledged(encoded(entry))
            else:
                self._publish_or_wait(encoded(entry))
        super()._append(*entries)

    def _acknowledged(self, line: bytes) -> None:
        if self._publish is None or not self.leading:
            raise RefusedError("this lbd does not lead (leader.enabled), and who leads may move the same bundle")
        try:
            self._publish(line)
        except LbdError as error:
            self.resign()
            raise RefusedError(f"this lbd leads no more: {error}") from error

    def _publish_or_wait(self, line: bytes) -> None:
        """Publish a line, or else keep it until this lbd leads again; another leader finds the outcome itself."""
        try:
            if self._publish is not None and self.leading:
                self._publish(line)
                return
        except LbdError:
            self.resign()
        self._unpublished.append(line)

    def _in_time(self, started_at: float) -> None:
        """Refuse an intent that took too long: a process that was stopped, as by SIGSTOP, may have been replaced."""
        if (took := self._clock() - started_at) > ACKNOWLEDGED_WITHIN_SECONDS:
            self.resign()
            limit = f"wanted {ACKNOWLEDGED_WITHIN_SECONDS:.0f}"
            raise RefusedError(f"this lbd leads no more: its intent took {took:.0f} s to be written, {limit}")

    def _fresh(self, lines: Sequence[Shared]) -> list[Entry]:
        """The lines that this journal does not have; of a day at most, as budgets and open moves need no more."""
        since = self._now() - DAY_SECONDS
        intended, concluded = set[str](), set[str]()
        noted: dict[str, str | None] = {}
        fresh: list[Entry] = []
        for entry in lines:
            if isinstance(entry, Leads | Ordered) or self._known(entry, (intended, concluded), noted, since):
                continue
            if isinstance(entry, Noted) or (isinstance(entry, OutcomeLine) and not entry.amended):
                noted[entry.bundle] = entry.noted
            ids = {getattr(entry, "move", ""), getattr(entry, "split", "")}
            if isinstance(entry, Intent | SplitIntent | PlacementLine):
                intended |= ids
            elif isinstance(entry, OutcomeLine | SplitEnded):
                concluded |= ids
            fresh.append(entry)
        return fresh

    def _known(
        self, entry: Entry, others: tuple[set[str], set[str]], noted: dict[str, str | None], since: float
    ) -> bool:
        """Lines come more than once: as this lbd's own, after a restart, and when a client sends again.

        ``others`` are the moves and splits that begin and end in other fresh lines, ``noted`` the last notes of these.
        The first outcome of a move holds.
        """
        (intended, concluded), state, known = others, self._state, True
        match entry:
            case Intent():
                known = entry.at <= since or entry.move in intended or entry.move in state.sent
            case OutcomeLine(amended=True):
                sent = entry.move in state.sent or entry.move in intended
                known = not sent or entry.at <= state.amended_at.get(entry.move, 0.0)
            case OutcomeLine():
                known = entry.move in concluded or (entry.move not in state.intents and entry.move not in intended)
            case ServedLine():
                sent = entry.move in state.sent or entry.move in intended
                known = not sent or entry.at <= state.served_at.get(entry.move, 0.0)
            case SplitIntent():
                known = entry.at <= since or entry.split in intended or state.splits.knows(entry.split)
            case SplitEnded():
                still_open = entry.split in dict(state.splits.open()) or entry.split in intended
                known = entry.split in concluded or not still_open
            case PlacementLine():
                known = entry.move in intended or entry.at <= max(since, state.attempted_at.get(entry.bundle, 0.0))
            case Noted():
                note = state.notes.get(entry.bundle)
                known = entry.at <= since or noted.get(entry.bundle, note.broker if note else None) == entry.noted
        return known
