"""What holds for every placement, and what the hash-based one does."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.load.scoring import Weights
from lbd.place.placements import DEFAULT, PLACEMENTS, PlaceMemory, broker_loads, build
from tests import builders

BUNDLE = builders.bundle(7)
CANDIDATES = ("a:8080", "b:8080", "c:8080")


def looked(*cpu: float):
    """Brokers a, b, c with these scores, a bundle of 100 msg/s each way on each."""
    reports = {
        f"{'abc'[at]}:8080": builders.report(points, {builders.bundle(at): builders.stats(100.0)})
        for at, points in enumerate(cpu)
    }
    snapshot = builders.snapshot(reports)
    return broker_loads(snapshot, builders.first_averages(snapshot), Weights())


def test_the_default_is_a_placement():
    """It is one of the names."""
    assert DEFAULT in PLACEMENTS


@pytest.mark.parametrize("name", PLACEMENTS)
@given(points=st.lists(st.floats(0, 100), min_size=3, max_size=3), order=st.permutations(CANDIDATES))
def test_answers_are_candidates_and_do_not_depend_on_their_order(name: str, points: list[float], order: list[str]):
    """The same question has the same answer, however candidates are ordered, but for round robin, which goes by it."""
    place, seen = build(name), looked(*points)
    placed = place(BUNDLE, order, seen, PlaceMemory())
    assert placed.broker in CANDIDATES
    assert placed.reason
    assert placed == place(BUNDLE, order, seen, PlaceMemory())
    if name != "round-robin":
        assert placed.broker == place(BUNDLE, CANDIDATES, seen, PlaceMemory()).broker


@pytest.mark.parametrize("name", PLACEMENTS)
def test_one_candidate_is_the_answer_and_none_is_none(name: str):
    """Whatever its load."""
    place, seen = build(name), looked(10, 20, 99)
    assert place(BUNDLE, ("c:8080",), seen, PlaceMemory()).broker == "c:8080"
    assert place(BUNDLE, (), seen, PlaceMemory()).broker is None


def test_the_hash_based_picker_takes_the_planned_destination_while_it_is_a_candidate():
    """As Pulsar's AvgShedder does for a bundle that its shedding side has just unloaded."""
    place, planned = build("avg-shedder"), PlaceMemory(planned={BUNDLE: "b:8080"})
    assert place(BUNDLE, CANDIDATES, looked(1, 99, 1), planned).broker == "b:8080"
    fallen = place(BUNDLE, ("a:8080", "c:8080"), looked(1, 99, 1), planned)
    assert fallen.broker == ("a:8080", "c:8080")[zlib.crc32(BUNDLE.encode()) % 2]
    assert "for b:8080, planned when it was unloaded, is no candidate" in fallen.reason


def test_the_hash_based_picker_hashes_the_full_name_over_the_sorted_candidates():
    """CRC32 as PIP-364 has it, of the name where Pulsar draws a random number."""
    placed = build("avg-shedder")(BUNDLE, ("c:8080", "a:8080", "b:8080"), looked(1, 2, 3), PlaceMemory())
    assert placed.broker == CANDIDATES[zlib.crc32(BUNDLE.encode()) % 3]
    assert placed.choices == CANDIDATES


def test_bundles_placed_since_the_last_reports_count_at_their_own_rates():
    """LeastLongTermMessageRate does not give one broker everything: the second bundle goes elsewhere."""
    place = build("least-long-term-message-rate")
    seen = looked(10, 10, 10)
    seen = replace(seen, bundle_rates={builders.bundle(at): 50.0 for at in range(10)})
    memory, found = PlaceMemory(), []
    for at in range(6):
        placed = place(builders.bundle(at), CANDIDATES, seen, memory)
        memory = placed.memory
        found.append(placed.broker)
    assert sorted(found) == sorted(CANDIDATES * 2)
    assert memory.preallocated == dict.fromkeys(CANDIDATES, 100.0)


def test_a_bundle_that_no_report_knows_counts_as_pulsar_counts_it():
    """50 msg/s each way, so that a new namespace does not go to one broker."""
    placed = build("least-long-term-message-rate")(BUNDLE, CANDIDATES, looked(10, 10, 10), PlaceMemory())
    assert placed.memory.preallocated == {placed.broker: 100.0}


def test_what_reports_show_is_no_longer_counted_beside_them():
    """A new round of reports drops what was preallocated, as the leader does."""
    place, seen = build("least-long-term-message-rate"), looked(10, 10, 10)
    memory = PlaceMemory(since=seen.taken_at - 15, preallocated={"a:8080": 1e6}, answered={BUNDLE: "a:8080"})
    assert place(BUNDLE, CANDIDATES, seen, memory).choices == CANDIDATES
