"""The drains and the fill in force, as orders, and how far their moves are: what must survive a kill -9.

A broker is drained until it is released, the drain expires, or the broker restarts, and filled until it has its share.
Both are orders, like a pause (``store/orders.py``). The progress of the moves of each drain, and of the last fill, is
in the store of the lbd that moves, and may be missing.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

from lbd.errors import RefusedError, UsageError
from lbd.files import At
from lbd.load.estimate import Carried
from lbd.model import brokers_named
from lbd.store.control import new_id
from lbd.store.database import STORE_NAME, json_value, put_json
from lbd.store.orders import DRAIN, FILL, Order, OrderList, Orders, UnreadableOrdersError, body_of, says, value_of
from lbd.store.rollouts import goes_on

if TYPE_CHECKING:
    from pathlib import Path


WORKS = "drains"
"""Their name in the store."""


class Drain(msgspec.Struct, frozen=True):
    """A broker that is to own nothing. Times are epoch seconds; ``until`` is when the drain expires.

    ``started_at`` is when the broker had started, by its report: another start ends the drain; None where brokers do
    not tell (2.11). ``carried`` is what it carried when the drain began, nothing where its report does not show that
    yet. ``override`` is why holds may be passed, those that stood ``ordered_at``: when it was ordered last; of pauses
    that is the one whose id is ``passes``.
    ``respect_rest``: bundles that rest stay. ``rollout`` is the id of the rollout that it is a part of. ``since`` is 0
    (unknown) where the order cannot be read.
    """

    broker: str
    since: At
    until: At | None
    by: str
    reason: str = ""
    override: str | None = None
    started_at: At | None = None
    carried: Carried = Carried(0.0, 0.0, 0.0, 0)
    respect_rest: bool = False
    ordered_at: At = 0.0
    rollout: str = ""
    passes: str = ""


class Fill(msgspec.Struct, frozen=True):
    """A broker that is to get its share; ``request`` is the id of the request, and that of the order.

    All other fields are as those of a :class:`Drain`.
    """

    request: str
    broker: str
    until: At
    by: str
    ordered_at: At
    override: str | None = None
    respect_rest: bool = False
    rollout: str = ""
    reason: str = ""
    passes: str = ""


class RemainingBundle(msgspec.Struct, frozen=True):
    """A bundle that stays, with the label of the reason and its details."""

    bundle: str
    reason: str
    detail: str = ""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """How far a drain, or a fill, has come. Times are epoch seconds, ``ended_at`` None while it is under way.

    ``ordered_at`` is that of the order it works off, which tells one order from the next.

    Of ``total`` bundles ``landed`` are where they should be, ``elsewhere`` on another broker that may have them, and
    ``failed`` have not moved, or nobody owns them. ``left`` are those that stay. ``held`` is what it waits for.
    ``request`` is the request that began it; empty where lbd moves bundles off again that came back. ``owned`` is the
    number of bundles that the broker reported to own at the end, without its own bundles and Pulsar's.
    """

    kind: Literal["drain", "fill"]
    broker: str
    request: str
    begun_at: At
    ordered_at: At = 0.0
    ended_at: At | None = None
    total: int = 0
    landed: int = 0
    elsewhere: int = 0
    failed: int = 0
    left: list[RemainingBundle] = []
    held: str = ""
    eta_seconds: At | None = None
    owned: int | None = None
    exit_code: int = 0
    sentence: str = ""

    @property
    def tried(self) -> int:
        """Moves that have ended."""
        return self.landed + self.elsewhere + self.failed

    @property
    def remaining(self) -> int | None:
        """Bundles still on a drained broker: while it is under way those to be moved, at its end those that it owns.

        None before the first look, and where the broker could not be asked at the end.
        """
        if self.ended_at is not None:
            return self.owned
        return self.total - self.landed - self.elsewhere if self.total else None


class DrainStatus(msgspec.Struct, frozen=True):
    """A drain in force, and how far it has come; ``work`` is null before its first look, ``tried`` its ended moves."""

    drain: Drain
    work: Work | None
    tried: int = 0

    @classmethod
    def of(cls, drain: Drain, work: Work | None) -> Self:
        """The drain with its sums."""
        return cls(drain, work, work.tried if work is not None else 0)


class Works(msgspec.Struct, frozen=True):
    """The last work on each drained broker, and the last fill."""

    drains: dict[str, Work] = {}
    fill: Work | None = None

    def of(self, request: str) -> Work | None:
        """The work that a request began."""
        return next((work for work in (*self.drains.values(), self.fill) if work and work.request == request), None)


class Drains:
    """The drains of a state directory. Every method raises :class:`UsageError` where the store cannot be used.

    ``orders`` are those of a running lbd; without them they are changed as for one that is alone. What changes an
    order raises :class:`RefusedError` where only another lbd may.
    """

    def __init__(self, state_dir: Path, orders: Orders | None = None) -> None:
        self._orders = Orders(state_dir) if orders is None else orders
        self._store = state_dir / STORE_NAME

    def begin(self, drain: Drain, name: str = "", instead_of: Drain | UnsetType | None = UNSET) -> None:
        """Write the order, which survives restarts of lbd; ``name`` is its id, if it has one.

        Raises :class:`RefusedError` where the drain that it was judged by (``instead_of``) is not in force any more, or
        the rollout that it is a part of.
        """
        order = Order(name or new_id()[0], DRAIN + drain.broker, body_of(drain))

        def edit(orders: OrderList) -> OrderList:
            before = orders.of(order.key)
            stands = before is not None and before.until > drain.ordered_at
            if instead_of is not UNSET and (_value(before) if stands else None) != instead_of:
                raise RefusedError(f"the drain of {drain.broker} was ended or ordered meanwhile; order it again")
            if drain.rollout and not goes_on(orders, drain.rollout):
                raise RefusedError("the rollout was stopped meanwhile")
            return orders.give(order, drain.ordered_at or drain.since)

        self._orders.change(edit)

    def amend(self, before: Drain, after: Drain) -> bool:
        """Note what was learned of a drain; whether it is in force as it was ``before``, so that this was done."""

        def edit(orders: OrderList) -> OrderList:
            order = orders.of(DRAIN + before.broker)
            return orders if order is None or not says(order, before) else orders.amend(order, body_of(after))

        return says(self._orders.change(edit).of(DRAIN + before.broker), after)

    def begin_fill(self, fill: Fill) -> None:
        """Write the order of a fill, instead of the one before.

        Raises :class:`RefusedError` where the rollout that it is a part of was stopped.
        """

        def edit(orders: OrderList) -> OrderList:
            if fill.rollout and not goes_on(orders, fill.rollout):
                raise RefusedError("the rollout was stopped meanwhile")
            return orders.give(Order(fill.request, FILL, body_of(fill)), fill.ordered_at)

        self._orders.change(edit)

    def fill(self, now: float) -> Fill | None:
        """The fill in force; None also where its order cannot be read: nothing is moved by half of one."""
        order = self._read().of(FILL)
        fill = None if order is None else _fill(order)
        return fill if fill is not None and now < fill.until else None

    def end_fill(self, request: str) -> None:
        """End the fill of that request, if it is in force."""

        def edit(orders: OrderList) -> OrderList:
            return orders.end(FILL, time.time()) if request in orders.orders else orders

        self._orders.change(edit)

    def release_by_name(self, name: str) -> Drain | Fill | None:
        """End the drain of a broker, else its fill; returns its order, even if expired.

        ``name`` may be the broker's host alone: the broker may be down, so its orders say which broker is meant.
        """
        over = list[Drain | Fill | None]()

        def edit(orders: OrderList) -> OrderList:
            by_broker = {str(order.body.get("broker")): order for order in orders.keyed(FILL).values()}
            by_broker |= {key.removeprefix(DRAIN): order for key, order in orders.keyed(DRAIN).items()}
            meant = brokers_named(name, by_broker)
            order = by_broker[meant[0]] if len(meant) == 1 else None
            over[:] = [] if order is None else [_fill(order) if order.key == FILL else _value(order)]
            return orders if order is None else orders.end(order.key, time.time())

        self._orders.change(edit)
        return over[0] if over else None

    def release(self, broker: str, only: Drain | None = None) -> Drain | None:
        """End a drain, or ``only`` this one; returns its order, even if expired. Moved bundles stay where they are."""
        key, released = DRAIN + broker, list[Drain | None]()

        def edit(orders: OrderList) -> OrderList:
            drain = _value(orders.of(key))
            released[:] = [] if only is not None and drain != only else [drain]
            return orders.end(key, time.time()) if released else orders

        self._orders.change(edit)
        return released[0] if released else None

    def all(self) -> list[Drain]:
        """All orders, those that have expired among them. In doubt a broker is drained: an order may be damaged.

        Of orders that cannot be read nothing is known: they are a pause, too, and nothing moves.
        """
        return [drain for order in self._read().keyed(DRAIN).values() if (drain := _value(order)) is not None]

    def in_force(self, now: float) -> dict[str, Drain]:
        """The drains that have not expired, by broker."""
        return {drain.broker: drain for drain in self.all() if drain.until is None or now < drain.until}

    @property
    def has_orders(self) -> bool:
        """Whether any order of a drain or a fill can be read, be it one that has expired."""
        return any(order.key == FILL or order.key.startswith(DRAIN) for order in self._read().orders.values())

    def _read(self) -> OrderList:
        """The orders, none where they are no list; a disk that fails to read has none either, and shows nothing."""
        try:
            return self._orders.read()
        except UnreadableOrdersError:
            return OrderList({})

    def works(self) -> Works:
        """The progress of drains and fill; empty if none is saved. Raises :class:`UsageError` if it cannot be read."""
        return json_value(self._store, WORKS, Works) or Works()

    def save(self, works: Works) -> None:
        """Replace the saved progress, on disk when this returns; only the holder of the state directory may."""
        put_json(self._store, WORKS, works)


def _value(order: Order | None) -> Drain | None:
    try:
        return value_of(order, Drain)
    except UsageError as error:
        assert order is not None
        broker = order.key.removeprefix(DRAIN)
        return Drain(broker, 0.0, None, "unknown", f"{error}; lbd drain --release ends it")


def _fill(order: Order) -> Fill:
    try:
        fill = value_of(order, Fill)
    except UsageError:
        fill = None
    return fill or Fill(order.id, str(order.body.get("broker")), 0.0, "unknown", 0.0)


def drains_in_force(state_dir: Path, now: float) -> list[tuple[Drain, Work | None]]:
    """The drains in force, each with its last progress, for who only looks: none where the orders cannot be read.

    Raises :class:`UsageError` where the progress cannot be.
    """
    drains, in_force = Drains(state_dir), dict[str, Drain]()
    with suppress(UsageError):  # they are a pause then, which is shown with the reason
        in_force = drains.in_force(now)
    works = drains.works().drains if in_force else {}
    return [(drain, works.get(broker)) for broker, drain in in_force.items()]
