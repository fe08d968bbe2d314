"""Checks before any route sees a request: token, permissions, sizes, rates and times."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from lbd.api.problems import ProblemError, problem
from lbd.api.token import Caller, TokenFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from lbd.config import ApiSettings


REQUESTS = 128
"""Answered at the same time, streams included; more get 503, except probes."""

MAX_BODY_BYTES = 64 << 10
BODY_SECONDS = 10.0
ANSWER_SECONDS = 30.0
"""For what is answered from memory and the state directory; a stream, and what moves begin with, have limits of
their own."""

EXPENSIVE = {
    r"/v1/(drain|fill|rollout)/": (1, 8),
    r"/v1/(split|unload|bundles)": (1, 8),
    r"/v1/history": (1, 16),
    r"/v1/(decisions|explain|moves|openapi\.json|plan|snapshot)": (4, 16),
}
"""GETs that ask every broker, or work for up to a second: how many run at the same time, and how many more wait."""

RETRY = {"retry-after": "5"}

UNLIMITED = re.compile(r"/v1/(events|unload|place|split|drain|fill|rollout|plan/[^/]*/apply)")
OPEN = frozenset({"/", "/healthz", "/readyz"})
"""Probes ask without a token, and a page must be there before anybody can give it one; neither tells anything."""

PROBES = frozenset({"/healthz", "/readyz"})
STATIC = "/static/"
SAFE = frozenset({"GET", "HEAD"})

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class WorkLimit:
    """Lets ``at_once`` pieces of work run at the same time and ``waiting`` more wait for a place; refuses the rest."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._most = at_once + waiting
        self._present = 0
        self._places = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place, as soon as one is free. Raises :class:`ProblemError` (503) where too many wait already."""
        if self._present >= self._most:
            raise ProblemError(503, "too many requests of this kind are under way; ask again in a moment", RETRY)
        self._present += 1
        try:
            async with self._places:
                yield
        finally:
            self._present -= 1


class Guard:
    """ASGI middleware around all routes. ``local``: who could connect may do everything, without a token."""

    def __init__(
        self, app: ASGIApp, settings: ApiSettings, count: Callable[[Scope, int, float], None], *, local: bool = False
    ) -> None:
        self._app, self._settings, self._count, self._local = app, settings, count, local
        self._tokens = TokenFiles(settings.token_file, settings.tokens_file)
        self._requests = 0
        self._limits = [(re.compile(pattern), WorkLimit(*size)) for pattern, size in EXPENSIVE.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; nothing else is served."""
        if scope["type"] != "http":
            return
        if scope["method"] == "HEAD" and not UNLIMITED.fullmatch(scope["path"]):
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        loop = asyncio.get_running_loop()
        watched, began = _Watched(send), loop.time()
        self._requests += 1
        try:
            await self._answer(scope, receive, watched)
        finally:
            self._requests -= 1
            self._count(scope, watched.status, loop.time() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: _Watched) -> None:
        try:
            self._admit(scope)
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(Headers(scope=scope), receive)
            async with asyncio.timeout(None if UNLIMITED.fullmatch(scope["path"]) else ANSWER_SECONDS):
                async with self._place(scope):
                    await self._app(scope, _once(body, receive), send)
        except ProblemError as error:
            await problem(error.status, error.detail, error.headers)(scope, receive, send)
        except TimeoutError:
            if not send.status:
                late = problem(408 if scope["method"] not in SAFE else 503, "not done in time")
                await late(scope, receive, send)

    def _place(self, scope: Scope) -> AbstractAsyncContextManager[None]:
        """Where a GET that is expensive waits for its place; others need none."""
        places = (
            limit.place() for path, limit in self._limits if scope["method"] == "GET" and path.match(scope["path"])
        )
        return next(places, nullcontext())

    def _admit(self, scope: Scope) -> None:
        """Raises :class:`ProblemError` for what may not be asked."""
        headers, path = Headers(scope=scope), scope["path"]
        if self._requests > REQUESTS and path not in PROBES:
            words = f"{REQUESTS} requests are being answered already; ask again in a moment"
            raise ProblemError(503, words, RETRY | {"connection": "close"})
        if "transfer-encoding" in headers and "content-length" in headers:  # a proxy may have read another length
            raise ProblemError(400, "both Transfer-Encoding and Content-Length", {"connection": "close"})
        if self._local or path in OPEN or path.startswith(STATIC):
            return
        _refuse_other_sites(headers)
        reading = scope["method"] in SAFE
        if reading and self._settings.loopback:
            _refuse_foreign(headers.get("host", ""))
            return
        caller = self._tokens.caller(headers.get("authorization", ""))
        if not isinstance(caller, Caller):
            status, why = caller
            raise ProblemError(status, why, {"www-authenticate": "Bearer"} if status == 401 else None)
        if not reading and not caller.may("operate"):
            raise ProblemError(403, f"{caller.name} has the role {caller.role}; this needs operate")
        scope.setdefault("state", {})["caller"] = caller


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


def _refuse_other_sites(headers: Headers) -> None:
    """Refuse a request that a browser sends for a page of another site or port.

    That page cannot read the response, but would make this lbd and its brokers work. Browsers that do not send
    Sec-Fetch-Site may send Origin.
    """
    site = headers.get("sec-fetch-site")
    if site is None:
        origin = headers.get("origin")
        allowed = origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    else:
        allowed = site in {"same-origin", "none"}
    if not allowed:
        raise ProblemError(403, "asked by a page of another site; open this address itself")


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
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise ProblemError(413, f"the body is longer than {MAX_BODY_BYTES:,} bytes")
        if not message.get("more_body", False):
            return bytes(body)


def _once(body: bytes, receive: Receive) -> Receive:
    """The body that was read, and then whatever comes: the end of the connection."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again
