"""``control/orders.json``: the orders in force, in one file that every change replaces as a whole.

A change reads the file, makes the next list of it, and writes that, under a lock that processes of this machine share.
So nobody writes back what was read before somebody else's change: a change names what it read, and is refused or made
anew where that has moved on. Nothing asks the network under the lock but the leader, which publishes there.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from lbd.errors import RefusedError, UsageError
from lbd.files import as_usage_error, decoded, growing, make_directory, put, require_directory
from lbd.store.order import FORMAT, PAUSE, Body, Order, OrderList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOCKED_WITHIN_SECONDS, LOCK_PAUSE_SECONDS = 30.0, 0.01
"""A leader that holds the lock waits for the topic; whoever was stopped with it, as by Ctrl-Z, keeps it for ever."""

ONLY_THE_LEADER = "only the leader takes orders"
REMOVES = "lbd resume removes it, with the drains, the fill and the rollout in it"

Kind = TypeVar("Kind")


class _OrdersFormat(msgspec.Struct):
    format: int = FORMAT


class Orders:
    """The orders of a state directory. Every method raises :class:`UsageError` where the file cannot be used.

    ``shared``: several lbds have them, and what the leader published only the leader may change (``store/shared.py``).
    """

    def __init__(self, state_dir: Path, now: Callable[[], float] = time.time, *, shared: bool = False) -> None:
        self.state_dir, self.path = state_dir, state_dir / "control" / "orders.json"
        self._now, self._shared = now, shared

    def read(self) -> OrderList:
        """The orders in force, those that have expired among them; none without a file."""
        try:
            header = decoded(self.path, _OrdersFormat)
            orders = decoded(self.path, OrderList) if header is None or header.format <= FORMAT else None
        except UsageError as error:
            raise UsageError(f"{error}; {REMOVES}") from error
        if header is not None and orders is None:
            newer = f"format {header.format} is of a newer lbd, this one reads {FORMAT}"
            raise UsageError(f"{self.path}: {newer}; {REMOVES}")
        return orders or OrderList({})

    def change(self, edit: Callable[[OrderList], OrderList]) -> OrderList:
        """Replace the orders by what ``edit`` makes of them; returns the new ones.

        ``edit`` may be called twice, and what it raises ends the change. Raises :class:`RefusedError` for a change that
        is another lbd's to make, or that could not be published.
        """
        before = self.read()
        if not self._publishes and edit(before) == before:
            return before
        with self._locked():
            before = self.read()
            after = self._commit(before, edit(before))
            if after != before:
                put(self.path, after)
        return after

    @property
    def _publishes(self) -> bool:
        """Whether each answer is published before it is given, also that there was nothing to change."""
        return False

    def refuse_beside_a_leader(self) -> None:
        """Raises :class:`~lbd.errors.NotLeaderError` where another lbd leads: the one rule for orders of every kind."""

    def reset(self) -> None:
        """Replace a file that cannot be read: what was in it is no order any more."""
        with self._locked():
            put(self.path, self._readable())

    def _readable(self) -> OrderList:
        """What is known without the file."""
        return OrderList({})

    def _commit(self, before: OrderList, after: OrderList) -> OrderList:
        """The list to be written. Raises :class:`RefusedError`."""
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

    @contextmanager
    def _locked(self) -> Iterator[None]:
        require_directory(self.state_dir)
        with as_usage_error(self.path):
            make_directory(self.path.parent)
            descriptor = growing(self.path.with_name("lock"))
        try:
            deadline = time.monotonic() + LOCKED_WITHIN_SECONDS
            while not _lock(descriptor):
                if time.monotonic() > deadline:
                    raise UsageError(f"{self.path}: another command has held its lock for {LOCKED_WITHIN_SECONDS:g} s")
                time.sleep(LOCK_PAUSE_SECONDS)
            yield
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def body_of(value: msgspec.Struct) -> Body:
    """An order as it stands in the list. Raises :class:`UsageError` for text that no file can have."""
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
