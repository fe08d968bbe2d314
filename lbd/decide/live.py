"""Help for every strategy in ``profile: live``, beside its own rule. Pure.

A rule reads the present from load reports alone, and forgets what it moved. The planner knows more, and hands it on:

- No bundle counts for less than its latest traffic. Its mean of ten samples knows a fifth of a jump that two samples
  have proven, and with it twice as much would move as is needed.
- A source at :data:`~lbd.load.scoring.AT_LIMIT_POINTS` or more is as urgent as one beyond the high threshold: its score
  cannot rise with its work.
- A broker that gave bundles within :data:`~lbd.permit.evidence.GOES_ON_SECONDS`, is still far off, and shows its
  present CPU, gives more without new hits: the remainder of an imbalance, after limits cut a plan or a destination was
  full, needs no proof of its own.
- A broker that joined lately takes without hits: it stays empty without moves.

``profile: stock`` is the rule alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.load import scoring
from lbd.load.scoring import AT_LIMIT_POINTS
from lbd.permit.evidence import gave_lately

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.load.scoring import Weights
    from lbd.model import Averages, Decision, Memory, Permission, Snapshot

    Rule = Callable[[Snapshot, Averages, Permission, Memory], Decision]


@dataclass(frozen=True)
class ByLatestTraffic:
    """A strategy for which no bundle counts for less than its latest traffic."""

    rule: Rule

    def __call__(self, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision:
        """The strategy's decision."""
        return self.rule(snapshot, averages.at_least(snapshot.rows), permission, memory)


@dataclass(frozen=True)
class HitsInContext:
    """A rule that counts hits, with the sources for which fewer or none are needed, and the memory of these.

    A source is remembered from its moves until it is no longer far off. It is forgotten only once all have settled,
    because a few brokers do not show how far it is.
    """

    rule: Rule
    weights: Weights

    def __call__(self, snapshot: Snapshot, averages: Averages, permission: Permission, memory: Memory) -> Decision:
        """The rule's decision, with the time of their last moves in its memory."""
        brokers, lately = snapshot.brokers, gave_lately(memory, snapshot.taken_at)
        decision = self.rule(
            snapshot,
            averages,
            replace(
                permission,
                goes_on=frozenset(lately.keys() & brokers.ids_where(brokers.shows_live)),
                at_limit=scoring.scores(brokers, self.weights) >= AT_LIMIT_POINTS,
            ),
            memory,
        )
        compared, settled = (permission.paired == 0).sum(), ((permission.paired == 0) & permission.settled).sum()
        far_off = {pair.source for pair in decision.comparison.pairs}
        if compared < 2 or settled < compared:
            far_off |= lately.keys()
        gave = {broker: time for broker, time in lately.items() if broker in far_off}
        gives = dict.fromkeys((unload.source for unload in decision.unloads), snapshot.taken_at)
        return replace(decision, memory=replace(decision.memory, unloaded_at=gave | gives))
