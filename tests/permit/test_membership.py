"""How long to sit out after brokers came or went."""

from __future__ import annotations

import pytest

from lbd.permit.membership import departures, settled_at

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("went", "wanted_seconds"),
    [((), 30), ((1,), 120), ((1, 2), 240), ((1, 2, 3), 360), (range(5), 600), (range(12), 600)],
    ids=["one came", "one went", "twice", "three times", "five times", "twelve times"],
)
def test_each_departure_within_the_hour_makes_it_longer(went: tuple[float, ...], wanted_seconds: float):
    """Brokers that only come take a part of it: a cluster that grows is balanced at once."""
    assert settled_at(NOW, list(went), 120) == NOW + wanted_seconds


def test_without_settling_there_is_no_wait():
    """A setting of 0 is obeyed, and one that is shorter than what a broker that joined takes."""
    assert settled_at(NOW, [NOW] * 3, 0) == NOW
    assert settled_at(NOW, [], 20) == NOW + 20


@pytest.mark.parametrize(
    ("before", "went", "wanted"),
    [
        ([], False, []),
        ([], True, [NOW]),
        ([NOW - 60], False, [NOW - 60]),
        ([NOW - 3601, NOW - 3599], True, [NOW - 3599, NOW]),
        ([NOW + 10], False, [NOW]),
    ],
    ids=["nobody", "one now", "one before", "one too long ago", "after the clock was set back"],
)
def test_departures_of_the_last_hour(before: list[float], went: bool, wanted: list[float]):
    """Older ones are forgotten, and those to come are of now: a broker that has just gone is not one that joined."""
    assert departures(before, NOW, went=went) == tuple(wanted)
