"""The orders in force, as one value of the store (``store/database.py``) that every change replaces as a whole.

A change is made of what stands there, in one transaction: nobody writes back what was read before somebody else's
change. It names what it read, and is refused or made anew where that has moved on. Nothing asks the network within the
transaction: what the leader publishes it publishes before that (``store/shared.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from lbd.errors import RefusedError, UsageError
from lbd.files import require_directory
from lbd.store.database import STORE_NAME, value, writing
from lbd.store.order import FORMAT, PAUSE, Body, Order, OrderList

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ORDERS = "orders"
"""Their name in the store."""

ONLY_THE_LEADER = "only the leader takes orders"
REMOVES = "lbd resume removes them: the pause, the drains, the fill and the rollout"

Kind = TypeVar("Kind")


class _OrdersFormat(msgspec.Struct):
    format: int = FORMAT


class UnreadableOrdersError(UsageError):
    """What stands in the store is no list of orders that this lbd reads: in doubt a pause, until a person resumes."""


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
        """What stands in the store. It is looked at several times a second, and seldom another than before."""
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
        ended = {order.key for name, order in before.orders.items() if order.born and after.orders.get(name) != order}
        if fresh - {PAUSE} or ended - fresh or after.orders == before.orders:
            raise RefusedError(self._refusal)
        return after.beside(before)

    @property
    def _refusal(self) -> str:
        """Who may change what was published."""
        return f"several lbds share their orders (leader.enabled), and none runs here: {ONLY_THE_LEADER}"


def body_of(value: msgspec.Struct) -> Body:
    """An order as it stands in the list. Raises :class:`UsageError` for text that no store can have."""
    try:
        body: Body = msgspec.json.decode(msgspec.json.encode(value))
    except UnicodeEncodeError as error:
        raise UsageError(f"an order cannot be written: {error.object!r} is no UTF-8 text") from error
    return body


def value_of(order: Order | None, kind: type[Kind]) -> Kind | None:
    """An order as its type; None where there is none. Raises :class:`UsageError` for one that is none."""
    if order is None:
        return None
    try:
        return msgspec.convert(order.body, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"the order {order.key!r} cannot be read: {error}") from error
