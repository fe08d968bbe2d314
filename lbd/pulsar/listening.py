"""Pulsar's binary protocol, for who only listens: some topics, heard from now on."""

from __future__ import annotations

import secrets
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lbd.errors import ObserveError
from lbd.pulsar.client import connected, disconnect, library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.pulsar.settings import PulsarSettings

GIVEN_UP_AFTER_SECONDS = 10.0
"""The library connects again by itself, with pauses of up to a minute; a new connection is sooner there."""


@dataclass(frozen=True)
class Message:
    """One message: the topic's full name, the key, and the value, empty where what was told is taken back."""

    topic: str
    key: str
    value: bytes


class Listening:
    """A consumer of some topics, of a subscription that ends with it."""

    def __init__(self, settings: PulsarSettings, topics: Sequence[str]) -> None:
        """Connect to ``pulsar.service_url``. Raises :class:`ObserveError` when a topic cannot be heard."""
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
            found = self._consumer.receive(int(seconds * 1000))
            self._consumer.acknowledge(found)
        except self._pulsar.Timeout:
            return None
        except self._pulsar.PulsarException as error:
            raise self._failed(error) from error
        return Message(found.topic_name(), found.partition_key(), found.data())

    def lost(self) -> bool:
        """Whether the connection was away: for too long, or so that what was told meanwhile has been missed."""
        if self._consumer.is_connected():
            return self._away_since is not None
        now = time.monotonic()
        self._away_since = self._away_since or now
        return now - self._away_since > GIVEN_UP_AFTER_SECONDS

    def close(self) -> None:
        """End the subscription and the connection."""
        disconnect(self._pulsar, self._client)

    def _failed(self, error: Exception) -> ObserveError:
        where = "the load data topics of pulsar/system cannot be heard"
        return ObserveError(f"{where}: {error}; is pulsar.service_url right, and may its role read there?")
