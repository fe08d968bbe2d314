"""What belongs apart: partitions of a topic, or bundles of a namespace, on brokers and in zones. Pure.

A group is one topic, or one namespace. Its share is what each broker has of it if all have the same number. The cost of
a placement counts pairs of a group that are together on a broker, or in a zone, in shares of the group: a topic of
64 partitions on 8 brokers gains as much by one move from 20 to 6 as one of 640 by ten moves from 200 to 60.
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
from pydantic import BaseModel, ConfigDict, Field

from lbd.bundles import FULL_RANGE, bundle_ends, bundles_at, range_in_name, topic_hash, topic_namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lbd.bundles import Namespaces

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]*)")
"""Of a topic's name, as Pulsar reads it: a number with leading zeros is no partition's (TopicName.java)."""

MOST_GROUPS = 10_000
"""Groups that are counted, those with most members: each has a number for each broker."""

MOST_CROWDED = 20
"""Of one turn so many are named, those furthest above their share."""

CROWDED_SHARE = 1.5
"""A broker is named from so many times its share, and two more than that share: one more is what moves leave."""


class SpreadSettings(BaseModel):
    """What is to be spread over brokers and zones, among moves of like size (docs/strategies.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        host = broker.rpartition(":")[0]
        return next((zone for pattern, zone in self.zones.items() if fnmatchcase(host, pattern)), None)


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
    names = {base: at for at, base in enumerate(sorted(base for base, times in number.items() if times > 1))}
    several = [(names[base], topic_hash(name)) for base, name in matches if base in names]
    columns = np.array(several, dtype=np.int64).reshape(-1, 2)
    return Partitions(tuple(names), columns[:, 0].astype(np.int32), columns[:, 1])


# --- members of groups, and where they are


class GroupMembers(NamedTuple):
    """How many members of which group each bundle has: one row for each pair of both that has some, by bundle."""

    groups: tuple[str, ...]
    bundle: IntArray
    group: IntArray
    number: IntArray


def by_namespace(known: Namespaces) -> GroupMembers:
    """Each bundle is a member of its namespace; ``known`` are the namespaces of the bundles."""
    bundles = np.arange(known.of.size, dtype=np.int32)
    return _largest(GroupMembers(known.names, bundles, known.of, np.ones(bundles.size, dtype=np.int32)))


def by_topic(bundles: Sequence[str], known: Namespaces, topics: Mapping[str, Partitions]) -> GroupMembers:
    """Each partition is a member of its topic; ``topics`` are those of the namespaces that are known."""
    names: list[str] = []
    namespace: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    position, topic = list(namespace), list(namespace)
    for at, name in enumerate(known.names):
        own = topics.get(name)
        if own is not None:
            namespace.append(np.full(own.position.size, at, dtype=np.int64))
            position.append(own.position)
            topic.append(own.topic.astype(np.int64) + len(names))
            names += own.names
    inside = bundles_at(bundle_ends(bundles), known, np.concatenate(namespace), np.concatenate(position))
    pairs = np.stack([inside, np.concatenate(topic)], axis=1)[inside >= 0]
    keys, number = np.unique(pairs, axis=0, return_counts=True)
    return _largest(
        GroupMembers(tuple(names), keys[:, 0].astype(np.int32), keys[:, 1].astype(np.int32), number.astype(np.int32))
    )


def _largest(members: GroupMembers) -> GroupMembers:
    """Those of the groups with most members, two at least."""
    total = np.bincount(members.group, members.number, len(members.groups))
    largest = np.argsort(-total, kind="stable")[:MOST_GROUPS]
    kept = np.sort(largest[total[largest] > 1])
    index = np.full(len(members.groups), -1, dtype=np.int32)
    index[kept] = np.arange(kept.size, dtype=np.int32)
    rows = index[members.group] >= 0
    names = tuple(members.groups[at] for at in kept.tolist())
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
    """Where the members of groups are in one round.

    Of bundle ``n`` the rows ``start[n]:start[n + 1]`` of ``group`` and ``number``, int32 (K,), say how many members it
    has. ``on`` is float64 (G, B): members on each broker. ``share`` is float64 (G,): those of a broker that has as many
    as all others. ``zone`` is int32 (B,), -1 without one.
    """

    groups: tuple[str, ...]
    start: IntArray
    group: IntArray
    number: IntArray
    on: FloatArray
    share: FloatArray
    zone: IntArray

    def rows(self, bundle: int) -> tuple[IntArray, IntArray]:
        """The groups of a bundle, and how many members of each it has."""
        rows = slice(int(self.start[bundle]), int(self.start[bundle + 1]))
        return self.group[rows], self.number[rows]

    def most(self, bundle: int, broker: int) -> tuple[str, int, float] | None:
        """The group of a bundle that a broker has most of, in shares: its name, members there, and share."""
        group, _ = self.rows(bundle)
        if not group.size:
            return None
        at = int(group[(self.on[group, broker] / self.share[group]).argmax()])
        return self.groups[at], int(self.on[at, broker]), float(self.share[at])

    def crowded(self, brokers: Sequence[str]) -> tuple[Crowded, ...]:
        """The brokers that have more than their share of something, the furthest above it first."""
        least = np.maximum(self.share * CROWDED_SHARE, np.ceil(self.share) + 2)
        at, broker = np.nonzero(self.on >= least[:, None])
        furthest = np.argsort(-(self.on[at, broker] / self.share[at]), kind="stable")[:MOST_CROWDED]
        total = self.on.sum(axis=1)
        return tuple(
            Crowded(self.groups[one], brokers[where], int(self.on[one, where]), int(total[one]), float(self.share[one]))
            for one, where in zip(at[furthest].tolist(), broker[furthest].tolist(), strict=True)
        )


def spread(
    members: GroupMembers,
    owner: IntArray,
    brokers: Sequence[str],
    able: Iterable[tuple[BoolArray, int]],
    zones: IntArray,
) -> Spread:
    """The spread of a round.

    ``owner`` is int32 (N,) into ``brokers``, -1 where nobody or two report a bundle. ``able`` are the pools: their
    bundles, bool (N,), and how many brokers those may be on; of all others it is every broker.
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
    """Where the members of groups are while a plan is made: each move changes what the next one costs."""

    def __init__(self, known: Spread) -> None:
        self._known, self._on = known, known.on.copy()
        zones = int(known.zone.max(initial=-1)) + 1
        self._zoned = np.zeros((len(known.groups), zones))
        for broker in np.flatnonzero(known.zone >= 0).tolist():
            self._zoned[:, known.zone[broker]] += known.on[:, broker]

    def move(self, bundle: int, source: int, destination: int) -> None:
        """Count a bundle's members at another broker."""
        group, number = self._known.rows(bundle)
        for columns, at, sign in ((self._on, source, -1), (self._on, destination, 1)):
            columns[group, at] += sign * number
        for broker, sign in ((source, -1), (destination, 1)):
            if (zone := int(self._known.zone[broker])) >= 0:
                self._zoned[group, zone] += sign * number

    def cost(self, bundle: int, source: int, destination: int) -> float:
        """Pairs that a move brings together, less those that it parts, in shares; below 0 it spreads."""
        group, number = self._known.rows(bundle)
        if not group.size:
            return 0.0
        more = self._on[group, destination] - self._on[group, source] + number
        ends = (int(self._known.zone[source]), int(self._known.zone[destination]))
        if min(ends) >= 0 and ends[0] != ends[1]:
            more = more + (self._zoned[group, ends[1]] - self._zoned[group, ends[0]] + number) * self._zone_part
        return float((number * more / self._known.share[group]).sum())

    @property
    def _zone_part(self) -> float:
        """A zone's share is that of its brokers together."""
        return self._zoned.shape[1] / max(int((self._known.zone >= 0).sum()), 1)


def zone_column(brokers: Sequence[str], settings: SpreadSettings) -> IntArray:
    """The zone of each broker as a number, int32 (B,), -1 without one."""
    zones = [settings.zone_of(broker) for broker in brokers]
    number = {zone: at for at, zone in enumerate(sorted({zone for zone in zones if zone is not None}))}
    return np.array([-1 if zone is None else number[zone] for zone in zones], dtype=np.int32)


# --- sentences


def crowded_text(one: Crowded) -> str:
    """That a broker has more than its share, as a clause about it."""
    what = "partitions" if "://" in one.group else "bundles"
    return f"it has {one.members} of the {one.total} {what} of {one.group}, its share is {ceil(one.share)}"


def members_in(bundle: str, group: str, total: int) -> int:
    """How many members of a group a bundle has; a topic's ``total`` partitions are numbered from 0."""
    namespace = bundle.rpartition("/")[0]
    if "://" not in group or topic_namespace(group) != namespace:
        return int(namespace == group)
    lower, upper = range_in_name(bundle)
    last = upper + (upper == FULL_RANGE[1])
    return sum(lower <= topic_hash(f"{group}-partition-{at}") < last for at in range(total))
