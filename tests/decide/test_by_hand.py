"""One wished unload: planned from the bundle's owner, or skipped with the reason that any other turn would give."""

from __future__ import annotations

from typing import Any

import pytest

from lbd.decide.manual import ByHand
from lbd.load.scoring import Weights
from lbd.model import Memory, Unload
from lbd.reason import Reason
from tests.builders import first_averages, permission, report, snapshot, stats

A, B = "a:80", "b:80"
WANTED, OTHER = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"


def decided(bundle: str = WANTED, destination: str = B, **changes: Any) -> Any:
    """What the wish comes to on two brokers of which the first owns both bundles."""
    seen = snapshot({A: report(80, {WANTED: stats(100), OTHER: stats(50)}), B: report(10)})
    wish = ByHand(bundle, destination, Weights(), "by hand, ann")
    return wish(seen, first_averages(seen), permission(seen, **changes), Memory({}))


def test_it_is_planned_with_its_traffic():
    """Source, rates and reason are filled in; the memory stays as it was."""
    found = decided()
    assert [(one.bundle, one.source, one.destination, one.reason) for one in found.unloads] == [
        (WANTED, A, B, "by hand, ann")
    ]
    assert isinstance(found.unloads[0], Unload)
    assert (found.unloads[0].msg_rate, found.unloads[0].throughput) == (200.0, 20_000.0)
    assert (found.skips, found.memory) == ((), Memory({}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hold": Reason.PAUSED}, Reason.PAUSED),
        ({"barred": {WANTED: Reason.COOL_DOWN}}, Reason.COOL_DOWN),
        ({"barred": {WANTED: Reason.ISOLATION_POLICY}}, Reason.ISOLATION_POLICY),
        ({"bundle": "t/n/0x00000000_0x00000001"}, Reason.ON_NO_REPORT),
        ({"destination": A}, Reason.DESTINATION_FORBIDDEN),
    ],
)
def test_it_is_skipped_with_a_reason(changes: dict[str, Any], reason: Reason):
    """Nothing is planned."""
    found = decided(**changes)
    assert found.unloads == ()
    assert [skip.reason for skip in found.skips] == [reason]


def test_a_rest_is_told_in_minutes():
    """Whoever asks for the move learns when it may be made."""
    seen = snapshot({A: report(80, {WANTED: stats(100)}), B: report(10)})
    wish = ByHand(WANTED, B, Weights(), "by hand", tried_at=seen.taken_at - 480, rests_minutes=30)
    found = wish(seen, first_averages(seen), permission(seen, barred={WANTED: Reason.COOL_DOWN}), Memory({}))
    told = "it was moved, or tried, 8 min ago, and rests for 30 min (guardrails.cool_down_minutes); --override REASON "
    assert found.skips[0].detail == f"{told}passes this"


def test_another_bundles_bar_is_none_of_its_business():
    """Only the one that is wished for counts."""
    assert decided(barred={OTHER: Reason.COOL_DOWN}).unloads != ()


def test_two_brokers_that_report_it_are_named():
    """Who is on call asks these two."""
    seen = snapshot({A: report(80, {WANTED: stats(100)}), B: report(10, {WANTED: stats(100)})})
    barred = permission(seen, barred={WANTED: Reason.REPORTED_TWICE})
    found = ByHand(WANTED, B, Weights(), "by hand")(seen, first_averages(seen), barred, Memory({}))
    assert found.skips[0].detail.startswith("by a:80 and b:80")
