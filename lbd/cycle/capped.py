"""Counters of pairs that fired in vain because a cap was used up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.model import CLUSTER, broker_of, counter_of
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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


def memory_after(before: Memory, decision: Decision, permitted: Permitted) -> Memory:
    """What the strategy remembers; of a pair that got nothing because of a cap, the counters ``before`` the turn.

    Firing clears a pair's counters. Waiting for eight samples anew, pairs that share a cap would be served one
    after the other, hours late; so they stand one below their limit, as under a hold. A counter that the strategy has
    for all brokers is kept where none of them got anything. Brokers of which nothing goes have not given.
    """
    found = dict(decision.memory.hits)
    kept_back = {skip.what for skip in permitted.skips if skip.reason in CAPS}
    served = {unload.source for unload in permitted.unloads}
    capped = {unload.source for unload in decision.unloads if unload.bundle in kept_back} - served
    fired = [pair for pair in decision.facts.pairs if pair.fired]
    moving = {pair.pool for pair in fired if pair.source in served}
    for pair in fired:
        if pair.source in capped:
            found |= _known(before.hits, pair, alone=pair.pool not in moving)
    return replace(decision.memory, hits=found, unloaded_at=_given(before, decision.memory, served))


def _known(before: Mapping[str, Hits], pair: Pair, *, alone: bool) -> dict[str, Hits]:
    ends = (pair.source, pair.destination, CLUSTER if alone else None)
    keys = (counter_of(end, pair.pool) for end in ends if end is not None)
    return {key: before[key] for key in keys if key in before}


def _given(before: Memory, after: Memory, served: Collection[str]) -> dict[str, float]:
    """When brokers last gave: of those that give nothing now, as it was before."""
    own = {counter: at for counter, at in after.unloaded_at.items() if broker_of(counter) in served}
    return {**{key: at for key, at in before.unloaded_at.items() if key in after.unloaded_at}, **own}
