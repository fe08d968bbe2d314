"""What to give a broker that has too little: a slice of each hot one, up to the cluster's mean. Pure.

Step by step the broker that is the most loaded by then gives the largest bundle that neither lifts the one to be filled
above the mean nor lowers the giver below it; so nobody has to give back, and few bundles move.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.decide.drain import Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lbd.model import Skip, Unload
    from lbd.permit.limits import Ledger


def mean(scores: Mapping[str, float]) -> float:
    """The score, in points, at which all these brokers would be even; 0 of none."""
    return sum(scores.values()) / len(scores) if scores else 0.0


def plan(candidates: Iterable[Unload], destination: str, scores: Mapping[str, float], ledger: Ledger) -> Plan:
    """What moves to ``destination``; ``scores`` are those of all brokers that take part, in points.

    ``candidates`` are unloads to nobody yet; what comes from brokers at the mean or below is passed over.
    ``ledger`` judges, and is advanced. What it refuses is told in ``stay``.
    """
    level = mean(scores)
    queues = _queues(candidates, destination, scores, level, ledger)
    left = {source: scores[source] for source in queues}
    moves: list[Unload] = []
    stay: list[Skip] = []
    while left:
        source = max(left, key=lambda one: (left[one], one))
        found = _next(queues[source], min(level - ledger.predicted(destination), left[source] - level), ledger, stay)
        if found is None:
            del left[source]
            continue
        left[source] -= ledger.rise(found)
        ledger.take(found)
        moves.append(found)
    return Plan(tuple(moves), tuple(stay))


def _queues(
    candidates: Iterable[Unload], destination: str, scores: Mapping[str, float], level: float, ledger: Ledger
) -> dict[str, deque[Unload]]:
    """The bundles of each broker above the mean, the largest first; what weighs nothing helps nobody."""
    found: dict[str, list[Unload]] = {}
    for one in candidates:
        if one.source != destination and scores.get(one.source, level) > level and ledger.rise(one) > 0:
            found.setdefault(one.source, []).append(replace(one, destination=destination))
    return {
        source: deque(sorted(unloads, key=lambda one: (-ledger.rise(one), one.bundle)))
        for source, unloads in found.items()
    }


def _next(queue: deque[Unload], room: float, ledger: Ledger, stay: list[Skip]) -> Unload | None:
    """The largest bundle with room for it. Room only shrinks, so what is too large now is too large for good."""
    while queue:
        one = queue.popleft()
        if ledger.rise(one) > room:
            continue
        refusal = ledger.refusal(one)
        if refusal is None:
            return one
        stay.append(refusal)
    return None
