"""Who may have a bundle, and why the others may not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lbd.load.scoring import Weights
from lbd.observe.parse import TOP_BUNDLES_REPORT
from lbd.permit.policies import Groups, Isolation, Pattern, Policies, Policy
from lbd.place.picker import RunningLoads, answer_all, without_doubted
from lbd.place.placements import PlaceMemory, broker_loads, build
from lbd.reason import Reason
from tests import builders

A, B, C = "a:8080", "b:8080", "c:8080"
NEW = builders.bundle(9, "t/new")
SNAPSHOT = builders.snapshot(
    {
        A: builders.report(10, {builders.bundle(0, "t/one"): builders.stats(10)}, num_topics=5),
        B: builders.report(20, {builders.bundle(1, "t/two"): builders.stats(10)}, num_topics=10),
        C: builders.report(30, num_topics=11),
    }
)
TRUSTED = np.zeros(3, dtype=np.int8)
FREE = Groups(frozenset({"t/new"}))
UNREAD = Isolation(is_known=False)


def standing(policies: Policies | None = None, doubted: np.ndarray = TRUSTED, topics: int = 1000) -> RunningLoads:
    """Three brokers that may have anything."""
    return RunningLoads(SNAPSHOT, policies or Policies(groups=FREE, active=(A, B, C)), doubted, topics)


def left_out(found: RunningLoads, bundle: str = NEW) -> dict[str, Reason]:
    """The brokers that may not have it, with their reasons."""
    candidates = found.candidates(bundle)
    assert set(candidates.brokers) | {skip.what for skip in candidates.left_out} == {A, B, C}
    return {skip.what: skip.reason for skip in candidates.left_out}


def isolated(*primaries: str) -> Isolation:
    """A policy that keeps t/new on these hosts."""
    return Isolation((Policy("p", (Pattern("t/new"),), tuple(map(Pattern, primaries))),))


def test_everybody_may_have_it_where_nothing_forbids():
    """Sorted by name."""
    assert standing().candidates(NEW).brokers == (A, B, C)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (standing(Policies(isolated("a", "b"), FREE, (A, B, C))), {C: Reason.ISOLATION_POLICY}),
        (standing(Policies(UNREAD, FREE, (A, B, C))), dict.fromkeys((A, B, C), Reason.POLICY_UNKNOWN)),
        (standing(Policies(groups=Groups(), active=(A, B, C))), dict.fromkeys((A, B, C), Reason.POLICY_UNKNOWN)),
        (standing(topics=10), {C: Reason.TOPIC_LIMIT}),
        (standing(doubted=np.array([82, 0, 0], dtype=np.int8)), {A: Reason.FIRST_SAMPLE}),
        (standing(doubted=np.array([82, 82, 82], dtype=np.int8)), {}),
    ],
    ids=["isolation", "isolation unknown", "group unknown", "topics above the limit", "one doubted", "all doubted"],
)
def test_a_broker_is_left_out_with_its_reason(found: RunningLoads, wanted: dict[str, Reason]):
    """Exactly the topic limit is still allowed, as in Pulsar; where no report is trusted, all may have it."""
    assert left_out(found) == wanted


def test_a_broker_without_a_report_is_left_out():
    """Active and silent."""
    found = standing(Policies(groups=FREE, active=(A, B, C, "d:8080"))).candidates(NEW)
    assert [(skip.what, skip.reason) for skip in found.left_out] == [("d:8080", Reason.REPORT_MISSING)]


def test_an_anti_affinity_group_spreads_also_over_the_answers():
    """Two namespaces of the group have a and b; the third goes to c, and the one after it may go anywhere."""
    members = frozenset({"t/one", "t/two", "t/new", "t/next"})
    groups = Groups(grouped=dict.fromkeys(members, "g"), members={"g": members})
    found = standing(Policies(groups=groups, active=(A, B, C)))
    assert left_out(found) == dict.fromkeys((A, B), Reason.ANTI_AFFINITY)
    found.take(NEW, C)
    assert found.candidates(builders.bundle(3, "t/next")).brokers == (A, B, C)


def test_answers_count_for_those_after_them_and_owned_bundles_take_no_share():
    """Only bundles without an owner are remembered."""
    seen = broker_loads(SNAPSHOT, builders.first_averages(SNAPSHOT), Weights(), to_place=2)
    owners = {NEW: None, builders.bundle(1, "t/new"): A, builders.bundle(2, "t/new"): None}
    found, memory = answer_all(owners, standing(), build("rendezvous"), seen, PlaceMemory())
    assert [(one.bundle, one.owner) for one in found] == sorted(owners.items())
    assert set(memory.answered) == {bundle for bundle, owner in owners.items() if owner is None}


def test_no_candidate_is_an_answer_of_its_own():
    """None, with every broker's reason."""
    found = standing(Policies(UNREAD, FREE, (A, B, C)))
    seen = broker_loads(SNAPSHOT, builders.first_averages(SNAPSHOT), Weights())
    (answer,), memory = answer_all({NEW: None}, found, build("rendezvous"), seen, PlaceMemory())
    assert (answer.placed.broker, answer.placed.reason) == (None, "no broker may have it")
    assert memory == PlaceMemory()


def test_the_load_of_a_doubted_broker_is_not_looked_at():
    """A placement sees no number for it."""
    seen = broker_loads(SNAPSHOT, builders.first_averages(SNAPSHOT), Weights())
    found = without_doubted(seen, np.array([0, 82, 0], dtype=np.int8))
    assert np.isnan(found.usage).tolist() == [False, True, False]
    assert replace(found, usage=seen.usage, smoothed=seen.smoothed).ids == seen.ids


def test_bundles_that_are_not_told_of_count_by_their_brokers_total():
    """The sum of the long-term means would take the smaller bundles for nothing."""
    told = {builders.bundle(1): builders.stats(100)}
    found = builders.report(20, told, msg_rate_in=400.0, load_report_type=TOP_BUNDLES_REPORT)
    seen = builders.snapshot({"a:80": found})
    looked = broker_loads(seen, builders.first_averages(seen), Weights())
    assert looked.long_rates.tolist() == [[400.0, 100.0]]
