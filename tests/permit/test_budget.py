"""How many unloads an hour and a day may see, and how much of that is left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lbd.model import Snapshot, Unload
from lbd.permit.budget import Budget, LastHour, Sent, Used, last_hour
from lbd.permit.settings import Guardrails
from lbd.reason import Reason
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

NONE = {
    "max_unloads_per_hour": 0,
    "max_unloads_per_day": 0,
    "max_unloads_per_broker_per_hour": 0,
}


def cluster(bundles: int = 40, brokers: int = 3) -> Snapshot:
    """All bundles, at most 512, half of namespace t/n and half of t/m, on the first of some brokers."""
    names = [bundle(number // 2, "t/m" if number % 2 else "t/n") for number in range(bundles)]
    reports = {f"b{at}:80": report() for at in range(1, brokers)}
    return snapshot({"b0:80": report(60, {name: stats(1) for name in names}), **reports})


def sent(number: int = 1, minutes_ago: float = 10, namespace: str = "t/n", **changes: Any) -> list[Sent]:
    """Unloads of bundles of one namespace from the first to the second broker, a second apart."""
    ends = {"source": "b0:80", "destination": "b1:80", **changes}
    return [Sent(TAKEN_AT - minutes_ago * 60 + at, bundle(at % 256, namespace), **ends) for at in range(number)]


def unload(number: int = 200, namespace: str = "t/n", source: str = "b0:80", destination: str = "b1:80") -> Unload:
    """What is asked about."""
    return Unload(bundle(number, namespace), source, destination, 1, 1)


FROM, TO = unload(destination="b2:80"), unload(source="b2:80")
"""From the broker that gave, and to the one that took."""


def refused(history: list[Sent], one: Unload | None = None, seen: Snapshot | None = None, **limits: int | None) -> str:
    """Why the unload is refused, after this history; empty when it is not."""
    guardrails = Guardrails.model_validate({**NONE, **limits})
    skip = Budget(seen or cluster(), history, guardrails).refusal(one or unload())
    return f"{skip.reason.label}: {skip.detail}" if skip else ""


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [
        ("max_unloads_per_hour", 5, "unloads-per-hour: 5 of 5 used"),
        ("max_unloads_per_day", 5, "unloads-per-day: 5 of 5 used"),
        ("max_unloads_per_broker_per_hour", 5, "unloads-per-source: 5 of 5 used of b0:80"),
    ],
)
def test_each_limit(limit: str, value: int, reason: str):
    """Refused when it is used up, with what is used, when there will be more, and which setting it is."""
    wait = "50 min" if "hour" in limit else "23 h 50 min"
    assert refused(sent(5), **{limit: value}) == f"{reason}, the next one in {wait} (guardrails.{limit})"
    assert refused(sent(4), **{limit: value}) == ""
    assert refused(sent(500, minutes_ago=10), **{limit: 0}) == ""


@pytest.mark.parametrize(("most", "before", "refuses"), [(1, 0, ""), (1, 1, "1 of 1"), (3, 2, ""), (3, 4, "4 of 3")])
def test_the_hour_of_a_canary(most: int, before: int, refuses: str):
    """Whatever namespace they were of: counted are all, and the canary is the first limit that is named."""
    rails = Guardrails.model_validate({"canary": {"namespaces": ["t/n"], "max_moves_per_hour": most}})
    budget = Budget(cluster(), sent(before, namespace="t/m"), rails)
    skip = budget.refusal(unload())
    told = f"{refuses} used, the next one in 50 min (guardrails.canary.max_moves_per_hour)" if refuses else None
    assert (skip and skip.detail) == told
    assert skip is None or skip.reason is Reason.CANARY_UNLOADS
    assert budget.usage()[0] == Used("canary-per-hour", "", before, most)


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (unload(), "unloads-per-source: 5 of 5 used of b0:80"),
        (unload(source="b2:80"), "unloads-per-destination: 5 of 5 used of b1:80"),
        (unload(destination="b2:80"), "unloads-per-source: 5 of 5 used of b0:80"),
        (unload(source="b2:80", destination="b3:80"), ""),
        (unload(source="b1:80", destination="b0:80"), ""),
    ],
)
def test_each_broker_has_a_budget_for_each_way(one: Unload, reason: str):
    """What came to a broker does not count for what leaves it, nor the other way."""
    assert refused(sent(5), one, max_unloads_per_broker_per_hour=5).partition(",")[0] == reason


@pytest.mark.parametrize(
    ("limit", "minutes_ago", "counts"),
    [
        ("max_unloads_per_hour", 59.9, True),
        ("max_unloads_per_hour", 60, False),
        ("max_unloads_per_hour", -5, True),
        ("max_unloads_per_day", 60 * 24 - 0.1, True),
        ("max_unloads_per_day", 60 * 24, False),
    ],
)
def test_the_window_slides(limit: str, minutes_ago: float, counts: bool):
    """What a clock that was ahead wrote counts, until the window is past it."""
    assert bool(refused(sent(1, minutes_ago), **{limit: 1})) is counts


@pytest.mark.parametrize(
    ("limit", "bundles", "brokers", "one", "most"),
    [
        ("max_unloads_per_hour", 40, 3, unload(), 30),
        ("max_unloads_per_hour", 510, 3, unload(), 102),
        ("max_unloads_per_hour", 40, 10, unload(), 50),
        ("max_unloads_per_day", 40, 3, unload(), 100),
        ("max_unloads_per_day", 510, 3, unload(), 255),
        ("max_unloads_per_day", 40, 10, unload(), 150),
        ("max_unloads_per_broker_per_hour", 12, 3, FROM, 20),
        ("max_unloads_per_broker_per_hour", 510, 3, FROM, 509),
        ("max_unloads_per_broker_per_hour", 40, 3, TO, 20),
        ("max_unloads_per_broker_per_hour", 510, 5, TO, 102),
    ],
)
def test_what_is_not_set_is_relative(limit: str, bundles: int, brokers: int, one: Unload, most: int):
    """A fifth of all bundles an hour, half a day, half of what a source had, an average broker's to a destination."""
    seen = cluster(bundles, brokers)
    assert refused(sent(most - 1), one, seen=seen, **{limit: None}) == ""
    assert refused(sent(most), one, seen=seen, **{limit: None}).startswith("unloads-per-")


def test_what_was_let_through_counts_at_once():
    """And the broker that is used most is told."""
    budget = Budget(cluster(), sent(2), Guardrails(max_unloads_per_hour=3, max_unloads_per_day=0))
    assert budget.refusal(unload()) is None
    budget.take(unload(201, "t/m", destination="b2:80"))
    assert budget.refusal(unload()) is not None
    assert budget.usage() == (
        Used("unloads-per-hour", "", 3, 3),
        Used("unloads-per-day", "", 3, None),
        Used("unloads-per-source", "b0:80", 3, 21),
        Used("unloads-per-destination", "b1:80", 2, 20),
    )
    assert [one.left for one in budget.usage()] == [0, None, 18, 18]


def test_without_history_only_what_is_for_all_is_told():
    """Nothing is used of any broker."""
    assert Budget(cluster(), [], Guardrails()).usage() == (
        Used("unloads-per-hour", "", 0, 30),
        Used("unloads-per-day", "", 0, 100),
    )


def test_a_source_is_free_again_when_it_says_so():
    """What it gave an hour ago is no part of what it had then: more than the oldest move must have grown old."""
    given, rails = sent(44), Guardrails(max_unloads_per_hour=0, max_unloads_per_day=0)
    skip = Budget(cluster(), given, rails).refusal(FROM)
    assert skip is not None
    assert (skip.reason, skip.until) == (Reason.SOURCE_UNLOADS, given[5].at + 3600)
    assert Budget(cluster(), given[5:], rails).refusal(FROM) is not None
    assert Budget(cluster(), given[6:], rails).refusal(FROM) is None


def test_a_lowered_limit_may_be_overdrawn():
    """Nothing is left then, and no negative number; more comes when enough of it is an hour ago."""
    budget = Budget(cluster(), sent(5), Guardrails(max_unloads_per_hour=2))
    skip = budget.refusal(unload())
    assert skip is not None
    assert "5 of 2 used, the next one in 50 min" in skip.detail
    assert budget.usage()[0].left == 0


def test_what_a_person_overrides_is_counted_and_not_refused():
    """Reasons alone are passed, each by name."""
    limits = Guardrails(max_unloads_per_hour=1, max_unloads_per_day=1)
    budget = Budget(cluster(), sent(1), limits, frozenset({Reason.HOUR_UNLOADS}))
    skip = budget.refusal(unload())
    assert skip is not None
    assert skip.reason is Reason.DAY_UNLOADS
    both = Budget(cluster(), sent(1), limits, frozenset({Reason.HOUR_UNLOADS, Reason.DAY_UNLOADS}))
    assert both.refusal(unload()) is None
    both.take(unload())
    assert both.usage()[0] == Used("unloads-per-hour", "", 2, 1)


@pytest.mark.parametrize("order", ["drain", "fill"])
def test_what_drains_and_fills_have_moved_counts_in_no_budget_of_turns(order: str):
    """They have one of their own; or nothing could be balanced for an hour after a broker was emptied."""
    moved = sent(87, order=order)
    assert refused(moved, max_unloads_per_hour=30, max_unloads_per_day=30, max_unloads_per_broker_per_hour=30) == ""
    assert refused([*moved, *sent(30)], max_unloads_per_hour=30).startswith("unloads-per-hour: 30 of 30 used")


def test_the_last_hour_counts_moves_bundles_and_attempts():
    """A retry is another attempt of the same move; a bundle may move twice; what is an hour old is not counted."""
    now = 1e6
    sent = [
        Sent(now - 3600, "t/n/old", "a", "b"),
        Sent(now - 3599, "t/n/1", "a", "b"),
        Sent(now - 3590, "t/n/1", "a", "b", attempt=2),
        Sent(now - 60, "t/n/1", "b", "c"),
        Sent(now - 30, "t/n/2", "a", "b", order="drain"),
    ]
    found = last_hour(sent, now)
    assert found == LastHour(moves=3, bundles=2, attempts=4, ordered=1)
    ordered = "1 of them for drains and fills, which no budget counts"
    assert found.words == f"3 moves of 2 bundles, 4 attempts, {ordered}"
    assert LastHour(1, 1, 1).words == "1 move of 1 bundle, 1 attempt"
    drained = LastHour(37, 37, 37, 27).words
    assert drained == "37 moves of 37 bundles, 37 attempts, 27 of them for drains and fills, which no budget counts"


@pytest.mark.parametrize(
    ("history", "share", "rate", "refusal"),
    [
        ([], 0.1, 60.0, ""),
        (sent(1, msg_rate=20.0), 0.5, 20.0, ""),
        (sent(1, msg_rate=20.0), 0.5, 20.1, "traffic-per-hour: 20 msg/s"),
        (sent(1, msg_rate=20.0, attempt=2), 0.5, 20.1, "traffic-per-hour: 20 msg/s"),
        (sent(1, msg_rate=20.0, throughput=3995.0), 0.5, 1.0, "traffic-per-hour: 1 msg/s"),
        (sent(1, 59.9, msg_rate=41.0), 0.5, 0.1, "traffic-per-hour: 0 msg/s"),
        (sent(1, 60.0, msg_rate=41.0), 0.5, 20.1, ""),
        (sent(1, msg_rate=41.0, order="drain"), 0.5, 20.1, ""),
        (sent(1, msg_rate=41.0), 1.0, 20.1, ""),
    ],
    ids=[
        "the first",
        "within",
        "beyond",
        "a retry counts",
        "bytes",
        "in the hour",
        "past it",
        "a drain's",
        "all of it",
    ],
)
def test_traffic_of_an_hour(history: list[Sent], share: float, rate: float, refusal: str):
    """A share of the 80 msg/s and 8 kB/s that the cluster carries; one bundle may always move."""
    guardrails = Guardrails.model_validate({**NONE, "max_traffic_per_hour": share})
    one = replace(unload(), msg_rate=rate, throughput=rate * 10)
    skip = Budget(cluster(), history, guardrails).refusal(one)
    assert (f"{skip.reason.label}: {skip.detail}" if skip else "").startswith(refusal)
    assert (skip is None) == (refusal == "")
