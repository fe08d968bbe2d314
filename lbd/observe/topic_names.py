"""Topic names, read beside the turns, and the brokers of their partitions on a round's bundles.

A namespace's list of topics is one request. Lists change rarely, so each is read once an hour, in a thread of its own,
one after the other and a few per turn. A turn never waits for one: an unread list counts for nothing.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from lbd.errors import ThreadError, as_lbd_error
from lbd.spread import by_namespace, by_topic, partitions, spread, zone_column
from lbd.threads import begin

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from lbd.model import IntArray, Pool, Snapshot
    from lbd.spread import Partitions, Spread, SpreadSettings

READ_AGAIN_SECONDS = 3600.0
"""Age at which a list is read again. A new topic, or one with more partitions, counts within the hour."""

FAILED_SECONDS = 600.0
"""Pause after a list could not be read."""

NAMESPACES_A_TURN = 20
"""Lists per turn: 10,000 namespaces are read after some hours."""

FEWEST_BUNDLES = 2
"""Fewest bundles of a namespace whose topics are read: a single one is on one broker, wherever that is."""


class TopicNames:
    """The partitioned topics of namespaces. Thread-safe.

    ``read`` returns the full names of a namespace's topics; ``now`` returns epoch seconds. ``trouble`` is the reason
    why the last list could not be read. :meth:`by_namespace` waits for the lists that it requests, for at most
    ``waits_seconds``; infinity: it reads them itself, without a thread.
    """

    def __init__(
        self, read: Callable[[str], Sequence[str]], now: Callable[[], float], waits_seconds: float = 0.0
    ) -> None:
        self._read, self._now, self._waits_seconds = read, now, waits_seconds
        self._partitions: dict[str, Partitions] = {}
        self._due_at: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self.trouble = ""

    def by_namespace(self, snapshot: Snapshot) -> dict[str, Partitions]:
        """Partitioned topics that have been read of a round's namespaces; starts to read the lists that are due."""
        spaces = snapshot.namespaces
        several = np.bincount(spaces.of, minlength=len(spaces.names)) >= FEWEST_BUNDLES
        names = [name for name, split in zip(spaces.names, several.tolist(), strict=True) if split and _is_v2(name)]
        if self._thread is None or not self._thread.is_alive():
            self._forget(names)
            due = sorted(filter(self._is_due, names), key=lambda name: self._due_at.get(name, 0.0))[:NAMESPACES_A_TURN]
            if self._waits_seconds == inf:
                self._work(due)
            elif due:
                try:
                    self._thread = begin(partial(self._work, due), "lbd-topics")
                except ThreadError as error:  # the next turn tries again
                    self.trouble = f"topics of {due[0]} are not known, spread.by does not count them: {error}"
        if self._waits_seconds and self._thread is not None:
            self._thread.join(self._waits_seconds)
        return dict(self._partitions)

    def _is_due(self, name: str) -> bool:
        """Whether a list is due; a clock that was set back ages no list."""
        return not 0 < self._due_at.get(name, 0.0) - self._now() <= READ_AGAIN_SECONDS

    def _forget(self, names: Sequence[str]) -> None:
        """Drop namespaces that no broker reports any more."""
        for gone in self._due_at.keys() - set(names):
            self._partitions.pop(gone, None)
            del self._due_at[gone]

    def _work(self, names: Sequence[str]) -> None:
        """Read list after list; when one fails, the others wait for the next turn."""
        for name in names:
            try:
                self._partitions[name] = partitions(self._read(name))
            except Exception as error:  # noqa: BLE001 - a thread cannot raise to a caller; an unread list is unknown
                self._partitions.pop(name, None)
                self._due_at[name] = self._now() + FAILED_SECONDS
                self.trouble = f"topics of {name} are not known, spread.by does not count them: {as_lbd_error(error)}"
                return
            self._due_at[name] = self._now() + READ_AGAIN_SECONDS
            self.trouble = ""


def _is_v2(namespace: str) -> bool:
    """Whether a namespace is ``tenant/namespace``: topics of ``tenant/cluster/namespace``, an old name, stay unread."""
    return namespace.count("/") == 1


class SpreadReader:
    """Brokers of things that belong apart, by settings and the topic names that have been read."""

    def __init__(self, settings: SpreadSettings, topics: TopicNames) -> None:
        self._settings, self._topics = settings, topics

    def __call__(self, snapshot: Snapshot, pools: Sequence[Pool]) -> Spread | None:
        """Spread of a round; None where it does not count."""
        if self._settings.by == "none":
            return None
        if self._settings.by == "namespace":
            members = by_namespace(snapshot.namespaces)
        else:
            members = by_topic(snapshot.bundles, snapshot.namespaces, self._topics.by_namespace(snapshot))
        ids = snapshot.brokers.ids
        able = ((pool.bundles, int(pool.brokers.sum())) for pool in pools)
        return spread(members, _owner(snapshot), ids, able, zone_column(ids, self._settings))


def _owner(snapshot: Snapshot) -> IntArray:
    """The broker of each bundle, int32 (N,); -1 where two report it."""
    rows, number = snapshot.rows, len(snapshot.bundles)
    owner = np.full(number, -1, dtype=np.int32)
    owner[rows.bundle] = rows.owner()
    owner[np.bincount(rows.bundle, minlength=number) > 1] = -1
    return owner
