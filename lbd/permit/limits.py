"""How much of a plan may happen: predicted load of each destination, caps per turn. Pure, and blind to the strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.load import prediction
from lbd.model import Skip, Unload, bundle_namespace
from lbd.permit.evidence import IMPOSSIBLE_NUMBER
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lbd.model import CodeArray, FloatArray, Snapshot
    from lbd.permit.policies import Groups, Isolation
    from lbd.permit.settings import Guardrails


@dataclass(frozen=True)
class Permitted:
    """What of a plan may happen, and what not and why."""

    unloads: tuple[Unload, ...]
    skips: tuple[Skip, ...]


class Ledger:
    """Predicted scores and used-up caps of one turn, advanced by each unload that is let through.

    ``paired`` is int8 (B,): the reason code of brokers whose reports are not to be trusted, else 0.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        scores: FloatArray,
        isolation: Isolation,
        groups: Groups,
        guardrails: Guardrails,
        plan: Iterable[Unload],
        *,
        paired: CodeArray | None = None,
    ) -> None:
        self._brokers, self._scores, self._guardrails = snapshot.brokers, scores, guardrails
        self._position = snapshot.brokers.index()
        self._isolation, self._groups = isolation, groups
        self._doubt = np.zeros(len(snapshot.brokers), dtype=np.int8) if paired is None else paired
        self._predicted = scores.copy()
        self._topics = snapshot.brokers.topics.copy()
        self._bundle_topics = _topics_of(snapshot, {unload.bundle for unload in plan})
        rates = snapshot.brokers.rates
        totals = np.where((rates > 0) & (rates <= IMPOSSIBLE_NUMBER), rates, 0).sum(axis=0)
        self._messages_left = float(totals[0] + totals[1]) * guardrails.max_traffic_per_turn
        self._bytes_left = float(totals[2] + totals[3]) * guardrails.max_traffic_per_turn
        self._unloads_left = guardrails.max_unloads_per_turn or max(10, len(snapshot.bundles) // 100)
        self._any = False

    def refusal(self, unload: Unload) -> Skip | None:
        """Why this unload may not happen; None when it may."""
        return (
            self._bound(unload) or self._no_destination(unload) or self._too_much_load(unload) or self._over_cap(unload)
        )

    def accepts(self, unload: Unload, owner: str) -> bool:
        """Whether a bundle that landed on ``owner`` instead may stay there; its load counts there then."""
        moved = Unload(unload.bundle, unload.source, owner, unload.msg_rate, unload.throughput)
        if self._no_destination(moved) or self._too_much_load(moved):
            return False
        self._predicted[self._position[owner]] += self._rise(moved)
        return True

    def take(self, unload: Unload) -> None:
        """Count an unload that will happen."""
        destination = self._position[unload.destination or ""]
        self._predicted[destination] += self._rise(unload)
        self._topics[destination] += self._bundle_topics.get(unload.bundle, 0)
        self._messages_left -= unload.msg_rate
        self._bytes_left -= unload.throughput
        self._unloads_left -= 1
        self._any = True

    def _rise(self, unload: Unload) -> float:
        return prediction.points(unload, self._brokers, self._scores, self._position)

    def _bound(self, unload: Unload) -> Skip | None:
        reason = self._groups.reason(bundle_namespace(unload.bundle))
        return Skip(unload.bundle, *reason) if reason is not None else None

    def _no_destination(self, unload: Unload) -> Skip | None:
        destination = unload.destination
        if destination is None or destination not in self._position or destination == unload.source:
            return Skip(unload.bundle, Reason.DESTINATION_FORBIDDEN, f"{destination} gives no load report")
        doubt = int(self._doubt[self._position[destination]])
        if doubt:
            told = f"the report of {destination} is not to be trusted: {Reason.of(doubt).label}"
            return Skip(unload.bundle, Reason.DESTINATION_FORBIDDEN, told)
        if self._isolation.reserves(destination):
            return Skip(unload.bundle, Reason.DESTINATION_FORBIDDEN, f"{destination} is primary of an isolation policy")
        topics = int(self._topics[self._position[destination]]) + self._bundle_topics.get(unload.bundle, 0)
        if topics > self._guardrails.max_topics_per_broker:
            return Skip(
                unload.bundle,
                Reason.TOPIC_LIMIT,
                f"{destination} would hold {topics} topics, limit {self._guardrails.max_topics_per_broker}",
            )
        return None

    def _too_much_load(self, unload: Unload) -> Skip | None:
        destination, source = self._position[unload.destination or ""], self._position[unload.source]
        predicted = float(self._predicted[destination]) + self._rise(unload)
        limit = self._guardrails.max_destination_score
        if not predicted <= limit:
            return Skip(
                unload.bundle,
                Reason.DESTINATION_OVERLOADED,
                f"{unload.destination} would reach {predicted:.1f} points, limit {limit:g}",
            )
        if not predicted < self._scores[source]:
            return Skip(
                unload.bundle,
                Reason.DESTINATION_ABOVE_SOURCE,
                f"{unload.destination} would reach {predicted:.1f}, {unload.source} has {self._scores[source]:.1f}",
            )
        return None

    def _over_cap(self, unload: Unload) -> Skip | None:
        if self._unloads_left <= 0:
            return Skip(unload.bundle, Reason.TURN_UNLOADS, "guardrails.max_unloads_per_turn is used up")
        if self._any and (unload.msg_rate > self._messages_left or unload.throughput > self._bytes_left):
            left = f"{unload.msg_rate:.0f} msg/s, {max(self._messages_left, 0):.0f} left"
            return Skip(unload.bundle, Reason.TURN_TRAFFIC, f"{left} of guardrails.max_traffic_per_turn")
        return None


def permit(plan: Iterable[Unload], ledger: Ledger) -> Permitted:
    """Let each unload of a plan through, in the plan's order, as long as every limit holds after it."""
    allowed: list[Unload] = []
    skips: list[Skip] = []
    for unload in plan:
        refusal = ledger.refusal(unload)
        if refusal is None:
            ledger.take(unload)
            allowed.append(unload)
        else:
            skips.append(refusal)
    return Permitted(tuple(allowed), tuple(skips))


def _topics_of(snapshot: Snapshot, wanted: set[str]) -> dict[str, int]:
    """Topics of the bundles wanted; of one on two reports, the larger number."""
    topics = snapshot.rows.counts[:, 0]
    rows = (
        [row for row, at in enumerate(snapshot.rows.bundle.tolist()) if snapshot.bundles[at] in wanted]
        if wanted
        else []
    )
    found: dict[str, int] = {}
    for row in rows:
        name = snapshot.bundles[int(snapshot.rows.bundle[row])]
        found[name] = max(found.get(name, 0), int(topics[row]))
    return found
