"""The page of charts: what is drawn, and that nothing in a scenario can steer it."""

from __future__ import annotations

import pytest

from lbd.simulate.report import gap_chart, page, score_chart, traffic_chart
from tests.simulate.test_trace import ran


def test_the_score_of_each_broker_and_the_moves():
    """A line for each broker, and a mark on both ends of the transfer at the turn before it."""
    chart = score_chart(ran().trace)
    a, b = chart.lines
    gives, takes = chart.marks
    assert (a.name, b.name, chart.y_reaches) == ("a:8080", "b:8080", 100)
    assert (a.y[0], a.y[-1]) == (60, 30)
    assert [(one.x, one.y, one.colour) for one in gives.marks] == [(1, 60, a.colour)]
    assert [(one.x, one.y, one.colour) for one in takes.marks] == [(1, 0, b.colour)]
    assert gives.marks[0].text == "a:8080 to b:8080: 3 bundles, 62.9 MB/s"


def test_the_gap_and_what_it_would_have_been():
    """With the thresholds; without moves there is nothing to compare with."""
    chart = gap_chart({"gap": ran().trace}, 15, 40)
    assert [line.name for line in chart.lines] == ["had nothing moved", "gap"]
    assert [(one.name, one.y) for one in chart.thresholds] == [("low threshold", 15), ("high threshold", 40)]
    assert chart.lines[0].y[-1] == pytest.approx(60)
    assert chart.lines[1].y[-1] == pytest.approx(0)
    quiet = ran(brokers=[{"id": "a"}])
    assert [line.name for line in gap_chart({"gap": quiet.trace}, 15, 40).lines] == ["gap"]


def test_traffic():
    """In MB/s."""
    a, _ = traffic_chart(ran().trace).lines
    assert a.y[0] == pytest.approx(125.83, abs=0.01)


def test_of_many_brokers_those_that_moves_touched_stand_out():
    """The others are grey and one group, and drawn first: they hide nothing."""
    run = ran(brokers=[{"id": "a"}, {"id": "b"}, {"id": "c", "number": 20, "background": 30}])
    lines = score_chart(run.trace).lines
    assert [(line.colour, line.group) for line in lines[:20]] == [("grey", "the others")] * 20
    assert {(line.name, line.group) for line in lines[20:]} == {("a:8080", ""), ("b:8080", "")}


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
