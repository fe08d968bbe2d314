"""The bundle of the leader topic stays, whoever asks; all others are as movable as before."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.permit.eligibility import carries, leader_topic_bundles
from lbd.reason import Reason
from tests import builders

TOPIC = "persistent://t/n/lbd-leader"
OWN = builders.bundle(zlib.crc32(TOPIC.encode()) >> 24)


@given(st.sets(st.integers(0, 255)))
def test_exactly_the_bundle_of_the_topic_is_kept(numbers: set[int]):
    """Of any set of bundles, with others of another namespace and heartbeat bundles among them."""
    names = [builders.bundle(number) for number in numbers]
    others = [builders.bundle(number, "t/m") for number in numbers] + ["pulsar/h:80/0x00000000_0xffffffff"]
    kept = leader_topic_bundles([*names, *others], TOPIC)

    assert kept == ({OWN: Reason.LEADER_TOPIC} if OWN in names else {})
    assert leader_topic_bundles([*names, *others], "") == {}


@pytest.mark.parametrize(
    ("bundle", "topic", "answer"),
    [
        (OWN, TOPIC, True),
        (OWN, "", False),
        (OWN.replace("t/n", "t/m"), TOPIC, False),
        ("t/n/0x00000000_0xffffffff", TOPIC, True),
    ],
)
def test_whether_a_bundle_carries_the_topic(bundle: str, topic: str, answer: bool):
    """By its namespace and its range."""
    assert carries(bundle, topic) is answer
