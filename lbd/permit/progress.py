"""Whether moves bring brokers closer; after rounds that did not, lbd stands still for a while. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lbd.model import Unload
    from lbd.permit.settings import Guardrails

    Apart = Callable[[str, str], float | None]
    """Points between two brokers now; None while one of them is away, doubted, or has not settled."""


JUDGED_WITHIN_SECONDS = 15 * 60.0
"""Brokers settle within three minutes; of one that is away for longer nothing can be said."""


@dataclass(frozen=True)
class Tried:
    """Two brokers between which bundles were moved, and how many points apart they were before and are now."""

    source: str
    destination: str
    before: float
    after: float

    @property
    def gained(self) -> float:
        """Points by which they came closer."""
        return self.before - self.after


@dataclass(frozen=True)
class Progress:
    """Rounds of moves in a row that brought no pair closer.

    ``planned_at`` is when a round was planned that is not judged yet, ``until`` when standing still ends (both epoch
    seconds); 0 where there is none.
    """

    tried: tuple[Tried, ...] = ()
    rounds: int = 0
    planned_at: float = 0.0
    until: float = 0.0


def planned(progress: Progress, plan: Iterable[Unload], scores: dict[str, float], now: float) -> Progress:
    """A round is about to be moved: how far its pairs are apart before it, unless that is known from a round before."""
    pairs = dict.fromkeys((one.source, one.destination) for one in plan if one.destination is not None)
    if not pairs:
        return progress
    known = {(one.source, one.destination) for one in progress.tried}
    gaps = {pair: scores[pair[0]] - scores[pair[1]] for pair in pairs if pair not in known and set(pair) <= set(scores)}
    fresh = tuple(Tried(*pair, gap, gap) for pair, gap in gaps.items() if math.isfinite(gap))
    return replace(progress, tried=(*progress.tried, *fresh), planned_at=now)


def judged(progress: Progress, apart: Apart, *, sent: bool, now: float, guardrails: Guardrails) -> Progress:
    """The same after a look at the brokers of the last round; ``sent``: something of it was asked for.

    As long as one of them has not settled nothing is said, for a quarter of an hour. One pair that came closer wipes
    the slate clean, and so does the end of standing still.
    """
    if progress.until:
        return progress if _stands(progress, now, guardrails) else Progress()
    if not progress.planned_at:
        return progress
    if not sent:
        return replace(progress, planned_at=0.0) if progress.rounds else Progress()
    seen = [apart(one.source, one.destination) for one in progress.tried]
    if None in seen:
        return progress if now - progress.planned_at < JUDGED_WITHIN_SECONDS else Progress()
    tried = tuple(replace(one, after=gap) for one, gap in zip(progress.tried, seen, strict=True) if gap is not None)
    if any(one.gained >= guardrails.min_improvement_points for one in tried):
        return Progress()
    rounds = progress.rounds + 1
    stands = 0 < guardrails.stand_still_after_rounds <= rounds
    return Progress(tried, rounds, until=now + guardrails.stand_still_minutes * 60 if stands else 0.0)


def _stands(progress: Progress, now: float, guardrails: Guardrails) -> bool:
    """Never longer than the settings say, also when they or the clock were set back meanwhile."""
    longest = guardrails.stand_still_minutes * 60 if guardrails.stand_still_after_rounds else 0.0
    return now < progress.until <= now + longest


def standing_still(progress: Progress, now: float, guardrails: Guardrails) -> str | None:
    """What was tried, what it did, and when it goes on; None while nothing forbids further moves."""
    if not progress.tried or not _stands(progress, now, guardrails):
        return None
    best = max(progress.tried, key=lambda one: one.gained)
    return (
        f"{progress.rounds} rounds of moves in a row brought no brokers closer, at best {best.source} -> "
        f"{best.destination}: {best.after:.1f} points apart, {best.before:.1f} before; goes on in "
        f"{(progress.until - now) / 60:.0f} min (guardrails.stand_still_minutes)"
    )
