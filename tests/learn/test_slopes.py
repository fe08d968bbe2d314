"""Slopes of brokers that are hardly known: those of the others, and said so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lbd.learn.slopes import with_borrowed
from lbd.load.estimate import BANDWIDTH_IN, CPU, LoadModel, Source, fixed_model
from lbd.load.scoring import Weights


def model(samples: int, source: Source) -> LoadModel:
    """Three brokers with a thousand samples, and one with so many, none of whose slopes is known."""
    made = fixed_model(("a", "b", "c", "new"), np.array([10.0, 20.0, 30.0, np.nan]), np.array([1.0, 2.0, 3.0, 0.0]))
    unknown = list(made.sources[3])
    unknown[CPU] = unknown[BANDWIDTH_IN] = source
    sources = (*made.sources[:3], tuple(unknown))
    return replace(made, samples=np.array([1000, 1000, 1000, samples], dtype=np.int32), sources=sources)


@pytest.mark.parametrize(("samples", "number"), [(0, 1), (99, 1), (100, 0)], ids=["none", "few", "enough to be unlike"])
def test_a_broker_that_is_hardly_known_takes_the_slopes_of_the_others(samples: int, number: int):
    """The median, and no limit where the others have none; one with samples enough stays unknown, and so the answer."""
    found, borrowed = with_borrowed(model(samples, Source.UNKNOWN))

    assert [one.broker for one in borrowed] == ["new"] * number
    assert (not found.unknown(Weights())) == bool(number)
    if borrowed:
        assert (found.slope[3, CPU], found.background[3, CPU]) == (2.0, 20.0)
        assert found.sources[3][CPU] is Source.POOLED
        assert found.sources[3][BANDWIDTH_IN] is Source.UNLIMITED
        assert borrowed[0].text.startswith(f"new is hardly known ({samples} samples): what traffic costs")


def test_what_its_own_samples_show_stays():
    """However few they are."""
    found, borrowed = with_borrowed(model(5, Source.FITTED))

    assert borrowed == ()
    assert found.slope[3, CPU] == 0.0
