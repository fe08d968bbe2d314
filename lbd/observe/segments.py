"""Bundles whose segments changed: a scalable topic of Pulsar 5 was split or merged, and load jumps without a move.

No report says so. A report counts the loaded topics of each bundle, and a split or merge creates segments: where that
number changed, the scalable topics of the namespace are read. They say when each segment was created or sealed. Source:
ScalableTopics, SegmentInfo (5.0.0-M1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.bundles import holds, topic_hash
from lbd.errors import LbdError
from lbd.model import bundle_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lbd.model import Snapshot
    from lbd.pulsar.admin import Admin

MOST_REQUESTS = 30
"""Requests of a round after which it begins no further namespace; and topics of a namespace that are read."""

CHANGED_SECONDS = 300.0
"""Age of a change that still counts: statistics and reports are a minute old each."""

SCALABLE_TOPICS = "scalableTopicsEnabled"
"""Setting of brokers that have scalable topics."""


class SegmentWatch:
    """Follows the number of topics in each bundle, round by round."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._topics: dict[str, int] | None = None
        self._due: dict[str, None] = {}

    def changed(self, snapshot: Snapshot) -> frozenset[str]:
        """Reported bundles with a segment that was created or sealed lately, noticed since the round before.

        A namespace without a usable response is read again in a later round.
        """
        before, self._topics = self._topics, _loaded_topics(snapshot)
        if before is not None:
            self._due |= dict.fromkeys(_namespaces(before, self._topics, partial=snapshot.partial))
        positions, sent = dict[str, set[int]](), self._admin.http.sent
        for namespace in list(self._due):
            if self._admin.http.sent - sent >= MOST_REQUESTS:
                break
            del self._due[namespace]
            try:
                positions[namespace] = self._positions(namespace, snapshot.taken_at - CHANGED_SECONDS)
            except LbdError:
                self._due[namespace] = None
                break
        return frozenset(_holding(positions, snapshot))

    def _positions(self, namespace: str, since: float) -> set[int]:
        """Hashes of a namespace's segments that changed after ``since``, epoch seconds."""
        topics = self._admin.scalable_topics(namespace)[:MOST_REQUESTS]
        segments = (segment for topic in topics for segment in self._admin.segments(topic) or ())
        return {topic_hash(segment.name) for segment in segments if segment.changed_at >= since}


def _loaded_topics(snapshot: Snapshot) -> dict[str, int]:
    """Number of topics of each reported bundle, on all brokers that report it."""
    rows = snapshot.rows
    counts = np.bincount(rows.bundle[rows.reported], rows.counts[rows.reported, 0], len(snapshot.bundles))
    there = np.bincount(rows.bundle[rows.reported], minlength=len(snapshot.bundles)) > 0
    return {snapshot.bundles[index]: int(counts[index]) for index in np.flatnonzero(there).tolist()}


def _namespaces(before: dict[str, int], now: dict[str, int], *, partial: bool) -> Iterator[str]:
    """Namespaces with a bundle that changed its number of topics, or that is new where brokers report all of them."""
    for bundle, topics in now.items():
        if before.get(bundle, topics if partial else 0) != topics and not bundle.startswith("pulsar/"):
            yield bundle_namespace(bundle)


def _holding(positions: Mapping[str, set[int]], snapshot: Snapshot) -> Iterator[str]:
    """The reported bundles that hold these hashes, by namespace."""
    for bundle in snapshot.bundles if any(positions.values()) else ():
        if any(holds(bundle, position) for position in positions.get(bundle_namespace(bundle), ())):
            yield bundle
