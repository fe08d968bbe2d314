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

    ``held`` returns before each request why nothing may begin now.
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
        wanted, started = Unload(bundle, "", broker, 0.0, 0.0, reason), self._clock.monotonic()
        fence = Fence(clock=self._clock.boot, held=self._held)
        checked = self.check(wanted)
        if isinstance(checked, Skip):
            return checked
        return replace(self._place(wanted, checked, fence), seconds=self._clock.monotonic() - started)

    def check(self, wanted: Unload, *, planned: bool = True) -> Skip | str:
        """Why a bundle may not be placed now, else the topic by which its broker is to take it. Changes nothing.

        The last check before the request, and the one by which a preview says what the request would come to. Never
        raises. ``planned``: ``forbids`` knows the policies by which it was planned.
        """
        try:
            refused = self._refused(wanted, planned=planned)
            return refused or self.admin.topic_in(wanted.bundle, self.admin.base(wanted.destination or ""))
        except LbdError as error:
            return Skip(wanted.bundle, Reason.NOT_CHECKED, f"{error}; not asked for")

    def _refused(self, wanted: Unload, *, planned: bool) -> Skip | None:
        """The bundle has an owner by now, or the broker is not active, not ready or not allowed."""
        bundle, broker = wanted.bundle, wanted.destination or ""
        owner = self._ownership.owner_within(bundle, 0.0, NUDGE_WAIT_SECONDS)
        if owner is not None:
            return AlreadyOwned(bundle, Reason.OWNER_CHANGED, f"{owner} owns it by now; left alone", owner)
        if broker not in self.admin.active_brokers():
            return Skip(bundle, Reason.DESTINATION_FORBIDDEN, f"{broker} is no longer active; not asked for")
        if not self.admin.ready(broker):
            return Skip(bundle, Reason.DESTINATION_FORBIDDEN, f"{broker} is not ready; not asked for")
        return self._forbids(wanted, planned=planned)

    def _place(self, wanted: Unload, topic: str, fence: Fence) -> Outcome:
        """Have the broker take it. Its response does not count; the owner of the bundle after it does."""
        why = self._assign(wanted, topic, fence)
        try:
            owner = self._ownership.owner_within(wanted.bundle, PROOF_SECONDS)
        except LbdError as error:
            return Outcome(wanted, Result.UNKNOWN, None, "; ".join(filter(None, (why, str(error)))))
        if owner == wanted.destination:
            return Outcome(wanted, Result.LANDED, owner)
        if owner is None and (words := missing_reason(self.admin, wanted.bundle)):
            return Outcome(wanted, Result.GONE, None, f"{why}; {words}" if why else words)
        if owner is None:
            unowned = "nobody owns it; the next client's lookup assigns it"
            return Outcome(wanted, Result.UNOWNED, None, f"{why}; {unowned}" if why else unowned)
        elsewhere = f"a client's lookup was faster: {owner} has it, wanted {wanted.destination}"
        return Outcome(wanted, Result.ELSEWHERE, owner, elsewhere)

    def _assign(self, wanted: Unload, topic: str, fence: Fence) -> str:
        """Why the broker may not have taken it; empty when it has."""
        try:
            base = self.admin.base(wanted.destination or "")
            fence.pass_on()
            answer = self.admin.assign(topic, base, authoritative=True, deadline=fence.until)
        except AdminError as error:
            return str(error)
        return "" if answer.status in ASSIGNED else f"the request to take it was answered HTTP {answer.status}"
