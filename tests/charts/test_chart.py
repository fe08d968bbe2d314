"""Charts as values, and what of them stands in a page."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lbd.charts.chart import MOST_POINTS, Chart, Line, Mark, Marks, Threshold, thinned
from lbd.charts.page import page, table


def drawn(html: str) -> list[dict[str, Any]]:
    """The values of each chart of a page."""
    return [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', html)]


def line(name: str, *y: float, **changes: Any) -> Line:
    """One that begins at 0."""
    return Line(name, np.arange(len(y), dtype=float), np.array(y), "blue", **changes)


def test_lines_marks_and_thresholds():
    """All that is drawn is in the page; lines with the same x share it; NaN is null."""
    marks = Marks("gives", "down", (Mark(1, 2, "a to b", "blue"),))
    lines = (line("a", 1, np.nan), line("b", 3.14159, 4, group="the others", step=True))
    (found,) = drawn(page("t", [Chart("c", "minutes", "points", lines, (marks,), (Threshold("low", 15, "orange"),))]))
    assert found["xs"] == [[0, 1]]
    assert [(one["name"], one["x"], one["y"]) for one in found["lines"]] == [("a", 0, [1, None]), ("b", 0, [3.14, 4])]
    assert [one.get("group") for one in found["lines"]] == [None, "the others"]
    assert found["marks"][0]["marks"] == [{"x": 1, "y": 2, "text": "a to b", "colour": "blue"}]
    assert found["thresholds"] == [{"name": "low", "y": 15, "colour": "orange"}]


def test_a_mark_without_a_place_is_left_out():
    """As of a broker that joined after the turn at which its mark would be."""
    marks = Marks("takes", "up", (Mark(1, np.nan, "a to b", "blue"), Mark(1, 2, "a to c", "blue")))
    (found,) = drawn(Chart("c", "minutes", "points", (line("a", 1),), (marks,)).html(100))
    assert [one["text"] for one in found["marks"][0]["marks"]] == ["a to c"]


def test_names_cannot_leave_the_chart():
    """Not as an element, not as the end of a script, not as a placeholder."""
    name = '</script><script>alert(1)</script><b>"$title'
    html = page(name, [Chart(name, name, name, (line(name, 1),)), table([name], [[name]])])
    assert "alert(1)</script>" not in html
    assert "<b>" not in html[html.index("<body>") :]
    assert drawn(html)[0]["lines"][0]["name"] == name


def test_a_chart_has_a_name_for_who_does_not_see_it():
    """With what is drawn in it, a group once."""
    lines = (line("a", 1, group="the others"), line("b", 1, group="the others"), line("c", 1))
    html = Chart("Score", "minutes", "points", lines).html(100)
    assert 'role="img" aria-label="Score: points over minutes. the others, c."' in html


def test_a_page_needs_no_network():
    """No address of anything but in uPlot's own comment, and the browser is to load nothing."""
    html = page("t", [Chart("c", "x", "y", (line("a", 1),))])
    assert "default-src 'none'" in html
    assert not re.search(r"<(link|img|iframe|script[^>]+src)|url\(|@import", html)
    assert re.findall(r"https?://[^\s\"')]+", html) == ["https://github.com/leeoniya/uPlot"]


@pytest.mark.parametrize(("charts", "lines"), [(2, 400), (200, 3), (7, 20)])
def test_a_page_is_below_a_megabyte(charts: int, lines: int):
    """However many lines there are, none of which has an x that another one has."""
    rng = np.random.default_rng(1)

    def walk() -> Line:
        return Line("broker-100.example:8080", np.sort(rng.random(3000)) * 1000, rng.random(3000) * 100, "blue")

    some = [walk() for _ in range(20)]
    found = Chart("c", "x", "y", tuple(some[at % 20] for at in range(lines)))
    html = page("t", [found] * charts)
    assert 60_000 < len(html.encode()) < 1_000_000
    assert all(len(one["y"]) >= 20 for chart in drawn(html) for one in chart["lines"])


@given(arrays(float, st.integers(MOST_POINTS + 1, 3 * MOST_POINTS), elements=st.floats(0, 100)), st.booleans())
def test_a_thinned_line_keeps_its_ends(values: np.ndarray, absent: bool):
    """No more points than are drawn, in order, with the first and the last, the highest and the lowest, also of a
    broker that came late.
    """
    if absent:
        values[: values.size // 2] = np.nan
    times, kept = thinned(np.arange(values.size, dtype=float), values)
    assert len(times) == len(kept) <= MOST_POINTS
    assert (np.diff(times) > 0).all()
    assert (times[0], times[-1], kept[-1]) == (0.0, values.size - 1, values[-1])
    assert np.nanmax(kept) == np.nanmax(values)
    assert np.nanmin(kept) == np.nanmin(values)


def test_a_table_marks_the_best():
    """Beside the class of numbers."""
    html = table(["", "one", "two"], [["moves", "3", "2"], ["gap", "9", "9"]], best={(0, 2)})
    assert '<tr><td>moves</td><td class="number">3</td><td class="number best">2</td></tr>' in html
    assert html.count("best") == 1
