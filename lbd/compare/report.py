"""Comparisons as a page that opens without a network: gaps and scores per run, scorecards, and the load model."""

from __future__ import annotations

from html import escape
from string import Template
from typing import TYPE_CHECKING

from plotly.offline import get_plotlyjs

from lbd.compare import summary
from lbd.score.scorecard import gaps
from lbd.simulate.report import COLOURS, MINUTES_UP_TO_HOURS, TEMPLATE, chart, gap_chart, score_chart, table, thinned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plotly.graph_objects import Figure

    from lbd.compare.side_by_side import Compared


def page(comparisons: Sequence[Compared]) -> str:
    """HTML page of all comparisons, one below the other."""
    body = "\n".join(line for compared in comparisons for line in _one(compared))
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title="lbd compare", script=get_plotlyjs(), body=body
    )


def _one(compared: Compared) -> Iterator[str]:
    yield f"<h2>{escape(summary.title(compared))}</h2>"
    yield from (f"<p>{escape(line)}</p>" for line in summary.sentences(compared))
    yield from chart("Between the highest and the lowest", _gaps(compared))
    yield table(("", *(run.label.replace(",", ", ") for run in compared.runs)), list(summary.rows(compared)))
    for run in compared.runs:
        yield from chart(f"Score of each broker: {run.label}", score_chart(run.trace))
    rests = "\n".join(summary.rests_on(compared))
    if rests:
        yield f"<h2>What the scores rest on</h2>\n<pre>{escape(rests)}</pre>"


def _gaps(compared: Compared) -> Figure:
    """A line for each run, and the thresholds."""
    first, *others = compared.runs
    figure = gap_chart(first.trace, *compared.thresholds)
    figure.update_traces(name=_below(first.label), selector={"name": "gap"})
    highest = max(float(gaps(run.trace.points()).max()) for run in compared.runs)
    for at, run in enumerate(others, start=1):
        seconds = run.trace.seconds()
        times, gap = thinned(seconds / _unit(float(seconds[-1])), gaps(run.trace.points()))
        line = {"color": COLOURS[at % len(COLOURS)], "shape": "hv"}
        figure.add_scatter(x=times, y=gap, mode="lines", name=_below(run.label), line=line)
    return figure.update_yaxes(range=[0, max(highest, compared.thresholds[1]) * 1.1])


def _below(label: str) -> str:
    """A strategy with its settings line by line, for a legend."""
    return escape(label).replace(":", "<br>").replace(",", "<br>")


def _unit(seconds: float) -> float:
    """Seconds in the unit in which charts tell time."""
    return 3600 if seconds > MINUTES_UP_TO_HOURS * 3600 else 60
