"""What a move costs because of Pulsar's own topics in a bundle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lbd.bundles import bundle_ends, bundles_at, holds, topic_hash
from lbd.config import Settings
from lbd.observe.parse import BundleStats
from lbd.permit.eligibility import column, dearer
from lbd.permit.rules import barred
from lbd.permit.settings import Guardrails
from lbd.permit.topic_costs import KINDS, SystemTopics, dear_kinds, dear_topics, topic_costs
from lbd.reason import Reason
from tests.builders import TAKEN_AT, case, report, snapshot, stats

if TYPE_CHECKING:
    from lbd.model import Snapshot

NEVER = float("inf")
QUARTERS = ("0x00000000_0x40000000", "0x40000000_0x80000000", "0x80000000_0xc0000000", "0xc0000000_0xffffffff")
WHOLE = "0x00000000_0xffffffff"
POLICIES = SystemTopics({"change-events": ("__change_events",)})
FUNCTIONS = SystemTopics({"functions": ("metadata", "assignments", "coordinate")})


def seen(*names: str, **reported: Any) -> Snapshot:
    """A round in which two brokers take turns in owning these bundles; each has a topic with clients."""
    told = {name: reported.get(name.partition("/")[2].replace("/", "_"), stats(10)) for name in names}
    halves = list(told.items())[::2], list(told.items())[1::2]
    return snapshot({f"{broker}:80": report(10, dict(half)) for broker, half in zip("ab", halves, strict=True)})


def quarters(namespace: str) -> list[str]:
    """The four bundles of a namespace."""
    return [f"{namespace}/{one}" for one in QUARTERS]


def holder(topic: str) -> str:
    """The quarter that a topic falls into."""
    namespace = "/".join(topic.split("/")[2:4])
    return next(one for one in quarters(namespace) if holds(one, topic_hash(topic)))


def points(round_: Snapshot, topics: SystemTopics, costs: Any = None) -> dict[str, float]:
    """The cost of each bundle that has any."""
    found = topic_costs(round_, dear_kinds(topics, {} if costs is None else costs))
    return {} if found is None else found.by_name(round_)


CHANGES = "persistent://t/n/__change_events"


@pytest.mark.parametrize(
    ("topics", "costs", "expected"),
    [
        (POLICIES, {}, 10),
        (replace(POLICIES, readers_hang=True), {}, NEVER),
        (replace(POLICIES, readers_hang=True), {"change-events": 3}, 3),
        (POLICIES, {"change-events": "never"}, NEVER),
        (POLICIES, {"change-events": 0}, None),
        (POLICIES, {"functions": 4}, 10),
        (SystemTopics(), {}, None),
    ],
)
def test_the_bundle_of_change_events(topics: SystemTopics, costs: dict[str, Any], expected: float | None):
    """One of the namespace's bundles, by the topic's hash: never where its readers hang, unless a cost is set."""
    found = points(seen(*quarters("t/n")), topics, costs)
    assert found == ({} if expected is None else {holder(CHANGES): expected})


def test_the_bundles_that_pulsars_own_hash_names():
    """0xd13e0a59 and, of the three topics, 0x5b6c8b7a, 0x4f40fd9a and 0x6b3c465b, by Guava as the brokers of 4.2.4."""
    assert points(seen(*quarters("public/default")), POLICIES) == {"public/default/0xc0000000_0xffffffff": 10}
    assert points(seen(*quarters("public/functions")), FUNCTIONS) == {"public/functions/0x40000000_0x80000000": 10}


def test_each_partition_makes_its_bundle_dear_and_several_count_once():
    """A reader of any of them is a reader of all; one bundle is not dearer for two partitions."""
    names = tuple(f"__change_events-partition-{number}" for number in range(6))
    found = points(seen(*quarters("t/n")), SystemTopics({"change-events": names}))
    assert found == {holder(f"persistent://t/n/{name}"): 10 for name in names}


def test_kinds_in_one_bundle_add_up():
    """With the cost of its namespace, too."""
    both = SystemTopics({"change-events": ("a",), "transaction-buffers": ("a",)})
    round_ = seen(*quarters("t/n"))
    assert points(round_, both, {"transaction-buffers": 5}) == {holder("persistent://t/n/a"): 15}
    costs = column(round_, {"t/*": 2}, topics=topic_costs(round_, dear_kinds(both, {})))
    assert costs is not None
    assert sorted(costs.tolist()) == [2, 2, 2, 22]


def test_a_namespace_of_one_bundle_is_as_any_other():
    """No broker keeps a reader while it moves: whoever has none of the namespace's bundles reads nothing of it."""
    assert points(seen(f"t/n/{WHOLE}", f"t/m/{WHOLE}"), POLICIES) == {}


def test_function_workers_read_wherever_they_are():
    """Also where their namespace has one bundle; topics of that name in other namespaces are nobody's."""
    assert points(seen(f"public/functions/{WHOLE}", *quarters("t/n")), FUNCTIONS) == {f"public/functions/{WHOLE}": 10}


@pytest.mark.parametrize("namespace", ["pulsar/c/127.0.0.1:80", "t/c/n"])
def test_old_names_have_no_such_topics(namespace: str):
    """``tenant/cluster/namespace``."""
    assert points(seen(*quarters(namespace)), POLICIES) == {}


@pytest.mark.parametrize(
    ("topics", "producers", "consumers", "dear"),
    [(1, 1, 1, True), (1, 0, 1, True), (1, 1, 0, True), (0, 0, 0, False), (1, 0, 0, False)],
)
def test_a_bundle_without_a_topic_in_use_holds_none(topics: int, producers: int, consumers: int, dear: bool):
    """A topic that is in use has a client: by its broker's report."""
    told = dict.fromkeys(quarters("t/n"), BundleStats(10, 10, 1000, 1000, topics, producers, consumers))
    found = points(snapshot({"a:80": report(10, told), "b:80": report(10)}), POLICIES)
    assert found == ({holder(CHANGES): 10} if dear else {})


def test_a_bundle_of_which_nothing_is_reported_may_hold_one():
    """Where brokers tell of their largest bundles only, what is not told is no proof."""
    names = quarters("t/n")
    assert points(snapshot({"a:80": report(10, bundles=names), "b:80": report(10)}), POLICIES) == {holder(CHANGES): 10}


def test_what_never_moves_is_barred_and_has_no_cost():
    """An infinite cost is nothing to compare with."""
    round_ = seen(*quarters("t/n"))
    attempted = {quarters("t/n")[0]: TAKEN_AT}
    known = case(round_, system_topics=replace(POLICIES, readers_hang=True), attempted_at=attempted)
    known = replace(known, costs_by_topic={})
    assert sorted(Reason.of(code).label for code in barred(known).tolist() if code) == ["cool-down", "topic-cost"]
    assert known.costs is None


def test_low_namespaces_stay_the_dearest():
    """Whatever Pulsar's own topics cost."""
    round_ = seen(*quarters("t/n"), *quarters("t/m"))
    costs = column(round_, {}, topics=topic_costs(round_, dear_kinds(POLICIES, {"change-events": 1e6})))
    found = dearer(costs, round_, frozenset({"t/m"}))
    assert found is not None
    low = np.array([name.startswith("t/m/") for name in round_.bundles])
    assert found[low].min() > found[~low].max() == 1e6


@pytest.mark.parametrize("profile", ["live", "stock"])
def test_pulsars_own_rule_knows_no_costs(profile: str):
    """``profile: stock`` decides as Pulsar does, whatever is set."""
    chosen = Settings.model_validate({"profile": profile, "guardrails": {"topic_costs": {"functions": 7}}})
    assert bool(dear_kinds(POLICIES, chosen.topic_costs_in_force)) is (profile == "live")


@pytest.mark.parametrize(
    ("costs", "told"),
    [
        ({"functions": -1}, "functions: -1.0: wanted 0 to 1,000,000, or never"),
        ({"compaction": 1}, "Input should be 'change-events', 'transaction-buffers' or 'functions'"),
        ({"functions": "dear"}, "Input should be 'never'"),
    ],
)
def test_a_cost_that_cannot_be(costs: dict[str, Any], told: str):
    """Said with what would be right."""
    with pytest.raises(ValidationError, match=told):
        Guardrails.model_validate({"topic_costs": costs})


def test_explained_by_name_as_it_was_counted():
    """The same bundles, one by one: by their names, and the kinds that the turn kept."""
    topics = SystemTopics({**POLICIES.names, **FUNCTIONS.names})
    names = [*quarters("t/n"), f"t/m/{WHOLE}", *quarters("public/functions")]
    kinds = dear_kinds(topics, {"functions": "never"})
    told = {name: list(dear_topics(name, kinds)) for name in names}
    assert {name for name, why in told.items() if why} == points(seen(*names), topics).keys()
    why = KINDS["change-events"].why
    cost = "cost of a move: 10 points: cheaper ones go first (guardrails.topic_costs)"
    assert told[holder(CHANGES)] == [f"__change_events of its namespace: {why}; {cost}"]
    metadata = told[holder("persistent://public/functions/metadata")]
    assert any("metadata" in why and "cost of a move: never by a turn" in why for why in metadata)


@given(st.sets(st.sampled_from(["t/a", "t/b", "u/c"]), min_size=1), st.text(min_size=1, max_size=8), st.data())
def test_bundles_are_found_as_if_each_was_asked(spaces: set[str], topic: str, data: st.DataObject):
    """Whatever the order of the list, and if some of a namespace are not in it."""
    names = [one for space in sorted(spaces) for one in quarters(space)]
    names = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    round_ = seen(*names)
    position = topic_hash(topic)
    known = round_.namespaces
    ends = bundle_ends(round_.bundles)
    found = bundles_at(ends, known, np.arange(len(known.names)), np.full(len(known.names), position))
    wanted = [
        next((at for at, one in enumerate(round_.bundles) if one.startswith(f"{space}/") and holds(one, position)), -1)
        for space in known.names
    ]
    assert found.tolist() == wanted


def test_what_is_no_bundle_holds_nothing():
    """As a broken report may tell."""
    round_ = seen("t/n/other", *quarters("t/n")[1:])
    known = round_.namespaces
    found = bundles_at(bundle_ends(round_.bundles), known, np.array([0, 0]), np.array([0x1, 0x40000000]))
    assert [-1, round_.bundles.index(quarters("t/n")[1])] == found.tolist()
