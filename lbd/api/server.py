"""The web server of the API, in a thread of its own, which loads its libraries: no turn waits for it, also at start.

There is one on TCP where settings want it, and always one on the socket in the state directory.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from lbd import files
from lbd.errors import ThreadError, UsageError
from lbd.threads import begin

if TYPE_CHECKING:
    from pathlib import Path

    import uvicorn

    from lbd.api.backend import Backend
    from lbd.config import ApiSettings


BACKLOG = 1024
"""A client whose connection finds no place here tries again a second later, which is too late for a probe."""

KEEP_ALIVE_SECONDS = 15
HEAD_BYTES = 64 << 10
"""Most bytes of a request head, a trailer or a chunk extension; 400 for more."""

STOP_SECONDS = 3.0
_building = threading.Lock()
"""FastAPI changes the process's filters of warnings while it makes routes."""


class Server:
    """Answers HTTP on a socket that listens, in a thread of its own.

    ``local``: without TLS, and its libraries are loaded when the first client comes, because a daemon without
    ``api.enabled`` may never need them. Raises :class:`ThreadError`, with the socket closed.
    """

    def __init__(self, backend: Backend, listening: socket.socket, *, local: bool = False) -> None:
        self._backend, self._socket, self._local = backend, listening, local
        self._server: uvicorn.Server | None = None
        self._is_over = threading.Event()
        try:
            self._thread = begin(self._run, "lbd-api-local" if local else "lbd-api")
        except ThreadError as error:
            listening.close()
            raise ThreadError(f"the API is not served: {error}") from error

    def stop(self) -> None:
        """End every stream, give answers under way a moment, and close the socket."""
        self._is_over.set()
        self._backend.board.events.close()
        if self._server is not None:
            self._server.should_exit = True
        elif self._local:
            with suppress(OSError):  # it has ended by itself
                self._socket.shutdown(socket.SHUT_RDWR)  # ends the wait for the first client
        self._thread.join(STOP_SECONDS)
        self._socket.close()

    def _run(self) -> None:
        try:
            if self._local:
                _wait_for_client(self._socket)
            with _building:
                if not self._is_over.is_set():
                    self._server = _server(self._backend, self._is_over, local=self._local)
            if self._server is not None and not self._is_over.is_set():
                self._server.run(sockets=[self._socket])
        except Exception as error:  # noqa: BLE001 - the daemon goes on balancing without its API
            structlog.get_logger().error("the API has ended; lbd goes on without it", failure=repr(error))
        finally:
            self._socket.close()  # so that nobody waits for an answer


def _wait_for_client(listening: socket.socket) -> None:
    first = select.poll()
    first.register(listening, select.POLLIN)
    first.poll()


def _server(backend: Backend, ending: threading.Event, *, local: bool) -> uvicorn.Server:
    import uvicorn  # noqa: PLC0415 - see the module

    from lbd.api.app import application  # noqa: PLC0415 - see the module
    from lbd.api.connection import LimitedServer  # noqa: PLC0415 - see the module

    logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
    tls = backend.settings.api.tls
    return LimitedServer(
        uvicorn.Config(
            application(backend, ending, local=local),
            loop="asyncio",
            http="h11",
            h11_max_incomplete_event_size=HEAD_BYTES,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            ssl_certfile=None if local else tls.cert_file,
            ssl_keyfile=None if local else tls.key_file,
        )
    )


def listen_locally(path: Path) -> socket.socket:
    """The socket in the state directory. Raises :class:`UsageError`."""
    try:
        return files.listen(path, BACKLOG)
    except OSError as error:
        raise UsageError(f"{path}: commands cannot reach this lbd: {error.strerror or error}") from error


def listen_on(settings: ApiSettings) -> socket.socket:
    """A TCP socket at ``api.listen``. Raises :class:`UsageError`, also for a certificate that cannot be used."""
    check_certificate(settings)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections have it from here
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"api.listen {settings.listen}: cannot listen there: {error.strerror or error}") from error
    return listener


def check_certificate(settings: ApiSettings) -> None:
    """Raise :class:`UsageError` for a certificate of ``api.tls`` that cannot be used."""
    if settings.tls.cert_file is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls.cert_file, settings.tls.key_file)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"api.tls: {settings.tls.cert_file} and its key_file cannot be used: {why}") from error
