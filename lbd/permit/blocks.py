"""Why a source can give no bundle at present, and when that ends. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lbd.model import Skip, Unload
from lbd.reason import Group, Reason
from lbd.text import minutes_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.model import BoolArray, CodeArray, Pair, Snapshot
    from lbd.permit.budget import Budget
    from lbd.permit.settings import Guardrails


def block(
    pair: Pair,
    snapshot: Snapshot,
    barred: CodeArray,
    budget: Budget,
    resting_since: Mapping[str, float],
    guardrails: Guardrails,
    within: BoolArray | None = None,
) -> Skip | None:
    """The used-up budget, or what all bundles of the source wait for; None if one of them could be moved now.

    ``barred`` is int8 (N,), reason codes; ``resting_since`` is when bundles were last attempted or changed hands. Where
    the pair has a ``why``, its strategy may choose other destinations than the pair's. ``within``, bool (N,), are the
    bundles of the pair's pool; None: there are no pools.
    """
    used_up = budget.refusal(Unload(pair.ends, pair.source, None if pair.why else pair.destination, 0.0, 0.0))
    if used_up is not None:
        return used_up
    rows = snapshot.rows.of(snapshot.brokers.index()[pair.source])
    busy = snapshot.rows.bundle[rows][(snapshot.rows.rates[rows] > 0).any(axis=1)]
    own = (busy if within is None else busy[within[busy]]).tolist()
    bars = {snapshot.bundles[bundle]: Reason.of(int(barred[bundle])) for bundle in own if barred[bundle]}
    limits = Counter(reason for reason in bars.values() if reason.group is Group.LIMIT)
    if not limits or len(bars) < len(own):
        return None
    reason, number = limits.most_common(1)[0]
    summary = f"{number} of {len(own)} bundles with traffic may not move"
    if reason is Reason.CANARY:
        return Skip(pair.ends, reason, f"{summary} until guardrails.canary is widened")
    since = [resting_since[name] for name, bar in bars.items() if bar is reason and name in resting_since]
    if reason is Reason.PING_PONG or not since:
        return Skip(pair.ends, reason, f"{summary} (guardrails.max_moves_per_bundle)")
    until = min(since) + guardrails.cool_down_minutes * 60
    wait = minutes_text(until - snapshot.taken_at)
    detail = f"{summary}, the first one may in {wait} (guardrails.cool_down_minutes)"
    return Skip(pair.ends, reason, detail, until=until)
