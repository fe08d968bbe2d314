"""The token for brokers: a file's, or an access token by OAuth2 client credentials, renewed before it ends.

REST requests and the Pulsar client library take their token here, and all clients of a process with the same settings
share one access token. oauthlib writes and reads the messages to the issuer, and sends nothing itself: it needs no
other package, where Authlib needs cryptography, and requests-oauthlib reads responses of any size.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import msgspec
import requests
from urllib3.exceptions import HTTPError

from lbd.clock import boot_seconds
from lbd.errors import AdminError, LbdError, ThreadError, UsageError, as_lbd_error, unread
from lbd.pulsar.http import BoundedExchange, Secret, Sessions, hidden, one_word, printable_url, translated, unpacked
from lbd.pulsar.settings import Oauth2Settings, PulsarSettings, TlsSettings, checked_issuer
from lbd.redaction import forget, remember
from lbd.text import utc
from lbd.threads import begin

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.pulsar.http import BearerToken

RENEW_AFTER = 0.8
"""Share of a token's lifetime after which it is renewed; the rest is for an outage of the issuer."""

ASSUMED_SECONDS = 300.0
"""Lifetime that decides the renewal where the issuer gives none. Such a token is used until there is another."""

AGAIN_SECONDS = 15.0
"""Pause after a failure of the issuer; a caller without a token gets the failure at once."""

FRESH_SECONDS = 60.0
"""Age below which a refused token is not renewed: 401 is also Pulsar's response to a role without the right."""

MOST_BYTES = 1 << 18
"""Largest response of an issuer, and largest credentials file. A token has a few KiB."""

WELL_KNOWN = "/.well-known/openid-configuration"


def bearer_token(settings: PulsarSettings) -> BearerToken | None:
    """The token to send to brokers; None where none is configured."""
    if settings.oauth2 is not None:
        return _shared(settings.oauth2, settings.read_timeout_seconds)
    return None if settings.token_file is None else Secret(settings.token_file)


@lru_cache(maxsize=16)
def _shared(oauth2: Oauth2Settings, read_timeout_seconds: float) -> AccessToken:
    return AccessToken(oauth2, read_timeout_seconds)


class _Metadata(msgspec.Struct):
    token_endpoint: str


class _Credentials(msgspec.Struct):
    client_id: str
    client_secret: str
    type: str = "client_credentials"


@dataclass(frozen=True)
class _Grant:
    """An access token; its times are boot seconds, ``ends_at`` is infinite where the issuer gives no lifetime."""

    token: str
    made_at: float
    renew_at: float
    ends_at: float


class AccessToken:
    """The access token of one client at one issuer. Thread-safe: one thread at a time sends requests to the issuer.

    A caller waits for the issuer only without a valid token, and at most for the read timeout.
    """

    def __init__(self, oauth2: Oauth2Settings, read_timeout_seconds: float) -> None:
        self._oauth2, self._read_timeout_seconds = oauth2, read_timeout_seconds
        self._issuer = PulsarSettings(tls=TlsSettings(ca_file=oauth2.ca_file))
        self._lock = threading.Lock()
        self._grant: _Grant | None = None
        self._renewal: threading.Event | None = None
        self._again_at = -math.inf
        self._failure: LbdError | None = None
        self._failing_since = 0.0
        self._client_secret = ""
        self.recent: tuple[str, ...] = ()

    @property
    def trouble(self) -> str:
        """Reason why the token was not renewed, and how long it remains valid; empty after a success."""
        with self._lock:
            failure, grant = self._failure, self._grant
        if failure is None or grant is None:
            return ""
        remaining = grant.ends_at - boot_seconds()
        until = "a broker refuses it" if math.isinf(remaining) else utc(time.time() + remaining)
        return f"{self._failed(failure)}; the last one {'is used' if remaining > 0 else 'was good'} until {until}"

    def word(self, ends_at: float | None = None) -> str:
        """The token; it is renewed in the background. Waiting for the first one ends at ``ends_at``.

        Without a valid one it raises :class:`AdminError`, and :class:`UsageError` for an unusable credentials file.
        """
        with self._lock:
            grant, now = self._grant, boot_seconds()
            if grant is None or now >= grant.renew_at:
                self._begin(now)
            renewal = self._renewal
        if grant is not None and now < grant.ends_at:
            return grant.token
        self._wait(renewal, ends_at)
        with self._lock:
            grant, failure = self._grant, self._failure
        if grant is not None and boot_seconds() < grant.ends_at:
            return grant.token
        if isinstance(failure, UsageError) and grant is None:
            raise UsageError(str(failure))
        raise AdminError(self._failed(failure), sent=False)

    def instead_of(self, refused: str, ends_at: float | None = None) -> str:
        """The token after a renewal, if the refused one is older than ``FRESH_SECONDS``."""
        with self._lock:
            grant, now = self._grant, boot_seconds()
            if grant is not None and grant.token == refused and now - grant.made_at >= FRESH_SECONDS:
                self._begin(now)
                renewal = self._renewal
            else:
                renewal = None
        self._wait(renewal, ends_at)
        return self.word(ends_at)

    def _begin(self, now: float) -> None:
        if self._renewal is None and now >= self._again_at:
            renewal = threading.Event()
            try:
                begin(partial(self._renew, renewal), "lbd-oauth2")
            except ThreadError as error:
                self._fail(error)
            else:
                self._renewal = renewal

    def _wait(self, renewal: threading.Event | None, ends_at: float | None) -> None:
        if renewal is not None:
            latest = self._read_timeout_seconds if ends_at is None else ends_at - boot_seconds()
            renewal.wait(max(min(latest, self._read_timeout_seconds), 0.0))

    def _failed(self, failure: LbdError | None) -> str:
        if failure is None:
            return f"{self._oauth2.issuer_url}: no access token yet, the issuer has not answered in time"
        return f"{self._oauth2.issuer_url}: no access token since {utc(self._failing_since)}: {failure}"

    def _renew(self, done: threading.Event) -> None:
        grant, failure = None, None
        try:
            grant = self._request(boot_seconds() + self._read_timeout_seconds)
        except Exception as error:  # noqa: BLE001 - callers that wait for the token get it
            failure = as_lbd_error(error)
        with self._lock:
            if grant is not None:
                self._grant = grant
                self._keep(grant.token)
            self._renewal = None
            self._fail(failure)
        done.set()

    def _fail(self, failure: LbdError | None) -> None:
        """Note how a renewal ended; None: the token is new."""
        if self._failure is None:
            self._failing_since = time.time()
        self._failure = failure
        self._again_at = -math.inf if failure is None else boot_seconds() + AGAIN_SECONDS

    def _keep(self, token: str) -> None:
        """Remember the last two tokens: a response may still echo the previous one."""
        if token not in self.recent:
            for old in self.recent[:-1]:
                forget(old)
            self.recent = (*self.recent[-1:], token)

    # --- the exchange with the issuer

    def _request(self, ends_at: float) -> _Grant:
        sessions = Sessions(self._issuer)
        try:
            credentials = self._credentials()
            endpoint = self._token_endpoint(sessions, ends_at)
            return self._granted(sessions, endpoint, credentials, ends_at)
        except AdminError as error:
            raise AdminError(hidden(str(error), self._secrets())) from None
        finally:
            sessions.close()

    def _secrets(self) -> tuple[str, ...]:
        return (*self.recent, *((self._client_secret,) if self._client_secret else ()))

    def _credentials(self) -> _Credentials:
        """The content of ``private_key_file``. Raises :class:`UsageError`, which does not show it."""
        file = f"pulsar.oauth2.private_key_file {self._oauth2.private_key_file}"
        expected = "wanted JSON with type client_credentials, client_id and client_secret"
        try:
            credentials = msgspec.json.decode(_content(self._oauth2.private_key_file), type=_Credentials)
        except OSError as error:
            raise UsageError(f"{file}: cannot be read: {unread(error)}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise UsageError(f"{file}: no credentials file; {expected}") from None
        self._client_secret = credentials.client_secret
        remember(self._client_secret)
        if credentials.type != "client_credentials" or not credentials.client_id or not credentials.client_secret:
            raise UsageError(f"{file}: another type, or an empty value; {expected}")
        return credentials

    def _token_endpoint(self, sessions: Sessions, ends_at: float) -> str:
        url = self._oauth2.issuer_url + WELL_KNOWN
        status, body = self._send(sessions, "GET", url, ends_at)
        if status != 200:
            raise AdminError(f"GET {url}: HTTP {status}, wanted 200; is pulsar.oauth2.issuer_url right?", status=status)
        try:
            endpoint = msgspec.json.decode(body, type=_Metadata).token_endpoint
            return checked_issuer(endpoint, "its token_endpoint")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise AdminError(f"GET {url}: the answer names no token_endpoint; is issuer_url right?") from None
        except ValueError as error:
            raise AdminError(f"GET {url}: {error}") from None

    def _granted(self, sessions: Sessions, url: str, credentials: _Credentials, ends_at: float) -> _Grant:
        from oauthlib.oauth2 import BackendApplicationClient, OAuth2Error  # noqa: PLC0415 - loaded only where it is needed

        client = BackendApplicationClient(credentials.client_id)
        options = {name: value for name in ("audience", "scope") if (value := getattr(self._oauth2, name)) is not None}
        form = client.prepare_request_body(
            include_client_id=True, client_secret=credentials.client_secret, **options
        ).encode()
        made_at = boot_seconds()
        status, body = self._send(sessions, "POST", url, ends_at, form)
        request, reason = f"POST {printable_url(url)}", ""
        try:
            answer = client.parse_request_body_response(body.decode())
            token, lifetime = answer["access_token"], float(answer.get("expires_in") or math.inf)
        except OAuth2Error as error:
            why = hidden(f"{error.error}: {error.description}".removesuffix(": "), self._secrets())
            answer, reason = None, f" ({' '.join(why.split())[:200]})"
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):  # raised for garbage
            answer = None
        if answer is None or status != 200 or not isinstance(token, str) or not one_word(token) or not lifetime > 0:
            raise AdminError(
                f"{request}: HTTP {status}{reason}, wanted an access token; are private_key_file, audience and scope of"
                " pulsar.oauth2 right?",
                status=status,
            )
        remember(token)
        renew_after = RENEW_AFTER * (ASSUMED_SECONDS if math.isinf(lifetime) else lifetime)
        return _Grant(token, made_at, made_at + renew_after, made_at + lifetime)

    def _send(
        self, sessions: Sessions, method: str, url: str, ends_at: float, form: bytes | None = None
    ) -> tuple[int, bytes]:
        """Status and body of one response. A redirect is returned, too: the secret goes to no other address."""
        exchange = BoundedExchange(
            f"{method} {printable_url(url)}", ends_at, MOST_BYTES, peer="issuer", ca_setting="pulsar.oauth2.ca_file"
        )
        headers = {"Accept": "application/json"}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            with sessions.send(exchange, method, url, None, headers, form) as response:
                body = b""
                for piece in unpacked(response, exchange):
                    body += piece
                    if len(body) > MOST_BYTES:
                        raise exchange.too_long()
                return response.status_code, body
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            raise translated(exchange, url, error) from error


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES)
