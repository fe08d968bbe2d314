"""The actuator that changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.act.orders import Accepts, Ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.model import Unload
    from lbd.reason import Reason


class DryRun:
    """Takes a plan and does nothing; the plan itself is the answer."""

    acts = False

    def collect(self) -> Ended:
        """Nothing: nothing was asked of any broker."""
        return Ended()

    def hand_over(self, plan: Sequence[Unload], accepts: Accepts) -> None:
        """Drop the plan."""

    def settled(self) -> None:
        """No broker was touched."""

    def halt(self, reason: Reason, detail: str) -> None:
        """Nothing is under way."""
