"""Facts of a turn before it decides: ownership changes, effects of earlier moves, and reports that are evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.load import scoring
from lbd.observe import averages as running
from lbd.permit import progress
from lbd.permit.eligibility import marked
from lbd.permit.evidence import judge, watched, without
from lbd.permit.policies import Policies
from lbd.permit.predicted import UNSHOWN_SAMPLES, with_moved_traffic
from lbd.turn.holds import UNREPORTED_SECONDS, with_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lbd.act.executor import FinishedMoves
    from lbd.model import Averages, FloatArray, Snapshot, Unload
    from lbd.observe.observer import Observation
    from lbd.permit.evidence import Evidence
    from lbd.store.state import TurnMemory
    from lbd.turn.parts import Parts


def learned(
    parts: Parts, kept: TurnMemory, snapshot: Snapshot, evidence: Evidence, unfinished: tuple[Unload, ...]
) -> TurnMemory:
    """What is kept, with the ownership changes and the judgement of moves that this round brings."""
    found = msgspec.structs.replace(kept, changed_at=_changed_at(parts, kept, snapshot))
    if unfinished:
        under_way = replace(kept.progress, moving_at=snapshot.taken_at)
        return msgspec.structs.replace(found, progress=under_way) if kept.progress.planned_at else found
    return msgspec.structs.replace(found, progress=_progress(parts, kept, snapshot, evidence))


def _changed_at(parts: Parts, kept: TurnMemory, snapshot: Snapshot) -> dict[str, float]:
    now, attempted_at = snapshot.taken_at, parts.attempted_at()
    since = now - parts.guardrails.cool_down_minutes * 60
    known = {bundle: min(at, now) for bundle, at in kept.changed_at.items() if at > since}
    foreign = (
        bundle
        for bundle in parts.watch.changes(snapshot)
        if now - attempted_at.get(bundle, float("-inf")) > UNREPORTED_SECONDS
    )
    return {**known, **dict.fromkeys(foreign, now)} if now > since else {}


def _progress(parts: Parts, kept: TurnMemory, snapshot: Snapshot, evidence: Evidence) -> progress.Progress:
    sent = any(one.at >= kept.progress.planned_at for one in parts.sent()) if kept.progress.planned_at else False
    scores = scoring.scores(snapshot.brokers, parts.weights)
    apart = _settled_gap(snapshot, scores, evidence)
    return progress.judged(kept.progress, apart, sent=sent, now=snapshot.taken_at, guardrails=parts.guardrails)


def _settled_gap(snapshot: Snapshot, scores: FloatArray, evidence: Evidence) -> Callable[[str, str], float | None]:
    """Points between two brokers that have settled and whose reports are trusted."""
    usable = evidence.settled & (evidence.paired == 0) & np.isfinite(scores)
    score = {snapshot.brokers.ids[at]: float(scores[at]) for at in np.flatnonzero(usable).tolist()}

    def apart(source: str, destination: str) -> float | None:
        return score[source] - score[destination] if source in score and destination in score else None

    return apart


def start_progress(
    kept: TurnMemory, plan: tuple[Unload, ...], snapshot: Snapshot, scores: FloatArray, expected: Mapping[str, float]
) -> TurnMemory:
    """What is kept before acting: how far apart the brokers of this plan are, and are ``expected`` to be.

    ``scores`` is float64 (B,), both are in points.
    """
    score = dict(zip(snapshot.brokers.ids, scores.tolist(), strict=True))
    found = progress.planned(kept.progress, plan, score, expected, snapshot.taken_at)
    return msgspec.structs.replace(kept, progress=found)


# --- assessment of one round


@dataclass(frozen=True, eq=False)
class Observed:
    """What the brokers report, and how far that is to be trusted by what was ``kept``.

    Nothing may move to those that are ``drained``.
    """

    observation: Observation
    evidence: Evidence
    averages: Averages
    drained: frozenset[str]
    kept: TurnMemory


def observed(parts: Parts, touched: Iterable[str] = ()) -> Observed:
    """A round; ``touched`` are brokers of moves since the last one. Nothing is saved.

    Raises :class:`~lbd.errors.LbdError` as observing and reading do.
    """
    kept, drained = parts.store.load(), parts.drained()
    observation = _with_live_cpu(parts, parts.observer.observe(), kept)
    snapshot = observation.snapshot
    judged = judge(kept.samples, snapshot, parts.weights, observation.sample_interval_seconds)
    evidence = marked(without(judged, snapshot, touched), snapshot, drained)
    averages = running.update(parts.store.load_averages(snapshot.taken_at), snapshot, evidence.fresh)
    since = snapshot.taken_at - UNSHOWN_SAMPLES * observation.sample_interval_seconds
    lately = [one for one in parts.sent() if one.at > since]
    moved = with_moved_traffic(snapshot, lately)
    return Observed(replace(observation, snapshot=moved), evidence, averages, drained, kept)


def _with_live_cpu(parts: Parts, observation: Observation, kept: TurnMemory) -> Observation:
    """The round with the present CPU of the brokers on which something depends by now."""
    snapshot = observation.snapshot
    points = dict(zip(snapshot.brokers.ids, scoring.scores(snapshot.brokers, parts.weights).tolist(), strict=True))
    asked = watched(kept.samples, kept.memory, points, snapshot.taken_at)
    if parts.rest is not None:
        asked |= {broker: parts.rest.began_at for broker in parts.rest.expected if broker in points}
    if parts.rest is not None:
        asked |= {broker: parts.rest.began_at for broker in parts.rest.expected if broker in points}
    found = parts.live(snapshot, asked, observation.sample_interval_seconds) if asked else snapshot
    return replace(observation, snapshot=found)


@dataclass(frozen=True, eq=False)
class Assessment:
    """A round, and how far it is to be trusted. ``before`` is what the last turn left, ``kept`` what it is by now."""

    observation: Observation
    evidence: Evidence
    averages: Averages
    policies: Policies
    before: TurnMemory
    kept: TurnMemory

    @property
    def snapshot(self) -> Snapshot:
        """The round itself."""
        return self.observation.snapshot


def assess(parts: Parts, ended: FinishedMoves) -> Assessment:
    """A turn's round. Raises as :func:`observed` does."""
    seen = observed(parts, ended.touched)
    observation, snapshot = seen.observation, seen.observation.snapshot
    before = seen.kept.at(snapshot.taken_at, parts.gap_seconds)
    kept = learned(parts, with_members(before, observation), snapshot, seen.evidence, ended.unfinished)
    policies = Policies(parts.isolation(), active=observation.active, drained=seen.drained)
    return Assessment(observation, seen.evidence, seen.averages, policies, before, kept)
