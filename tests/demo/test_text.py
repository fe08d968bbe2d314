"""What the demo says in the end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lbd.cli.demo_picture import NEXT, card, serving
from lbd.cli.status_text import fitted
from lbd.config import ApiSettings

END = SimpleNamespace(gap_points=1.0, std_points=1.0, max_over_mean=1.0)


@pytest.mark.parametrize(("balanced", "told"), [(None, "not in the 60 s of"), (0.5, "after 30 s of the 60 s of")])
def test_a_single_minute(balanced: float | None, told: str):
    """Is not told in the plural."""
    found: Any = SimpleNamespace(hours=1 / 60, rounds=1, moves=1, traffic_moved=0.1, bundles_moved_twice=0)
    found.first = found.last = END
    found.fewest_moves_as_even, found.minutes_to_balance = None, balanced
    lines: Any = card(found, None)
    assert str(lines.renderables[-1]) == f"balanced: {told} the cluster's time"


def test_the_two_gaps_are_told_apart():
    """The true one, and that of the reports by which lbd decides."""
    found: Any = SimpleNamespace(hours=1.0, rounds=1, moves=1, traffic_moved=0.1, bundles_moved_twice=0)
    found.first = found.last = END
    found.fewest_moves_as_even, found.minutes_to_balance = None, None
    lines: Any = card(found, (55.1, 9.8))
    words = "by load reports 55.1 and 9.8 points apart: their CPU is a noisy sample of the last minute"
    assert words in [str(line) for line in lines.renderables]
    without: Any = card(found, None)
    assert len(without.renderables) == len(lines.renderables) - 1


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize(
    "text",
    [NEXT, serving("http://127.0.0.1:28079", "/tmp/lbd-demo-x/state", "http://127.0.0.1:8085", ApiSettings())],
    ids=["what next", "what goes on"],
)
def test_the_last_lines_are_folded_between_words(text: str, width: int):
    """A terminal would break them inside a word; what is typed stays whole."""
    lines = fitted(text, width).split("\n")
    assert [line for line in lines if len(line) > width and len(line.split()) > 2] == []
    assert " ".join(lines).split() == text.split()
    for command in ("lbd demo --serve", "lbd dry-run --admin-url URL") if text == NEXT else ("state/lbd.log",):
        assert any(command in line for line in lines)
