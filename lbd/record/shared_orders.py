"""A pause and drains as several lbds have them in common, through the topic that one of them at a time may write.

The control files of each lbd are what it obeys. Who leads tells the topic what changes in its own; the others bring
theirs up to that, so that whoever leads next neither moves in a pause nor sends a bundle to a drained broker.
``control/shared.json`` is what was last told or taken of each order: what differs from it was ordered here since.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from lbd.errors import UsageError
from lbd.files import decoded, make_directory, put, telling
from lbd.record.control import Control, Pause
from lbd.record.drains import Drain, Drains
from lbd.record.journal.lines import At

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

FORMAT = 1
PAUSE, DRAIN = "pause", "drain "
ENDS_ARE_KEPT_SECONDS = 4 * 86_400.0
"""Twice as long as the topic keeps a line: one that is read again after its order has ended is known to be old."""

TICK_SECONDS = 0.001

Order: TypeAlias = Pause | Drain


class Ordered(msgspec.Struct, frozen=True, tag="ordered", tag_field="event", omit_defaults=True):
    """What stands from now on for one order, ``pause`` or ``drain BROKER``; without either it has ended.

    Of one order ``at`` (epoch seconds) grows from line to line, whatever the clocks of those who write them say.
    """

    at: At
    order: str
    pause: Pause | None = None
    drain: Drain | None = None

    @property
    def value(self) -> Order | None:
        """The order itself, None where it has ended."""
        return self.pause or self.drain


class _Known(msgspec.Struct, frozen=True):
    """``aside`` are the orders whose last line is not obeyed here, since another one was ordered here before it."""

    format: int = FORMAT
    orders: dict[str, Ordered] = {}
    aside: set[str] = set()


class SharedOrders:
    """The orders of one lbd beside those of the topic; used by one thread.

    Every method raises :class:`UsageError` where a file cannot be read or written.
    """

    def __init__(self, state_dir: Path, now: Callable[[], float]) -> None:
        self._state_dir, self._now = state_dir, now
        self._control, self._drains = Control(state_dir), Drains(state_dir)
        self._path = state_dir / "control" / "shared.json"
        self._read: _Known | None = None

    def take(self, lines: Iterable[Ordered]) -> list[str]:
        """Bring the control files up to lines of the topic, in their order; what changed, in words.

        What a person ordered here and the topic does not know stays until it is ended here, or this lbd leads: then
        whichever lasts longer holds. An end that is told ends the order it was told of, and no other. When in doubt
        lbd does not move.
        """
        fresh = [line for line in lines if line.at > self._last_at(line.order)]
        said = [self._taken(line) for line in fresh]
        if fresh:
            self._save()
        return [words for words in said if words]

    def tell(self, publish: Callable[[bytes], None], *, everything: bool = False) -> None:
        """As the one who leads: what has changed here since, or ``everything`` that stands, for those who come new.

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
        """What the topic knows, unless what was ordered here lasts at least as long."""
        line, found = self._orders[key], self._local().get(key)
        ends = _ends(line.value)
        if ends > max(self._now(), _ends(found)):
            self._obey(line)

    def _change(self, key: str, local: dict[str, Order]) -> Ordered | None:
        known, found = self._orders.get(key), local.get(key)
        if found == (known.value if known is not None else None):
            return None
        return _line(max(self._now(), self._last_at(key) + TICK_SECONDS), key, found)

    def _taken(self, line: Ordered) -> str:
        """What is not obeyed is not known: it is taken again, and whoever leads tells no end of what never began."""
        found, known = self._local().get(line.order), self._orders.get(line.order)
        ordered_here = found is not None and (known is None or found != known.value)
        run_out = found is None and _ends(line.value) <= self._now()
        news = found != line.value and not ordered_here and not run_out
        if news:
            self._obey(line)
        self._orders[line.order] = line
        if ordered_here and line.value not in {None, found}:
            self._known.aside.add(line.order)
        else:
            self._known.aside.discard(line.order)
        return _words(line) if news and not _alike(line, found) else ""

    def _obey(self, line: Ordered) -> None:
        if line.pause is not None:
            self._control.pause(line.pause)
        elif line.drain is not None:
            self._drains.begin(line.drain)
        elif line.order == PAUSE:
            self._control.resume()
        else:
            self._drains.release(line.order.removeprefix(DRAIN))

    def _local(self) -> dict[str, Order]:
        """The orders in force here."""
        now = self._now()
        found: dict[str, Order] = {DRAIN + broker: one for broker, one in self._drains.in_force(now).items()}
        pause = self._control.paused(now)
        return found if pause is None else {**found, PAUSE: pause}

    def _last_at(self, key: str) -> float:
        known = self._orders.get(key)
        return known.at if known is not None else -1.0

    @property
    def _known(self) -> _Known:
        """What was last told or taken; a file that cannot be read is nothing: all that stands here is told again."""
        if self._read is None:
            try:
                found = decoded(self._path, _Known)
            except UsageError:
                found = None
            self._read = found if found is not None and found.format == FORMAT else _Known()
        return self._read

    @property
    def _orders(self) -> dict[str, Ordered]:
        return self._known.orders

    def _save(self) -> None:
        since = self._now() - ENDS_ARE_KEPT_SECONDS
        kept = {key: line for key, line in self._orders.items() if line.value is not None or line.at > since}
        with telling(self._state_dir):
            self._state_dir.mkdir(parents=True, exist_ok=True)
        make_directory(self._path.parent, self._state_dir)
        found = _Known(orders=kept, aside=self._known.aside & kept.keys())
        put(self._path, found)
        self._read = found


def _line(at: float, key: str, order: Order | None) -> Ordered:
    if isinstance(order, Pause):
        return Ordered(at, key, pause=order)
    return Ordered(at, key, drain=order)


def _ends(order: Order | None) -> float:
    """Epoch seconds."""
    if order is None:
        return 0.0
    return math.inf if order.until is None else order.until


def _alike(line: Ordered, found: Order | None) -> bool:
    """Whether a line says in words what stands here already: the same order, for longer."""
    return found is not None and _words(line) == _words(_line(line.at, line.order, found))


def _words(line: Ordered) -> str:
    if line.pause is not None:
        return f"paused, as the leader was told, by {line.pause.by}: {line.pause.reason or 'no reason was given'}"
    if line.drain is not None:
        return f"{line.drain.broker} is drained, as the leader was told, by {line.drain.by}"
    return f"over, as the leader was told: {line.order}"
