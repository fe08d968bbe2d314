"""A web server in a thread of its own, which loads its libraries there: no turn waits for it, at the start neither."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import structlog

from lbd.errors import UsageError

if TYPE_CHECKING:
    import uvicorn

    from lbd.api.backend import Backend
    from lbd.api.settings import ApiSettings

BACKLOG = 128
KEEP_ALIVE_SECONDS = 15
STOP_SECONDS = 3.0


class Server:
    """Listens from the moment it is made; answers as soon as the libraries are loaded.

    Raises :class:`UsageError` where it cannot listen, or its certificate cannot be used.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend, self._settings = backend, backend.settings.api
        _check_certificate(self._settings)
        self._socket = _listening(self._settings)
        self._server: uvicorn.Server | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lbd-api", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._url

    def stop(self) -> None:
        """End every stream, give answers under way a moment, and close the port."""
        self._ended.set()
        self._backend.board.events.close()
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        self._socket.close()

    @property
    def _url(self) -> str:
        return self._settings.url(self._socket.getsockname()[1])

    def _run(self) -> None:
        try:
            self._server = _server(self._backend, self._ended)
            if not self._ended.is_set():
                self._server.run(sockets=[self._socket])
        except Exception as error:  # noqa: BLE001 - the daemon goes on balancing without its API
            structlog.get_logger().error("the API has ended; lbd goes on without it", failure=repr(error))


def _server(backend: Backend, ending: threading.Event) -> uvicorn.Server:
    import uvicorn  # noqa: PLC0415 - see the module

    from lbd.api.app import application  # noqa: PLC0415 - see the module
    from lbd.api.connection import Connection  # noqa: PLC0415 - see the module

    logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
    settings = backend.settings.api
    return uvicorn.Server(
        uvicorn.Config(
            application(backend, ending),
            loop="uvloop",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            ssl_certfile=settings.tls.cert_file,
            ssl_keyfile=settings.tls.key_file,
        )
    )


def _listening(settings: ApiSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections have it from here
        found.bind((settings.host, settings.port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise UsageError(f"api.listen {settings.listen}: cannot listen there: {error.strerror or error}") from error
    return found


def _check_certificate(settings: ApiSettings) -> None:
    if settings.tls.cert_file is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls.cert_file, settings.tls.key_file)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"api.tls: {settings.tls.cert_file} and its key_file cannot be used: {why}") from error
