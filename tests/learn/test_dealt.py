"""Noise dealt anew: another draw of the same."""

from __future__ import annotations

import numpy as np
import pytest

from lbd.learn.window import AROUND, dealt
from lbd.load.estimate import CPU
from tests.learn.windows import broker, window

LEVEL = np.where(np.arange(200) < 100, 20.0, 60.0)
"""A broker that gets busier in the middle."""


def cpu(noise: np.ndarray, seed: int, every: int = 1) -> np.ndarray:
    """CPU of a broker with so much noise and a sample every so many rounds, dealt."""
    rows = [broker(at, cpu=own if at % every == 0 else None) for at, own in enumerate((LEVEL + noise).tolist())]
    return dealt(window(rows), seed).used[:, 0, CPU]


def drawn() -> np.ndarray:
    return np.random.default_rng(7).normal(0, 2, LEVEL.size)


def test_the_first_is_as_recorded():
    """And others are not, each by itself."""
    first, second, third = (cpu(drawn(), seed) for seed in (0, 1, 2))

    np.testing.assert_array_equal(first, LEVEL + drawn())
    assert (first != second).mean() > 0.9
    assert (second != third).mean() > 0.9


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_level_and_noise_stay(seed: int):
    """What lasts stays where it was, and there is as much noise as before."""
    found = cpu(drawn(), seed) - LEVEL

    assert abs(found.mean()) < 0.5
    assert found.std() == pytest.approx(2, rel=0.25)
    assert np.abs(found[95:105]).max() < 10


def test_a_step_alone_is_not_noise():
    """A move, or a neighbour that comes, is where it was."""
    np.testing.assert_array_equal(cpu(np.zeros(LEVEL.size), 1), LEVEL)


def test_a_sample_stands_until_the_next():
    """Polls in between see the one before."""
    found = cpu(drawn(), 1, every=4).reshape(-1, 4)

    np.testing.assert_array_equal(found, np.repeat(found[:, :1], 4, axis=1))


def test_few_samples_and_unknown_ones_stay():
    """Nothing tells their level; before the first a broker is away."""
    few = window([broker(0, cpu=None), *(broker(at) for at in range(1, 2 * AROUND)), broker(40, "b", cpu=float("nan"))])

    np.testing.assert_array_equal(dealt(few, 1).used, few.used)


def test_usage_stays_within_its_limits():
    """A burst that comes when the broker is busy."""
    burst = np.where(np.arange(LEVEL.size) == 10, 70.0, 0.0)

    assert max(cpu(burst, seed).max() for seed in range(30)) == 100
