"""One connection of the web server, which does not keep its place for ever: there are few, and probes need one too.

What the server refuses before lbd hears of it is told as lbd tells its errors (RFC 9457).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lbd.api.problems import problem

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp, Receive, Scope, Send

CONNECTIONS = 128
"""Streams included; more are answered 503."""

REFUSALS = 64
"""So many more are let in to be told so. What comes after them is broken off unheard: each costs the process a file,
and one that has none left can neither ask brokers nor write its journal."""

QUIET_SECONDS = 30.0
"""A request is asked within this, and what was answered is taken within it. uvicorn has no such limit: a client
that opens connections and says nothing, or a byte now and then, keeps everybody else out."""


HEAD_BYTES = 64 << 10
"""The longest head of a request; 400 for a longer one."""


class _Joined(h11.Connection):
    """Gives out the head of an answer with what follows it.

    Each of two packets would be a time at which the interpreter is given away, and beside a turn waited for.
    """

    _head = b""

    def send(self, event: h11.Event) -> bytes:  # type: ignore[override]  # nothing to send is no bytes
        """What is to go to the client now."""
        found = super().send(event) or b""
        if isinstance(event, h11.Response):
            self._head = found
            return b""
        found, self._head = self._head + found, b""
        return found


class Connection(H11Protocol):
    """Broken off where its client neither asks nor reads on."""

    _asking: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _served: ASGIApp

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*args, **more)
        self.conn = _Joined(h11.SERVER, HEAD_BYTES)

    @property
    def app(self) -> ASGIApp:
        """Who answers the next request."""
        full = max(len(self.connections), len(self.tasks)) >= CONNECTIONS
        return _full if full else self._served

    @app.setter
    def app(self, app: ASGIApp) -> None:
        self._served = app

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        found = problem(400, msg, {"connection": "close"})
        head = h11.Response(status_code=400, headers=found.raw_headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=bytes(found.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """From now on a request is waited for."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS + REFUSALS:
            transport.abort()
            return
        self._await_request()

    def on_response_complete(self) -> None:
        """From now on the next one is."""
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
        """Nothing is waited for any more."""
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
