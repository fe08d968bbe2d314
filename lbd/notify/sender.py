"""The thread that posts messages to the webhook; whatever the receiver does, no turn waits for it.

Apprise would add four packages for these two formats, and neither a queue nor grouping nor ``Retry-After``.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import requests
import structlog
from prometheus_client import Counter
from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

from lbd.clock import boot_seconds
from lbd.errors import AdminError, LbdError, ThreadError, UsageError, as_lbd_error
from lbd.notify.events import Announced, Event, merged, news
from lbd.notify.message import WebhookMessage, content
from lbd.pulsar.http import BoundedExchange, BoundedSession, Secret, timed_out
from lbd.redaction import remember
from lbd.text import utc
from lbd.threads import begin

if TYPE_CHECKING:
    from lbd.notify.events import TurnEnd
    from lbd.notify.settings import NotifySettings


CONNECT_SECONDS = 3.0
EXCHANGE_SECONDS = 8.0
"""Timeout of the connection, the message and the head of the response together."""

HEAD_BYTES = 64 << 10
"""Longest head of a response; a body is not read."""

SECRET_CHARACTERS = 20
"""Shortest path that holds a secret: one as ``/v1/hook`` would be cut out of other texts."""

MOST_WAITING = 256
"""Largest number of waiting events; beyond it the oldest are lost, counted, and reported."""

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 2.0, 300.0
"""Bounds of the pause between retries, which doubles. ``Retry-After`` makes it longer, up to an hour."""

LONGEST_WAIT_SECONDS = 3600.0

STOP_SECONDS = 4.0
"""Time for the last messages at a stop."""

MESSAGES = Counter("lbd_notifications", "Messages to the webhook, by how an attempt ended.", ["result"], registry=None)
LOST = Counter("lbd_notification_events_lost", "Events that were dropped before a message had them.", registry=None)
WRONG_CONTENT = frozenset({400, 413, 422})
"""Statuses for a message that would be refused again. Any other one is retried: people fix addresses, too."""

for _result in ("sent", "failed", "refused"):
    MESSAGES.labels(_result)


class NotTakenError(LbdError):
    """The receiver did not accept a message. ``lasting``: it would refuse this one again.

    ``retry_seconds`` is the pause before the next message.
    """

    def __init__(self, message: str, *, lasting: bool = False, retry_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.lasting, self.retry_seconds = lasting, retry_seconds


class Receiver:
    """A webhook. One thread posts to it."""

    def __init__(self, settings: NotifySettings) -> None:
        assert settings.url_file is not None
        self._file, self._format = settings.url_file, settings.format
        self._secret = Secret(settings.url_file)
        self._session = BoundedSession()
        self._exchange: BoundedExchange | None = None
        self._session.auth = lambda request: request  # otherwise a login in .netrc would be sent
        self.name = "the webhook"
        """Host and port, without the secret parts of the address."""

    def url(self) -> str:
        """Its address. Raises :class:`UsageError`, which does not show it."""
        address = self._secret.word()
        try:
            parts = urlsplit(address)
            usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise UsageError(
                f"{self._file}: no web address in it (not shown: it is a secret); wanted https://HOST/PATH"
            )
        path = address.removeprefix(f"{parts.scheme}://{parts.netloc}")
        if len(path) >= SECRET_CHARACTERS:
            remember(path)
        self.name = parts.netloc.rpartition("@")[2]
        return address

    def post(self, message: WebhookMessage) -> None:
        """Send a message. Raises :class:`NotTakenError`, whose text holds no secret part of the address."""
        try:
            url = self.url()
        except UsageError as error:
            raise NotTakenError(str(error)) from error
        body, headers = content(message, self._format), {"Content-Type": "application/json"}
        exchange = BoundedExchange("message", boot_seconds() + EXCHANGE_SECONDS, HEAD_BYTES, peer="receiver")
        self._exchange = exchange
        self._session.begin(exchange)
        limits = min(CONNECT_SECONDS, EXCHANGE_SECONDS), EXCHANGE_SECONDS
        try:
            with self._session.post(  # the body does not matter
                url, body, headers=headers, timeout=limits, allow_redirects=False, stream=True
            ) as answer:
                _check(answer)
        except (requests.RequestException, AdminError) as error:
            raise NotTakenError(exchange.given_up or _failure_text(error)) from None

    def post_test(self) -> None:
        """Send a message that introduces itself. Raises :class:`NotTakenError`."""
        event = Event("test", time.time(), "a person tries the webhook with lbd doctor --notify")
        self.post(WebhookMessage("", socket.gethostname(), time.time(), [event]))

    def close(self) -> None:
        """End idle connections."""
        self._session.close()

    def give_up(self) -> None:
        """Close idle connections, and end an exchange that another thread waits for: its message was not accepted."""
        if self._exchange is not None:
            self._exchange.give_up("given up: lbd has another receiver")
        self.close()


def _check(answer: requests.Response) -> None:
    """Raise :class:`NotTakenError` for any status but success."""
    if answer.ok and not answer.is_redirect:
        return
    why = f"it answered {answer.status_code} {answer.reason or ''}".rstrip()
    wait = 0.0
    with suppress(InvalidHeader):
        wait = Retry().get_retry_after(answer.raw) or 0.0
    raise NotTakenError(why, lasting=answer.status_code in WRONG_CONTENT, retry_seconds=min(wait, LONGEST_WAIT_SECONDS))


def _failure_text(error: requests.RequestException | AdminError) -> str:
    """Text of an error without the address, which the library's own text has."""
    if isinstance(error, AdminError) and not timed_out(error):
        return f"its answer has a head of more than {HEAD_BYTES >> 10} KiB"
    return next(
        (words for kind, words in FAILURES if isinstance(error, kind)), f"the request failed ({type(error).__name__})"
    )


FAILURES = (
    (requests.exceptions.ConnectTimeout, f"no connection within {CONNECT_SECONDS:g} s"),
    ((requests.exceptions.Timeout, AdminError), f"no answer within {EXCHANGE_SECONDS:g} s"),
    (requests.exceptions.ProxyError, "the proxy gives no connection"),
    (
        requests.exceptions.SSLError,
        "TLS failed: is its certificate valid, and its CA known (REQUESTS_CA_BUNDLE)?",
    ),
    (requests.exceptions.ConnectionError, "no connection, or it broke off"),
)
"""Texts by the first matching kind: errors of connections are kinds of each other."""


class Notifier:
    """Announces turns to people. Nothing here raises, and only :meth:`close` waits."""

    def __init__(self, settings: NotifySettings) -> None:
        self._settings = settings
        self._changed = threading.Condition()
        self._receiver = Receiver(settings) if settings.url_file is not None else None
        self._announced, self._cluster = Announced(), ""
        self._waiting: list[Event] = []
        self._sending: list[Event] = []
        self._lost = 0
        self._due_at, self._retries = 0.0, 0
        self._thread: threading.Thread | None = None
        self._closing = False
        self.trouble = ""
        """Time since which the receiver accepts no messages, and the reason; empty while it does."""
        self._log = structlog.get_logger()

    @property
    def enabled(self) -> bool:
        """Whether there is a receiver."""
        return self._receiver is not None

    def tell(self, now: TurnEnd) -> None:
        """Record the end of a turn."""
        self._announced, events = news(self._announced, now)
        chosen = [event for event in events if event.kind in self._settings.events]
        with self._changed:
            self._cluster = now.status.cluster
            if not self.enabled or not chosen:
                return
            self._keep([*self._waiting, *chosen])
            try:
                self._thread = self._thread or begin(self._run, "notify")
            except ThreadError as error:  # the next event tries again
                self.trouble = f"notify: {error}"
            self._changed.notify()

    def take(self, settings: NotifySettings) -> None:
        """Apply other settings; a changed receiver is tried at once."""
        if settings == self._settings:
            return
        with self._changed:
            before, self._settings = self._receiver, settings
            self._receiver = Receiver(settings) if settings.url_file is not None else None
            self._due_at, self._retries, self.trouble = 0.0, 0, ""
            self._keep(self._waiting)
            self._changed.notify()
        if before is not None:
            before.give_up()

    def close(self) -> None:
        """Send the waiting events at once, in one attempt; a hanging receiver is given up after ``STOP_SECONDS``."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
        if self._receiver is not None:
            self._receiver.close()
        unsent = len(self._sending) + len(self._waiting)
        if unsent:
            self._log.warning("notifications were not sent before the end", events=unsent)

    def _keep(self, events: list[Event]) -> None:
        """Queue these events. Drop the oldest where they are too many, and all where there is no receiver."""
        most = MOST_WAITING if self.enabled else 0
        number = max(len(events) - most, 0)
        self._waiting = events[number:]
        self._lose(number)

    def _lose(self, number: int) -> None:
        self._lost += number
        LOST.inc(number)

    def _run(self) -> None:
        """Send the waiting events at the interval, until the notifier is closed."""
        closing = False
        while not closing:
            with self._changed:
                while not self._closing and not self._is_due():
                    self._changed.wait(self._due_at - time.monotonic() if self._waiting else None)
                closing, receiver = self._closing, self._receiver
                self._sending, self._waiting = self._waiting, []
                lost = self._lost
            if receiver is not None and self._sending:
                self._send(receiver, lost)

    def _is_due(self) -> bool:
        return bool(self._waiting) and time.monotonic() >= self._due_at

    def _send(self, receiver: Receiver, lost: int) -> None:
        """Try once; events that were not accepted wait on, unless the receiver refuses them for good."""
        message = WebhookMessage(self._cluster, socket.gethostname(), time.time(), merged(self._sending), lost)
        try:
            receiver.post(message)
        except NotTakenError as failure:
            self._missed(receiver, failure)
        except Exception as error:  # noqa: BLE001 - a bug here must not end the thread: it is reported
            self._missed(receiver, NotTakenError(str(as_lbd_error(error)), lasting=True))
        else:
            MESSAGES.labels("sent").inc()
            with self._changed:
                self._sending = []
                self._lost -= lost
                self._retries, self._due_at = 0, time.monotonic() + self._settings.min_interval_seconds
                trouble, self.trouble = self.trouble, ""
            if trouble:
                self._log.info("notifications are taken again", receiver=receiver.name)

    def _missed(self, receiver: Receiver, failure: NotTakenError) -> None:
        MESSAGES.labels("refused" if failure.lasting else "failed").inc()
        with self._changed:
            if failure.lasting:
                self._lose(len(self._sending))
            else:
                self._keep([*self._sending, *self._waiting])
            self._sending = []
            if receiver is not self._receiver:  # it was replaced or removed
                return
            pause = min(FIRST_RETRY_SECONDS * 2**self._retries, LAST_RETRY_SECONDS)
            pause = max(pause, failure.retry_seconds, self._settings.min_interval_seconds if failure.lasting else 0.0)
            self._retries, self._due_at = min(self._retries + 1, 16), time.monotonic() + pause
            was_failing = bool(self.trouble)
            if not was_failing:
                self.trouble = f"notify: {receiver.name} takes no messages since {utc(time.time())}: {failure}"
        if not was_failing:
            self._log.warning("notifications are not taken", receiver=receiver.name, why=str(failure))
