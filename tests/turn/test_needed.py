"""How many moves any plan needs that gets the brokers as low as the one that was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.model import Unload
from lbd.observe.parse import TOP_BUNDLES_REPORT
from lbd.turn.parts import TurnResult
from lbd.turn.record import fewest
from tests.builders import bundle, report, stats
from tests.turn.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence


def turned(moved: Sequence[int], expected: float) -> TurnResult:
    """A broker at 80 points with bundles of 40, 20, 10, 5 and 5 of them, and a cold one that some of them go to."""
    sizes = dict(enumerate((40.0, 20.0, 10.0, 5.0, 5.0)))
    hot = report(80, {bundle(number): stats(size) for number, size in sizes.items()})
    return record(
        {"a:80": hot, "b:80": report(10, {bundle(9): stats(1)})},
        unloads=tuple(Unload(bundle(number), "a:80", "b:80", 0, 0) for number in moved),
        expected={"a:80": 0.0, "b:80": expected},
    )


@pytest.mark.parametrize(
    ("moved", "expected", "needed"),
    [
        ((), 10.0, 0),
        ((0,), 50.0, 1),  # 40 are left, and the cold one has 50 by then
        ((1, 2), 40.0, 1),  # 50 are left; the bundle of 40 would do alone
        ((1, 2, 3, 4), 50.0, 1),
        ((0, 1, 2, 3), 30.0, 2),  # the cold one has 30 by then: without 40 and 20 there are 20 left
        ((4,), 90.0, 0),  # as high as before, on the other one
    ],
)
def test_the_fewest_that_would_do(moved: tuple[int, ...], expected: float, needed: int):
    """From the largest down until no broker is above the plan's peak; never more than the plan has."""
    found = fewest(turned(moved, expected))
    assert found == needed <= max(len(moved), 1)


def test_what_is_not_told_of_weighs_what_is_left():
    """Half of the traffic is of bundles that are not told of: without the others 40 points stay."""
    kind = {"load_report_type": TOP_BUNDLES_REPORT}
    told = {bundle(number): stats(size) for number, size in enumerate((20.0, 10.0, 10.0))}
    totals = {"msg_throughput_in": 8000.0, "msg_throughput_out": 8000.0}
    hot = report(80, told, bundles=[*told, bundle(7)], **kind, **totals)
    found = record(
        {"a:80": hot, "b:80": report(10, {bundle(9): stats(1)}, **kind)},
        unloads=tuple(Unload(bundle(number), "a:80", "b:80", 0, 0) for number in range(3)),
        expected={"a:80": 40.0, "b:80": 30.0},
    )
    assert fewest(found) == 3


def test_a_turn_that_saw_nothing_needs_nothing():
    """And counts nothing."""
    assert fewest(TurnResult()) == 0
