"""The orders of people that are in force, as a value: how it changes, and what two copies of it come to. Pure.

An order is a pause, a drain, a fill, a rollout, or a plan that people apply. It gets an id once, where a person gave
it. What lbd writes of its progress is a further version under that id. Everything in force is one :class:`OrderList`,
so that a change of several orders, as the end of a rollout with its drains, is one step.

Where several lbds share a cluster, the leader publishes the whole list with each change, under a number that grows.
``born`` is the number of the first list that had an order. So a list says of every order that was born up to its number
whether it is in force: one that is not in it has ended, however long ago, and no older store or line brings it back.
Ids of orders that ended are kept, too, the last :data:`ENDS`: of one that no list had, no number says anything.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import msgspec

from lbd.files import At

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = 1
"""Goes up when an older lbd would misread a list; it obeys none of that list then, and does not lead."""

PAUSE, DRAIN, FILL, ROLLOUT, PLAN = "pause", "drain ", "fill", "rollout", "plan "
"""Keys of orders; that of a drain goes on with its broker, that of a plan with its name."""

ENDS = 200
"""Ids of ended orders that a list keeps; 8 kB. Only that of an order which was published without its lbd noticing it,
as it was killed between the two writes, is needed later."""

Body: TypeAlias = dict[str, Any]
Value = TypeVar("Value")
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
        until = self.body.get("until")
        return float(until) if isinstance(until, int | float) else math.inf

    @property
    def _age(self) -> tuple[int, int, bytes]:
        """Grows from version to version; the text decides between two that no history has both of."""
        return self.version, self.born, msgspec.json.encode(self.body, order="deterministic")


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
        """Put an order in force, instead of that of its key."""
        rest = self.end(order.key, time)
        return msgspec.structs.replace(rest, orders={**rest.orders, order.id: order})

    def amend(self, order: Order, body: Body) -> OrderList:
        """The next version of an order that is in force."""
        amended = msgspec.structs.replace(order, body=body, version=order.version + 1)
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
        ended = {name: time for name, time in self.ended.items() if name not in published}
        return msgspec.structs.replace(self, orders={**self.orders, **published}, ended=ended)

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
        """What both copies come to, whichever is the older one.

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


def _latest(ended: dict[str, float]) -> dict[str, float]:
    """The last ends."""
    names = sorted(ended, key=lambda name: (ended[name], name))[-ENDS:]
    return {name: ended[name] for name in sorted(names)}


def _later(first: dict[str, Value], second: dict[str, Value], order: Callable[[Value], Any]) -> dict[str, Value]:
    """Each key with the later one of two values."""
    names = sorted(first.keys() | second.keys())
    return {name: max((values[name] for values in (first, second) if name in values), key=order) for name in names}
