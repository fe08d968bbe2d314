"""The orders of people that are in force: the list of them, how it changes, and how a state directory keeps it.

An order is a pause, a drain, a fill, a rollout, or a plan that people apply. It gets an id once, where a person gave
it. What lbd writes of its progress is a further version under that id. Everything in force is one :class:`OrderList`,
so that a change of several orders, as the end of a rollout with its drains, is one step.

Where several lbds share a cluster, the leader publishes the whole list with each change, under a number that grows.
``born`` is the number of the first list that had an order. So a list says of every order that was born up to its number
whether it is in force: one that is not in it has ended, however long ago, and no older store or line brings it back.
Ids of orders that ended are kept, too, the last :data:`ENDS`: of one that no list had, no number says anything.

The list is one value of the store (``store/database.py``). A change is made of what stands there, in one transaction:
nobody writes back what was read before somebody else's change. It names what it read, and is refused or made anew where
that has moved on. Nothing asks the network within the transaction: what the leader publishes it publishes before that
(``store/shared.py``).
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import msgspec

from lbd.errors import RefusedError, UsageError
from lbd.files import At, require_directory
from lbd.store.database import STORE_NAME, value, writing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FORMAT = 1
"""Goes up when an older lbd would misread a list; it obeys none of that list then, and does not lead."""

PAUSE, DRAIN, FILL, ROLLOUT, PLAN = "pause", "drain ", "fill", "rollout", "plan "
"""Keys of orders; that of a drain goes on with its broker, that of a plan with its name."""

ENDS = 200
"""Ids of ended orders that a list keeps; 8 kB. Only that of an order which was published without its lbd noticing it,
as it was killed between the two writes, is needed later."""

Body: TypeAlias = dict[str, Any]
Value = TypeVar("Value")
Kind = TypeVar("Kind")
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """One order: what it is about (``key``), and what it says with its progress (``body``, the JSON of its type).

    Of one ``key`` one order is in force. ``born`` is 0 until the leader has published it.
    """

    id: str
    key: str
    body: Body
    version: Number = 1
    born: Number = 0

    @property
    def until(self) -> float:
        """When it expires, epoch seconds; infinite where it does not."""
        return number(self.body.get("until"), math.inf)

    @property
    def _age(self) -> tuple[int, int, bytes]:
        """Grows from version to version; the text decides between two that no history has both of."""
        return self.version, self.born, msgspec.json.encode(self.body, order="deterministic")


def number(value: object, otherwise: float) -> float:
    """A number of a body, in which another version may have written any: one that no float holds is none."""
    return float(value) if isinstance(value, int | float) and abs(value) <= sys.float_info.max else otherwise


class OrderEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last end of an order of a key that a person asks for later: when (epoch seconds), and what came of it."""

    time: At
    body: Body = {}


class OrderList(msgspec.Struct, frozen=True, tag="orders", tag_field="event"):
    """All orders in force by id. ``ended`` are ids with the time of the end, ``results`` the last end by key."""

    orders: dict[str, Order]
    format: int = FORMAT
    number: Number = 0
    ended: dict[str, At] = {}
    results: dict[str, OrderEnd] = {}

    def of(self, key: str) -> Order | None:
        """The order of a key: the one that lasts longest, where one was given here that was not published yet."""
        orders = [order for order in self.orders.values() if order.key == key]
        return max(orders, key=lambda order: (order.until, order.born, order.id), default=None)

    def stands(self, name: str) -> bool | None:
        """Whether the order of this id is in force; None where it was never given, or ended long ago."""
        return True if name in self.orders else False if name in self.ended else None

    def keyed(self, prefix: str) -> dict[str, Order]:
        """The orders in force whose keys begin so, by key."""
        keys = {order.key for order in self.orders.values() if order.key.startswith(prefix)}
        return {key: order for key in sorted(keys) if (order := self.of(key)) is not None}

    def give(self, order: Order, time: float) -> OrderList:
        """Put an order in force, instead of that of its key; one that is in force is given again as its next version.

        The end of an id would win over everything of the same id.
        """
        if (before := self.orders.get(order.id)) is not None:
            return self.amend(before, order.body)
        rest = self.end(order.key, time)
        return msgspec.structs.replace(rest, orders={**rest.orders, order.id: order})

    def amend(self, order: Order, body: Body) -> OrderList:
        """The next version of an order that is in force; fields that only another version of lbd knows stay."""
        amended = msgspec.structs.replace(order, body={**order.body, **body}, version=order.version + 1)
        return msgspec.structs.replace(self, orders={**self.orders, order.id: amended})

    def end(self, key: str, time: float, result: Body | None = None) -> OrderList:
        """End the order of a key; ``result`` is what a person may ask for later, also where a clock was set back."""
        over = {order.id: time for order in self.orders.values() if order.key == key}
        results = self.results
        if result is not None:
            last = results.get(key)
            after_last = 0.0 if last is None else math.nextafter(last.time, math.inf)
            results = {**results, key: OrderEnd(max(time, after_last), result)}
        orders = {name: order for name, order in self.orders.items() if name not in over}
        return msgspec.structs.replace(self, orders=orders, ended=_latest({**self.ended, **over}), results=results)

    def beside(self, before: OrderList) -> OrderList:
        """The same with what was published ``before`` still in force: only who leads may end it."""
        published = {name: order for name, order in before.orders.items() if order.born}
        ends = {name: time for name, time in self.ended.items() if name not in published}
        return msgspec.structs.replace(self, orders={**self.orders, **published}, ended=ends)

    def published(self, number: int, time: float) -> OrderList:
        """The list as its leader publishes it: one order of each key, born with this number where it is new.

        Where an order was given here before this lbd led, the one that lasts longer holds.
        """
        orders = {
            order.id: order if order.born else msgspec.structs.replace(order, born=number, version=order.version + 1)
            for order in self.keyed("").values()
        }
        over = dict.fromkeys(self.orders.keys() - orders.keys(), time)
        return msgspec.structs.replace(self, number=number, orders=orders, ended=_latest({**self.ended, **over}))

    def merge(self, other: OrderList) -> OrderList:
        """Merge two copies, whichever is the older one.

        An end wins over everything of the same id, else the later version.
        """
        orders = {}
        for name in sorted(self.orders.keys() | other.orders.keys()):
            copies = [copy for copy in (self.orders.get(name), other.orders.get(name)) if copy is not None]
            order = max(copies, key=lambda copy: copy._age)  # noqa: SLF001 - of the same module
            if not (self._has_ended(order) or other._has_ended(order)):
                orders[name] = order
        return OrderList(
            orders,
            number=max(self.number, other.number),
            ended=_latest(_later(self.ended, other.ended, float)),
            results=_later(self.results, other.results, lambda result: (result.time, msgspec.json.encode(result))),
        )

    def _has_ended(self, order: Order) -> bool:
        return order.id in self.ended or (order.id not in self.orders and 0 < order.born <= self.number)


def next_number(orders: OrderList, now: float) -> int:
    """The number of the next list: milliseconds since the epoch, and above the last whatever the clock shows.

    By the clock, so that the numbers of a cluster whose topic was lost go on above those that old stores have.
    """
    return max(orders.number + 1, int(now * 1000))


def _latest(ends: dict[str, float]) -> dict[str, float]:
    """The last ends."""
    names = sorted(ends, key=lambda name: (ends[name], name))[-ENDS:]
    return {name: ends[name] for name in sorted(names)}


def _later(first: dict[str, Value], second: dict[str, Value], order: Callable[[Value], Any]) -> dict[str, Value]:
    """Each key with the later one of two values."""
    names = sorted(first.keys() | second.keys())
    return {name: max((values[name] for values in (first, second) if name in values), key=order) for name in names}


# --- the list of a state directory

ORDERS = "orders"
"""Their name in the store."""

ONLY_THE_LEADER = "only the leader takes orders"
REMOVES = "lbd resume removes them: the pause, the drains, the fill and the rollout"


class _OrdersFormat(msgspec.Struct):
    format: int = FORMAT


class UnreadableOrdersError(UsageError):
    """The store was read, and what it has is no list of orders that this lbd knows, or no rollout.

    In doubt a list is a pause, until a person resumes.
    """


class Orders:
    """The orders of a state directory. Every method raises :class:`UsageError` where the store cannot be used.

    ``shared``: several lbds have them, and what the leader published only the leader may change (``store/shared.py``).
    """

    def __init__(self, state_dir: Path, *, shared: bool = False) -> None:
        self.state_dir, self._path = state_dir, state_dir / STORE_NAME
        self._shared = shared
        self._decoded: tuple[bytes | None, OrderList] = None, OrderList({})

    def read(self) -> OrderList:
        """The orders in force, those that have expired among them; none where none was ever given."""
        return self._decode(value(self._path, ORDERS))

    def _decode(self, content: bytes | None) -> OrderList:
        """Decode the stored list, once: it is read several times a second and seldom changes."""
        before, orders = self._decoded
        if content != before:
            orders = self._order_list(content)
            self._decoded = content, orders
        return orders

    def _order_list(self, content: bytes | None) -> OrderList:
        if content is None:
            return OrderList({})
        try:
            header = msgspec.json.decode(content, type=_OrdersFormat)
            if header.format <= FORMAT:
                return msgspec.json.decode(content, type=OrderList)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableOrdersError(f"{self._path}: the orders cannot be read: {error}; {REMOVES}") from error
        newer = f"format {header.format} is of a newer lbd, this one reads {FORMAT}"
        raise UnreadableOrdersError(f"{self._path}: the orders cannot be read: {newer}; {REMOVES}")

    def change(self, edit: Callable[[OrderList], OrderList]) -> OrderList:
        """Replace the orders by what ``edit`` makes of them; returns the new ones.

        ``edit`` may be called twice, and what it raises ends the change. Raises :class:`RefusedError` for a change that
        is another lbd's to make, or that could not be published.
        """
        before = self.read()
        if edit(before) == before:
            return before
        return self._write(lambda orders: self._permitted(orders, edit(orders)))

    def refuse_beside_a_leader(self) -> None:
        """Raises :class:`~lbd.errors.NotLeaderError` where another lbd leads: the one rule for orders of every kind."""

    def reset(self) -> None:
        """Replace orders that cannot be read: they are no orders any more."""

        def known(content: bytes | None) -> bytes | None:
            try:
                self._decode(content)
            except UnreadableOrdersError:
                return msgspec.json.encode(self._decode(None))
            return content

        self._change(known)

    def _write(self, edit: Callable[[OrderList], OrderList]) -> OrderList:
        """Replace what stands in the store, on disk when this returns; returns that."""
        after = OrderList({})

        def edited(content: bytes | None) -> bytes:
            nonlocal after
            after = edit(self._decode(content))
            return msgspec.json.encode(after)

        self._change(edited)
        return after

    def _change(self, edit: Callable[[bytes | None], bytes | None]) -> None:
        require_directory(self.state_dir)
        with writing(self._path) as store:
            store.change(ORDERS, edit)

    def _permitted(self, before: OrderList, after: OrderList) -> OrderList:
        """The list that a process may write that does not lead. Raises :class:`RefusedError`."""
        if not self._shared:
            return after
        fresh = {order.key for name, order in after.orders.items() if name not in before.orders}
        over = {order.key for name, order in before.orders.items() if order.born and after.orders.get(name) != order}
        if fresh - {PAUSE} or over - fresh or after.orders == before.orders:
            raise RefusedError(self._refusal)
        return after.beside(before)

    @property
    def _refusal(self) -> str:
        """The reason why a published order is not changed here."""
        return f"several lbds share their orders (leader.enabled), and none runs here: {ONLY_THE_LEADER}"


def body_of(value: msgspec.Struct) -> Body:
    """An order as it stands in the list. Raises :class:`UsageError` for text that no store can have."""
    try:
        body: Body = msgspec.json.decode(msgspec.json.encode(value))
    except UnicodeEncodeError as error:
        raise UsageError(f"an order cannot be written: {error.object!r} is no UTF-8 text") from error
    return body


def says(order: Order | None, value: msgspec.Struct) -> bool:
    """Whether an order is this one by all fields that this version knows."""
    try:
        return value_of(order, type(value)) == value
    except UsageError:
        return False


def value_of(order: Order | None, kind: type[Kind]) -> Kind | None:
    """An order as its type; None where there is none. Raises :class:`UsageError` for one that is none."""
    if order is None:
        return None
    try:
        return msgspec.convert(order.body, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"the order {order.key!r} cannot be read: {error}") from error
