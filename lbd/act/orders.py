"""What the executor is given and gives back: a journal, orders for a plan, and what ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lbd.model import bundle_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lbd.act.unloader import Unloader
    from lbd.errors import LbdError
    from lbd.model import Outcome, Skip, Unload
    from lbd.permit.settings import Guardrails
    from lbd.reason import Reason


class Journal(Protocol):
    """What the executor needs of the journal; it is used from several threads."""

    @property
    def open(self) -> tuple[tuple[str, Unload], ...]: ...
    @property
    def attempted_at(self) -> Mapping[str, float]: ...
    def intend(self, unload: Unload, attempt: int) -> str: ...
    def conclude(self, move: str, outcome: Outcome) -> None: ...


class Accepts(Protocol):
    """Whether a bundle may stay on the broker where it landed instead; its load counts there then."""

    def __call__(self, unload: Unload, owner: str) -> bool: ...


@dataclass(frozen=True)
class Pace:
    """How fast: so long between two unloads from one source, and so many unloads at once.

    ``from_each`` may be in flight from one source. No two of the same range ever are, unless leaders know a destination
    by the bundle's full name: ``by_name``.
    """

    spacing_seconds: float = 0.0
    at_once: int = 4
    from_each: int = 1
    by_name: bool = False

    @classmethod
    def of(cls, guardrails: Guardrails) -> Pace:
        """As the guardrails have it."""
        return cls(guardrails.unload_spacing_seconds, guardrails.max_unloads_at_once)

    def keys(self, unload: Unload) -> tuple[str, ...]:
        """What an unload in flight keeps for itself."""
        span = unload.bundle if self.by_name else bundle_range(unload.bundle)
        return (span,) if self.from_each > 1 else (unload.source, span)

    def lanes(self, plan: Sequence[Unload]) -> list[list[Unload]]:
        """A plan cut into what is worked off one after the other, so many lanes for each source."""
        sources: dict[str, list[Unload]] = {}
        for unload in plan:
            sources.setdefault(unload.source, []).append(unload)
        cut = [own[at :: self.from_each] for own in sources.values() for at in range(self.from_each)]
        return [lane for lane in cut if lane]


@dataclass(frozen=True)
class Ended:
    """What ended since it was last asked for: proven outcomes, moves that were not sent, and why acting failed.

    ``unfinished`` are the moves that had not ended at that very moment. ``touched`` are the brokers of all of them, and
    of those told before, until :meth:`Executor.settled`.
    """

    outcomes: tuple[Outcome, ...] = ()
    skips: tuple[Skip, ...] = ()
    failure: LbdError | None = None
    unfinished: tuple[Unload, ...] = ()
    touched: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Orders:
    """How a plan is to be worked off. ``held`` is asked before each request: why nothing may be begun now.

    ``passes`` are holds that a person has overridden for this plan.
    """

    unloader: Unloader
    pace: Pace = field(default_factory=Pace)
    held: Callable[[], tuple[Reason, str] | None] = lambda: None
    passes: frozenset[Reason] = frozenset()


def brokers_of(unloads: Iterable[Unload], outcomes: Iterable[Outcome] = ()) -> set[str]:
    """The brokers that moves touch: both ends, and where a bundle landed instead."""
    landed = list(outcomes)
    ends = {end for move in [*unloads, *(one.unload for one in landed)] for end in (move.source, move.destination)}
    return {broker for broker in ends | {one.owner for one in landed} if broker is not None}
