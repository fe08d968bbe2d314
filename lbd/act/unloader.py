"""One unload, sent, nudged and proven.

204 is no proof: the leader hands the destination to the first lookup that comes and forgets it (#24884), so clients
that reconnect at the same moment can pull the bundle elsewhere. Hence: check, unload, nudge, and ask who owns it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lbd.errors import AdminError, ObserveError
from lbd.model import Outcome, Result, Unload
from lbd.pulsar.admin import broker_of, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.pulsar.admin import Admin, Leader

Nudge = Literal["leader", "destination", "none"]

NUDGE_WAIT_SECONDS = 0.3
"""A leader's lookup places a bundle within 50 ms; after this, nobody is going to."""

PROOF_SECONDS = 5.0
_FIRST_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Clock:
    """The time that acting knows: ``monotonic`` and ``sleep``."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]


class Unloader:
    """Unloads single bundles of one cluster."""

    def __init__(self, admin: Admin, clock: Clock, nudge: Nudge = "leader") -> None:
        self._admin = admin
        self._clock = clock
        self._nudge = nudge

    def unload(self, move: Unload) -> Outcome:
        """Try once. Never raises for what a broker does: everything ends in an outcome, with the reason in words."""
        begun = self._clock.monotonic()
        try:
            outcome = self._try(move)
        except ObserveError as error:
            outcome = Outcome(move, Result.UNKNOWN, None, str(error))
        return replace(outcome, seconds=self._clock.monotonic() - begun)

    def owner(self, bundle: str) -> str | None:
        """The broker that owns a bundle, None when nobody does. Raises :class:`AdminError` when it cannot be asked."""
        base = self._admin.owner_base(bundle)
        if base is None:
            return None
        active = self._admin.active_brokers()
        found = broker_of(base, active, {broker: self._admin.base(broker) for broker in active})
        if found is None:
            raise AdminError(f"{bundle} is owned at {base}, which is none of the active brokers {active}")
        return found

    def _try(self, move: Unload) -> Outcome:
        refusal = self._last_look(move)
        if refusal is not None:
            return refusal
        leader = self._admin.leader()
        if leader is None:
            return Outcome(move, Result.FAILED, move.source, "no broker leads, the destination would be lost; not sent")
        if not self._reachable(leader):
            return Outcome(
                move,
                Result.FAILED,
                move.source,
                f"leader {leader.base} does not answer (a session time-out passes until it is replaced); not sent",
            )
        return self._send(move, leader)

    def _last_look(self, move: Unload) -> Outcome | None:
        """The last check before the request: the source still owns it, the destination is listed and ready."""
        active = self._admin.active_brokers()
        if move.destination not in active:
            return Outcome(move, Result.FAILED, move.source, f"{move.destination} is no longer active; not sent")
        if not self._admin.owned(move.source).get(move.bundle, False):
            return Outcome(
                move, Result.FAILED, self.owner(move.bundle), f"{move.source} does not own it (any more); not sent"
            )
        if not self._admin.ready(move.destination):
            return Outcome(move, Result.FAILED, move.source, f"{move.destination} is not ready; not sent")
        return None

    def _reachable(self, leader: Leader) -> bool:
        return self._admin.ready_at(leader.base)

    def _send(self, move: Unload, leader: Leader) -> Outcome:
        try:
            answer = self._admin.unload(move.bundle, move.destination, leader.base)
        except AdminError as error:
            return self._after_silence(move, str(error))
        if answer.status != 204:
            return self._after_refusal(move, f"HTTP {answer.status}{reason_of(answer)}")
        return self._place(move, leader)

    def _after_silence(self, move: Unload, why: str) -> Outcome:
        """No answer came, but the unload may have happened: whoever owns it now decides."""
        owner = self._wait_for_owner(move.bundle)
        return Outcome(move, judged(move, owner), owner, why, affinity_left=True)

    def _after_refusal(self, move: Unload, why: str) -> Outcome:
        owner = self.owner(move.bundle)
        result = Result.LANDED if owner == move.destination else Result.FAILED
        return Outcome(move, result, owner, why, affinity_left=result is Result.FAILED)

    def _place(self, move: Unload, leader: Leader) -> Outcome:
        """After the 204: nudge, and prove."""
        assert move.destination is not None
        consumed = False
        if self._nudge == "leader":
            consumed = self._ask(move.bundle, leader.base, authoritative=False)
            if self._landed(move, NUDGE_WAIT_SECONDS):
                return Outcome(move, Result.LANDED, move.destination, affinity_left=not consumed)
        if self._nudge != "none" and self._admin.owner_base(move.bundle) is None:
            self._ask(move.bundle, self._admin.base(move.destination), authoritative=True)
        if self._landed(move, PROOF_SECONDS):
            return Outcome(move, Result.LANDED, move.destination, affinity_left=not consumed)
        return self._missed(move, affinity_left=not consumed)

    def _ask(self, bundle: str, base: str, *, authoritative: bool) -> bool:
        """Look the bundle up; whether the lookup was answered. That it was not is seen by who owns the bundle."""
        try:
            return self._admin.look_up(bundle, base, authoritative=authoritative).status == 200
        except AdminError:
            return False

    def _landed(self, move: Unload, within_seconds: float) -> bool:
        """Whether the destination owns the bundle, actively; ends early when somebody else does."""
        assert move.destination is not None
        deadline = self._clock.monotonic() + within_seconds
        pause = _FIRST_POLL_SECONDS
        while True:
            if self._admin.owned(move.destination).get(move.bundle, False):
                return True
            if self._clock.monotonic() >= deadline or self._elsewhere(move):
                return False
            self._clock.sleep(pause)
            pause = min(pause * 2, 0.5)

    def _elsewhere(self, move: Unload) -> bool:
        base = self._admin.owner_base(move.bundle)
        return base is not None and move.destination is not None and base != self._admin.base(move.destination)

    def _missed(self, move: Unload, *, affinity_left: bool) -> Outcome:
        owner = self._wait_for_owner(move.bundle)
        if owner is None:
            return Outcome(
                move,
                Result.UNOWNED,
                None,
                "nobody owns it; the next client's lookup assigns it",
                affinity_left=affinity_left,
            )
        if owner == move.destination:
            return Outcome(move, Result.LANDED, owner, affinity_left=affinity_left)
        return Outcome(
            move, Result.ELSEWHERE, owner, f"landed on {owner}, wanted {move.destination}", affinity_left=affinity_left
        )

    def _wait_for_owner(self, bundle: str) -> str | None:
        """The owner, waiting a little while nobody is."""
        deadline = self._clock.monotonic() + 1.0
        while (owner := self.owner(bundle)) is None and self._clock.monotonic() < deadline:
            self._clock.sleep(0.1)
        return owner


def judged(move: Unload, owner: str | None) -> Result:
    """What an unload came to, seen from who owns the bundle after it may or may not have happened."""
    if owner is None:
        return Result.UNOWNED
    return {move.destination: Result.LANDED, move.source: Result.FAILED}.get(owner, Result.ELSEWHERE)
