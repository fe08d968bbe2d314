"""A plan that somebody has seen, made true: all of it, or, where the cluster has drifted since, nothing of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lbd.act.dry_run import DryRun
from lbd.cycle import turn
from lbd.daemon.placing import Fixed
from lbd.daemon.requests import why
from lbd.decide.by_plan import ByPlan
from lbd.errors import RefusedError
from lbd.model import Outcome, Result, Skip
from lbd.record.control import FAILED, REFUSED, Answer, PlacedBundle
from lbd.record.state import Scratch
from lbd.words import counted

if TYPE_CHECKING:
    from lbd.cycle import CycleRecord, Parts
    from lbd.daemon.requests import Requests
    from lbd.record.control import PlanRequest

TOLD = 3
"""Stale moves in the sentence; the answer names all."""


@dataclass
class _UnderWay:
    """A plan whose moves have begun, and those that have ended."""

    request: PlanRequest
    ended: dict[str, PlacedBundle] = field(default_factory=dict)

    @property
    def answer(self) -> Answer | None:
        """Once all have ended."""
        done = [self.ended.get(move.bundle) for move in self.request.moves]
        told = [one for one in done if one is not None]
        return _told(told) if len(told) == len(done) else None


class Applying:
    """What applies one plan after the other. Thread-safe: moves end in threads of their own."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._lock = threading.Lock()
        self._under_way: _UnderWay | None = None

    def apply(self, request: PlanRequest, parts: Parts) -> None:
        """Judge all moves by one look at the cluster; only if each may still be made are they begun.

        Raises :class:`~lbd.errors.LbdError` where that cannot be judged, or something holds all moves.
        """
        fixed = _wanting(request, replace(parts, observer=Fixed(parts.observer.observe())))
        trial = turn(replace(fixed, actuator=DryRun(), store=_copy(fixed)))
        if trial.error is not None:
            raise trial.error
        if trial.hold is not None:
            raise RefusedError(why(trial, ""))
        if stale := _left(request, trial):
            self._requests.answer(request, _refused(request, stale))
            return
        with self._lock:
            self._under_way = _UnderWay(request)
        record = turn(fixed)
        for one in _left(request, record):
            self._end(one)

    def ended(self, ended: Outcome | Skip) -> None:
        """A move has ended, of whatever plan."""
        if isinstance(ended, Skip):
            self._end(PlacedBundle(ended.what, None, None, None, ended.reason.told(ended.detail)))
        else:
            unload = ended.unload
            self._end(PlacedBundle(unload.bundle, unload.destination, ended.result, ended.owner, ended.detail))

    def _end(self, one: PlacedBundle) -> None:
        with self._lock:
            flying = self._under_way
            if flying is None or one.bundle not in {move.bundle for move in flying.request.moves}:
                return
            flying.ended[one.bundle] = one
            answer = flying.answer
            if answer is None:
                return
            self._under_way = None
        self._requests.answer(flying.request, answer)


def _wanting(request: PlanRequest, parts: Parts) -> Parts:
    moves = tuple((move.bundle, move.source, move.destination) for move in request.moves)
    reason = f"plan {request.plan}, {request.by}{request.reason and f': {request.reason}'}"
    return replace(parts, strategy=ByPlan(moves, parts.weights, reason))


def _copy(parts: Parts) -> Scratch:
    """What a trial may change."""
    observation = parts.observer.observe()
    return Scratch(parts.store.load(), parts.store.load_averages(observation.snapshot.taken_at))


def _left(request: PlanRequest, record: CycleRecord) -> list[PlacedBundle]:
    """Moves of the plan that this turn would not make, each with the reason."""
    begun = {unload.bundle for unload in record.unloads}
    return [
        PlacedBundle(move.bundle, move.destination, None, None, why(record, move.bundle))
        for move in request.moves
        if move.bundle not in begun
    ]


def _refused(request: PlanRequest, stale: list[PlacedBundle]) -> Answer:
    shown = "; ".join(f"{one.bundle}: {one.detail}" for one in stale[:TOLD])
    more = f"; and {len(stale) - TOLD} more" if len(stale) > TOLD else ""
    drifted = f"{len(stale)} of {counted(len(request.moves), 'move')} cannot be made any more: {shown}{more}"
    return Answer(
        REFUSED, f"Refused: the cluster has drifted since the plan, nothing was begun; {drifted}.", placed=stale
    )


def _told(moves: list[PlacedBundle]) -> Answer:
    landed = sum(one.result is Result.LANDED for one in moves)
    missed = [one for one in moves if one.result not in {None, Result.LANDED}]
    unsent = [one for one in moves if one.result is None]
    words = [f"{landed} landed"]
    words += [f"{len(missed)} not where they should be: {missed[0].bundle}: {missed[0].detail}"] if missed else []
    words += [f"{len(unsent)} not sent: {unsent[0].bundle}: {unsent[0].detail}"] if unsent else []
    code = FAILED if missed else REFUSED if unsent else 0
    return Answer(code, f"{counted(len(moves), 'move')}: {', '.join(words)}.", placed=moves)
