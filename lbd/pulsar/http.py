"""HTTP to brokers: one request with redirects, bounded in time and size, a token only for this cluster's hosts.

Redirects are followed here, because ``requests`` follows a 307 with its method kept but drops Authorization when the
host changes, and Pulsar redirects every unload from leader to owner. Errors are one line and have no request headers.
"""

from __future__ import annotations

import base64
import gc
import http.client
import io
import re
import socket
import threading
import time
import zlib
from dataclasses import dataclass, field, replace
from email.errors import MissingHeaderBodySeparatorDefect
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, Self, cast
from urllib.parse import quote, urljoin, urlsplit
from weakref import finalize

import requests
from prometheus_client import Histogram
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, ProxyManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    InvalidHeader,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
)
from urllib3.util import Retry

from lbd.clock import boot_seconds
from lbd.deadline import DeadlineReader, connection
from lbd.errors import AdminError, LbdError, UsageError, unread
from lbd.foreign import printable
from lbd.pulsar import paths
from lbd.pulsar.addresses import REGISTERED, special_kind
from lbd.pulsar.broker_health import BrokerHealth
from lbd.pulsar.paths import host_port
from lbd.pulsar.request_table import endpoint
from lbd.redaction import HIDDEN, remember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lbd.pulsar.paths import HostPort
    from lbd.pulsar.settings import PulsarSettings


def translated(exchange: BoundedExchange, url: str, error: Exception) -> AdminError:
    """An error of requests, urllib3 or the TLS files as an :class:`AdminError`."""
    words = _unreached(exchange, url, error) or _failure_text(exchange, url, error)
    return AdminError(f"{exchange.request}: {words}", sent=exchange.sent)


def timed_out(error: LbdError) -> bool:
    """Whether a request failed because no broker accepted or answered it in time."""
    return error.__cause__ is not None and _late(error.__cause__)


def _late(error: BaseException) -> bool:
    return isinstance(error, requests.exceptions.Timeout | TimeoutError) or "Read timed out" in str(error)


def _unreached(exchange: BoundedExchange, url: str, error: Exception) -> str | None:
    """Reason why the request never reached the broker; None when it may have."""
    text = str(error)
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return exchange.no_connection
    if "Connection refused" in text:
        return f"connection refused; is the address right and the {exchange.peer} up?"
    if "Name or service not known" in text or "Failed to resolve" in text:
        return f"unknown host {urlsplit(url).hostname!r}"
    return None


def _failure_text(exchange: BoundedExchange, url: str, error: Exception) -> str:
    text = str(error)
    why = " ".join(_innermost(error).split())[:160]
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return f"TLS failed: no TLS is spoken there, whatever {exchange.ca_setting} is; is this the port for http?"
    if isinstance(error, requests.exceptions.SSLError) and ("has expired" in why or "not yet valid" in why):
        return f"TLS failed: {why}; renew it at whoever answers there, or set the clock of this machine right"
    if isinstance(error, requests.exceptions.SSLError):
        return f"TLS failed: {why}; check {exchange.ca_setting} and the certificate's names"
    if _late(error):
        return "no answer in time"
    if isinstance(error, requests.exceptions.ConnectionError) and url.startswith("http:"):
        return f"no HTTP answer: {why}; is this the port for https?"
    return f"the answer broke off: {why}" if isinstance(error, ProtocolError) else why


def _innermost(error: BaseException) -> str:
    """Text of the root cause: requests wraps urllib3's errors, which wrap the system's."""
    causes = [getattr(error, "reason", None), *error.args]
    cause = next((argument for argument in causes if isinstance(argument, BaseException)), None)
    return str(error) if cause is None else _innermost(cause)


def printable_url(url: str) -> str:
    """A URL on one line, without its query."""
    return printable(url.partition("?")[0])


# --- memory of all responses of the process that are being read or processed
# No response waits for another one, so a broker that sends much and slowly delays no other. If all together would be
# too much, the largest that is still being read is given up, and the others continue.

MAX_RESPONSE_BYTES = 256 << 20
"""Largest size of one response, and of all that are in memory together.

The report of 65,000 bundles has 19 MiB, so any known cluster is read, and no endless response can fill the memory.
"""

WHY = "given up, the largest of answers that together exceed {} bytes"


@dataclass(eq=False)
class Share:
    """Memory of one response: counted while it is ``reading``, and then until it is ``released``."""

    exchange: BoundedExchange
    size_bytes: int = 0
    reading: bool = True
    released: bool = False

    def end(self) -> None:
        """Release it. Takes no lock, because the garbage collector calls this, too, in any thread."""
        self.released = True


class InFlight:
    """Responses in memory. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shares: list[Share] = []

    @property
    def size_bytes(self) -> int:
        """Size of all responses together."""
        with self._lock:
            return self._size_bytes()

    def _size_bytes(self) -> int:
        self._shares = [share for share in self._shares if not share.released]
        return sum(share.size_bytes for share in self._shares if not share.exchange.given_up)

    def begin(self, exchange: BoundedExchange) -> Share:
        """Register a response before it is read; :meth:`Share.end` must follow."""
        share = Share(exchange)
        with self._lock:
            self._shares.append(share)
        return share

    def grow(self, share: Share, size_bytes: int, most_bytes: int) -> None:
        """Add ``size_bytes`` to it, of ``most_bytes`` for all. Raises :class:`AdminError` if it has been given up."""
        with self._lock:
            share.size_bytes += size_bytes
            if self._size_bytes() > most_bytes and not all(other.reading for other in self._shares):
                gc.collect()  # a stored error may hold a response that is no longer needed
            while self._size_bytes() > most_bytes and (unfinished := self._unfinished()):
                max(unfinished, key=lambda other: other.size_bytes).exchange.give_up(WHY.format(most_bytes))
        share.exchange.received(0)

    def _unfinished(self) -> list[Share]:
        return [share for share in self._shares if share.reading and not share.exchange.given_up]

    def read(self, share: Share) -> None:
        """Mark it as complete: it cannot be given up any more."""
        with self._lock:
            share.reading = False
        share.exchange.received(0)


ANSWERS = InFlight()
"""All responses of this process."""


# --- connections, kept open between requests: no proxy, no netrc, no cookie, and only a GET is sent again
# Each request and its response are one :class:`Exchange`. Whatever a peer sends or does not send, an exchange ends at
# its deadline: each connect, handshake, send and read has the remaining time as its timeout.

HEAD_BYTES = 1 << 20
"""Largest size of everything in a response but its body: head, sizes of chunks, trailers."""

_BUFFER_BYTES = 1 << 16


class BoundedExchange:
    """One request and its response: a deadline (boot seconds), and a limit of bytes.

    ``request``, ``peer`` and ``ca_setting`` are for errors. ``sent`` is whether the peer may have received the request.
    ``permit`` is called with each address that the peer's name resolves to, and raises where nothing may be sent.
    """

    def __init__(
        self,
        request: str,
        ends_at: float,
        most_bytes: int,
        *,
        peer: str = "broker",
        ca_setting: str = "pulsar.tls.ca_file",
        permit: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.request, self.ends_at, self.peer, self.ca_setting = request, ends_at, peer, ca_setting
        self.permit = permit
        self.sent = False
        self.received_bytes = 0
        self.given_up = ""
        """Reason why another thread has ended it; empty where none has."""
        self._most_bytes = most_bytes
        self._socket: socket.socket | None = None

    def remaining_seconds(self) -> float:
        """Seconds until the deadline. Raises :class:`AdminError` past it."""
        remaining = self.ends_at - boot_seconds()
        if remaining <= 0:
            raise self.late() from TimeoutError()
        return remaining

    def late(self) -> AdminError:
        """The error for a missed deadline, with the progress of the exchange; to be raised from a TimeoutError."""
        if not self.sent:
            return AdminError(f"{self.request}: {self.no_connection}", sent=False)
        if not self.received_bytes:
            return AdminError(f"{self.request}: no answer in time")
        return AdminError(f"{self.request}: answer not complete in time, {self.received_bytes} bytes came")

    @property
    def no_connection(self) -> str:
        """Error text for a deadline that passed before there was a connection."""
        return f"no connection in time; is the address right and the {self.peer} up?"

    def receives(self, connected: socket.socket) -> None:
        """Set the connection of the response."""
        self._socket = connected

    def received(self, count: int) -> None:
        """Count received bytes. Raises :class:`AdminError` when they are too many, or the exchange was given up."""
        self.received_bytes += count
        if self.given_up:
            raise AdminError(f"{self.request}: {self.given_up}")
        if self.received_bytes > self._most_bytes + HEAD_BYTES:
            raise self.too_long()

    def too_long(self) -> AdminError:
        """The error for a response that is too long."""
        return AdminError(f"{self.request}: answer exceeds {self._most_bytes} bytes")

    def give_up(self, why: str) -> None:
        """End the exchange from another thread: reading its answer fails from then on."""
        self.given_up = why
        if self._socket is not None:
            try:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # TLS has nothing more to say
            except OSError:
                return  # closed already


class _Current(threading.local):
    """The exchange of the current thread; connections are made and used below layers that pass nothing on."""

    exchange: BoundedExchange


_CURRENT = _Current()


class _Bytes(DeadlineReader):
    """The bytes of an exchange, counted."""

    def __init__(self, raw: io.RawIOBase, connected: socket.socket, exchange: BoundedExchange) -> None:
        super().__init__(raw, connected, exchange.remaining_seconds)
        self._exchange = exchange
        self.at_end = False

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        try:
            count = super().readinto(buffer)
        except TimeoutError as error:
            raise self._exchange.late() from error
        self._exchange.received(count or 0)
        self.at_end = not count
        return count


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the library's signature
        super().__init__(sock, *args, **kwargs)
        _CURRENT.exchange.receives(sock)
        self._bytes = _Bytes(self.fp.detach(), sock, _CURRENT.exchange)
        self.fp = io.BufferedReader(self._bytes, _BUFFER_BYTES)

    def begin(self) -> None:
        """Refuse a head that breaks off, or is garbage from some line on: the library takes it for a whole one."""
        super().begin()
        broken = any(isinstance(defect, MissingHeaderBodySeparatorDefect) for defect in self.msg.defects)
        if broken or self._bytes.at_end:
            raise http.client.HTTPException("its head breaks off, or is none")


class _Connection(HTTPConnection):
    response_class = _Response

    def _new_conn(self) -> socket.socket:
        """A connection to the first address that accepts one."""
        most = cast("float", self.timeout)
        options = cast("Sequence[tuple[int, int, int]]", self.socket_options or ())
        try:
            return connection(
                self.host.strip("[]"),
                self.port,
                lambda: min(most, _CURRENT.exchange.remaining_seconds()),
                options,
                _CURRENT.exchange.permit,
            )
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, "no connection in time") from error
        except OSError as error:
            raise NewConnectionError(self, f"Failed to establish a new connection: {error}") from error

    def send(self, data: Any) -> None:  # noqa: ANN401 - the library's signature
        if self.sock is None:
            self.connect()
        self.sock.settimeout(_CURRENT.exchange.remaining_seconds())
        _CURRENT.exchange.sent = True
        super().send(data)


class _SecureConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


_POOLS = {"http": _Pool, "https": _SecurePool}


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the library's signature
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> ProxyManager:  # noqa: ANN401 - the library's signature
        manager: ProxyManager = super().proxy_manager_for(*args, **kwargs)
        if isinstance(manager, ProxyManager):  # SOCKS has another class
            manager.pool_classes_by_scheme = _POOLS
        return manager


class BoundedSession(requests.Session):
    """A session in which each request is a :class:`BoundedExchange`; the sending thread calls :meth:`begin` first."""

    def __init__(self, **adapter: Any) -> None:  # noqa: ANN401 - the library's settings of connections
        super().__init__()
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter(**adapter))

    @staticmethod
    def begin(exchange: BoundedExchange) -> None:
        """Attribute all that this thread sends and reads from now on to ``exchange``."""
        _CURRENT.exchange = exchange

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002 - the library's method
        """None: to find a redirect's target, the library reads the whole body, unpacked without a bound."""
        return None


KEPT_BROKERS = 400
"""Brokers whose connections stay open: a turn sends each of them two requests, and a process may have 1,024 files."""

KEPT_OF_A_BROKER = 100
"""More than requests that one broker has at once: 64 unloads of a drain, and those of a turn. urllib3 warns of more."""


class Sessions:
    """Sends requests of all threads over connections that they share. Thread-safe."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings
        self._session = _new(settings)

    def send(
        self,
        exchange: BoundedExchange,
        method: str,
        url: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        content: bytes | None,
    ) -> requests.Response:
        """The head of the response; this thread must read its body before it sends another request."""
        self._session.begin(exchange)
        remaining, request = exchange.remaining_seconds(), requests.PreparedRequest()
        # Session.request merges settings for three tenths of an exchange's CPU; this session has headers only
        request.prepare(method, url, {**self._session.headers, **headers}, data=content, params=params)
        return self._session.send(
            request,
            timeout=(min(self._settings.connect_timeout_seconds, remaining), remaining),
            allow_redirects=False,
            stream=True,
            proxies={},
        )

    def close(self) -> None:
        """Close the idle connections; one in use closes after its answer. Later requests open others."""
        self._session.close()


class _Retry(Retry):
    """Sends a GET again when its connection broke, but not after a timeout."""

    def increment(self, *args: Any, **kwargs: Any) -> Self:  # noqa: ANN401 - urllib3's signature
        error = kwargs.get("error")
        if isinstance(error, ReadTimeoutError | ConnectTimeoutError):
            raise error
        return super().increment(*args, **kwargs)


def _new(settings: PulsarSettings) -> BoundedSession:
    """A session with credentials from the settings alone; it repeats GETs only, and refuses doubly packed responses."""
    retry = _Retry(
        total=2,
        status=0,
        redirect=False,
        other=0,
        backoff_factor=0.1,
        allowed_methods={"GET"},
        respect_retry_after_header=False,
    )
    session = BoundedSession(max_retries=retry, pool_connections=KEPT_BROKERS, pool_maxsize=KEPT_OF_A_BROKER)
    session.trust_env = False
    session.headers["Accept-Encoding"] = "gzip"
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
    tls = settings.tls
    session.verify = str(tls.ca_file) if tls.ca_file else True
    if tls.cert_file and tls.key_file:
        session.cert = (str(tls.cert_file), str(tls.key_file))
    return session


# --- response times by endpoint and code, for ``/metrics``
# Counted for the whole process, as its memory and CPU time are: clients of brokers come and go with settings.

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Buckets: a load report takes milliseconds; an unload responds when the bundle is closed, after 60 s at most."""

ADMIN_SECONDS = Histogram(
    "lbd_admin_request_seconds",
    "Requests to brokers; code none: no answer.",
    ["method", "endpoint", "code"],
    buckets=SECONDS,
    registry=None,
)
"""All requests of this process to brokers; each hop of a redirect counts."""


def count_request(method: str, path: str, status: int | None, seconds: float) -> None:
    """Record the end of a request; ``status`` is None without a complete response."""
    ADMIN_SECONDS.labels(method, endpoint(path), "none" if status is None else str(status)).observe(seconds)


# --- one request

MAX_HOPS = 5
"""An unload needs three: any broker -> leader -> owner, and back once when the leader changed meanwhile."""

_REDIRECTS = {301, 302, 303, 307, 308}
_UNAUTHORIZED = 401

SHORTEST_PAUSE_SECONDS = 1.0
"""Shortest pause before a request is repeated, whatever ``Retry-After`` says."""

_CHUNK_BYTES = 1 << 16
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class _Request:
    """A request to one address: the first one, or one that a broker redirected to. ``ends_at`` is in boot seconds."""

    method: str
    url: str
    ends_at: float
    params: Mapping[str, str] | None = None
    content: bytes | None = None

    def __str__(self) -> str:
        return f"{self.method} {printable_url(self.url)}"


@dataclass(frozen=True)
class Response:
    """Status, body and final URL of one request, after redirects; ``date`` and ``retry_after`` are headers.

    Its body counts among the bytes in flight for as long as it is kept.
    """

    status: int
    body: bytes
    url: str
    location: str | None = None
    date: str | None = None
    retry_after: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """Credentials of the request, which the response may echo."""

    @property
    def base(self) -> str:
        """``scheme://host:port`` of the responding broker."""
        return base_url(self.url)

    def shown(self, text: str) -> str:
        """A text of this response for people: printable, without secrets. Call it before the text is cut."""
        return printable(hidden(text, self.secrets))

    def base_of(self, url: str) -> str:
        """``scheme://host:port`` of a URL in this response; the error shows no secret either."""
        try:
            return base_url(url)
        except AdminError as error:
            raise AdminError(self.shown(str(error)), sent=error.sent) from None


def base_url(url: str) -> str:
    """``scheme://host:port`` of a URL that a broker gave. Raises :class:`AdminError` when it is no address."""
    if host_port(url) is None:
        expected = "wanted http://host:port or https://host:port"
        raise AdminError(f"a broker gave the address {url[:80]!r}, {expected}", sent=False)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def url_address(url: str) -> str:
    """``host:port`` of a URL, which for a broker's plain web address is its id; empty where it is no address."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def url_host(url_or_id: str) -> str:
    """The host of a URL or of a broker id, comparable: lower case, no brackets; empty where it is no address."""
    try:
        return urlsplit(url_or_id if "://" in url_or_id else f"//{url_or_id}").hostname or ""
    except ValueError:
        return ""


_RECOGNIZED = 12
"""Length of the beginning by which a secret is recognized if it was cut off or runs on."""

_SHORTEST = 4
"""Shortest secret that is hidden: hiding single letters would leave nothing to read."""


def hidden(text: str, secrets: tuple[str, ...]) -> str:
    """A text without these secrets, whole or cut off, as they are, in base64, or as part of a URL.

    A peer's text may be cut anywhere; :mod:`lbd.redaction` knows whole secrets only.
    """
    return _pattern(secrets).sub(HIDDEN, text) if secrets else text


@lru_cache(maxsize=8)
def _pattern(secrets: tuple[str, ...]) -> re.Pattern[str]:
    """Pattern of these secrets in any case: host names come back in lower case."""
    forms = {
        form
        for secret in secrets
        for form in (secret, base64.b64encode(secret.encode()).decode().rstrip("="), quote(secret), quote(secret, ""))
        if len(form) >= _SHORTEST
    }
    beginnings = {form[:_RECOGNIZED] for form in forms if len(form) > _RECOGNIZED}
    whole = [re.escape(form) for form in sorted(forms, key=len, reverse=True)]
    cut = [re.escape(beginning) + r"[\w.~+/%=-]*" for beginning in sorted(beginnings)]
    return re.compile("|".join([*whole, *cut]) or r"(?!)", re.IGNORECASE)


class BearerToken(Protocol):
    """A token for ``Authorization: Bearer``, whatever its issuer. Thread-safe."""

    @property
    def recent(self) -> tuple[str, ...]:
        """Tokens that were sent last, which a response may echo."""

    @property
    def trouble(self) -> str:
        """Reason why an outdated token is still used; empty when the token is current."""

    def word(self, ends_at: float | None = None) -> str:
        """The token to send. Waiting for it ends at ``ends_at`` (boot seconds). Raises :class:`LbdError`."""

    def instead_of(self, refused: str, ends_at: float | None = None) -> str:
        """The token to send after a broker has refused one with 401; the same one where there is no other."""


STILL = "the one that was read last is used, until it expires or lbd is restarted"


class Secret:
    """The content of a file, read again when the file changes, so that a rotated token needs no restart."""

    def __init__(self, path: Path, user: str = "") -> None:
        """Read ``path`` on first use. ``user`` is the password's user in basic authentication."""
        self._path, self._user = path, user
        self._stamp: tuple[int, int] | None = None
        self._value = ""
        self.recent: tuple[str, ...] = ()
        """The last two secrets: a response may still echo the previous one."""
        self.trouble = ""
        """Reason why an outdated secret is still used; empty when it is the file's."""

    def value(self) -> str:
        """The secret; while its file is being replaced (gone, empty), the one that was read last.

        Raises :class:`UsageError`, which names the file, never its content, before the first success.
        """
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                read = self._path.read_text(encoding="utf-8").strip()
                remember(read, self._user)
                self._value, self._stamp = read or self._value, stamp
                self.recent = (*self.recent[-1:], read) if read else self.recent
                self.trouble = "" if read else f"{self._path}: secret is empty; {STILL}"
        except (OSError, UnicodeDecodeError) as error:
            failed = f"{self._path}: secret cannot be read: {unread(error)}"
            if not self._value:
                raise UsageError(failed) from error
            self._stamp, self.trouble = None, f"{failed}; {STILL}"
        if not self._value:
            raise UsageError(f"{self._path}: secret is empty")
        return self._value

    def word(self, ends_at: float | None = None) -> str:  # noqa: ARG002 - a file does not let anybody wait
        """The secret, checked for use in a header: an error about an invalid header would show its value."""
        secret = self.value()
        if not one_word(secret):
            raise UsageError(f"{self._path}: secret cannot be sent: it is more than one word of plain characters")
        return secret

    def instead_of(self, refused: str, ends_at: float | None = None) -> str:  # noqa: ARG002 - see BearerToken
        """The present content of the file."""
        return self.word()


def one_word(secret: str) -> bool:
    """Whether a header can carry a secret."""
    return bool(secret) and secret.isascii() and secret.isprintable() and " " not in secret


class Http:
    """Sends requests to brokers. Thread-safe.

    ``silences`` are the unresponsive brokers of this process; None: this client keeps its own. ``token`` is sent to
    brokers (:func:`lbd.pulsar.oauth2.bearer_token`).
    """

    def __init__(
        self, settings: PulsarSettings, silences: BrokerHealth | None = None, token: BearerToken | None = None
    ) -> None:
        self._settings = settings
        self._sessions = Sessions(settings)
        self._token = token
        self._password = Secret(settings.basic.password_file, settings.basic.username) if settings.basic else None
        self._admin = {host_port(url) for url in settings.admin_urls}
        self._admin_hosts = {address[0] for address in self._admin if address is not None}
        self._on_this_machine = all(special_kind(host) == "loopback" for host in self._admin_hosts)
        self._trusted: set[HostPort | None] = set()
        self._learn: Callable[[str], None] = lambda _: None
        self._learning = threading.local()
        self._requests = count(1)
        self.sent = 0
        self.silences = silences or BrokerHealth()
        self.silences.probe_with(self._answers)

    @property
    def trouble(self) -> str:
        """Reason why an outdated secret is still sent; empty when it is current."""
        return "; ".join(
            secret.trouble for secret in (self._token, self._password) if secret is not None and secret.trouble
        )

    def close(self) -> None:
        """Close idle connections."""
        self._sessions.close()

    def trust(self, addresses: Iterable[str], learn: Callable[[str], None] = lambda _: None) -> None:
        """Set the ids and URLs of this cluster's brokers. Redirects and credentials go only to these and to
        ``admin_urls``.

        ``learn`` is called with the host of any other address before a request to it, and may :meth:`trust_also` an
        address that a broker of that host has given for itself.
        """
        self._trusted, self._learn = {host_port(address) for address in addresses}, learn

    def trust_also(self, address: str) -> None:
        """Trust one more address, until the next :meth:`trust`."""
        self._trusted.add(host_port(address))

    def _trusts(self, url: str) -> bool:
        address = host_port(url)
        return address is not None and (
            address in self._admin or (address in self._trusted and not self._special(address[0]))
        )

    def _special(self, host: str) -> str:
        """Kind of an address that brokers may not register; empty where the settings allow it."""
        kind = special_kind(host)
        allowed = host in self._admin_hosts or (kind == "loopback" and self._on_this_machine)
        return "" if allowed else kind

    def _permit(self, request: str, address: HostPort | None, peer: str) -> None:
        """Refuse a name outside the settings that resolves to an address which brokers may not register."""
        if address is not None and address[0] not in self._admin_hosts and (kind := self._special(peer)):
            raise AdminError(f"{request}: {_words(address)} leads to {peer}, {_refused(kind)}", sent=False)

    def _learns_of(self, url: str) -> bool:
        """Whether ``learn`` makes a URL trusted; requests that this takes ask no such question themselves."""
        if getattr(self._learning, "now", False):
            return False
        self._learning.now = True
        try:
            self._learn(url_host(url))
        finally:
            self._learning.now = False
        return self._trusts(url)

    def send(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        hops: int = MAX_HOPS,
        content: bytes | None = None,
        deadline: float | None = None,
        before_hop: Callable[[str], None] | None = None,
        begin_by: float | None = None,
        others: bool = False,
    ) -> Response:
        """Send a request and return its response after at most ``hops`` redirects; with 0 a redirect is the response.

        All hops together take ``timeout_seconds`` at most (None: ``pulsar.read_timeout_seconds``), and end at
        ``deadline`` (a value of :func:`boot_seconds`) if that is sooner. ``before_hop`` is called with
        ``scheme://host:port`` before each request after the first, and raises an :class:`LbdError` where that request
        must not be sent; after ``begin_by`` (as ``deadline``) none is sent, though the response to the last may come
        later. ``content`` is JSON to be sent with the request.

        After a busy response with ``Retry-After`` the request is repeated at that time, by the same rules, if a
        response can still come in time (see :func:`_waited`). With ``others`` the caller can try other brokers, and a
        503 is returned at once.

        Raises :class:`AdminError` when no response came in time, it was too long, or it led away from the cluster. Its
        ``sent`` is False where no broker was to carry the request out: the last one, if any, redirected it.
        """
        ends_at = boot_seconds() + (timeout_seconds or self._settings.read_timeout_seconds)
        request = _Request(method, url, ends_at if deadline is None else min(ends_at, deadline), params, content)
        try:
            return self._hop_by_hop(request, hops, before_hop, begin_by, others=others)
        except AdminError as error:
            error.args = (hidden(str(error), self._secrets()),)
            raise

    def _hop_by_hop(
        self,
        request: _Request,
        hops: int,
        before_hop: Callable[[str], None] | None,
        begin_by: float | None,
        *,
        others: bool,
    ) -> Response:
        first, hop, again, renewed = request, 0, False, False
        busy = {429, 503} if request.method == "GET" and not others else {429}
        while hop <= hops:
            token = self._present_token(request.ends_at)  # may wait: the checks that must come last follow
            if (hop or again) and before_hop is not None:
                before_hop(base_url(request.url))
            if begin_by is not None and boot_seconds() > begin_by:
                raise AdminError(f"{request}: too late to begin; not sent", sent=False)
            answer = self._once(request, token)
            again = _waited(answer, busy, request.ends_at if begin_by is None else min(request.ends_at, begin_by))
            if not renewed and answer.status == _UNAUTHORIZED:
                again = renewed = self._renewed(token, request.ends_at)
            if again:
                continue
            if answer.location is None or hops == 0:
                return answer
            request, hop = replace(request, url=_followed(request.url, answer.location), params=None), hop + 1
        raise AdminError(f"{first}: still redirected after {hops} hops, last to {base_url(request.url)}", sent=False)

    def _present_token(self, ends_at: float) -> str:
        """The token to send; empty without one."""
        return self._token.word(ends_at) if self._token else ""

    def _renewed(self, refused: str, ends_at: float) -> bool:
        """Whether there is another token than the refused one: no broker has carried the request out."""
        try:
            return self._token is not None and self._token.instead_of(refused, ends_at) != refused
        except LbdError:
            return False  # the broker's response says enough, and the next request says the rest

    def _once(self, request: _Request, token: str) -> Response:
        url = request.url
        if not (self._trusts(url) or self._learns_of(url)):
            address = host_port(url)
            kind = self._special(address[0]) if address is not None else ""
            refused = (
                f"{_words(address)} is {_refused(kind)}"
                if kind and address in self._trusted
                else f"{_words(address)} is no broker of this cluster; not followed, nothing sent there"
                "; if it is a broker's listener, name it in pulsar.admin_urls"
            )
            raise AdminError(f"{request}: {refused}", sent=False)
        base, sent_at = base_url(url), time.time()
        self.silences.refuse(str(request), base)
        try:
            return self._exchange(request, token)
        except AdminError as error:
            if request.method == "GET" and timed_out(error):
                self.silences.unanswered(base, sent_at)
            if not error.sent and host_port(url) not in self._admin and error.__cause__ is not None:
                error.args = (f"{error}{REGISTERED}",)
            raise

    def _answers(self, base: str, seconds: float) -> bool:
        """Whether a broker answers the request that every turn sends, rightly or not; a dead broker is not silent."""
        try:
            ends_at = boot_seconds() + min(seconds, self._settings.read_timeout_seconds)
            self._exchange(_Request("GET", base + paths.LOAD_REPORT, ends_at), self._present_token(ends_at))
        except LbdError as error:
            return not timed_out(error)
        return True

    def _exchange(self, request: _Request, token: str) -> Response:
        started_at, status, method, url = boot_seconds(), None, request.method, request.url
        if started_at >= request.ends_at:
            raise AdminError(f"{request}: no time left; not sent", sent=False)
        self.sent = next(self._requests)
        text, address = str(request), host_port(url)
        exchange = BoundedExchange(
            text, request.ends_at, MAX_RESPONSE_BYTES, permit=lambda peer: self._permit(text, address, peer)
        )
        headers = self._authorization(token) | (_JSON if request.content is not None else {})
        share = ANSWERS.begin(exchange)
        try:
            with self._sessions.send(exchange, method, url, request.params, headers, request.content) as response:
                body = self._body(response, exchange, share)
                status = response.status_code
                location = response.headers.get("Location") if status in _REDIRECTS else None
                date, retry_after = (response.headers.get(name) for name in ("Date", "Retry-After"))
                answer = Response(status, body, url, location, date, retry_after, self._secrets())
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            share.end()
            raise translated(exchange, url, error) from error
        except BaseException:
            share.end()
            raise
        finally:
            count_request(method, urlsplit(url).path, status, boot_seconds() - started_at)
        finalize(answer, share.end)
        return answer

    def _body(self, response: requests.Response, exchange: BoundedExchange, share: Share) -> bytes:
        with io.BytesIO() as body:  # an error closes it, too, even if that error is stored
            for piece in unpacked(response, exchange):
                if body.tell() + len(piece) > MAX_RESPONSE_BYTES:
                    raise exchange.too_long()
                ANSWERS.grow(share, len(piece), MAX_RESPONSE_BYTES)
                body.write(piece)
            ANSWERS.read(share)
            return body.getvalue()

    def _secrets(self) -> tuple[str, ...]:
        """Secrets of the credentials that are sent, in every form and part."""
        passwords = self._password.recent if self._password else ()
        name = self._settings.basic.username if self._settings.basic else ""
        tokens = self._token.recent if self._token else ()
        pairs = [f"{name}:{password}" for password in passwords]
        return (*pairs, *(base64.b64encode(pair.encode()).decode() for pair in pairs), *passwords, *tokens)

    def _authorization(self, token: str) -> dict[str, str]:
        if token:
            return {"Authorization": f"Bearer {token}"}
        if self._password and self._settings.basic:
            pair = f"{self._settings.basic.username}:{self._password.value()}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}


def _waited(answer: Response, busy: set[int], ends_at: float) -> bool:
    """Wait as long as a busy broker says; False, at once, where the request must not be repeated before ``ends_at``.

    ``busy`` are the statuses after which it may be repeated: for a GET 429 and 503, for anything else only 429. A limit
    on requests stands before what they reach (Pulsar's is ``RateLimitingFilter``, with ``httpRequestsLimitEnabled``),
    so nothing was begun. A 503 may come from a gateway that passed the request on, and no unload may be sent twice.

    Brokers themselves send no ``Retry-After`` (4.0.8 to 5.0.1); gateways before them do.
    """
    if answer.status not in busy:
        return False
    try:
        pause_seconds = max(Retry().parse_retry_after(answer.retry_after or ""), SHORTEST_PAUSE_SECONDS)
    except (InvalidHeader, ValueError, OverflowError):
        return False
    if pause_seconds >= ends_at - boot_seconds():
        return False
    time.sleep(pause_seconds)
    return True


def _words(address: HostPort | None) -> str:
    if address is None:
        return "this"
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refused(kind: str) -> str:
    return f"a {kind} address, nothing sent there{REGISTERED}; to allow it, name it in pulsar.admin_urls"


def unpacked(response: requests.Response, exchange: BoundedExchange) -> Iterator[bytes]:
    """The body in pieces of at most ``_CHUNK_BYTES``, whatever they had packed. A body packed twice is refused."""
    packing = response.headers.get("Content-Encoding", "identity").strip().lower()
    if packing not in {"identity", "gzip", "x-gzip", ""}:
        raise AdminError(f"{exchange.request}: Content-Encoding is {packing[:40]!r}, wanted gzip or none")
    unpacking = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS) if "gzip" in packing else None
    came = False
    while chunk := response.raw.read(_CHUNK_BYTES, decode_content=False):
        if unpacking is None:
            yield chunk
            continue
        came, piece = True, b" "
        while chunk or len(piece) == _CHUNK_BYTES:
            try:
                piece = unpacking.decompress(chunk, _CHUNK_BYTES)
            except zlib.error as error:
                raise AdminError(f"{exchange.request}: answer cannot be unpacked: {error}") from error
            yield piece
            if unpacking.unused_data:
                raise AdminError(f"{exchange.request}: answer cannot be unpacked: it goes on after its end")
            chunk = unpacking.unconsumed_tail
    if came and unpacking is not None and not unpacking.eof:
        raise AdminError(f"{exchange.request}: answer cannot be unpacked: it breaks off")


def _followed(url: str, location: str) -> str:
    """Target of a redirect. Raises :class:`AdminError` when that is no address, or leaves TLS."""
    try:
        target = urljoin(url, location)
    except ValueError:
        target = ""
    if host_port(target) is None or not target.startswith(("http://", "https://")):
        message = f"{url.partition('?')[0]}: redirected to {location[:80]!r}, which is no address; not followed"
        raise AdminError(message, sent=False)
    if url.startswith("https:") and not target.startswith("https:"):
        what = f"{url.partition('?')[0]}: redirected out of https to {base_url(target)}"
        raise AdminError(f"{what}; not followed", sent=False)
    return target
