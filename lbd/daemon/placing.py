"""What people ask of lbd's picker that acts: bundles without an owner placed, and a destination for an unload."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.act.placer import Owned
from lbd.daemon.answering import ask
from lbd.daemon.situation import Situation, situation
from lbd.decide.by_hand import wanted_unload
from lbd.errors import LbdError, RefusedError
from lbd.load import scoring
from lbd.model import Outcome, Permission, Result, Skip, bundle_namespace
from lbd.permit.limits import Ledger
from lbd.permit.unshown import unshown
from lbd.place import DEFAULT, PlaceMemory, build
from lbd.reason import Reason
from lbd.record.control import FAILED, REFUSED, Answer, PlacedBundle
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lbd.act.placer import Placer
    from lbd.cycle import Parts
    from lbd.daemon.answering import Report
    from lbd.model import Unload
    from lbd.observe.observer import Observation
    from lbd.place.placed import Placed
    from lbd.record.control import PlaceRequest, UnloadRequest
    from lbd.record.journal import Journal

MISSES_THAT_STOP = 2
"""Two in a row that nobody took: something is wrong that a third would not mend."""


@dataclass(frozen=True)
class Fixed:
    """An observation that was made already, so that what is judged is what was chosen from."""

    observation: Observation

    def observe(self) -> Observation:
        """The one there is."""
        return self.observation


class Placing:
    """A live lbd's picker. It remembers what it answered: no report shows that yet."""

    def __init__(self, journal: Journal, on_end: Callable[[Outcome | Skip], None]) -> None:
        self._journal, self._on_end = journal, on_end
        self._memory = PlaceMemory()
        self._stopped = threading.Event()
        self._trouble = ""

    def stop(self) -> None:
        """Begin no further bundle of a request; the one that is being placed is brought to its end."""
        self._stopped.set()

    def place(self, request: PlaceRequest, parts: Parts, placer: Placer) -> Answer:
        """Place what nobody owns, one bundle after the other; raises :class:`~lbd.errors.LbdError` before any is."""
        if placer.admin.transfers:
            raise RefusedError(
                "the extensible load manager chooses the owner of a bundle that nobody owns, whoever is asked; "
                "once a client has it placed, lbd unload BUNDLE --to BROKER moves it"
            )
        held = _held(parts) or self._under_way()
        if held:
            raise RefusedError(held)
        report = ask(parts, placer.admin, request.targets, request.strategy, self._memory)
        self._memory = report.memory
        self._trouble = ""
        placed = list(self._placed(request, report, placer, partial(_held, parts)))
        return _told(placed, self._trouble)

    def _placed(
        self, request: PlaceRequest, report: Report, placer: Placer, held: Callable[[], str]
    ) -> Iterator[PlacedBundle]:
        misses = 0
        for one in report.answers:
            broker = one.placed.broker
            if one.owner is not None:
                yield PlacedBundle(one.bundle, broker, None, one.owner, "owned already; left alone")
            elif broker is None:
                why = f"no broker may have it: {_first(one.candidates.left_out)}"
                yield PlacedBundle(one.bundle, None, None, None, why)
            elif stop := self._trouble or self._stop(request, misses) or held():
                yield PlacedBundle(one.bundle, broker, None, None, f"not asked for: {stop}")
            else:
                reason = f"by hand, {request.by}; {report.strategy}: {one.placed.reason}"
                ended = placer.place(one.bundle, broker, reason)
                self._ended(ended)
                misses = 0 if _taken(ended) else misses + 1
                yield _placed_bundle(ended, broker)

    def _stop(self, request: PlaceRequest, misses: int) -> str:
        if self._stopped.is_set():
            return "lbd was stopped"
        if time.time() >= request.expires_at:
            return "whoever asked has stopped waiting"
        return "two in a row could not be placed" if misses >= MISSES_THAT_STOP else ""

    def _under_way(self) -> str:
        """A move that a killed process left open: what nobody owns may be on its way."""
        return next(
            (f"{Reason.MOVES_UNFINISHED.label}: {one.bundle} is under way" for _, one in self._journal.open), ""
        )

    def _ended(self, ended: Outcome | Skip) -> None:
        """Told and written down; where it cannot be written, no more may be placed."""
        self._on_end(ended)
        if isinstance(ended, Skip):
            return
        try:
            self._journal.placed(ended)
        except LbdError as error:
            self._trouble = f"{ended.unload.bundle} is in no journal: {error}"

    def destination(self, request: UnloadRequest, parts: Parts) -> tuple[UnloadRequest, Parts, str]:
        """The request with a destination, the parts that judge it by what it was chosen from, and why that one.

        A request that names its destination stays as it is. Raises :class:`RefusedError` when no broker may have it.
        """
        if request.destination is not None:
            return request, parts, ""
        now = situation(parts, (bundle_namespace(request.bundle),))
        fixed = replace(parts, observer=Fixed(now.observation))
        unload = wanted_unload(request.bundle, now.observation.snapshot, now.averages)
        if isinstance(unload, Skip):
            raise RefusedError(f"{unload.what}: {unload.reason.label}: {unload.detail}")
        placed = self._picked(unload, parts, now)
        self._memory = placed.memory
        named = msgspec.structs.replace(request, destination=placed.broker)
        return named, fixed, f"{DEFAULT}: {placed.reason}"

    def _picked(self, unload: Unload, parts: Parts, now: Situation) -> Placed:
        """One of the brokers that every guardrail would let the bundle go to."""
        ledger = _ledger(unload, parts, now)
        others = [broker for broker in now.observation.active if broker != unload.source]
        refusals = {broker: ledger.refusal(replace(unload, destination=broker)) for broker in others}
        may = tuple(broker for broker, refusal in refusals.items() if refusal is None)
        if not may:
            told = [refusal for refusal in refusals.values() if refusal is not None]
            raise RefusedError(f"{unload.bundle}: no other broker may have it: {_first(told)}")
        return build(DEFAULT)(unload.bundle, may, now.seen(parts, 1, (unload.bundle,)), self._memory)


def _taken(ended: Outcome | Skip) -> bool:
    """Whether somebody owns it now, a client's broker included."""
    return ended.reason is Reason.OWNER_CHANGED if isinstance(ended, Skip) else ended.owner is not None


def _placed_bundle(ended: Outcome | Skip, broker: str) -> PlacedBundle:
    if isinstance(ended, Skip):
        owner = ended.owner if isinstance(ended, Owned) else None
        return PlacedBundle(ended.what, broker, None, owner, f"{ended.reason.label}: {ended.detail}")
    unload = ended.unload
    return PlacedBundle(unload.bundle, broker, ended.result, ended.owner, ended.detail, unload.reason)


def _held(parts: Parts) -> str:
    """The pause in force: nobody is disconnected, so no other hold counts."""
    hold = parts.ordered_hold()
    return "" if hold is None else hold[0].told(hold[1])


def _ledger(unload: Unload, parts: Parts, now: Situation) -> Ledger:
    """What judges each destination as a turn would; what bars the bundle itself is the turn's to say."""
    snapshot = now.observation.snapshot
    nothing = np.zeros(len(snapshot.bundles), dtype=np.int8)
    known = Permission(
        nothing,
        counts=now.evidence.fresh,
        paired=now.evidence.paired,
        settled=now.evidence.settled,
        slopes=parts.learn(snapshot),
    )
    scores, sent = scoring.scores(snapshot.brokers, parts.weights), parts.sent()
    return Ledger(
        snapshot,
        scores,
        now.policies,
        parts.guardrails,
        (unload,),
        sent=sent,
        unshown=unshown(scores, sent, snapshot, known.settled),
        permission=known,
        ignored=parts.ignored_bars,
        weights=parts.weights,
    )


def _first(refusals: Iterable[Skip]) -> str:
    told = list(dict.fromkeys(f"{skip.reason.label}: {skip.detail}" for skip in refusals))
    return "; ".join(told[:3]) + (f"; and {len(told) - 3} more reasons" if len(told) > 3 else "") or "there is none"


def _told(placed: list[PlacedBundle], trouble: str) -> Answer:
    """One sentence for the whole request: what was not placed weighs more than what was; ``trouble`` is told always."""
    landed = sum(one.result is Result.LANDED for one in placed)
    alone = sum(one.result is None and one.owner is not None for one in placed)
    missed = [one for one in placed if one.result not in {None, Result.LANDED}]
    refused = [one for one in placed if one.result is None and one.owner is None]
    words = [f"{landed} placed", f"{alone} owned already and left alone" if alone else ""]
    words += [f"{len(missed)} not where they should be: {missed[0].bundle}: {missed[0].detail}" if missed else ""]
    words += [f"{len(refused)} not placed: {refused[0].bundle}: {refused[0].detail}" if refused else ""]
    words += [trouble if not any(trouble in one for one in words) else ""]
    code = FAILED if missed else REFUSED if refused else 0
    return Answer(
        code,
        f"{counted(len(placed), 'bundle')}: {', '.join(filter(None, words))}.",
        placed=placed,
    )
