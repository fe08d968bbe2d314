"""One request to a broker: redirects by hand, bounded in time and size, a token only for this cluster's hosts.

Why by hand: ``requests`` follows a 307 with its method kept but drops Authorization when the host changes, and Pulsar
redirects every unload from leader to owner.
"""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import requests
from urllib3.exceptions import HTTPError

from lbd.errors import AdminError, LbdError, UsageError, unread
from lbd.pulsar import paths
from lbd.pulsar.failures import timed_out, told, translated
from lbd.pulsar.metered import ADMIN
from lbd.pulsar.sessions import Sessions
from lbd.pulsar.silence import Silences

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lbd.pulsar.settings import PulsarSettings

MAX_HOPS = 5
"""An unload needs three: any broker -> leader -> owner, and back once when the leader changed meanwhile."""

_REDIRECTS = {301, 302, 303, 307, 308}
_CHUNK_BYTES = 1 << 16
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """Status, body and final URL of one request, after redirects; ``date`` is the answer's ``Date`` header."""

    status: int
    body: bytes
    url: str
    location: str | None = None
    date: str | None = None

    @property
    def base(self) -> str:
        """``scheme://host:port`` of who answered."""
        return base_of(self.url)


def base_of(url: str) -> str:
    """``scheme://host:port`` of a URL that a broker gave. Raises :class:`AdminError` when it is no address."""
    if not address_of(url):
        wanted = "wanted http://host:port or https://host:port"
        raise AdminError(f"a broker gave the address {url[:80]!r}, {wanted}", sent=False)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def address_of(url: str) -> str:
    """``host:port`` of a URL, which for a broker's plain web address is its id; empty where it is no address."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def host_of(url_or_id: str) -> str:
    """The host of a URL or of a broker id, comparable: lower case, no brackets; empty where it is no address."""
    try:
        return urlsplit(url_or_id if "://" in url_or_id else f"//{url_or_id}").hostname or ""
    except ValueError:
        return ""


STILL = "the one that was read last is used, until it expires or lbd is restarted"


class Secret:
    """The content of a file, read again when the file changes, so that a rotated token needs no restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._value = ""
        self.trouble = ""
        """Why the secret that was read last is still in use; empty where it is what stands in the file."""

    def value(self) -> str:
        """The secret; while its file is being replaced (gone, empty), the one that was read last.

        Raises :class:`UsageError` that names the file, never its content, when there never was one.
        """
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_ino)
            if stamp != self._stamp:
                read = self._path.read_text(encoding="utf-8").strip()
                self._value, self._stamp = read or self._value, stamp
                self.trouble = "" if read else f"{self._path}: secret is empty; {STILL}"
        except (OSError, UnicodeDecodeError) as error:
            failed = f"{self._path}: secret cannot be read: {unread(error)}"
            if not self._value:
                raise UsageError(failed) from error
            self._stamp, self.trouble = None, f"{failed}; {STILL}"
        if not self._value:
            raise UsageError(f"{self._path}: secret is empty")
        return self._value

    def word(self) -> str:
        """The secret where it goes into a header as it is; a header that cannot be sent would be shown in an error."""
        found = self.value()
        if not (found.isascii() and found.isprintable() and " " not in found):
            raise UsageError(f"{self._path}: secret cannot be sent: it is more than one word of plain characters")
        return found


class Http:
    """Sends requests to brokers. Thread-safe: each thread has a session of its own.

    ``silences`` is what this process knows of brokers that answer nothing; None: what this one will find out.
    """

    def __init__(self, settings: PulsarSettings, silences: Silences | None = None) -> None:
        self._settings = settings
        self._sessions = Sessions(settings)
        self._token = Secret(settings.token_file) if settings.token_file else None
        self._password = Secret(settings.basic.password_file) if settings.basic else None
        self._trusted = {host_of(url) for url in settings.admin_urls}
        self._requests = count(1)
        self.sent = 0
        self.silences = silences or Silences()
        self.silences.asked_by(self._answers)

    @property
    def trouble(self) -> str:
        """Why an older secret is sent than the one that its file should have; empty where none is."""
        return "; ".join(one.trouble for one in (self._token, self._password) if one is not None and one.trouble)

    def close(self) -> None:
        """End the connections that nobody uses at the moment."""
        self._sessions.close()

    def trust(self, hosts: set[str]) -> None:
        """Hosts of this cluster's brokers: redirects are followed, and credentials sent, to these and no others."""
        self._trusted = {host_of(url) for url in (*self._settings.admin_urls, *hosts)} - {""}

    def send(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        hops: int = MAX_HOPS,
        content: bytes | None = None,
    ) -> Answer:
        """The answer after at most ``hops`` redirects; with ``hops=0`` a redirect is itself the answer.

        ``content`` is JSON to be sent with the request.

        Raises :class:`AdminError` when no answer came, it was too long, or it led away from the cluster.
        """
        timeout = timeout_seconds or self._settings.read_timeout_seconds
        first = url
        for _ in range(hops + 1):
            answer = self._once(method, url, params, timeout, content)
            if answer.location is None or hops == 0:
                return answer
            url, params = _followed(url, answer.location), None
        raise AdminError(f"{method} {first}: still redirected after {hops} hops, last to {base_of(url)}", sent=False)

    def _once(
        self, method: str, url: str, params: Mapping[str, str] | None, timeout: float, content: bytes | None
    ) -> Answer:
        if host_of(url) not in self._trusted:
            refused = f"{host_of(url) or 'this'} is no broker of this cluster; not followed, nothing sent there"
            raise AdminError(f"{method} {told(url)}: {refused}", sent=False)
        base, begun_at = base_of(url), time.time()
        self.silences.refuse(f"{method} {told(url)}", base)
        try:
            return self._exchange(method, url, params, timeout, content)
        except AdminError as error:
            if method == "GET" and timed_out(error):
                self.silences.unanswered(base, begun_at)
            raise

    def _answers(self, base: str) -> bool:
        """Whether a broker answers what every turn asks, rightly or not; one that is not there is not silent."""
        try:
            self._exchange("GET", base + paths.LOAD_REPORT, None, self._settings.read_timeout_seconds, None)
        except LbdError as error:
            return not timed_out(error)
        return True

    def _exchange(
        self, method: str, url: str, params: Mapping[str, str] | None, timeout: float, content: bytes | None
    ) -> Answer:
        begun = time.monotonic()
        deadline, status = begun + timeout, None
        self.sent = next(self._requests)
        try:
            with self._sessions.own().request(
                method,
                url,
                params=params,
                headers=self._authorization() | (_JSON if content is not None else {}),
                data=content,
                timeout=(self._settings.connect_timeout_seconds, timeout),
                allow_redirects=False,
                stream=True,
            ) as response:
                body = self._body(response, deadline, f"{method} {url.partition('?')[0]}")
                status = response.status_code
                location = response.headers.get("Location") if response.status_code in _REDIRECTS else None
                return Answer(response.status_code, body, url, location, response.headers.get("Date"))
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            raise translated(method, url, error) from error
        finally:
            ADMIN.answered(method, urlsplit(url).path, status, time.monotonic() - begun)

    def _body(self, response: requests.Response, deadline: float, what: str) -> bytes:
        """``read1`` gives what has come: an answer that drips must not outlive its deadline."""
        chunks: list[bytes] = []
        size = 0
        while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=True):
            chunks.append(chunk)
            size += len(chunk)
            if size > self._settings.max_answer_bytes:
                raise AdminError(
                    f"{what}: answer exceeds {self._settings.max_answer_bytes} bytes (pulsar.max_answer_bytes)"
                )
            if time.monotonic() > deadline:
                raise AdminError(f"{what}: answer not complete in time, {size} bytes came")
        return b"".join(chunks)

    def _authorization(self) -> dict[str, str]:
        if self._token:
            return {"Authorization": f"Bearer {self._token.word()}"}
        if self._password and self._settings.basic:
            pair = f"{self._settings.basic.username}:{self._password.value()}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}


def _followed(url: str, location: str) -> str:
    """Where a redirect leads. Raises :class:`AdminError` when that is no address, or leaves TLS."""
    try:
        found = urljoin(url, location)
        parts = urlsplit(found)
        usable = parts.port is None or parts.hostname is not None
    except ValueError:
        usable = False
    if not usable:
        told = f"{url.partition('?')[0]}: redirected to {location[:80]!r}, which is no address; not followed"
        raise AdminError(told, sent=False)
    if url.startswith("https:") and parts.scheme != "https":
        what = f"{url.partition('?')[0]}: redirected out of https to {base_of(found)}"
        raise AdminError(f"{what}; not followed", sent=False)
    return found
