"""Which of the strategies compared to take, and why: as even as the best of them, with the fewest moves. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.compare.side_by_side import RECORDED
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.compare.side_by_side import Compared, Run

ALIKE_POINTS = 2.0
"""Gaps at the end that differ by less are alike: scores at rest vary by so much."""


@dataclass(frozen=True)
class Recommendation:
    """A candidate's label, and the reasons, each a clause."""

    label: str
    reasons: tuple[str, ...]

    @property
    def told(self) -> str:
        """In one line."""
        return f"{self.label}: {'; '.join(self.reasons)}"


def recommended(found: Compared) -> Recommendation | None:
    """The candidate to take; None where there is but one.

    Of those that broke no policy, and whose brokers were in the end as near each other as the nearest's within
    :data:`ALIKE_POINTS`, or within the low threshold, the one with the fewest moves; then with the least traffic moved,
    the least time above the threshold, and the first that was asked for.
    """
    runs = [run for run in found.runs if run.label != RECORDED]
    if len(runs) < 2:
        return None
    lawful = [run for run in runs if not run.card.policy_violations] or runs
    enough = max(min(map(_gap, lawful)) + ALIKE_POINTS, found.thresholds[0])
    even = [run for run in lawful if _gap(run) <= enough]
    best = min(even, key=lambda run: (run.card.moves, run.card.traffic_moved, run.card.minutes_over_low))
    return Recommendation(best.label, tuple(_reasons(best, runs, even, found.thresholds[0])))


def _gap(run: Run) -> float:
    return run.card.last.gap_points


def _reasons(best: Run, runs: Sequence[Run], even: Sequence[Run], low: float) -> list[str]:
    found = [_ended(best, even, low), _moved(best, even)]
    unlawful = [run.label for run in runs if run.card.policy_violations]
    uneven = [f"{run.label} ({_gap(run):.1f})" for run in runs if run not in even and run.label not in unlawful]
    found += [f"less even in the end: {', '.join(uneven)}"] if uneven else []
    found += [f"against a policy: {', '.join(unlawful)}"] if unlawful else []
    return found


def _ended(best: Run, even: Sequence[Run], low: float) -> str:
    nearest = min(map(_gap, even))
    if _gap(best) <= low:
        return f"ends {_gap(best):.1f} points apart, within the low threshold of {low:g}"
    beside = "no other ends nearer" if _gap(best) <= nearest else f"the nearest {nearest:.1f}"
    return f"ends {_gap(best):.1f} points apart, {beside}"


def _moved(best: Run, even: Sequence[Run]) -> str:
    card = best.card
    fewest = card.fewest_moves_as_even
    needed = f", at least {fewest} needed to be as even" if fewest is not None else ""
    told = f"{counted(card.moves, 'move')}{needed}, {card.traffic_moved:.0%} of the traffic"
    others = [f"{run.label} {run.card.moves} and {run.card.traffic_moved:.0%}" for run in even if run is not best]
    return f"{told}; as even: {', '.join(others)}" if others else told
