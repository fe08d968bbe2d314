"""The plan of a turn that waits for approval, as status, API and ``lbd plan`` show it, and the order to apply it.

A proposal is no order, as lbd makes it: it is in memory only, and after a restart or a failover the next turn makes a
new one. What a person says to it is an order (``store/orders.py``): it outlives the lbd that took it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from lbd.errors import RefusedError, UsageError
from lbd.files import At
from lbd.store.orders import PLAN, Order, OrderList, Orders, body_of, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lbd.model import Unload
    from lbd.store.control import PlanRequest


PLAN_SECONDS = 600.0
"""A plan can be applied for so long after the last round that led to it."""


class ProposedMove(msgspec.Struct, frozen=True):
    """One move: messages/s and bytes/s in + out, and how many producers and consumers will reconnect.

    ``cost`` are the points that ``guardrails.move_costs`` and ``topic_costs`` give the bundle: cheaper ones go first.
    """

    bundle: str
    source: str
    destination: str
    msg_rate: float | None
    throughput: float | None
    reason: str
    clients: int
    cost: float = 0.0


class Proposal(msgspec.Struct, frozen=True):
    """Moves under one name. Times are epoch seconds; ``expected`` are scores in points once all moves have landed.

    ``approved_by`` are the people who have approved it, where one is not enough.
    """

    id: str
    made_at: At
    expires_at: At
    unloads: list[ProposedMove]
    expected: dict[str, float]
    clients: int
    approved_by: list[str] = []

    def in_time(self, now: float) -> bool:
        """Whether it can be applied at ``now``, epoch seconds.

        One that expires much later was made before the clock was set back.
        """
        return 0 < self.expires_at - now <= 2 * PLAN_SECONDS


class PlannedScore(msgspec.Struct, frozen=True):
    """A broker's score in points now, and ``after`` all moves of a plan have landed; None where unknown.

    ``doubt`` is as in :class:`~lbd.store.turn_record.BrokerRecord`.
    """

    id: str
    score: float | None
    after: float | None
    doubt: str | None = None


def plan_id(moves: Iterable[Unload]) -> str:
    """The name of a plan: the same for the same moves, whenever they are planned, in whatever order."""
    rows = sorted((move.bundle, move.source, move.destination or "") for move in moves)
    return sha256(msgspec.json.encode(rows)).hexdigest()[:8]


class AppliedPlan(msgspec.Struct, frozen=True):
    """The order to make the ``moves`` moves of a ``plan``, approved ``by`` these people. Times are epoch seconds.

    ``begun_at`` is None while it waits for another person, ``until`` for how long that is.
    """

    plan: str
    moves: int
    by: list[str]
    ordered_at: At
    until: At
    reason: str = ""
    begun_at: At | None = None


class AppliedPlans:
    """The plans that people apply, by an lbd that runs; every method raises as :meth:`Orders.change`.

    A plan is judged as a whole by one look at the cluster. So what a killed lbd has left of one is no order any more,
    and nobody goes on with it: the next turn proposes what is still to be moved.
    """

    def __init__(self, state_dir: Path, orders: Orders | None = None) -> None:
        self._orders = Orders(state_dir) if orders is None else orders

    def all(self) -> list[AppliedPlan]:
        """All orders that can be read, those that have expired among them."""
        try:
            orders = self._orders.read()
        except UsageError:
            return []
        return [plan for order in orders.keyed(PLAN).values() if (plan := _applied(order)) is not None]

    def approved_by(self, plan: str) -> list[str]:
        """The people who have approved a plan that waits for another one."""
        return next((order.by for order in self.all() if order.plan == plan and order.begun_at is None), [])

    def approve(self, request: PlanRequest, now: float, until: float) -> list[str]:
        """Note one more person, for that long; returns all names. Raises :class:`RefusedError` where it has begun."""

        def edit(orders: OrderList) -> OrderList:
            order = orders.of(PLAN + request.plan)
            before = _applied(order)
            if order is None or before is None:
                return _given(orders, request, AppliedPlan(request.plan, len(request.moves), [request.by], now, until))
            if before.begun_at is not None:
                raise RefusedError(f"plan {request.plan} is being applied")
            names = list(dict.fromkeys([*before.by, request.by]))
            return orders.amend(order, body_of(msgspec.structs.replace(before, by=names, until=until)))

        plan = _applied(self._orders.change(edit).of(PLAN + request.plan))
        return plan.by if plan is not None else []

    def begin(self, request: PlanRequest, now: float) -> None:
        """Write that its moves begin. Raises :class:`RefusedError` where they have begun already."""

        def edit(orders: OrderList) -> OrderList:
            order = orders.of(PLAN + request.plan)
            before = _applied(order)
            if before is not None and before.begun_at is not None:
                raise RefusedError(f"plan {request.plan} is being applied")
            names = before.by if before is not None else [request.by]
            plan = AppliedPlan(request.plan, len(request.moves), names, now, now, request.reason, now)
            return _given(orders, request, plan) if order is None else orders.amend(order, body_of(plan))

        self._orders.change(edit)

    def end(self, plan: str, now: float) -> None:
        """All its moves have ended, or it has expired."""
        self._orders.change(lambda orders: orders.end(PLAN + plan, now))


def _given(orders: OrderList, request: PlanRequest, plan: AppliedPlan) -> OrderList:
    return orders.give(Order(request.id, PLAN + request.plan, body_of(plan)), plan.ordered_at)


def _applied(order: Order | None) -> AppliedPlan | None:
    """None also where it cannot be read: it is not begun then, and ends when it is applied again."""
    try:
        return value_of(order, AppliedPlan)
    except UsageError:
        return None
