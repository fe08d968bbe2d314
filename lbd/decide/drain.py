"""Where the bundles of a broker should go that is to own nothing, and whether the others can bear it. Pure.

The heaviest bundle is given first, to the broker with the lowest predicted score of those that every guardrail lets it
go to: several destinations, each filled evenly (the greedy rule of R. Graham, 1969, for machines that are alike).
Unlike a move that balances, a drain may leave a destination above its source, which is to have nothing in the end.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import Skip, Unload, bundle_range
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from lbd.load.carried import Carried
    from lbd.model import Averages, Snapshot
    from lbd.permit.limits import Ledger

BEYOND_CAPACITY = frozenset({Reason.DESTINATION_OVERLOADED, Reason.TOPIC_LIMIT})
"""Reasons that say that the other brokers cannot bear it, and not that a rule forbids it."""

NOT_ITS_RULES = frozenset({Reason.DESTINATION_ABOVE_SOURCE})
"""What a drain leaves out of the rules for destinations."""

WORDS = 3


@dataclass(frozen=True)
class Plan:
    """What is to move where, what stays and why, and the predicted score of each destination, in points."""

    unloads: tuple[Unload, ...] = ()
    stay: tuple[Skip, ...] = ()

    @property
    def beyond_capacity(self) -> tuple[Skip, ...]:
        """What stays because no broker can bear it: where there is any, the others cannot do without this broker."""
        return tuple(skip for skip in self.stay if skip.reason in BEYOND_CAPACITY)


def wanted(bundles: Iterable[str], source: str, snapshot: Snapshot, averages: Averages, then: Carried) -> list[Unload]:
    """The unloads of bundles that ``source`` owns, to nobody yet; ``averages`` are aligned with the round.

    A bundle that no report tells of counts as the average one of its broker: where brokers tell of their largest
    bundles only, what was told of it once holds no longer.
    """
    position = {name: at for at, name in enumerate(snapshot.bundles)}
    told = averages.samples > 0
    if snapshot.partial:
        told[told] = np.isin(np.flatnonzero(told), snapshot.rows.bundle[snapshot.rows.reported])
    number = max(then.bundles, 1)
    unknown = then.msg_rate / number, then.throughput / number
    found = []
    for bundle in bundles:
        at = position.get(bundle)
        rates = _rates(averages, at) if at is not None and told[at] else unknown
        found.append(Unload(bundle, source, None, *rates))
    return found


def _rates(averages: Averages, at: int) -> tuple[float, float]:
    incoming_messages, outgoing_messages, incoming_bytes, outgoing_bytes = averages.short[at].tolist()
    return incoming_messages + outgoing_messages, incoming_bytes + outgoing_bytes


def plan(unloads: Iterable[Unload], destinations: Sequence[str], ledger: Ledger) -> Plan:
    """A destination for each unload, or why it has none.

    ``ledger`` judges with :data:`NOT_ITS_RULES` ignored, and is advanced.
    """
    moves: list[Unload] = []
    stay: list[Skip] = []
    for unload in sorted(unloads, key=lambda one: (-_weight(one, ledger), one.bundle)):
        found = _placed(unload, destinations, ledger)
        if isinstance(found, Skip):
            stay.append(found)
        else:
            ledger.take(found)
            moves.append(found)
    return Plan(tuple(moves), tuple(stay))


def _weight(unload: Unload, ledger: Ledger) -> float:
    points = ledger.rise(unload)
    return points if math.isfinite(points) else 0.0


def _placed(unload: Unload, destinations: Sequence[str], ledger: Ledger) -> Unload | Skip:
    """The unload to the emptiest broker that may have it, or what all of them say."""
    refusals: list[Skip] = []
    for broker in sorted(destinations, key=lambda one: (ledger.predicted(one), one)):
        named = replace(unload, destination=broker)
        refusal = ledger.refusal(named)
        if refusal is None:
            return named
        refusals.append(refusal)
    return _together(unload.bundle, refusals)


def _together(bundle: str, refusals: Sequence[Skip]) -> Skip:
    """One reason for all destinations: that of the emptiest one which a rule does not forbid, if there is any."""
    if not refusals:
        return Skip(bundle, Reason.DESTINATION_FORBIDDEN, "there is no other broker")
    full = next((skip for skip in refusals if skip.reason in BEYOND_CAPACITY), refusals[0])
    told = list(dict.fromkeys(skip.detail for skip in (full, *refusals) if skip.detail))
    more = f"; and {len(told) - WORDS} more reasons" if len(told) > WORDS else ""
    return Skip(bundle, full.reason, "; ".join(told[:WORDS]) + more)


def eta_seconds(bundles: Collection[str], at_once: int, seconds_each: float, *, by_name: bool) -> float:
    """How long it takes to move these bundles, each ``seconds_each``, the pause after it included.

    Unless leaders know a destination by the bundle's full name (``by_name``), bundles of one range wait for each other.
    """
    most = max(Counter(map(bundle_range, bundles)).values(), default=0)
    return seconds_each * max(math.ceil(len(bundles) / at_once), 0 if by_name else most)
