"""Reasons for which a turn may not fire at all, and its notes on data and on holds that are overridden."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lbd.model import Skip
from lbd.permit.evidence import departures, settled_at
from lbd.permit.progress import standing_still
from lbd.permit.quiet_hours import quiet_until
from lbd.reason import Reason
from lbd.text import first_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lbd.model import Snapshot, Unload
    from lbd.observe.observer import Observation
    from lbd.permit.evidence import Evidence
    from lbd.permit.policies import Policies
    from lbd.store.state import TurnMemory
    from lbd.turn.parts import Hold, Parts


def current_holds(
    parts: Parts,
    observation: Observation,
    evidence: Evidence,
    turn_memory: TurnMemory,
    policies: Policies,
    unfinished: tuple[Unload, ...],
) -> Iterator[Hold]:
    """Why nothing may fire in this turn, the gravest first."""
    there = len(observation.active) - int(np.count_nonzero(evidence.paired == Reason.DRAINED.code))
    usable, wanted = int(np.count_nonzero(evidence.paired == 0)), max(2, (there + 1) // 2)
    lately, settle = turn_memory.departures, parts.guardrails.membership_settle_seconds
    settled = settled_at(turn_memory.members_since, lately, settle)
    ordered = parts.ordered_hold()
    if observation.shedding_on:
        names = ", ".join(observation.shedding_on)
        todo = "set loadBalancerSheddingEnabled=false (dynamic) before lbd may move"
        yield Reason.IN_BROKER_SHEDDING, f"{names} shed by themselves; {observation.shedding_note or todo}"
    if ordered is not None:
        yield ordered
    quiet = quiet_until(parts.guardrails.quiet_hours, observation.snapshot.taken_at)
    if quiet is not None:
        yield Reason.QUIET_HOURS, quiet[1]
    if observation.leader is None:
        yield Reason.LEADER_UNREACHABLE, _leaderless(observation)
    if observation.snapshot.taken_at < settled:
        remaining = settled - observation.snapshot.taken_at
        often = f" (some went {len(lately)} times within the hour)" if len(lately) > 1 else ""
        yield Reason.MEMBERSHIP_CHANGED, f"{_who_changed(turn_memory)}{often}, {remaining:.0f} s to wait"
    if usable < wanted:
        yield Reason.TOO_FEW_BROKERS, f"{usable} of {there} reports are usable, wanted {wanted}"
    if not policies.isolation.known:
        yield Reason.POLICY_UNKNOWN, f"{policies.isolation.problem}; a named destination bypasses them"
    tried = standing_still(turn_memory.progress, observation.snapshot.taken_at, parts.guardrails)
    if tried is not None:
        yield Reason.NO_IMPROVEMENT, tried
    if unfinished:
        yield Reason.MOVES_UNFINISHED, f"{len(unfinished)} under way"


def with_members(turn_memory: TurnMemory, observation: Observation) -> TurnMemory:
    """The memory, with when active brokers last came or went; the first round counts as no change."""
    members, now = list(observation.active), observation.snapshot.taken_at
    left = sorted(set(turn_memory.members) - set(members))
    gone = departures(turn_memory.departures, now, went=bool(left))
    if turn_memory.members == members:
        return msgspec.structs.replace(turn_memory, departures=gone)
    joined = sorted(set(members) - set(turn_memory.members)) if turn_memory.members else []
    return msgspec.structs.replace(
        turn_memory,
        members=members,
        members_since=now if turn_memory.members else 0.0,
        members_joined=joined,
        members_left=left,
        departures=gone,
    )


def _who_changed(turn_memory: TurnMemory) -> str:
    """The brokers of the last change, as text; the memory of an older lbd has no names."""
    changes = (turn_memory.members_left, "left"), (turn_memory.members_joined, "joined")
    return ", ".join(f"{first_names(brokers)} {what}" for brokers, what in changes if brokers) or "brokers came or went"


_DATA_DETAIL = {
    Reason.NO_NEW_SAMPLE: "CPU and bandwidth in its report have stood still for {minutes:.0f} min",
    Reason.REPORT_EMPTY: "had bundles in the last turn and reports none now: read in the middle of a stats run",
    Reason.FIRST_SAMPLE: "samples of a broker's first minutes hold its start-up work",
    Reason.IMPOSSIBLE_NUMBER: "a usage, limit or rate is NaN, negative or absurd",
    Reason.DRAINED: "in no pair, average or destination until lbd drain --release, its end or the broker's restart",
    Reason.UNKNOWN_RESOURCES: "no resource with a weight has a known limit",
}


def data_skips(observation: Observation, evidence: Evidence) -> Iterator[Skip]:
    """Brokers without a report, and brokers whose report is not trusted enough to move on."""
    for broker, why in observation.missing.items():
        yield Skip(broker, Reason.REPORT_MISSING, why)
    for broker, code in zip(observation.snapshot.brokers.ids, evidence.paired.tolist(), strict=True):
        if code:
            minutes = (observation.snapshot.taken_at - evidence.samples[broker].fresh_at) / 60
            slow = code == Reason.SLOW_BROKER.code
            detail = evidence.health.text(broker) if slow else _DATA_DETAIL[Reason.of(code)].format(minutes=minutes)
            yield Skip(broker, Reason.of(code), detail)


UNREPORTED_SECONDS = 300.0
"""A moved bundle shows up within two stats intervals, which are a minute by default."""


def unreported(parts: Parts, snapshot: Snapshot) -> Iterator[Skip]:
    """Bundles that were moved lately and are in no report yet: brokers count rates once a stats interval."""
    lately = {name: at for name, at in parts.attempted_at().items() if snapshot.taken_at - at < UNREPORTED_SECONDS}
    for bundle in sorted(lately.keys() - set(snapshot.bundles)) if lately else ():
        ago = snapshot.taken_at - lately[bundle]
        yield Skip(bundle, Reason.ON_NO_REPORT, f"asked to move {ago:.0f} s ago, no broker reports it yet")


PASSED_OVER = "lbd run would move nothing"


def ignored(parts: Parts, holds: Iterable[Hold]) -> Iterator[Skip]:
    """Holds that this turn ignores because it cannot act; a live turn would obey them."""
    for reason, detail in holds:
        if reason in parts.ignored_holds:
            yield Skip("cluster", reason, f"{PASSED_OVER}: {detail}")


def _leaderless(observation: Observation) -> str:
    """Brokers replace a leader that has died; a leader that hangs keeps its session."""
    message = observation.leaderless or "no broker leads"
    if observation.silent:
        return f"{message}: one that hangs, as {observation.silent[0]} may, leads until it is restarted"
    return f"{message}; one that has died is replaced after a while"
