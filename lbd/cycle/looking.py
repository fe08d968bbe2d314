"""What a turn knows before it decides: one round, judged by what is kept of those before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.cycle.calm import learned
from lbd.cycle.holds import with_members
from lbd.observe import averages as running
from lbd.permit.drained import marked
from lbd.permit.evidence import judge, without
from lbd.permit.policies import Policies

if TYPE_CHECKING:
    from lbd.act.orders import Ended
    from lbd.cycle.parts import Parts
    from lbd.model import Averages, Snapshot
    from lbd.observe.observer import Observation
    from lbd.permit.evidence import Evidence
    from lbd.record.state import Kept


@dataclass(frozen=True, eq=False)
class Look:
    """A round, and how far it is to be trusted. ``before`` is what the last turn left, ``kept`` what it is by now."""

    observation: Observation
    evidence: Evidence
    averages: Averages
    policies: Policies
    before: Kept
    kept: Kept

    @property
    def snapshot(self) -> Snapshot:
        """The round itself."""
        return self.observation.snapshot


def look(parts: Parts, ended: Ended) -> Look:
    """Observe. Nothing is saved yet. Raises :class:`~lbd.errors.LbdError` as observing and reading do."""
    observation = parts.observer.observe()
    snapshot = observation.snapshot
    before = parts.store.load().at(snapshot.taken_at, parts.gap_seconds)
    judged = judge(before.samples, snapshot, parts.weights, observation.sample_interval_seconds)
    drained = parts.drained()
    evidence = marked(without(judged, snapshot, ended.touched), snapshot, drained)
    averages = running.update(parts.store.load_averages(snapshot.taken_at), snapshot, evidence.fresh)
    kept = learned(parts, with_members(before, observation), snapshot, evidence, ended.unfinished)
    policies = Policies(parts.isolation(), active=observation.active, drained=drained)
    return Look(observation, evidence, averages, policies, before, kept)
