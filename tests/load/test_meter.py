"""What a broker carried while it sampled its CPU."""

from __future__ import annotations

import numpy as np
import pytest

from lbd.load.samples import TrafficMeter


def followed(*rounds: tuple[float, float]) -> TrafficMeter:
    """A meter after rounds, each ``(second, rate)``."""
    meter = TrafficMeter()
    for at, rate in rounds:
        meter.take(at, np.full(4, rate))
    return meter


@pytest.mark.parametrize(
    ("rounds", "begin", "end", "rate"),
    [
        ([(0, 10), (60, 20), (120, 40)], 30, 90, 40),
        ([(0, 10), (60, 20), (120, 40)], -30, 30, 20),
        ([(0, 10), (60, 20), (120, 40)], 0, 60, 30),
        ([(0, 10), (15, 20), (30, 20), (45, 20), (60, 20), (75, 40)], 15, 67.5, 40),
        ([(0, 10), (60, 10), (120, 10)], 30, 90, 10),
    ],
    ids=["one count", "the count before", "half of two", "counted once a minute, asked oftener", "always the same"],
)
def test_the_mean_over_a_span(rounds: list[tuple[float, float]], begin: float, end: float, rate: float):
    """Each count holds for the time before it, as far as nobody can tell better half of the time between rounds."""
    found = followed(*rounds).mean(begin, end)

    assert found is not None
    assert found == pytest.approx(np.full(4, rate))


def test_what_has_not_been_counted_yet_is_not_guessed():
    """Rates of the time until 70 come with the next count."""
    meter = followed((0, 10), (15, 20), (30, 20))

    assert meter.mean(0, 30) is None
    assert TrafficMeter().mean(0, 1) is None
