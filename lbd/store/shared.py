"""Orders and journal that several lbds share, through the topic that only the leader may write.

The leader publishes the list of all orders in force (``store/orders.py``) before a change of it counts, so an answer
to a person is true wherever the next leader runs. The others merge each list with what their stores have: one of them
may have been away for weeks. An order that was given while none of them led is published by the lbd that has it, once
it leads.

The leader's journal lines are in the topic, too: an intent before its move is requested, an outcome after it. The
others append what they read there, so that each knows cool-downs, budgets and open moves when it becomes the leader.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from lbd.clock import boot_seconds
from lbd.errors import LbdError, NotLeaderError, RefusedError, UnpublishedError, UsageError
from lbd.files import At
from lbd.foreign import printable_json
from lbd.model import Unload
from lbd.pulsar.settings import ACKNOWLEDGED_WITHIN_SECONDS
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
from lbd.store.orders import DRAIN, FILL, FORMAT, Order, OrderList, Orders, UnreadableOrdersError, next_number
from lbd.text import DAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from lbd.clock import Moment
    from lbd.model import Outcome
    from lbd.split.plan import Cut, CutOutcome


PUBLISHED_WITHIN_SECONDS = 30.0
"""How long a change waits for the one before it, which waits for the topic."""


class SharedOrders(Orders):
    """The orders of one lbd beside those of the topic; thread-safe.

    A change is published before it is written, and refused where this lbd does not lead. ``elsewhere`` is the refusal
    that names who does; None while nobody is known to: then a pause may be given here, which this lbd publishes once it
    leads. That there is nothing to change is published as well: an lbd that leads no more may not know of it yet.

    Only the leader changes what is published, and publishes one list after the other. So what was given beside it while
    a list was on its way is merged with that, and published next.
    """

    def __init__(self, state_dir: Path, now: Callable[[], float]) -> None:
        """As :class:`Orders`; nobody leads yet."""
        super().__init__(state_dir, shared=True)
        self._now = now
        self._topic = OrderList({})
        self._merged = OrderList({}), self._topic, OrderList({})
        self._publishing, self._merging = threading.Lock(), threading.Lock()
        self._publish: Callable[[bytes], None] | None = None
        self.elsewhere: Callable[[], NotLeaderError | None] = lambda: None

    def _decode(self, content: bytes | None) -> OrderList:
        """As :meth:`Orders._decode`, with what the topic has: a store that was lost has ended nothing."""
        here, topic = super()._decode(content), self._topic
        of_here, of_topic, merged = self._merged
        if here is not of_here or topic is not of_topic:
            merged = here.merge(topic)
            self._merged = here, topic, merged
        return merged

    def take(self, lists: Iterable[OrderList]) -> list[str]:
        """Merge lists of the topic, in any order; returns what has changed here as texts."""
        lists = tuple(lists)
        if not lists:
            return []
        before = self._readable()
        if not self._merge(lists):
            return []
        self._keep()
        return _changes(before, self._readable())

    def _merge(self, lists: Iterable[OrderList]) -> bool:
        """Whether the topic has anything new."""
        with self._merging:
            topic = reduce(OrderList.merge, lists, self._topic)
            is_new, self._topic = topic != self._topic, topic
        return is_new

    def lead(self, publish: Callable[[bytes], None]) -> None:
        """Publish all orders, and each change from now on, with ``publish``, which returns when a line is stored.

        It raises :class:`~lbd.errors.LbdError` where that failed, and so does this.
        """
        self._publish = publish
        self.publish(everything=True)

    def resign(self) -> None:
        """Publish nothing more; waits for no line that is on its way."""
        self._publish = None

    def publish(self, *, everything: bool = False) -> None:
        """Publish what was given here before this lbd led; ``everything``: for lbds that are new, and lost stores."""
        if everything or not all(order.born for order in self._readable().orders.values()):
            with self._next_line():
                before = self._readable()
                self._send(before, before)
                self._keep()

    def change(self, edit: Callable[[OrderList], OrderList]) -> OrderList:
        """As :meth:`Orders.change`; refused also where there is nothing to change, as who leads may know better."""
        self.refuse_beside_a_leader()
        if self._publish is None:
            return super().change(edit)
        with self._next_line():
            before = self.read()
            self._send(before, edit(before))
            with suppress(UsageError):  # it is in force all the same: from memory, and after a restart from the topic
                self._keep()
        return self.read()

    def refuse_beside_a_leader(self) -> None:
        """As :meth:`Orders.refuse_beside_a_leader`, as far as is known here."""
        if self._publish is None and (refusal := self.elsewhere()) is not None:
            raise refusal

    @contextmanager
    def _next_line(self) -> Iterator[None]:
        """One list is published after the other. Raises :class:`UnpublishedError` where one takes too long."""
        if not self._publishing.acquire(timeout=PUBLISHED_WITHIN_SECONDS):
            raise UnpublishedError("another change of the orders is still being published; try again")
        try:
            yield
        finally:
            self._publishing.release()

    def _send(self, before: OrderList, after: OrderList) -> None:
        """Publish the next list, which holds from then on."""
        publish = self._publish
        if publish is None:
            self.refuse_beside_a_leader()
            raise RefusedError(self._refusal)
        now = self._now()
        after = after.published(next_number(before, now), now)
        try:
            publish(msgspec.json.encode(after))
        except LbdError as error:
            words = f"the change could not be published to the other lbds, and may hold: {error}"
            raise UnpublishedError(words) from error
        self._merge([after])

    @property
    def _refusal(self) -> str:
        return "no lbd leads now, so none moves anything; try again"

    def _readable(self) -> OrderList:
        """The stored orders, those of the topic where the store cannot be read."""
        try:
            return self.read()
        except UnreadableOrdersError:
            return self._topic

    def _keep(self) -> None:
        """Write what the topic has, but never over orders that cannot be read: those are a pause, which stays."""
        with suppress(UnreadableOrdersError):
            self._write(lambda orders: orders)


def _changes(before: OrderList, after: OrderList) -> list[str]:
    """Orders that have come or gone, as texts; that lbd has gone on with one is no news."""
    keys = sorted(before.keyed("").keys() | after.keyed("").keys())
    pairs = [(key, before.of(key), after.of(key)) for key in keys]
    return [_order_text(key, new) for key, old, new in pairs if (old and old.id) != (new and new.id)]


def _order_text(key: str, order: Order | None) -> str:
    if order is None:
        return f"over, as the leader was told: {key}"
    people, reason = order.body.get("by"), order.body.get("reason") or "no reason was given"
    by = " and ".join(people) if isinstance(people, list) else people
    what = f"{key} is in force"
    if key.startswith(DRAIN) or key == FILL:
        what = f"{order.body.get('broker')} is {'filled' if key == FILL else 'drained'}"
    return f"{what}, as the leader was told, by {by}: {reason}"


# --- the shared journal


class Leads(msgspec.Struct, frozen=True, tag="leads", tag_field="event"):
    """Stands in the topic only: from here on ``name`` writes. ``term`` distinguishes its periods as the leader.

    ``url`` is the address of its API for other machines; empty where they cannot reach it.
    """

    at: At
    name: str
    term: str
    url: str = ""

    def __str__(self) -> str:
        """The name with the address."""
        return f"{self.name} ({self.url})" if self.url else self.name


class NewerOrders(msgspec.Struct, frozen=True):
    """Orders of a newer lbd, which this one cannot obey; ``format`` is theirs."""

    event: str = ""
    format: int = 0


Shared: TypeAlias = Entry | Leads | OrderList

_DECODER: msgspec.json.Decoder[Shared] = msgspec.json.Decoder(Shared)


def decoded(line: bytes) -> Shared | NewerOrders | None:
    """A line of the topic, printable, as others may have written it; None for one that cannot be read."""
    try:
        line = printable_json(line)
        if b'"orders"' in line:
            header = msgspec.json.decode(line, type=NewerOrders)
            if header.event == "orders" and header.format > FORMAT:
                return header
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def leads(at: float, name: str, term: str, url: str = "") -> bytes:
    """The line with which a leader begins."""
    return msgspec.json.encode(Leads(at, name, term, url))


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
        self.term, self._terms = 0, dict[str, int]()
        self._publish: Callable[[bytes], None] | None = None
        self._unpublished: list[bytes] = []
        self.on_foreign: Callable[[Unload], None] = lambda _: None

    @property
    def leading(self) -> bool:
        """Whether intents may be written."""
        return self._publish is not None

    def lead(self, publish: Callable[[bytes], None]) -> None:
        """From now on lines are written with ``publish``, which returns when one is stored.

        It raises :class:`LbdError` where that failed, and so does this when waiting outcomes cannot be published.
        """
        with self._lock:
            while self._unpublished:
                publish(self._unpublished[0])
                del self._unpublished[0]
            self.term += 1
            self._publish = publish

    def resign(self) -> None:
        """Write no further intent; waits for no line that is on its way. The connection of ``publish`` is let go."""
        self._publish = None

    def intend(self, unload: Unload, attempt: int) -> str:
        """As :meth:`Journal.intend`, once it is acknowledged. Raises :class:`RefusedError` when this lbd leads no more.

        An intent that took too long stays open: the next leader finds its outcome.
        """
        started_at = self._clock()
        with self._lock:
            move = super().intend(unload, attempt)
            self._terms[move] = self.term
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
        leading, term = self.leading, self.term  # in this order: another term may begin in between
        if not leading or self._terms.get(move, term) != term:
            raise RefusedError("another lbd may have led since the intent was written")
        if again:
            started_at = self._clock()
            with self._lock:
                intent = self._state.intents.get(move)
                if intent is not None:
                    self._acknowledged(encoded(intent))
            self._in_time(started_at)
            self.confirm(move, again=False)

    def intend_split(self, cut: Cut) -> str:
        """As :meth:`intend`, of a split."""
        started_at = self._clock()
        with self._lock:
            split = super().intend_split(cut)
            self._terms[split] = self.term
        self._in_time(started_at)
        return split

    def conclude_split(self, split: str, outcome: CutOutcome) -> None:
        """As :meth:`Journal.conclude_split`."""
        super().conclude_split(split, outcome)
        self._terms.pop(split, None)

    def take(self, lines: Sequence[Shared], *, live: bool = False) -> None:
        """Write new lines of the topic to this journal. Raises :class:`UsageError` when it cannot be written.

        ``live``: they have only just come. Then an intent counts in full from now on, by the clock that nobody can set,
        also where the clock of who wrote it was behind.
        """
        with self._lock:
            fresh = self._fresh(lines)
            if live:
                moment = self._moment()
                fresh = [
                    msgspec.structs.replace(line, **moment) if isinstance(line, Intent | SplitIntent) else line
                    for line in fresh
                ]
            if fresh:
                super()._append(*fresh)
                self._prune_when_long()
        for entry in fresh:
            if isinstance(entry, Intent):
                self.on_foreign(Unload(entry.bundle, entry.source, entry.destination, entry.msg_rate, entry.throughput))

    def _append(self, *entries: Entry) -> None:
        """Write lines: an intent only after the topic has it, a line on something that happened in any case.

        An intent that only the topic has is an open move which this lbd does not know yet: it leads no more, and the
        next leader finds the outcome before the bundle is moved again.
        """
        for entry in entries:
            if isinstance(entry, Intent | SplitIntent):
                self._acknowledged(encoded(entry))
            else:
                self._publish_or_wait(encoded(entry))
        try:
            super()._append(*entries)
        except UsageError:
            if any(isinstance(entry, Intent | SplitIntent) for entry in entries):
                self.resign()
            raise

    def _acknowledged(self, line: bytes) -> None:
        publish = self._publish
        if publish is None:
            raise RefusedError("this lbd does not lead (leader.enabled), and who leads may move the same bundle")
        try:
            publish(line)
        except LbdError as error:
            self.resign()
            raise RefusedError(f"this lbd leads no more: {error}") from error

    def _publish_or_wait(self, line: bytes) -> None:
        """Publish a line, or else keep it until this lbd leads again; another leader finds the outcome itself."""
        publish = self._publish
        try:
            if publish is not None:
                publish(line)
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
            if isinstance(entry, Leads | OrderList) or self._known(entry, (intended, concluded), noted, since):
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
        """Whether a line was applied before: as this lbd's own, before a restart, or when a client sent it first.

        ``others`` are the moves and splits that begin and end in other fresh lines, ``noted`` the last notes of these.
        The first outcome of a move holds.
        """
        (intended, concluded), state, applied = others, self._state, True
        match entry:
            case Intent():
                applied = entry.at <= since or entry.move in intended or entry.move in state.sent
            case OutcomeLine(amended=True):
                sent = entry.move in state.sent or entry.move in intended
                applied = not sent or entry.at <= state.amended_at.get(entry.move, 0.0)
            case OutcomeLine():
                applied = entry.move in concluded or (entry.move not in state.intents and entry.move not in intended)
            case ServedLine():
                sent = entry.move in state.sent or entry.move in intended
                applied = not sent or entry.at <= state.served_at.get(entry.move, 0.0)
            case SplitIntent():
                applied = entry.at <= since or entry.split in intended or entry.split in state.splits.names()
            case SplitEnded():
                still_open = entry.split in dict(state.splits.open()) or entry.split in intended
                applied = entry.split in concluded or not still_open
            case PlacementLine():
                applied = entry.move in intended or entry.at <= max(since, state.attempted_at.get(entry.bundle, 0.0))
            case Noted():
                note = state.notes.get(entry.bundle)
                applied = entry.at <= since or noted.get(entry.bundle, note.broker if note else None) == entry.noted
        return applied
