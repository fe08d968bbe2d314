"""Costs of a move because of Pulsar's own topics in its bundle, which their hash shows without a request. Pure.

Topics of ``pulsar/system`` (transaction coordinators, data of the extensible load manager) are not here: the whole
namespace stays (``guardrails.move_system_namespace``). Neither is ``__transaction_pending_ack``, whose topic is named
after each subscription.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from lbd.bundles import FULL_RANGE, bundle_ends, bundles_at, holds, range_name, topic_hash, topic_hashes
from lbd.model import bundle_namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lbd.model import BoolArray, FloatArray, Snapshot

TopicKind = Literal["change-events", "transaction-buffers", "functions"]


class KindOfTopic(NamedTuple):
    """Topics that make their bundle dear: in ``namespace``, or in each namespace of several bundles (None).

    ``points`` are what a move costs unless the settings say otherwise. ``why`` says it as a clause.
    """

    namespace: str | None
    points: float
    why: str


KINDS: dict[TopicKind, KindOfTopic] = {
    "change-events": KindOfTopic(None, 10, "all brokers with a bundle of the namespace read topic policies there"),
    "transaction-buffers": KindOfTopic(None, 10, "topics of the namespace recover their transactions from it"),
    "functions": KindOfTopic("public/functions", 10, "function workers read their work, or elect their leader, there"),
}

WHOLE = f"/{range_name(*FULL_RANGE)}"
"""How the name of a namespace's only bundle ends."""

FUNCTION_TOPICS = ("metadata", "assignments", "coordinate")
"""Source: functions_worker.yml of Pulsar 2.10 to 5.0."""


@dataclass(frozen=True)
class SystemTopics:
    """Which topics of its own Pulsar keeps in namespaces: local names by kind, by what the brokers run with.

    ``readers_hang``: some broker may never load a topic of a namespace again once its ``__change_events`` has moved
    (apache/pulsar#25294, fixed by #26025).
    """

    names: Mapping[TopicKind, tuple[str, ...]] = field(default_factory=dict)
    readers_hang: bool = False


class DearKind(NamedTuple):
    """A kind of topics that some bundles hold: local ``names``, and what it adds to a move's cost; None for never."""

    kind: TopicKind
    names: tuple[str, ...]
    points: float | None

    def topic(self, namespace: str, name: str) -> str:
        """The full name of one of them."""
        return f"persistent://{namespace}/{name}"

    @property
    def words(self) -> str:
        """Why it is dear, and what follows, as a clause about the bundle."""
        cost = f"{self.points:g} points: cheaper ones go first" if self.points is not None else "never by a turn"
        return f"{KINDS[self.kind].why}; cost of a move: {cost}"


def dear_kinds(topics: SystemTopics, costs: Mapping[TopicKind, float | str] | None) -> tuple[DearKind, ...]:
    """The kinds of topics that make bundles dear in a round. ``costs`` are those set; None: no kind does."""
    if costs is None:
        return ()
    kinds = []
    for kind, names in topics.names.items():
        hangs = kind == "change-events" and topics.readers_hang
        cost = costs.get(kind, "never" if hangs else KINDS[kind].points)
        if cost:
            kinds.append(DearKind(kind, names, None if isinstance(cost, str) else cost))
    return tuple(kinds)


class TopicCosts(NamedTuple):
    """The bundles that are dearer than others: position, int64 (K,), and ``points``, float64 (K,), above 0."""

    bundle: NDArray[np.int64]
    points: FloatArray

    @property
    def movable(self) -> TopicCosts:
        """Without those that never move."""
        may = np.isfinite(self.points)
        return TopicCosts(self.bundle[may], self.points[may])

    @property
    def never(self) -> NDArray[np.int64]:
        """The positions of those that never move, int64 (K,)."""
        return self.bundle[np.isinf(self.points)]

    def by_name(self, snapshot: Snapshot) -> dict[str, float]:
        """The points of each, infinite for never."""
        return {snapshot.bundles[at]: cost for at, cost in zip(self.bundle.tolist(), self.points.tolist(), strict=True)}


def topic_costs(snapshot: Snapshot, kinds: Sequence[DearKind]) -> TopicCosts | None:
    """The costs of a round; None where no bundle has any.

    Several kinds in one bundle add up. A bundle for which its broker reports no topic, or no client, holds no such
    topic that is in use. In a namespace of one bundle no other bundle waits for it.
    """
    if not kinds:
        return None
    ends, spaces = bundle_ends(snapshot.bundles), snapshot.namespaces
    total = np.zeros(len(snapshot.bundles))
    for kind in kinds:
        own = _namespaces(snapshot, ends, KINDS[kind.kind])
        hashes = topic_hashes([spaces.names[at] for at in own], kind.names)
        holders = bundles_at(ends, spaces, np.repeat(np.array(own, dtype=np.int64), len(kind.names)), hashes.ravel())
        total[np.unique(holders[holders >= 0])] += np.inf if kind.points is None else kind.points
    total[_unused(snapshot)] = 0.0
    dear = np.flatnonzero(total)
    return TopicCosts(dear, total[dear]) if dear.size else None


def _namespaces(snapshot: Snapshot, ends: NDArray[np.int64], kind: KindOfTopic) -> list[int]:
    """Where topics of a kind may be: positions among the namespaces of a round."""
    spaces = snapshot.namespaces
    if kind.namespace is not None:
        return [at for at, name in enumerate(spaces.names) if name == kind.namespace]
    several = np.ones(len(spaces.names), dtype=np.bool_)
    several[spaces.of[(ends == FULL_RANGE).all(axis=1)]] = False
    return [at for at in np.flatnonzero(several).tolist() if spaces.names[at].count("/") == 1]


def _unused(snapshot: Snapshot) -> BoolArray:
    """Bundles without a loaded topic or without a client, bool (N,); what is not reported may have both."""
    rows, unused = snapshot.rows, np.zeros(len(snapshot.bundles), dtype=np.bool_)
    without = (rows.counts[:, 0] == 0) | (rows.counts[:, 1:].sum(axis=1) == 0)
    unused[rows.bundle[rows.reported & without]] = True
    return unused


def dear_topics(bundle: str, kinds: Iterable[DearKind]) -> Iterator[str]:
    """Why one bundle is dear, as sentences about it."""
    namespace = bundle_namespace(bundle)
    for kind in kinds:
        own = KINDS[kind.kind].namespace
        if namespace.count("/") != 1 or (bundle.endswith(WHOLE) if own is None else namespace != own):
            continue
        inside = [name for name in kind.names if holds(bundle, topic_hash(kind.topic(namespace, name)))]
        if inside:
            yield f"{' and '.join(inside)} of its namespace: {kind.words} (guardrails.topic_costs)"
