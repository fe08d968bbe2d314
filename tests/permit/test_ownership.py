"""Which bundles changed hands between two rounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from lbd.permit.evidence import AWAY_SECONDS, compare_owners, unexplained
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

if TYPE_CHECKING:
    from lbd.observe.parse import LoadReport

Owned = dict[str, list[int]]


def changes(*rounds: Owned | tuple[float, Owned]) -> list[list[int]]:
    """Numbers of the bundles that changed hands in each round; rounds are a minute apart unless said."""
    names, found, owners, now = {bundle(number): number for number in range(10)}, [], None, TAKEN_AT
    for one in rounds:
        later, owned = one if isinstance(one, tuple) else (60.0, one)
        now += later
        reports = {f"{who}:80": report(50, {bundle(n): stats(1) for n in numbers}) for who, numbers in owned.items()}
        owners, changed = compare_owners(owners, snapshot(reports, now))
        found.append(sorted(names[name] for name in changed))
    return found


@pytest.mark.parametrize(
    ("rounds", "changed"),
    [
        (({"a": [1, 2], "b": [3]},), [[]]),
        (({"a": [1, 2], "b": [3]}, {"a": [2, 1], "b": [3]}), [[], []]),
        (({"a": [1, 2], "b": [3]}, {"a": [1], "b": [2, 3]}), [[], [2]]),
        (({"a": [1, 2], "b": [3]}, {"a": [1], "b": [2, 3]}, {"a": [1], "b": [2, 3]}), [[], [2], []]),
        (({"a": [1], "b": []}, {"a": [1], "b": [5]}), [[], []]),
        (({"a": [1, 2], "b": []}, {"a": [1], "b": []}, {"a": [1], "b": [2]}), [[], [], [2]]),
        (({"a": [1, 2], "b": []}, {"a": [1], "b": []}, {"a": [1, 2], "b": []}), [[], [], []]),
        (({"a": [1, 2], "b": [3]}, {"b": [3]}, {"a": [1, 2], "b": [3]}), [[], [], []]),
        (({"a": [1, 2], "b": [3]}, {"b": [3]}, {"b": [1, 3]}), [[], [], [1]]),
        (({"a": [1, 2], "b": [3]}, {"b": [1, 2, 3]}), [[], [1, 2]]),
        (({"b": [1, 2], "c": [3]}, {"a": [], "b": [1, 2], "c": [3]}, {"a": [1], "b": [2], "c": [3]}), [[], [], [1]]),
        (({"a": [1], "b": []}, {"a": [1], "b": [1]}, {"a": [], "b": [1]}), [[], [], [1]]),
        (({"a": [], "b": [1]}, {"a": [1], "b": [1]}, {"a": [1], "b": []}), [[], [], [1]]),
        (({"a": [], "b": [1]}, {"a": [1], "b": [1]}, {"a": [], "b": [1]}), [[], [], []]),
        (({}, {"a": [1]}, {}, {"b": [1]}), [[], [], [], [1]]),
        (({"a": [1], "b": []}, {"a": [], "b": []}, (AWAY_SECONDS + 1, {"a": [], "b": [1]})), [[], [], []]),
    ],
    ids=[
        "the first look",
        "another order",
        "moved",
        "told once",
        "never seen before",
        "on no report for a while, then elsewhere",
        "on no report for a while, then back",
        "a report that was missing for a while",
        "a broker that died, one by one",
        "a broker that died, at once",
        "a broker that joined",
        "on two reports on its way",
        "on two reports on its way, the other way round",
        "on two reports, and back",
        "a cluster without reports",
        "on no report for too long to be a move",
    ],
)
def test_who_changed_hands(rounds: tuple[Owned, ...], changed: list[list[int]]):
    """Once for each change, and never for a report that was only missing."""
    assert changes(*rounds) == changed


@pytest.mark.parametrize(
    ("started", "now", "hands"),
    [
        ({}, {"a": [1], "b": [2]}, {}),
        ({}, {"a": [], "b": [1, 2]}, {1: ("a:80", "b:80")}),
        ({"a": TAKEN_AT - 1}, {"a": [], "b": [1, 2]}, {1: ("a:80", "b:80")}),
        ({"a": TAKEN_AT + 1}, {"a": [], "b": [1, 2]}, {}),
        ({"b": TAKEN_AT + 1}, {"a": [], "b": [1, 2]}, {1: ("a:80", "b:80")}),
        ({}, {"b": [1, 2]}, {}),
        ({}, {"a": [1, 3], "b": [2]}, {}),
    ],
    ids=[
        "as before",
        "moved, and nobody tells when its broker started",
        "moved from a broker that has run on",
        "its broker has started since",
        "only its present broker has started since",
        "its broker is gone",
        "a new bundle",
    ],
)
def test_what_no_restart_explains(started: dict[str, float], now: Owned, hands: dict[int, tuple[str, str]]):
    """Of a bundle whose former owner runs on somebody has decided that it moves."""
    names = {number: bundle(number) for number in range(10)}
    before, _ = compare_owners(None, snapshot(reports_of({"a": [1], "b": [2]}, {}), TAKEN_AT))
    later = snapshot(reports_of(now, started), TAKEN_AT + 600)
    assert unexplained(before, *compare_owners(before, later), later) == {
        names[number]: pair for number, pair in hands.items()
    }


def reports_of(owned: Owned, started: dict[str, float]) -> dict[str, LoadReport]:
    """A report of each broker, with its start in epoch seconds where it is known."""
    return {
        f"{who}:80": report(
            50, {bundle(number): stats(1) for number in numbers}, start_timestamp=started.get(who, math.nan) * 1000
        )
        for who, numbers in owned.items()
    }
