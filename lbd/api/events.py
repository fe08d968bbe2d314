"""Server-sent events: what just happened, told to whoever listens, and kept for nobody."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LISTENERS = 32
"""More are refused: each costs a connection, and a dashboard left open in a browser asks for ever."""

WAITING_EVENTS = 64
"""A listener that is so far behind is let go; it comes back, and reads anew what it has missed."""

HEARTBEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 3000


class TooManyError(Exception):
    """All places are taken."""


class _Listener:
    """One connection's queue. Events come from any thread, and are taken in the loop of the connection."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_EVENTS)
        self.ended = False

    def put(self, event: bytes | None) -> None:
        """In the loop's own thread. One that lags is told to end: it has missed something."""
        self.ended = self.ended or event is None or self.queue.full()
        if self.ended:
            while not self.queue.empty():
                self.queue.get_nowait()
            event = None
        self.queue.put_nowait(event)


class Events:
    """All listeners."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: set[_Listener] = set()
        self._number = 0

    def tell(self, name: str, data: Any) -> None:  # noqa: ANN401 - whatever msgspec encodes
        """From any thread; costs next to nothing while nobody listens."""
        with self._lock:
            self._number += 1
            self._listeners -= {one for one in self._listeners if one.ended}  # also where nobody came to read it
            listeners, number = tuple(self._listeners), self._number
        if listeners:
            event = b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode(), msgspec.json.encode(data))
            self._hand(listeners, event)

    @property
    def listening(self) -> int:
        """How many listen."""
        with self._lock:
            return len(self._listeners)

    def close(self) -> None:
        """End every stream."""
        with self._lock:
            listeners = tuple(self._listeners)
        self._hand(listeners, None)

    def listen(self) -> AsyncIterator[bytes]:
        """The stream of one connection. Raises :class:`TooManyError`."""
        listener = _Listener()
        with self._lock:
            if len(self._listeners) >= LISTENERS:
                raise TooManyError
            self._listeners.add(listener)
        return self._stream(listener)

    async def _stream(self, listener: _Listener) -> AsyncIterator[bytes]:
        try:
            yield b"retry: %d\n\n" % RETRY_MILLISECONDS
            while True:
                try:
                    event = await asyncio.wait_for(listener.queue.get(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    event = b": still here\n\n"
                if event is None:
                    return
                yield event
        finally:
            with self._lock:
                self._listeners.discard(listener)

    @staticmethod
    def _hand(listeners: tuple[_Listener, ...], event: bytes | None) -> None:
        for listener in listeners:
            try:
                listener.loop.call_soon_threadsafe(listener.put, event)
            except RuntimeError:  # its loop has ended, and the stream with it
                continue
