"""Who is compared with whom, and how often they were too far apart: pairs and hit counts. Pure.

Source: AvgShedder.findBrokerPairs. Counters belong to brokers, not to pairs; a broker keeps its count when its partner
changes, and while it is away.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.model import Hits, Memory, Pair, Permission

if TYPE_CHECKING:
    from lbd.decide.avg_shedder.settings import AvgShedderSettings
    from lbd.model import FloatArray


@dataclass(frozen=True, eq=False)
class Round:
    """What pairing looks at: ``scores`` is float64 (B,) in points, aligned with ``ids``."""

    ids: tuple[str, ...]
    scores: FloatArray
    permission: Permission
    settings: AvgShedderSettings


def pair_up(seen: Round, memory: Memory) -> tuple[tuple[Pair, ...], Memory]:
    """Pairs at or above the low threshold, outermost first, and the counters after this round.

    With an odd count the middle broker is paired with itself, and counts on both sides, as in Pulsar. A round without
    pairs clears all counters, but for present brokers that gave no new evidence.
    """
    counters = dict(memory.hits)
    ranked = _ranked(seen)
    outer = zip(ranked[: (len(ranked) + 1) // 2], reversed(ranked), strict=False)
    pairs = tuple(pair for low, high in outer if (pair := _compare(seen, low, high, counters)) is not None)
    if not pairs:
        silent = {broker for broker, counts in zip(seen.ids, seen.permission.counts, strict=True) if not counts}
        counters = {broker: hits for broker, hits in counters.items() if broker in silent}
    return pairs, Memory(counters)


def _ranked(seen: Round) -> list[int]:
    """Positions of the brokers in pairing, by ascending score, then by name (Java: hash order)."""
    taking_part = [at for at in range(len(seen.ids)) if seen.permission.paired[at] == 0]
    points = seen.scores.tolist()
    if seen.settings.pulsar_version == "4.0":
        return sorted(taking_part, key=functools.cmp_to_key(lambda a, b: _whole_points(points[a] - points[b])))
    return sorted(taking_part, key=lambda at: points[at])


def _whole_points(difference: float) -> int:
    """Java's ``(int)`` cast, with which brokers less than a point apart are equal (#24954)."""
    if math.isnan(difference):
        return 0
    return int(max(-2147483648.0, min(2147483647.0, difference)))


def _compare(seen: Round, low: int, high: int, counters: dict[str, Hits]) -> Pair | None:
    difference = float(seen.scores[high]) - float(seen.scores[low])
    evidence = [at for at in (low, high) if seen.permission.counts[at]]
    if difference < seen.settings.low_threshold:
        for at in evidence:
            counters.pop(seen.ids[at], None)
        return None
    settled = bool(seen.permission.settled[low] and seen.permission.settled[high])
    for at in evidence if settled else ():
        _count(counters, seen.ids[at], difference, seen.settings)
    return _judge(seen, seen.ids[high], seen.ids[low], difference, counters, may_fire=settled and bool(evidence))


def _count(counters: dict[str, Hits], broker: str, difference: float, settings: AvgShedderSettings) -> None:
    """A difference equal to a threshold counts; one at the high threshold advances both counters."""
    at_high = not difference < settings.high_threshold  # NaN is not
    counters[broker] = counters.get(broker, Hits()).one_more(high=at_high)


def _judge(
    seen: Round, source: str, destination: str, difference: float, counters: dict[str, Hits], *, may_fire: bool
) -> Pair:
    """Fire when any of the four counters has reached its threshold; firing clears all four, whatever follows."""
    both = [counters.get(broker, Hits()) for broker in (source, destination)]
    hits = Hits(max(hit.low for hit in both), max(hit.high for hit in both))
    wanted = Hits(seen.settings.hit_count_low, seen.settings.hit_count_high)
    fired = hits.reach(wanted) and may_fire and seen.permission.hold is None
    for broker in (source, destination):
        if fired:
            counters.pop(broker, None)
        elif seen.permission.hold is not None and broker in counters:
            counters[broker] = counters[broker].below(wanted)
    return Pair(source, destination, difference, hits, wanted, fired)
