"""Requests and replies of a fake broker, and one listening socket for each broker, opened and shut as brokers live."""

from __future__ import annotations

import selectors
import socket
import socketserver
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HTML_PAGE = b"<html>\n<head>\n<title>Error</title>\n</head>\n<body><h2>HTTP ERROR</h2></body>\n</html>\n"
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Request:
    """What a broker was asked."""

    broker: str
    method: str
    path: str
    query: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class Reply:
    """One answer. ``promised`` is a length larger than the body's: the connection closes in the middle.

    ``silent``: no answer comes, until the other side closes the connection or the broker does.
    """

    status: int = 200
    body: bytes = b""
    location: str | None = None
    content_type: str = "application/json"
    date: float | None = None
    promised: int | None = None
    silent: bool = False


def ok(found: object) -> Reply:
    """200 with JSON."""
    return Reply(200, msgspec.json.encode(found))


def text(words: str) -> Reply:
    """200 with words."""
    return Reply(200, words.encode(), content_type="text/plain")


def refused(status: int, reason: str) -> Reply:
    """An error as Pulsar tells it."""
    return Reply(status, msgspec.json.encode({"reason": reason}))


def page(status: int) -> Reply:
    """An error as the web server or a proxy tells it."""
    return Reply(status, HTML_PAGE, content_type="text/html;charset=iso-8859-1")


def crash(message: str) -> Reply:
    """500 with a stack trace of which only the first lines matter."""
    told = f"\n --- An unexpected error occurred in the server ---\n\nMessage: {message}\n\nStacktrace:\n\n"
    return refused(500, told)


class Door(ThreadingHTTPServer):
    """A broker's web port, which is held from the beginning, and listened at while the broker is up."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, answers: Callable[[Request], Reply]) -> None:
        super().__init__((host, port), _Handler, bind_and_activate=False)
        self.answers = answers
        self.open = False
        self._connections: set[socket.socket] = set()
        self._left = threading.Condition()
        try:
            self.server_bind()
        except OSError:
            self.server_close()
            raise
        self.id = f"{host}:{self.server_address[1]}"

    def server_bind(self) -> None:
        """Without the reverse look-up that HTTPServer makes."""
        socketserver.TCPServer.server_bind(self)

    def shut(self) -> None:
        """As when a process ends: nobody listens, and its connections break."""
        self.open = False
        self.socket.close()
        with self._left:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def empty(self, seconds: float) -> bool:
        """Whether all its connections have ended within that time."""
        with self._left:
            return self._left.wait_for(lambda: not self._connections, seconds)

    def reopen(self) -> None:
        """Listen, for the first time or again at the same port."""
        if self.socket.fileno() < 0:
            self.socket = socket.socket(self.address_family, self.socket_type)
            self.server_bind()
        self.socket.settimeout(_POLL_SECONDS)  # a connection that is gone before it is accepted holds nobody up
        self.server_activate()
        self.open = True

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's types
        """Serve a connection in a thread of its own; it is known from now on."""
        with self._left:
            self._connections.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's types
        """Serve it to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._left:
                self._connections.discard(request)
                self._left.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's types
        """A client that gave up, or a broker that died, is no event; all else is a bug, and told."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Doors:
    """Accepts for all brokers in one thread; each connection has a thread of its own."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="fake-pulsar", daemon=True)

    def start(self) -> None:
        """Begin to accept."""
        self._thread.start()

    def open(self, door: Door) -> None:
        """A broker is up."""
        door.reopen()
        self._selector.register(door.socket, selectors.EVENT_READ, door)

    def shut(self, door: Door) -> None:
        """A broker is gone."""
        self._selector.unregister(door.socket)
        door.shut()

    def stop(self) -> None:
        """Accept no more."""
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._selector.close()

    def _accept(self) -> None:
        while not self._done.is_set():
            for key, _ in self._selector.select(_POLL_SECONDS):
                door: Door = key.data
                with suppress(OSError):
                    door.process_request(*door.get_request())


class Answering(BaseHTTPRequestHandler):
    """How a broker of whatever sort puts an answer on the wire."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def send_reply(self, reply: Reply) -> None:
        """All of it; where more was promised, the connection closes in the middle."""
        self.send_response(reply.status)
        if reply.location is not None:
            self.send_header("Location", reply.location)
        if reply.status != 204:
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(reply.promised or len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)
        self.wfile.flush()
        self.close_connection = self.close_connection or reply.promised is not None

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        """Whoever wants to know what was asked keeps it."""


class _Handler(Answering):
    server: Door
    _date: float | None = None

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query, length = dict(parse_qsl(url.query)), int(self.headers.get("Content-Length") or 0)
        asked = Request(self.server.id, self.command, unquote(url.path), query, self.rfile.read(length))
        self._send(self.server.answers(asked))

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the parent's names

    def _send(self, reply: Reply) -> None:
        if reply.silent:
            self.rfile.read(1)
            self.close_connection = True
            return
        self._date = reply.date
        self.send_reply(reply)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The ``Date`` header, by the broker's clock."""
        return super().date_time_string(self._date if timestamp is None else timestamp)
