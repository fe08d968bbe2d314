"""Sampled topics of a bundle from the broker that is to serve them, where its load report shows too little."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from lbd.errors import AdminError, LbdError
from lbd.permit.served import BundleTopics, TopicClients, sampled
from lbd.pulsar.http import timed_out

if TYPE_CHECKING:
    from lbd.pulsar.admin import Admin

FAILED_STATUS = 500
"""Lowest status for a topic that the broker cannot load; those below are refusals, as of a token."""


def bundle_topics(admin: Admin, bundle: str, broker: str) -> BundleTopics:
    """Sample a bundle's topics: one request for their names, and one for each sampled topic. Never raises for a broker.

    A broker that has not loaded a topic loads it, as for a client. If it cannot, the result has its error.
    """
    try:
        names = admin.topics_in(broker, bundle)
        responses = [_topic_clients(admin, topic, broker) for topic in sampled(names or ())]
        topics = tuple(response for response in responses if response is not None)
        lost = names is None or (any(topic.error for topic in topics) and not admin.owns(broker, bundle))
        return BundleTopics(gone=f"{broker} does not own it any more") if lost else BundleTopics(topics)
    except LbdError as error:
        return BundleTopics(error=str(error))


def _topic_clients(admin: Admin, topic: str, broker: str) -> TopicClients | None:
    """Clients of a topic; None if it was deleted meanwhile. Raises where the response says nothing about the topic."""
    try:
        since = admin.connected_since(broker, topic)
    except AdminError as error:
        failed = error.status is not None and error.status >= FAILED_STATUS
        if admin.silent_since(broker) is None and (failed or timed_out(error)):
            return TopicClients(topic, error=str(error))
        raise
    if since is None:
        return None
    times = [time for date in since if (time := _epoch_seconds(date)) is not None]
    return TopicClients(topic, len(since), min(times, default=None))


def _epoch_seconds(date: str) -> float | None:
    try:
        parsed = datetime.fromisoformat(date)
        return parsed.timestamp() if parsed.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
