"""The content of a message: JSON with all fields, or the text of a Slack incoming webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lbd.notify.events import Event
from lbd.redaction import redacted_json
from lbd.text import counted, utc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.notify.events import EndedMove


LISTED = 10
"""Moves of one event that a text lists; JSON has :data:`MOST_MOVES`."""

MOST_MOVES = 200
"""Moves of one event in JSON. A drain moves thousands; the text counts all of them."""

MOST_CHARACTERS = 10_000
"""Longest text: Slack cuts after 40,000 characters, and a person reads no more than this."""


class WebhookMessage(msgspec.Struct, frozen=True):
    """Events in one message: ``instance`` is this lbd's machine, ``dropped`` the number of lost events before."""

    cluster: str
    instance: str
    at: float
    events: list[Event]
    dropped: int = 0


def content(message: WebhookMessage, form: str) -> bytes:
    """The body to post; ``form`` is slack or json."""
    if form == "slack":
        return redacted_json(msgspec.json.encode({"text": _escaped(_text(message)[:MOST_CHARACTERS])}))
    short = [msgspec.structs.replace(event, moves=event.moves[:MOST_MOVES]) for event in message.events]
    return redacted_json(msgspec.json.encode(msgspec.structs.replace(message, events=short)))


def _escaped(text: str) -> str:
    """Escape the three characters by which Slack's texts name links, channels and people."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _text(message: WebhookMessage) -> str:
    lines = [f"lbd on {message.instance}, cluster {message.cluster or 'not known yet'}"]
    for event in message.events:
        lines += [f"• {utc(event.at)} {event.kind}: {event.text}", *(f"    {line}" for line in _details(event))]
    if message.dropped:
        lines.append(f"{counted(message.dropped, 'event')} before these are lost, as no message was taken")
    return "\n".join(lines)


def _details(event: Event) -> Iterator[str]:
    if event.plan is not None:
        moves = event.plan.unloads
        yield from (f"{move.bundle}: {move.source} -> {move.destination}" for move in moves[:LISTED])
        yield from _more(len(moves), "lbd plan")
        scores = (
            f"{broker} {_points(event.scores.get(broker))} -> {after:.1f}"
            for broker, after in event.plan.expected.items()
        )
        yield f"scores now -> then: {', '.join(scores)}"
    yield from map(_end, event.moves[:LISTED])
    yield from _more(len(event.moves), "lbd history")


def _more(number: int, command: str) -> Iterator[str]:
    if number > LISTED:
        yield f"and {number - LISTED:,} more: {command}"


def _end(move: EndedMove) -> str:
    ends = f": {move.source} -> {move.destination}" if move.source else ""
    return f"{move.bundle}{ends}, {move.result}{move.detail and f': {move.detail}'}"


def _points(score: float | None) -> str:
    return "?" if score is None else f"{score:.1f}"
