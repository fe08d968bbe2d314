"""Whether moves bring brokers closer; after rounds that did not, lbd pauses for a while. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.text import minutes_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from lbd.model import Unload
    from lbd.permit.settings import Guardrails

    Apart = Callable[[str, str], float | None]
    """Points between two brokers now; None while one of them is away, doubted, or has not settled."""


CLOSER_POINTS = 3.0
"""Scores of brokers at rest vary by two points or so; a levelled pair closes by 7 and more."""

PART_OF_PREDICTED = 0.25
"""Predictions attribute a source's whole score to its traffic. If half of it is background load, half comes true."""

MOST_ROUNDS = 3
"""Rounds in vain after which lbd stands still. One may be a plan that caps cut short, two a burst of load meanwhile;
with more of them, clients are disconnected for nothing."""

JUDGED_WITHIN_SECONDS = 15 * 60.0
"""Brokers settle within three minutes. Nothing is concluded about a broker that is away for longer."""


@dataclass(frozen=True)
class Tried:
    """Two brokers between which bundles were moved, and how many points apart they were before and are now.

    ``predicted`` is by how many points all moves since then were to bring them closer.
    """

    source: str
    destination: str
    before: float
    after: float
    predicted: float = 0.0

    @property
    def gained(self) -> float:
        """Points by which they came closer."""
        return self.before - self.after

    def came_closer(self, least_points: float) -> bool:
        """Whether by ``least_points``, or, where caps let through little, by a good part of what that was to bring."""
        return self.gained >= min(least_points, max(self.predicted, 0.0) * PART_OF_PREDICTED or least_points)


@dataclass(frozen=True)
class Progress:
    """Rounds of moves in a row that brought no pair closer.

    ``planned_at`` is when a round was planned that is not judged yet, ``moving_at`` when its moves were last under way,
    ``until`` when standing still ends (all epoch seconds); 0 where there is none.
    """

    tried: tuple[Tried, ...] = ()
    rounds: int = 0
    planned_at: float = 0.0
    moving_at: float = 0.0
    until: float = 0.0


def planned(
    progress: Progress, plan: Iterable[Unload], scores: Mapping[str, float], expected: Mapping[str, float], now: float
) -> Progress:
    """A round is about to be moved: how far its pairs are apart before it, unless that is known from a round before.

    ``expected`` are the scores of the brokers that it touches, once all of it has landed.
    """
    pairs = dict.fromkeys((move.source, move.destination) for move in plan if move.destination is not None)
    if not pairs:
        return progress
    by_pair = {(trial.source, trial.destination): trial for trial in progress.tried}
    for pair in pairs:
        gap = _pair_gap(scores, pair)
        gain = gap - _pair_gap(expected, pair)
        if math.isfinite(gap):
            trial = by_pair.get(pair) or Tried(*pair, gap, gap)
            by_pair[pair] = replace(trial, predicted=trial.predicted + (gain if math.isfinite(gain) else 0.0))
    return replace(progress, tried=tuple(by_pair.values()), planned_at=now, moving_at=now)


def _pair_gap(scores: Mapping[str, float], pair: tuple[str, str]) -> float:
    return scores.get(pair[0], math.nan) - scores.get(pair[1], math.nan)


def judged(progress: Progress, apart: Apart, *, sent: bool, now: float, guardrails: Guardrails) -> Progress:
    """The progress after a look at the brokers of the last round; ``sent``: some unload of it was requested.

    As long as one of them has not settled, nothing is judged, for a quarter of an hour at most. One pair that came
    closer resets the progress, and so does the end of standing still.
    """
    if progress.until:
        return progress if _is_standing(progress, now, guardrails) else Progress()
    if not progress.planned_at:
        return progress
    if not sent:
        return replace(progress, planned_at=0.0) if progress.rounds else Progress()
    gaps = [apart(trial.source, trial.destination) for trial in progress.tried]
    if None in gaps:
        return progress if now - max(progress.planned_at, progress.moving_at) < JUDGED_WITHIN_SECONDS else Progress()
    tried = tuple(replace(trial, after=gap) for trial, gap in zip(progress.tried, gaps, strict=True) if gap is not None)
    if any(trial.came_closer(CLOSER_POINTS) for trial in tried):
        return Progress()
    rounds = progress.rounds + 1
    return Progress(tried, rounds, until=now + guardrails.stand_still_minutes * 60 if rounds >= MOST_ROUNDS else 0.0)


def without(progress: Progress, brokers: Collection[str]) -> Progress:
    """The progress without pairs of these brokers, whose load changed by itself; standing still lasts as it was."""
    tried = tuple(trial for trial in progress.tried if not {trial.source, trial.destination} & {*brokers})
    if progress.until or tried == progress.tried:
        return progress
    return replace(progress, tried=tried) if tried else Progress()


def _is_standing(progress: Progress, now: float, guardrails: Guardrails) -> bool:
    """Never longer than the settings say, also when they or the clock were set back meanwhile."""
    return now < progress.until <= now + guardrails.stand_still_minutes * 60


def standing_still(progress: Progress, now: float, guardrails: Guardrails) -> str | None:
    """A sentence on the rounds that were tried, and when moves go on; None while nothing forbids further moves."""
    if not progress.tried or not _is_standing(progress, now, guardrails):
        return None
    best = max(progress.tried, key=lambda trial: trial.gained)
    return (
        f"{progress.rounds} rounds of moves in a row brought no brokers closer, at best {best.source} -> "
        f"{best.destination}: {best.after:.1f} points apart, {best.before:.1f} before; goes on in "
        f"{minutes_text(progress.until - now)} (guardrails.stand_still_minutes)"
    )
