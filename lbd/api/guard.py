"""Who may ask what, how much, and for how long: checked before any route sees a request."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders

from lbd.api.problems import ProblemError, problem
from lbd.api.token import TokenFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from lbd.api.settings import ApiSettings

MAX_BODY_BYTES = 64 << 10
BODY_SECONDS = 10.0
ANSWER_SECONDS = 30.0
"""For what is answered from memory and the state directory; a stream, and what moves begin with, have limits of
their own."""

UNLIMITED = re.compile(r"/v1/(events|drain|fill|plan/[^/]*/apply)")
OPEN = frozenset({"/", "/healthz", "/readyz"})
"""Probes ask without a token, and a page must be there before anybody can give it one; neither tells anything."""

STATIC = "/static/"
SAFE = frozenset({"GET", "HEAD"})

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Guard:
    """ASGI middleware around all routes."""

    def __init__(self, app: ASGIApp, settings: ApiSettings, seen: Callable[[Scope, int, float], None]) -> None:
        self._app, self._settings, self._seen = app, settings, seen
        self._token = TokenFile(settings.token_file)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; nothing else is served."""
        if scope["type"] != "http":
            return
        if scope["method"] == "HEAD" and not UNLIMITED.fullmatch(scope["path"]):
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        loop = asyncio.get_running_loop()
        watched, began = _Watched(send), loop.time()
        try:
            await self._answer(scope, receive, watched)
        finally:
            self._seen(scope, watched.status, loop.time() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: _Watched) -> None:
        try:
            self._admit(scope)
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(Headers(scope=scope), receive)
            async with asyncio.timeout(None if UNLIMITED.fullmatch(scope["path"]) else ANSWER_SECONDS):
                await self._app(scope, _once(body, receive), send)
        except ProblemError as error:
            await problem(error.status, error.detail, error.headers)(scope, receive, send)
        except TimeoutError:
            if not send.status:
                late = problem(408 if scope["method"] not in SAFE else 503, "not done in time")
                await late(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        """Raises :class:`ProblemError` for what may not be asked."""
        headers, path = Headers(scope=scope), scope["path"]
        if path in OPEN or path.startswith(STATIC):
            return
        reading = scope["method"] in SAFE
        if reading and self._settings.loopback:
            _refuse_foreign(headers.get("host", ""))
            return
        refusal = self._token.refusal(headers.get("authorization", ""))
        if refusal is not None:
            status, why = refusal
            raise ProblemError(status, why, {"www-authenticate": "Bearer"} if status == 401 else None)


class _Watched:
    """Sends on, with the headers of every answer, and notes its status; 0 while there is none."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)


def _refuse_foreign(host: str) -> None:
    """A web page elsewhere may have its own name point here, and so read what is for this machine only."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.removeprefix("[").removesuffix("]").lower()
    try:
        local = not name or name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        local = False
    if not local:
        raise ProblemError(421, "asked under a name that is not this machine's own; wanted 127.0.0.1 or localhost")


async def _body(headers: Headers, receive: Receive) -> bytes:
    """All of it, so that no route waits for it."""
    length = headers.get("content-length", "0")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise ProblemError(413, f"the body has {int(length):,} bytes, at most {MAX_BODY_BYTES:,} are read")
    found = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(found)
        found += message.get("body", b"")
        if len(found) > MAX_BODY_BYTES:
            raise ProblemError(413, f"the body is longer than {MAX_BODY_BYTES:,} bytes")
        if not message.get("more_body", False):
            return bytes(found)


def _once(body: bytes, receive: Receive) -> Receive:
    """The body that was read, and then whatever comes: the end of the connection."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again
