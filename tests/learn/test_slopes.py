"""What traffic costs the mean broker; and brokers that are hardly known take it from the others, and say so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lbd.learn.slopes import cpu_by_traffic, with_borrowed
from lbd.load.estimate import BANDWIDTH_IN, CPU, LoadModel, Measure, Source, fixed_model
from lbd.load.samples import BrokerSamples
from lbd.load.scoring import Weights

MINUTES = np.arange(2 * 24 * 60)
WAVE = 20 + 10 * np.sin(2 * np.pi * MINUTES / (24 * 60))
"""MB/s of a broker over two days."""


def sampled(mb_per_second: np.ndarray, cpu: np.ndarray) -> BrokerSamples:
    """A sample a minute of a broker with messages of 1 kB, and no network that it knows."""
    carried = np.outer(mb_per_second, (500.0, 500.0, 5e5, 5e5))
    used = np.full((mb_per_second.size, 5), np.nan)
    used[:, CPU] = cpu
    return BrokerSamples(60.0 * MINUTES, carried, used, np.ones(MINUTES.size, dtype=np.int32), (1.0,))


@pytest.mark.parametrize(("measure", "slope"), [("throughput", 2.0), ("msg_rate", 2.0)])
def test_what_traffic_costs_the_mean_broker(measure: Measure, slope: float):
    """Of two unlike ones; 1 MB/s are 1,000 messages/s here. A lull of an hour in a calm time is not in its range."""
    lull = (MINUTES > 1000) & (MINUTES < 1060)
    jobs = np.where(MINUTES % 240 < 30, 1.1, 1.0)
    found = cpu_by_traffic(
        {"a": sampled(WAVE, 10 + WAVE - 5.0 * lull), "b": sampled(WAVE, (20 + 3 * WAVE) * jobs)}, measure
    )

    assert found is not None
    assert (found.measure, found.slope) == (measure, pytest.approx(slope, rel=0.05))
    assert found.idle_percent == pytest.approx(15, rel=0.1)
    assert found.least_traffic == pytest.approx(20, rel=0.01)
    assert (found.lowest, found.highest) == (pytest.approx(0.98, abs=0.03), pytest.approx(1.08, abs=0.03))


@pytest.mark.parametrize(
    ("traffic", "cpu"),
    [(np.full(MINUTES.size, 20.0), WAVE), (WAVE, np.full(MINUTES.size, 40.0)), (WAVE, np.full(MINUTES.size, np.nan))],
    ids=["steady traffic", "CPU of something else", "CPU not known"],
)
def test_what_traffic_costs_may_be_unknown(traffic: np.ndarray, cpu: np.ndarray):
    """Then no proposal expires by it."""
    assert cpu_by_traffic({"a": sampled(traffic, cpu)}, "throughput") is None


BROKERS = "a", "b", "c", "new"


def model(samples: int, source: Source) -> LoadModel:
    """Three brokers with a thousand samples, and one with so many, none of whose slopes is known."""
    made = fixed_model(BROKERS, np.array([10.0, 20.0, 30.0, np.nan]), np.array([1.0, 2.0, 3.0, 0.0]))
    unknown = list(made.sources[3])
    unknown[CPU] = unknown[BANDWIDTH_IN] = source
    sources = (*made.sources[:3], tuple(unknown))
    return replace(made, samples=np.array([1000, 1000, 1000, samples], dtype=np.int32), sources=sources)


@pytest.mark.parametrize(("samples", "number"), [(0, 1), (99, 1), (100, 0)], ids=["none", "few", "enough to be unlike"])
def test_a_broker_that_is_hardly_known_takes_the_slopes_of_the_others(samples: int, number: int):
    """The median, and no limit where the others have none; one with samples enough stays unknown, and so the answer."""
    found, borrowed = with_borrowed(model(samples, Source.UNKNOWN), BROKERS)

    assert [one.broker for one in borrowed] == ["new"] * number
    assert (not found.unknown(Weights())) == bool(number)
    if borrowed:
        assert (found.slope[3, CPU], found.background[3, CPU]) == (2.0, 20.0)
        assert found.sources[3][CPU] is Source.POOLED
        assert found.sources[3][BANDWIDTH_IN] is Source.UNLIMITED
        assert borrowed[0].text.startswith(f"new is hardly known ({samples} samples): what traffic costs")


def test_what_its_own_samples_show_stays():
    """However few they are."""
    found, borrowed = with_borrowed(model(5, Source.FITTED), BROKERS)

    assert borrowed == ()
    assert found.slope[3, CPU] == 0.0


def test_one_that_is_gone_takes_them_however_long_it_was_there():
    """Its days stay in history for ninety; no settings would be proposed for the others until then."""
    found, borrowed = with_borrowed(model(1000, Source.UNKNOWN), BROKERS[:3])

    assert not found.unknown(Weights())
    assert found.slope[3, CPU] == 2.0
    assert [one.text for one in borrowed] == [
        "new is gone, and its traffic showed no slope: what traffic costs there is taken from the others"
    ]
