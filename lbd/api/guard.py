"""Checks before any route sees a request: token, permissions, sizes, rates and times.

A request takes a slot only once its rights are known and it is complete, within a deadline: a client without rights, or
one that never finishes what it sends, takes nothing that others need.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import re
from collections import Counter, deque
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders

from lbd.api.problems import ProblemError, problem
from lbd.api.token import Caller, TokenFiles
from lbd.foreign import is_printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from lbd.config import ApiSettings


SLOTS = {"reading": (96, 64), "command": (24, 16), "change": (8, 6)}
"""Requests answered at the same time, and how many of them one caller may have; more get 503. A command waits for its
result, a change is made at once. Event streams read. Probes and the page, which need no token, take no slot: the limit
of connections bounds them."""

REQUESTS = sum(most for most, _ in SLOTS.values())
"""Requests of all callers that are answered at the same time."""

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
"""GETs that ask every broker, or work for up to a second: how many run at the same time, and how many more of each
caller wait."""

PREVIEWS = re.compile(r"/v1/(drain/|fill/|rollout/|split|unload/|bundles)")
PREVIEWS_A_MINUTE = 60
"""GETs that ask brokers, of one caller; more get 429. The socket in the state directory has no such limit."""

RETRY = {"retry-after": "5"}

UNLIMITED = re.compile(r"/v1/(events|unload|place|split|drain|fill|rollout|plan/[^/]*/apply)")
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


class WorkLimit:
    """Lets ``at_once`` pieces of work run at the same time, and ``waiting`` more of each caller wait for a place.

    A caller has no more than ``at_once`` pieces in the line that all callers share, so callers take turns.
    """

    def __init__(self, at_once: int, waiting: int) -> None:
        self._at_once, self._most = at_once, at_once + waiting
        self._places = asyncio.Semaphore(at_once)
        self._present = Counter[str]()
        self._own: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def place(self, caller: str) -> AsyncIterator[None]:
        """A place, as soon as one is free. Raises :class:`ProblemError` (503) where too many of the caller wait."""
        if self._present[caller] >= self._most:
            raise ProblemError(503, "too many requests of this kind are under way; ask again in a moment", RETRY)
        self._present[caller] += 1
        try:
            async with self._own.setdefault(caller, asyncio.Semaphore(self._at_once)), self._places:
                yield
        finally:
            self._present[caller] -= 1
            if not self._present[caller]:
                del self._present[caller], self._own[caller]


class Slots:
    """Counts the requests of one kind that are being answered: ``most`` in all, ``each`` of one caller."""

    def __init__(self, kind: str, most: int, each: int) -> None:
        self._kind, self._most, self._each = kind, most, each
        self._taken = Counter[str]()

    @contextmanager
    def slot(self, caller: str) -> Iterator[None]:
        """A slot, until the request has been answered. Raises :class:`ProblemError` (503) where none is free."""
        if self._taken.total() >= self._most:
            raise self._full(f"{self._most} {self._kind} requests are being answered already")
        if self._taken[caller] >= self._each:
            raise self._full(f"{self._each} {self._kind} requests of this caller are being answered already")
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]

    @staticmethod
    def _full(words: str) -> ProblemError:
        return ProblemError(503, f"{words}; ask again in a moment", RETRY | {"connection": "close"})


class RateLimit:
    """Lets each caller have ``most`` requests in any ``seconds``; callers are few, because tokens name them."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._times: dict[str, deque[float]] = {}

    def count(self, caller: str, now: float) -> None:
        """Count a request at ``now``, in seconds of any clock. Raises :class:`ProblemError` (429) for one too many."""
        times = self._times.setdefault(caller, deque(maxlen=self._most))
        if len(times) == self._most and (wait := times[0] + self._seconds - now) > 0:
            words = f"{self._most} requests of this kind in {self._seconds:g} s, the most that one caller may send"
            raise ProblemError(429, f"{words}; ask again in {wait:.0f} s", {"retry-after": f"{math.ceil(wait)}"})
        times.append(now)


class Guard:
    """ASGI middleware around all routes. ``local``: who could connect may do everything, without a token."""

    def __init__(
        self, app: ASGIApp, settings: ApiSettings, count: Callable[[Scope, int, float], None], *, local: bool = False
    ) -> None:
        self._app, self._settings, self._count, self._local = app, settings, count, local
        self._tokens = TokenFiles(settings.token_file, settings.tokens_file)
        self._limits = [(re.compile(pattern), WorkLimit(*size)) for pattern, size in EXPENSIVE.items()]
        self._slots = {kind: Slots(kind, *size) for kind, size in SLOTS.items()}
        self._previews = RateLimit(PREVIEWS_A_MINUTE, 60.0)

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
        except ProblemError as error:
            await problem(error.status, error.detail, error.headers)(scope, receive, watched)
        finally:
            self._count(scope, watched.status, loop.time() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: _Watched) -> None:
        """Raises :class:`ProblemError`."""
        caller = self._admit(scope)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(Headers(scope=scope), receive)
        except TimeoutError:
            words = f"the request was not complete within {BODY_SECONDS:g} s"
            raise ProblemError(408, words, {"connection": "close"}) from None
        try:
            async with asyncio.timeout(None if UNLIMITED.fullmatch(scope["path"]) else ANSWER_SECONDS):
                with self._slot(scope, caller):
                    async with self._place(scope, caller):
                        await self._app(scope, _once(body, receive), send)
        except TimeoutError:
            if not send.status:
                raise ProblemError(503, "not done in time") from None

    def _slot(self, scope: Scope, caller: str) -> AbstractContextManager[None]:
        """The slot that a complete request takes; what needs no token takes none."""
        if _is_open(scope["path"]):
            return nullcontext()
        if scope["method"] in SAFE:
            return self._slots["reading"].slot(caller)
        return self._slots["command" if UNLIMITED.fullmatch(scope["path"]) else "change"].slot(caller)

    def _place(self, scope: Scope, caller: str) -> AbstractAsyncContextManager[None]:
        """Where a GET that is expensive waits for its place; others need none."""
        if scope["method"] != "GET":
            return nullcontext()
        if PREVIEWS.match(scope["path"]) and not self._local:
            self._previews.count(caller, asyncio.get_running_loop().time())
        places = (limit.place(caller) for path, limit in self._limits if path.match(scope["path"]))
        return next(places, nullcontext())

    def _admit(self, scope: Scope) -> str:
        """As whom it counts: its token's name, or the local user. Raises :class:`ProblemError` without rights.

        On loopback, where reading needs no token, all who send none count as one caller.
        """
        headers, path = Headers(scope=scope), scope["path"]
        if not is_printable(path) or not is_printable(unquote(scope["query_string"].decode("latin-1"))):
            raise ProblemError(400, "control or format characters in the address; no name has any")
        if "transfer-encoding" in headers and "content-length" in headers:  # a proxy may have read another length
            raise ProblemError(400, "both Transfer-Encoding and Content-Length", {"connection": "close"})
        state = scope.setdefault("state", {})
        caller: Caller | None = None
        if not (self._local or _is_open(path)):
            caller = self._caller(scope, headers)
        if caller is not None:
            state["caller"] = caller
        state["counted_as"] = f"user {state.get('user', '')}" if caller is None else f"token {caller.name}"
        return str(state["counted_as"])

    def _caller(self, scope: Scope, headers: Headers) -> Caller | None:
        """The caller that has its token; None for a reader on loopback without a token."""
        _refuse_other_sites(headers)
        reading, authorization = scope["method"] in SAFE, headers.get("authorization", "")
        if reading and self._settings.loopback:
            _refuse_foreign(headers.get("host", ""))
            caller = self._tokens.caller(authorization) if authorization else None
            return caller if isinstance(caller, Caller) else None
        caller = self._tokens.caller(authorization)
        if not isinstance(caller, Caller):
            status, why = caller
            raise ProblemError(status, why, {"www-authenticate": "Bearer"} if status == 401 else None)
        if not reading and not caller.may("operate"):
            raise ProblemError(403, f"{caller.name} has the role {caller.role}; this needs operate")
        return caller


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(STATIC)


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
