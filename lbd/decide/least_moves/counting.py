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


def count(
    ids: tuple[str, ...],
    above: FloatArray,
    among: BoolArray,
    permission: Permission,
    memory: Memory,
    settings: LeastMovesSettings,
) -> tuple[list[Far], dict[str, Hits]]:
    """Brokers at or beyond the low threshold, the furthest first, and the counters after this round.

    ``above`` is float64 (B,), points above the level; ``among`` bool (B,) are those that it was made of. A counter
    advances with a new sample, ends when the broker is within the threshold, and is cleared by firing.
    """
    counters, found = dict(memory.hits), list[Far]()
    for at in among.nonzero()[0].tolist():
        points, fresh = float(above[at]), bool(permission.counts[at])
        if abs(points) < settings.low_threshold:
            if fresh:
                counters.pop(ids[at], None)
            continue
        hits = counters.get(ids[at], Hits())
        if fresh:
            hits = Hits(hits.low + 1, 0 if abs(points) < settings.high_threshold else hits.high + 1)
        wanted = settings.wanted_hits
        reached = fresh and (hits.low >= wanted.low or hits.high >= wanted.high)
        fired = reached and permission.hold is None
        _remember(counters, ids[at], None if fired else hits, wanted, held=permission.hold is not None)
        found.append(Far(at, points, hits, fired))
    return sorted(found, key=lambda far: -abs(far.points)), counters


def _remember(counters: dict[str, Hits], broker: str, hits: Hits | None, wanted: Hits, *, held: bool) -> None:
    """Under a hold counters stop one below their limit, so that one more round is seen after it."""
    if hits is None:
        counters.pop(broker, None)
    elif held:
        counters[broker] = Hits(min(hits.low, max(wanted.low - 1, 0)), min(hits.high, max(wanted.high - 1, 0)))
    elif hits != Hits():
        counters[broker] = hits
