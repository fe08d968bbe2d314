"""What a split would do: parts, what lies in them, and why there may be nothing to cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.errors import RefusedError, UsageError
from lbd.split.plan import (
    ALGORITHMS,
    SPECIFIED,
    Algorithm,
    Flow,
    SplitPlan,
    Topic,
    as_document,
    inside,
    plan,
    split_parts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

BUNDLE = "t/n/0x00000000_0x80000000"
LAST = "t/n/0x80000000_0xffffffff"
TOPICS = [
    Topic("persistent://t/n/c", 0x50000000, 100.0, 2e6),
    Topic("persistent://t/n/a", 0x10000000, 20_000.0, 1e6),
    Topic("persistent://t/n/b", 0x20000000, 15_000.0, 1e6),
    Topic("persistent://t/n/idle", 0x60000000),
]


def planned(algorithm: Algorithm = "range_equally_divide", bundle: str = BUNDLE, *given: int) -> SplitPlan:
    return plan("b1:8080", bundle, algorithm, TOPICS, Flow(), given)


class TestParts:
    def test_each_side_has_its_topics_and_rates(self):
        """Before and after, in + out; topics without statistics count as topics alone."""
        assert json.loads(msgspec.json.encode(as_document(planned()))) == {
            "bundle": BUNDLE,
            "owner": "b1:8080",
            "algorithm": "range_equally_divide",
            "positions": ["0x40000000"],
            "before": part(BUNDLE, 4, 35_100, 4e6, "a"),
            "after": [
                part("t/n/0x00000000_0x40000000", 2, 35_000, 2e6, "a"),
                part("t/n/0x40000000_0x80000000", 2, 100, 2e6, "c"),
            ],
            "refused": None,
        }

    @pytest.mark.parametrize(
        ("algorithm", "given", "positions"),
        [
            ("range_equally_divide", (), (0x40000000,)),
            ("topic_count_equally_divide", (), (0x38000000,)),
            (SPECIFIED, (0x70000000, 0x18000000, 0x18000000), (0x18000000, 0x70000000)),
            ("flow_or_qps_equally_divide", (), (0x18000001,)),
        ],
    )
    def test_every_algorithm(self, algorithm: Algorithm, given: tuple[int, ...], positions: tuple[int, ...]):
        """Positions rise, and each is there once."""
        assert planned(algorithm, BUNDLE, *given).positions == positions

    def test_parts_without_topics_are_told(self):
        """A split cannot be taken back."""
        assert planned(SPECIFIED, BUNDLE, 0x70000000).empty == ("t/n/0x70000000_0x80000000",)

    def test_the_last_hash_is_in_the_last_bundle(self):
        """0xffffffff is included."""
        found = plan("b", LAST, "range_equally_divide", [Topic("persistent://t/n/z", 0xFFFFFFFF)], Flow())
        assert [len(one.topics) for one in found.parts] == [0, 1]

    @given(st.sets(st.integers(1, 0x7FFFFFFF), min_size=1, max_size=9))
    def test_parts_tile_the_bundle(self, positions: set[int]):
        """Every topic is in exactly one part, and the parts' positions are found again."""
        found = planned(SPECIFIED, BUNDLE, *positions)
        assert sorted(one.name for part in found.parts for one in part.topics) == sorted(one.name for one in TOPICS)
        assert split_parts(BUNDLE, found.positions) == tuple(part.bundle for part in found.parts)
        assert inside(BUNDLE, {0, 0x80000000, *positions}) == found.positions


def part(bundle: str, topics: int, msg_rate: float, throughput: float, busiest: str) -> dict[str, object]:
    rates = {"msg_rate": msg_rate, "throughput": throughput, "busiest_topic": f"persistent://t/n/{busiest}"}
    return {"bundle": bundle, "topics": topics, **rates}


class TestNothingToCut:
    @pytest.mark.parametrize(
        ("algorithm", "bundle", "topics", "why"),
        [
            ("range_equally_divide", "t/n/0x00000005_0x00000006", (), "no position lies inside its range"),
            ("topic_count_equally_divide", BUNDLE, (), "it has no topics, wanted two at least"),
            ("topic_count_equally_divide", BUNDLE, TOPICS[:1], "it has 1 topic, wanted two at least"),
            (
                "topic_count_equally_divide",
                "t/n/0x00000005_0x00000009",
                (Topic("a", 5), Topic("b", 6)),
                "no position lies inside its range",
            ),
            (
                "flow_or_qps_equally_divide",
                BUNDLE,
                TOPICS[2:],
                "it has 2 topics, 1 of them with traffic, wanted two at least",
            ),
            (
                "flow_or_qps_equally_divide",
                BUNDLE,
                (Topic("a", 1, 100.0, 2e6), Topic("b", 2, 10.0, 2e6)),
                (
                    "110 msg/s and 3.8 MiB/s; it is cut from 33,000 msg/s (split.max_msg_rate) or 110.0 MiB/s "
                    "(split.max_bandwidth_mbytes) on, 10 % above the limit"
                ),
            ),
            (
                "flow_or_qps_equally_divide",
                BUNDLE,
                (Topic("a", 7, 40_000.0, 2e6), Topic("b", 7, 40_000.0, 2e6)),
                "all of its traffic is on topics of one hash",
            ),
        ],
    )
    def test_is_refused_in_words(self, algorithm: Algorithm, bundle: str, topics: Sequence[Topic], why: str):
        """Exit 4: a broker would answer 204 and do nothing."""
        with pytest.raises(RefusedError) as refused:
            plan("b", bundle, algorithm, topics, Flow())
        assert str(refused.value) == f"{bundle}: nothing to cut: {why}"

    def test_given_positions_want_two_topics(self):
        """PIP-143; a broker passes over the request otherwise."""
        with pytest.raises(RefusedError, match="it has 1 topic: brokers cut at given positions from two topics on"):
            plan("b", BUNDLE, SPECIFIED, TOPICS[:1], Flow(), [0x40000000])


SEGMENTS = [
    Topic("segment://t/n/orders/0000-7fff-1", 0x0E137EDA, 9000.0, 9e6),
    Topic("segment://t/n/orders-2/0000-7fff-1", 0x1E137EDA, 5000.0, 5e6),
]


class TestSegments:
    @pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != SPECIFIED])
    @pytest.mark.parametrize("others", [[], TOPICS[3:]])
    def test_one_segment_is_divided_by_its_topic(self, algorithm: Algorithm, others: list[Topic]):
        """No cut between topics divides it, whether it is alone or beside topics without traffic."""
        with pytest.raises(RefusedError) as refused:
            plan("b", BUNDLE, algorithm, [*others, SEGMENTS[0]], Flow())
        command = "pulsar-admin scalable-topics split-segment t/n/orders --segment-id 1"
        why = f"its load is that of one segment, segment://t/n/orders/0000-7fff-1; divide that: {command}"
        assert str(refused.value) == f"{BUNDLE}: nothing to cut: {why}"

    def test_several_are_topics_like_others(self):
        """They are counted, each on its side of the cut."""
        found = plan("b", BUNDLE, "topic_count_equally_divide", [*TOPICS, *SEGMENTS], Flow())
        assert [len(part.topics) for part in found.parts] == [3, 3]
        assert found.parts[0].busiest == TOPICS[1]

    @pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "range_equally_divide"])
    def test_brokers_cut_at_positions_only_between_topics_that_they_count(self, algorithm: Algorithm):
        """Two segments and one other topic: a broker would answer 204 and do nothing. The middle it always cuts."""
        topics = [*SEGMENTS, TOPICS[0]]
        with pytest.raises(RefusedError, match="it has 3 topics, 2 of them segments, which brokers do not count"):
            plan("b", BUNDLE, algorithm, topics, Flow(), [0x18000000] if algorithm == SPECIFIED else [])
        middle = plan("b", BUNDLE, "range_equally_divide", topics, Flow())
        assert [len(part.topics) for part in middle.parts] == [2, 1]


class TestBadPositions:
    @pytest.mark.parametrize("given", [0, 0x80000000, 0x80000001, -1, 2**40])
    def test_outside_the_range(self, given: int):
        """Both ends are no positions; Pulsar would pass over them in silence."""
        with pytest.raises(UsageError, match=f"outside {BUNDLE}; wanted above 0x00000000 and below 0x80000000"):
            planned(SPECIFIED, BUNDLE, 0x40000000, given)

    @pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != SPECIFIED])
    def test_only_one_algorithm_takes_them(self, algorithm: Algorithm):
        """The others find theirs."""
        with pytest.raises(UsageError, match=f"{algorithm} finds its positions itself"):
            planned(algorithm, BUNDLE, 0x40000000)

    def test_none_is_given(self):
        """specified_positions_divide has nothing of its own."""
        with pytest.raises(UsageError, match="wants positions, and none is given"):
            planned(SPECIFIED)
