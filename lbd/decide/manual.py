"""Strategies for people: one ordered unload, exactly the moves of a plan, and a plan that waits. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.bundles import WITH_CLUSTER
from lbd.load import scoring
from lbd.model import BYTES_IN, BYTES_OUT, MSG_IN, MSG_OUT, Comparison, Decision, Skip, Unload
from lbd.permit.eligibility import source_left_out
from lbd.reason import Reason
from lbd.text import duration_text, minutes_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.decide.strategies import Strategy
    from lbd.load.scoring import Weights
    from lbd.model import Averages, Memory, Permission, Snapshot


@dataclass(frozen=True)
class ByHand:
    """One bundle from its owner to a named broker; everything but the order is judged as in any other turn.

    ``remedy`` is the advice about a rest of the bundle; ``tried_at`` the time of its last move or attempt (epoch
    seconds; None: unknown), and ``rests_minutes`` the length of its rest then.
    """

    bundle: str
    destination: str
    weights: Weights
    reason: str
    remedy: str = "; --override REASON passes this"
    tried_at: float | None = None
    rests_minutes: float = 0.0

    def __call__(self, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision:
        """The unload, or the reason why it is impossible."""
        scores = scoring.scores(snapshot.brokers, self.weights)
        comparison = Comparison(scores, scoring.binding(snapshot.brokers, self.weights))
        ordered = self._wanted(snapshot, averages, permission)
        unloads = (ordered,) if isinstance(ordered, Unload) else ()
        skips = (ordered,) if isinstance(ordered, Skip) else ()
        return Decision(unloads, skips, memory, comparison, permission.barred.copy())

    def _wanted(self, snapshot: Snapshot, averages: Averages, permission: Permission) -> Unload | Skip:
        if permission.hold is not None:
            return Skip(self.bundle, permission.hold)
        if self.bundle in snapshot.bundles:
            row = snapshot.bundles.index(self.bundle)
            if permission.barred[row]:
                return self._barred(snapshot, row, permission)
        unload = wanted_unload(self.bundle, snapshot, averages)
        if isinstance(unload, Unload) and unload.source == self.destination:
            return Skip(self.bundle, Reason.DESTINATION_FORBIDDEN, f"{unload.source} has it already")
        return unload if isinstance(unload, Skip) else replace(unload, destination=self.destination, reason=self.reason)

    def _barred(self, snapshot: Snapshot, row: int, permission: Permission) -> Skip:
        reason = Reason.of(int(permission.barred[row]))
        details = {
            Reason.ISOLATION_POLICY: next((pool.nobody for pool in permission.pools if pool.bundles[row]), ""),
            Reason.COOL_DOWN: f"it was moved, or tried, {self._rest(snapshot.taken_at)}{self.remedy}",
            Reason.CHANGED_HANDS: f"its owner changed a while ago, and not by lbd{self.remedy}",
            Reason.PING_PONG: f"it moved often of late, or came from there{self.remedy}",
            Reason.TOPIC_COST: f"a topic of Pulsar's own in it never moves (guardrails.topic_costs){self.remedy}",
            Reason.NAME_WITH_CLUSTER: WITH_CLUSTER,
            Reason.NO_STATISTICS: "no broker reports its traffic (loadBalancerMaxNumberOfBundlesInBundleLoadReport)",
            Reason.REPORTED_TWICE: f"by {' and '.join(snapshot.owners(row))}; moved lately, or a stale report",
        }
        return Skip(self.bundle, reason, details.get(reason, ""))

    def _rest(self, now: float) -> str:
        if self.tried_at is None:
            return "a while ago"
        rests = duration_text(self.rests_minutes * 60)
        return f"{minutes_text(now - self.tried_at)} ago, and rests for {rests} (guardrails.cool_down_minutes)"


def wanted_unload(bundle: str, snapshot: Snapshot, averages: Averages) -> Unload | Skip:
    """The bundle's unload from the broker that reports it, without a destination; or why reports do not suffice."""
    if bundle not in snapshot.bundles:
        return Skip(bundle, Reason.ON_NO_REPORT, "no broker reports it: is it a bundle, and in use?")
    row = snapshot.bundles.index(bundle)
    if averages.samples[row] == 0:
        return Skip(bundle, Reason.NO_STATISTICS, "no report has its traffic yet")
    short = averages.short[row]
    messages, volume = float(short[MSG_IN] + short[MSG_OUT]), float(short[BYTES_IN] + short[BYTES_OUT])
    return Unload(bundle, snapshot.owners(row)[0], None, messages, volume)


# --- the moves of a plan

Wanted = tuple[str, str, str]
"""Bundle, source and destination of a move."""


@dataclass(frozen=True)
class ByPlan:
    """These moves, each from the broker that had the bundle when it was planned; all else is judged as in any turn."""

    moves: tuple[Wanted, ...]
    weights: Weights
    reason: str

    def __call__(self, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision:
        """The moves that are still possible, and the reason for each that is not."""
        scores = scoring.scores(snapshot.brokers, self.weights)
        comparison = Comparison(scores, scoring.binding(snapshot.brokers, self.weights))
        decisions = [self._judged(move, snapshot, averages, permission, memory) for move in self.moves]
        unloads = tuple(unload for decision in decisions for unload in decision.unloads)
        skips = tuple(skip for decision in decisions for skip in decision.skips)
        return Decision(unloads, skips, memory, comparison, permission.barred.copy())

    def _judged(
        self, move: Wanted, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory
    ) -> Decision:
        bundle, source, destination = move
        wish = ByHand(bundle, destination, self.weights, self.reason, remedy="")
        decision = wish(snapshot, averages, permission, memory)
        if not decision.unloads:
            return decision
        unload = decision.unloads[0]
        skip = self._changed(unload, source) or source_left_out(unload, snapshot.brokers.index(), permission)
        skip = skip or _settling(unload, snapshot, permission)
        return decision if skip is None else replace(decision, unloads=(), skips=(skip,))

    @staticmethod
    def _changed(unload: Unload, source: str) -> Skip | None:
        message = f"{unload.source} has it, {source} had it when it was planned"
        return Skip(unload.bundle, Reason.OWNER_CHANGED, message) if unload.source != source else None


@dataclass(frozen=True)
class Standing:
    """A strategy, and before its own moves those of a proposal without new facts; ``moves`` have reasons.

    Brokers sample at different times, so in one round only some pairs can fire. The moves of a source whose pair waits
    stay in the plan, and are judged anew with the others.
    """

    strategy: Strategy
    moves: Mapping[Wanted, str]
    weights: Weights

    def __call__(self, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision:
        """The strategy's decision, with the planned moves that still stand."""
        decision = self.strategy(snapshot, averages, permission, memory)
        fired = {pair.source for pair in decision.comparison.pairs if pair.fired}
        waiting = {pair.source for pair in decision.comparison.pairs} - fired
        waiting_moves = tuple(move for move in self.moves if move[1] in waiting)
        if not waiting_moves or permission.hold is not None:
            return decision
        still = ByPlan(waiting_moves, self.weights, "")(snapshot, averages, permission, memory).unloads
        reasons = {bundle: reason for (bundle, _, _), reason in self.moves.items()}
        standing = tuple(replace(unload, reason=reasons[unload.bundle]) for unload in still)
        return replace(decision, unloads=(*standing, *decision.unloads))


def _settling(unload: Unload, snapshot: Snapshot, permission: Permission) -> Skip | None:
    """A skip if reports lag behind the last moves at one end: a plan would level the same difference twice."""
    index = snapshot.brokers.index()
    moved = [end for end in (unload.source, unload.destination) if end in index and not permission.settled[index[end]]]
    message = f"moved to, moved from or restarted lately, which reports do not show yet: {', '.join(moved)}"
    return Skip(unload.bundle, Reason.SETTLING, message) if moved else None
