"""The rollout under way, as an order, and the last one that ended: what must survive a kill -9.

Brokers are restarted one after the other. How far that is stands in the order (``store/orders.py``), from its beginning
to its end: the lbd that leads goes on with it, whichever that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from lbd.errors import RefusedError, UsageError
from lbd.files import At
from lbd.pulsar.override_note import OverrideNote
from lbd.store.orders import (
    DRAIN,
    FILL,
    ROLLOUT,
    Order,
    OrderList,
    Orders,
    UnreadableOrdersError,
    body_of,
    says,
    value_of,
)

if TYPE_CHECKING:
    from pathlib import Path


Phase: TypeAlias = Literal["drain", "restart", "fill", "ended"]


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """A restart of ``brokers``, one after the other. Times are epoch seconds.

    ``members`` were active when it began, and have to stay, but for the one at work. ``broker`` is at work, in this
    ``phase`` since ``phase_at``: drained, to be restarted, or filled, which comes last. ``begun``: the drain of this
    phase was ordered, and ``tries`` times once more: after a failure, or for bundles that it owned when it was handed
    over. ``started_at`` is when the broker had started, None where it does not tell (2.11); ``gone_at`` is when it was
    first seen to be gone, or started anew. It has to be back ``timeout_seconds`` later; with ``executes`` a command
    restarts it, and the time counts from the hand-over. ``done`` were restarted. ``stopping`` is why it is to be
    stopped, ``waits`` what it waits for. ``splitting`` is the note on automatic splitting, which is given back at the
    end, None where lbd changed nothing. ``claim`` names the command that the broker was handed over to.
    """

    id: str
    brokers: tuple[str, ...]
    members: tuple[str, ...]
    by: str
    begun_at: At
    phase_at: At
    broker: str
    timeout_seconds: At
    executes: bool = False
    reason: str = ""
    phase: Phase = "drain"
    begun: bool = False
    tries: int = 0
    started_at: At | None = None
    gone_at: At | None = None
    done: tuple[str, ...] = ()
    stopping: str = ""
    waits: str = ""
    claim: str = ""
    splitting: OverrideNote | None = None
    ended_at: At | None = None
    exit_code: int = 0
    sentence: str = ""

    @property
    def summary(self) -> str:
        """How far it is, in one sentence."""
        if self.ended_at is not None:
            return self.sentence
        doing = {
            "drain": f"{self.broker} is being drained{' again, as it owns bundles' if self.tries else ''}",
            "restart": f"{self.broker} owns nothing and is to be restarted",
            "fill": f"all are restarted, {self.broker} is being filled",
            "ended": "it is over",
        }[self.phase]
        if self.phase == "restart" and self.gone_at is not None:
            doing = f"{self.broker} is restarted, and not ready yet"
        waits = f"; it waits: {self.waits}" if self.waits else ""
        return f"rollout, {len(self.done)} of {len(self.brokers)} brokers restarted: {doing}{waits}"


class Rollouts:
    """The rollout of a state directory. Every method raises :class:`UsageError` for a store or an order without use.

    ``orders`` are those of a running lbd; without them they are changed as for one that is alone. What changes an
    order raises :class:`RefusedError` where only another lbd may.
    """

    def __init__(self, state_dir: Path, orders: Orders | None = None) -> None:
        self._orders = Orders(state_dir) if orders is None else orders

    def under_way(self) -> Rollout | None:
        """The rollout under way."""
        return _rollout(self._orders.read())

    def last(self) -> Rollout | None:
        """The rollout under way, else the last one that ended."""
        orders = self._orders.read()
        result = orders.results.get(ROLLOUT)
        last = None if result is None else value_of(Order("", ROLLOUT, result.body), Rollout)
        return _rollout(orders) or last

    def begin(self, rollout: Rollout) -> None:
        """Write the order, which survives restarts of lbd. Raises :class:`RefusedError` where one is under way."""

        def edit(orders: OrderList) -> OrderList:
            if (other := _rollout(orders)) is not None:
                raise RefusedError(other.summary)
            return orders.give(Order(rollout.id, ROLLOUT, body_of(rollout)), rollout.begun_at)

        self._orders.change(edit)

    def amend(self, before: Rollout, after: Rollout) -> bool:
        """Write the progress of a rollout; whether it stood as ``before``, so that this was done.

        It does not where a person has stopped it since ``before`` was read, or another lbd has gone on with it. Where
        both are the same, a leader has proven that it leads.
        """

        def edit(orders: OrderList) -> OrderList:
            order = orders.of(ROLLOUT)
            if order is None or not says(order, before) or after == before:
                return orders
            return orders.amend(order, body_of(after))

        return says(self._orders.change(edit).of(ROLLOUT), after)

    def stop(self, name: str, why: str, now: float) -> Rollout | None:
        """Note why a rollout is to be stopped, and end its drains in the same step; None where it is not under way."""

        def edit(orders: OrderList) -> OrderList:
            order = orders.of(ROLLOUT)
            if order is None or order.id != name:
                return orders
            stopped = orders.amend(order, {**order.body, "stopping": why})
            return _without_drains(stopped, name, now)

        rollout = _rollout(self._orders.change(edit))
        return rollout if rollout is not None and rollout.id == name else None

    def end(self, rollout: Rollout, now: float) -> None:
        """End a rollout with its drains, and keep its result."""

        def edit(orders: OrderList) -> OrderList:
            order = orders.of(ROLLOUT)
            if order is None or order.id != rollout.id:
                return orders
            return _without_drains(orders, rollout.id, now).end(ROLLOUT, now, body_of(rollout))

        self._orders.change(edit)

    def withdraw(self, now: float) -> None:
        """End a rollout that came to nothing, or cannot be read: nobody hears of it."""
        self._orders.change(lambda orders: orders.end(ROLLOUT, now))


def goes_on(orders: OrderList, name: str) -> bool:
    """Whether the rollout of that id is under way, and nobody has stopped it."""
    order = orders.of(ROLLOUT)
    return order is not None and order.id == name and not order.body.get("stopping")


def _rollout(orders: OrderList) -> Rollout | None:
    try:
        return value_of(orders.of(ROLLOUT), Rollout)
    except UsageError as error:
        ends = "lbd rollout --stop ends it; release its drain, if there is one"
        raise UnreadableOrdersError(f"{error}; {ends}") from error


def _without_drains(orders: OrderList, name: str, now: float) -> OrderList:
    """The list without the drains and the fill of a rollout."""
    for key, order in (*orders.keyed(DRAIN).items(), *orders.keyed(FILL).items()):
        if order.body.get("rollout") == name:
            orders = orders.end(key, now)
    return orders
