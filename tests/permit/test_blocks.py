"""What keeps a source from giving anything, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.model import Hits, Pair
from lbd.permit.blocks import block
from lbd.permit.budget import Budget, Sent
from lbd.permit.settings import Guardrails
from lbd.reason import Reason
from tests.builders import TAKEN_AT, bundle, permission, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Mapping

SEEN = snapshot({"a:80": report(80, {bundle(n): stats(0 if n == 3 else 10) for n in range(4)}), "b:80": report(10)})
PAIR = Pair("a:80", "b:80", 70.0, Hits())
REST = "bundles with traffic may not move, the first one may in 18 min (guardrails.cool_down_minutes)"


def told(barred: Mapping[int, Reason], sent: int = 0, pair: Pair = PAIR, **guardrails: object) -> str:
    """Why the pair can move nothing; each barred bundle was attempted its number of minutes plus ten ago."""
    rails = Guardrails.model_validate(guardrails)
    history = [Sent(TAKEN_AT - 600, bundle(9), "c:80", "b:80") for _ in range(sent)]
    codes = permission(SEEN, barred={bundle(n): reason for n, reason in barred.items()}).barred
    since = {bundle(n): TAKEN_AT - 60 * (10 + n) for n in barred}
    skip = block(pair, SEEN, codes, Budget(SEEN, history, rails), since, rails)
    return f"{skip.what}: {skip.reason.label}: {skip.detail}" if skip is not None else ""


@pytest.mark.parametrize(
    ("barred", "wanted"),
    [
        ({}, ""),
        ({0: Reason.COOL_DOWN, 1: Reason.COOL_DOWN}, ""),
        (dict.fromkeys(range(3), Reason.EXCLUDED_NAMESPACE), ""),
        (dict.fromkeys(range(3), Reason.COOL_DOWN),
         f"cool-down: 3 of 3 {REST}"),
        ({0: Reason.EXCLUDED_NAMESPACE, 1: Reason.COOL_DOWN, 2: Reason.COOL_DOWN},
         f"cool-down: 2 of 3 {REST}"),
        (dict.fromkeys(range(3), Reason.PING_PONG),
         "ping-pong: 3 of 3 bundles with traffic may not move (guardrails.max_moves_per_bundle)"),
        ({0: Reason.COOL_DOWN, 1: Reason.CANARY, 2: Reason.CANARY},
         "canary: 2 of 3 bundles with traffic may not move until guardrails.canary is widened"),
        ({0: Reason.CANARY, 1: Reason.CANARY}, ""),
    ],
    ids=["none", "some", "for good", "all rest", "what is left rests", "moved too often", "canary", "in the canary"],
)  # fmt: skip
def test_bundles_that_rest(barred: Mapping[int, Reason], wanted: str):
    """A bundle without traffic could not help; one that a policy bars never lets go."""
    assert told(barred) == (f"a:80 -> b:80: {wanted}" if wanted else "")


def test_a_budget_that_is_used_up():
    """Of all, or of the pair's destination where the strategy moves to that one alone."""
    used = "used, the next one in 50 min (guardrails.max_unloads_per"
    assert told({}, sent=4) == ""
    assert told({}, sent=4, max_unloads_per_hour=3) == f"a:80 -> b:80: unloads-per-hour: 4 of 3 {used}_hour)"
    each = {"sent": 4, "max_unloads_per_broker_per_hour": 3}
    assert "unloads-per-destination: 4 of 3 used of b:80, the next one in 50 min" in told({}, **each)
    assert told({}, pair=Pair("a:80", "b:80", 70.0, Hits(), why="a:80 is too high"), **each) == ""
