"""Where partitions of topics, or bundles of namespaces, are: topic names, read beside the turns, on a round's bundles.

A namespace's list of topics is one request. Lists change rarely, so each is read once an hour, in a thread of its own,
one after the other and a few in a turn. A turn never waits for one: what has not been read, or cannot be, is not known,
and counts for nothing.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from lbd.errors import as_lbd_error
from lbd.spread import by_namespace, by_topic, partitions, spread, zone_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lbd.model import IntArray, Pool, Snapshot
    from lbd.spread import Partitions, Spread, SpreadSettings

READ_AGAIN_SECONDS = 3600.0
"""A topic that is new, or has more partitions, counts within the hour."""

FAILED_SECONDS = 600.0
"""A list that could not be read is asked for again after this time."""

NAMESPACES_A_TURN = 20
"""Lists that are asked for in one turn: 10,000 namespaces are known after some hours."""

FEWEST_BUNDLES = 2
"""A namespace of one bundle is on one broker, wherever that goes."""


class TopicNames:
    """The partitioned topics of namespaces, as they are read. Thread-safe.

    ``read`` gets a namespace and returns the full names of its topics; ``now`` is epoch seconds. ``trouble`` is why the
    last list could not be read. With ``waits_seconds`` a look waits for the lists that it asked for, so long at most.
    """

    def __init__(
        self, read: Callable[[str], Sequence[str]], now: Callable[[], float], waits_seconds: float = 0.0
    ) -> None:
        self._read, self._now, self._waits_seconds = read, now, waits_seconds
        self._known: dict[str, Partitions] = {}
        self._due_at: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self.trouble = ""

    def known(self, snapshot: Snapshot) -> dict[str, Partitions]:
        """What has been read of a round's namespaces; the lists that are due are begun."""
        spaces = snapshot.namespaces
        several = np.bincount(spaces.of, minlength=len(spaces.names)) >= FEWEST_BUNDLES
        names = [name for name, known in zip(spaces.names, several.tolist(), strict=True) if known and _is_v2(name)]
        if self._thread is None or not self._thread.is_alive():
            self._forget(names)
            due = sorted(filter(self._is_due, names), key=lambda name: self._due_at.get(name, 0.0))[:NAMESPACES_A_TURN]
            if due:
                self._thread = threading.Thread(target=self._work, args=(due,), name="lbd-topics", daemon=True)
                self._thread.start()
        if self._waits_seconds and self._thread is not None:
            self._thread.join(self._waits_seconds)
        return dict(self._known)

    def _is_due(self, name: str) -> bool:
        """Whether it is time; a clock that was set back makes no list older than it is."""
        return not 0 < self._due_at.get(name, 0.0) - self._now() <= READ_AGAIN_SECONDS

    def _forget(self, names: Sequence[str]) -> None:
        """Namespaces that no broker reports any more."""
        for gone in self._due_at.keys() - set(names):
            self._known.pop(gone, None)
            del self._due_at[gone]

    def _work(self, names: Sequence[str]) -> None:
        """Read list after list; where one cannot be read, the others wait for the next turn."""
        for name in names:
            try:
                self._known[name] = partitions(self._read(name))
            except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; what is not read is not known
                self._known.pop(name, None)
                self._due_at[name] = self._now() + FAILED_SECONDS
                self.trouble = f"topics of {name} are not known, spread.by does not count them: {as_lbd_error(error)}"
                return
            self._due_at[name] = self._now() + READ_AGAIN_SECONDS
            self.trouble = ""


def _is_v2(namespace: str) -> bool:
    """``tenant/namespace``: of ``tenant/cluster/namespace``, an old name or a broker's own, topics are not read."""
    return namespace.count("/") == 1


class SpreadReader:
    """Where what belongs apart is, by settings and the topic names that are known."""

    def __init__(self, settings: SpreadSettings, topics: TopicNames) -> None:
        self._settings, self._topics = settings, topics

    def __call__(self, snapshot: Snapshot, pools: Sequence[Pool]) -> Spread | None:
        """The spread of a round; None where it does not count."""
        if self._settings.by == "none":
            return None
        if self._settings.by == "namespace":
            members = by_namespace(snapshot.namespaces)
        else:
            members = by_topic(snapshot.bundles, snapshot.namespaces, self._topics.known(snapshot))
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
