"""Bundles that would go to and fro."""

from __future__ import annotations

import numpy as np
import pytest

from lbd.model import Unload
from lbd.observe.parse import TOP_BUNDLES_REPORT
from lbd.permit.budget import Sent
from lbd.permit.ping_pong import Trips
from lbd.permit.rules import barred
from lbd.permit.settings import Guardrails
from tests.builders import TAKEN_AT, bundle, case, report, snapshot, stats

HOUR = 3600.0


def trips(*moves: tuple[float, str, str, int], **guardrails: float) -> Trips:
    """What is known of one bundle, each ``(hours ago, source, destination, attempt)``."""
    history = [Sent(TAKEN_AT - ago * HOUR, bundle(1), f"{a}:80", f"{b}:80", attempt) for ago, a, b, attempt in moves]
    return Trips(history, TAKEN_AT, Guardrails.model_validate(guardrails))


def told(found: Trips, destination: str, number: int = 1) -> str:
    """Why the bundle may not go there; empty when it may."""
    refusal = found.refusal(Unload(bundle(number), "x:80", f"{destination}:80", 1, 1))
    return f"{refusal[0].label}: {refusal[1]}" if refusal else ""


def test_never_straight_back():
    """Not to the broker that it came from; on to a third one it may."""
    found = trips((2, "a", "b", 1))
    assert told(found, "a") == "ping-pong: it came from a:80 2 h ago within 1 day (guardrails.ping_pong_window_hours)"
    assert told(found, "c") == told(found, "b") == told(found, "a", number=2) == ""
    assert found.tired == frozenset()


def test_not_often():
    """Two moves within a day are enough, wherever to: it is barred before a strategy is asked."""
    found = trips((5, "a", "b", 1), (2, "b", "c", 1))
    assert told(found, "d").startswith("ping-pong: moved 2 times of 2 (guardrails.max_moves_per_bundle)")
    assert found.tired == {bundle(1)}


@pytest.mark.parametrize(
    ("points", "guardrails", "moves", "rests"),
    [
        ((60, 30), {}, True, True),
        ((60, 30), {}, False, False),
        ((70, 30), {}, True, False),
        ((69.9, 30), {}, True, True),
        ((86, 60), {}, True, False),
        ((60, 30), {"max_moves_per_bundle": 0}, True, False),
        ((60, 30), {"ping_pong_window_hours": 1}, True, False),
    ],
    ids=[
        "lately",
        "never moved",
        "40 points above the least loaded",
        "a little less",
        "overloaded",
        "no limit on moves",
        "long ago",
    ],
)
def test_a_second_move_must_be_urgent(
    points: tuple[float, float], guardrails: dict[str, float], moves: bool, rests: bool
):
    """Off a broker that is overloaded or far above the least loaded one; the other bundles of it may go at any time."""
    found = trips(*([(2, "b", "a", 1)] if moves else []), **guardrails)
    seen = snapshot({"a:80": report(0, {bundle(at): stats(1) for at in (1, 2)}), "b:80": report()})
    both = np.ones(2, dtype=np.bool_)
    assert found.moved(seen, np.array(points), both, both) == (frozenset({bundle(1)}) if rests else frozenset())


@pytest.mark.parametrize(("others", "rests"), [(100, True), (99, False), (0, False)])
def test_where_too_little_else_could_go_it_may(others: float, rests: bool):
    """What levelling takes is never more than half of what a broker carries."""
    own = {bundle(1): stats(100), bundle(2): stats(others)}
    seen, found = snapshot({"a:80": report(0, own), "b:80": report()}), trips((2, "b", "a", 1))
    both = np.ones(2, dtype=np.bool_)
    assert bool(found.moved(seen, np.array([60.0, 30.0]), both, both)) == rests


def test_what_may_not_move_could_not_go_instead():
    """As in a namespace that is excluded: else a broker with much of that would keep its load for a day."""
    seen = snapshot({"a:80": report(0, {bundle(at): stats(100) for at in (1, 2)}), "b:80": report()})
    found, able = trips((2, "b", "a", 1)), np.array([name == bundle(1) for name in seen.bundles])
    assert found.moved(seen, np.array([60.0, 30.0]), np.ones(2, dtype=np.bool_), able) == frozenset()


def test_what_is_not_told_of_cannot_go_instead():
    """Half of what is told of is a quarter of what the broker carries."""
    own, kind = {bundle(at): stats(100) for at in (1, 2)}, {"load_report_type": TOP_BUNDLES_REPORT}
    hot = report(0, own, bundles=[*own, bundle(3)], msg_throughput_in=4e4, msg_throughput_out=4e4, **kind)
    seen, found = snapshot({"a:80": hot, "b:80": report(**kind)}), trips((2, "b", "a", 1))
    able = np.ones(len(seen.bundles), dtype=np.bool_)
    assert not found.moved(seen, np.array([60.0, 30.0]), np.ones(2, dtype=np.bool_), able)


def test_a_broker_that_takes_no_part_is_not_the_least_loaded():
    """One that has just started has 0 points; nothing is urgent because of it."""
    seen = snapshot({"a:80": report(0, {bundle(at): stats(1) for at in (1, 2)}), "b:80": report()})
    found = trips((2, "b", "a", 1))
    assert found.moved(seen, np.array([60.0, 0.0]), np.array([True, False]), np.ones(2, dtype=np.bool_)) == {bundle(1)}


@pytest.mark.parametrize(
    ("moves", "guardrails", "back", "tired"),
    [
        (((25, "a", "b", 1),), {}, False, False),
        (((24, "a", "b", 1),), {}, False, False),
        (((23.9, "a", "b", 1),), {}, True, False),
        (((2, "a", "b", 1), (1.9, "b", "c", 2)), {}, True, False),
        (((5, "a", "b", 1), (2, "b", "c", 1)), {"max_moves_per_bundle": 0}, False, False),
        (((5, "a", "b", 1), (2, "b", "c", 1)), {"max_moves_per_bundle": 3}, False, False),
        (((2, "a", "b", 1),), {"max_moves_per_bundle": 1}, True, True),
        (((2, "a", "b", 1),), {"ping_pong_window_hours": 1}, False, False),
        (((2, "a", "b", 1),), {"ping_pong_window_hours": 0}, False, False),
    ],
    ids=[
        "long ago",
        "just past",
        "just within",
        "a retry is part of its move",
        "as often as it likes",
        "three times",
        "once",
        "a short window",
        "switched off",
    ],
)
def test_the_window_and_the_number_are_settings(
    moves: tuple[tuple[float, str, str, int], ...], guardrails: dict[str, float], back: bool, tired: bool
):
    """Zero switches each of them off."""
    found = trips(*moves, **guardrails)
    assert (bool(told(found, "a")), bool(found.tired)) == (back, tired)


@pytest.mark.parametrize("order", ["drain", "fill"])
def test_what_drains_and_fills_have_moved_may_go_back(order: str):
    """Nobody wavered: a broker that was emptied for its restart is to be filled again."""
    ordered = [
        Sent(TAKEN_AT - ago * HOUR, bundle(1), *ends, order=order)
        for ago, ends in ((3, ("a:80", "b:80")), (2, ("b:80", "c:80")), (1, ("c:80", "a:80")))
    ]
    found = Trips(ordered, TAKEN_AT, Guardrails())
    assert (told(found, "c"), found.tired, found.came_from("c:80")) == ("", frozenset(), frozenset())


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), 1e300])
def test_a_number_that_is_none_frees_no_bundle_that_moved_lately(rate: float):
    """The bundle that has it could not go instead; all others of its broker still can."""
    own = {bundle(at): stats(100) for at in (1, 2)} | {bundle(3): stats(rate)}
    totals = {"msg_throughput_in": 2e4, "msg_throughput_out": 2e4, "load_report_type": TOP_BUNDLES_REPORT}
    seen = snapshot({"a:80": report(0, own, **totals), "b:80": report()})
    found = Trips([Sent(TAKEN_AT - 7200, bundle(1), "b:80", "a:80")], TAKEN_AT, Guardrails())
    able = barred(case(seen)) == 0
    assert found.moved(seen, np.array([60.0, 30.0]), np.ones(2, dtype=np.bool_), able) == frozenset({bundle(1)})
