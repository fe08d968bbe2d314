"""The words of the scorecard."""

from __future__ import annotations

from dataclasses import asdict

from lbd.score.figures import EVENNESS, FIGURES
from lbd.score.spread import figures
from tests.score.runs import EVEN, run


def test_every_figure_of_a_scorecard_has_its_words():
    """None is left out, none is told twice."""
    told = [figure.name for figure in FIGURES]
    assert sorted(told) == sorted(dict(figures(asdict(run(EVEN)))))


def test_numbers_have_their_unit():
    """And a dash where there is none."""
    near = EVENNESS[-1]
    assert (near.told(0.5), near.told(None)) == ("50 %", "-")
