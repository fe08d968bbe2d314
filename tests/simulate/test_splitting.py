"""Topics have the hashes that they are to have, and splits keep every topic and all of the traffic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.bundles import holds, topic_at, topic_hash, topic_namespace
from lbd.simulate.cluster import simulated_topics, snapshot, split, topics_in
from tests.simulate.worlds import begun, later

HASHES = st.integers(0, 0xFFFFFFFF)
ONE = {"name": "n", "brokers": ["a"], "mib_per_second": 60, "bundles": 1, "topics": 50}


@given(HASHES, HASHES)
def test_a_topic_has_the_hash_that_was_asked_for(position: int, other: int) -> None:
    """And another name for another hash."""
    stem = "persistent://t/n/topic-"
    name = topic_at(stem, position)
    assert (topic_hash(name), topic_namespace(name)) == (position, "t/n")
    assert (name == topic_at(stem, other)) == (position == other)


@pytest.mark.parametrize("span", ["0x00000000_0xffffffff", "0x10000000_0x20000000", "0xfffffff0_0xffffffff"])
def test_topics_lie_in_their_bundle(span: str) -> None:
    """All of them, at different places, the same ones each time."""
    found = simulated_topics(f"t/n/{span}", 16)
    assert len({topic.name for topic in found}) == 16
    assert all(holds(f"t/n/{span}", topic.position) for topic in found)
    assert [topic.position for topic in found] == sorted(topic.position for topic in found)


@given(st.lists(st.integers(1, 0xFFFFFFFE), min_size=1, max_size=6, unique=True).map(sorted), st.data())
def test_splits_keep_topics_and_traffic(positions: list[int], data: st.DataObject) -> None:
    """However often, and also where a part has no topic."""
    first, state = begun(load=[ONE])
    world = first
    for position in positions:
        at = next(at for at, name in enumerate(world.bundles) if holds(name, position))
        world, state = split(world, state, at, [position], topics_in(first, world, at))
    assert world.rates.sum(axis=0) == pytest.approx(first.rates.sum(axis=0))
    assert world.topics.tolist() == [len(topics_in(first, world, at)) for at in range(len(world.bundles))]
    assert world.topics.sum() == 50
    assert world.rates[:, 2] == pytest.approx(first.rates[0, 2] * world.topics / 50)
    counted = later(world, state, data.draw(st.sampled_from([60, 120])))
    assert sorted(snapshot(world, counted, 0.0).bundles) == sorted(world.bundles)


def test_the_whole_is_reported_no_more_and_the_parts_are_with_the_next_statistics() -> None:
    """Their rates are of a whole interval then, as 4.0.8 counts them."""
    first, state = begun(load=[ONE])
    running = later(first, state, 90)
    world, cut = split(first, running, 0, [1 << 31], topics_in(first, first, 0))
    assert snapshot(world, cut, 0.0).bundles == []
    found = snapshot(world, later(world, cut, 60), 0.0)
    assert found.rows.rates.sum(axis=0) == pytest.approx(first.rates[0])
    assert np.array_equal(cut.owner, [0, 0])


def test_a_bundle_without_topics_is_cut_by_width() -> None:
    """Its traffic is shared by how wide the parts are."""
    first, state = begun(load=[ONE])
    world, _ = split(first, state, 0, [1 << 30], [])
    assert world.rates[:, 2] / first.rates[0, 2] == pytest.approx([0.25, 0.75])
