"""What moving a bundle costs, by its namespace."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from lbd.permit.eligibility import column
from lbd.permit.settings import Guardrails
from tests.builders import bundle, report, snapshot, stats

NAMES = [bundle(0, "t/a"), bundle(0, "t/b"), bundle(0, "u/c")]


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ({}, None),
        ({"x/y": 3}, None),
        ({"t/a": 0}, None),
        ({"t/a": 1}, [1, 0, 0]),
        ({"t/*": 2, "t/b": 0.5}, [2, 0.5, 0]),
        ({"u/*": "never"}, [0, 0, float("inf")]),
    ],
)
def test_the_cost_of_each_bundle(costs: dict[str, object], expected: list[float] | None):
    """A namespace's own cost, else its tenant's, else none; without differences there is no column."""
    seen = snapshot({"a:80": report(10, {name: stats(1) for name in NAMES})})
    found = column(seen, Guardrails.model_validate({"move_costs": costs}).move_costs)

    assert expected == (None if found is None else found.tolist())


@pytest.mark.parametrize(
    ("costs", "told"),
    [
        ({"t/a": -1}, "t/a: -1.0: wanted 0 to 1,000,000, or never"),
        ({"t": 1}, "'t': wanted tenant/namespace or tenant/*"),
        ({"t/a": "dear"}, "Input should be 'never'"),
        ({"t/a": float("nan")}, "finite number"),
    ],
)
def test_a_cost_that_cannot_be(costs: dict[str, object], told: str):
    """Said with what would be right."""
    with pytest.raises(ValidationError, match=told):
        Guardrails.model_validate({"move_costs": costs})
