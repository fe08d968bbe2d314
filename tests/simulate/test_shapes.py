"""Shapes of traffic: the factor at each moment."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from lbd.simulate.world import Shape

SHAPE: TypeAdapter[Shape] = TypeAdapter(Shape)
WAVE = {"kind": "wave", "amplitude": 0.5, "peak_at_hours": 14}
RAMP = {"kind": "ramp", "to": 3, "at_minutes": 10, "minutes": 20}
SPIKE = {"kind": "spike", "to": 5, "at_minutes": 10, "minutes": 2}
ON_OFF = {"kind": "on-off", "on_minutes": 1, "off_minutes": 3}


@pytest.mark.parametrize(
    ("shape", "minutes", "wanted"),
    [
        ({"kind": "steady"}, 1e6, 1),
        (WAVE, 14 * 60, 1.5),
        (WAVE, 26 * 60, 0.5),
        (WAVE, 20 * 60, 1),
        (RAMP, 9.9, 1),
        (RAMP, 20, 2),
        (RAMP, 1000, 3),
        ({**RAMP, "minutes": 0}, 10, 3),
        (SPIKE, 9.9, 1),
        (SPIKE, 10, 5),
        (SPIKE, 12, 1),
        (ON_OFF, 0, 4),
        (ON_OFF, 1, 0),
        (ON_OFF, 4.5, 4),
    ],
)
def test_factor(shape: dict[str, object], minutes: float, wanted: float):
    """Before, within and after what happens."""
    assert SHAPE.validate_python(shape).factor(minutes * 60) == pytest.approx(wanted)


@pytest.mark.parametrize("shape", [ON_OFF, WAVE])
def test_the_mean_is_one(shape: dict[str, object]):
    """What comes and goes carries as much as what is steady."""
    found = SHAPE.validate_python(shape)
    assert sum(found.factor(at * 60) for at in range(1440)) / 1440 == pytest.approx(1)
