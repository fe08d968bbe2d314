"""Bundles whose segments changed: a scalable topic of Pulsar 5 was split or merged, and load jumps without a move.

No report tells it. A report counts the loaded topics of each bundle, and a split or merge creates segments: where that
number changed, the scalable topics of the namespace are read. They say when each segment was created or sealed.
Source: ScalableTopics, SegmentInfo (5.0.0-M1).
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
"""Of a round, after which no further namespace is begun in it; and topics of a namespace that are read."""

CHANGED_SECONDS = 300.0
"""A change is seen a minute or two after it happened: statistics and reports are a minute old each."""

SCALABLE_TOPICS = "scalableTopicsEnabled"
"""The setting of brokers that have them."""


class SegmentWatch:
    """Follows the number of topics in each bundle, round by round."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._topics: dict[str, int] | None = None
        self._due: dict[str, None] = {}

    def changed(self, snapshot: Snapshot) -> frozenset[str]:
        """The reported bundles with a segment that was created or sealed lately, noticed since the round before.

        A namespace about which brokers answer nothing of use is read again in a later round.
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
        """The hashes of a namespace's segments that changed since then, epoch seconds."""
        topics = self._admin.scalable_topics(namespace)[:MOST_REQUESTS]
        segments = (one for topic in topics for one in self._admin.segments(topic) or ())
        return {topic_hash(one.name) for one in segments if one.changed_at >= since}


def _loaded_topics(snapshot: Snapshot) -> dict[str, int]:
    """Topics of each reported bundle, on all brokers that report it."""
    rows = snapshot.rows
    counts = np.bincount(rows.bundle[rows.reported], rows.counts[rows.reported, 0], len(snapshot.bundles))
    there = np.bincount(rows.bundle[rows.reported], minlength=len(snapshot.bundles)) > 0
    return {snapshot.bundles[at]: int(counts[at]) for at in np.flatnonzero(there).tolist()}


def _namespaces(before: dict[str, int], now: dict[str, int], *, partial: bool) -> Iterator[str]:
    """Namespaces with a bundle whose topics changed in number, or that is new where brokers report all of them."""
    for bundle, topics in now.items():
        if before.get(bundle, topics if partial else 0) != topics and not bundle.startswith("pulsar/"):
            yield bundle_namespace(bundle)


def _holding(positions: Mapping[str, set[int]], snapshot: Snapshot) -> Iterator[str]:
    """The reported bundles that hold these hashes, by namespace."""
    for bundle in snapshot.bundles if any(positions.values()) else ():
        if any(holds(bundle, position) for position in positions.get(bundle_namespace(bundle), ())):
            yield bundle
