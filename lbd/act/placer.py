"""Puts a bundle that nobody owns on a named broker, and proves it.

An authoritative lookup of a made-up topic, sent to a broker, has that broker acquire the bundle without asking the
leader; one that is owned already is answered with its owner, and nothing moves (2.11.0 to 5.0.0-M1, modular manager).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.act.ownership import Clock, Ownership
from lbd.act.unloader import NUDGE_WAIT_SECONDS, PROOF_SECONDS
from lbd.errors import AdminError, LbdError
from lbd.model import Outcome, Result, Skip, Unload
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.act.unloader import Forbids
    from lbd.pulsar.admin import Admin


@dataclass(frozen=True)
class Owned(Skip):
    """Left alone: ``owner`` has it by now."""

    owner: str = ""


class Placer:
    """Places single bundles of one cluster. ``forbids`` is asked last: why policies have come to forbid it."""

    def __init__(self, admin: Admin, clock: Clock, forbids: Forbids) -> None:
        self.admin, self._clock, self._forbids = admin, clock, forbids
        self._ownership = Ownership(admin, clock)

    def place(self, bundle: str, broker: str, reason: str) -> Outcome | Skip:
        """Place once. Never raises for what a broker does; the outcome's unload has no source."""
        wanted, begun = Unload(bundle, "", broker, 0.0, 0.0, reason), self._clock.monotonic()
        try:
            refused = self._refused(wanted)
        except LbdError as error:
            return Skip(bundle, Reason.NOT_CHECKED, f"{error}; not asked for")
        if refused is not None:
            return refused
        return replace(self._placed(wanted), seconds=self._clock.monotonic() - begun)

    def _refused(self, wanted: Unload) -> Skip | None:
        """The last look: whether it still is nobody's, and the broker is there and allowed."""
        bundle, broker = wanted.bundle, wanted.destination or ""
        owner = self._ownership.owner_within(bundle, 0.0, NUDGE_WAIT_SECONDS)
        if owner is not None:
            return Owned(bundle, Reason.OWNER_CHANGED, f"{owner} owns it by now; left alone", owner)
        if broker not in self.admin.active_brokers():
            return Skip(bundle, Reason.DESTINATION_FORBIDDEN, f"{broker} is no longer active; not asked for")
        if not self.admin.ready(broker):
            return Skip(bundle, Reason.DESTINATION_FORBIDDEN, f"{broker} is not ready; not asked for")
        return self._forbids(wanted, planned=True)

    def _placed(self, wanted: Unload) -> Outcome:
        """Whatever the lookup was answered, who owns the bundle then is what counts."""
        why = self._looked_up(wanted)
        try:
            owner = self._ownership.owner_within(wanted.bundle, PROOF_SECONDS)
        except LbdError as error:
            return Outcome(wanted, Result.UNKNOWN, None, "; ".join(filter(None, (why, str(error)))))
        if owner == wanted.destination:
            return Outcome(wanted, Result.LANDED, owner)
        if owner is None:
            unowned = "nobody owns it; the next client's lookup assigns it"
            return Outcome(wanted, Result.UNOWNED, None, f"{why}; {unowned}" if why else unowned)
        elsewhere = f"a client's lookup was faster: {owner} has it, wanted {wanted.destination}"
        return Outcome(wanted, Result.ELSEWHERE, owner, elsewhere)

    def _looked_up(self, wanted: Unload) -> str:
        """Why the lookup may not have done it; empty when it was answered as it should be."""
        try:
            base = self.admin.base(wanted.destination or "")
            answer = self.admin.look_up(wanted.bundle, base, authoritative=True)
        except AdminError as error:
            return str(error)
        return "" if answer.status == 200 else f"the lookup was answered HTTP {answer.status}"
