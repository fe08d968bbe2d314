"""What an operator tells of brokers, and what that tells of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from lbd.load.estimate import CPU, Source
from lbd.load.fit import capacities, fit
from lbd.load.samples import gather
from lbd.load.settings import LoadSettings
from tests.load.histories import THREE, TRUE_SLOPE, rounds

STEADY = {"load": [{**THREE["load"][0], "shape": {"kind": "steady"}}]}


def told(*brokers: dict[str, Any], measure: str | None = "throughput") -> LoadSettings:
    return LoadSettings.model_validate({"measure": measure, "brokers": list(brokers)})


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("big-1.example:8080", True),
        ("big-1.example", True),
        ("big-.*", True),
        ("big-.*:80[0-9]+", True),
        ("big", False),
        ("ig-1.example", False),
        ("BIG-.*", False),
    ],
)
def test_whom_an_entry_names(pattern: str, meant: bool):
    """All of host:port, or all of the host, as a regular expression; an id stands for itself."""
    found = told({"broker": pattern, "capacity": 2})

    assert found.capacity("big-1.example:8080") == (2.0 if meant else 1.0)


def test_the_first_entry_that_tells_counts():
    """Slope and capacity may stand in different entries."""
    found = told({"broker": "a.*", "slope": 0.5}, {"broker": "a1:80", "capacity": 3}, {"broker": "a.*", "capacity": 2})

    assert (found.capacity("a1:80"), found.capacity("a2:80"), found.capacity("b:80")) == (3.0, 2.0, 1.0)
    assert (found.slope("a1:80"), found.slope("b:80")) == (0.5 / 1e6, None)


@pytest.mark.parametrize(
    ("brokers", "measure", "words"),
    [
        ([{"broker": "a("}], "throughput", "no regular expression"),
        ([{"broker": "a"}], "throughput", "wanted capacity, slope, or both"),
        ([{"broker": "a", "capacity": 0}], None, "greater than or equal to 0"),
        ([{"broker": "a", "capacity": float("inf")}], None, "finite"),
        ([{"broker": "a", "slope": -1}], "msg_rate", "greater than or equal to 0"),
        ([{"broker": "a", "slope": 0}], "throughput", "greater than or equal to 0"),
        ([{"broker": "a", "slope": 1}], None, "measure: wanted beside a slope"),
        ([{"broker": "a", "capcity": 1}], None, "Extra inputs"),
    ],
)
def test_junk_is_refused(brokers: list[dict[str, Any]], measure: str | None, words: str):
    """With what would be right."""
    with pytest.raises(ValidationError, match=words):
        told(*brokers, measure=measure)


@pytest.mark.parametrize(
    ("limits", "given", "found"),
    [
        ({"a:80": 100.0, "b:80": 400.0}, told(), {"a:80": 1.0, "b:80": 4.0}),
        ({"a:80": 100.0, "b:80": -1.0}, told(), {"a:80": 1.0, "b:80": 1.0}),
        ({"a:80": 100.0, "b:80": 400.0}, told({"broker": "a", "capacity": 2}), {"a:80": 2.0, "b:80": 1.0}),
        ({}, told(), {}),
    ],
    ids=["by limit", "limit unknown", "given", "nobody"],
)
def test_capacity(limits: dict[str, float], given: LoadSettings, found: dict[str, float]):
    """What is given, for all; else limits of CPU, where all are known."""
    assert capacities(limits, given) == found


def test_a_slope_for_each_that_was_told():
    """Traffic that never changes tells nothing: one slope was given, and the others follow from it by capacity."""
    samples = gather(rounds(30, {**THREE, **STEADY}))
    given = told({"broker": "a", "slope": TRUE_SLOPE * 1e6, "capacity": 1}, {"broker": "c", "capacity": 2})
    model = fit(samples, given)

    assert [Source.GIVEN, Source.POOLED, Source.POOLED] == [own[CPU] for own in model.sources]
    assert model.slope[:, CPU] == pytest.approx(np.array([1, 1, 0.5]) * TRUE_SLOPE)
    assert model.background[:, CPU] == pytest.approx([10, 25, 12], abs=3)
    assert [Source.UNKNOWN] * 3 == [own[CPU] for own in fit(samples).sources]


def test_what_a_broker_shows_itself_goes_before_what_is_given():
    """The operator's number is twice the truth."""
    wrong = told({"broker": ".*", "slope": 2 * TRUE_SLOPE * 1e6})
    model = fit(gather(rounds(180, THREE)), wrong)

    assert [Source.FITTED] * 3 == [own[CPU] for own in model.sources]
    assert model.slope[:, CPU] == pytest.approx(TRUE_SLOPE / np.array([1, 1, 2]), rel=0.1)


def test_a_class_is_shared_by_capacity():
    """The third broker has no traffic, and twice the capacity of those that tell: half of their slope."""
    idle = {**THREE, "load": [{**THREE["load"][0], "brokers": ["a", "b"]}]}
    model = fit(gather(rounds(120, idle)), told({"broker": "c", "capacity": 2}, measure=None))

    assert [Source.FITTED, Source.FITTED, Source.CLASS] == [own[CPU] for own in model.sources]
    assert model.slope[2, CPU] == pytest.approx(TRUE_SLOPE / 2, rel=0.1)
