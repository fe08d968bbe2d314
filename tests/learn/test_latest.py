"""What brokers of a replay usually use: what a live turn takes of its own rounds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from lbd.learn.replay import Latest, ReplayCluster, recorded
from lbd.load.estimate import CPU, fixed_model
from lbd.load.samples import MOST_SAMPLES, MOST_SECONDS, Gathering, usual
from tests.learn.windows import BEGUN, broker, bundle, minute, window

STARTED = BEGUN - timedelta(days=1)
HELD = [bundle(0), bundle(0, "t/n/2")]


def samples(*cpus: float | None, **other: Any) -> list[dict[str, Any]]:
    """A broker's CPU minute by minute; None where there was no new sample."""
    return [broker(at, cpu=cpu, **{"started_at": STARTED, **other}) for at, cpu in enumerate(cpus)]


def lately(rows: list[dict[str, Any]], bundles: list[dict[str, Any]]) -> tuple[float, float]:
    """Mean CPU of the broker after the last round, and of how many samples; where nothing but the record moves any."""
    found = window(rows, bundles)
    size = len(found.brokers)
    cluster, latest = ReplayCluster(found, fixed_model(found.brokers, np.zeros(size), np.zeros(size))), Latest(found)
    for number in range(found.at.size):
        cluster.follow(number)
        latest.take(number, cluster.owner, cluster.rates, cluster.used)
    used, number_of = latest.usual(found.at.size - 1)
    return float(used[0, CPU]), float(number_of[0])


def live(rows: list[dict[str, Any]], bundles: list[dict[str, Any]]) -> tuple[float, float]:
    """The same by what a live turn gathers."""
    found, gathering = list(recorded([window(rows, bundles)])), Gathering()
    for seen in found:
        gathering.take(seen)
    newest = gathering.latest("a", MOST_SAMPLES, found[-1].taken_at - MOST_SECONDS)
    used, number = usual(newest)
    return float(used[CPU]), number


GONE = bundle(3, "t/n/2", "b")
HISTORIES = {
    "all tell the same": (samples(50, 51, 52), HELD, (51, 3)),
    "at most five": (samples(50, 51, 52, 51, 50, 51, 52), HELD, (51.2, 5)),
    "load rose": (samples(50, 51, 70, 71), HELD, (70.5, 2)),
    "rounds without a new one": (samples(50, None, None, 52, None), HELD, (51, 2)),
    "older than ten minutes": (samples(50, *[None] * 11, 52), HELD, (52, 1)),
    "a bundle left just now": (samples(50, 51, 52, 49), [*HELD, GONE], (np.nan, 0)),
    "a bundle left two samples ago": (samples(50, 51, 52, 49, 48, 47), [*HELD, GONE], (47, 1)),
    "one that hardly carries anything left": (
        samples(50, 51, 52, 49), [bundle(0), bundle(0, "t/n/2", rate=0.1), bundle(3, "t/n/2", "b", 0.1)], (50.5, 4)
    ),
    "just started": (samples(50, 51, started_at=BEGUN), HELD, (np.nan, 0)),
    "started anew": (
        [*samples(50, 51, 52), *(broker(at, cpu=50.0 + at, started_at=minute(3)) for at in range(3, 8))],
        HELD,
        (56.5, 2),
    ),
}  # fmt: skip


def beside(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With another broker."""
    return [*rows, *(broker(at, "b", 20.0 + at, started_at=STARTED) for at in range(len(rows)))]


@pytest.mark.parametrize("name", HISTORIES)
def test_what_a_broker_usually_uses(name: str):
    """The mean of its newest samples, as far as they tell the same of the same bundles."""
    rows, bundles, wanted = HISTORIES[name]
    assert lately(beside(rows), bundles) == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize("name", [name for name, (rows, *_) in HISTORIES.items() if all("cpu" in row for row in rows)])
def test_a_live_turn_has_the_same(name: str):
    """Of rounds each of which has a new sample: others it tells apart by their numbers."""
    rows, bundles, wanted = HISTORIES[name]
    assert live(beside(rows), bundles) == pytest.approx(wanted, nan_ok=True)
