"""Requests to fake brokers, and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

HTML_PAGE = b"<html>\n<head>\n<title>Error</title>\n</head>\n<body><h2>HTTP ERROR</h2></body>\n</html>\n"


@dataclass(frozen=True)
class Request:
    """Request to a broker."""

    broker: str
    method: str
    path: str
    query: Mapping[str, str]
    body: bytes = b""
    authorization: str | None = None


@dataclass(frozen=True)
class Reply:
    """One answer. ``silent``: none comes, until the other side closes the connection or the broker does."""

    status: int = 200
    body: bytes = b""
    location: str | None = None
    content_type: str = "application/json"
    date: float | None = None
    silent: bool = False


def ok(document: object) -> Reply:
    """200 with JSON."""
    return Reply(200, msgspec.json.encode(document))


def text(words: str) -> Reply:
    """200 with words."""
    return Reply(200, words.encode(), content_type="text/plain")


def refused(status: int, reason: str) -> Reply:
    """An error response of Pulsar."""
    return Reply(status, msgspec.json.encode({"reason": reason}))


def page(status: int) -> Reply:
    """An error page of the web server or a proxy."""
    return Reply(status, HTML_PAGE, content_type="text/html;charset=iso-8859-1")


def crash(message: str) -> Reply:
    """Answer 500 with a stack trace; only its first lines matter."""
    text = f"\n --- An unexpected error occurred in the server ---\n\nMessage: {message}\n\nStacktrace:\n\n"
    return refused(500, text)
