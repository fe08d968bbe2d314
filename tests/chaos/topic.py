"""The topic of leadership, served by the test's process to several lbds, one of which at a time may write it.

As a broker does it: whoever is silent for :data:`KEEP_ALIVE_SECONDS`, as a process that was stopped, loses its place.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any, Self

from lbd.errors import ObserveError

if TYPE_CHECKING:
    from collections.abc import Callable

KEEP_ALIVE_SECONDS = 6.0
PING_SECONDS = 1.0
ACKNOWLEDGED_WITHIN_SECONDS = 10.0
BATCH = 1000
ADDRESS, OWN = "CHAOS_TOPIC", "CHAOS_NAME"
"""Variables of the environment: the port of the topic, and how the process is called."""

KEY = b"chaos"


class Topic:
    """What a broker keeps. ``on_line`` hears of each line and who wrote it, ``on_writer`` who may write now, or None.

    ``gone``: no broker has it. ``acknowledged_after_seconds``: how late a line that is stored is acknowledged.
    """

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.on_line: Callable[[str, bytes], None] = lambda *_: None
        self.on_writer: Callable[[str | None], None] = lambda _: None
        self.acknowledged_after_seconds = 0.0
        self._gone = False
        self._writer: Connection | None = None
        self._connections: set[Connection] = set()
        self._changed = threading.Condition()
        self._listener = Listener(("127.0.0.1", 0), backlog=16, authkey=KEY)
        self.port = self._listener.address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def gone(self) -> bool:
        """Whether no broker has it."""
        return self._gone

    @gone.setter
    def gone(self, gone: bool) -> None:
        with self._changed:
            self._gone = gone
            for connection in self._connections if gone else ():
                self._leave(connection)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (EOFError, ConnectionError, OSError) as error:
                if isinstance(error, EOFError | ConnectionError):
                    continue  # killed while it said who it is
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        """One connection, from the name of its process to its end."""
        with suppress(EOFError, OSError), connection:
            name = connection.recv()
            with self._changed:
                self._connections.add(connection)
            try:
                while self._heard(connection):
                    connection.send(self._answer(name, connection, *connection.recv()))
            finally:
                with self._changed:
                    self._connections.discard(connection)
                    self._leave(connection)

    def _heard(self, connection: Connection) -> bool:
        """Wait for what it sends next; False once the topic is gone, or it writes and was silent for too long."""
        since = time.monotonic()
        while not self._gone and (connection is not self._writer or time.monotonic() - since < KEEP_ALIVE_SECONDS):
            if connection.poll(0.2):
                return True
        return False

    def _answer(self, name: str, connection: Connection, what: str, value: Any) -> object:
        if self._gone:
            raise EOFError
        with self._changed:
            if what == "read":
                self._changed.wait_for(lambda: len(self.lines) > value[0], value[1])
                return self.lines[value[0] : value[0] + BATCH]
            if what == "elect":
                if self._writer is None:
                    self._writer = connection
                    self.on_writer(name)
                return self._writer is connection
            if what == "publish":
                if self._writer is not connection:
                    return False
                self.lines.append(value)
                self.on_line(name, value)
                self._changed.notify_all()
        if what == "publish" and self.acknowledged_after_seconds:
            time.sleep(self.acknowledged_after_seconds)
        return True

    def _leave(self, connection: Connection) -> None:
        if self._writer is connection:
            self._writer = None
            self.on_writer(None)


class Log:
    """One lbd's connection to the topic, in place of ``lbd.pulsar.client.SharedLog``."""

    def __init__(self, *_: object) -> None:
        self._read, self._at = self._connected(), 0
        self._write: Connection | None = None
        self._away_since: float | None = None
        self._using = threading.Lock()

    @staticmethod
    def _connected() -> Connection:
        try:
            found = Client(("127.0.0.1", int(os.environ[ADDRESS])), authkey=KEY)
            found.send(os.environ[OWN])
        except (EOFError, OSError) as error:
            raise ObserveError(f"the topic cannot be read: {error!r}") from error
        return found

    def read(self, seconds: float) -> list[bytes]:
        """The next lines."""
        found = self._asked(self._read, "read", (self._at, seconds))
        self._at += len(found)
        return found

    def elect(self) -> bool:
        """Try to become the one who writes."""
        connection = self._connected()
        if not self._asked(connection, "elect", None):
            connection.close()
            return False
        self._write = connection
        threading.Thread(target=self._live, daemon=True).start()
        return True

    def publish(self, line: bytes) -> None:
        """Write a line; who is fenced, or not acknowledged in time, cannot."""
        with self._using:
            if self._write is None or not self._asked(self._write, "publish", line):
                raise ObserveError("the topic cannot be written: fenced")

    def lost(self) -> bool:
        """Whether the writer has had no connection for as long as an acknowledgement may take."""
        if self._write is not None and not self._write.closed:
            self._away_since = None
            return False
        self._away_since = self._away_since or time.monotonic()
        return time.monotonic() - self._away_since > ACKNOWLEDGED_WITHIN_SECONDS

    def close(self) -> None:
        """Leave: the next one may write at once."""
        self._read.close()
        if self._write is not None:
            self._write.close()

    def _live(self) -> None:
        """Say that this process is there, as the library's own thread does."""
        assert self._write is not None
        with suppress(ObserveError):
            while not self._write.closed:
                with self._using:
                    self._asked(self._write, "alive", None)
                time.sleep(PING_SECONDS)

    @staticmethod
    def _asked(connection: Connection, what: str, value: object) -> Any:
        try:
            connection.send((what, value))
            if connection.poll(ACKNOWLEDGED_WITHIN_SECONDS):
                return connection.recv()
        except (EOFError, OSError, ValueError) as error:  # ValueError: closed between the two
            connection.close()
            raise ObserveError(f"the topic is gone: {error!r}") from error
        connection.close()
        raise ObserveError(f"no acknowledgement within {ACKNOWLEDGED_WITHIN_SECONDS:.0f} s")
