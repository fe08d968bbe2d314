"""Requests of people to a live lbd, held in memory: each waits, is executed once, and ends in a result."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from lbd.decide.manual import ByHand
from lbd.errors import RefusedError, UsageError
from lbd.model import Outcome, Result, Skip, bundle_namespace
from lbd.reason import Group, Reason
from lbd.store.control import (
    FAILED,
    REFUSED,
    DrainRequest,
    FillRequest,
    PlaceRequest,
    RequestResult,
    RolloutRequest,
    SplitRequest,
    UnloadRequest,
    ordered_by,
)
from lbd.store.orders import UnreadableOrdersError
from lbd.text import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lbd.errors import LbdError
    from lbd.model import Unload
    from lbd.permit.facts import Hold
    from lbd.store.control import Control, Request
    from lbd.store.rollouts import Rollouts
    from lbd.turn.parts import Parts, TurnResult


OVERRIDDEN_BARS = frozenset(reason for reason in Reason if reason.group is Group.LIMIT) | {Reason.TOPIC_COST}
OVERRIDDEN_HOLDS = frozenset(
    {Reason.PAUSED, Reason.QUIET_HOURS, Reason.NO_IMPROVEMENT, Reason.NOT_SERVED, Reason.CHANGED_HANDS}
)
"""Holds that ``--override`` passes: limits, people's orders to wait, and bundles that are not served or that others
moved, which a person may have to move on; never conditions on a destination.
"""

ONLY_OBSERVES = "this lbd only observes (mode: observe)"


def ordered(control: Control, now: float) -> Hold | None:
    """The pause in force."""
    pause = control.paused(now)
    if pause is None:
        return None
    until = f"until {utc(pause.until)}" if pause.until is not None else "until lbd resume"
    return Reason.PAUSED, f"by {pause.by} {until}{pause.reason and f': {pause.reason}'}"


def rolling(rollouts: Rollouts) -> Hold | None:
    """The hold of a rollout on all moves but its own: each bundle is to move as seldom as possible."""
    try:
        rollout = rollouts.under_way()
    except UnreadableOrdersError:  # the rollout's own step reports it
        return None
    except UsageError as error:  # in doubt nothing moves, as where a pause cannot be read
        return Reason.PAUSED, str(error)
    if rollout is None or rollout.phase == "ended":
        return None
    return Reason.MOVES_UNFINISHED, rollout.summary


def overriding(parts: Parts, request: UnloadRequest) -> Parts:
    """Parts without the holds that an order passes; with a reason it also passes limits and orders to wait."""
    passes = request.override is not None
    planning = replace(
        parts.planning,
        guardrails=parts.planning.guardrails.without_canary,
        ignored=OVERRIDDEN_HOLDS | OVERRIDDEN_BARS if passes else frozenset(),
    )
    return replace(parts, planning=planning, heeds_properties=False, unserved=dict if passes else parts.unserved)


def wanting(parts: Parts, request: UnloadRequest, picked: str = "") -> Parts:
    """Parts of a turn that makes this unload and nothing else; a single bundle is within every cap of a turn."""
    passed = f", overriding limits: {request.override}" if request.override is not None else ""
    reason = f"by hand, {ordered_by(request)}{passed}{f'; {picked}' if picked else ''}"
    wish = ByHand(
        request.bundle,
        request.destination or "",
        parts.planning.weights,
        reason,
        tried_at=parts.past.attempted_at.get(request.bundle),
        rests_minutes=parts.planning.guardrails.cool_down_minutes,
    )
    planning = replace(parts.planning, strategy=wish, moved_rest=False)  # the person knows how urgent it is
    return replace(parts, planning=planning)


def split_hold(
    request: SplitRequest, held: Callable[[], Hold | None], unfinished: Sequence[Unload], *, observe_only: bool
) -> Hold | None:
    """Hold on a split: work under way in any case, and orders to wait unless they are overridden."""
    if observe_only:
        return Reason.OBSERVE_ONLY, ONLY_OBSERVES
    if unfinished:
        return Reason.MOVES_UNFINISHED, f"{unfinished[0].bundle} is under way"
    hold = held()
    return None if hold is None or (request.override is not None and hold[0] in OVERRIDDEN_HOLDS) else hold


def request_reason(record: TurnResult, bundle: str) -> str:
    """Reason why a request came to nothing, in words."""
    if record.plan.hold is not None:
        return record.plan.hold[0].message(record.plan.hold[1])
    refusal = next((skip for skip in record.skips if skip.what == bundle), None)
    if refusal is None:
        return record.sentence
    whole = (skip for skip in record.skips if skip.what == bundle_namespace(bundle) and skip.reason is refusal.reason)
    detail = refusal.detail or next((skip.detail for skip in whole), "")
    return refusal.reason.message(detail)


def _key(request: Request) -> str:
    """Key of a request's result: a move of this bundle, or, for several bundles, the request's own answer."""
    return request.bundle if isinstance(request, UnloadRequest | SplitRequest) else request.id


_UNDONE = {
    PlaceRequest: "Not placed",
    SplitRequest: "Not split",
    DrainRequest: "Not begun",
    FillRequest: "Not begun",
    RolloutRequest: "Not begun",
}


QUEUED = 16
"""Largest number of waiting requests; further ones are refused, but for those that end an order."""

CALLER_CHECK_SECONDS = 0.2
"""Interval in which a waiting request checks whether its caller has gone."""

EXPIRED = "Refused: expired; lbd took the request {late:.0f} s after whoever asked had stopped waiting."


@dataclass(eq=False)
class _Caller:
    """A caller that waits for a result."""

    result: RequestResult | None = None
    answered: threading.Event = field(default_factory=threading.Event)


def ends_an_order(request: Request) -> bool:
    """Whether it ends an order of a person, for which it waits for nothing that is under way."""
    return isinstance(request, RolloutRequest) and request.stop


class Requests:
    """Requests of people, in memory: waiting ones, and those under way. Thread-safe.

    A request waits until :meth:`next` takes it; one lock decides whether it was taken or withdrawn first, so a request
    that was reported as withdrawn is never executed. ``on_new`` is called for each new one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Request] = deque()
        self._under_way: dict[str, Request] = {}
        self._callers: dict[str, _Caller] = {}
        self._closed = ""
        self.deliver: Callable[[str, RequestResult], None] = self._deliver
        self.on_new: Callable[[], object] = lambda: None

    def submit(self, request: Request) -> None:
        """Queue a request. Raises :class:`RefusedError` where too many wait, or lbd ends."""
        with self._lock:
            if self._closed:
                raise RefusedError(self._closed)
            if len(self._waiting) >= QUEUED and not ends_an_order(request):
                raise RefusedError(f"{QUEUED} requests are waiting already")
            self._waiting.append(request)
        self.on_new()

    def ask(self, request: Request, gone: Callable[[], bool]) -> tuple[RequestResult | None, bool]:
        """Submit it and wait until it expires or its caller has ``gone``; returns the result, and if nothing was begun.

        A request that was not taken by then is withdrawn.
        """
        caller = self._callers[request.id] = _Caller()
        try:
            self.submit(request)
            deadline = time.monotonic() + request.expires_at - request.at
            while not caller.answered.wait(min(CALLER_CHECK_SECONDS, max(deadline - time.monotonic(), 0.0))):
                if time.monotonic() >= deadline or gone():
                    break
            return (None, True) if self._withdraw(request) else (caller.result, False)
        finally:
            del self._callers[request.id]

    def _withdraw(self, request: Request) -> bool:
        with self._lock:
            try:
                self._waiting.remove(request)
            except ValueError:
                return False
            return True

    def next(self, now: float, *, ends_only: bool = False) -> Request | None:
        """The request to be executed now: the oldest that ends an order, else the oldest unless ``ends_only``.

        One that has expired is refused instead.
        """
        while True:
            with self._lock:
                oldest = None if ends_only or not self._waiting else self._waiting[0]
                request = next(filter(ends_an_order, self._waiting), oldest)
                if request is None:
                    return None
                self._waiting.remove(request)
                if now < request.expires_at:
                    return request
                self.deliver(request.id, RequestResult(REFUSED, EXPIRED.format(late=now - request.expires_at)))

    def close(self, why: str) -> None:
        """Refuse waiting and new requests; those under way continue to their end."""
        with self._lock:
            self._closed = why
            while self._waiting:
                self.deliver(self._waiting.popleft().id, RequestResult(REFUSED, f"Refused: {why}."))

    def _deliver(self, name: str, result: RequestResult) -> None:
        """Deliver the result, unless the caller has gone; the journal has it anyway."""
        caller = self._callers.get(name)
        if caller is not None:
            caller.result = result if result.id else msgspec.structs.replace(result, id=name)
            caller.answered.set()

    def begun(self, request: Request) -> None:
        """From now on the end of a move of this bundle is the answer."""
        with self._lock:
            self._under_way[_key(request)] = request

    def refuse(self, request: Request, why: str) -> None:
        """Answer that nothing was sent."""
        self.answer(request, RequestResult(REFUSED, f"Refused: {why}."))

    def fail(self, request: Request, error: LbdError) -> None:
        """Answer that nothing was sent, because it could not be judged; the exit code is the error's."""
        done = _UNDONE.get(type(request), "Not moved")
        self.answer(
            request,
            RequestResult(error.exit_code, f"{'Refused' if isinstance(error, RefusedError) else done}: {error}"),
        )

    def answer(self, request: Request, answer: RequestResult) -> None:
        """Deliver the answer of a request that has ended."""
        self._answer(_key(request), answer)

    def ended(self, end: Outcome | Skip) -> None:
        """Deliver the end of a move, if a person requested it."""
        if isinstance(end, Skip):
            self._answer(end.what, RequestResult(REFUSED, f"Refused: {end.reason.message(end.detail)}."))
        else:
            self._answer(end.unload.bundle, _answer(end))

    def _answer(self, key: str, answer: RequestResult) -> None:
        with self._lock:
            request = self._under_way.pop(key, None)
        if request is not None:
            self.deliver(request.id, answer)


def _answer(outcome: Outcome) -> RequestResult:
    unload = outcome.unload
    landed = outcome.result is Result.LANDED
    detail = f": {outcome.detail}" if outcome.detail else ""
    text = f"{unload.bundle}: {unload.source} -> {unload.destination}: {outcome.result.value}"
    sentence = f"{text} in {outcome.seconds:.2f} s{detail}."
    return RequestResult(0 if landed else FAILED, sentence, outcome.result, outcome.owner)
