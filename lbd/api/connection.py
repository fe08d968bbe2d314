"""One connection of the web server, which does not keep its place for ever: there are few, and probes need one too.

What the server refuses before lbd hears of it is told as lbd tells its errors (RFC 9457).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lbd.api.problems import problem
from lbd.giving_way import ANSWERS, TURN

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

CONNECTIONS = 128
"""Streams included; more are answered 503."""

REFUSALS = 64
"""So many more are let in to be told so. What comes after them is broken off unheard: each costs the process a file,
and one that has none left can neither ask brokers nor write its journal."""

QUIET_SECONDS = 30.0
"""A request is asked within this, and what was answered is taken within it. uvicorn has no such limit: a client
that opens connections and says nothing, or a byte now and then, keeps everybody else out."""

HEAD_BYTES = 64 << 10
"""So much may come that completes no head, no piece of a body and no request; 400 for more, which would all be kept."""

PROMPT = ("/healthz", "/readyz", "/v1/placement")
"""Probes and placements: somebody waits for each. A turn gives way to these and to nothing else that is asked."""

LONG = ("/metrics", "/v1/decisions", "/v1/explain", "/v1/openapi.json", "/v1/plan", "/v1/snapshot")
"""Answers that take 5 to 30 ms of the interpreter, where all others take one or two."""


class Connection(HttpToolsProtocol):
    """Broken off where its client neither asks nor reads on."""

    _asking: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _served: ASGIApp
    _answering: RequestResponseCycle | None = None
    _incomplete_bytes = 0

    @property
    def app(self) -> ASGIApp:
        """Who answers the next request."""
        full = max(len(self.connections), len(self.tasks)) >= CONNECTIONS
        return _full if full else self._answered

    @app.setter
    def app(self, app: ASGIApp) -> None:
        self._served = app

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is read and takes long comes after a turn that is under way."""
        if scope["path"].startswith(PROMPT):
            ANSWERS.pressing()
        else:
            ANSWERS.ended(self)
        if scope["method"] == "GET" and scope["path"].startswith(LONG):
            await TURN.over()
        await self._served(scope, receive, send)

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP. Behind a request whose answer is still to come this is not said: it would be taken for
        that answer, also where what was asked is done.
        """
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            found = problem(400, msg, {"connection": "close"})
            head = [b"HTTP/1.1 400 Bad Request", *(b": ".join(header) for header in found.raw_headers), b"", b""]
            self.transport.write(b"\r\n".join(head) + bytes(found.body))
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """From now on a request is waited for."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS + REFUSALS:
            transport.abort()
            return
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """A request has begun to come, or comes on."""
        ANSWERS.begun(self)
        self._incomplete_bytes += len(data)
        super().data_received(data)
        if self._incomplete_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"more than {HEAD_BYTES:,} bytes that are no request")

    def on_headers_complete(self) -> None:
        """A head has come. Raises ValueError, which is a 400, where it does not name one host (RFC 9112, 3.2)."""
        self._incomplete_bytes = 0
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):
            raise ValueError(f"{hosts} hosts")
        super().on_headers_complete()
        if not self.pipeline:
            self._answering = self.cycle

    def on_body(self, body: bytes) -> None:
        """A piece of a body has."""
        self._incomplete_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of a request has."""
        self._incomplete_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """From now on the next one is."""
        ANSWERS.ended(self)
        if self.pipeline:
            self._answering = self.pipeline[-1][0]
        self._await_request()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is told."""
        super().pause_writing()
        self._reading = self.loop.call_later(QUIET_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read on."""
        super().resume_writing()
        _cancel(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more. uvicorn tells only the answer to what was asked last."""
        ANSWERS.ended(self)
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        _cancel(self._asking)
        _cancel(self._reading)
        super().connection_lost(exc)

    def _await_request(self) -> None:
        _cancel(self._asking)
        self._asking = self.loop.call_later(QUIET_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    words = f"there are {CONNECTIONS} connections already; ask again in a moment"
    await problem(503, words, {"connection": "close", "retry-after": "5"})(scope, receive, send)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
