"""One look at the cluster: the round as observed, and the facts that everything later in a turn goes by."""

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
from lbd.permit.evidence import JOINED_SECONDS, judge, watched, without
from lbd.permit.facts import Facts
from lbd.permit.membership import Membership
from lbd.permit.policies import Policies
from lbd.permit.predicted import hidden_since, last_ended_at, shown_since, unshown, with_moved_traffic
from lbd.permit.slow import UNCHECKED, judged_round

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from lbd.act.executor import FinishedMoves
    from lbd.model import FloatArray, Memory, Snapshot, Unload
    from lbd.observe.observer import Observation
    from lbd.permit.budget import Sent
    from lbd.permit.evidence import Evidence, Sample
    from lbd.permit.slow import Health
    from lbd.store.state import TurnMemory
    from lbd.turn.parts import Parts


@dataclass(frozen=True, eq=False)
class Assessment:
    """A round as observed, and its facts. ``before`` is what the last turn left, as far as it still holds."""

    observation: Observation
    facts: Facts
    before: TurnMemory


def look(parts: Parts, touched: Collection[str] = ()) -> Assessment:
    """Observe one round, and judge it by what is remembered; nothing is saved.

    ``touched`` are the brokers of moves since the last round. Raises :class:`~lbd.errors.LbdError` as observing and
    reading do.
    """
    turn_memory, drained, sent = parts.store.load(), parts.drained(), parts.past.sent
    observation = _with_live_cpu(parts, parts.observer.observe(), turn_memory, sent)
    snapshot, interval = observation.snapshot, observation.sample_interval_seconds
    judged = judge(turn_memory.samples, snapshot, parts.planning.weights, interval)
    health = _health(parts, turn_memory, snapshot, judged.scores)
    evidence = without_slow(marked(without(judged, snapshot, touched), snapshot, drained), snapshot, health)
    averages = running.update(parts.store.load_averages(snapshot.taken_at), snapshot, evidence.fresh)
    since = hidden_since(snapshot, interval)
    snapshot = with_moved_traffic(snapshot, [request for request in sent if request.at > since])
    closed = drained | slow_brokers(evidence, snapshot)
    policies = Policies(
        parts.policies.isolation(), active=observation.active, drained=closed, unserved=parts.unserved()
    )
    if parts.heeds_properties:
        policies = replace(policies, consents=Consents(parts.policies.consents(()), snapshot.taken_at))
    before = turn_memory.at(snapshot.taken_at, parts.gap_seconds, parts.planning.chosen.counted_by)
    facts = Facts(
        snapshot=snapshot,
        averages=averages,
        evidence=evidence,
        policies=policies,
        members=_members(before).updated(observation.active, snapshot.taken_at),
        memory=before.memory,
        progress=before.progress,
        changed_at=before.changed_at,
        attempted_at=parts.past.attempted_at,
        sent=sent,
        ordered_hold=parts.ordered_hold(),
        leaderless=_leaderless(observation),
        shedding=_shedding(observation),
        system_topics=observation.system_topics,
        sample_interval_seconds=interval,
        unshown=unshown(evidence.scores, sent, snapshot, evidence.settled, interval),
    )
    facts = replace(facts, joined=_joined(facts))
    return Assessment(replace(observation, snapshot=snapshot), facts, before)


def _joined(facts: Facts) -> frozenset[str]:
    since, brokers = facts.now - JOINED_SECONDS, facts.snapshot.brokers
    live, samples = brokers.ids_where(brokers.shows_live), facts.evidence.samples
    joined = frozenset(broker for broker in live if samples[broker].joined_at > since)
    return frozenset() if facts.members.departures else joined


def _members(turn_memory: TurnMemory) -> Membership:
    return Membership(
        active=tuple(turn_memory.members),
        since=turn_memory.members_since,
        joined=tuple(turn_memory.members_joined),
        departed=tuple(turn_memory.members_left),
        departures=tuple(turn_memory.departures),
    )


def with_members(turn_memory: TurnMemory, members: Membership) -> TurnMemory:
    """The memory, with the active brokers, and when some last came or went."""
    return msgspec.structs.replace(
        turn_memory,
        members=list(members.active),
        members_since=members.since,
        members_joined=list(members.joined),
        members_left=list(members.departed),
        departures=list(members.departures),
    )


def _shedding(observation: Observation) -> str:
    if not observation.shedding_on:
        return ""
    todo = "set loadBalancerSheddingEnabled=false (dynamic) before lbd may move"
    return f"{', '.join(observation.shedding_on)} shed by themselves; {observation.shedding_note or todo}"


def _leaderless(observation: Observation) -> str:
    """Brokers replace a leader that has died; a leader that hangs keeps its session."""
    if observation.leader is not None:
        return ""
    message = observation.leaderless or "no broker leads"
    if observation.silent:
        return f"{message}: one that hangs, as {observation.silent[0]} may, leads until it is restarted"
    return f"{message}; one that has died is replaced after a while"


def _health(parts: Parts, turn_memory: TurnMemory, snapshot: Snapshot, scores: FloatArray) -> Health:
    """Which brokers are slow; none where slow brokers are not avoided."""
    if not parts.planning.guardrails.avoid_slow_brokers:
        return UNCHECKED
    return judged_round(turn_memory.health, parts.health(snapshot), snapshot, scores)


def _with_live_cpu(
    parts: Parts, observation: Observation, turn_memory: TurnMemory, sent: Collection[Sent]
) -> Observation:
    """The round with the present CPU of the brokers that a recent move or a plan under way depends on."""
    snapshot = observation.snapshot
    points = dict(
        zip(snapshot.brokers.ids, scoring.scores(snapshot.brokers, parts.planning.weights).tolist(), strict=True)
    )
    watched_since = watched(turn_memory.samples, turn_memory.memory, points, snapshot.taken_at)
    if parts.rest is not None:
        began_at, brokers = parts.rest.began_at, parts.rest.expected.keys() & points.keys()
        ended_at = last_ended_at(sent, began_at)
        watched_since |= {
            broker: shown_since(began_at, ended_at.get(broker, began_at), snapshot.taken_at) for broker in brokers
        }
    if not watched_since:
        return observation
    return replace(observation, snapshot=parts.live(snapshot, watched_since, observation.sample_interval_seconds))


# --- what a turn adds: ownership changes of this round, and what came of earlier moves


def assess(parts: Parts, finished: FinishedMoves) -> Assessment:
    """The look of a turn. Raises as :func:`look` does."""
    now = look(parts, finished.touched)
    facts = replace(now.facts, unfinished=finished.unfinished)
    changed_at, taken_by_others = _changes(parts, facts)
    facts = replace(
        facts,
        changed_at=changed_at,
        taken_by_others=taken_by_others,
        progress=_progress(parts, facts),
        slopes=parts.learn(facts.snapshot.as_reported()),
    )
    return replace(now, facts=facts)


UNREPORTED_SECONDS = 300.0
"""A moved bundle shows up within two stats intervals, which are a minute by default."""


def _changes(parts: Parts, facts: Facts) -> tuple[dict[str, float], dict[str, tuple[str, str]]]:
    """When owners of bundles changed without lbd, and the changes of this round that no restart explains."""
    since = facts.now - parts.planning.guardrails.cool_down_minutes * 60
    resting = {bundle: min(at, facts.now) for bundle, at in facts.changed_at.items() if at > since}
    own_since = min(parts.watch.seen_at, facts.now) - UNREPORTED_SECONDS
    changes = parts.watch.changes(facts.snapshot)
    foreign = [bundle for bundle in changes.changed if facts.attempted_at.get(bundle, float("-inf")) < own_since]
    changed_at = {**resting, **dict.fromkeys(foreign, facts.now)} if facts.now > since else {}
    return changed_at, changes.unexplained(foreign, facts.snapshot)


def _progress(parts: Parts, facts: Facts) -> progress.Progress:
    if facts.unfinished:
        return replace(facts.progress, moving_at=facts.now) if facts.progress.planned_at else facts.progress
    snapshot = facts.snapshot
    jumped = [snapshot.brokers.ids[at] for at in np.flatnonzero(snapshot.segment_brokers).tolist()]
    before = progress.without(facts.progress, jumped)
    sent = before.planned_at > 0 and any(request.at >= before.planned_at for request in facts.sent)
    apart = _settled_gap(snapshot, facts.evidence)
    return progress.judged(before, apart, sent=sent, now=facts.now, guardrails=parts.planning.guardrails)


def _settled_gap(snapshot: Snapshot, evidence: Evidence) -> Callable[[str, str], float | None]:
    """Points between two brokers that have settled and whose reports are trusted."""
    scores = evidence.scores
    usable = evidence.settled & (evidence.paired == 0) & np.isfinite(scores)
    score = {snapshot.brokers.ids[at]: float(scores[at]) for at in np.flatnonzero(usable).tolist()}

    def apart(source: str, destination: str) -> float | None:
        return score[source] - score[destination] if source in score and destination in score else None

    return apart


def remembered(
    now: Assessment,
    memory: Memory,
    samples: dict[str, Sample],
    plan: tuple[Unload, ...],
    expected: Mapping[str, float],
    counted_by: str = "",
) -> TurnMemory:
    """The memory for the next turn: the facts, how far apart the brokers of ``plan`` are, and are ``expected`` to be.

    ``memory`` is the strategy's after the turn, ``samples`` are those with the brokers that the plan touches.
    """
    facts = now.facts
    return msgspec.structs.replace(
        with_members(now.before, facts.members).with_memory(memory),
        written_at=facts.now,
        samples=samples,
        changed_at=dict(facts.changed_at),
        progress=progress.planned(facts.progress, plan, facts.points, expected, facts.now),
        health=dict(facts.evidence.health.records),
        counted_by=counted_by,
    )
