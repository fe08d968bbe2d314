"""Where bundles are cut: Pulsar's own answers, the worked examples of its concepts page, and what always holds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.bundles import topic_hash
from lbd.errors import UsageError
from lbd.split.plan import (
    Flow,
    Topic,
    flow_or_qps_equally_divide,
    range_equally_divide,
    specified_positions_divide,
    topic_count_equally_divide,
)

if TYPE_CHECKING:
    from collections.abc import Callable

VECTORS = Path(__file__).parents[1] / "data" / "vectors"
Answer = tuple[int, ...] | None


def of_range(case: dict[str, Any]) -> Answer:
    return range_equally_divide(*ends(case))


def of_topic_count(case: dict[str, Any]) -> Answer:
    return topic_count_equally_divide(named(case))


def of_positions(case: dict[str, Any]) -> Answer:
    given = case["input"]["positions"] or ()
    return specified_positions_divide(*ends(case), named(case), given, force=case["input"]["force"])


def of_flow(case: dict[str, Any]) -> Answer:
    found = case["settings"]
    limits = (found["namespace_bundle_max_msg_rate"], found["namespace_bundle_max_bandwidth_mbytes"])
    flow = Flow(*limits, found["flow_or_qps_difference_threshold_percentage"])
    return flow_or_qps_equally_divide([measured(one) for one in case["input"]["topics"] or ()], flow)


def ends(case: dict[str, Any]) -> tuple[int, int]:
    lower, upper = case["input"]["bundle"].rpartition("/")[2].split("_")
    return int(lower, 16), int(upper, 16)


def named(case: dict[str, Any]) -> list[Topic]:
    return [Topic(name, topic_hash(name)) for name in case["input"]["topics"] or ()]


def measured(one: dict[str, Any]) -> Topic:
    found = Topic(one["topic"], topic_hash(one["topic"]))
    if "msgRateIn" not in one:
        return found
    rates = (one["msgRateIn"] + one["msgRateOut"], one["msgThroughputIn"] + one["msgThroughputOut"])
    return Topic(found.name, found.position, *rates)


def answered(answer: Callable[[dict[str, Any]], Answer], case: dict[str, Any]) -> Any:
    """As the vectors have it."""
    try:
        found = answer(case)
    except UsageError:
        return "illegal-argument"
    return None if found is None else list(found)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("range-equally-divide", of_range),
        ("topic-count-equally-divide", of_topic_count),
        ("specified-positions-divide", of_positions),
        ("flow-or-qps-equally-divide", of_flow),
    ],
)
def test_every_case_is_answered_as_pulsar_answers_it(name: str, answer: Callable[[dict[str, Any]], Answer]):
    """200 cases of each algorithm, the answers of Pulsar 5.0.1's own classes, position for position."""
    with gzip.open(VECTORS / f"split-{name}.jsonl.gz") as file:
        cases = [json.loads(line) for line in file]

    assert len(cases) == 200
    for case in cases:
        assert case.get("expected", case.get("error")) == answered(answer, case), case["id"]


class TestPulsarsOwnTests:
    """Numbers of the *BundleSplitAlgorithmTest classes (apache/pulsar)."""

    def test_range(self):
        """RangeEquallyDivideBundleSplitAlgorithmTest."""
        assert range_equally_divide(10, 0xFFFFFFFF) == (2147483652,)

    def test_topic_count(self):
        """TopicCountEquallyDivideBundleSplitAlgorithmTest: topics named a, b and c."""
        assert topic_count_equally_divide([Topic(name, topic_hash(name)) for name in "abc"]) == (1010591668,)

    def test_flow(self):
        """FlowOrQPSEquallyDivideBundleSplitAlgorithmTest: 241 topics, twelve cuts, no part above the limit."""
        quiet, busy = (24.5 + 25, 24.5 + 25), (25.5 + 25, 25.5 + 25)
        stem = "persistent://test-tenant1/test-namespace1/test"
        names = [f"{stem}{number}-partition-{part}" for number in range(1, 13) for part in range(20)]
        topics = [Topic(name, topic_hash(name), *(quiet if at < 100 else busy)) for at, name in enumerate(names)]
        topics.append(Topic(f"{stem}695-partition-0", topic_hash(f"{stem}695-partition-0"), 25 + 35, 25 + 35))

        assert flow_or_qps_equally_divide(topics, Flow(1010)) == (
            *(316498816, 845910623, 1072534986, 1323020230, 1829348649, 2151045800),
            *(2462724096, 2747734995, 3171835987, 3692515374, 3990051434, 4290840930),
        )


class TestConceptsPage:
    """The worked examples of pulsar.apache.org/docs/concepts-broker-load-balancing-concepts, "Bundle splitting"."""

    def test_range(self):
        """ "If the target bundle to split is (0x00000000, 0x80000000), then the boundary is [0x40000000]"."""
        assert range_equally_divide(0x00000000, 0x80000000) == (0x40000000,)

    def test_topic_count(self):
        """ "You can set the boundary at 0x50000000": between topics 3 and 4. Pulsar takes the middle of the two."""
        hashes = (0x10000000, 0x20000000, 0x35000000, 0x65000000, 0x70000000, 0x75000000)
        cuts = topic_count_equally_divide([Topic(f"topic{at}", found) for at, found in enumerate(hashes, 1)])
        assert cuts == (0x4D000000,)
        assert 0x35000000 < cuts[0] < 0x65000000

    def test_specified_positions(self):
        """ "Topic1 is at 0x30000000, topic2 is at 0x35000000 [...] set the boundary as 0x33000000"."""
        large = [Topic("topic1", 0x30000000), Topic("topic2", 0x35000000)]
        assert specified_positions_divide(0, 0x40000000, large, [0x33000000]) == (0x33000000,)

    @pytest.mark.parametrize(
        ("flow", "pages", "true"),
        [
            (
                Flow(450, 200),
                (0x19500000, 0x31500000, 0x48500000, 0x67000000),
                (0x1C800001, 0x2E800001, 0x48800001, 0x67000001),
            ),
            (Flow(1900, 90), (0x31500000, 0x67000000), (0x2E800001, 0x67000001)),
        ],
        ids=["case 1: message rate", "case 2: throughput"],
    )
    def test_flow_or_qps(self, flow: Flow, pages: tuple[int, ...], true: tuple[int, ...]):
        """The page's cuts lie between the same topics as Pulsar's, and are slips in themselves.

        It averages the digits as if they were decimal: 0x15000000 and 0x24000000 are said to give 0x19500000, and truly
        have 0x1c800000 in their middle; Pulsar adds 1 to that.
        """
        cuts = flow_or_qps_equally_divide(self.six, flow)
        assert cuts == true
        assert self.between(true) == self.between(pages)

    def test_flow_or_qps_by_both(self):
        """Case 3: 1100 msg/s and 110 MB/s; "the split position is 0x48500000", and truly 0x48800001.

        The page ends there, though its t5 and t6 together carry 1100 msg/s, which does not exceed 1100, and 110 MB/s.
        """
        assert flow_or_qps_equally_divide(self.six, Flow(1100, 110)) == (0x48800001,)

    @property
    def six(self) -> list[Topic]:
        """The page's table; its M/s are taken for MiB/s, as ``loadBalancerNamespaceBundleMaxBandwidthMbytes`` is."""
        hashes = (0x10000000, 0x15000000, 0x24000000, 0x39000000, 0x58000000, 0x76000000)
        return [Topic(f"t{at}", found, at * 100, at * 10 * 2**20) for at, found in enumerate(hashes, 1)]

    def between(self, cuts: tuple[int, ...]) -> list[int]:
        """How many topics lie below each cut."""
        return [sum(topic.position < cut for topic in self.six) for cut in cuts]


class TestNothingToCut:
    @pytest.mark.parametrize(
        "found",
        [
            topic_count_equally_divide([Topic("a", 5)]),
            specified_positions_divide(0, 10, [Topic("a", 5)], [6]),
            specified_positions_divide(0, 10, [Topic("a", 5), Topic("b", 6)], [0, 10, 11, -1]),
            flow_or_qps_equally_divide([Topic("a", 5, 9e9, 9e9), Topic("b", 6)], Flow()),
            flow_or_qps_equally_divide([Topic("a", 5, 20_000, 0), Topic("b", 6, 12_999, 0)], Flow()),
        ],
        ids=["one topic", "one topic, positions", "outside", "traffic on one", "within the difference"],
    )
    def test_is_none(self, found: Answer):
        """A broker would answer 204 and do nothing."""
        assert found is None

    def test_no_position_is_an_error(self):
        """As Pulsar's illegal argument."""
        with pytest.raises(UsageError, match="wants positions, and none is given"):
            specified_positions_divide(0, 10, [], [])


topics = st.lists(
    st.builds(Topic, st.just("t"), st.integers(1, 0xFFFFFFFE), st.floats(0, 1e5), st.floats(0, 1e9)), max_size=30
)


@given(topics, st.floats(1, 1e5), st.floats(1, 1000))
def test_no_part_exceeds_the_flow_but_by_one_topic(topics: list[Topic], rate: float, megabytes: float):
    """Cuts rise, lie inside the bundle, and leave no part of several topics above a limit."""
    flow = Flow(rate, megabytes)
    distinct = list({topic.position: topic for topic in topics}.values())
    cuts = flow_or_qps_equally_divide(distinct, flow) or ()
    assert list(cuts) == sorted(set(cuts))
    for lower, upper in zip((0, *cuts), (*cuts, 2**32), strict=True):
        inside = [one for one in distinct if lower <= one.position < upper and one.has_traffic]
        if cuts and len(inside) > 1:
            assert sum(one.msg_rate or 0 for one in inside) <= rate * (1 + 1e-9)
            assert sum(one.throughput or 0 for one in inside) <= flow.max_throughput * (1 + 1e-9)


@given(topics.filter(lambda found: len(found) > 1))
def test_topic_count_halves(topics: list[Topic]):
    """The parts differ by one topic, or by three where two hashes are neighbours: the cut is at the lower one then."""
    distinct = list({topic.position: topic for topic in topics}.values())
    cuts = topic_count_equally_divide(distinct)
    if cuts is not None:
        below = sum(topic.position < cuts[0] for topic in distinct)
        assert abs(len(distinct) - 2 * below) <= 3
