"""Dispatch of manual requests: started one after the other, checked as in a turn, and answered.

A plan that a person has seen is carried out as a whole, or not at all where one of its moves cannot be made now.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from lbd.errors import LbdError, NotLeaderError, RefusedError
from lbd.model import Outcome, Result, Skip
from lbd.operations.dry import Fixed
from lbd.operations.place import destination, named, trouble
from lbd.operations.planned import judge_plan, refusal_text, unmade_moves, wanting_plan
from lbd.operations.requests import (
    ONLY_OBSERVES,
    ends_an_order,
    overriding,
    request_reason,
    split_hold,
    wanting,
)
from lbd.store.control import (
    FAILED,
    REFUSED,
    DrainRequest,
    FillRequest,
    PlacedBundle,
    PlaceRequest,
    PlanRequest,
    RequestResult,
    RolloutRequest,
    SplitRequest,
)
from lbd.text import counted, zoned
from lbd.turn.turn import turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.daemon.wiring import Assembled
    from lbd.operations.requests import Requests
    from lbd.permit.facts import Hold
    from lbd.store.control import Request, UnloadRequest
    from lbd.store.proposal import AppliedPlan
    from lbd.turn.parts import Parts


@dataclass
class _UnderWay:
    """A plan whose moves have begun; ``placed`` are the moves that have ended, by bundle."""

    request: PlanRequest
    placed: dict[str, PlacedBundle] = field(default_factory=dict)

    @property
    def answer(self) -> RequestResult | None:
        """Once all have ended."""
        done = [self.placed.get(move.bundle) for move in self.request.moves]
        finished = [move for move in done if move is not None]
        return _moves_result(finished) if len(finished) == len(done) else None


class Applying:
    """Applies one plan after the other. Thread-safe: moves end in threads of their own.

    ``on_begin`` is called before the first move of a plan; if it raises, no move begins.
    """

    def __init__(self, requests: Requests, on_begin: Callable[[PlanRequest], None]) -> None:
        self._requests, self._on_begin = requests, on_begin
        self._lock = threading.Lock()
        self._under_way: _UnderWay | None = None
        self.last = ""

    @property
    def plan(self) -> str:
        """The name of the plan whose moves have not all ended; empty where there is none."""
        flying = self._under_way
        return flying.request.plan if flying is not None else ""

    def apply(self, request: PlanRequest, parts: Parts) -> None:
        """Judge all moves by one look at the cluster; only if each may still be made are they begun.

        Raises :class:`~lbd.errors.LbdError` where that cannot be judged, or something holds all moves.
        """
        fixed = replace(parts, observer=Fixed(parts.observer.observe()))
        if unmade := judge_plan(request, fixed):
            words = refusal_text(request.plan, len(request.moves), unmade)
            refusal = RequestResult(REFUSED, f"Refused: {words}; nothing was begun.", placed=unmade)
            self._requests.answer(request, refusal)
            return
        self._on_begin(request)
        with self._lock:
            self._under_way, self.last = _UnderWay(request), request.plan
        record = turn(wanting_plan(request, fixed))
        for move in unmade_moves(request, record):
            self._end(move)

    def ended(self, outcome: Outcome | Skip) -> None:
        """A move has ended, of whatever plan."""
        if isinstance(outcome, Skip):
            self._end(PlacedBundle(outcome.what, None, None, None, outcome.reason.message(outcome.detail)))
        else:
            unload = outcome.unload
            self._end(PlacedBundle(unload.bundle, unload.destination, outcome.result, outcome.owner, outcome.detail))

    def _end(self, placed: PlacedBundle) -> None:
        with self._lock:
            flying = self._under_way
            if flying is None or placed.bundle not in {move.bundle for move in flying.request.moves}:
                return
            flying.placed[placed.bundle] = placed
            answer = flying.answer
            if answer is None:
                return
            self._under_way = None
        self._requests.answer(flying.request, answer)


def _moves_result(moves: list[PlacedBundle]) -> RequestResult:
    landed = sum(move.result is Result.LANDED for move in moves)
    missed = [move for move in moves if move.result not in {None, Result.LANDED}]
    unsent = [move for move in moves if move.result is None]
    words = [f"{landed} landed"]
    words += [f"{len(missed)} not where they should be: {missed[0].bundle}: {missed[0].detail}"] if missed else []
    words += [f"{len(unsent)} not sent: {unsent[0].bundle}: {unsent[0].detail}"] if unsent else []
    code = FAILED if missed else REFUSED if unsent else 0
    return RequestResult(code, f"{counted(len(moves), 'move')}: {', '.join(words)}.", placed=moves)


# --- dispatcher


class Dispatcher:
    """Begins what stands in ``requests`` with the parts of a live lbd; thread-safe only where it hears what ended."""

    def __init__(self, real: Assembled, requests: Requests) -> None:
        self._real, self._requests = real, requests
        self._applying = Applying(requests, self._begins)
        self.trouble = ""

    def begin(self, request: Request, parts: Callable[[UnloadRequest | None], Parts]) -> None:
        """It is begun, unless another lbd leads or something holds it, and ends in an answer."""
        try:
            self._real.orders.refuse_beside_a_leader()
        except NotLeaderError as error:
            self._requests.begun(request)
            self._requests.fail(request, error)
            return
        try:
            if isinstance(request, SplitRequest):
                self._split(request)
                return
            self._requests.begun(request)
            if self._real.observing is not None and not ends_an_order(request):
                self._requests.refuse(request, ONLY_OBSERVES)
            elif not self._was_given(request):
                self._judge(request, parts)
        except LbdError as error:
            self._requests.fail(request, error)

    def _was_given(self, request: Request) -> bool:
        """Whether an order is in force already, under its id: then that is the answer to whoever lost the first one.

        Raises :class:`RefusedError` for one that has ended since.
        """
        is_order = isinstance(request, DrainRequest | FillRequest | RolloutRequest | PlanRequest)
        if not is_order or (isinstance(request, RolloutRequest) and (request.stop or request.restarts)):
            return False
        stands = self._real.orders.read().stands(request.id)
        if stands is False:
            raise RefusedError(f"this {request.kind} was ordered before, under the same key, and is over")
        if stands:
            words = f"This {request.kind} was ordered before, and is in force."
            self._requests.answer(request, RequestResult(0, words))
        return bool(stands)

    def ended(self, outcome: Outcome | Skip) -> None:
        """A move has ended, in a thread of its own."""
        self._requests.ended(outcome)
        self._applying.ended(outcome)

    def _split(self, request: SplitRequest) -> None:
        real, observe_only = self._real, self._real.observing is not None

        def held() -> Hold | None:
            return real.held() or real.unserved(request.bundle)

        def held_later() -> Hold | None:
            """The same without this split itself; nothing where a person overrides holds."""
            return None if request.override is not None else real.ordered() or real.unserved(request.bundle)

        hold = split_hold(request, held, real.executor.unfinished, observe_only=observe_only)
        real.splitting.serve(request, real.settings, self._requests, hold, held_later)

    def _judge(
        self,
        request: UnloadRequest | PlaceRequest | PlanRequest | DrainRequest | FillRequest | RolloutRequest,
        parts: Callable[[UnloadRequest | None], Parts],
    ) -> None:
        real = self._real
        if isinstance(request, RolloutRequest):
            self._requests.answer(request, real.rolling.begin(request, real.tools(parts(None))))
        elif isinstance(request, DrainRequest | FillRequest):
            if (rollout := real.rolling.hold()) is not None:
                raise RefusedError(f"{rollout[1]}; lbd rollout --stop ends it")
            self._requests.answer(request, real.draining.begin(request, real.tools(parts(None))))
        elif isinstance(request, PlaceRequest):
            self._requests.answer(request, real.placing.place(request, parts(None), real.placer))
        elif isinstance(request, PlanRequest):
            self._plan(request, parts(None))
        else:
            self._unload(request, overriding(parts(request), request))

    def _plan(self, request: PlanRequest, parts: Parts) -> None:
        """A plan that needs more names than it has gets this one, and waits on."""
        quorum, names, now = self._real.settings.approvers, [request.by], self._real.timebase.now()
        if quorum > 1:
            proposal = self._real.proposals.find(request.plan, now)
            if proposal is None:
                raise RefusedError(f"plan {request.plan} does not wait for approval; with approvers: {quorum} it must")
            names = self._real.plans.approve(request, now, proposal.expires_at)
            if len(names) < quorum:
                until = zoned(proposal.expires_at)
                words = f"Plan {proposal.id} is approved by {request.by} and waits for another person until {until}."
                self._requests.answer(request, RequestResult(0, f"{words} Nothing was begun.", placed=[]))
                return
        self._applying.apply(msgspec.structs.replace(request, by=" and ".join(names)), parts)

    def _begins(self, request: PlanRequest) -> None:
        """The order is on disk, and published, before the first of its moves."""
        self._real.plans.begin(request, self._real.timebase.now())
        self._real.proposals.drop()
        self.trouble = ""

    def go_on(self) -> None:
        """End the orders of plans that are over: made, left by an lbd that was killed, or expired."""
        plans, now = self._real.plans, self._real.timebase.now()
        try:
            for plan in plans.all() if self._real.leading.leading else ():
                if self._is_over(plan, now):
                    plans.end(plan.plan, now)
                    self.trouble = self._interruption(plan)
        except LbdError as error:
            self.trouble = f"a plan that is over cannot be ended: {error}"

    def _is_over(self, plan: AppliedPlan, now: float) -> bool:
        if plan.begun_at is not None:
            return plan.plan != self._applying.plan
        proposals = self._real.proposals
        proposal = proposals.find(plan.plan, now)
        if proposal is None:
            return proposals.judged or now >= plan.until
        return proposal.made_at >= plan.until  # the same moves, proposed anew after the approval had expired

    def _interruption(self, plan: AppliedPlan) -> str:
        """Sentence on a plan that another process began and left; empty for a plan of this process."""
        if plan.begun_at is None or plan.plan == self._applying.last:
            return ""
        made = f"lbd history shows which of its {counted(plan.moves, 'move')} were made"
        return f"plan {plan.plan}, applied by {' and '.join(plan.by)}, was under way when its lbd ended: {made}"

    def _unload(self, request: UnloadRequest, parts: Parts) -> None:
        """A turn that wants just this, and ends in an answer."""
        named(request, self._real.placer.admin)
        request, parts, picked = destination(request, parts)
        record = turn(wanting(parts, request, picked))
        if (error := trouble(request, record)) is not None:
            self._requests.fail(request, error)
        elif not record.plan.unloads:
            self._requests.refuse(request, request_reason(record, request.bundle))
