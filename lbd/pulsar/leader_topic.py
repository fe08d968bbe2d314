"""The topic by which lbds agree on a leader, kept by a subscription of its own that nobody reads.

Brokers delete what no subscription waits for. Retention would do as well, but is a policy of a whole namespace where
topic policies are off; a subscription works on every version, and keeps the topic itself from being deleted, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lbd.errors import ObserveError
from lbd.pulsar import paths
from lbd.pulsar.asking import Asking

if TYPE_CHECKING:
    from lbd.pulsar.settings import PulsarSettings

SUBSCRIPTION = "lbd-kept"
EARLIEST = b'{"ledgerId":-1,"entryId":-1,"partitionIndex":-1}'


class _Publisher(msgspec.Struct, rename="camel"):
    producer_name: str = ""


class _Stats(msgspec.Struct):
    publishers: list[_Publisher] = []


class LeaderTopic(Asking):
    """The topic, as the admin API has it."""

    def __init__(self, settings: PulsarSettings, topic: str) -> None:
        super().__init__(settings)
        self.topic = topic

    def create(self) -> None:
        """Make the topic and its subscription, unless they are there. Raises :class:`ObserveError`."""
        self.active_brokers()
        found = self._any(paths.topic(self.topic), {204, 404, 409}, method="PUT")
        if found.status == 404:
            namespace = self.topic.removeprefix("persistent://").rpartition("/")[0]
            raise ObserveError(f"{self.topic}: there is no namespace {namespace}; create it, or set leader.topic")
        self._any(paths.subscription(self.topic, SUBSCRIPTION), {204, 409}, method="PUT", content=EARLIEST)

    def forget(self, seconds: int) -> None:
        """Let go of lines that are older. 409: there are none, or they are being let go of."""
        self._any(paths.expiry(self.topic, SUBSCRIPTION, seconds), {204, 409}, method="POST")

    def leader(self) -> str | None:
        """Who writes now, by the name it gave; None: nobody. Raises :class:`ObserveError` where there is no topic."""
        self.active_brokers()
        stats = self._json(self._any(paths.topic_stats(self.topic)), _Stats)
        return next((one.producer_name for one in stats.publishers), None)
