"""The words of the scorecard."""

from __future__ import annotations

from dataclasses import fields

from lbd.score.scorecard import FIGURES, WHEN, Evenness, Scorecard


def names(kind: type) -> list[str]:
    """Dotted names of all fields."""
    sections = {field.name for field in fields(kind)} & WHEN.keys()
    whole = [field.name for field in fields(kind) if field.name not in sections]
    return whole + [f"{section}.{field.name}" for section in sections for field in fields(Evenness)]


def test_every_figure_of_a_scorecard_has_its_words():
    """None is left out, none is told twice."""
    assert sorted(figure.name for figure in FIGURES) == sorted(names(Scorecard))


def test_numbers_have_their_unit():
    """And a dash where there is none."""
    traffic = next(figure for figure in FIGURES if figure.name == "traffic_moved")
    assert (traffic.text(0.5), traffic.text(None)) == ("50.0 %", "-")
