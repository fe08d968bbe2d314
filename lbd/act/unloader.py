"""One unload, checked, sent, nudged and proven.

204 is no proof: the leader hands the destination to the first lookup that comes and forgets it (#24884), so clients
that reconnect at the same moment can pull the bundle elsewhere. Hence: check, unload, nudge, and ask who owns it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from lbd.act.ownership import Clock, Ownership
from lbd.errors import AdminError, LbdError
from lbd.model import Outcome, Result, Skip, Unload
from lbd.pulsar import paths
from lbd.pulsar.asking import reason_of
from lbd.pulsar.failures import timed_out
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.pulsar.admin import Admin, Leader

Nudge = Literal["leader", "destination", "none"]
"""Who is asked to take the bundle right after the 204: the leader (who then forgets the destination, as it should), the
destination itself (which leaves the destination noted at the leader), or nobody but the clients."""


class Forbids(Protocol):
    """Why policies have come to forbid a move; without ``planned`` what it was planned with is not known."""

    def __call__(self, move: Unload, *, planned: bool) -> Skip | None: ...


NUDGE_WAIT_SECONDS = 0.3
"""A leader's lookup places a bundle within 50 ms; after this, nobody is going to."""

PROOF_SECONDS = 5.0

OK, RANGE_IS_NO_BUNDLE = 200, 412
FOUND_OPEN = "found open after a restart"


@dataclass(frozen=True)
class Ready:
    """A move that may be sent now: the leader to send it to, and whether that version knows destinations.

    ``transferred``: brokers hand the bundle over themselves, so that no leader notes anything, and no lookup helps.
    """

    move: Unload
    leader: Leader
    named: bool
    transferred: bool = False

    @property
    def destination(self) -> str | None:
        """What is asked for."""
        return self.move.destination if self.named else None

    @property
    def noted(self) -> str | None:
        """What the leader notes as soon as it is asked."""
        return None if self.transferred else self.destination


class Unloader:
    """Unloads single bundles of one cluster. ``forbids`` is asked last: why policies have come to forbid a move."""

    def __init__(
        self,
        admin: Admin,
        clock: Clock,
        nudge: Nudge = "leader",
        forbids: Forbids = lambda _, *, planned: None,  # noqa: ARG005
    ) -> None:
        self._admin = admin
        self._forbids = forbids
        self._clock = clock
        self._nudge = nudge
        self._ownership = Ownership(admin, clock)

    def check(self, move: Unload) -> Ready | Skip:
        """The last look before the request: who owns it, whether destination and leader are there. Never raises."""
        try:
            return self._refused(move) or self._leader_for(move)
        except LbdError as error:
            return Skip(move.bundle, Reason.NOT_CHECKED, f"{error}; not sent")

    def send(self, ready: Ready) -> Outcome:
        """Try once. Never raises for what a broker does: everything ends in an outcome, with the reason in words."""
        begun = self._clock.monotonic()
        outcome = self._cleared(ready, self._sent(ready))
        leader = ready.leader.broker if outcome.noted is None else self._leads_now()
        return replace(outcome, seconds=self._clock.monotonic() - begun, leader=leader)

    def finish(self, move: Unload, age_seconds: float) -> Outcome | None:
        """The outcome of a move that a killed process began so long ago; None while it cannot be told yet.

        A source that still owns the bundle may be closing its topics until an unload's time is over. What nobody owns
        is placed where it was meant to go, if that is there. After twice that time what cannot be told is UNKNOWN.
        """
        waits = age_seconds < self._patience_seconds
        try:
            owner = self._ownership.owner_within(move.bundle, NUDGE_WAIT_SECONDS)
            if owner == move.source and waits:
                return None
            wrong, ready = self._missing(move, planned=False), self._leader_for(move)
            if wrong is None and isinstance(ready, Ready):
                return self._found_open(ready, owner)
            if owner is None and waits:
                return None
            why = wrong.detail if wrong is not None else ready.detail if isinstance(ready, Skip) else ""
            found = Outcome(move, judged(move, owner), owner, f"{FOUND_OPEN}; {why}", noted=self._may_note(move))
            return self._cleared(ready, found) if isinstance(ready, Ready) else unproven(found)
        except LbdError as error:
            if age_seconds < 2 * self._patience_seconds:
                return None
            return unproven(Outcome(move, Result.UNKNOWN, None, f"{FOUND_OPEN}; {error}", noted=self._may_note(move)))

    def _may_note(self, move: Unload) -> str | None:
        """What a leader may have noted of a move that was asked for; nothing where brokers hand bundles over."""
        try:
            return None if self._admin.transfers else move.destination
        except LbdError:
            return move.destination

    def _found_open(self, ready: Ready, owner: str | None) -> Outcome:
        if owner is None:
            found = replace(self._place(ready), detail=FOUND_OPEN)
        else:
            found = Outcome(ready.move, judged(ready.move, owner), owner, FOUND_OPEN, noted=ready.noted)
        return replace(self._cleared(ready, found), leader=ready.leader.broker)

    def _refused(self, move: Unload) -> Skip | None:
        if move.destination is None:
            return Skip(move.bundle, Reason.DESTINATION_FORBIDDEN, "no destination is named; not sent")
        owner = self._ownership.owner_within(move.bundle, NUDGE_WAIT_SECONDS)
        if owner != move.source:
            told = f"{owner or 'nobody'} owns it, not {move.source}; not sent"
            return Skip(move.bundle, Reason.OWNER_CHANGED, told)
        return self._missing(move, planned=True)

    def _missing(self, move: Unload, *, planned: bool) -> Skip | None:
        """Why the destination will not do; ``planned``: by this very process, which knows what it was planned with."""
        destination = move.destination or ""
        if destination not in self._admin.active_brokers():
            return Skip(move.bundle, Reason.DESTINATION_FORBIDDEN, f"{destination} is no longer active; not sent")
        if not self._admin.ready(destination):
            return Skip(move.bundle, Reason.DESTINATION_FORBIDDEN, f"{destination} is not ready; not sent")
        return self._forbids(move, planned=planned)

    def _leader_for(self, move: Unload) -> Ready | Skip:
        leader = self._admin.leader()
        if leader is None:
            return Skip(move.bundle, Reason.LEADER_UNREACHABLE, "no broker leads, the destination would be lost")
        if not self._admin.ready_at(leader.base):
            gone = f"leader {leader.base} does not answer; it is replaced after a session time-out if it has died"
            return Skip(move.bundle, Reason.LEADER_UNREACHABLE, gone)
        named = paths.knows_destinations(self._admin.version_at(leader.base))
        return Ready(move, leader, named, self._admin.transfers)

    def _leads_now(self) -> str | None:
        """Who may have the note: a leader that took over while the request was under way, too; None where unknown."""
        try:
            leader = self._admin.leader()
        except LbdError:
            return None
        return leader.broker if leader is not None else None

    def _sent(self, ready: Ready) -> Outcome:
        try:
            return self._unloaded(ready)
        except LbdError as error:
            return Outcome(ready.move, Result.UNKNOWN, None, str(error), noted=ready.noted)

    def _unloaded(self, ready: Ready) -> Outcome:
        begun = self._clock.monotonic()
        try:
            answer = self._admin.unload(ready.move.bundle, ready.destination, ready.leader.base)
        except AdminError as error:
            return self._in_doubt(ready, str(error), self._closing(begun) if error.sent else 0.0)
        if answer.status == 204:
            return self._place(ready)
        reason = reason_of(answer)
        told = f"HTTP {answer.status}{reason}"
        if answer.status == RANGE_IS_NO_BUNDLE:
            return self._judged(ready, told)
        return self._in_doubt(ready, told, NUDGE_WAIT_SECONDS if reason else self._closing(begun))

    @property
    def _patience_seconds(self) -> float:
        """Longer than a broker closes topics, and than the session of a dead one lives."""
        return self._admin.settings.unload_timeout_seconds

    def _closing(self, begun: float) -> float:
        """How much longer the source may be closing topics for a request that it did not answer itself."""
        return max(self._patience_seconds - (self._clock.monotonic() - begun), PROOF_SECONDS)

    def _in_doubt(self, ready: Ready, why: str, seconds: float) -> Outcome:
        """No answer, or a refusal: it may happen all the same, and whoever owns the bundle in the end decides."""
        move = ready.move
        if not self._ownership.let_go(move.bundle, move.source, seconds, self._patience_seconds):
            return Outcome(move, Result.FAILED, move.source, why, noted=ready.noted)
        placed = self._place(ready)
        return replace(placed, detail=f"{why}; {placed.detail}" if placed.detail else why)

    def _judged(self, ready: Ready, why: str) -> Outcome:
        """The range is no bundle any more: what is left of it is nobody's to place."""
        owner = self._ownership.owner_within(ready.move.bundle, NUDGE_WAIT_SECONDS, self._patience_seconds)
        return Outcome(ready.move, judged(ready.move, owner), owner, why, noted=ready.noted)

    def _place(self, ready: Ready) -> Outcome:
        """The source let go: nudge until somebody owns the bundle, and say who."""
        move, owner, consumed = ready.move, None, False
        answer: int | AdminError = OK
        nudge = "none" if ready.transferred else self._nudge
        if nudge == "leader" and ready.named:
            consumed = self._look_up(move, ready.leader.base, authoritative=False) == OK
            owner = self._soon(move)
        if owner is None and nudge != "none":
            answer = self._look_up(move, self._admin.base(move.destination or ""), authoritative=True)
        if owner is None:
            owner = self._ownership.owner_within(move.bundle, PROOF_SECONDS, self._patience_seconds)
        if owner is None and isinstance(answer, AdminError):
            owner = self._given_back(move, answer)
        return _placed(ready, owner, consumed=consumed)

    def _given_back(self, move: Unload, failure: AdminError) -> str | None:
        """What a destination does not take, nor answer, is better off where it was than with nobody.

        One that hangs is left alone from now on; one that has died is seen by whoever asks it next.
        """
        if timed_out(failure):
            self._admin.mistrust(move.destination or "")
        self._look_up(move, self._admin.base(move.source), authoritative=True)
        return self._ownership.owner_within(move.bundle, NUDGE_WAIT_SECONDS, self._patience_seconds)

    def _soon(self, move: Unload) -> str | None:
        """The owner shortly after a lookup at the leader; None also while that cannot be told yet."""
        try:
            return self._ownership.owner_within(move.bundle, NUDGE_WAIT_SECONDS)
        except AdminError:
            return None

    def _look_up(self, move: Unload, base: str, *, authoritative: bool) -> int | AdminError:
        """The status of a lookup, or why none came; what it led to is seen by who owns the bundle."""
        try:
            return self._admin.look_up(move.bundle, base, authoritative=authoritative).status
        except AdminError as error:
            return error

    def _cleared(self, ready: Ready, outcome: Outcome) -> Outcome:
        """Have a left-over note name the present owner: whenever it is used, the bundle stays where it is.

        Not of a leader that owns the bundle, which would unload it instead of sending the request on.
        """
        owner, leader = outcome.owner, ready.leader
        if outcome.noted in {None, owner} or owner is None or leader.broker in {None, owner}:
            return unproven(outcome)
        try:
            noted = self._admin.note(outcome.unload.bundle, owner, leader.base)
        except LbdError:
            return unproven(outcome)
        return replace(outcome, noted=owner) if noted else unproven(outcome)


def unproven(outcome: Outcome) -> Outcome:
    """That an unload was answered, 204 or not, does not prove that it reached the leader."""
    return replace(outcome, older_note=outcome.noted is not None)


def _placed(ready: Ready, owner: str | None, *, consumed: bool) -> Outcome:
    """A bundle that landed elsewhere may have been taken past the leader, whose note then stays."""
    move = ready.move
    if owner == move.destination:
        return Outcome(move, Result.LANDED, owner, noted=None if consumed else ready.noted)
    if owner is None:
        unowned = "nobody owns it; the next client's lookup assigns it"
        return Outcome(move, Result.UNOWNED, None, unowned, noted=ready.noted)
    return Outcome(move, Result.ELSEWHERE, owner, f"landed on {owner}, wanted {move.destination}", noted=ready.noted)


def judged(move: Unload, owner: str | None) -> Result:
    """What an unload came to, seen from who owns the bundle after it may or may not have happened."""
    if owner is None:
        return Result.UNOWNED
    return {move.destination: Result.LANDED, move.source: Result.FAILED}.get(owner, Result.ELSEWHERE)
