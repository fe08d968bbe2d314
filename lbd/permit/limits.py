"""How much of a plan may happen: predicted load of each destination, caps per turn. Pure, for any strategy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.scoring import AT_LIMIT_POINTS, Weights
from lbd.model import Skip, Unload, bundle_namespace
from lbd.permit.budget import Budget, TrafficShare
from lbd.permit.policies import GroupSpread
from lbd.permit.predicted import Predictor, Rise
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from lbd.model import FloatArray, Permission, Snapshot
    from lbd.permit.budget import Sent
    from lbd.permit.ping_pong import Trips
    from lbd.permit.policies import Policies
    from lbd.permit.rule import Refusing, Rule
    from lbd.permit.settings import Guardrails

EVERYBODYS = Weights()


@dataclass(frozen=True)
class Permitted:
    """The unloads of a plan that may happen, and why each of the others may not."""

    unloads: tuple[Unload, ...]
    skips: tuple[Skip, ...]


KEPT_PART = 0.6
"""Share of a source's predicted fall that may fail to appear. Estimates take its idle load for its traffic's, and near
its limit CPU hides how much there is to do: on real brokers of 0.3 core 84 points fell to 67, where 52 were predicted.
A neighbour's load does not leave with bundles: nine tenths may stay, and must show (tests/scenarios/test_neighbour.py).
"""


class Ledger:
    """Predicted scores and used-up caps of one turn, advanced by each unload that is let through.

    Questions change nothing (:meth:`refusal`, :meth:`may_stay`); what happens is counted once, by a ``take`` method.
    ``sent`` is what was sent within the last day, ``unshown`` float64 (B,) the points of moves that reports do not show
    yet, and ``trips`` how often bundles moved. What ``permission`` forbids is refused whatever a strategy answers; then
    the ``rules`` are asked about the move, its destination and the plan. Limits with a reason in ``ignored`` are
    counted and not held. ``budget`` is that of hours and days.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        scores: FloatArray,
        policies: Policies,
        guardrails: Guardrails,
        plan: Iterable[Unload],
        *,
        rules: Iterable[Rule],
        trips: Trips,
        sent: Collection[Sent] = (),
        unshown: FloatArray | None = None,
        permission: Permission | None = None,
        ignored: frozenset[Reason] = frozenset(),
        weights: Weights = EVERYBODYS,
    ) -> None:
        self._scores, self._guardrails = scores, guardrails
        self._position = snapshot.brokers.index()
        self._policies, self._spread = policies, GroupSpread(snapshot, policies)
        self._unshown = np.zeros_like(scores) if unshown is None else unshown
        self._predicted = scores + self._unshown
        slopes = permission.slopes if permission is not None else None
        self._predictor = Predictor(snapshot, scores, slopes, weights)
        self._topics = snapshot.brokers.topics.copy()
        self._bundle_position = snapshot.positions_of({unload.bundle for unload in plan})
        self._bundle_topics = _topic_counts(snapshot, self._bundle_position)
        self._permission, self._ignored = permission, ignored
        self._snapshot = snapshot
        self._planned, self._sent = TurnCaps(snapshot, guardrails), TurnCaps(snapshot, guardrails)
        self.budget = Budget(snapshot, sent, guardrails, ignored)
        self._trips = trips
        own = [rule for rule in rules if rule.reason not in ignored]
        self._refusing = [rule.refuses for rule in own if rule.refuses is not None]
        self._forbidding = [rule.forbids for rule in own if rule.forbids is not None]
        self._capping = [rule.caps for rule in own if rule.caps is not None]
        self._taken: dict[str, Unload] = {}

    def refusal(self, unload: Unload) -> Skip | None:
        """Why this unload may not happen; None when it may."""
        return (
            self._not_permitted(unload)
            or self._first(self._refusing, unload)
            or self._no_destination(unload)
            or self._first(self._capping, unload)
        )

    def may_stay(self, unload: Unload, owner: str) -> bool:
        """Whether a bundle that this unload would bring to ``owner`` instead may stay there. Changes nothing."""
        return self._no_destination(self._landed(unload, owner)) is None

    def take_landing(self, unload: Unload, owner: str) -> None:
        """Count a bundle that landed on ``owner`` instead, once; its destination keeps the load that was planned."""
        if owner in self._position:
            self._take_load(self._landed(unload, owner))
        self._spread.take(replace(unload, source=self._counted_at(unload), destination=owner))

    def sending_refusal(self, unload: Unload, sent: Iterable[Sent], now: float) -> Skip | None:
        """Why a planned unload, or its retry, may not be sent ``now`` (epoch seconds) after all that was ``sent``.

        All caps are those of the plan, whose own requests count with all others: a retry is one of them. Where the load
        would go is not asked again: it was counted when the plan was made.
        """
        capped = self._sent.refusal(unload)
        if capped is not None and capped.reason not in self._ignored:
            return capped
        return Budget(self._snapshot, sent, self._guardrails, self._ignored, now).refusal(unload)

    def take_sending(self, unload: Unload) -> None:
        """Count a request that is sent."""
        self._sent.take(unload)

    def take(self, unload: Unload) -> None:
        """Count an unload that will happen."""
        self._take_load(unload)
        self._spread.take(unload)
        self._planned.take(unload)
        self._taken[unload.bundle] = unload
        self.budget.take(unload)

    def _take_load(self, unload: Unload) -> None:
        destination = self._position[unload.destination or ""]
        self._predicted[destination] += self._rise(unload).points
        self._topics[destination] += self._bundle_topics.get(unload.bundle, 0)

    def _landed(self, unload: Unload, owner: str) -> Unload:
        """The move that happened: from the planned source, where a retry begins elsewhere, to the owner."""
        return replace(self._taken.get(unload.bundle, unload), destination=owner)

    def _counted_at(self, unload: Unload) -> str:
        """Where its group counts the bundle: at the destination once the unload was counted, else at the source."""
        planned = self._taken.get(unload.bundle)
        return unload.source if planned is None else planned.destination or ""

    def predicted(self, broker: str) -> float:
        """The score of a broker, in points, once all that was counted has landed there."""
        return float(self._predicted[self._position[broker]])

    def expected(self, taken: Iterable[Unload]) -> dict[str, float]:
        """Scores, in points, of the brokers that these unloads touch, once all have landed: see ``predicted.py``."""
        scores: dict[str, float] = {}
        for unload in taken:
            source, destination = unload.source, unload.destination or ""
            before = scores.get(source, float(self._predicted[self._position[source]]))
            scores[source] = max(before - self._predictor.fall(unload), 0.0)
            scores[destination] = float(self._predicted[self._position[destination]])
        return scores

    def expected_at_most(self, taken: Iterable[Unload], above_points: float) -> dict[str, float]:
        """Scores that may be exceeded by ``above_points``; a source may keep :data:`KEPT_PART` of its fall.

        A source at the end of its CPU may have any score, infinite: its score hides how much there is to do.
        """
        expected = self.expected(taken)
        for source in {unload.source for unload in taken}:
            before = float(self._predicted[self._position[source]])
            allowance = max(KEPT_PART * (before - expected[source]) - above_points, 0.0)
            expected[source] = math.inf if before >= AT_LIMIT_POINTS else expected[source] + allowance
        return expected

    def explained(self, unload: Unload) -> Unload:
        """The unload; where two predictions differ, its reason names both."""
        words = self._rise(unload).words
        reason = "; ".join(filter(None, (unload.reason, f"{unload.destination}{words}")))
        return replace(unload, reason=reason) if words else unload

    def rise(self, unload: Unload) -> float:
        """Points that an unload is expected to add to its destination: see ``predicted.py``."""
        return self._rise(unload).points

    def _rise(self, unload: Unload) -> Rise:
        destination = self._position.get(unload.destination or "")
        return self._predictor.rise(unload, float(self._predicted[destination]) if destination is not None else None)

    def _not_permitted(self, unload: Unload) -> Skip | None:
        """Why the permission, which each strategy should respect, or the moves before this one forbid it."""
        bundle, permission = self._bundle_position.get(unload.bundle), self._permission
        if permission is not None and permission.hold is not None:
            return Skip(unload.bundle, permission.hold)
        if permission is not None and bundle is not None and permission.barred[bundle]:
            return Skip(unload.bundle, Reason.of(int(permission.barred[bundle])))
        if unload.bundle in self._taken:
            return Skip(unload.bundle, Reason.NOT_NEEDED, "this plan moves it already")
        if unload.source not in self._position:
            return Skip(unload.bundle, Reason.OWNER_CHANGED, f"{unload.source} gives no load report")
        return None

    def _no_destination(self, unload: Unload) -> Skip | None:
        """Why the destination cannot have the bundle."""
        destination = unload.destination
        if destination is None or destination not in self._position or destination == unload.source:
            return Skip(unload.bundle, Reason.DESTINATION_FORBIDDEN, f"{destination} gives no load report")
        return self._first(self._forbidding, unload)

    def _first(self, rules: Iterable[Refusing], unload: Unload) -> Skip | None:
        for rule in rules:
            if (skip := rule(self, unload)) is not None:
                return skip
        return None

    # --- what the rules about single moves answer (``permit/rules.py``)

    def moved_lately(self, unload: Unload) -> Skip | None:
        """Why the move would be one too many of its bundle, or straight back."""
        return _skip(unload, self._trips.refusal(unload))

    def namespace_stays(self, unload: Unload) -> Skip | None:
        """Why bundles of its namespace stay, whatever their destination."""
        return _skip(unload, self._policies.unmovable(bundle_namespace(unload.bundle)))

    def doubted(self, unload: Unload) -> Skip | None:
        """Why the destination is left out of a turn."""
        destination = self._position[unload.destination or ""]
        doubt = int(self._permission.paired[destination]) if self._permission is not None else 0
        return _skip(unload, _left_out(unload.destination or "", Reason.of(doubt))) if doubt else None

    def outside_policies(self, unload: Unload) -> Skip | None:
        """Why isolation policies forbid the destination."""
        return _skip(unload, self._policies.forbids(bundle_namespace(unload.bundle), unload.destination or ""))

    def outside_group(self, unload: Unload) -> Skip | None:
        """Why its anti-affinity group, which counts it where it was planned to be, forbids the destination."""
        source = self._counted_at(unload)
        return _skip(unload, self._spread.refusal(replace(unload, source=source)))

    def too_many_topics(self, unload: Unload) -> Skip | None:
        """How many topics the destination would have, if too many."""
        most = self._guardrails.max_topics_per_broker
        topics = int(self._topics[self._position[unload.destination or ""]]) + self._bundle_topics.get(unload.bundle, 0)
        if topics <= most:
            return None
        return Skip(unload.bundle, Reason.TOPIC_LIMIT, f"{unload.destination} would hold {topics} topics, limit {most}")

    def over_turn(self, unload: Unload) -> Skip | None:
        """Which cap of the turn is used up."""
        return self._planned.refusal(unload)

    def over_budget(self, unload: Unload) -> Skip | None:
        """Which budget of an hour or a day is used up."""
        return self.budget.refusal(unload)

    def too_much_load(self, unload: Unload) -> Skip | None:
        """The score that the destination would reach, if that is too much."""
        destination, source = self._position[unload.destination or ""], self._position[unload.source]
        rise = self._rise(unload)
        words = rise.words + self._lately(destination)
        predicted = float(self._predicted[destination]) + rise.points
        limit = self._guardrails.max_destination_score
        if not np.isfinite(predicted):
            detail = (
                f"the load that it would add to {unload.destination} is not known: {unload.source} reports no traffic"
            )
            return Skip(unload.bundle, Reason.DESTINATION_OVERLOADED, detail)
        if not predicted <= limit:
            return Skip(
                unload.bundle,
                Reason.DESTINATION_OVERLOADED,
                f"{unload.destination} would reach {predicted:.1f} points{words}, limit {limit:g}",
            )
        if Reason.DESTINATION_ABOVE_SOURCE not in self._ignored and not predicted < self._scores[source]:
            return Skip(
                unload.bundle,
                Reason.DESTINATION_ABOVE_SOURCE,
                f"{unload.destination} would reach {predicted:.1f}{words}, "
                f"{unload.source} has {self._scores[source]:.1f}",
            )
        return None

    def _lately(self, broker: int) -> str:
        points = self._unshown[broker]
        return f" (+{points:.1f} by moves of late that its report does not show yet)" if points > 0 else ""


class TurnCaps:
    """The caps of one turn: a number of unloads, and a share of the cluster's traffic."""

    def __init__(self, snapshot: Snapshot, guardrails: Guardrails) -> None:
        self._most = guardrails.max_unloads_per_turn or max(10, len(snapshot.bundles) // 100)
        self._traffic = TrafficShare(snapshot, guardrails.max_traffic_per_turn)
        self._taken = 0

    def refusal(self, unload: Unload) -> Skip | None:
        """Why one more unload would be too much; None where it is not."""
        if self._taken >= self._most:
            detail = f"{self._taken} of {self._most} used (guardrails.max_unloads_per_turn)"
            return Skip(unload.bundle, Reason.TURN_UNLOADS, detail)
        if self._traffic.refuses(unload):
            detail = f"{unload.msg_rate:,.0f} msg/s, {max(self._traffic.msg_rate_left, 0):,.0f} left"
            return Skip(unload.bundle, Reason.TURN_TRAFFIC, f"{detail} of guardrails.max_traffic_per_turn")
        return None

    def take(self, unload: Unload) -> None:
        """Count an unload."""
        self._taken += 1
        self._traffic.take(unload)


def permit(plan: Iterable[Unload], ledger: Ledger) -> Permitted:
    """Let each unload of a plan through, in the plan's order, as long as every limit holds after it."""
    allowed: list[Unload] = []
    skips: list[Skip] = []
    for unload in plan:
        refusal = ledger.refusal(unload)
        if refusal is None:
            explained = ledger.explained(unload)
            ledger.take(explained)
            allowed.append(explained)
        else:
            skips.append(refusal)
    return Permitted(tuple(allowed), tuple(skips))


def _skip(unload: Unload, why: tuple[Reason, str] | None) -> Skip | None:
    return Skip(unload.bundle, *why) if why is not None else None


def _left_out(broker: str, reason: Reason) -> tuple[Reason, str]:
    """Why a broker that is left out gets nothing."""
    if reason is Reason.DRAINED:
        return reason, f"{broker} is being drained"
    if reason is Reason.SLOW_BROKER:
        return reason, f"{broker} is slow"
    return Reason.DESTINATION_FORBIDDEN, f"the report of {broker} is not to be trusted: {reason.label}"


def _topic_counts(snapshot: Snapshot, positions: dict[str, int]) -> dict[str, int]:
    """Topics of the bundles at these ``positions``, by name; for a bundle on two reports the larger number."""
    most = np.zeros(len(snapshot.bundles), dtype=np.int64)
    rows = np.flatnonzero(np.isin(snapshot.rows.bundle, list(positions.values())))
    np.maximum.at(most, snapshot.rows.bundle[rows], _topics(snapshot)[rows])
    return {name: int(most[at]) for name, at in positions.items()}


def _topics(snapshot: Snapshot) -> NDArray[np.int64]:
    """Topics of each row, int64 (M,); one without statistics gets an equal part of its broker's remaining topics."""
    rows = snapshot.rows
    if not snapshot.partial or rows.reported.all():
        return rows.counts[:, 0]
    owner, reported = rows.owner(), np.where(rows.reported, rows.counts[:, 0], 0)
    unreported = snapshot.brokers.topics - np.bincount(owner, reported, len(snapshot.brokers))
    each = np.ceil(np.maximum(unreported, 0) / np.maximum(rows.count(~rows.reported), 1)).astype(np.int64)
    return np.where(rows.reported, reported, each[owner])
