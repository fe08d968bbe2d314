"""A page of charts and tables in one HTML file that asks no network for anything. Pure but for its own files."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from lbd.charts.chart import Chart

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

HERE = Path(__file__).parent

MOST_POINTS_OF_A_PAGE = 40_000
"""Most points of all lines of a page: half a megabyte."""


def page(title: str, parts: Iterable[str | Chart]) -> str:
    """The page; ``parts`` are HTML and charts, in their order."""
    lines = list(parts)
    most = MOST_POINTS_OF_A_PAGE // max(sum(isinstance(part, Chart) for part in lines), 1)
    body = "\n".join(part.html(most) if isinstance(part, Chart) else part for part in lines)
    return Template(_file("page.html")).substitute(
        title=escape(title),
        style=_file("static/uplot/uPlot.min.css") + _file("static/charts.css"),
        script=_file("static/uplot/uPlot.iife.min.js") + _file("static/charts.js"),
        body=body,
    )


def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1, best: Collection[tuple[int, int]] = ()
) -> str:
    """A table; all but its first ``words`` columns are numbers. ``best``: row and column of each value to mark."""
    lines = [_row("th", head, words, ())]
    for index, row in enumerate(rows):
        lines.append(_row("td", row, words, [column for at, column in best if at == index]))
    return f'<div class="table"><table>{"".join(lines)}</table></div>'


def _row(kind: str, cells: Sequence[str], words: int, best: Collection[int]) -> str:
    def classes(column: int) -> str:
        names = " ".join(filter(None, ("number" * (column >= words), "best" * (column in best))))
        return f' class="{names}"' if names else ""

    inner = (f"<{kind}{classes(column)}>{escape(cell)}</{kind}>" for column, cell in enumerate(cells))
    return f"<tr>{''.join(inner)}</tr>"
