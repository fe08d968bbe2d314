"""Which brokers are too far from the level, and for how long: hit counts as AvgShedder's. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.model import Hits

if TYPE_CHECKING:
    from lbd.decide.least_moves.settings import LeastMovesSettings
    from lbd.model import BoolArray, FloatArray, Memory, Permission


@dataclass(frozen=True)
class Far:
    """A broker, by position, that is ``points`` above the level (or below it, less than 0)."""

    broker: int
    points: float
    hits: Hits
    fired: bool

    @property
    def relieved(self) -> bool:
        """Whether it is to give."""
        return self.fired and self.points > 0


def count(
    ids: tuple[str, ...],
    above: FloatArray,
    among: BoolArray,
    permission: Permission,
    memory: Memory,
    settings: LeastMovesSettings,
) -> tuple[list[Far], dict[str, Hits]]:
    """Brokers at or beyond the low threshold, the furthest first, and the counters after this round.

    ``above`` is float64 (B,), points above the level; ``among`` bool (B,) are those that it was made of. A high one
    counts only where it is twice the threshold above the lowest, a low one where the highest is that much above it:
    nobody asks for less.

    A counter advances with a new sample and ends when the broker is within the threshold. After firing it stands one
    below its limit: what a plan left, because limits held it back or traffic costs otherwise than was thought, goes on
    with the first sample that tells, not eight samples later.
    """
    counters, found = dict(memory.hits), list[Far]()
    highest, lowest = float(above[among].max(initial=0.0)), float(above[among].min(initial=0.0))
    for at in among.nonzero()[0].tolist():
        points, fresh = float(above[at]), bool(permission.counts[at])
        apart = points - lowest if points > 0 else highest - points
        if abs(points) < settings.low_threshold or apart < settings.gap_points:
            if fresh:
                counters.pop(ids[at], None)
            continue
        hits = counters.get(ids[at], Hits())
        if fresh:
            hits = hits.one_more(high=abs(points) >= settings.high_threshold)
        wanted, held = settings.wanted_hits, permission.hold is not None
        fired = fresh and hits.reach(wanted) and not held
        kept = Hits(wanted.low, wanted.high).below(wanted) if fired else hits.below(wanted) if held else hits
        if kept == Hits():
            counters.pop(ids[at], None)
        else:
            counters[ids[at]] = kept
        found.append(Far(at, points, hits, fired))
    return sorted(found, key=lambda far: -abs(far.points)), counters
