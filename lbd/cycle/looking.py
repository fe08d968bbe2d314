"""One round, judged by what is kept of those before; and what a turn knows by it before it decides."""

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
    from collections.abc import Iterable

    from lbd.act.orders import Ended
    from lbd.cycle.parts import Parts
    from lbd.model import Averages, Snapshot
    from lbd.observe.observer import Observation
    from lbd.permit.evidence import Evidence
    from lbd.record.state import Kept


@dataclass(frozen=True, eq=False)
class Observed:
    """What the brokers report, and how far that is to be trusted by what was ``kept``.

    Nothing may move to those that are ``drained``.
    """

    observation: Observation
    evidence: Evidence
    averages: Averages
    drained: frozenset[str]
    kept: Kept


def observed(parts: Parts, touched: Iterable[str] = ()) -> Observed:
    """A round; ``touched`` are brokers of moves since the last one. Nothing is saved.

    Raises :class:`~lbd.errors.LbdError` as observing and reading do.
    """
    observation = parts.observer.observe()
    snapshot, kept, drained = observation.snapshot, parts.store.load(), parts.drained()
    judged = judge(kept.samples, snapshot, parts.weights, observation.sample_interval_seconds)
    evidence = marked(without(judged, snapshot, touched), snapshot, drained)
    averages = running.update(parts.store.load_averages(snapshot.taken_at), snapshot, evidence.fresh)
    return Observed(observation, evidence, averages, drained, kept)


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
    """A turn's round. Raises as :func:`observed` does."""
    seen = observed(parts, ended.touched)
    observation, snapshot = seen.observation, seen.observation.snapshot
    before = seen.kept.at(snapshot.taken_at, parts.gap_seconds)
    kept = learned(parts, with_members(before, observation), snapshot, seen.evidence, ended.unfinished)
    policies = Policies(parts.isolation(), active=observation.active, drained=seen.drained)
    return Look(observation, seen.evidence, seen.averages, policies, before, kept)
