"""The API's connections, counted from accept to close: at the limit, a new one replaces the one that waited longest.

A client without a token can open connections and leave them in the TLS handshake, in a request head, or idle. Each
costs the daemon a file descriptor, so their number is limited. A connection that waits for its client is closed after a
time, or at once when its place is needed. One whose request is being answered is kept. So a probe always gets a place.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import h11
import uvicorn
from anyio.to_thread import current_default_thread_limiter
from uvicorn.protocols.http.h11_impl import H11Protocol

from lbd.api.guard import REQUESTS
from lbd.api.problems import problem
from lbd.files import user_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from uvicorn.server import ServerState


CONNECTIONS = 192
"""Open at the same time, TLS handshakes included: half as many again as requests that are answered at the same time
(``guard.REQUESTS``), so some of them always wait for their client."""

THREADS = REQUESTS + 16
"""Threads for routes that wait: one for each slot, so that orders that wait for their result leave reading its threads,
and some for files of the page."""

HANDSHAKE_SECONDS = 5.0
"""For a TLS handshake, and for the end of a TLS connection."""

QUIET_SECONDS = 30.0
"""A complete request must arrive within this time after accept or after the last response, and a client must read what
it was sent within it. uvicorn limits neither."""

ACCEPT_BATCH = 64
"""Connections accepted before others are served."""

ACCEPT_PAUSE_SECONDS = 1.0
"""After accept failed, for instance because the process has no file descriptor left."""


class LimitedConnection(H11Protocol):
    """One connection, from accept to close.

    ``since`` is when it last began to wait for its client, by the loop's clock. ``network`` is where the client is
    (:func:`network_of`), ``user`` who it is, if the kernel says so. ``closed`` is called when the connection has ended.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        network: bytes,
        user: str,
        closed: Callable[[LimitedConnection], None],
    ) -> None:
        super().__init__(config, state, {"user": user})
        self.since, self.network, self._closed = self.loop.time(), network, closed
        self.opening: asyncio.Task[object] | None = None
        self._is_unread = False

    @property
    def is_blocked(self) -> bool:
        """Whether the client does not read what it was sent."""
        return self.flow is not None and self.flow.write_paused

    @property
    def is_waiting(self) -> bool:
        """Whether the client has to act: complete the handshake or a request, or read a response."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.is_blocked

    def abort(self) -> None:
        """Close it now, whatever its client does."""
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP as a problem (RFC 9457). A response that has begun cannot be replaced by one."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            response = problem(400, msg, {"connection": "close"})
            head = h11.Response(status_code=400, headers=response.raw_headers, reason=b"Bad Request")
            for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request. One that was sent already is answered once the client has read this response."""
        self.since = self.loop.time()
        self._is_unread = self.is_blocked
        if not self._is_unread:
            super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait until the client reads on."""
        super().pause_writing()
        self.since = self.loop.time()

    def resume_writing(self) -> None:
        """The client has read on."""
        super().resume_writing()
        if self._is_unread:
            self.on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        super().connection_lost(exc)
        self._closed(self)


class LimitedServer(uvicorn.Server):
    """uvicorn with a limit for connections.

    It accepts connections itself, because asyncio's server reports none before its TLS handshake is done.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._open: set[LimitedConnection] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections from these sockets."""
        await super().startup(sockets=[])
        current_default_thread_limiter().total_tokens = THREADS
        for listening in sockets or []:
            listening.setblocking(False)
            self._listen(listening)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % 10 == 0:
            self._close_quiet()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, break off handshakes, and let responses end."""
        for listening in sockets or []:
            asyncio.get_running_loop().remove_reader(listening)
        for connection in tuple(self._open):
            if connection.transport is None:
                connection.abort()
        await super().shutdown(sockets=sockets)

    def _listen(self, listening: socket.socket) -> None:
        if not self.should_exit:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(ACCEPT_PAUSE_SECONDS, self._listen, listening)
                return
            accepted.setblocking(False)
            if len(self._open) < CONNECTIONS or self._make_room():
                self._serve_one(accepted, network_of(address[0]) if address else b"")
            else:
                accepted.close()

    def _serve_one(self, accepted: socket.socket, network: bytes) -> None:
        loop, tls = asyncio.get_running_loop(), self.config.ssl
        connection = LimitedConnection(self.config, self.server_state, network, user_of(accepted), self._open.discard)
        self._open.add(connection)
        seconds = HANDSHAKE_SECONDS if tls is not None else None
        connection.opening = loop.create_task(
            loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=tls, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds
            )
        )
        connection.opening.add_done_callback(partial(self._opened, connection, accepted))

    def _opened(self, connection: LimitedConnection, accepted: socket.socket, opening: asyncio.Task[object]) -> None:
        if opening.cancelled() or opening.exception() is not None:
            accepted.close()
            self._open.discard(connection)

    def _make_room(self) -> bool:
        """Close one connection; False if all of them have a request that is being answered.

        It is one of the network with most connections, so that a flood from one place takes no connection of another,
        and of these the one that has waited longest. A client that does not read may be slow, and comes last.
        """
        waiting = [connection for connection in self._open if connection.is_waiting]
        if not waiting:
            return False
        held = Counter(connection.network for connection in self._open)
        chosen = min(waiting, key=lambda each: (each.is_blocked, -held[each.network], each.since))
        chosen.abort()
        self._open.discard(chosen)
        return True

    def _close_quiet(self) -> None:
        latest = asyncio.get_running_loop().time() - QUIET_SECONDS
        for connection in tuple(self._open):
            if connection.is_waiting and connection.since < latest:
                connection.abort()


def network_of(address: str) -> bytes:
    """The network that one client is assumed to have to itself: an IPv4 address, or the /64 of an IPv6 address."""
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return parsed.ipv4_mapped.packed if parsed.ipv4_mapped is not None else parsed.packed[:8]
    return parsed.packed


def user_of(accepted: socket.socket) -> str:
    """The user of a local connection, as the kernel names it; empty for root, who may act for others, and for TCP."""
    if accepted.family != socket.AF_UNIX:
        return ""
    credentials = struct.Struct("3i")  # process, user, group
    _, user, _ = credentials.unpack(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return user_name(user) if user else ""
