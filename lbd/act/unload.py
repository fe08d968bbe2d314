"""One unload: check, send, nudge, verify.

A 204 is no proof: the leader gives the destination to the first lookup that comes, and then forgets it (#24884), so
clients that reconnect at the same moment can pull the bundle elsewhere. Therefore: check, unload, nudge, and read the
owner. Every request that changes something passes a fence (``fence.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Protocol

from lbd.act.fence import Fence
from lbd.act.ownership import ActClock, Ownership
from lbd.errors import AdminError, LbdError
from lbd.model import Outcome, Result, Skip, Unload, bundle_namespace, bundle_range
from lbd.pulsar import paths
from lbd.pulsar.admin import ASSIGNED, error_reason
from lbd.pulsar.http import MAX_HOPS, Response, timed_out
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.pulsar.admin import Admin, Leader


Nudge = Literal["leader", "destination", "none"]
"""Broker that gets the lookup right after the 204: the leader (which then forgets the destination, as it should), the
destination itself (which leaves the destination noted at the leader), or none but the clients' own.
"""


class Forbids(Protocol):
    """Reason why policies now forbid a move; without ``planned`` the policies of its plan are unknown."""

    def __call__(self, move: Unload, *, planned: bool) -> Skip | None: ...


NUDGE_WAIT_SECONDS = 0.3
"""A leader's lookup places a bundle within 50 ms. After this time no broker will take it."""

PROOF_SECONDS = 5.0

POLICIES_HOLD_SECONDS = 1.0
"""Age up to which policies need not be read again: clients reconnect within it."""

RANGE_IS_NO_BUNDLE = 412
OPEN_AFTER_RESTART = "found open after a restart"


@dataclass(frozen=True)
class ReadyMove:
    """A move that may be sent now: the leader to send it to, and whether that version accepts destinations.

    ``transferred``: brokers hand over the bundle themselves, so that no leader notes anything, and no lookup helps.
    ``checked_at`` is when its checks began, by the boot clock; ``planned``: by this very process. ``may_stay``: whether
    another broker may have the bundle instead; it changes nothing. ``topics`` are made-up topics of the bundle, by base
    URL of the broker that puts each into it.
    """

    move: Unload
    leader: Leader
    named: bool
    transferred: bool = False
    checked_at: float | None = None
    planned: bool = True
    fence: Fence | None = None
    may_stay: Callable[[str], bool] = lambda _: False
    topics: Mapping[str, str] = field(default_factory=dict)

    @property
    def destination(self) -> str | None:
        """The destination named in the request."""
        return self.move.destination if self.named else None

    @property
    def notes(self) -> str | None:
        """The destination that the leader notes with the request."""
        return None if self.transferred else self.destination


@dataclass
class _Flight:
    """A move under way. ``noted`` is the destination that the leader may have noted, ``policies_at`` the last read."""

    ready: ReadyMove
    fence: Fence
    noted: str | None
    policies_at: float = float("-inf")
    topics: dict[str, str] = field(default_factory=dict)

    @property
    def move(self) -> Unload:
        return self.ready.move


class Unloader:
    """Unloads single bundles of one cluster. ``forbids`` is called last: the reason why policies now forbid a move."""

    def __init__(
        self,
        admin: Admin,
        clock: ActClock,
        nudge: Nudge = "leader",
        forbids: Forbids = lambda _, *, planned: None,  # noqa: ARG005
    ) -> None:
        self._admin = admin
        self._forbids = forbids
        self._clock = clock
        self._nudge = nudge
        self._ownership = Ownership(admin, clock)

    def check(self, move: Unload) -> ReadyMove | Skip:
        """The last check before the request: owner, destination and leader. Never raises."""
        started = self._clock.boot()
        try:
            ready = self._refused(move) or self._leader_for(move)
            if isinstance(ready, ReadyMove):
                ready = replace(ready, checked_at=started, topics=self._topics(ready))
        except LbdError as error:
            return Skip(move.bundle, Reason.NOT_CHECKED, f"{error}; not sent")
        return ready

    def send(self, ready: ReadyMove) -> Outcome:
        """Try once. A broker's failure is an outcome with its reason as text, never an error."""
        started = self._clock.monotonic()
        flight = self._flight(ready, None)
        outcome = unproven(self._send(flight))
        leader = ready.leader.broker if outcome.noted is None else self._leads_now()
        return replace(outcome, seconds=self._clock.monotonic() - started, leader=leader)

    def finish(self, move: Unload, age_seconds: float, fence: Fence | None = None) -> Outcome | None:
        """Outcome of a move that a killed process began so long ago; None while it is open.

        A source that still owns the bundle may be closing its topics until an unload's time is over. A bundle without
        owner is placed on its destination, if that is active. After twice that time an open outcome is UNKNOWN.
        """
        waits = age_seconds < self._patience_seconds
        try:
            owner = self._ownership.owner_within(move.bundle, NUDGE_WAIT_SECONDS)
            if owner == move.source and waits:
                return None
            wrong, ready = self._missing(move, planned=False), self._leader_for(move)
            if isinstance(ready, ReadyMove):
                ready = replace(ready, planned=False, fence=fence)
            if wrong is None and isinstance(ready, ReadyMove):
                return self._finish_open(ready, owner)
            return self._finish_stranded(move, owner, wrong, ready, waits=waits)
        except LbdError as error:
            if age_seconds < 2 * self._patience_seconds:
                return None
            detail = f"{OPEN_AFTER_RESTART}; {error}"
            return unproven(Outcome(move, Result.UNKNOWN, None, detail, noted=self._may_note(move)))

    def judge(self, move: Unload) -> Outcome:
        """Outcome of the move by the present owner. Raises :class:`LbdError` while that is unknown."""
        return self._judged(move, self._ownership.owner_within(move.bundle, 0.0))

    def _flight(self, ready: ReadyMove, noted: str | None) -> _Flight:
        fence = ready.fence or Fence(ready.checked_at, self._clock.boot)
        return _Flight(ready, fence, noted, topics=dict(ready.topics))

    def _may_note(self, move: Unload) -> str | None:
        """The destination that a leader may have noted for the move; None where brokers transfer bundles themselves."""
        try:
            return None if self._admin.transfers else move.destination
        except LbdError:
            return move.destination

    def _finish_open(self, ready: ReadyMove, owner: str | None) -> Outcome:
        flight = self._flight(ready, ready.notes)
        flight.policies_at = self._clock.boot()
        if owner is None and not missing_reason(self._admin, ready.move.bundle):
            outcome = replace(self._place(flight), detail=OPEN_AFTER_RESTART)
        else:
            outcome = self._judged(ready.move, owner, OPEN_AFTER_RESTART, ready.notes)
        return replace(unproven(outcome), leader=ready.leader.broker)

    def _finish_stranded(
        self, move: Unload, owner: str | None, wrong: Skip | None, ready: ReadyMove | Skip, *, waits: bool
    ) -> Outcome | None:
        """Outcome where the destination is impossible, or no broker leads; None while a broker may take the bundle."""
        flight = self._flight(ready, self._may_note(move)) if isinstance(ready, ReadyMove) else None
        gone = owner is None and missing_reason(self._admin, move.bundle)
        policy = wrong is not None and wrong.reason is not Reason.DESTINATION_FORBIDDEN
        if flight is not None and wrong is not None and owner is None and policy and not gone:
            outcome = self._place_elsewhere(flight, wrong)
            return unproven(replace(outcome, detail=f"{OPEN_AFTER_RESTART}; {outcome.detail}"))
        if owner is None and waits and not gone:
            return None
        why = wrong.detail if wrong is not None else ready.detail if isinstance(ready, Skip) else ""
        return unproven(self._judged(move, owner, f"{OPEN_AFTER_RESTART}; {why}", self._may_note(move)))

    def _refused(self, move: Unload) -> Skip | None:
        if move.destination is None:
            return Skip(move.bundle, Reason.DESTINATION_FORBIDDEN, "no destination is named; not sent")
        owner = self._ownership.owner_within(move.bundle, NUDGE_WAIT_SECONDS)
        if owner != move.source:
            message = f"{owner or 'nobody'} owns it, not {move.source}; not sent"
            return Skip(move.bundle, Reason.OWNER_CHANGED, message)
        return self._missing(move, planned=True)

    def _missing(self, move: Unload, *, planned: bool) -> Skip | None:
        """Reason why the destination is impossible; ``planned``: this process planned it and knows its policies."""
        destination = move.destination or ""
        if destination not in self._admin.active_brokers():
            return Skip(move.bundle, Reason.DESTINATION_FORBIDDEN, f"{destination} is no longer active; not sent")
        if not self._admin.ready(destination):
            return Skip(move.bundle, Reason.DESTINATION_FORBIDDEN, f"{destination} is not ready; not sent")
        return self._forbids(move, planned=planned)

    def _leader_for(self, move: Unload) -> ReadyMove | Skip:
        leader = self._admin.leader()
        if leader is None:
            return Skip(move.bundle, Reason.LEADER_UNREACHABLE, "no broker leads, the destination would be lost")
        if not self._admin.ready_at(leader.base):
            gone = f"leader {leader.base} does not answer; it is replaced after a session time-out if it has died"
            return Skip(move.bundle, Reason.LEADER_UNREACHABLE, gone)
        named = paths.knows_destinations(self._admin.version_at(leader.base))
        return ReadyMove(move, leader, named, self._admin.transfers)

    def _leads_now(self) -> str | None:
        """The present leader, which may have the note: it may have taken over during the request. None if unknown."""
        try:
            leader = self._admin.leader()
        except LbdError:
            return None
        return leader.broker if leader is not None else None

    def _send(self, flight: _Flight) -> Outcome:
        try:
            return self._unload(flight)
        except LbdError as error:
            return Outcome(flight.move, Result.UNKNOWN, None, str(error), noted=flight.noted)

    def _unload(self, flight: _Flight) -> Outcome:
        ready, started = flight.ready, self._clock.monotonic()
        try:
            flight.fence.pass_on()
            flight.noted, flight.policies_at = ready.notes, self._clock.boot()
            answer = self._request(flight)
        except AdminError as error:
            return self._in_doubt(flight, str(error), self._closing(started) if error.sent else 0.0)
        if answer.status == 204:
            return replace(self._place(flight), confirmed=True)
        reason = error_reason(answer)
        message = f"HTTP {answer.status}{reason}"
        if answer.status == RANGE_IS_NO_BUNDLE:
            owner = self._ownership.owner_within(ready.move.bundle, NUDGE_WAIT_SECONDS, self._patience_seconds)
            return self._judged(ready.move, owner, message, flight.noted)
        return self._in_doubt(flight, message, NUDGE_WAIT_SECONDS if reason else self._closing(started))

    def _topics(self, ready: ReadyMove) -> dict[str, str]:
        """A topic of the bundle for each broker that is to place it. Raises :class:`LbdError` where one has none.

        A bundle that no broker could be made to take is not unloaded.
        """
        if ready.transferred:
            return {}
        bases = [ready.leader.base] * ready.named + [self._admin.base(ready.move.destination or "")]
        return {base: self._admin.topic_in(ready.move.bundle, base) for base in dict.fromkeys(bases)}

    def _request(self, flight: _Flight) -> Response:
        """Send the unload, under one deadline over all brokers to which it is redirected."""
        ready = flight.ready
        where = ready.destination, ready.leader.base
        again = partial(self._check_again, flight)
        return self._admin.unload(ready.move.bundle, *where, begin_by=flight.fence.until, before_hop=again)

    def _check_again(self, flight: _Flight, base: str) -> None:
        """Check again before the request is sent on to another broker. Raises :class:`AdminError`."""
        flight.fence.pass_on()
        refusal = self._refused(flight.move)
        if refusal is not None:
            raise AdminError(f"{refusal.reason.message(refusal.detail)}, on its way to {base}", sent=False)
        flight.policies_at = self._clock.boot()
        flight.fence.pass_on()

    @property
    def _patience_seconds(self) -> float:
        """Time that is longer than a broker needs to close topics, and than a dead broker's session lasts."""
        return self._admin.settings.unload_timeout_seconds

    def _closing(self, started: float) -> float:
        """Seconds that the source may still be closing topics after a request without its own response."""
        return max(self._patience_seconds - (self._clock.monotonic() - started), PROOF_SECONDS)

    def _in_doubt(self, flight: _Flight, why: str, seconds: float) -> Outcome:
        """Outcome without a response, or with a refusal: the unload may happen anyway, so the final owner decides."""
        move = flight.move
        if not self._ownership.let_go(move.bundle, move.source, seconds, self._patience_seconds):
            return self._judged(move, move.source, why, flight.noted)
        if missing_reason(self._admin, move.bundle):
            return self._judged(move, None, why, flight.noted)
        placed = self._place(flight)
        return replace(placed, detail=f"{why}; {placed.detail}" if placed.detail else why)

    def _place(self, flight: _Flight) -> Outcome:
        """Nudge until a broker owns the released bundle, and return the outcome."""
        refusal = self._forbidden(flight)
        if refusal is not None:
            return self._place_elsewhere(flight, refusal)
        ready, move, owner, consumed = flight.ready, flight.move, None, False
        answer: Response | AdminError | None = None
        nudge = "none" if ready.transferred else self._nudge
        if nudge == "leader" and ready.named:
            looked_up = self._assign(flight, ready.leader.base, authoritative=False)
            consumed = isinstance(looked_up, Response) and looked_up.status in ASSIGNED
            owner = self._soon(move)
        if owner is None and nudge != "none":
            answer = self._assign(flight, self._admin.base(move.destination or ""), authoritative=True)
        if owner is None:
            owner = self._ownership.owner_within(move.bundle, PROOF_SECONDS, self._patience_seconds)
        if owner is None and isinstance(answer, AdminError):
            owner = self._give_back(flight, answer)
        noted = None if consumed and owner == move.destination else flight.noted
        return self._judged(move, owner, noted=noted)

    def _forbidden(self, flight: _Flight) -> Skip | None:
        """Reason why policies now forbid the destination, or that they cannot be read; None if read just now."""
        if flight.ready.transferred or self._clock.boot() - flight.policies_at < POLICIES_HOLD_SECONDS:
            return None
        try:
            return self._forbids(flight.move, planned=flight.ready.planned)
        except LbdError as error:
            return Skip(flight.move.bundle, Reason.POLICY_UNKNOWN, str(error))

    def _place_elsewhere(self, flight: _Flight, refusal: Skip) -> Outcome:
        """Place the bundle on its source, or on another allowed broker, because policies forbid the destination by now.

        These brokers take it without the leader, whose note is used up first.
        """
        move, why = flight.move, f"{refusal.reason.message(refusal.detail)}, after it was sent"
        self._use_up_note(flight)
        owner = self._soon(move)
        for broker in self._others(move) if owner is None else ():
            if self._may_have(flight, broker):
                self._assign(flight, self._admin.base(broker), authoritative=True)
                owner = self._soon(move)
            if owner is not None:
                break
        if owner is None:
            owner = self._ownership.owner_within(move.bundle, NUDGE_WAIT_SECONDS, self._patience_seconds)
        return self._judged(move, owner, why, flight.noted)

    def _others(self, move: Unload) -> tuple[str, ...]:
        """Candidates for a bundle whose destination is forbidden, the source first."""
        active = self._admin.active_brokers()
        return (move.source, *(broker for broker in active if broker not in {move.source, move.destination}))

    def _may_have(self, flight: _Flight, broker: str) -> bool:
        """Whether a broker may have the bundle. For the source only policies count; for others the new load, too."""
        move = replace(flight.move, destination=broker)
        back = broker == move.source
        try:
            allowed = self._missing(move, planned=not back and flight.ready.planned) is None
        except LbdError:
            return False
        return allowed and (back or flight.ready.may_stay(broker))

    def _give_back(self, flight: _Flight, failure: AdminError) -> str | None:
        """Place the bundle on its source again, because the destination did not take it; returns the owner.

        A hanging destination gets no more requests; the next request to a dead one reveals it.
        """
        move = flight.move
        if timed_out(failure):
            self._admin.mistrust(move.destination or "")
        self._assign(flight, self._admin.base(move.source), authoritative=True)
        return self._ownership.owner_within(move.bundle, NUDGE_WAIT_SECONDS, self._patience_seconds)

    def _soon(self, move: Unload) -> str | None:
        """The owner shortly after a lookup at the leader; None also while it is unknown."""
        try:
            return self._ownership.owner_within(move.bundle, NUDGE_WAIT_SECONDS)
        except AdminError:
            return None

    def _use_up_note(self, flight: _Flight) -> None:
        """Have the leader forget the destination of a bundle without an owner: its redirect there is not followed.

        A leader that is the destination would take the bundle itself, so it gets no request.
        """
        leader = flight.ready.leader
        if flight.noted is None or leader.broker in {None, flight.move.destination}:
            return
        answer = self._assign(flight, leader.base, authoritative=False, hops=0)
        if isinstance(answer, Response) and "authoritative=true" in (answer.location or ""):
            flight.noted = None  # only a leader's redirect proves it

    def _assign(
        self, flight: _Flight, base: str, *, authoritative: bool, hops: int = MAX_HOPS
    ) -> Response | AdminError:
        """Response to a request that has the bundle assigned, or its error; the bundle's owner shows its effect."""
        try:
            if base not in flight.topics:
                flight.topics[base] = self._admin.topic_in(flight.move.bundle, base)
            flight.fence.renew()
            return self._admin.assign(
                flight.topics[base], base, authoritative=authoritative, hops=hops, deadline=flight.fence.until
            )
        except AdminError as error:
            return error

    def _judged(self, move: Unload, owner: str | None, why: str = "", noted: str | None = None) -> Outcome:
        """The outcome of a move, with its result and detail; every outcome by an owner is made here."""
        gone = "" if owner is not None else missing_reason(self._admin, move.bundle)
        words = {
            Result.LANDED: "",
            Result.FAILED: "" if why else f"the brokers answered 204, and {move.source} owns it",
            Result.ELSEWHERE: f"landed on {owner}, wanted {move.destination}",
            Result.UNOWNED: "nobody owns it; the next client's lookup assigns it",
            Result.GONE: gone,
        }
        result = judged(move, owner, gone=bool(gone))
        return Outcome(move, result, owner, "; ".join(filter(None, (why, words[result]))), noted=noted)


def unproven(outcome: Outcome) -> Outcome:
    """Mark that an older note may stand: no response to an unload proves that it reached the leader."""
    return replace(outcome, older_note=outcome.noted is not None)


def missing_reason(admin: Admin, bundle: str) -> str:
    """Reason why the bundle no longer exists; empty if it does, or if that cannot be read."""
    try:
        boundaries = admin.boundaries(bundle_namespace(bundle))
    except LbdError:
        return ""
    if boundaries is None:
        return "the bundle is no more: its namespace was deleted"
    if bundle_range(bundle) not in {f"{lower}_{upper}" for lower, upper in pairwise(boundaries)}:
        return "the bundle is no more: it was split"
    return ""


def judged(move: Unload, owner: str | None, *, gone: bool = False) -> Result:
    """The result of an unload by the owner after it, whether or not the unload happened."""
    if owner is None:
        return Result.GONE if gone else Result.UNOWNED
    return {move.destination: Result.LANDED, move.source: Result.FAILED}.get(owner, Result.ELSEWHERE)
