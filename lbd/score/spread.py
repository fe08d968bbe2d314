"""Scorecards of the same scenario under several seeds: the middle and the ends of each figure. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lbd.score.scorecard import Scorecard


@dataclass(frozen=True)
class Spread:
    """One figure over several runs, in its own unit. ``runs`` is how many have it; None counts nowhere else."""

    median: float | None
    lowest: float | None
    highest: float | None
    runs: int


def spread(cards: Sequence[Scorecard]) -> dict[str, Spread]:
    """Each figure of at least one scorecard by its name, as ``moves`` or ``last.gap_points``."""
    runs = [dict(figures(asdict(card))) for card in cards]
    return {name: _of([run[name] for run in runs]) for name in runs[0]}


def figures(card: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float | None]]:
    """Every figure of a scorecard as a mapping, with dotted names for those of a section."""
    for name, value in card.items():
        if isinstance(value, dict):
            yield from figures(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _of(values: Sequence[float | None]) -> Spread:
    known = [value for value in values if value is not None]
    if not known:
        return Spread(None, None, None, 0)
    return Spread(float(median(known)), min(known), max(known), len(known))
