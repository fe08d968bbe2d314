"""Limits of a plan for tests that are not about limits: the same answer for every move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lbd.model import Skip, Unload


@dataclass
class SameForAll:
    """A bundle may stay on any third broker, or on none; ``landings`` are those that were counted."""

    may_stay_anywhere: bool = True
    landings: list[tuple[str, str]] = field(default_factory=list)

    def sending_refusal(self, unload: Unload, sent: object, now: float) -> Skip | None:
        """Nothing."""
        del unload, sent, now

    def take_sending(self, unload: Unload) -> None:
        """Nothing to count."""

    def may_stay(self, unload: Unload, owner: str) -> bool:
        """The same for all."""
        del unload, owner
        return self.may_stay_anywhere

    def take_landing(self, unload: Unload, owner: str) -> None:
        """Note it."""
        self.landings.append((unload.bundle, owner))
