"""Facts of a turn before it decides: ownership changes, effects of earlier moves, and reports that are evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.load import scoring
from lbd.observe import averages as running
from lbd.permit import progress
from lbd.permit.consent import Consents
from lbd.permit.eligibility import marked, slow_brokers, without_slow
from lbd.permit.evidence import judge, watched, without
from lbd.permit.policies import Policies
from lbd.permit.predicted import hidden_since, last_ended_at, shown_since, with_moved_traffic
from lbd.permit.slow import UNCHECKED, judged_round
from lbd.turn.holds import UNREPORTED_SECONDS, with_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lbd.act.executor import FinishedMoves
    from lbd.model import Averages, FloatArray, Snapshot, Unload
    from lbd.observe.observer import Observation
    from lbd.permit.evidence import Evidence
    from lbd.permit.slow import Health
    from lbd.store.state import TurnMemory
    from lbd.turn.parts import Parts


def updated_memory(
    parts: Parts, turn_memory: TurnMemory, snapshot: Snapshot, evidence: Evidence, unfinished: tuple[Unload, ...]
) -> TurnMemory:
    """The memory with the ownership changes of this round, and with its judgement of earlier moves."""
    updated = msgspec.structs.replace(turn_memory, changed_at=_changed_at(parts, turn_memory, snapshot))
    if unfinished:
        under_way = replace(turn_memory.progress, moving_at=snapshot.taken_at)
        return msgspec.structs.replace(updated, progress=under_way) if turn_memory.progress.planned_at else updated
    return msgspec.structs.replace(updated, progress=_progress(parts, turn_memory, snapshot, evidence))


def _changed_at(parts: Parts, turn_memory: TurnMemory, snapshot: Snapshot) -> dict[str, float]:
    now, attempted_at = snapshot.taken_at, parts.attempted_at()
    since = now - parts.guardrails.cool_down_minutes * 60
    known = {bundle: min(at, now) for bundle, at in turn_memory.changed_at.items() if at > since}
    own_since = min(parts.watch.seen_at, now) - UNREPORTED_SECONDS
    changes = parts.watch.changes(snapshot)
    foreign = (bundle for bundle in changes if attempted_at.get(bundle, float("-inf")) < own_since)
    return {**known, **dict.fromkeys(foreign, now)} if now > since else {}


def _progress(parts: Parts, turn_memory: TurnMemory, snapshot: Snapshot, evidence: Evidence) -> progress.Progress:
    jumped = [snapshot.brokers.ids[at] for at in np.flatnonzero(snapshot.segment_brokers).tolist()]
    before = progress.without(turn_memory.progress, jumped)
    sent = before.planned_at > 0 and any(one.at >= before.planned_at for one in parts.sent())
    scores = scoring.scores(snapshot.brokers, parts.weights)
    apart = _settled_gap(snapshot, scores, evidence)
    return progress.judged(before, apart, sent=sent, now=snapshot.taken_at, guardrails=parts.guardrails)


def _settled_gap(snapshot: Snapshot, scores: FloatArray, evidence: Evidence) -> Callable[[str, str], float | None]:
    """Points between two brokers that have settled and whose reports are trusted."""
    usable = evidence.settled & (evidence.paired == 0) & np.isfinite(scores)
    score = {snapshot.brokers.ids[at]: float(scores[at]) for at in np.flatnonzero(usable).tolist()}

    def apart(source: str, destination: str) -> float | None:
        return score[source] - score[destination] if source in score and destination in score else None

    return apart


def start_progress(
    turn_memory: TurnMemory,
    plan: tuple[Unload, ...],
    snapshot: Snapshot,
    scores: FloatArray,
    expected: Mapping[str, float],
) -> TurnMemory:
    """The memory before acting: how far apart the brokers of this plan are, and are ``expected`` to be.

    ``scores`` is float64 (B,), both are in points.
    """
    score = dict(zip(snapshot.brokers.ids, scores.tolist(), strict=True))
    started = progress.planned(turn_memory.progress, plan, score, expected, snapshot.taken_at)
    return msgspec.structs.replace(turn_memory, progress=started)


# --- assessment of one round


@dataclass(frozen=True, eq=False)
class Observed:
    """The brokers' reports, and how far they are to be trusted, judged by ``turn_memory``.

    Nothing may move to ``closed`` brokers: those that are drained, and those that are slow.
    """

    observation: Observation
    evidence: Evidence
    averages: Averages
    closed: frozenset[str]
    turn_memory: TurnMemory


def observed(parts: Parts, touched: Iterable[str] = ()) -> Observed:
    """Observe one round; ``touched`` are the brokers of moves since the last one. Nothing is saved.

    Raises :class:`~lbd.errors.LbdError` as observing and reading do.
    """
    turn_memory, drained = parts.store.load(), parts.drained()
    observation = _with_live_cpu(parts, parts.observer.observe(), turn_memory)
    snapshot = observation.snapshot
    judged = judge(turn_memory.samples, snapshot, parts.weights, observation.sample_interval_seconds)
    health = _health(parts, turn_memory, snapshot)
    turn_memory = msgspec.structs.replace(turn_memory, health=dict(health.records))
    evidence = without_slow(marked(without(judged, snapshot, touched), snapshot, drained), snapshot, health)
    averages = running.update(parts.store.load_averages(snapshot.taken_at), snapshot, evidence.fresh)
    since = hidden_since(snapshot, observation.sample_interval_seconds)
    lately = [one for one in parts.sent() if one.at > since]
    moved = with_moved_traffic(snapshot, lately)
    closed = drained | slow_brokers(evidence, snapshot)
    return Observed(replace(observation, snapshot=moved), evidence, averages, closed, turn_memory)


def _health(parts: Parts, turn_memory: TurnMemory, snapshot: Snapshot) -> Health:
    """Which brokers are slow; none where slow brokers are not avoided."""
    if not parts.guardrails.avoid_slow_brokers:
        return UNCHECKED
    return judged_round(turn_memory.health, parts.health(snapshot), snapshot, parts.weights)


def _with_live_cpu(parts: Parts, observation: Observation, turn_memory: TurnMemory) -> Observation:
    """The round with the present CPU of the brokers that a recent move or a plan under way depends on."""
    snapshot = observation.snapshot
    points = dict(zip(snapshot.brokers.ids, scoring.scores(snapshot.brokers, parts.weights).tolist(), strict=True))
    watched_since = watched(turn_memory.samples, turn_memory.memory, points, snapshot.taken_at)
    if parts.rest is not None:
        began_at, brokers = parts.rest.began_at, parts.rest.expected.keys() & points.keys()
        ended_at = last_ended_at(parts.sent(), began_at)
        watched_since |= {
            broker: shown_since(began_at, ended_at.get(broker, began_at), snapshot.taken_at) for broker in brokers
        }
    if not watched_since:
        return observation
    return replace(observation, snapshot=parts.live(snapshot, watched_since, observation.sample_interval_seconds))


@dataclass(frozen=True, eq=False)
class Assessment:
    """A round, and how far it is to be trusted.

    ``before`` is the memory that the last turn saved, ``turn_memory`` the same with what this round adds.
    """

    observation: Observation
    evidence: Evidence
    averages: Averages
    policies: Policies
    before: TurnMemory
    turn_memory: TurnMemory

    @property
    def snapshot(self) -> Snapshot:
        """The round itself."""
        return self.observation.snapshot


def assess(parts: Parts, finished: FinishedMoves) -> Assessment:
    """Observe and judge a turn's round. Raises as :func:`observed` does."""
    facts = observed(parts, finished.touched)
    observation, snapshot = facts.observation, facts.observation.snapshot
    before = facts.turn_memory.at(snapshot.taken_at, parts.gap_seconds)
    turn_memory = updated_memory(
        parts, with_members(before, observation), snapshot, facts.evidence, finished.unfinished
    )
    policies = Policies(parts.isolation(), active=observation.active, drained=facts.closed, unserved=parts.unserved())
    if parts.consents is not None:
        policies = replace(policies, consents=Consents(parts.consents(()), snapshot.taken_at))
    return Assessment(observation, facts.evidence, facts.averages, policies, before, turn_memory)
