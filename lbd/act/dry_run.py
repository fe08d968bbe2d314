"""The actuator that changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lbd.model import Outcome, Unload


class DryRun:
    """Takes a plan and does nothing; the plan itself is the answer."""

    def run(self, plan: Iterable[Unload]) -> Iterator[Outcome]:
        """No outcomes: nothing was asked of any broker."""
        del plan
        return iter(())
