"""Counters of pairs that fired in vain because a cap was used up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.model import counter_of
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.model import Decision, Hits, Memory, Pair
    from lbd.permit.limits import Permitted

CAPS = frozenset(
    {
        Reason.TURN_UNLOADS,
        Reason.TURN_TRAFFIC,
        Reason.HOUR_UNLOADS,
        Reason.DAY_UNLOADS,
        Reason.SOURCE_UNLOADS,
        Reason.DESTINATION_UNLOADS,
        Reason.NAMESPACE_UNLOADS,
    }
)
"""What there will be more of later, whatever the cluster looks like then."""


def memory_after(before: Mapping[str, Hits], decision: Decision, permitted: Permitted) -> Memory:
    """What the strategy remembers; of a pair that got nothing because of a cap, the counters ``before`` the turn.

    Firing clears a pair's counters. Waiting for eight samples anew, pairs that share a cap would be served one
    after the other, hours late; so they stand one below their limit, as under a hold.
    """
    found = dict(decision.memory.hits)
    kept_back = {skip.what for skip in permitted.skips if skip.reason in CAPS}
    served = {unload.source for unload in permitted.unloads}
    capped = {unload.source for unload in decision.unloads if unload.bundle in kept_back} - served
    for pair in decision.facts.pairs:
        if pair.fired and pair.source in capped:
            found |= _known(before, pair)
    return replace(decision.memory, hits=found)


def _known(before: Mapping[str, Hits], pair: Pair) -> dict[str, Hits]:
    keys = (counter_of(end, pair.pool) for end in (pair.source, pair.destination) if end is not None)
    return {key: before[key] for key in keys if key in before}
