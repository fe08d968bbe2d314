"""Pulsar's binary protocol, as far as lbd uses it: an exclusive writer of a topic, and consumers of topics.

An exclusive producer is granted while there is no other. When the broker accepts another one, it raises the topic's
epoch, and sends of the old one fail (PIP-68; Topic.addProducer, PersistentTopic.incrementTopicEpoch). The client
library is loaded on first use: without ``leader.enabled`` lbd runs without it.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lbd.clock import boot_seconds
from lbd.errors import ObserveError, UsageError
from lbd.pulsar.http import Secret
from lbd.pulsar.oauth2 import bearer_token
from lbd.pulsar.settings import ACKNOWLEDGED_WITHIN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lbd.pulsar.settings import PulsarSettings


BATCH = 1000
"""Largest number of lines per read."""

_DRAINED_MILLISECONDS = 20


class SharedLog:
    """A topic that every instance reads from its first line on, and that the :meth:`elect`-ed instance writes.

    Not thread-safe but for :meth:`publish`. All methods raise :class:`ObserveError` when the topic is unavailable.
    """

    def __init__(self, settings: PulsarSettings, topic: str, name: str) -> None:
        """Connect to ``pulsar.service_url``; ``name`` is the name of the producer.

        Raises :class:`UsageError` where the library is not installed or a secret cannot be read.
        """
        self._pulsar, self._topic, self._name = library("for leader.enabled"), topic, name
        self._producer: Any = None
        self._away_since: float | None = None
        self._client: Any = connected(self._pulsar, settings)
        try:
            self._reader = self._client.create_reader(topic, self._pulsar.MessageId.earliest)
        except self._pulsar.PulsarException as error:
            self._client.close()
            raise self._failed("cannot be read", error) from error

    def read(self, seconds: float) -> list[bytes]:
        """The next lines, after waiting at most ``seconds`` for the first; empty when none came."""
        return list(self._lines(seconds))

    def _lines(self, seconds: float) -> Iterator[bytes]:
        patience = max(int(seconds * 1000), 1)
        for _ in range(BATCH):
            try:
                yield self._reader.read_next(patience).data()
            except self._pulsar.Timeout:
                return
            except self._pulsar.PulsarException as error:
                raise self._failed("cannot be read", error) from error
            patience = _DRAINED_MILLISECONDS

    def elect(self) -> bool:
        """Try to become the writer; False while another instance is."""
        try:
            self._producer = self._client.create_producer(
                self._topic,
                producer_name=self._name,
                access_mode=self._pulsar.ProducerAccessMode.Exclusive,
                send_timeout_millis=int(ACKNOWLEDGED_WITHIN_SECONDS * 1000),
                batching_enabled=False,
            )
        except (self._pulsar.ProducerFenced, self._pulsar.ProducerBusy):
            return False
        except self._pulsar.PulsarException as error:
            raise self._failed("cannot be written", error) from error
        return True

    def publish(self, line: bytes) -> None:
        """Write a line; it is stored when the call returns. Raises if another producer has taken over, or after 10 s.

        A line without an acknowledgement may be in the topic all the same.
        """
        started_at = boot_seconds()
        try:
            self._producer.send(line)
        except self._pulsar.PulsarException as error:
            raise self._failed("cannot be written", error) from error
        if boot_seconds() - started_at > ACKNOWLEDGED_WITHIN_SECONDS:  # this process may have been suspended meanwhile
            raise ObserveError(f"{self._topic}: no acknowledgement within {ACKNOWLEDGED_WITHIN_SECONDS:.0f} s")

    def lost(self) -> bool:
        """Whether the writer has had no connection for as long as an acknowledgement may take."""
        if self._producer is not None and self._producer.is_connected():
            self._away_since = None
            return False
        now = time.monotonic()
        self._away_since = self._away_since or now
        return now - self._away_since > ACKNOWLEDGED_WITHIN_SECONDS

    def close(self) -> None:
        """Close the connection: another instance may write at once."""
        disconnect(self._pulsar, self._client)

    def _failed(self, how: str, error: Exception) -> ObserveError:
        return ObserveError(f"{self._topic} {how}: {error}; is pulsar.service_url right, and may its role do so?")


def library(why: str) -> Any:  # noqa: ANN401 - the library has no types
    """The client library. Raises :class:`UsageError`, which names the feature (``why``) that needs it."""
    try:
        import pulsar  # noqa: PLC0415 - loaded only where it is needed
    except ImportError as error:
        raise UsageError(f"the package pulsar-client is needed {why}: {error}") from error
    return pulsar


def connected(pulsar: Any, settings: PulsarSettings) -> Any:  # noqa: ANN401 - see library
    """A connected client. The library's own log is off: its errors come as exceptions or as a lost connection."""
    tls = {"tls_trust_certs_file_path": str(settings.tls.ca_file)} if settings.tls.ca_file else {}
    if settings.service_url is None:
        raise UsageError("pulsar.service_url is not set; wanted pulsar://host:port, or pulsar+ssl://host:port")
    try:
        return pulsar.Client(
            settings.service_url,
            authentication=_authentication(pulsar, settings),
            operation_timeout_seconds=int(ACKNOWLEDGED_WITHIN_SECONDS),
            connection_timeout_ms=int(settings.connect_timeout_seconds * 1000),
            tls_validate_hostname=True,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
            **tls,
        )
    except (pulsar.PulsarException, ValueError) as error:
        raise ObserveError(f"pulsar.service_url {settings.service_url}: no client: {error}") from error


def _authentication(pulsar: Any, settings: PulsarSettings) -> Any:  # noqa: ANN401 - see library
    """Credentials as for the admin API; the client fetches the token whenever it connects."""
    token = bearer_token(settings)
    if token is not None:
        token.word()
        return pulsar.AuthenticationToken(token.word)
    if settings.basic is not None:
        user = settings.basic.username
        return pulsar.AuthenticationBasic(user, Secret(settings.basic.password_file, user).value())
    if settings.tls.cert_file is not None and settings.tls.key_file is not None:
        return pulsar.AuthenticationTLS(str(settings.tls.cert_file), str(settings.tls.key_file))
    return None


def disconnect(pulsar: Any, client: Any) -> None:  # noqa: ANN401 - see library
    """Close a client and everything that it has open.

    A client and its readers refer to each other. Unless that is undone, its threads, sockets and memory stay until
    Python's collector looks at old objects, which may be hours later.
    """
    try:
        client.close()
    except pulsar.PulsarException:
        client.shutdown()  # an unresponsive broker notices the closed connection
    client._consumers.clear()  # noqa: SLF001 - the library has no other way


# --- consumers of several topics, for messages from now on

GIVEN_UP_AFTER_SECONDS = 10.0
"""The library reconnects with pauses of up to a minute; a new client is faster."""


@dataclass(frozen=True)
class Message:
    """A message: the topic's full name, its key, and its value, which is empty for a retracted one."""

    topic: str
    key: str
    value: bytes


class Listening:
    """A consumer of some topics, with a subscription that ends with it."""

    def __init__(self, settings: PulsarSettings, topics: Sequence[str]) -> None:
        """Connect to ``pulsar.service_url``. Raises :class:`ObserveError` when a topic cannot be subscribed."""
        self._pulsar = library("to listen to load data")
        self._away_since: float | None = None
        self._client: Any = connected(self._pulsar, settings)
        name = f"lbd-{socket.gethostname()}-{secrets.token_hex(4)}"
        try:
            self._consumer = self._client.subscribe(list(topics), name, consumer_name=name)
        except self._pulsar.PulsarException as error:
            self.close()
            raise self._failed(error) from error

    def receive(self, seconds: float) -> Message | None:
        """The next message, acknowledged; None when none came within that time."""
        try:
            message = self._consumer.receive(int(seconds * 1000))
            self._consumer.acknowledge(message)
        except self._pulsar.Timeout:
            return None
        except self._pulsar.PulsarException as error:
            raise self._failed(error) from error
        return Message(message.topic_name(), message.partition_key(), message.data())

    def lost(self) -> bool:
        """Whether the connection was away: for too long, or long enough to miss messages."""
        if self._consumer.is_connected():
            return self._away_since is not None
        now = boot_seconds()
        self._away_since = self._away_since or now
        return now - self._away_since > GIVEN_UP_AFTER_SECONDS

    def close(self) -> None:
        """End the subscription and the connection."""
        disconnect(self._pulsar, self._client)

    def _failed(self, error: Exception) -> ObserveError:
        where = "the load data topics of pulsar/system cannot be read"
        return ObserveError(f"{where}: {error}; is pulsar.service_url right, and may its role read there?")
