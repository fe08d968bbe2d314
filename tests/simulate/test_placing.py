"""Where bundles without an owner go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lbd.simulate.world import at_random, least_message_rate
from tests.simulate.worlds import begun, later


def able(*rows: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A row for each bundle, x where it may go."""
    return np.array([[letter == "x" for letter in row] for row in rows])


def test_at_random_every_candidate_is_drawn_about_as_often():
    """And nobody else."""
    drawn = np.bincount(at_random(able(*["x.xx"] * 3000), np.random.default_rng(1)), minlength=4)
    assert drawn[1] == 0
    assert drawn[[0, 2, 3]] == pytest.approx([1000] * 3, rel=0.1)


@pytest.mark.parametrize(
    ("rows", "rates", "carried", "points", "wanted"),
    [
        (["xxx"], [1], [100, 200, 300], [0, 0, 0], [0]),
        (["xxx"], [1], [400, 200, 300], [0, 0, 0], [1]),
        (["xxx"], [1], [100, 200, 300], [90, 0, 0], [1]),
        (["xxx"], [1], [100, 200, 300], [90, 90, 90], [0]),
        ([".xx"], [1], [100, 200, 300], [0, 0, 0], [1]),
        ([".xx"], [1], [100, 200, 300], [0, 90, 0], [2]),
        (["xx", "xx", "xx"], [50, 50, 50], [0, 60], [0, 0], [0, 0, 1]),
    ],
    ids=["least", "least now", "overloaded", "all overloaded", "not allowed", "both", "what it was just given counts"],
)
def test_least_message_rate(
    rows: list[str], rates: list[float], carried: list[float], points: list[float], wanted: list[int]
):
    """As LeastLongTermMessageRate: the least messages among those that are not overloaded."""
    found = least_message_rate(
        able(*rows), np.array(rates, dtype=float), np.array(carried, dtype=float), np.array(points)
    )
    assert found.tolist() == wanted


def test_a_policy_holds_when_a_broker_goes():
    """Bundles of a load that is kept apart go to its own brokers; while none is there, they wait."""
    brokers = [{"id": "a", "crashes_at_minutes": 1}, {"id": "b", "crashes_at_minutes": 4}, {"id": "c"}]
    loads = [
        {"name": "n", "mib_per_second": 60, "bundles": 6, "brokers": ["a"], "isolated_to": ["a", "b"]},
        {"name": "m", "mib_per_second": 6, "bundles": 2},
    ]
    world, state = begun(brokers=brokers, load=loads)
    assert world.allowed.tolist() == [[True, True, False], [False, False, True]]
    state = later(world, state, 180)
    assert state.owner.tolist() == [1] * 6 + [2] * 2
    assert state.owned.all()
    state = later(world, state, 240)
    assert state.owned.tolist() == [False] * 6 + [True] * 2


def test_the_scenario_says_by_which_rule():
    """By message rate a broker that carries more gets none of what is lost."""
    brokers = [{"id": "a", "leaves_at_minutes": 1}, {"id": "b"}, {"id": "c"}]
    loads = [
        {"name": "n", "mib_per_second": 6, "bundles": 6, "brokers": ["a"]},
        {"name": "m", "mib_per_second": 60, "bundles": 2, "brokers": ["b"]},
    ]
    world, state = begun(brokers=brokers, load=loads, placement="least-message-rate")
    assert later(world, state, 120).owner[:6].tolist() == [2] * 6
