"""One unload, sent, nudged and proven.

204 is no proof: the leader hands the destination to the first lookup that comes and forgets it (#24884), so clients
that reconnect at the same moment can pull the bundle elsewhere. Hence: check, unload, nudge, and ask who owns it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from lbd.act.ownership import Clock, Ownership
from lbd.errors import AdminError, LbdError
from lbd.model import Outcome, Result, Unload
from lbd.pulsar import paths
from lbd.pulsar.admin import reason_of

if TYPE_CHECKING:
    from lbd.pulsar.admin import Admin, Leader

Nudge = Literal["leader", "destination", "none"]
"""Who is asked to take the bundle right after the 204: the leader (who then forgets the destination, as it should), the
destination itself (which leaves the destination noted at the leader), or nobody but the clients."""

NUDGE_WAIT_SECONDS = 0.3
"""A leader's lookup places a bundle within 50 ms; after this, nobody is going to."""

PROOF_SECONDS = 5.0


class Unloader:
    """Unloads single bundles of one cluster."""

    def __init__(self, admin: Admin, clock: Clock, nudge: Nudge = "leader") -> None:
        self._admin = admin
        self._clock = clock
        self._nudge = nudge
        self._ownership = Ownership(admin, clock)

    def unload(self, move: Unload) -> Outcome:
        """Try once. Never raises for what a broker does: everything ends in an outcome, with the reason in words."""
        begun = self._clock.monotonic()
        return replace(self._checked(move), seconds=self._clock.monotonic() - begun)

    def _checked(self, move: Unload) -> Outcome:
        try:
            ready = self._leader_for(move)
        except LbdError as error:
            return _not_sent(move, None, str(error))
        if isinstance(ready, Outcome):
            return ready
        try:
            return self._send(move, *ready)
        except LbdError as error:
            return Outcome(move, Result.UNKNOWN, None, str(error), affinity_left=True)

    def owner(self, bundle: str) -> str | None:
        """The broker that owns a bundle, None when nobody does. Raises :class:`AdminError` when it cannot be asked."""
        return self._ownership.owner_within(bundle, PROOF_SECONDS)

    def _refused(self, move: Unload) -> Outcome | None:
        """The last look before the request: who owns it, whether the destination is listed and ready."""
        if move.destination is None:
            return _not_sent(move, move.source, "no destination is named")
        owner = self._ownership.owner_within(move.bundle, NUDGE_WAIT_SECONDS)
        if owner != move.source:
            return _not_sent(move, owner, f"{owner or 'nobody'} owns it, not {move.source}")
        if move.destination not in self._admin.active_brokers():
            return _not_sent(move, owner, f"{move.destination} is no longer active")
        if not self._admin.ready(move.destination):
            return _not_sent(move, owner, f"{move.destination} is not ready")
        return None

    def _leader_for(self, move: Unload) -> tuple[Leader, bool] | Outcome:
        """The leader to ask and whether it knows destinations; or why nothing may be sent."""
        refused = self._refused(move)
        if refused is not None:
            return refused
        leader = self._admin.leader()
        if leader is None:
            return _not_sent(move, move.source, "no broker leads, the destination would be lost")
        if not self._admin.ready_at(leader.base):
            gone = f"leader {leader.base} does not answer; it is replaced after a session time-out"
            return _not_sent(move, move.source, gone)
        return leader, paths.knows_destinations(self._admin.version_at(leader.base))

    def _send(self, move: Unload, leader: Leader, named: bool) -> Outcome:
        try:
            answer = self._admin.unload(move.bundle, move.destination if named else None, leader.base)
        except LbdError as error:
            return self._unplaced(move, str(error), PROOF_SECONDS)
        if answer.status != 204:
            return self._unplaced(move, f"HTTP {answer.status}{reason_of(answer)}", NUDGE_WAIT_SECONDS)
        return self._place(move, leader, named=named)

    def _unplaced(self, move: Unload, why: str, seconds: float) -> Outcome:
        """No answer or a refusal; it may have happened all the same, and whoever owns the bundle now decides.

        The leader notes the destination before it checks anything else, so it may be left there.
        """
        owner = self._ownership.owner_within(move.bundle, seconds)
        return Outcome(move, judged(move, owner), owner, why, affinity_left=True)

    def _place(self, move: Unload, leader: Leader, *, named: bool) -> Outcome:
        """After the 204: nudge until somebody owns the bundle, and say who."""
        owner, consumed = None, not named
        if self._nudge == "leader" and named:
            consumed = self._look_up(move, leader.base, authoritative=False)
            owner = self._soon(move)
        if owner is None and self._nudge != "none":
            self._look_up(move, self._admin.base(move.destination or ""), authoritative=True)
        if owner is None:
            owner = self._ownership.owner_within(move.bundle, PROOF_SECONDS)
        return _placed(move, owner, affinity_left=not consumed)

    def _soon(self, move: Unload) -> str | None:
        """The owner shortly after a lookup at the leader; None also while that cannot be told yet."""
        try:
            return self._ownership.owner_within(move.bundle, NUDGE_WAIT_SECONDS)
        except AdminError:
            return None

    def _look_up(self, move: Unload, base: str, *, authoritative: bool) -> bool:
        """Whether a lookup was answered; what it led to is seen by who owns the bundle."""
        try:
            return self._admin.look_up(move.bundle, base, authoritative=authoritative).status == 200
        except AdminError:
            return False


def _not_sent(move: Unload, owner: str | None, why: str) -> Outcome:
    return Outcome(move, Result.FAILED, owner, f"{why}; not sent")


def _placed(move: Unload, owner: str | None, *, affinity_left: bool) -> Outcome:
    if owner == move.destination:
        return Outcome(move, Result.LANDED, owner, affinity_left=affinity_left)
    if owner is None:
        unowned = "nobody owns it; the next client's lookup assigns it"
        return Outcome(move, Result.UNOWNED, None, unowned, affinity_left=affinity_left)
    elsewhere = f"landed on {owner}, wanted {move.destination}"
    return Outcome(move, Result.ELSEWHERE, owner, elsewhere, affinity_left=affinity_left)


def judged(move: Unload, owner: str | None) -> Result:
    """What an unload came to, seen from who owns the bundle after it may or may not have happened."""
    if owner is None:
        return Result.UNOWNED
    return {move.destination: Result.LANDED, move.source: Result.FAILED}.get(owner, Result.ELSEWHERE)
