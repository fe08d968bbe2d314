"""What is claimed of the next week holds as often as it says, and little is claimed out of little."""

from __future__ import annotations

import numpy as np
import pytest

from lbd.learn.prediction import DAYS_AHEAD, days_that_may_differ, effect, independent_days

WORLDS = 200


def days(random: np.random.Generator, number: int, alike: float) -> np.ndarray:
    """Differences of so many days, each like the one before to this degree."""
    values = random.standard_normal(number)
    for day in range(1, number):
        values[day] = alike * values[day - 1] + (1 - alike**2) ** 0.5 * values[day]
    return 2.0 + values


@pytest.mark.parametrize(
    ("seen", "alike", "least"),
    [(6, 0.0, 0.85), (6, 0.4, 0.75), (20, 0.0, 0.85), (20, 0.4, 0.85)],
    ids=["a week", "a week of days alike", "three weeks", "three weeks of days alike"],
)
def test_the_next_week_is_within_its_interval(seen: int, alike: float, least: float):
    """Of so many worlds, and not in all: an interval that always holds says nothing."""
    held = 0
    for world in range(WORLDS):
        values = days(np.random.default_rng(world), seen + DAYS_AHEAD, alike)
        found = effect(values[None, :seen])
        held += found.low <= values[seen:].mean() <= found.high

    assert least <= held / WORLDS <= 0.97


def test_days_alike_say_less_than_as_many_independent_ones():
    """Half a dozen days of a trend are one or two."""
    assert independent_days(np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])) == 6
    assert independent_days(np.arange(6.0)) < 3


@pytest.mark.parametrize(
    ("differences", "ends"),
    [([], (-np.inf, np.inf)), ([3.0], (-np.inf, np.inf)), ([3.0] * 6, (3.0, 3.0)), ([0.0] * 6, (-np.inf, np.inf))],
    ids=["nothing", "a day", "every day the same", "no difference on any day"],
)
def test_ends_of_the_interval(differences: list[float], ends: tuple[float, float]):
    """A day alone says nothing of another, and days without a difference do not say how large one would be."""
    found = effect(np.array([differences]))

    assert (found.low, found.high) == ends


def test_the_same_days_have_the_same_interval():
    """It is drawn with a fixed seed."""
    differences = np.array([[1.0, 4.0, 2.0, 0.0, 3.0, 2.5]])

    assert effect(differences) == effect(differences)


@pytest.mark.parametrize(("days", "may"), [(1, 7), (3, 7), (4, 6), (6, 4), (21, 1), (90, 1)])
def test_the_rule_of_three(days: int, may: int):
    """Days that did not differ leave room for some that do, and never for none."""
    assert days_that_may_differ(days) == may


@pytest.mark.parametrize("chance", [0.0, 1.0, 3.0])
def test_the_next_week_has_the_chance_of_one_deal(chance: float):
    """Means over five deals hide most of what one replay of a day differs by."""
    held, worlds = 0, 100
    for world in range(worlds):
        random = np.random.default_rng(world)
        deals = days(random, 20, 0.0) + chance * random.standard_normal((5, 20))
        found = effect(deals)
        week = days(random, DAYS_AHEAD, 0.0) + chance * random.standard_normal(DAYS_AHEAD)
        held += found.low <= week.mean() <= found.high

    assert held / worlds >= 0.83
