"""A destination that levelling would make a source is filled to the average of all, and no other one is.

A source gives a broker that has joined what brings it to the average.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.decide.whole_plan import portion, to_average

APART = 15.0


def lifted(cold: float, hot: float, scores: list[float]) -> float:
    """Points of the destination of a levelled pair afterwards."""
    rise = (hot - cold) / 2
    return cold + rise * portion(cold, rise, scores, APART)


@pytest.mark.parametrize(
    ("scores", "cold", "hot", "after"),
    [
        ([20.0, 80.0], 20.0, 80.0, 50.0),
        ([20.0, 51.0, 52.0, 80.0, 80.0, 80.0], 20.0, 80.0, 50.0),
        ([20.0, 51.0, 52.0, 80.0, 80.0, 80.0], 51.0, 80.0, 65.5),
        ([27.0, 27.0, 57.0], 27.0, 57.0, 37.0),
        ([10.0] * 9 + [90.0], 10.0, 90.0, 18.0),
        ([10.0, 50.0, 51.0, 52.0, 90.0], 50.0, 90.0, 50.6),
    ],
)
def test_where_a_destination_ends(scores: list[float], cold: float, hot: float, after: float) -> None:
    """PIP-364's pairs are levelled as ever; on three brokers, or among many cold ones, none is made hot."""
    assert lifted(cold, hot, scores) == pytest.approx(after)


SCORES = st.lists(st.integers(0, 100_000), min_size=2, max_size=12, unique=True)
"""Thousandths of a point: half of the smallest number there is would lift nobody."""


@given(SCORES.map(lambda found: sorted(one / 1000 for one in found)))
def test_never_more_than_half_and_never_a_source_above_the_average(scores: list[float]) -> None:
    """Above the average nothing ends that stands 15 points above the next colder broker, unless it began there."""
    average = sum(scores) / len(scores)
    for cold, hot in zip(scores[: len(scores) // 2], reversed(scores), strict=False):
        after = lifted(cold, hot, scores)
        assert cold < after <= (cold + hot) / 2 + 1e-9
        following = next((warmer for colder, warmer in pairwise(scores) if colder == cold), hot)
        assert after <= average + 1e-9 or after - following < APART or cold >= average


@pytest.mark.parametrize(
    ("hot", "scores", "after"),
    [
        (60.0, [0.0, 60.0, 60.0, 60.0, 60.0], 48.0),
        (60.0, [0.0, 60.0], 30.0),
        (50.0, [0.0, 50.0, 90.0, 90.0], 25.0),
    ],
)
def test_where_a_source_ends_that_gives_a_broker_that_joined(hot: float, scores: list[float], after: float) -> None:
    """At the average of all, unless half of the difference is less; one below the average levels its pair as ever."""
    rise = (hot - scores[0]) / 2
    assert hot - rise * to_average(hot, rise, scores) == pytest.approx(after)
