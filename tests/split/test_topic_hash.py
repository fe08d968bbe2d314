"""Where a topic falls, against the answers of Pulsar's own classes."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.bundles import (
    FULL_RANGE,
    TopicBundle,
    holds,
    one_bundle,
    parse_boundaries,
    range_name,
    scalable_namespace,
    segment_name,
    split_segment_command,
    topic_hash,
    topic_namespace,
)
from lbd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

CASES = Path(__file__).parents[1] / "data" / "vectors" / "topic-hash.jsonl.gz"


def cases() -> list[dict[str, Any]]:
    """Topics, and what Pulsar 5.0.1 answered."""
    with gzip.open(CASES) as file:
        return [json.loads(line) for line in file]


def holding(topic: str, boundaries: Iterable[int]) -> list[str]:
    """The bundles that hold a topic, of those into which a namespace is cut."""
    bundles = [f"{topic_namespace(topic)}/{range_name(*ends)}" for ends in pairwise(boundaries)]
    return [bundle for bundle in bundles if holds(bundle, topic_hash(topic))]


def test_every_topic_is_hashed_as_pulsar_hashes_it():
    """200 names, those with umlauts, CJK characters, escapes and partitions among them."""
    found = [topic_hash(case["input"]["topic"]) for case in cases()]

    assert len(found) == 200
    assert [case["expected"]["hash"] for case in cases()] == found


def test_every_topic_falls_into_pulsars_bundle():
    """Equal and odd boundaries, one bundle alone among them."""
    placed = [case for case in cases() if "boundaries" in case["input"]]
    found = [holding(one["input"]["topic"], parse_boundaries(one["input"]["boundaries"])) for one in placed]

    assert len(found) > 50
    assert [[case["expected"]["bundle"]] for case in placed] == found


@pytest.mark.parametrize(
    ("segment", "hashed"),
    [
        ("segment://public/default/orders/0000-ffff-0", 0xD2402EA9),
        ("segment://t/n/orders/0000-7fff-1", 0x0E137EDA),
        ("segment://t/n/orders/8000-ffff-2", 0xEA0B1577),
        ("segment://t/n/orders-partition-1/0000-ffff-0", 0x358BBC6A),
        ("segment://t/n/a/b/0000-ffff-0", 0x051C14C5),
        ("segment://t/n/a%2Fb/0000-ffff-0", 0x0868A7CC),
        ("segment://t/n/grüße/0000-ffff-0", 0x3F666265),
    ],
)
def test_a_segment_is_hashed_by_its_full_name(segment: str, hashed: int):
    """As the classes of 5.0.0-M1 answered: ConsistentHashingTopicBundleAssigner takes the CRC32 of TopicName's text."""
    assert (topic_hash(segment), len(holding(segment, FULL_RANGE))) == (hashed, 1)


def test_a_segments_name_is_made_of_its_topic_range_and_number():
    """As SegmentTopicName writes it, and what splits it."""
    name = segment_name("topic://t/n/a/b", 0x0AAB, 0x5554, 12)
    assert name == "segment://t/n/a/b/0aab-5554-12"
    assert split_segment_command(name) == "pulsar-admin scalable-topics split-segment t/n/a/b --segment-id 12"
    assert split_segment_command("persistent://t/n/orders") == ""


def test_a_scalable_topic_has_no_bundle_of_its_own():
    """One line, with the form that is wanted; its namespace is known all the same."""
    with pytest.raises(UsageError, match=r"is a scalable topic, each segment .*; wanted segment://tenant/namespace/"):
        topic_namespace("topic://t/n/orders")
    assert scalable_namespace("topic://t/n/orders") == "t/n"
    with pytest.raises(UsageError, match="is no scalable topic; wanted topic://tenant/namespace/topic"):
        scalable_namespace("topic://t/n")


def test_the_bundle_of_a_topic_with_several_segments_is_asked_back():
    """One line that lists them."""
    found = [TopicBundle(f"segment://t/n/o/{at}", f"t/n/{at}_x") for at in ("0000-7fff-1", "8000-ffff-2")]
    assert one_bundle("topic://t/n/o", found[:1]) == "t/n/0000-7fff-1_x"
    with pytest.raises(UsageError) as refused:
        one_bundle("topic://t/n/o", found)
    listed = "segment://t/n/o/0000-7fff-1 (0000-7fff-1_x), segment://t/n/o/8000-ffff-2 (8000-ffff-2_x)"
    assert str(refused.value) == f"topic://t/n/o has 2 segments; wanted one of {listed}"


@pytest.mark.parametrize("end", [0x823CD928, 0x823CD929, 0x823CD92A])
def test_a_topic_on_a_boundary_is_in_the_bundle_above(end: int):
    """CRC32 of this name is 0x823cd929; ranges are [lower, upper)."""
    found = holding("persistent://public/default/t", (0, end, 0xFFFFFFFF))
    assert found == [f"public/default/{range_name(*((end, 0xFFFFFFFF) if end <= 0x823CD929 else (0, end)))}"]


@given(st.sets(st.integers(1, 0xFFFFFFFE), max_size=20), st.text("abc-0123456789", min_size=1))
def test_a_topic_is_in_exactly_one_bundle(cuts: set[int], name: str):
    """Whatever the boundaries."""
    assert len(holding(f"persistent://t/n/{name}", sorted({*FULL_RANGE, *cuts}))) == 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "orders", "t/n/orders", "persistent://t/orders", "kafka://t/n/a", "topic://t/n"),
        *("segment://t/n/o", "segment://t/n/o/0-1-0", "segment://t/n/o/0000-FFFF-0", "segment://t/n/0000-ffff-0"),
    ],
)
def test_what_is_no_topic_is_told(text: str):
    """In one line, with the form that is wanted."""
    with pytest.raises(UsageError, match="is no topic; wanted persistent://tenant/namespace/topic"):
        topic_namespace(text)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["0x00000000"],
        ["0x00000000", "0xfffffffe"],
        ["0x00000001", "0xffffffff"],
        ["0x00000000", "0x80000000", "0x80000000", "0xffffffff"],
        ["0x00000000", "junk", "0xffffffff"],
        ["0x00000000", "0x0ffffffff", "0xffffffff"],
    ],
)
def test_what_are_no_boundaries_is_told(texts: list[str]):
    """They must rise over the full range."""
    with pytest.raises(UsageError, match="are no boundaries; wanted 0x00000000 rising to 0xffffffff"):
        parse_boundaries(texts)
