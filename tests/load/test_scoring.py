"""Scores, bit for bit as Pulsar computes them."""

from __future__ import annotations

import math

import pytest

from lbd.load.scoring import Weights, binding, scores
from lbd.observe.parse import Usage
from tests.builders import report, snapshot


def score(weights: Weights | None = None, **usages: tuple[float, float]) -> float:
    """Score of one broker with these ``(usage, limit)`` pairs."""
    found = {name: Usage(*pair) for name, pair in usages.items()}
    return float(scores(snapshot({"a:80": report(**found)}).brokers, weights or Weights())[0])


@pytest.mark.parametrize(
    ("usage", "points"),
    [
        (60.0, 60.000003814697266),
        (30.0, 30.000001907348633),
        (15.0, 15.000000953674316),
        (59.0, 58.99999618530274),
        (50.0, 50.0),
    ],
)
def test_percent_is_float32(usage: float, points: float):
    """The division happens in float32, the weight in double, and / 100 x 100 rounds once more."""
    assert points == score(cpu=(usage, 100.0))


@pytest.mark.parametrize(
    ("usages", "points"),
    [
        ({"cpu": (150.0, 100.0)}, 150.0),
        ({"cpu": (50.0, 0.0)}, 0.0),
        ({"cpu": (50.0, -1000.0)}, 0.0),
        ({"cpu": (float("nan"), 100.0), "bandwidth_in": (25.0, 100.0)}, 25.0),
        ({"cpu": (10.0, 100.0), "bandwidth_out": (75.0, 100.0)}, 75.0),
        ({"cpu": (10.0, 100.0), "memory": (90.0, 100.0)}, 10.0),
    ],
    ids=["above its limit", "limit 0", "limit unknown", "NaN is skipped", "the highest counts", "heap never counts"],
)
def test_the_highest_weighted_resource_makes_the_score(usages: dict[str, tuple[float, float]], points: float):
    """Unknown limits are 0, NaN is skipped, nothing is clamped."""
    assert points == score(**usages)


def test_all_nan_is_minus_infinity():
    """As in Pulsar's loop from -Infinity with ``>``."""
    nan = (float("nan"), 100.0)

    assert -math.inf == score(cpu=nan, direct_memory=nan, bandwidth_in=nan, bandwidth_out=nan)


def test_a_weight_scales_its_resource():
    """Direct memory counts only where it is given a weight."""
    assert 50.0 == score(Weights(direct_memory=2), direct_memory=(64.0, 256.0))


@pytest.mark.parametrize(
    ("usages", "resource"),
    [
        ({"cpu": (50.0, 100.0), "bandwidth_in": (60.0, 100.0)}, "bandwidth_in"),
        ({"cpu": (50.0, 100.0), "direct_memory": (250.0, 256.0)}, "cpu"),
        ({"cpu": (50.0, -1.0)}, None),
    ],
)
def test_the_binding_resource_is_named(usages: dict[str, tuple[float, float]], resource: str | None):
    """None where no resource with a weight has a known limit."""
    found = {name: Usage(*pair) for name, pair in usages.items()}

    assert (resource,) == binding(snapshot({"a:80": report(**found)}).brokers, Weights())
