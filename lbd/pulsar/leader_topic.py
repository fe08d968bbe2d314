"""The topic by which instances elect a leader, kept alive by a subscription without readers.

Brokers delete a topic without subscriptions. Retention would also keep it, but is a policy of a whole namespace where
topic policies are off; a subscription works on every version, and also protects the topic itself from deletion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lbd.errors import ObserveError
from lbd.pulsar import paths
from lbd.pulsar.admin import AdminClient
from lbd.pulsar.broker_configuration import is_on
from lbd.text import duration_text

if TYPE_CHECKING:
    from lbd.pulsar.settings import PulsarSettings

SUBSCRIPTION = "lbd-kept"
EARLIEST = b'{"ledgerId":-1,"entryId":-1,"partitionIndex":-1}'


class Writer(msgspec.Struct, frozen=True, rename="camel"):
    """A producer in the statistics of the topic: its name, its address, and since when it is connected."""

    producer_name: str = ""
    address: str = "an unknown address"
    connected_since: str = "an unknown time"

    def __str__(self) -> str:
        """Quoted, because the client chooses the name."""
        return f"{self.producer_name!r} at {self.address}, connected since {self.connected_since}"


class _Policies(msgspec.Struct):
    message_ttl_in_seconds: int | None = None
    subscription_expiration_time_minutes: int | None = None


class _Stats(msgspec.Struct):
    publishers: list[Writer] = []


class LeaderTopic(AdminClient):
    """Requests about the topic over the admin API."""

    def __init__(self, settings: PulsarSettings, topic: str) -> None:
        super().__init__(settings)
        self.topic = topic

    def create(self) -> None:
        """Create the topic and its subscription, unless they exist. Raises :class:`ObserveError`."""
        self.active_brokers()
        response = self._any(paths.topic(self.topic), {204, 404, 409}, method="PUT")
        if response.status == 404:
            raise ObserveError(f"{self.topic}: there is no namespace {self._namespace}; create it, or set leader.topic")
        self._any(paths.subscription(self.topic, SUBSCRIPTION), {204, 409}, method="PUT", content=EARLIEST)

    def forget(self, seconds: int) -> None:
        """Expire lines older than ``seconds``. 409: nothing to delete, or deletion is running."""
        self._any(paths.expiry(self.topic, SUBSCRIPTION, seconds), {204, 409}, method="POST")

    def writers(self) -> tuple[Writer, ...]:
        """Connected producers: the leader alone. Raises :class:`ObserveError` where there is no topic."""
        self.active_brokers()
        return tuple(self._json(self._any(paths.topic_stats(self.topic)), _Stats).publishers)

    def early_loss(self, retention_seconds: int) -> str:
        """Reason why the cluster's policies lose lines younger than ``retention_seconds``; empty if they keep them.

        A topic's own message TTL goes before its namespace's, and both before the brokers' default; 0 is for ever.
        """
        self.active_brokers()
        policies = self._json(self._any(paths.namespace(self._namespace)), _Policies)
        own, runtime = self._own_ttl(), self.runtime_configuration()
        default = _whole(runtime.get("ttlDurationDefaultInSeconds"))
        ttl = next(seconds for seconds in (own, policies.message_ttl_in_seconds, default) if seconds is not None)
        if 0 < ttl < retention_seconds:
            return (
                f"messages of {self.topic} expire after {duration_text(ttl)} (message TTL), "
                f"wanted {duration_text(retention_seconds)} or none"
            )
        minutes = policies.subscription_expiration_time_minutes
        if minutes is None:
            minutes = _whole(runtime.get("subscriptionExpirationTimeMinutes"))
        if minutes > 0:
            expires = f"expires after {duration_text(minutes * 60)} without a consumer (subscription expiration)"
            return f"subscription {SUBSCRIPTION!r}, which keeps the messages of {self.topic}, {expires}, wanted never"
        return ""

    def producers_allowed(self) -> list[str] | None:
        """Roles that may write the topic, beside superusers and admins; None without authorization."""
        self.active_brokers()
        if not is_on(self.runtime_configuration(), "authorizationEnabled"):
            return None
        granted = self._json(self._any(paths.topic_permissions(self.topic)), dict[str, list[str]])
        return sorted(role for role, actions in granted.items() if "produce" in actions)

    @property
    def _namespace(self) -> str:
        return self.topic.removeprefix("persistent://").rpartition("/")[0]

    def _own_ttl(self) -> int | None:
        """The topic's own TTL: 405 where brokers have no topic policies, 404 before the topic exists."""
        response = self._any(paths.topic_ttl(self.topic), {200, 204, 404, 405})
        return self._json(response, int | None) if response.status == 200 and response.body.strip() else None  # type: ignore[arg-type]


def _whole(text: str | None) -> int:
    """A number of the brokers' configuration; 0, their default, for any other text."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0
