"""Brokers that have just started and carry next to nothing, and what a plan brings them at first."""

from __future__ import annotations

import pytest

from lbd.model import Unload
from lbd.permit.cold import cold_brokers, one_bundle_each
from lbd.reason import Reason
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

BUSY = {bundle(number): stats(100) for number in range(10)}


@pytest.mark.parametrize(
    ("age_seconds", "bundles", "is_cold"),
    [(60, 0, True), (899, 0, True), (900, 0, False), (60, 1, True), (60, 2, False), (-60, 0, True)],
    ids=["empty", "a quarter of an hour ago", "longer ago", "next to nothing", "something", "clocks differ"],
)
def test_a_broker_that_started_lately_and_carries_next_to_nothing_is_cold(
    age_seconds: float, bundles: int, *, is_cold: bool
):
    """The three brokers carry 20 equal bundles and these; a tenth of the average is two thirds of one, or more."""
    own = {bundle(20 + number): stats(60) for number in range(bundles)}
    reports = {
        "a:80": report(50, BUSY),
        "b:80": report(50, {bundle(10 + number): stats(100) for number in range(10)}),
        "new:80": report(5, own, start_timestamp=(TAKEN_AT - age_seconds) * 1000),
    }
    assert cold_brokers(snapshot(reports)) == (frozenset({"new:80"}) if is_cold else frozenset())


def move(number: int, source: str, destination: str | None) -> Unload:
    """One bundle of the plan."""
    return Unload(bundle(number), source, destination, 100.0, 1000.0)


def test_a_cold_broker_gets_one_bundle_at_first():
    """Whatever broker it comes from; others get what was planned, and so do moves without a destination."""
    plan = (
        move(1, "a:80", "warm:80"),
        move(2, "a:80", "cold:80"),
        move(3, "b:80", "cold:80"),
        move(4, "b:80", "warm:80"),
        move(5, "b:80", "other:80"),
        move(6, "a:80", None),
        move(7, "b:80", "other:80"),
    )
    now, later = one_bundle_each(plan, {"cold:80", "other:80"})
    assert now == (plan[0], plan[1], plan[3], plan[4], plan[5])
    assert [(skip.what, skip.reason) for skip in later] == [
        (bundle(3), Reason.TURN_UNLOADS),
        (bundle(7), Reason.TURN_UNLOADS),
    ]
    assert one_bundle_each(plan, frozenset()) == (plan, ())
