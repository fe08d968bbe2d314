"""The client of the API, for the command line: at ``--api URL``, or through the socket in the state directory.

Both send the same requests; only the connection differs.
"""

from __future__ import annotations

import io
import os
import ssl
import time
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from lbd import __version__
from lbd.clock import boot_seconds
from lbd.deadline import DeadlineReader, connection, remaining_seconds
from lbd.errors import LbdError, ObserveError, RefusedError, UsageError, unread
from lbd.files import connect, refused
from lbd.redaction import remember
from lbd.store.control import FAILED, SOCKET, PlanRequest, RequestResult
from lbd.store.status import running
from lbd.text import duration_text

if TYPE_CHECKING:
    import socket

    from lbd.store.control import Request

UNAUTHORIZED, CONFLICT = 401, 409
PASSING = frozenset({408, 429})
"""The request may be right, and is answered at another time."""
TIMEOUT_SECONDS = 30.0
LONGEST_WORDS = 500
STANDBY_TRIES, STANDBY_PAUSE_SECONDS = 12, 0.25
"""Behind one address, as a Service of Kubernetes, several lbds may answer: a new connection may reach the leader."""

START_SECONDS = 5.0
"""An lbd that has just started, and holds its state directory, listens within this time."""

NAMES = {"by": "owner", "owner": "broker", "seconds": "for_seconds"}
"""Fields of commands that have another name in the API."""

OWN = {"id", "at", "expires_at", "kind", "plan", "moves", "rollout"}
"""Fields of commands that a body of the API does not have."""

OTHER_VERSION = ("Not Found", "Method Not Allowed", "Extra inputs are not permitted", "Field required")
"""Beginnings of the API's answers to an unknown route or field."""


class UnansweredError(Exception):
    """The connection ended, or the time was over, after the request was sent: it may have been executed."""


class Client:
    """One lbd's API. The token in ``token_file``, if there is one, is sent to this address and to no other.

    No redirect is followed. Proxies that the environment names and logins in ``.netrc`` are not used. An order that a
    standby refuses is given again to the same address, under the same key, for three seconds.

    Every method raises :class:`ObserveError` where no lbd answers or it cannot tell now, :class:`RefusedError` for what
    it refuses, and :class:`UsageError` for what it does not know or may not tell. ``name`` is for messages.
    """

    _tries = STANDBY_TRIES

    def __init__(self, url: str, token_file: Path | None) -> None:
        self.name, self._token_file = _checked(url), token_file

    def get(self, *path: str, **query: str | float) -> dict[str, Any]:
        """Ask."""
        try:
            return self._checked(*self._send("GET", _target(path, query), None, TIMEOUT_SECONDS, {}))
        except UnansweredError as error:
            raise ObserveError(str(error)) from error

    def post(self, *path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask for a change that is made at once."""
        try:
            return self._checked(*self._order(_target(path, {}), body, TIMEOUT_SECONDS, {}))
        except UnansweredError as error:
            raise ObserveError(str(error)) from error

    def command(self, command: Request) -> dict[str, Any]:
        """The response to a command, or its :class:`RequestResult` where its exit code is not 0.

        A command whose connection ends is not sent again: an lbd that was killed may have executed it.
        """
        seconds = command.expires_at - command.at
        fields = msgspec.to_builtins(command)
        names = [name for name in fields if name not in OWN]
        path = ("plan", command.plan, "apply") if isinstance(command, PlanRequest) else (command.kind,)
        body = {NAMES.get(name, name): fields[name] for name in names} | {"timeout_seconds": seconds}
        headers = {"Idempotency-Key": command.id}
        try:
            status, content = self._order(_target(path, {}), body, TIMEOUT_SECONDS + seconds, headers)
        except UnansweredError as error:
            words = f"{error}: the {command.kind} may be done or under way, see lbd history."
            failed: dict[str, Any] = msgspec.to_builtins(RequestResult(FAILED, words, id=command.id))
            return failed
        document = _decoded(content)
        if document is not None and document.get("exit_code"):
            return document
        return self._checked(status, content)

    def _order(self, target: str, body: dict[str, Any], seconds: float, headers: dict[str, str]) -> tuple[int, bytes]:
        """As :meth:`_send`, of an order: the last answer where standbys refused it each time."""
        for _ in range(self._tries - 1):
            status, content = self._send("POST", target, body, seconds, headers)
            if status != CONFLICT or "leader" not in (_decoded(content) or {}):
                return status, content
            time.sleep(STANDBY_PAUSE_SECONDS)
        return self._send("POST", target, body, seconds, headers)

    def _send(
        self, method: str, target: str, body: dict[str, Any] | None, seconds: float, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """Status and content of the answer. Raises :class:`UnansweredError` where none came to what was sent."""
        all_headers = {"Content-Type": "application/json"} | headers | self._token()
        connected = self._connected(boot_seconds() + TIMEOUT_SECONDS)
        ends_at = boot_seconds() + seconds
        connected.settimeout(seconds)
        with closing(HTTPConnection(urlsplit(self.name).netloc or "localhost")) as exchange:
            exchange.sock, exchange.response_class = connected, partial(_TimedResponse, ends_at)  # type: ignore[assignment]
            try:
                exchange.request(method, target, msgspec.json.encode(body) if body is not None else None, all_headers)
                response = exchange.getresponse()
                return response.status, response.read()
            except TimeoutError as error:
                raise UnansweredError(f"{self.name}: no answer in {duration_text(seconds)}") from error
            except (OSError, HTTPException) as error:
                raise UnansweredError(f"{self.name} ended the connection before it answered") from error

    def _connected(self, ends_at: float) -> socket.socket:
        """A connection: to no proxy of the environment. Raises :class:`ObserveError`."""
        parts = urlsplit(self.name)
        host, secure = parts.hostname or "", parts.scheme == "https"
        try:
            trusted = _trusted() if secure else None
            connected = connection(host, parts.port or (443 if secure else 80), lambda: remaining_seconds(ends_at))
            if trusted is None:
                return connected
            connected.settimeout(remaining_seconds(ends_at))  # for the whole handshake
            return trusted.wrap_socket(connected, server_hostname=host)
        except (OSError, UnicodeError) as error:  # no name of a host, too
            raise ObserveError(f"{self.name}: no lbd answers there: {_failure_reason(error)}") from error

    def _checked(self, status: int, content: bytes) -> dict[str, Any]:
        document = _decoded(content)
        if status == 200 and document is not None:
            return document
        raise _error(self.name, status, document, named=self._token_file is not None)

    def _token(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
            remember(token)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"api.token_file {self._token_file}: cannot be read: {unread(error)}") from error
        if not (token.isascii() and token.isprintable() and token and " " not in token):
            raise UsageError(f"api.token_file {self._token_file}: wanted one word of plain characters")
        return {"Authorization": f"Bearer {token}"}


class LocalClient(Client):
    """The lbd that holds a state directory, through its socket there: no token, because the file says who may."""

    _tries = 1

    def __init__(self, state_dir: Path, name: str) -> None:
        self.name, self._token_file = name, None
        self._state_dir, self._path = state_dir, state_dir / SOCKET

    def _connected(self, ends_at: float) -> socket.socket:
        listens_by = boot_seconds() + START_SECONDS
        while True:
            try:
                return connect(self._path, max(ends_at - boot_seconds(), 0.1))
            except BlockingIOError as error:
                raise ObserveError(f"{self._state_dir}: {self.name} accepts no connection at {SOCKET}") from error
            except (FileNotFoundError, ConnectionRefusedError) as error:
                if running(self._state_dir) is None:
                    raise ObserveError(f"{self._state_dir}: lbd has stopped") from error
                if boot_seconds() >= listens_by:
                    words = f"{self._state_dir}: {self.name} accepts no commands at {SOCKET}"
                    causes = "a command itself such as lbd run --once, another version, or its log gives the reason"
                    raise RefusedError(f"{words}: it is {causes}") from error
                time.sleep(0.1)
            except OSError as error:
                raise refused(self._path, error, "used") from error


class _TimedResponse(HTTPResponse):
    """An answer that is complete at ``ends_at``, or raises :class:`TimeoutError`."""

    def __init__(self, ends_at: float, connected: socket.socket, **kwargs: Any) -> None:  # noqa: ANN401 - the library's
        super().__init__(connected, **kwargs)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(DeadlineReader(raw, connected, lambda: remaining_seconds(ends_at)))


def _target(path: tuple[str, ...], query: dict[str, Any]) -> str:
    query_text = f"?{urlencode(query, doseq=True)}" if query else ""
    return "/".join(["/v1", *(quote(part, safe=":") for part in path)]) + query_text


def _checked(url: str) -> str:
    """Scheme, host and port, and nothing else."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # no such port, or half a bracket
        valid = None
    if not valid or "@" in url or parts.path.strip("/") or parts.query or parts.fragment:
        raise UsageError(f"--api {url!r}: wanted http://host:port or https://host:port")
    return f"{parts.scheme}://{parts.netloc}"


def _trusted() -> ssl.SSLContext:
    """The CAs of certifi, or those that the environment names for requests, as a file or a directory."""
    from requests.utils import DEFAULT_CA_BUNDLE_PATH  # noqa: PLC0415 - few commands need it

    own = os.environ.get("REQUESTS_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
    try:
        if Path(own).is_dir():
            return ssl.create_default_context(capath=own)
        return ssl.create_default_context(cafile=own)
    except OSError as error:
        raise OSError(f"REQUESTS_CA_BUNDLE {own}: cannot be read: {error.strerror or error}") from error


def _failure_reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, ssl.SSLError):
        return "its certificate is not trusted, or it speaks no https; REQUESTS_CA_BUNDLE names another CA"
    if isinstance(error, TimeoutError):
        return f"nothing within {TIMEOUT_SECONDS:g} s"
    return "it cannot be reached" if isinstance(error, UnicodeError) or error.errno is not None else str(error)


def _decoded(content: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _error(url: str, status: int, document: dict[str, Any] | None, *, named: bool) -> LbdError:
    """``named``: a token was sent."""
    detail = str((document or {}).get("detail", "no answer of an lbd"))[:LONGEST_WORDS]
    where = "; api.token_file names the file that has it" if status == UNAUTHORIZED and not named else ""
    differs = detail.endswith(OTHER_VERSION)
    version = f"; is it another version than this one, {__version__}?" if differs else ""
    words = f"{url}: {status}: {detail}{where}{version}"
    if status == CONFLICT:
        return RefusedError(words)
    wrong = 400 <= status < 500 and status not in PASSING
    return UsageError(words) if wrong else ObserveError(words)
