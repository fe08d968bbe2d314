"""What a broker usually uses: samples that tell the same, back to the last change of its bundles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lbd.load.samples import Gathering, usual
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

A = "a:80"


def of(*cpus: float) -> tuple[float, int]:
    """Mean CPU of samples, the newest first, and how many of them count."""
    used, number = usual([np.array([cpu, 30.0, np.nan, 5.0, 5.0]) for cpu in cpus])
    return float(used[0]), number


@pytest.mark.parametrize(
    ("newest_first", "wanted"),
    [((50,), (50, 1)), ((50, 52, 51), (51, 3)), ((70, 69, 50, 51), (69.5, 2)), ((70, 50, 70), (70, 1))],
    ids=["one", "all tell the same", "load rose two samples ago", "what came before a dip is past"],
)
def test_samples_count_up_to_the_first_that_tells_another_load(
    newest_first: tuple[float, ...], wanted: tuple[float, int]
):
    """A resource without a limit, NaN, decides nothing."""
    assert of(*newest_first) == wanted


def test_memory_is_no_sample():
    """A heap fills and is emptied every few seconds: it does not tell that the load is another one."""
    used, number = usual([np.array([50.0, memory, 30.0, 5.0, 5.0]) for memory in (20.0, 60.0, 40.0)])
    assert number == 3
    assert np.array_equal(used, [50.0, np.nan, np.nan, 5.0, 5.0], equal_nan=True)


def test_of_no_sample_nothing_is_usual():
    """Nor is it 0."""
    used, number = usual([])
    assert number == 0
    assert np.isnan(used).all()


def lately(*rounds: tuple[float, int], most: int = 5, seconds: float = 600.0) -> list[float]:
    """Of minutes with CPU and a number of bundles: the CPU of the samples that a look after the last one takes."""
    gathering = Gathering()
    for minute, (cpu, bundles) in enumerate(rounds):
        own = {bundle(at): stats(100) for at in range(bundles)}
        gathering.take(snapshot({A: report(cpu, own)}, TAKEN_AT + 60 * minute))
    since = TAKEN_AT + 60 * (len(rounds) - 1) - seconds
    return [round(float(one[0]), 3) for one in gathering.latest(A, most, since)]


@pytest.mark.parametrize(
    ("rounds", "limits", "wanted"),
    [
        ([(10, 2), (11, 2), (12, 2)], {}, [12, 11, 10]),
        ([(10, 2), (11, 2), (12, 2)], {"most": 2}, [12, 11]),
        ([(10, 2), (11, 2), (12, 2)], {"seconds": 60.0}, [12, 11]),
        ([(10, 2), (11, 2), (20, 3), (21, 3), (22, 3), (23, 3)], {}, [23, 22]),
        ([(10, 2), (11, 2), (20, 3)], {}, []),
    ],
    ids=["the newest with the others", "so many", "none that is old", "none of before a move", "a move just now"],
)
def test_the_newest_samples_of_the_same_bundles(
    rounds: list[tuple[float, int]], limits: dict[str, Any], wanted: list[float]
):
    """The first two samples after a move may hold what was before it."""
    assert lately(*rounds, **limits) == wanted


def test_of_a_broker_that_was_never_seen_there_is_none():
    """Nobody asked it yet."""
    assert Gathering().latest(A, 5, 0.0) == []
