"""The events that people are notified of: a pure function of what they were told before, and of what a turn left.

A refused order is no event: the person who gave it has the answer already.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from lbd.model import Result
from lbd.reason import Reason
from lbd.store.proposal import PLAN_SECONDS, Proposal
from lbd.text import counted, duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lbd.store.control import Pause
    from lbd.store.drains import Work
    from lbd.store.status import Status


Kind: TypeAlias = Literal["plan", "move", "failure", "blocked", "drain", "leader", "pause"]

NOT_SENT = "not-sent"
NO_FAILURE = frozenset({Result.LANDED, Result.GONE})
"""A bundle that was deleted or split while it moved is nobody's fault."""

BLOCKED_SECONDS = 900.0
"""As the alert LbdBlocked waits: between two waves brokers are often blocked for a turn or two."""

PAUSED_SECONDS = 4 * 3600.0
"""As the alert LbdPausedTooLong waits."""

PAUSED_AGAIN_SECONDS = 86_400.0
"""A pause that was told of and lasts is forgotten again."""

ORDERED = frozenset({Reason.PAUSED.label, Reason.QUIET_HOURS.label})
"""What blocks because a person wants it to."""


class EndedMove(msgspec.Struct, frozen=True, omit_defaults=True):
    """A move that has ended: ``result`` is that of its outcome, or ``not-sent``."""

    bundle: str
    result: str
    source: str | None = None
    destination: str | None = None
    owner: str | None = None
    detail: str = ""


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to tell. ``at`` is epoch seconds; ``ended``: it has ceased.

    ``scores`` are those of now, in points, of the brokers that the ``plan`` touches. ``broker`` is the drained one.
    """

    kind: Kind | Literal["test"]
    at: float
    text: str
    ended: bool = False
    broker: str = ""
    plan: Proposal | None = None
    scores: dict[str, float] = {}
    moves: list[EndedMove] = []


@dataclass(frozen=True)
class TurnEnd:
    """What a turn left. ``plan`` waits for approval, or is what an observing lbd would have begun.

    ``ended`` are the moves that ended since the turn before, ``works`` those of drains in force.
    """

    status: Status
    leads: bool = True
    plan: Proposal | None = None
    ended: tuple[EndedMove, ...] = ()
    works: tuple[Work, ...] = ()
    pause: Pause | None = None


@dataclass(frozen=True)
class Announced:
    """What people know. Times are epoch seconds.

    ``pairs`` are the brokers of the plan that was told of, ``drains`` the bundles that each drain was told to leave.
    """

    leads: bool = False
    pairs: frozenset[tuple[str, str]] = frozenset()
    planned_at: float = 0.0
    blocked_since: float | None = None
    blocked: bool = False
    drains: Mapping[str, frozenset[str]] = field(default_factory=dict)
    paused_since: float | None = None
    pause_told_at: float = 0.0


def news(told: Announced, now: TurnEnd) -> tuple[Announced, list[Event]]:
    """The events of a turn, and what people know with them."""
    found = _moves(now)
    for look in (_leader, _plan, _blocked, _drains, _pause):
        told, more = look(told, now)
        found += more
    return told, found


def merged(events: Iterable[Event]) -> list[Event]:
    """As one message tells them: all moves together, and of what changed more than once the last."""
    found: dict[tuple[str, str], Event] = {}
    for event in events:
        key = event.kind, event.broker
        before = found.pop(key, None)
        found[key] = event if before is None or not event.moves else _moved(event, [*before.moves, *event.moves])
    return list(found.values())


def _moves(now: TurnEnd) -> list[Event]:
    landed = [one for one in now.ended if one.result == Result.LANDED]
    failed = [one for one in now.ended if one.result not in NO_FAILURE]
    events = Event("move", now.status.at, ""), Event("failure", now.status.at, "")
    return [_moved(event, moves) for event, moves in zip(events, (landed, failed), strict=True) if moves]


def _moved(event: Event, moves: list[EndedMove]) -> Event:
    """The event with these moves."""
    if event.kind == "move":
        text = f"{counted(len(moves), 'bundle')} moved"
    else:
        numbers = ", ".join(f"{number} {result}" for result, number in Counter(one.result for one in moves).items())
        text = f"{counted(len(moves), 'move')} not made as planned: {numbers}"
    return msgspec.structs.replace(event, text=text, moves=moves)


def _leader(told: Announced, now: TurnEnd) -> tuple[Announced, Sequence[Event]]:
    """Where several lbds share a cluster; each tells of itself."""
    words = now.status.leader
    if now.leads == told.leads or words is None:
        return replace(told, leads=now.leads), ()
    return replace(told, leads=now.leads), [Event("leader", now.status.at, words, ended=not now.leads)]


def _plan(told: Announced, now: TurnEnd) -> tuple[Announced, Sequence[Event]]:
    """Noise makes plans of other bundles follow one another: news is a plan that moves between other brokers."""
    at, plan = now.status.at, now.plan
    if now.ended or at - told.planned_at > PLAN_SECONDS:  # it was applied, or is long gone
        told = replace(told, pairs=frozenset())
    if plan is None or not plan.unloads:
        return told, ()
    told = replace(told, planned_at=at)
    pairs = frozenset((move.source, move.destination) for move in plan.unloads)
    if pairs <= told.pairs:
        return told, ()
    number = counted(len(plan.unloads), "move")
    if now.status.observe_only:
        text = f"{number} would be made now, and lbd only observes"
    else:
        clients = f"{counted(plan.clients, 'client')} would reconnect"
        text = f"plan {plan.id} waits for approval: {number}, {clients}: lbd apply {plan.id}"
    scores = {one.id: one.score for one in now.status.brokers if one.id in plan.expected and one.score is not None}
    return replace(told, pairs=pairs), [Event("plan", at, text, plan=plan, scores=scores)]


def _blocked(told: Announced, now: TurnEnd) -> tuple[Announced, Sequence[Event]]:
    """A turn that saw nothing, or what a person has ordered, says nothing of it."""
    at, verdict = now.status.at, now.status.verdict
    if not now.leads:
        return replace(told, blocked_since=None, blocked=False), ()
    if verdict is None or verdict.kind == "unknown" or (verdict.kind == "blocked" and verdict.reason in ORDERED):
        return told, ()
    since = at if told.blocked_since is None else told.blocked_since
    lasted = duration_text(at - since)
    if verdict.kind != "blocked":
        text = f"not blocked any more, after {lasted}: {verdict.words}"
        ended = [Event("blocked", at, text, ended=True)] if told.blocked else ()
        return replace(told, blocked_since=None, blocked=False), ended
    told = replace(told, blocked_since=since)
    if told.blocked or at - since < BLOCKED_SECONDS:
        return told, ()
    return replace(told, blocked=True), [Event("blocked", at, f"for {lasted} {verdict.words}")]


def _drains(told: Announced, now: TurnEnd) -> tuple[Announced, Sequence[Event]]:
    """A drain looks again and again for what has come back: news is that other bundles stay."""
    if not now.leads:
        return told, ()
    known: dict[str, frozenset[str]] = {}
    found = []
    for work in now.works:
        before = told.drains.get(work.broker)
        if work.ended_at is None and before is not None:
            known[work.broker] = before
        elif work.ended_at is not None and work.exit_code:
            known[work.broker] = left = frozenset(one.bundle for one in work.left)
            if left != before:
                text = f"drain incomplete: {work.sentence}"
                found.append(Event("drain", now.status.at, text, broker=work.broker))
    return replace(told, drains=known), found


def _pause(told: Announced, now: TurnEnd) -> tuple[Announced, Sequence[Event]]:
    """The standbys have the pause as well, and leave it to the leader to tell of it."""
    at, pause = now.status.at, now.pause
    if not now.leads or pause is None or pause.until is not None or at - pause.since < PAUSED_SECONDS:
        return told, ()
    if told.paused_since == pause.since and at - told.pause_told_at < PAUSED_AGAIN_SECONDS:
        return told, ()
    lasted = f"for {duration_text(at - pause.since)}" if pause.since else "since nobody knows when"
    reason = pause.reason and f": {pause.reason}"
    text = f"paused {lasted}, and no end is set: by {pause.by}{reason}; lbd resume ends it"
    return replace(told, paused_since=pause.since, pause_told_at=at), [Event("pause", at, text)]
