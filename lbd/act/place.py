"""Place an unowned bundle on a given broker, and verify it.

An authoritative request for a topic of the bundle makes the broker that it is sent to acquire the bundle without asking
the leader (:meth:`~lbd.pulsar.admin.Admin.assign`). If the bundle is owned already, nothing moves (2.11.0 to 5.0.0-M1,
modular manager).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.act.fence import Fence
from lbd.act.ownership import ActClock, Ownership
from lbd.act.unload import NUDGE_WAIT_SECONDS, PROOF_SECONDS, missing_reason
from lbd.errors import AdminError, LbdError
from lbd.model import Outcome, Result, Skip, Unload
from lbd.pulsar.admin import ASSIGNED
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.act.unload import Forbids
    from lbd.pulsar.admin import Admin


@dataclass(frozen=True)
class AlreadyOwned(Skip):
    """Nothing was sent: ``owner`` has the bundle already."""

    owner: str = ""


class Placer:
    """Places single bundles of one cluster. ``forbids`` is called last: why policies now forbid the placement.

    ``held`` returns before each request the reason why nothing may begin now.
    """

    def __init__(
        self,
        admin: Admin,
        clock: ActClock,
        forbids: Forbids,
        held: Callable[[], tuple[Reason, str] | None] = lambda: None,
    ) -> None:
        self.admin, self._clock, self._forbids, self._held = admin, clock, forbids, held
        self._ownership = Ownership(admin, clock)

    def place(self, bundle: str, broker: str, reason: str) -> Outcome | Skip:
        """Place once. A broker's failure is an outcome, never an error; the outcome's unload has no source."""
        placement, started = Unload(bundle, "", broker, 0.0, 0.0, reason), self._clock.monotonic()
        fence = Fence(clock=self._clock.boot, held=self._held)
        checked = self.check(placement)
        if isinstance(checked, Skip):
            return checked
        return replace(self._place(placement, checked, fence), seconds=self._clock.monotonic() - started)

    def check(self, placement: Unload, *, planned: bool = True) -> Skip | str:
        """Check a placement: a refusal, else the topic by which its broker is to take the bundle. Changes nothing.

        It is the last check before the request, and also the preview of the result. Never raises. ``planned``:
        ``forbids`` knows the policies of the plan.
        """
        try:
            refused = self._refused(placement, planned=planned)
            return refused or self.admin.topic_in(placement.bundle, self.admin.base(placement.destination or ""))
        except LbdError as error:
            return Skip(placement.bundle, Reason.NOT_CHECKED, f"{error}; not asked for")

    def _refused(self, placement: Unload, *, planned: bool) -> Skip | None:
        """Refusal if the bundle has an owner by now, or the broker is not active, not ready or not allowed."""
        bundle, broker = placement.bundle, placement.destination or ""
        owner = self._ownership.owner_within(bundle, 0.0, NUDGE_WAIT_SECONDS)
        if owner is not None:
            return AlreadyOwned(bundle, Reason.OWNER_CHANGED, f"{owner} owns it by now; left alone", owner)
        if broker not in self.admin.active_brokers():
            return Skip(bundle, Reason.DESTINATION_FORBIDDEN, f"{broker} is no longer active; not asked for")
        if not self.admin.ready(broker):
            return Skip(bundle, Reason.DESTINATION_FORBIDDEN, f"{broker} is not ready; not asked for")
        return self._forbids(placement, planned=planned)

    def _place(self, placement: Unload, topic: str, fence: Fence) -> Outcome:
        """Have the broker take it. Its response does not count; the owner of the bundle afterwards does."""
        why = self._assign(placement, topic, fence)
        try:
            owner = self._ownership.owner_within(placement.bundle, PROOF_SECONDS)
        except LbdError as error:
            return Outcome(placement, Result.UNKNOWN, None, "; ".join(filter(None, (why, str(error)))))
        if owner == placement.destination:
            return Outcome(placement, Result.LANDED, owner)
        if owner is None and (words := missing_reason(self.admin, placement.bundle)):
            return Outcome(placement, Result.GONE, None, f"{why}; {words}" if why else words)
        if owner is None:
            unowned = "nobody owns it; the next client's lookup assigns it"
            return Outcome(placement, Result.UNOWNED, None, f"{why}; {unowned}" if why else unowned)
        elsewhere = f"a client's lookup was faster: {owner} has it, wanted {placement.destination}"
        return Outcome(placement, Result.ELSEWHERE, owner, elsewhere)

    def _assign(self, placement: Unload, topic: str, fence: Fence) -> str:
        """Reason why the broker may not have taken it; empty when it has."""
        try:
            base = self.admin.base(placement.destination or "")
            fence.pass_on()
            answer = self.admin.assign(topic, base, authoritative=True, deadline=fence.until)
        except AdminError as error:
            return str(error)
        return "" if answer.status in ASSIGNED else f"the request to take it was answered HTTP {answer.status}"
