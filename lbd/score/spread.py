"""Scorecards of the same scenario under several seeds: the middle and the ends of each figure. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from lbd.score.figures import FIGURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.score.scorecard import Scorecard


@dataclass(frozen=True)
class Spread:
    """One figure over several runs, in its own unit. ``runs`` is how many have it; None counts nowhere else."""

    median: float | None
    lowest: float | None
    highest: float | None
    runs: int


def spread(cards: Sequence[Scorecard]) -> dict[str, Spread]:
    """Each figure of at least one scorecard, by its dotted name."""
    runs = [figures(card) for card in cards]
    return {name: _of([run[name] for run in runs]) for name in runs[0]}


def figures(card: Scorecard) -> dict[str, float | None]:
    """Every figure of a scorecard by its dotted name, as ``moves`` or ``last.gap_points``."""
    return {figure.name: _value(card, figure.name) for figure in FIGURES}


def _value(card: Scorecard, name: str) -> float | None:
    """None also where the section is missing."""
    section, _, last = name.rpartition(".")
    found: float | None = getattr(getattr(card, section) if section else card, last, None)
    return found


def _of(values: Sequence[float | None]) -> Spread:
    known = [value for value in values if value is not None]
    if not known:
        return Spread(None, None, None, 0)
    return Spread(float(median(known)), min(known), max(known), len(known))
