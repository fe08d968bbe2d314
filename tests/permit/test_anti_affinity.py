"""Namespaces of an anti-affinity group stay apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.least_moves import LeastMovesSettings
from lbd.decide.strategies import build
from lbd.load.scoring import Weights
from lbd.model import Snapshot, Unload
from lbd.permit.evidence import judge
from lbd.permit.facts import Facts
from lbd.permit.membership import Membership
from lbd.permit.policies import Groups, GroupSpread, Isolation, Policies, parse_isolation
from lbd.permit.settings import Guardrails
from lbd.reason import Reason
from lbd.turn.plan import Planning, plan
from tests.builders import bundle, first_averages, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.decide.shedder import HitSettings

NAMESPACES = [f"g/{number}" for number in range(8)]


def cluster(**brokers: str) -> Snapshot:
    """Brokers with one bundle of ``g/<digit>`` for each digit."""
    return snapshot(
        {
            f"{name}:80": report(10, {bundle(at, f"g/{digit}"): stats(1) for at, digit in enumerate(own)})
            for name, own in brokers.items()
        }
    )


def spread(seen: Snapshot, isolation: Isolation | None = None, domains: Mapping[str, str] | None = None) -> GroupSpread:
    """All of these namespaces are in one group."""
    groups = Groups(grouped=dict.fromkeys(NAMESPACES, "g"), members={"g": frozenset(NAMESPACES)}, domains=domains or {})
    return GroupSpread(seen, Policies(isolation or Isolation(), groups, seen.brokers.ids))


def may(found: GroupSpread, name: str, source: str, destination: str) -> bool:
    """Whether a bundle may go there."""
    return found.refusal(Unload(name, f"{source}:80", f"{destination}:80", 1, 1)) is None


@pytest.mark.parametrize(
    ("brokers", "allowed"),
    [
        ({"a": "0", "b": "", "c": ""}, "bc"),
        ({"a": "0", "b": "1", "c": ""}, "c"),
        ({"a": "01", "b": "2", "c": "3"}, "bc"),
        ({"a": "0", "b": "1", "c": "2"}, ""),
        ({"a": "00", "b": "1", "c": ""}, "c"),
        ({"a": "00", "b": "0", "c": ""}, "c"),
    ],
    ids=[
        "empty brokers",
        "the only empty one",
        "level with the others once it has left",
        "worse than staying",
        "more of its namespace stay behind",
        "the same namespace counts, too",
    ],
)
def test_a_bundle_goes_where_fewest_of_its_group_are(brokers: dict[str, str], allowed: str):
    """Counted as Pulsar would once the source has let go: then its old broker may be the best place."""
    found = spread(cluster(**brokers))

    assert set(allowed) == {broker for broker in brokers if broker != "a" and may(found, bundle(0, "g/0"), "a", broker)}


@pytest.mark.parametrize(
    ("domains", "allowed"),
    [
        ({}, "bd"),
        ({"a:80": "r1", "b:80": "r1", "c:80": "r2", "d:80": "r2"}, "b"),
        ({"a:80": "r1", "b:80": "r2", "c:80": "r2", "d:80": "r3"}, "d"),
        ({"c:80": "r2", "d:80": "r2"}, "b"),
    ],
    ids=["off", "the domain of the source is the emptiest", "b shares its domain with c", "a and b are in none"],
)
def test_domains_come_first(domains: dict[str, str], allowed: str):
    """Brokers of the domains with the fewest namespaces of the group; those in none are one domain of their own."""
    found = spread(cluster(a="0", b="", c="1", d=""), domains=domains)

    assert set(allowed) == {broker for broker in "bcd" if may(found, bundle(0, "g/0"), "a", broker)}


def test_a_domain_is_not_counted_without_the_report_of_one_of_its_brokers():
    """What ``e`` has of the group is not known: its domain may be the fullest. Without domains that misleads nobody."""
    seen = cluster(a="0", b="1", c="", d="")
    groups = {"grouped": dict.fromkeys(NAMESPACES, "g"), "members": {"g": frozenset(NAMESPACES)}}
    for domains, allowed in (({"a:80": "r1", "b:80": "r2", "c:80": "r2", "e:80": "r3", "d:80": "r3"}, ""), ({}, "cd")):
        found = GroupSpread(
            seen, Policies(groups=Groups(**groups, domains=domains), active=(*seen.brokers.ids, "e:80"))
        )
        assert set(allowed) == {broker for broker in "bcd" if may(found, bundle(0, "g/0"), "a", broker)}


def test_a_plan_is_counted_along():
    """The second bundle of a group finds the first one there."""
    found = spread(cluster(a="01", b="", c=""))
    first = Unload(bundle(0, "g/0"), "a:80", "b:80", 1, 1)
    assert found.refusal(first) is None
    found.take(first)

    assert not may(found, bundle(1, "g/1"), "a", "b")
    assert may(found, bundle(1, "g/1"), "a", "c")


def test_only_brokers_that_policies_allow_are_compared():
    """A broker that the namespace may not use is no better place."""
    isolation = parse_isolation({"p": {"namespaces": ["g/.*"], "primary": ["[ab]"], "secondary": []}})
    found = spread(cluster(a="01", b="2", c=""), isolation)

    assert may(found, bundle(0, "g/0"), "a", "b")
    assert not may(found, bundle(0, "g/0"), "a", "c")


def test_namespaces_without_a_group_go_anywhere():
    """Nothing is counted for them."""
    assert may(spread(cluster(a="0", b="1")), bundle(0, "t/free"), "a", "b")


@given(st.lists(st.text("01234567", max_size=4), min_size=2, max_size=5), st.integers(0, 7))
def test_no_move_makes_the_group_less_even(owned: list[str], number: int):
    """Whatever is let through, the destination then has at most as many namespaces of the group as the source had."""
    names = "abcde"[: len(owned)]
    seen = cluster(**dict(zip(names, owned, strict=True)))
    at = owned[0].find(str(number))
    if at < 0:
        return
    before = {name: len(set(own)) for name, own in zip(names, owned, strict=True)}
    for destination in names[1:]:
        if may(spread(seen), bundle(at, f"g/{number}"), "a", destination):
            assert before[destination] <= min(before[name] for name in names[1:])
            assert before[destination] <= before["a"]


def test_another_landing_is_judged_from_where_the_bundle_is_counted():
    """Counted at b already, the bundle would make c look no worse than the emptiest broker if it came from a."""
    found = spread(cluster(a="01", b="", c="2"))
    planned = Unload(bundle(0, "g/0"), "a:80", "b:80", 1, 1)
    found.take(planned)
    assert may(found, bundle(0, "g/0"), "a", "c")
    assert not may(found, bundle(0, "g/0"), "b", "c")


@pytest.mark.parametrize("settings", [AvgShedderSettings(), LeastMovesSettings()], ids=lambda one: one.name)
@pytest.mark.parametrize(("third", "moves"), [(12, True), (80, False)], ids=["has room", "is nearly as high"])
def test_a_group_that_forbids_one_destination_lets_bundles_go_to_another(
    settings: HitSettings, third: float, moves: bool
):
    """The coldest broker has a namespace of the group and the third has none: a hot broker is not left hot for that."""
    seen = snapshot(
        {
            "a:80": report(84, {bundle(at, "g/one"): stats(800) for at in range(8)}),
            "b:80": report(10, {bundle(100, "g/two"): stats(100)}),
            "c:80": report(third, {bundle(120, "t/n"): stats(100)}),
        }
    )
    members = {"g": frozenset({"g/one", "g/two"})}
    groups = Groups(frozenset({"t/n"}), dict.fromkeys(members["g"], "g"), members)
    policies = Policies(groups=groups, active=seen.brokers.ids)
    facts = Facts(seen, first_averages(seen), judge({}, seen, Weights()), policies, Membership(seen.brokers.ids))
    strategy = build(settings.eager(), Weights())
    planning = Planning(strategy, Weights(), Guardrails(max_traffic_per_turn=1.0))
    found = plan(planning, planning.case(facts))
    assert bool(found.unloads) is moves
    if moves:
        assert found.unloads[0].destination == "c:80"
        assert max(found.expected.values()) < 50
    else:
        assert Reason.ANTI_AFFINITY in {skip.reason for skip in found.skips}
