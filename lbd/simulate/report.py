"""Simulated runs as one page that opens without a network: charts, scorecard, moves, scenario and settings."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import yaml
from plotly.offline import get_plotlyjs

from lbd.score.figures import EVENNESS, FIGURES, RUN, WHEN
from lbd.score.spread import figures, spread
from lbd.score.transfers import clock, transfers
from lbd.simulate.charts import gap_chart, score_chart, traffic_chart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plotly import graph_objects

    from lbd.score.figures import Figure
    from lbd.score.spread import Spread
    from lbd.score.trace import Trace
    from lbd.simulate.finished import Finished

TEMPLATE = Path(__file__).with_name("report.html")
NOT_OF_A_SIMULATION = {"pulsar", "state_dir", "turns", "log", "in_broker_shedding", "restore_on_stop"}
"""Settings that no simulated turn asks for."""


def page(runs: Sequence[Finished]) -> str:
    """HTML with charts of the first run, and the figures of all."""
    first = runs[0]
    title = escape(f"lbd simulate {first.name}, seed {first.seed}")
    body = "\n".join((*_words(first), *_charts(first), *_tables(runs), *_sources(first)))
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(title=title, script=get_plotlyjs(), body=body)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table; all but its first ``words`` columns are numbers."""
    lines = [_row("th", head, words), *(_row("td", row, words) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def _row(kind: str, cells: Sequence[str], words: int) -> str:
    marks = ("" if at < words else ' class="number"' for at in range(len(cells)))
    inner = (f"<{kind}{mark}>{escape(cell)}</{kind}>" for mark, cell in zip(marks, cells, strict=True))
    return f"<tr>{''.join(inner)}</tr>"


def _words(run: Finished) -> Iterator[str]:
    yield f"<p>{escape(run.scenario.about)}</p>"
    if run.scenario.stock:
        yield f'<p class="dim">Pulsar alone: {escape(run.scenario.stock)}</p>'
    yield f"<p><b>In the end:</b> {escape(run.sentence)}</p>"


def _charts(run: Finished) -> Iterator[str]:
    limits = run.settings.avg_shedder
    yield from chart("Score of each broker", score_chart(run.trace))
    yield from chart(
        "Between the highest and the lowest", gap_chart(run.trace, limits.low_threshold, limits.high_threshold)
    )
    yield from chart("Traffic of each broker", traffic_chart(run.trace))


def chart(title: str, figure: graph_objects.Figure) -> Iterator[str]:
    """A heading, and the chart under it."""
    options: dict[str, Any] = {"displaylogo": False, "responsive": True}
    yield f"<h2>{escape(title)}</h2>"
    yield figure.to_html(full_html=False, include_plotlyjs=False, default_height="420px", config=options)


def _tables(runs: Sequence[Finished]) -> Iterator[str]:
    yield "<h2>Scorecard</h2>"
    yield _scorecard(runs)
    yield "<h2>Moves</h2>"
    yield _moves(runs[0].trace)
    if runs[0].trace.splits:
        yield "<h2>Splits</h2>"
        yield _splits(runs[0].trace)


def _scorecard(runs: Sequence[Finished]) -> str:
    first, spreads = figures(runs[0].card), spread([run.card for run in runs])
    if len(runs) == 1:
        return _evenness(first) + table(("", ""), [(one.label, one.told(first[one.name])) for one in RUN])
    head = ("", f"seed {runs[0].seed}", f"median of {len(runs)}", "lowest", "highest")
    return table(head, [_spread_row(one, first[one.name], spreads[one.name]) for one in FIGURES])


def _spread_row(figure: Figure, first: float | None, over: Spread) -> tuple[str, ...]:
    return figure.label, *map(figure.told, (first, over.median, over.lowest, over.highest))


def _evenness(of: Mapping[str, float | None]) -> str:
    """The figures that are told of several moments, side by side."""
    rows = [(one.label, *(one.told(of[f"{section}.{one.name}"]) for section in WHEN)) for one in EVENNESS]
    return table(("scores", *WHEN.values()), rows)


def _moves(trace: Trace) -> str:
    if not trace.moves:
        return "<p>None.</p>"
    rows = [
        (one.clock, one.source, one.destination, str(one.bundles), f"{one.throughput / 1e6:,.1f}")
        for one in transfers(trace)
    ]
    return table(("at", "from", "to", "bundles", "MB/s"), rows, words=3)


def _splits(trace: Trace) -> str:
    rows = [(clock(one.seconds), one.bundle, one.owner, one.by, str(one.parts)) for one in trace.splits]
    return table(("at", "bundle", "on", "by", "parts"), rows, words=4)


def _sources(run: Finished) -> Iterator[str]:
    yield from _yaml("Scenario", run.scenario.model_dump(mode="json", exclude_defaults=True))
    yield from _yaml("Settings", run.settings.model_dump(mode="json", exclude=NOT_OF_A_SIMULATION))


def _yaml(title: str, values: dict[str, Any]) -> Iterator[str]:
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110)
    yield f"<h2>{title}</h2>"
    yield f"<details><summary>as YAML</summary><pre>{escape(text)}</pre></details>"
