"""Replay: each recording begins anew, its header's settings hold, and what was unloaded rests for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lbd.errors import UsageError
from lbd.replay import replay
from lbd.store.recording import Header
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.model import Snapshot

ONE_HIT = {"hit_count_low": 1, "hit_count_high": 1}
BUNDLES = [bundle(number) for number in range(8)]


def hot(number: int, *, brokers: int = 2) -> Snapshot:
    """Round ``number``, a minute after the one before: broker a has eight equal bundles, the others nothing."""
    reports = {"a:80": report(80, {name: stats(1000) for name in BUNDLES})}
    for name in ("b:80", "c:80")[: brokers - 1]:
        reports[name] = report(10)
    return snapshot(reports, TAKEN_AT + 60 * number)


def rounds(header: Header, count: int, *, brokers: int = 2) -> Iterator[tuple[Header, int, Snapshot]]:
    """A recording of equal rounds."""
    return ((header, number, hot(number, brokers=brokers)) for number in range(1, count + 1))


def moved(found: Iterator[tuple[Header, int, Snapshot]], *, stock: bool = True, **settings: Any) -> list[int]:
    """How many unloads each round answers."""
    return [len(one.decision.unloads) for one in replay(found, None, settings, stock=stock)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"hit_count_high": 1}, [4, 4, 0]),
        ({"hit_count_high": 2}, [0, 4, 0]),
        ({}, [0, 4, 0]),
        ({"high_threshold": 99, "low_threshold": 99}, [0, 0, 0]),
    ],
    ids=["one hit", "two hits", "Pulsar's own", "no gap so wide"],
)
def test_the_headers_settings_hold(settings: dict[str, Any], expected: list[int]) -> None:
    """As Pulsar would decide with them; bundles that were unloaded are no candidates for the grace period."""
    assert moved(rounds(Header(settings=settings), 3)) == expected


def test_options_win_over_the_header() -> None:
    """As given on the command line."""
    assert moved(rounds(Header(settings={"hit_count_high": 2}), 1), hit_count_high=1) == [4]


@pytest.mark.parametrize(
    ("grace_s", "expected"),
    [(0, "AAA"), (59, "AAA"), (60, "ABA"), (119, "ABA"), (120, "AB-"), (1800, "AB-")],
)
def test_the_grace_period(grace_s: float, expected: str) -> None:
    """Rounds are a minute apart; a bundle is a candidate again when its unload is longer ago than the grace period."""
    found = replay(rounds(Header(settings=ONE_HIT, grace_s=grace_s), 3), None, {}, stock=True)
    halves = {frozenset(BUNDLES[:4]): "A", frozenset(BUNDLES[4:]): "B", frozenset(): "-"}
    seen = [halves[frozenset(unload.bundle for unload in one.decision.unloads)] for one in found]
    assert "".join(seen) == expected


def test_each_recording_begins_with_an_empty_memory() -> None:
    """One hit in each of two recordings is never two in a row, and nothing rests from the one before."""
    first, second = Header(id="1"), Header(id="2")
    assert moved(iter([*rounds(first, 1), *rounds(second, 1)])) == [0, 0]
    first, second = (Header(id=name, settings=ONE_HIT) for name in "12")
    assert moved(iter([*rounds(first, 1), *rounds(second, 1)])) == [4, 4]


def test_one_broker_asks_nobody() -> None:
    """And counts no hit: the first round with two brokers is the first hit."""
    header = Header()
    found = [*rounds(header, 2, brokers=1), *rounds(header, 2)]
    assert moved(iter(found)) == [0, 0, 0, 4]


def test_the_live_profile_differs_where_it_says() -> None:
    """A sole bundle stays; stock moves it."""
    alone = snapshot({"a:80": report(80, {BUNDLES[0]: stats(3000)}), "b:80": report(10)}, TAKEN_AT)
    header = Header(settings={**ONE_HIT, "max_unload_percentage": 1.0})
    assert moved(iter([(header, 1, alone)]), stock=True) == [1]
    assert moved(iter([(header, 1, alone)]), stock=False) == [0]


def test_rounds_are_named() -> None:
    """By the recording's id and their number."""
    found = replay(rounds(Header(id="monday"), 2), None, {}, stock=True)
    assert [(one.id, one.round) for one in found] == [("monday", 1), ("monday", 2)]


def test_a_header_with_a_setting_that_is_none_is_refused() -> None:
    """As on the command line; both are named."""
    with pytest.raises(UsageError, match="sole_bundle: 'stay': no such key"):
        moved(rounds(Header(settings={"sole_bundle": "stay"}), 1))
    with pytest.raises(UsageError, match="--set: relays: 'make': no such key"):
        moved(rounds(Header(), 1), relays="make")


@pytest.mark.parametrize(
    ("header", "strategy", "words"),
    [
        (Header(strategy="best-shedder", where="r:1"), None, "r:1: strategy 'best-shedder' is not known"),
        (Header(where="r:1"), "nonsense", "strategy 'nonsense' is not known; wanted avg-shedder"),
        (
            Header(settings={"low_threshold": "x"}, where="r:1"),
            None,
            "r:1: low_threshold: 'x': wanted a number",
        ),
        (Header(weights={"disk": 1}, where="r:1"), None, "r:1: disk: 1: no such key"),
    ],
)
def test_a_header_that_cannot_be_followed(header: Header, strategy: str | None, words: str) -> None:
    """Its place is named, and what would be right."""
    with pytest.raises(UsageError, match=words.replace("'", ".")):
        list(replay(rounds(header, 1), strategy, {}, stock=True))
