"""The guardrails as a drain or a fill asks them: all but the caps for a turn, an hour and a day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.cycle.holds import found_holds, with_members
from lbd.daemon.requests import OVERRIDDEN_BARS, OVERRIDDEN_HOLDS
from lbd.load import scoring
from lbd.model import Permission
from lbd.permit.drained import marked
from lbd.permit.eligibility import bar_more, barred
from lbd.permit.limits import Ledger
from lbd.permit.own_topic import kept_bundles
from lbd.permit.ping_pong import Trips
from lbd.permit.policies import Policies
from lbd.pulsar.paths import keys_destinations_by_range
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lbd.cycle import Hold, Parts
    from lbd.daemon.situation import Situation
    from lbd.model import FloatArray, Snapshot, Unload

UNLIMITED = {
    "max_unloads_per_turn": 1 << 31,
    "max_traffic_per_turn": float("inf"),
    "max_unloads_per_hour": 0,
    "max_unloads_per_day": 0,
    "max_unloads_per_source_per_hour": 0,
    "max_unloads_per_destination_per_hour": 0,
    "max_unloads_per_namespace_per_hour": 0,
}
"""Limits in whose place those of the ``drain:`` section stand."""

NOT_ITS_HOLDS = frozenset({Reason.NO_IMPROVEMENT, Reason.MOVES_UNFINISHED})
"""It is not to bring brokers closer, and what is under way is its own."""


class Judge:
    """One look, and who may move in it. ``attempted_at`` are the bundles that rest; ``override`` passes limits.

    ``untold``: also what nobody tells the traffic of.
    """

    def __init__(
        self,
        parts: Parts,
        now: Situation,
        drained: frozenset[str],
        attempted_at: Mapping[str, float],
        *,
        override: bool,
        untold: bool = False,
    ) -> None:
        self._parts, self._now, self._override = parts, now, override
        self.drained = drained
        self.snapshot = now.observation.snapshot
        self.index = self.snapshot.brokers.index()
        self.scores = scoring.scores(self.snapshot.brokers, parts.weights)
        self.evidence = marked(now.evidence, self.snapshot, drained)
        self._ignored = OVERRIDDEN_BARS if override else frozenset[Reason]()
        tired = Trips(parts.sent(), self.snapshot.taken_at, parts.guardrails).tired
        known = self.snapshot, attempted_at, now.policies.isolation, parts.guardrails
        self.barred = barred(*known, tired=tired, untold=untold)
        for reason in self._ignored:
            self.barred[self.barred == reason.code] = 0
        if own := kept_bundles(self.snapshot.bundles, parts.leader_topic):
            self.barred = bar_more(self.barred, self.snapshot, own)

    @property
    def by_name(self) -> bool:
        """Whether every broker, any of which may come to lead, knows destinations by full names."""
        return not any(keys_destinations_by_range(version) for version in self.snapshot.brokers.versions)

    def hold(self) -> Hold | None:
        """What keeps everything from moving now; that brokers came or went is noted, where no turn has seen it yet."""
        passed = NOT_ITS_HOLDS | (OVERRIDDEN_HOLDS if self._override else frozenset())
        parts, seen, policies = self._parts, self._now.observation, self._now.policies
        kept = with_members(parts.store.load(), seen)
        parts.store.save(kept)
        known = kept.at(seen.snapshot.taken_at, parts.gap_seconds)
        holds = found_holds(parts, seen, self._now.evidence, known, policies, ())
        return next((hold for hold in holds if hold[0] not in passed), None)

    def ledger(
        self, snapshot: Snapshot, scores: FloatArray, unloads: Sequence[Unload], ignored: Collection[Reason]
    ) -> Ledger:
        """What judges each move, to be advanced by those that are let through."""
        policies = self._now.policies
        known = Permission(self.barred, self.evidence.fresh, self.evidence.paired, self.evidence.settled)
        return Ledger(
            snapshot,
            scores,
            Policies(policies.isolation, policies.groups, policies.active, self.drained),
            self._parts.guardrails.model_copy(update=UNLIMITED),
            unloads,
            sent=self._parts.sent(),
            permission=known,
            ignored=self._ignored | frozenset(ignored),
        )
