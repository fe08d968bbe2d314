"""Spread of partitions of a topic, or bundles of a namespace, over brokers and zones. Pure.

A group is one topic, or one namespace. Its share is the number on each broker if all have the same. The cost of a
placement counts pairs of a group that are together on a broker, or in a zone, in shares of the group: a topic of 64
partitions on 8 brokers gains as much by one move from 20 to 6 as one of 640 by ten moves from 200 to 60.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import ceil
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lbd.bundles import FULL_RANGE, bundle_ends, bundles_at, range_in_name, topic_hash, topic_namespace
from lbd.section import Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lbd.bundles import Namespaces

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]*)")
"""Name of a partition, as Pulsar reads it: a number with leading zeros is no partition's (TopicName.java)."""

MOST_GROUPS = 10_000
"""Number of groups that are counted, those with most members: each has a number for each broker."""

MOST_CROWDED = 20
"""At most this many per turn are named, those furthest above their share."""

CROWDED_SHARE = 1.5
"""Report a broker from this many times its share and from its share + 2: one more is left after moves."""


class SpreadSettings(Section):
    """Groups to spread over brokers and zones, among moves of like size (docs/strategies.md)."""

    by: Literal["none", "topic", "namespace"] = Field(
        "none",
        description="What belongs apart. topic: partitions of one topic; lbd reads the topic names of each namespace "
        "with two bundles or more, once an hour. namespace: bundles of one namespace, without requests. none: nothing "
        "is read or counted. It chooses among bundles of like size, and never causes a move. Not with profile: stock",
    )
    zones: dict[str, str] = Field(
        {},
        description="Zone of each broker, by patterns of its host such as broker-a-*, as {pattern: zone}. The first "
        "pattern that fits counts. With spread.by, what is together in one zone counts like what is on one broker",
    )

    def zone_of(self, broker: str) -> str | None:
        """The zone of a broker, ``host:port``; None where no pattern fits."""
        return next((zone for pattern, zone in self.zones.items() if host_fits(pattern, broker)), None)


def host_fits(pattern: str, broker: str) -> bool:
    """Whether the host of a broker, ``host:port``, has a name of this pattern."""
    return fnmatchcase(broker.rpartition(":")[0], pattern)


# --- partitions by the names of topics


@dataclass(frozen=True, eq=False)
class Partitions:
    """Topics of one namespace that have two partitions or more: ``topic`` int32 (P,) into ``names``, and the hash of
    each partition in ``position``, int64 (P,).
    """

    names: tuple[str, ...]
    topic: IntArray
    position: NDArray[np.int64]


def partitions(topics: Iterable[str]) -> Partitions:
    """The partitioned topics among full names of topics."""
    matches = [(match[1], name) for name in topics if (match := PARTITION.fullmatch(name)) is not None]
    number = Counter(base for base, _ in matches)
    names = {base: index for index, base in enumerate(sorted(base for base, times in number.items() if times > 1))}
    several = [(names[base], topic_hash(name)) for base, name in matches if base in names]
    columns = np.array(several, dtype=np.int64).reshape(-1, 2)
    return Partitions(tuple(names), columns[:, 0].astype(np.int32), columns[:, 1])


# --- members of groups, and their brokers


class GroupMembers(NamedTuple):
    """Number of members of each group in each bundle: one row for each pair with any, ordered by bundle."""

    groups: tuple[str, ...]
    bundle: IntArray
    group: IntArray
    number: IntArray


def by_namespace(spaces: Namespaces) -> GroupMembers:
    """Members by namespace: each bundle is one; ``spaces`` are the namespaces of the bundles."""
    bundles = np.arange(spaces.of.size, dtype=np.int32)
    return _largest(GroupMembers(spaces.names, bundles, spaces.of, np.ones(bundles.size, dtype=np.int32)))


def by_topic(bundles: Sequence[str], spaces: Namespaces, topics: Mapping[str, Partitions]) -> GroupMembers:
    """Members by topic: each partition is one; ``topics`` are those of the namespaces that have been read."""
    names: list[str] = []
    namespace: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    position, topic = list(namespace), list(namespace)
    for row, name in enumerate(spaces.names):
        own = topics.get(name)
        if own is not None:
            namespace.append(np.full(own.position.size, row, dtype=np.int64))
            position.append(own.position)
            topic.append(own.topic.astype(np.int64) + len(names))
            names += own.names
    inside = bundles_at(bundle_ends(bundles), spaces, np.concatenate(namespace), np.concatenate(position))
    pairs = np.stack([inside, np.concatenate(topic)], axis=1)[inside >= 0]
    keys, number = np.unique(pairs, axis=0, return_counts=True)
    return _largest(
        GroupMembers(tuple(names), keys[:, 0].astype(np.int32), keys[:, 1].astype(np.int32), number.astype(np.int32))
    )


def _largest(members: GroupMembers) -> GroupMembers:
    """The groups with most members, two at least."""
    total = np.bincount(members.group, members.number, len(members.groups))
    largest = np.argsort(-total, kind="stable")[:MOST_GROUPS]
    largest_groups = np.sort(largest[total[largest] > 1])
    index = np.full(len(members.groups), -1, dtype=np.int32)
    index[largest_groups] = np.arange(largest_groups.size, dtype=np.int32)
    rows = index[members.group] >= 0
    names = tuple(members.groups[group] for group in largest_groups.tolist())
    return GroupMembers(names, members.bundle[rows], index[members.group[rows]], members.number[rows])


class Crowded(NamedTuple):
    """A broker with more than its share of a group: ``members`` of ``total``; ``group`` is a topic or a namespace."""

    group: str
    broker: str
    members: int
    total: int
    share: float


@dataclass(frozen=True, eq=False)
class Spread:
    """Brokers of the members of groups in one round.

    ``group`` and ``number``, int32 (K,), have in the rows ``start[n]:start[n + 1]`` the members of bundle ``n``. ``on``
    is float64 (G, B): members on each broker. ``share`` is float64 (G,): members per broker with an even spread.
    ``zone`` is int32 (B,), -1 without one.
    """

    groups: tuple[str, ...]
    start: IntArray
    group: IntArray
    number: IntArray
    on: FloatArray
    share: FloatArray
    zone: IntArray

    def rows(self, bundle: int) -> tuple[IntArray, IntArray]:
        """Groups of a bundle, and its members of each."""
        rows = slice(int(self.start[bundle]), int(self.start[bundle + 1]))
        return self.group[rows], self.number[rows]

    def most(self, bundle: int, broker: int) -> tuple[str, int, float] | None:
        """Group of a bundle with the most members on a broker, in shares: its name, members there, and share."""
        group, _ = self.rows(bundle)
        if not group.size:
            return None
        row = int(group[(self.on[group, broker] / self.share[group]).argmax()])
        return self.groups[row], int(self.on[row, broker]), float(self.share[row])

    def crowded(self, brokers: Sequence[str]) -> tuple[Crowded, ...]:
        """Brokers with more than their share of a group, the furthest above it first."""
        least = np.maximum(self.share * CROWDED_SHARE, np.ceil(self.share) + 2)
        row, broker = np.nonzero(self.on >= least[:, None])
        furthest = np.argsort(-(self.on[row, broker] / self.share[row]), kind="stable")[:MOST_CROWDED]
        total = self.on.sum(axis=1)
        return tuple(
            Crowded(
                self.groups[group],
                brokers[where],
                int(self.on[group, where]),
                int(total[group]),
                float(self.share[group]),
            )
            for group, where in zip(row[furthest].tolist(), broker[furthest].tolist(), strict=True)
        )


def spread(
    members: GroupMembers,
    owner: IntArray,
    brokers: Sequence[str],
    able: Iterable[tuple[BoolArray, int]],
    zones: IntArray,
) -> Spread:
    """Spread of a round.

    ``owner`` is int32 (N,) into ``brokers``, -1 where none or two report a bundle. ``able`` are the pools: their
    bundles, bool (N,), and the number of brokers that those may be on; all others may be on every broker.
    """
    size = (len(members.groups), len(brokers))
    on, total = np.zeros(size), np.bincount(members.group, members.number, size[0])
    owned = owner[members.bundle] >= 0
    np.add.at(on, (members.group[owned], owner[members.bundle[owned]]), members.number[owned])
    may = np.full(size[0], float(max(len(brokers), 1)))
    for bundles, number in able:
        may[members.group[bundles[members.bundle]]] = max(number, 1)
    start = np.searchsorted(members.bundle, np.arange(owner.size + 1)).astype(np.int32)
    share = np.maximum(total / may, 1.0)
    return Spread(members.groups, start, members.group, members.number, on, share, zones)


class SpreadTally:
    """Brokers of the members of groups while a plan is made: each move changes the cost of the next."""

    def __init__(self, spread: Spread) -> None:
        self._spread, self._on = spread, spread.on.copy()
        zones = int(spread.zone.max(initial=-1)) + 1
        self._zoned = np.zeros((len(spread.groups), zones))
        for broker in np.flatnonzero(spread.zone >= 0).tolist():
            self._zoned[:, spread.zone[broker]] += spread.on[:, broker]

    def move(self, bundle: int, source: int, destination: int) -> None:
        """Move the members of a bundle to another broker."""
        group, number = self._spread.rows(bundle)
        for columns, broker, sign in ((self._on, source, -1), (self._on, destination, 1)):
            columns[group, broker] += sign * number
        for broker, sign in ((source, -1), (destination, 1)):
            if (zone := int(self._spread.zone[broker])) >= 0:
                self._zoned[group, zone] += sign * number

    def cost(self, bundle: int, source: int, destination: int) -> float:
        """Pairs that a move joins, less those that it parts, in shares; below 0 it spreads."""
        group, number = self._spread.rows(bundle)
        if not group.size:
            return 0.0
        more = self._on[group, destination] - self._on[group, source] + number
        ends = (int(self._spread.zone[source]), int(self._spread.zone[destination]))
        if min(ends) >= 0 and ends[0] != ends[1]:
            more = more + (self._zoned[group, ends[1]] - self._zoned[group, ends[0]] + number) * self._zone_part
        return float((number * more / self._spread.share[group]).sum())

    @property
    def _zone_part(self) -> float:
        """A zone's share: that of its brokers together."""
        return self._zoned.shape[1] / max(int((self._spread.zone >= 0).sum()), 1)


def zone_column(brokers: Sequence[str], settings: SpreadSettings) -> IntArray:
    """The zone of each broker as a number, int32 (B,), -1 without one."""
    zones = [settings.zone_of(broker) for broker in brokers]
    number = {zone: index for index, zone in enumerate(sorted({zone for zone in zones if zone is not None}))}
    return np.array([-1 if zone is None else number[zone] for zone in zones], dtype=np.int32)


# --- sentences


def crowded_text(crowded: Crowded) -> str:
    """A clause about a broker with more than its share."""
    what = "partitions" if "://" in crowded.group else "bundles"
    number = f"{crowded.members} of the {crowded.total} {what}"
    return f"it has {number} of {crowded.group}, its share is {ceil(crowded.share)}"


def members_in(bundle: str, group: str, total: int) -> int:
    """Number of members of a group in a bundle; a topic's ``total`` partitions are numbered from 0."""
    namespace = bundle.rpartition("/")[0]
    if "://" not in group or topic_namespace(group) != namespace:
        return int(namespace == group)
    lower, upper = range_in_name(bundle)
    last = upper + (upper == FULL_RANGE[1])
    return sum(lower <= topic_hash(f"{group}-partition-{number}") < last for number in range(total))
