"""What must hold at each step of a night, whatever fails. The observer knows the truth; the lbds do not know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.model import Outcome, Result, bundle_range

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lbd.daemon.engine import Engine
    from lbd.model import Skip
    from lbd.simulate.fake_cluster import OwnershipChange
    from lbd.simulate.faults import Request

HOUR_SECONDS = 3600.0
SLACK_SECONDS = 2.0
"""Limits and cool-downs are measured by the journal's times, which are taken a moment before a request leaves."""

ATTEMPTS = 2
"""A miss is tried once more."""


class ViolationError(Exception):
    """Something that must hold does not."""


@dataclass(frozen=True)
class Sending:
    """The first request of an attempt to move a bundle."""

    seconds: float
    machine: str
    move: str
    bundle: str


class Observer:
    """Checks requests when they leave, outcomes when they are told, and journals when they are opened again.

    ``now`` is seconds of the night, ``history`` the true owners, ``tell`` takes a line of the story.
    """

    def __init__(
        self,
        now: Callable[[], float],
        history: Callable[[], Sequence[OwnershipChange]],
        tell: Callable[[str], None],
        *,
        per_hour: int,
        cool_down_seconds: float,
    ) -> None:
        self._now, self._history, self._tell = now, history, tell
        self._per_hour, self._cool_down_seconds = per_hour, cool_down_seconds
        self.sendings: list[Sending] = []
        self.paused_since: float | None = None
        self.excused_until: dict[str, float] = {}
        """Machines that stood still between a check and its request; nothing can prevent that request."""
        self.violation = ""

    def step(self) -> None:
        """Raise what was seen since the last step: an error in a task of an lbd would be caught there."""
        if self.violation:
            raise ViolationError(self.violation)

    def leaves(self, machine: str, engine: Engine, request: Request) -> None:
        """A request leaves a machine, to be called in the task that sends it."""
        if request.method != "PUT" or not request.path.endswith("/unload"):
            return
        bundle = "/".join(request.path.split("/")[4:-1])
        moves = [(move, unload) for move, unload in engine.journal.open if unload.bundle == bundle]
        self._tell(f"{machine} sends the unload of {bundle} to {request.broker} {dict(request.query)}")
        if not moves:
            self._violates(f"{machine} unloads {bundle} without an intent in its journal")
            return
        if len(moves) > 1:
            self._violates(f"{machine} has two open moves of {bundle}: {moves}")
        span = bundle_range(bundle)
        alike = [
            one.bundle for _, one in engine.journal.open if bundle_range(one.bundle) == span and one.bundle != bundle
        ]
        if alike:
            self._violates(f"{machine} unloads {bundle} while {alike} of the same range are under way (#25518)")
        move, unload = moves[-1]
        wanted = request.query.get("destinationBroker", unload.destination)
        if wanted != unload.destination:
            self._violates(f"{machine} unloads {bundle} to {wanted}, and its intent says {unload.destination}")
        if self.paused_since is not None and self._now() > max(self.paused_since, self.excused_until.get(machine, 0.0)):
            self._violates(f"{machine} unloads {bundle} although lbd is paused since {self.paused_since:.3f}")
        if move not in {sending.move for sending in self.sendings}:
            self._sends(Sending(self._now(), machine, move, bundle))

    def _sends(self, sending: Sending) -> None:
        """An attempt begins: it counts among those of the last hour, and of its bundle's rest."""
        self.sendings.append(sending)
        hour = [one for one in self.sendings if one.seconds > sending.seconds - HOUR_SECONDS + SLACK_SECONDS]
        if len(hour) > self._per_hour:
            self._violates(f"{len(hour)} unloads within an hour, wanted {self._per_hour} at most")
        rest = sending.seconds - self._cool_down_seconds + SLACK_SECONDS
        before = [one for one in self.sendings if one.bundle == sending.bundle and one.seconds > rest]
        if len(before) > ATTEMPTS:
            self._violates(f"{sending.bundle} is unloaded {len(before)} times within its cool-down")
        if {one.machine for one in before} != {sending.machine}:
            others = sorted({one.machine for one in before})
            self._violates(f"{sending.bundle} is unloaded by {' and '.join(others)} within its cool-down")

    def ended(self, machine: str, end: Outcome | Skip) -> None:
        """An lbd tells how a move ended."""
        if not isinstance(end, Outcome):
            self._tell(f"{machine} did not send: {end.what}: {end.reason.value}: {end.detail}")
            return
        bundle, owner = end.unload.bundle, end.owner
        self._tell(f"{machine} says {bundle}: {end.result.value}, owner {owner} {end.detail}")
        if end.result not in {Result.LANDED, Result.ELSEWHERE}:
            return
        sent_at = max((one.seconds for one in self.sendings if one.bundle == bundle), default=0.0)
        changes = [change for change in self._history() if change.bundle == bundle]
        since = [change.owner for change in changes if change.seconds >= sent_at - SLACK_SECONDS]
        if owner not in {*since, *(change.owner for change in changes[-1:])}:
            self._violates(f"{machine} says that {bundle} is at {owner}, which has not owned it since it was unloaded")

    def opens(self, machine: str, engine: Engine) -> None:
        """An lbd has opened its journal again: it knows each unload that it has ever sent."""
        known = engine.journal.attempted_at
        for sending in self.sendings:
            if sending.machine == machine and sending.bundle not in known:
                self._violates(f"{machine} sent an unload of {sending.bundle}, and does not know it after a kill")

    def says(self, machine: str, event: str) -> None:
        """A line of an lbd's log."""
        if "bug in lbd" in event:
            self._violates(f"{machine}: {event}")

    def _violates(self, what: str) -> None:
        self._tell(f"VIOLATION: {what}")
        self.violation = self.violation or what
