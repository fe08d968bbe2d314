"""What people ask of a running lbd: a pause, and unloads and placements, each of which ends in an answer."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.daemon.telling import utc
from lbd.decide.by_hand import ByHand
from lbd.errors import RefusedError, UsageError
from lbd.model import Outcome, Result, Skip
from lbd.reason import Group, Reason
from lbd.record.control import (
    FAILED,
    REFUSED,
    Answer,
    DrainRequest,
    FillRequest,
    PlaceRequest,
    PlanRequest,
    SplitRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lbd.cycle import CycleRecord, Hold, Parts
    from lbd.errors import LbdError
    from lbd.model import Unload
    from lbd.record.control import Control, Request, UnloadRequest

OVERRIDDEN_BARS = frozenset(reason for reason in Reason if reason.group is Group.LIMIT)
OVERRIDDEN_HOLDS = frozenset({Reason.PAUSED, Reason.QUIET_HOURS, Reason.NO_IMPROVEMENT})
"""What ``--override`` passes: limits, and orders to wait that people gave; never what a destination must be."""


def ordered(control: Control, now: float) -> Hold | None:
    """The pause in force."""
    pause = control.paused(now)
    if pause is None:
        return None
    until = f"until {utc(pause.until)}" if pause.until is not None else "until lbd resume"
    return Reason.PAUSED, f"by {pause.by} {until}{pause.reason and f': {pause.reason}'}"


def overriding(parts: Parts, request: UnloadRequest) -> Parts:
    """The parts with what a person's reason passes: limits, and orders to wait."""
    passes = request.override is not None
    return replace(
        parts,
        ignored_holds=OVERRIDDEN_HOLDS if passes else frozenset(),
        ignored_bars=OVERRIDDEN_BARS if passes else frozenset(),
    )


def wanting(parts: Parts, request: UnloadRequest, picked: str = "") -> Parts:
    """The parts of a turn that wants this unload and nothing else; a single bundle is within every cap of a turn."""
    passed = f", overriding limits: {request.override}" if request.override is not None else ""
    reason = f"by hand, {request.by}{passed}{f'; {picked}' if picked else ''}"
    rails = parts.guardrails.model_copy(update={"second_move_points": 0.0})  # how urgent it is, the person knows
    wish = ByHand(request.bundle, request.destination or "", parts.weights, reason)
    return replace(parts, strategy=wish, guardrails=rails)


def split_hold(
    request: SplitRequest, held: Callable[[], Hold | None], unfinished: Sequence[Unload], *, observe_only: bool
) -> Hold | None:
    """What keeps a split from being begun: what is under way in any case, orders to wait unless they are overridden."""
    if observe_only:
        return Reason.OBSERVE_ONLY, "this lbd only observes (--observe)"
    if unfinished:
        return Reason.MOVES_UNFINISHED, f"{unfinished[0].bundle} is under way"
    hold = held()
    return None if hold is None or (request.override is not None and hold[0] in OVERRIDDEN_HOLDS) else hold


def why(record: CycleRecord, bundle: str) -> str:
    """Why a request came to nothing, in words."""
    if record.hold is not None:
        return record.hold[0].told(record.hold[1])
    found = next((skip for skip in record.skips if skip.what == bundle), None)
    return record.sentence if found is None else found.reason.told(found.detail)


def _key(request: Request) -> str:
    """What its end is told by: a move of this bundle, or, of several bundles, its own answer."""
    return (
        request.id if isinstance(request, PlaceRequest | PlanRequest | DrainRequest | FillRequest) else request.bundle
    )


_UNDONE = {
    PlaceRequest: "Not placed",
    SplitRequest: "Not split",
    DrainRequest: "Not begun",
    FillRequest: "Not begun",
}


class Requests:
    """Requests taken and not yet answered. Thread-safe: moves end in threads of their own."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._under_way: dict[str, Request] = {}
        self.deliver: Callable[[str, Answer], None] = control.answer
        self._trouble: dict[str, str] = {}

    def next(self, now: float) -> Request | None:
        """The oldest request that whoever asked still waits for."""
        try:
            found = self._control.take(now)
            self._trouble["taking"] = ""
        except UsageError as error:
            found, self._trouble["taking"] = None, str(error)
        return found

    @property
    def warning(self) -> str:
        """What keeps requests from being taken, or answers from being told."""
        return "; ".join(filter(None, self._trouble.values()))

    def begun(self, request: Request) -> None:
        """From now on the end of a move of this bundle is the answer."""
        with self._lock:
            self._under_way[_key(request)] = request

    def refuse(self, request: Request, why: str) -> None:
        """Nothing was sent."""
        self.answer(request, Answer(REFUSED, f"Refused: {why}."))

    def fail(self, request: Request, error: LbdError) -> None:
        """Nothing was sent, because it could not be judged; the exit code is the error's."""
        done = _UNDONE.get(type(request), "Not moved")
        self.answer(
            request, Answer(error.exit_code, f"{'Refused' if isinstance(error, RefusedError) else done}: {error}")
        )

    def answer(self, request: Request, answer: Answer) -> None:
        """It has ended."""
        self._answer(_key(request), answer)

    def ended(self, ended: Outcome | Skip) -> None:
        """A move has ended; if it was asked for by hand, that is its answer."""
        if isinstance(ended, Skip):
            self._answer(ended.what, Answer(REFUSED, f"Refused: {ended.reason.told(ended.detail)}."))
        else:
            self._answer(ended.unload.bundle, _answer(ended))

    def _answer(self, key: str, answer: Answer) -> None:
        with self._lock:
            request = self._under_way.pop(key, None)
        if request is not None:
            try:
                self.deliver(request.id, answer)
                self._trouble["answering"] = ""
            except UsageError as error:
                self._trouble["answering"] = str(error)


def _answer(outcome: Outcome) -> Answer:
    unload = outcome.unload
    landed = outcome.result is Result.LANDED
    detail = f": {outcome.detail}" if outcome.detail else ""
    told = f"{unload.bundle}: {unload.source} -> {unload.destination}: {outcome.result.value}"
    sentence = f"{told} in {outcome.seconds:.2f} s{detail}."
    return Answer(0 if landed else FAILED, sentence, outcome.result, outcome.owner)
