"""Load data of the extensible load manager: two non-persistent topics, followed in a thread.

A message's key is a broker's id, its value JSON. An empty value retracts the previous one: a broker sends it when it
gives or gets a bundle, and when it stops. Nothing is stored: a consumer receives only later messages. Readers and table
views are refused on such topics, so this is a plain consumer (PIP-192; BrokerLoadDataReporter,
TopBundleLoadDataReporter, TableViewLoadDataStoreImpl).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.clock import boot_seconds
from lbd.errors import ObserveError, as_lbd_error
from lbd.pulsar.client import Listening, Message
from lbd.threads import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lbd.pulsar.settings import PulsarSettings

BROKER_LOAD = "non-persistent://pulsar/system/loadbalancer-broker-load-data"
TOP_BUNDLES = "non-persistent://pulsar/system/loadbalancer-top-bundles-load-data"
TOPICS = (BROKER_LOAD, TOP_BUNDLES)

READ_SECONDS = 0.5
AGAIN_AFTER_SECONDS = 2.0
STOP_SECONDS = 5.0


@dataclass(frozen=True)
class LatestValue:
    """Latest value of a broker (empty: retracted), received ``at`` (boot seconds)."""

    value: bytes
    at: float


class LoadTopics:
    """Follows both topics from its creation on, and reconnects by itself. Thread-safe.

    All values are dropped with a lost connection, because messages were missed.
    """

    def __init__(
        self,
        settings: PulsarSettings,
        connect: Callable[[], Listening] | None = None,
        monotonic: Callable[[], float] = boot_seconds,
    ) -> None:
        """Start the thread. Raises :class:`ObserveError` where ``pulsar.service_url`` is not set."""
        if settings.service_url is None:
            raise ObserveError(
                "the brokers run ExtensibleLoadManagerImpl, which sends its load data on topics only; "
                "pulsar.service_url is not set; wanted pulsar://host:6650, or pulsar+ssl://host:6651"
            )
        self._connect = connect or (lambda: Listening(settings, TOPICS))
        self._monotonic = monotonic
        self._latest: dict[str, dict[str, LatestValue]] = {topic: {} for topic in TOPICS}
        self._trouble, self._failed = "", False
        self._listening_since: float | None = monotonic()
        self._unheard_seconds = 0.0
        self._listened_at_request: dict[str, float] = {}
        self._news = threading.Condition()
        self._stopping = threading.Event()
        self._thread = begin(self._run, "lbd-load-topics")

    @property
    def trouble(self) -> str:
        """Reason why nothing is received at the moment; empty while the topics are followed."""
        with self._news:
            return self._trouble

    def heard_seconds(self, broker: str) -> float:
        """Seconds that lbd has listened for a broker since the first request for its data.

        Connections count from the last one that received data: many short ones are no new beginning. Time without a
        connection does not count.
        """
        with self._news:
            listened = self._listened()
            return max(listened - self._listened_at_request.get(broker, listened), 0.0)

    def _listened(self) -> float:
        since = self._listening_since
        return self._unheard_seconds + (0.0 if since is None else max(self._monotonic() - since, 0.0))

    def of(self, topic: str, broker: str) -> LatestValue | None:
        """The latest value of a broker in a topic; None before its first message."""
        with self._news:
            self._listened_at_request.setdefault(broker, self._listened())
            return self._latest[topic].get(broker)

    def again(self, topic: str, broker: str, seconds: float) -> LatestValue | None:
        """The latest value of a broker, after waiting at most ``seconds`` for a new one where it was retracted."""
        with self._news:
            self._news.wait_for(lambda: self._stands(topic, broker), max(seconds, 0.0))
            return self._latest[topic].get(broker)

    def age_seconds(self, latest: LatestValue) -> float:
        """Seconds since a value was received."""
        return max(self._monotonic() - latest.at, 0.0)

    def wait(self, brokers: Collection[str], seconds: float) -> bool:
        """Whether all these brokers sent both kinds of data within ``seconds``; a failing connection ends the wait."""
        with self._news:
            self._news.wait_for(lambda: self._complete(brokers) or self._failed, seconds)
            return self._complete(brokers)

    def _complete(self, brokers: Collection[str]) -> bool:
        return all(self._stands(topic, broker) for topic in TOPICS for broker in brokers)

    def _stands(self, topic: str, broker: str) -> bool:
        latest = self._latest[topic].get(broker)
        return latest is not None and latest.value != b""

    def close(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
                trouble = "the connection was lost"
            except Exception as error:  # noqa: BLE001 - the thread must survive: the error is reported, and it tries again
                trouble = str(as_lbd_error(error))
            self._forget(trouble)
            self._stopping.wait(AGAIN_AFTER_SECONDS)

    def _follow(self) -> None:
        connection = self._connect()
        try:
            self._forget("")
            while not self._stopping.is_set() and not connection.lost():
                message = connection.receive(READ_SECONDS)
                if message is not None:
                    self._take(message)
        finally:
            self._count()
            connection.close()

    def _count(self) -> None:
        """Add the time that an ending connection has listened."""
        with self._news:
            heard = any(self._latest.values())
            self._unheard_seconds, self._listening_since = 0.0 if heard else self._listened(), None
            if heard:
                self._listened_at_request.clear()

    def _take(self, message: Message) -> None:
        with self._news:
            self._latest[message.topic][message.key] = LatestValue(message.value, self._monotonic())
            self._news.notify_all()

    def _forget(self, trouble: str) -> None:
        with self._news:
            self._trouble, self._failed = trouble, bool(trouble)
            if trouble:
                self._listening_since = None
            elif self._listening_since is None:
                self._listening_since = self._monotonic()
            for there in self._latest.values():
                there.clear()
            self._news.notify_all()
