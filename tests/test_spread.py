"""What belongs apart: partitions by the names of topics, where they are, and what a move costs."""

from __future__ import annotations

import numpy as np
import pytest

from lbd.bundles import topic_hash
from lbd.spread import (
    GroupMembers,
    SpreadSettings,
    SpreadTally,
    by_namespace,
    by_topic,
    crowded_text,
    members_in,
    partitions,
    spread,
    zone_column,
)
from tests.builders import bundle, report, snapshot, stats

ORDERS = "persistent://t/n/orders"
BROKERS = ("a:80", "b:80", "c:80", "d:80")


def one_group(on: list[int], zones: list[int] | None = None, *, number: int = 1) -> SpreadTally:
    """One topic, of which each broker has bundles with so many partitions each, the first broker's bundles first."""
    owner = np.repeat(np.arange(len(on)), on).astype(np.int32)
    size = owner.size
    members = GroupMembers((ORDERS,), np.arange(size), np.zeros(size, np.int32), np.full(size, number))
    zone = np.array(zones or [-1] * len(on), dtype=np.int32)
    return SpreadTally(spread(members, owner, BROKERS[: len(on)], (), zone))


class TestPartitions:
    @pytest.mark.parametrize(
        ("names", "topics"),
        [
            ([f"{ORDERS}-partition-0", f"{ORDERS}-partition-1"], {ORDERS: 2}),
            ([f"{ORDERS}-partition-0", ORDERS], {}),
            ([f"{ORDERS}-partition-0", f"{ORDERS}-partition-01"], {}),
            ([f"{ORDERS}-partition-0", f"{ORDERS}-partition-x", f"{ORDERS}-partition-1"], {ORDERS: 2}),
            ([f"{name}-partition-{at}" for name in ("p://x", "p://y") for at in range(3)], {"p://x": 3, "p://y": 3}),
            ([], {}),
        ],
    )
    def test_topics_with_two_or_more(self, names: list[str], topics: dict[str, int]) -> None:
        """By the suffix that Pulsar gives them; a single partition is together with nothing."""
        found = partitions(names)

        assert dict(zip(found.names, np.bincount(found.topic, minlength=len(found.names)), strict=True)) == topics

    def test_each_falls_into_the_bundle_of_its_hash(self) -> None:
        """As explain computes it from the topic's name alone."""
        names = [bundle(at) for at in range(256)]
        seen = snapshot({"a:80": report(10, {name: stats(1) for name in names})})
        known = {"t/n": partitions(f"{ORDERS}-partition-{at}" for at in range(64))}

        members = by_topic(seen.bundles, seen.namespaces, known)

        assert members.groups == (ORDERS,)
        assert members.number.sum() == 64
        for at, number in zip(members.bundle.tolist(), members.number.tolist(), strict=True):
            assert members_in(seen.bundles[at], ORDERS, 64) == number

    def test_of_a_namespace_that_is_not_known_nothing_counts(self) -> None:
        """Nor of a partition whose bundle no broker reports."""
        seen = snapshot({"a:80": report(10, {bundle(0): stats(1), bundle(1, "t/other"): stats(1)})})
        outside = [f"{ORDERS}-partition-{at}" for at in range(200) if topic_hash(f"{ORDERS}-partition-{at}") >> 24]

        members = by_topic(seen.bundles, seen.namespaces, {"t/n": partitions(outside)})

        assert members.bundle.size == 0

    def test_bundles_are_members_of_their_namespace(self) -> None:
        """A namespace of one bundle is on one broker in any case."""
        several = {bundle(at): stats(1) for at in range(3)}
        seen = snapshot({"a:80": report(10, several | {bundle(0, "t/single"): stats(1)})})

        members = by_namespace(seen.namespaces)

        assert (members.groups, members.number.tolist()) == (("t/n",), [1, 1, 1])


class TestCost:
    @pytest.mark.parametrize(
        ("on", "destination", "cost"),
        [
            ([6, 2, 0, 0], 1, (2 - 5) / 2),
            ([6, 2, 0, 0], 2, (0 - 5) / 2),
            ([2, 2, 2, 2], 1, (2 - 1) / 2),
            ([3, 2, 2, 1], 1, 0.0),
            ([1, 0, 0, 0], 1, 0.0),
        ],
    )
    def test_pairs_that_are_together_in_shares(self, on: list[int], destination: int, cost: float) -> None:
        """A move from the first broker: pairs with what is there, less those with what it leaves."""
        assert one_group(on).cost(0, 0, destination) == pytest.approx(cost)

    @pytest.mark.parametrize(("destination", "spreads"), [(1, False), (2, True)])
    def test_a_zone_counts_like_a_broker(self, destination: int, spreads: bool) -> None:
        """Two brokers of each zone, all of the topic in the first one: only the other zone is further apart."""
        tally = one_group([2, 1, 1, 0], [0, 0, 1, 1])

        assert (tally.cost(0, 0, destination) < 0) is spreads

    def test_a_move_there_and_back_changes_nothing(self) -> None:
        """What one move adds, the way back takes away."""
        tally = one_group([4, 1, 2, 1], [0, 0, 1, 1], number=3)
        cost = tally.cost(0, 0, 2)
        tally.move(0, 0, 2)

        assert tally.cost(0, 2, 0) == pytest.approx(-cost)

    @pytest.mark.parametrize(
        ("on", "named"),
        [([20, 15, 15, 14], []), ([24, 14, 13, 13], [("a:80", 24)]), ([3, 1, 0, 0], [("a:80", 3)]), ([2, 2, 0, 0], [])],
    )
    def test_who_has_more_than_its_share(self, on: list[int], named: list[tuple[str, int]]) -> None:
        """Half more than its share, and two more at least."""
        size = sum(on)
        members = GroupMembers((ORDERS,), np.arange(size), np.zeros(size, np.int32), np.ones(size, np.int32))
        owner = np.repeat(np.arange(4), on).astype(np.int32)
        found = spread(members, owner, BROKERS, (), np.full(4, -1, np.int32)).crowded(BROKERS)

        assert [(one.broker, one.members) for one in found] == named
        if named == [("a:80", 24)]:
            assert crowded_text(found[0]) == f"it has 24 of the 64 partitions of {ORDERS}, its share is 16"

    def test_the_share_is_that_of_the_brokers_that_may_have_it(self) -> None:
        """An isolation policy leaves two of four."""
        members = GroupMembers((ORDERS,), np.arange(8), np.zeros(8, np.int32), np.ones(8, np.int32))
        owner = np.repeat(np.arange(2), 4).astype(np.int32)
        pool = (np.ones(8, dtype=np.bool_), 2)

        assert spread(members, owner, BROKERS, (pool,), np.full(4, -1, np.int32)).share.tolist() == [4.0]


def test_zones_by_pattern() -> None:
    """The first pattern that fits; a broker that none fits has no zone."""
    settings = SpreadSettings(zones={"a-*": "one", "*-2.example": "two"})
    brokers = ["a-1.example:80", "b-2.example:80", "a-2.example:80", "c:80"]

    assert zone_column(brokers, settings).tolist() == [
        0,
        1,
        0,
        -1,
    ]
