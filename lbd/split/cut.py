"""A split that is asked for, and how it ended, seen from the boundaries that the namespace has then. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lbd.split.algorithms import SPECIFIED
from lbd.split.plan import inside, parts_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from lbd.split.algorithms import Algorithm
    from lbd.split.plan import Plan


class SplitResult(Enum):
    """How a split ended, as proven by reading the namespace's boundaries back."""

    SPLIT = "split"
    ELSEWHERE = "split-elsewhere"
    NOT_SPLIT = "not-split"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Cut:
    """One bundle to be cut at ``positions``, which rise, while ``owner`` owns it."""

    bundle: str
    owner: str
    algorithm: Algorithm
    positions: tuple[int, ...]
    reason: str = ""

    @property
    def asked_as(self) -> tuple[Algorithm, tuple[int, ...] | None]:
        """What a broker is asked for: algorithm, and positions or None.

        It would choose its own for the two algorithms that go by topics, which come and go, and fails (500) at
        ``flow_or_qps_equally_divide`` unless that is its default; positions make it cut where the plan does. The middle
        of a range is the same for all, and is cut whatever lies in it; at positions brokers cut from two topics on.
        """
        if self.algorithm == "range_equally_divide":
            return self.algorithm, None
        return SPECIFIED, self.positions


@dataclass(frozen=True)
class CutOutcome:
    """The proven end of one split. ``found`` are the boundaries inside the bundle's range afterwards.

    ``owner`` owns all the parts, None where that is not so or not known.
    """

    cut: Cut
    result: SplitResult
    found: tuple[int, ...] = ()
    owner: str | None = None
    detail: str = ""
    seconds: float = 0.0

    @property
    def parts(self) -> tuple[str, ...]:
        """Full names of what the bundle is now: itself where it is whole, or nothing is known."""
        return parts_of(self.cut.bundle, self.found) if self.found else (self.cut.bundle,)


def cut_of(plan: Plan, reason: str) -> Cut:
    """The split that a plan describes."""
    return Cut(plan.bundle, plan.owner, plan.algorithm, plan.positions, reason)


def judged(cut: Cut, boundaries: Collection[int]) -> tuple[SplitResult, tuple[int, ...]]:
    """What it came to, and the boundaries inside the range; more than were asked for are a later split's."""
    found = inside(cut.bundle, boundaries)
    if not found:
        return SplitResult.NOT_SPLIT, ()
    return (SplitResult.SPLIT if set(cut.positions) <= set(found) else SplitResult.ELSEWHERE), found
