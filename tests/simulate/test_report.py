"""The page of charts: what is drawn, and that nothing in a scenario can steer it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lbd.simulate.report import MOST_POINTS, OTHERS, gap_chart, page, score_chart, thinned, traffic_chart
from tests.simulate.test_trace import ran


def test_the_score_of_each_broker_and_the_moves():
    """A line for each broker, and a mark on both ends of the transfer at the turn before it."""
    run = ran()
    a, b, gives, takes = score_chart(run.trace).data
    assert (a.name, b.name) == ("a:8080", "b:8080")
    assert (a.y[0], a.y[-1]) == (60, 30)
    assert (gives.x[0], gives.y[0]) == (1, 60)
    assert (takes.x[0], takes.y[0]) == (1, 0)
    assert gives.text[0] == "a:8080 to b:8080: 3 bundles, 62.9 MB/s"


def test_the_gap_and_what_it_would_have_been():
    """With the thresholds; without moves there is nothing to compare with."""
    found = gap_chart(ran().trace, 15, 40)
    assert [line.name for line in found.data] == ["had nothing moved", "gap"]
    assert [shape.y0 for shape in found.layout.shapes] == [15, 40]
    assert found.data[0].y[-1] == pytest.approx(60)
    assert found.data[1].y[-1] == pytest.approx(0)
    assert found.layout.yaxis.range[1] > 60
    quiet = ran(brokers=[{"id": "a"}])
    assert [line.name for line in gap_chart(quiet.trace, 15, 40).data] == ["gap"]


def test_traffic():
    """In MB/s."""
    a, _ = traffic_chart(ran().trace).data
    assert a.y[0] == pytest.approx(125.83, abs=0.01)


def test_of_many_brokers_those_that_moves_touched_stand_out():
    """The others are grey, with one entry in the legend for all of them."""
    run = ran(brokers=[{"id": "a"}, {"id": "b"}, {"id": "c", "number": 20, "background": 30}])
    lines = [line for line in score_chart(run.trace).data if line.mode == "lines"]
    grey = [line for line in lines if line.line.color == OTHERS]
    assert {line.name for line in lines if line not in grey} == {"a:8080", "b:8080"}
    assert (len(grey), sum(line.showlegend for line in grey)) == (20, 1)


@given(arrays(float, st.integers(MOST_POINTS + 1, 3 * MOST_POINTS), elements=st.floats(0, 100)), st.booleans())
def test_a_thinned_line_keeps_its_ends(values: np.ndarray, absent: bool):
    """No more points than are drawn, in order, with the highest and the lowest, also of a broker that came late."""
    if absent:
        values[: values.size // 2] = np.nan
    times, kept = thinned(np.arange(values.size, dtype=float), values)
    assert len(times) == len(kept) <= MOST_POINTS
    assert (np.diff(times) > 0).all()
    assert np.nanmax(kept) == np.round(np.nanmax(values), 2)
    assert np.nanmin(kept) == np.round(np.nanmin(values), 2)


def test_words_of_a_scenario_are_words():
    """A name or a text that looks like a page is none."""
    told = page([ran(about="<script>alert(1)</script> $title & co")])
    assert "<script>alert(1)" not in told
    assert "&lt;script&gt;alert(1)&lt;/script&gt; $title &amp; co" in told


@pytest.mark.parametrize("hours", [0.01, 0.1])
def test_the_smallest_run(hours: float):
    """One broker without traffic, one look or some: there is a page all the same."""
    idle = {"name": "n", "mib_per_second": 0, "bundles": 1}
    assert "policy violations" in page([ran(brokers=[{"id": "a"}], load=[idle], hours=hours)])
