"""On which brokers isolation policies let a namespace be."""

from __future__ import annotations

from typing import Any

import pytest

from lbd.permit.policies import Groups, Isolation, Policies, parse_isolation
from lbd.reason import Reason
from tests.builders import bundle, report, snapshot, stats

ACTIVE = ("a:80", "b:80", "c:80", "d:80")


def policy(namespaces: str, primary: str, secondary: str = "", min_limit: int | None = None) -> dict[str, Any]:
    """One policy as Pulsar answers it, numbers as text."""
    found: dict[str, Any] = {"namespaces": [namespaces], "primary": [primary], "secondary": [secondary]}
    if min_limit is not None:
        parameters = {"min_limit": str(min_limit), "usage_threshold": "80"}
        found["auto_failover_policy"] = {"policy_type": "min_available", "parameters": parameters}
    return found


@pytest.mark.parametrize(
    ("policies", "namespace", "allowed"),
    [
        ({}, "t/n", "abcd"),
        ({"p": policy("t/iso", "[ab]")}, "t/iso", "ab"),
        ({"p": policy("t/iso", "[ab]")}, "t/n", "cd"),
        ({"p": policy("t/iso.*", "[ab]")}, "t/iso-2", "ab"),
        ({"p": policy("t/iso", "[ab]")}, "t/iso-2", "cd"),
        ({"p": policy("iso", "[ab]")}, "t/iso", "cd"),
        ({"p": policy("t/iso", "a:80")}, "t/iso", ""),
        ({"p": policy("t/iso", "a", "c", 1)}, "t/iso", "a"),
        ({"p": policy("t/iso", "a", "c", 2)}, "t/iso", "ac"),
        ({"p": policy("t/iso", "gone", "[cd]", 1)}, "t/iso", "cd"),
        ({"p": policy("t/iso", "a", "c", 2)}, "t/n", "bcd"),
        ({"p": policy("t/iso", "[ab]"), "q": policy("t/.*", "[bc]")}, "t/iso", "b"),
        ({"p": policy("t/iso", "a"), "q": policy("t/.*", "b")}, "t/iso", ""),
        ({"p": policy("t/iso", "a"), "q": policy("u/.*", "b")}, "t/n", "cd"),
    ],
    ids=[
        "no policy",
        "its primaries",
        "others: what no policy reserves",
        "a pattern of namespaces",
        "the whole name must match",
        "the tenant is part of the name",
        "the host alone is matched",
        "enough primaries",
        "too few primaries: secondaries join",
        "no primary is there",
        "secondaries are shared",
        "two policies: what both allow",
        "two policies that exclude each other",
        "two policies for others",
    ],
)
def test_where_a_namespace_may_be(policies: dict[str, Any], namespace: str, allowed: str):
    """LoadManagerShared.applyNamespacePolicies, and for several policies that match what all of them allow."""
    assert {f"{name}:80" for name in allowed} == parse_isolation(policies).brokers(namespace, ACTIVE)


def test_what_is_not_known_allows_nothing():
    """Nor does it say that it is the policy that forbids."""
    unknown = Policies(Isolation(is_known=False), Groups(), ACTIVE)

    assert frozenset() == unknown.brokers("t/n")
    assert Reason.POLICY_UNKNOWN is (unknown.forbids("t/n", "a:80") or pytest.fail("allowed"))[0]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"namespaces": ["("], "primary": []},
        {"namespaces": ["a{99999999999}"], "primary": []},
        {"namespaces": ["(" * 5000 + ")" * 5000], "primary": []},
        {"namespaces": [1], "primary": []},
        {"namespaces": ["t/[a-z&&[^x]]+"], "primary": []},
        {"namespaces": ["t/[a[bc]]"], "primary": []},
        {"namespaces": ["t/n"], "primary": ["b[0-9&&[^7]]"]},
        {**policy("t/n", "a"), "auto_failover_policy": {"parameters": {"min_limit": "two"}}},
        {**policy("t/n", "a"), "auto_failover_policy": {"parameters": 5}},
        {**policy("t/n", "a"), "auto_failover_policy": 5},
        5,
    ],
)
def test_one_policy_that_cannot_be_read_makes_all_unknown(given: Any):
    """Whom it binds cannot be told."""
    assert not parse_isolation({"good": policy("t/n", "a"), "p": given}).is_known


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (policy("t/(", "a"), "isolation policy 'p' is not understood: 't/(': "),
        (policy(r"(a+)+\1", "a"), r"isolation policy 'p' is not understood: '(a+)+\\1': RE2 cannot run it"),
        ({"namespaces": ["t/n"]}, "isolation policy 'p' is not understood: KeyError 'primary'"),
    ],
)
def test_why_policies_are_unknown(given: Any, problem: str):
    """The policy and its pattern are named, wherever a move is refused for it."""
    policies = Policies(parse_isolation({"good": policy("t/n", "a"), "p": given}), Groups(), ACTIVE)
    reason = policies.forbids("t/n", "a:80")

    assert reason is not None
    assert reason[0] is Reason.POLICY_UNKNOWN
    assert reason[1].startswith(problem)


def test_pools_gather_namespaces_that_may_be_on_the_same_brokers():
    """One for each set of brokers; policies with the same set share one, and no bundle is in two."""
    names = [bundle(1, "t/n"), bundle(1, "t/iso"), bundle(1, "u/same"), bundle(1, "v/other")]
    seen = snapshot({broker: report(10, {name: stats(1)}) for broker, name in zip(ACTIVE, names, strict=True)})
    found = parse_isolation(
        {"p": policy("t/iso", "[ab]"), "q": policy("u/.*", "a|b"), "r": policy("v/.*", "b", "c", 2)}
    ).pools(seen, ACTIVE)

    told = {
        pool.name: (
            "".join(broker[0] for broker, own in zip(seen.brokers.ids, pool.brokers, strict=True) if own),
            {name for name, own in zip(seen.bundles, pool.bundles, strict=True) if own},
        )
        for pool in found
    }
    assert {"": ("cd", {names[0]}), "p+q": ("ab", {names[1], names[2]}), "r": ("bc", {names[3]})} == told


def test_without_a_policy_there_are_no_pools():
    """Nothing is taken apart then."""
    assert () == Isolation().pools(snapshot({"a:80": report(10, {bundle(1): stats(1)})}), ACTIVE)


@pytest.mark.parametrize(
    ("namespace", "broker", "told"),
    [
        ("t/iso", "a:80", None),
        ("t/iso", "c:80", "t/iso may not be on c:80: isolation policy p"),
        ("t/n", "a:80", "a:80 is primary of an isolation policy for others"),
        ("t/n", "c:80", None),
    ],
)
def test_why_a_broker_is_forbidden(namespace: str, broker: str, told: str | None):
    """In words that name the policy."""
    found = Policies(parse_isolation({"p": policy("t/iso", "[ab]")}), Groups(), ACTIVE).forbids(namespace, broker)

    assert told == (found and found[1])


@pytest.mark.parametrize("text", [r"t/a\[b\[c", "t/[ab][cd]", r"t/[a\[b]", "t/a&&b", "t/n"])
def test_patterns_that_mean_the_same_in_both_languages(text: str):
    """Escaped brackets, classes after one another, and ampersands outside of them."""
    assert parse_isolation({"p": policy(text, "a")}).is_known
