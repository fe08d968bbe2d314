"""The events to announce to people: a pure function of earlier announcements and of the end of a turn.

A refused order is no event: its author has the response already.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from lbd.model import Result
from lbd.reason import Reason
from lbd.store.proposal import PLAN_SECONDS, Proposal
from lbd.store.status import steps_now
from lbd.text import counted, duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lbd.store.control import Pause
    from lbd.store.drains import Work
    from lbd.store.status import Status


Kind: TypeAlias = Literal["plan", "move", "failure", "blocked", "drain", "leader", "pause"]

NOT_SENT = "not-sent"
NO_FAILURE = frozenset({Result.LANDED, Result.GONE})
"""Results without a failure: a bundle that was deleted or split while it moved is no fault of a broker."""

BLOCKED_SECONDS = 900.0
"""Time before a block is announced, as for the alert LbdBlocked: between two waves, short blocks are usual."""

PAUSED_SECONDS = 4 * 3600.0
"""Time before a pause is announced, as for the alert LbdPausedTooLong."""

PAUSED_AGAIN_SECONDS = 86_400.0
"""Interval of further announcements of a pause, because people forget it."""

ORDERED = frozenset({Reason.PAUSED.label, Reason.QUIET_HOURS.label})
"""Reasons to block that a person has ordered."""


class EndedMove(msgspec.Struct, frozen=True, omit_defaults=True):
    """A move that has ended: ``result`` is that of its outcome, or ``not-sent``."""

    bundle: str
    result: str
    source: str | None = None
    destination: str | None = None
    owner: str | None = None
    detail: str = ""


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to announce. ``at`` is epoch seconds; ``ended``: it is over.

    ``scores`` are present ones, in points, of the brokers that the ``plan`` touches. ``broker`` is the drained one.
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
    """The end of a turn. ``plan`` waits for approval, or is the one that an observing lbd would have started.

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
    """Announcements so far. Times are epoch seconds.

    ``pairs`` are the brokers of the announced plan, ``drains`` the remaining bundles that were announced of each drain.
    """

    leads: bool = False
    pairs: frozenset[tuple[str, str]] = frozenset()
    planned_at: float = 0.0
    blocked_since: float | None = None
    blocked: bool = False
    drains: Mapping[str, frozenset[str]] = field(default_factory=dict)
    paused_since: float | None = None
    pause_announced_at: float = 0.0


def news(announced: Announced, now: TurnEnd) -> tuple[Announced, list[Event]]:
    """Announcements after a turn, and the events of the turn."""
    events = _moves(now)
    for look in (_leader, _plan, _blocked, _drains, _pause):
        announced, more = look(announced, now)
        events += more
    return announced, events


def merged(events: Iterable[Event]) -> list[Event]:
    """Merge the events of one message: all moves together, and the last of the events of one kind and broker."""
    latest: dict[tuple[str, str], Event] = {}
    for event in events:
        key = event.kind, event.broker
        before = latest.pop(key, None)
        latest[key] = event if before is None or not event.moves else _moved(event, [*before.moves, *event.moves])
    return list(latest.values())


def _moves(now: TurnEnd) -> list[Event]:
    landed = [move for move in now.ended if move.result == Result.LANDED]
    failed = [move for move in now.ended if move.result not in NO_FAILURE]
    events = Event("move", now.status.at, ""), Event("failure", now.status.at, "")
    return [_moved(event, moves) for event, moves in zip(events, (landed, failed), strict=True) if moves]


def _moved(event: Event, moves: list[EndedMove]) -> Event:
    """The event with these moves."""
    if event.kind == "move":
        text = f"{counted(len(moves), 'bundle')} moved"
    else:
        numbers = ", ".join(f"{number} {result}" for result, number in Counter(move.result for move in moves).items())
        text = f"{counted(len(moves), 'move')} not made as planned: {numbers}"
    return msgspec.structs.replace(event, text=text, moves=moves)


def _leader(announced: Announced, now: TurnEnd) -> tuple[Announced, Sequence[Event]]:
    """A change of role, where several instances share a cluster; each announces its own."""
    words = now.status.leader
    if now.leads == announced.leads or words is None:
        return replace(announced, leads=now.leads), ()
    return replace(announced, leads=now.leads), [Event("leader", now.status.at, words, ended=not now.leads)]


def _plan(announced: Announced, now: TurnEnd) -> tuple[Announced, Sequence[Event]]:
    """A plan that moves between other brokers than the announced one; noise puts other bundles into each plan."""
    now_seconds, plan = now.status.at, now.plan
    if now.ended or now_seconds - announced.planned_at > PLAN_SECONDS:  # it was applied, or has expired
        announced = replace(announced, pairs=frozenset())
    if plan is None or not plan.unloads:
        return announced, ()
    announced = replace(announced, planned_at=now_seconds)
    pairs = frozenset((move.source, move.destination) for move in plan.unloads)
    if pairs <= announced.pairs:
        return announced, ()
    number = counted(len(plan.unloads), "move")
    if now.status.observe_only:
        text = f"{number} would be made now, and lbd only observes"
    else:
        clients = f"{counted(plan.clients, 'client')} would reconnect"
        text = f"plan {plan.id} waits for approval: {number}, {clients}: lbd apply {plan.id}"
    scores = {
        broker.id: broker.score
        for broker in now.status.brokers
        if broker.id in plan.expected and broker.score is not None
    }
    return replace(announced, pairs=pairs), [Event("plan", now_seconds, text, plan=plan, scores=scores)]


def _blocked(announced: Announced, now: TurnEnd) -> tuple[Announced, Sequence[Event]]:
    """A long block, or its end. A turn without a view of the cluster, or with an ordered block, changes nothing."""
    now_seconds, verdict = now.status.at, now.status.verdict
    if not now.leads:
        return replace(announced, blocked_since=None, blocked=False), ()
    if verdict is None or verdict.kind == "unknown" or (verdict.kind == "blocked" and verdict.reason in ORDERED):
        return announced, ()
    since = now_seconds if announced.blocked_since is None else announced.blocked_since
    lasted = duration_text(now_seconds - since)
    if verdict.kind != "blocked":
        text = f"not blocked any more, after {lasted}: {verdict.words}"
        events = [Event("blocked", now_seconds, text, ended=True)] if announced.blocked else ()
        return replace(announced, blocked_since=None, blocked=False), events
    announced = replace(announced, blocked_since=since)
    if announced.blocked or now_seconds - since < BLOCKED_SECONDS:
        return announced, ()
    steps = steps_now(now.status, now.status.pid, now.pause, now_seconds)
    text = ". ".join((f"for {lasted} {verdict.words}", *(step.text(now_seconds) for step in steps[:1])))
    return replace(announced, blocked=True), [Event("blocked", now_seconds, text)]


def _drains(announced: Announced, now: TurnEnd) -> tuple[Announced, Sequence[Event]]:
    """Changed remainders of drains. A drain looks again and again for returned bundles, which alone are no event."""
    if not now.leads:
        return announced, ()
    drains: dict[str, frozenset[str]] = {}
    events = []
    for work in now.works:
        before = announced.drains.get(work.broker)
        if work.ended_at is None and before is not None:
            drains[work.broker] = before
        elif work.ended_at is not None and work.exit_code:
            drains[work.broker] = remaining = frozenset(entry.bundle for entry in work.left)
            if remaining != before:
                text = f"drain incomplete: {work.sentence}"
                events.append(Event("drain", now.status.at, text, broker=work.broker))
    return replace(announced, drains=drains), events


def _pause(announced: Announced, now: TurnEnd) -> tuple[Announced, Sequence[Event]]:
    """A long pause. Standbys have the pause, too, and leave its announcement to the leader."""
    now_seconds, pause = now.status.at, now.pause
    if not now.leads or pause is None or pause.until is not None or now_seconds - pause.since < PAUSED_SECONDS:
        return announced, ()
    if announced.paused_since == pause.since and now_seconds - announced.pause_announced_at < PAUSED_AGAIN_SECONDS:
        return announced, ()
    lasted = f"for {duration_text(now_seconds - pause.since)}" if pause.since else "since nobody knows when"
    reason = pause.reason and f": {pause.reason}"
    text = f"paused {lasted}, and no end is set: by {pause.by}{reason}; lbd resume ends it"
    return replace(announced, paused_since=pause.since, pause_announced_at=now_seconds), [
        Event("pause", now_seconds, text)
    ]
