"""Comparisons as a page that opens without a network: what is recommended, gaps, scores, scorecards, load model."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from lbd.charts.page import page as html_page
from lbd.charts.page import table
from lbd.compare import summary
from lbd.simulate.report import gap_chart, score_chart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lbd.charts.chart import Chart
    from lbd.compare.side_by_side import Compared


def page(comparisons: Sequence[Compared]) -> str:
    """HTML page of all comparisons, one below the other."""
    return html_page("lbd compare", [part for compared in comparisons for part in _one(compared)])


def _one(compared: Compared) -> Iterator[str | Chart]:
    yield f"<h2>{escape(summary.title(compared))}</h2>"
    answer, *reasons = summary.answer(compared)
    yield f"<p><b>{escape(answer)}</b></p>"
    yield from (f"<p>{escape(line)}</p>" for line in reasons)
    yield from (f"<p>{escape(line)}</p>" for line in summary.sentences(compared))
    yield gap_chart({run.label: run.trace for run in compared.runs}, *compared.thresholds)
    yield from _scorecards(compared)
    yield from (score_chart(run.trace, f"Score of each broker: {run.label}") for run in compared.runs)
    rests = "\n".join(summary.rests_on(compared))
    if rests:
        yield f"<h2>What the scores rest on</h2>\n<pre>{escape(rests)}</pre>"


def _scorecards(compared: Compared) -> Iterator[str]:
    """A column for each run; the best values of each row are marked."""
    rows, best = [], set()
    for index, row in enumerate(summary.rows(compared)):
        rows.append((row.figure.label, *row.cells))
        best |= {(index, column + 1) for column in row.best}
    yield table(("", *(run.label.replace(",", ", ") for run in compared.runs)), rows, best=best)
    if best:
        yield f'<p class="dim">{BEST}</p>'


BEST = (
    'Marked in <b class="best">bold</b>: the best value of a row. There is none where all are equal, or where neither '
    "more nor less is better. Fewer moves are better only between runs that end as even."
)
