"""What a turn hands its plan to: the executor, or, where lbd only observes, nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.act.dry_run import DryRun
from lbd.act.orders import Ended
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.act.executor import Executor
    from lbd.act.orders import Accepts, Orders
    from lbd.cycle import CycleRecord, Hold
    from lbd.model import Unload


@dataclass(frozen=True)
class Acting:
    """Hands plans to the executor."""

    executor: Executor
    orders: Orders
    acts = True

    def collect(self) -> Ended:
        """What ended since the last turn."""
        return self.executor.collect()

    def hand_over(self, plan: Sequence[Unload], accepts: Accepts) -> None:
        """Begin; returns at once."""
        self.executor.start(plan, accepts, self.orders)

    def settled(self) -> None:
        """The brokers touched are on disk as such."""
        self.executor.settled()

    def halt(self, reason: Reason, detail: str) -> None:
        """Begin no more of what was handed over."""
        self.executor.halt(reason, detail)


@dataclass(frozen=True)
class Beside(Acting):
    """The same for a plan made beside the turns, which leaves to them what has ended."""

    def collect(self) -> Ended:
        """Only what is under way."""
        return Ended(unfinished=self.executor.unfinished)

    def settled(self) -> None:
        """Nothing was collected."""

    def halt(self, reason: Reason, detail: str) -> None:
        """A hold is the turns' to apply."""


class Observing(DryRun):
    """Moves nothing, and says once for each imbalance what would move: until the sources have ceased to be any."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def hand_over(self, plan: Sequence[Unload], accepts: Accepts) -> None:
        """Remember whom it was said of."""
        del accepts
        self._told |= {unload.source for unload in plan}

    def seen(self, record: CycleRecord) -> None:
        """A source that no pair names any more may be told of again."""
        if record.decision is not None:
            self._told &= {pair.source for pair in record.decision.facts.pairs}

    def hold(self) -> Hold | None:
        """The strategy counts on below its limit while what it would do has been said."""
        if not self._told:
            return None
        return Reason.OBSERVE_ONLY, f"what would move from {', '.join(sorted(self._told))} was said before"
