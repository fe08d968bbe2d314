"""AvgShedder: pair the most with the least loaded broker, and level each pair by half of its difference in traffic.

Source: PIP-364, Pulsar's AvgShedder.java (4.0.8 to 5.0.1). Pure: values in, a :class:`~lbd.model.Decision` out.

``profile: stock`` is what Pulsar does, to the last bit. ``profile: live`` differs where, and only where, one of the
settings ``sole_bundle``, ``measure``, ``background_load``, ``relays`` and ``negligible_points`` says so. Where Java's
answer depends on the order of a hash map (brokers of equal score, bundles of equal traffic), lbd orders by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.decide.avg_shedder.levelling import Levelling
from lbd.decide.avg_shedder.pairing import Round, pair_up
from lbd.load import scoring
from lbd.model import Decision, Facts, Skip
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.decide.avg_shedder.settings import AvgShedderSettings
    from lbd.load.scoring import Weights
    from lbd.model import Averages, Memory, Permission, Snapshot


def decide(
    snapshot: Snapshot,
    averages: Averages,
    permission: Permission,
    memory: Memory,
    settings: AvgShedderSettings,
    weights: Weights,
) -> Decision:
    """One round of AvgShedder.

    With fewer than two brokers to compare nothing is asked, as in Pulsar. Counters advance only for brokers with new
    evidence (:attr:`~lbd.model.Permission.counts`); in stock rounds that is every broker.
    """
    scores = scoring.scores(snapshot.brokers, weights)
    binding = scoring.binding(snapshot.brokers, weights)
    comparable = int((permission.paired == 0).sum())
    if comparable < 2:
        few = Skip(
            "cluster", Reason.TOO_FEW_BROKERS, f"{comparable} of {len(snapshot.brokers)} reports can be compared"
        )
        return Decision((), (few,), memory, Facts(scores, binding), permission.barred.copy())
    seen = Round(snapshot.brokers.ids, scores, permission, settings)
    pairs, remembered = pair_up(seen, memory)
    facts = Facts(scores, binding, pairs)
    levelling = Levelling(snapshot, averages, permission, settings, facts)
    facts = replace(facts, pairs=tuple(levelling.serve(pair) for pair in pairs))
    skips = tuple(levelling.skips) if pairs else (Skip("cluster", Reason.BALANCED, _balanced(seen)),)
    return Decision(tuple(levelling.unloads), skips, remembered, facts, levelling.verdicts)


def _balanced(seen: Round) -> str:
    points = seen.scores[seen.permission.paired == 0]
    gap = float(points.max() - points.min())
    return f"largest difference {gap:.1f} points, low threshold {seen.settings.low_threshold:g}"
