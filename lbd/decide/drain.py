"""Drain and fill: the ``drain:`` section, and the moves. Pure."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from lbd.model import Skip, Unload, bundle_range
from lbd.reason import Reason
from lbd.section import Section

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lbd.load.estimate import Carried
    from lbd.model import Averages, Snapshot
    from lbd.permit.limits import Ledger


LEAST_PER_HOUR = 1000

UNLOAD_SPACING_SECONDS = 0.5
"""Pause between the end of one unload of a drain and the next one: clients reconnect in this time.

It is half of ``guardrails.unload_spacing_seconds``: a person has ordered these moves, often to restart the broker.
"""

EXPIRES_SECONDS = 24 * 3600.0
"""Time after which a drain ends if no person has released it and the option --for sets no other time."""


class DrainSettings(Section):
    """Limit of drains and fills, instead of those per turn, hour and day: a person has ordered all of these moves."""

    max_unloads_at_once: int = Field(
        4, ge=1, le=64, description="Unloads in flight from a drained broker, of bundles with different hash ranges"
    )


def most_per_hour(bundles: int) -> int:
    """Unloads per hour from a drained broker, or to a filled one, in a cluster with ``bundles``.

    Enough to empty one broker, but a fault cannot move a whole cluster.
    """
    return max(LEAST_PER_HOUR, bundles // 2)


# --- drain: destinations of a broker's bundles, and whether the other brokers have room
# The heaviest bundle is placed first, on the broker with the lowest predicted score of those that all guardrails allow:
# several destinations, each filled evenly (the greedy rule of R. Graham, 1969, for machines that are alike). Unlike a
# balancing move, a drain may leave a destination above its source, which is to own nothing in the end.

BEYOND_CAPACITY = frozenset({Reason.DESTINATION_OVERLOADED, Reason.TOPIC_LIMIT})
"""Reasons for which the other brokers cannot take a bundle, though no rule forbids it."""

NOT_ITS_RULES = frozenset({Reason.DESTINATION_ABOVE_SOURCE})
"""Rules for destinations that do not apply to a drain."""

WORDS = 3


@dataclass(frozen=True)
class DrainMoves:
    """Moves, bundles that stay with their reasons, and the predicted score of each destination, in points."""

    unloads: tuple[Unload, ...] = ()
    stay: tuple[Skip, ...] = ()

    @property
    def beyond_capacity(self) -> tuple[Skip, ...]:
        """Bundles that stay because no broker can take them: with any, the cluster cannot do without this broker."""
        return tuple(skip for skip in self.stay if skip.reason in BEYOND_CAPACITY)


def drain_unloads(
    bundles: Iterable[str], source: str, snapshot: Snapshot, averages: Averages, then: Carried
) -> list[Unload]:
    """Unloads of bundles that ``source`` owns, without destination; ``averages`` are aligned with the round.

    A bundle on no report counts as the average one of its broker. Where brokers report their largest bundles only, the
    earlier rates of such a bundle no longer hold.
    """
    position = {name: row for row, name in enumerate(snapshot.bundles)}
    has_rates = averages.samples > 0
    if snapshot.partial:
        has_rates[has_rates] = np.isin(np.flatnonzero(has_rates), snapshot.rows.bundle[snapshot.rows.reported])
    number = max(then.bundles, 1)
    unknown = then.msg_rate / number, then.throughput / number
    unloads = []
    for bundle in bundles:
        row = position.get(bundle)
        rates = _rates(averages, row) if row is not None and has_rates[row] else unknown
        unloads.append(Unload(bundle, source, None, *rates))
    return unloads


def _rates(averages: Averages, row: int) -> tuple[float, float]:
    incoming_messages, outgoing_messages, incoming_bytes, outgoing_bytes = averages.short[row].tolist()
    return incoming_messages + outgoing_messages, incoming_bytes + outgoing_bytes


def plan_drain(
    unloads: Iterable[Unload],
    destinations: Sequence[str],
    ledger: Ledger,
    preferred: Collection[str] = (),
    bound: Collection[str] = (),
) -> DrainMoves:
    """Plan a destination for each unload, or the reason why it has none.

    ``ledger`` judges with :data:`NOT_ITS_RULES` ignored, and is advanced. ``preferred`` destinations come first as long
    as they stay below the highest of the others; ``bound`` bundles may go to these alone.
    """
    moves: list[Unload] = []
    stay: list[Skip] = []
    level = max((ledger.predicted(broker) for broker in destinations if broker not in preferred), default=math.inf)
    for unload in sorted(unloads, key=lambda move: (-_weight(move, ledger), move.bundle)):
        first = {broker for broker in preferred if broker in destinations and ledger.predicted(broker) < level}
        allowed = [broker for broker in destinations if unload.bundle not in bound or broker in preferred]
        ranked = sorted(allowed, key=lambda broker: (broker not in first, ledger.predicted(broker), broker))
        move, refusals = first_that_may(unload, ranked, ledger)
        if move is None:
            stay.append(_together(unload.bundle, refusals))
        else:
            ledger.take(move)
            moves.append(move)
    return DrainMoves(tuple(moves), tuple(stay))


def _weight(unload: Unload, ledger: Ledger) -> float:
    points = ledger.rise(unload)
    return points if math.isfinite(points) else 0.0


def first_that_may(unload: Unload, ranked: Iterable[str], ledger: Ledger) -> tuple[Unload | None, list[Skip]]:
    """The unload to the first of these brokers that may have it, and the refusals of those before that."""
    refusals: list[Skip] = []
    for broker in ranked:
        named = replace(unload, destination=broker)
        refusal = ledger.refusal(named)
        if refusal is None:
            return named, refusals
        refusals.append(refusal)
    return None, refusals


def _together(bundle: str, refusals: Sequence[Skip]) -> Skip:
    """One reason for all destinations: that of the emptiest one without a forbidding rule, if there is any."""
    if not refusals:
        return Skip(bundle, Reason.DESTINATION_FORBIDDEN, "there is no other broker")
    full = next((skip for skip in refusals if skip.reason in BEYOND_CAPACITY), refusals[0])
    details = list(dict.fromkeys(skip.detail for skip in (full, *refusals) if skip.detail))
    more = f"; and {len(details) - WORDS} more reasons" if len(details) > WORDS else ""
    return Skip(bundle, full.reason, "; ".join(details[:WORDS]) + more)


def eta_seconds(bundles: Collection[str], at_once: int, seconds_each: float, *, by_name: bool) -> float:
    """Duration of moving these bundles, each ``seconds_each``, the pause after it included.

    Unless leaders keep a destination by the bundle's full name (``by_name``), bundles of one range wait for each other.
    """
    most = max(Counter(map(bundle_range, bundles)).values(), default=0)
    return seconds_each * max(math.ceil(len(bundles) / at_once), 0 if by_name else most)


# --- fill: a slice of each hot broker for an underloaded one, up to the cluster's mean
# Step by step the broker that is then the most loaded gives the largest bundle that neither lifts the filled broker
# above the mean nor lowers the giver below it; so nothing has to come back, and few bundles move.


def mean(scores: Mapping[str, float]) -> float:
    """Score, in points, at which all these brokers would be even; 0 without brokers."""
    return sum(scores.values()) / len(scores) if scores else 0.0


def plan_fill(
    candidates: Iterable[Unload], destination: str, scores: Mapping[str, float], ledger: Ledger
) -> DrainMoves:
    """Plan the moves to ``destination``; ``scores`` are those of all brokers that take part, in points.

    ``candidates`` are unloads without destination; those from brokers at or below the mean are skipped. ``ledger``
    judges, and is advanced. ``stay`` has the unloads that it refuses.
    """
    level = mean(scores)
    queues = _queues(candidates, destination, scores, level, ledger)
    source_scores = {source: scores[source] for source in queues}
    moves: list[Unload] = []
    stay: list[Skip] = []
    while source_scores:
        source = max(source_scores, key=lambda broker: (source_scores[broker], broker))
        room = min(level - ledger.predicted(destination), source_scores[source] - level)
        move = _next(queues[source], room, ledger, stay)
        if move is None:
            del source_scores[source]
            continue
        source_scores[source] -= ledger.rise(move)
        ledger.take(move)
        moves.append(move)
    return DrainMoves(tuple(moves), tuple(stay))


def _queues(
    candidates: Iterable[Unload], destination: str, scores: Mapping[str, float], level: float, ledger: Ledger
) -> dict[str, deque[Unload]]:
    """Bundles of each broker above the mean, the largest first, without those that weigh nothing."""
    by_source: dict[str, list[Unload]] = {}
    for move in candidates:
        if move.source != destination and scores.get(move.source, level) > level and ledger.rise(move) > 0:
            by_source.setdefault(move.source, []).append(replace(move, destination=destination))
    return {
        source: deque(sorted(unloads, key=lambda move: (-ledger.rise(move), move.bundle)))
        for source, unloads in by_source.items()
    }


def _next(queue: deque[Unload], room: float, ledger: Ledger, stay: list[Skip]) -> Unload | None:
    """The largest bundle with room for it. Room only shrinks, so a bundle that is too large stays too large."""
    while queue:
        move = queue.popleft()
        if ledger.rise(move) > room:
            continue
        refusal = ledger.refusal(move)
        if refusal is None:
            return move
        stay.append(refusal)
    return None
