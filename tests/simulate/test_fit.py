"""The model beside the published charts: no further off than decision 0007 says."""

from __future__ import annotations

import pytest

from tests.bench.fit import CHARTS, Chart, fit


@pytest.mark.parametrize(("chart", "worst"), list(zip(CHARTS, (6, 3, 6, 9, 11, 1), strict=True)))
def test_each_chart_is_met_within(chart: Chart, worst: float):
    """In points, with one background for all brokers of an experiment."""
    assert fit(chart).worst < worst


def test_the_slope_is_that_of_the_experiment_it_was_fitted_to():
    """And of the strong broker's own points."""
    assert fit(CHARTS[0]).best_slope == pytest.approx(0.33, abs=0.01)
    assert fit(CHARTS[-1]).best_slope == pytest.approx(0.33 / 3, abs=0.01)
