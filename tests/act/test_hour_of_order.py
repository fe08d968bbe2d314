"""The hour's limit of one drain or fill holds at each sending, beside the limits of its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.model import Unload
from lbd.operations.drain import HourOfOrder
from lbd.permit.budget import Sent
from lbd.reason import Reason
from tests.limits import SameForAll

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = 10_000.0
MOVE = Unload("t/n/0x00000000_0x80000000", "a:80", "b:80", 1.0, 1.0, order="drain")


def sent(order: str = "drain", minutes_ago: float = 1, source: str = "a:80", attempt: int = 1) -> Sent:
    """A request of this order."""
    return Sent(NOW - 60 * minutes_ago, "t/n/x", source, "b:80", attempt, order=order)


@pytest.mark.parametrize(
    ("kind", "history", "refused"),
    [
        ("drain", [], False),
        ("drain", [sent()], False),
        ("drain", [sent(), sent()], True),
        ("drain", [sent(), sent(attempt=2)], True),
        ("drain", [sent(), sent(minutes_ago=60)], False),
        ("drain", [sent(), sent("fill")], False),
        ("drain", [sent(), sent("")], False),
        ("drain", [sent(), sent(source="c:80")], False),
    ],
    ids=["none", "one of two", "two", "a retry counts", "past the hour", "a fill's", "a turn's", "another broker's"],
)
def test_two_in_an_hour(kind: str, history: Sequence[Sent], refused: bool) -> None:
    """What was planned may be beyond it by the time it is sent."""
    hour = HourOfOrder(SameForAll(), kind, "a:80", 2)
    skip = hour.sending_refusal(MOVE, history, NOW)
    assert (skip is not None) == refused
    if skip is not None:
        assert (skip.reason, skip.detail.partition(";")[0]) == (Reason.SOURCE_UNLOADS, "2 of 2 used within the hour")
