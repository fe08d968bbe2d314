"""Orders of people: the typed commands that a running lbd executes, and the pause, which survives a restart.

Orders that must survive a restart are in the store (``store/orders.py``): the pause, drains and rollouts. The command
on the same machine writes the pause itself, and the API for others. All other commands reach the running lbd over the
API, on the same machine through the socket in the state directory; it holds them in memory
(``operations/requests.py``).
"""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from lbd.errors import RefusedError, UsageError
from lbd.files import At
from lbd.model import Result
from lbd.split.plan import Algorithm
from lbd.store.orders import PAUSE, Body, Order, OrderList, Orders, UnreadableOrdersError, body_of, number, value_of

if TYPE_CHECKING:
    from pathlib import Path


SOCKET = "lbd.sock"
"""In the state directory: commands on this machine reach the running lbd there."""

REFUSED, FAILED = 4, 5
"""Exit codes of results, as the command line defines them."""


class UnloadRequest(msgspec.Struct, frozen=True):
    """One unload that a person requested. ``override`` is why limits may be passed, None when they may not.

    Without a ``destination`` lbd's picker names one.
    """

    id: str
    bundle: str
    destination: str | None
    override: str | None
    by: str
    at: At
    expires_at: At
    reason: str = ""
    kind: Literal["unload"] = "unload"


class SplitRequest(msgspec.Struct, frozen=True):
    """One split that a person requested, at the positions that were shown; ``override`` as in an unload's."""

    id: str
    bundle: str
    owner: str
    algorithm: Algorithm
    positions: tuple[int, ...]
    override: str | None
    by: str
    at: At
    expires_at: At
    reason: str = ""
    kind: Literal["split"] = "split"


class PlaceRequest(msgspec.Struct, frozen=True):
    """Bundles, topics and namespaces (``targets``) whose unowned bundles are to be placed as ``strategy`` answers."""

    id: str
    targets: list[str]
    strategy: str
    by: str
    at: At
    expires_at: At
    reason: str = ""
    kind: Literal["place"] = "place"


class PlannedMove(msgspec.Struct, frozen=True):
    """One move of a plan that was shown."""

    bundle: str
    source: str
    destination: str


class PlanRequest(msgspec.Struct, frozen=True):
    """All moves of a plan that was shown, or none of them: ``plan`` is its name, ``reason`` why it is requested."""

    id: str
    plan: str
    moves: list[PlannedMove]
    reason: str
    by: str
    at: At
    expires_at: At
    kind: Literal["plan"] = "plan"


class DrainRequest(msgspec.Struct, frozen=True):
    """A ``broker`` that is to own nothing, for ``seconds`` (None: as long as the settings say).

    ``override`` is why holds and the hour's limit may be passed, ``respect_rest`` whether bundles that rest stay,
    ``rollout`` the id of the rollout that it is a part of.
    The result says whether the drain has begun; its progress is in ``store/drains.py``.
    """

    id: str
    broker: str
    seconds: At | None
    reason: str
    override: str | None
    by: str
    at: At
    expires_at: At
    respect_rest: bool = False
    rollout: str = ""
    kind: Literal["drain"] = "drain"


class FillRequest(msgspec.Struct, frozen=True):
    """A ``broker`` that is to get a slice of each hot one's bundles; answered when that has begun, as a drain is."""

    id: str
    broker: str
    override: str | None
    by: str
    at: At
    expires_at: At
    respect_rest: bool = False
    rollout: str = ""
    reason: str = ""
    kind: Literal["fill"] = "fill"


class RolloutRequest(msgspec.Struct, frozen=True):
    """``brokers`` that are to be restarted one after the other (none: all); with ``stop`` the end of that.

    With ``executes`` the requester restarts each broker, within ``back_within_seconds``. Answered when it has begun.
    ``restarts`` is the broker that the requester is about to restart: nothing is begun, and it is refused unless that
    broker is due now, by the lbd that leads now, and no other ``claim`` has it (empty: the id of this request).
    ``target`` is the id of the rollout to stop or go on with; empty: whichever is under way.
    """

    id: str
    brokers: tuple[str, ...]
    executes: bool
    back_within_seconds: At
    reason: str
    by: str
    at: At
    expires_at: At
    stop: bool = False
    restarts: str = ""
    claim: str = ""
    target: str = ""
    kind: Literal["rollout"] = "rollout"


Request: TypeAlias = (
    UnloadRequest | SplitRequest | PlaceRequest | PlanRequest | DrainRequest | FillRequest | RolloutRequest
)


def ordered_by(request: Request) -> str:
    """The requester, and the reason given: the reason of each move."""
    return f"{request.by}{request.reason and f': {request.reason}'}"


class PlacedBundle(msgspec.Struct, frozen=True):
    """Result for one bundle of a :class:`PlaceRequest`, or for one move of a :class:`PlanRequest`.

    ``result`` is None where nothing was requested, as ``detail`` says; ``reason`` is why it was to go there. ``owner``
    is its owner now, ``answer`` the broker it was to go to (None: no broker may have it).
    """

    bundle: str
    answer: str | None
    result: Result | None
    owner: str | None
    detail: str = ""
    reason: str = ""


class RequestResult(msgspec.Struct, frozen=True):
    """Result of a request, and one sentence for the person.

    ``exit_code``: 0 landed, 4 refused, 5 failed or landed elsewhere, below 4 why it could not even be judged.

    ``result`` is None when nothing was sent or nothing is known, and for a split; ``owner`` owns the bundle now, or all
    parts of it. ``parts`` are those of a split bundle, unset elsewhere;
    ``placed`` has the results for the bundles of a :class:`PlaceRequest` or :class:`PlanRequest`.
    """

    exit_code: int
    sentence: str
    result: Result | None = None
    owner: str | None = None
    id: str = ""
    parts: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    placed: list[PlacedBundle] | msgspec.UnsetType = msgspec.UNSET


# --- pause


class Pause(msgspec.Struct, frozen=True):
    """lbd observes and counts, and moves nothing. Times are epoch seconds; ``until`` None: until ``lbd resume``.

    ``since`` is 0 (unknown) where the orders cannot be read.
    """

    since: At
    until: At | None
    reason: str
    by: str


class Resumption(msgspec.Struct, frozen=True):
    """A person resumed lbd at ``time`` (epoch seconds); ``by`` is empty where it was not kept."""

    time: At
    by: str
    reason: str


class Control:
    """The pause of a state directory, and when a person last resumed lbd.

    ``orders`` are those of a running lbd; without them they are changed as for one that is alone. Every method
    raises :class:`UsageError` where the store cannot be used, and :class:`RefusedError` where only another lbd may
    change them.
    """

    def __init__(self, state_dir: Path, orders: Orders | None = None) -> None:
        self._orders = Orders(state_dir) if orders is None else orders

    def pause(self, pause: Pause, name: str = "") -> tuple[Pause, Pause | None]:
        """Write the pause, which survives restarts; returns it, and the one it replaces. ``name`` is its id, if it has
        one.

        One that is in force already under its id stays as it is, and is returned. Raises :class:`RefusedError` where
        that has ended.
        """
        before, order = self.paused(pause.since), Order(name or new_id()[0], PAUSE, body_of(pause))

        def edit(orders: OrderList) -> OrderList:
            stands = orders.stands(order.id)
            if stands is False:
                raise RefusedError("this pause was ordered before, under the same key, and is over")
            return orders if stands else orders.give(order, pause.since)

        in_force = value_of(self._orders.change(edit).orders[order.id], Pause) or pause
        return in_force, before if before != in_force else None

    def go_on(self, now: float, by: str = "", reason: str = "") -> Pause | None:
        """Resume: end the pause, and the hold for moves that are not served at ``now`` (epoch seconds)."""
        result = {"by": by, "reason": reason, "at": now}
        return self._end(now, result if self._orders.state_dir.is_dir() else None)

    @property
    def resumed(self) -> Resumption | None:
        """When a person last resumed lbd; None: never, or not known."""
        try:
            resumed = self._orders.read().results.get(PAUSE)
        except UsageError:
            return None
        if resumed is None:
            return None
        # the time of an end never falls, also where the clock was set back; that in its body is as it was given
        time = number(resumed.body.get("at"), resumed.time)
        return Resumption(time, str(resumed.body.get("by", "")), str(resumed.body.get("reason", "")))

    @property
    def resumed_at(self) -> float:
        """The time of that, epoch seconds; 0 for none."""
        resumed = self.resumed
        return resumed.time if resumed is not None else 0.0

    def resume(self) -> Pause | None:
        """End the pause; returns it, even if it had expired."""
        return self._end(time.time())

    def _end(self, now: float, result: Body | None = None) -> Pause | None:
        pause = self._read_pause()
        try:
            self._orders.read()
        except UnreadableOrdersError:
            self._orders.reset()
        self._orders.change(lambda orders: orders.end(PAUSE, now, result))
        return pause

    def paused(self, now: float) -> Pause | None:
        """The pause in force. When in doubt lbd does not move: orders that cannot be read are a pause without end."""
        pause = self._read_pause()
        return None if pause is None or (pause.until is not None and pause.until <= now) else pause

    def standing(self, now: float) -> str | None:
        """The id of the pause in force; None without one."""
        if self.paused(now) is None:
            return None
        try:
            order = self._orders.read().of(PAUSE)
        except UsageError:
            order = None
        return order.id if order is not None else "unknown"

    def _read_pause(self) -> Pause | None:
        try:
            return value_of(self._orders.read().of(PAUSE), Pause)
        except UsageError as error:
            return Pause(0.0, None, str(error), "unknown")


def new_id() -> tuple[str, float]:
    """A unique request id, and the time, epoch seconds."""
    now = time.time()
    return f"{int(now * 1000):x}-{os.getpid():x}-{secrets.token_hex(4)}", now
