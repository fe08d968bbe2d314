"""A page of simulated runs that opens without a network: charts, scorecard, moves, scenario and settings."""

from __future__ import annotations

from collections import Counter
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from plotly import graph_objects
from plotly.offline import get_plotlyjs

from lbd.score.scorecard import EVENNESS, FIGURES, RUN, WHEN, clock, figures, gaps, spread, transfers
from lbd.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lbd.model import FloatArray
    from lbd.score.scorecard import Figure, FigureSpread, Trace, Transfer
    from lbd.simulate.run import Finished


MOST_POINTS = 1000
"""Of a line: more than a screen is wide."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#7a3b0c", "#9a9a00", "#222222")
"""Okabe and Ito's, told apart also by those who see no red or green; and four more."""
OTHERS = "#c8c8c8"
MINUTES_UP_TO_HOURS = 4
"""A longer run is drawn in hours."""


def score_chart(trace: Trace) -> graph_objects.Figure:
    """Score of each broker, with a mark on both ends of each transfer."""
    figure = _lines(trace, trace.points(), "points")
    figure.update_yaxes(range=[0, max(100.0, float(np.nanmax(trace.points())) * 1.02)])
    marks = transfers(trace)
    if marks:
        _mark(figure, trace, marks, "source", "gives bundles", "triangle-down")
        _mark(figure, trace, marks, "destination", "takes bundles", "triangle-up")
    if trace.splits:
        _mark_splits(figure, trace)
    return figure


def traffic_chart(trace: Trace) -> graph_objects.Figure:
    """MB/s through each broker, in + out."""
    figure = _lines(trace, trace.carried() / 1e6, "MB/s, in + out")
    return figure.update_yaxes(rangemode="tozero")


def gap_chart(trace: Trace, low_threshold: float, high_threshold: float) -> graph_objects.Figure:
    """Points between the highest and the lowest score, and the two thresholds."""
    figure, unmoved = _empty(trace, "points"), trace.unmoved()
    lines = {"gap": (gaps(trace.points()), COLOURS[0])}
    if unmoved is not None and trace.moves:
        lines = {"had nothing moved": (gaps(unmoved), OTHERS), **lines}
    for name, (gap, colour) in lines.items():
        times, line = thinned(_times(trace), gap)
        figure.add_scatter(x=times, y=line, mode="lines", name=name, line={"color": colour, "shape": "hv"})
    for name, threshold, colour in (("low", low_threshold, COLOURS[4]), ("high", high_threshold, COLOURS[1])):
        figure.add_hline(y=threshold, line={"dash": "dash", "color": colour}, annotation_text=f"{name} threshold")
    top = max(high_threshold, *(float(gap.max()) for gap, _ in lines.values()))
    return figure.update_yaxes(range=[0, top * 1.1])


def thinned(times: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The lowest and the highest value of each stretch of time, where there are too many to draw; float64 (T,) both.

    A stretch without any value stays a gap in the line.
    """
    if values.size <= MOST_POINTS:
        return times, np.round(values, 2)
    stretches = np.array_split(np.arange(values.size), MOST_POINTS // 2)
    low = [at[np.nan_to_num(values[at], nan=np.inf).argmin()] for at in stretches]
    high = [at[np.nan_to_num(values[at], nan=-np.inf).argmax()] for at in stretches]
    extremes = np.unique(np.concatenate((low, high)))
    return times[extremes], np.round(values[extremes], 2)


def _lines(trace: Trace, values: FloatArray, unit: str) -> graph_objects.Figure:
    """A line for each broker: coloured and named where moves touched it (or where there are few), else grey."""
    figure, colours = _empty(trace, unit), _colours(trace)
    for at in sorted(range(len(trace.brokers)), key=lambda at: trace.brokers[at] in colours):
        broker = trace.brokers[at]
        times, line = thinned(_times(trace), values[:, at])
        named = broker in colours
        figure.add_scatter(
            x=times,
            y=line,
            mode="lines",
            name=broker if named else "the others",
            showlegend=named or at == _first_other(trace, colours),
            legendgroup=broker if named else "the others",
            line={"color": colours.get(broker, OTHERS), "width": 2 if named else 1, "shape": "hv"},
            hovertemplate=f"{broker}: %{{y:.1f}} at %{{x:.1f}}<extra></extra>",
        )
    return figure


def _colours(trace: Trace) -> dict[str, str]:
    """Of the brokers that gave or took most bundles, and of those first by name while there are colours left."""
    touched = Counter(end for move in trace.moves for end in (move.source, move.destination))
    first = [broker for broker, _ in touched.most_common()]
    named = dict.fromkeys([*first, *(trace.brokers if len(trace.brokers) <= len(COLOURS) else ())])
    return dict(zip(sorted(list(named)[: len(COLOURS)]), COLOURS, strict=False))


def _first_other(trace: Trace, colours: dict[str, str]) -> int | None:
    return next((at for at, broker in enumerate(trace.brokers) if broker not in colours), None)


def _mark(
    figure: graph_objects.Figure, trace: Trace, marks: tuple[Transfer, ...], end: str, name: str, symbol: str
) -> None:
    """Where the line of that end stood at the turn before."""
    position = {broker: at for at, broker in enumerate(trace.brokers)}
    times, points, colours = _times(trace), trace.points(), _colours(trace)
    ends = [getattr(one, end) for one in marks]
    figure.add_scatter(
        x=[times[one.look] for one in marks],
        y=[points[one.look, position[broker]] for one, broker in zip(marks, ends, strict=True)],
        mode="markers",
        name=name,
        marker={
            "symbol": symbol,
            "size": 11,
            "color": [colours.get(broker, OTHERS) for broker in ends],
            "line": {"color": "black", "width": 1},
        },
        text=[_move_text(one) for one in marks],
        hovertemplate="%{text}<extra></extra>",
    )


def _mark_splits(figure: graph_objects.Figure, trace: Trace) -> None:
    """On the owner's line, at the turn that chose it."""
    position = {broker: at for at, broker in enumerate(trace.brokers)}
    looks = np.searchsorted(trace.seconds(), [one.seconds for one in trace.splits], side="right") - 1
    times, points = _times(trace), trace.points()
    figure.add_scatter(
        x=times[looks],
        y=[points[look, position[one.owner]] for look, one in zip(looks, trace.splits, strict=True)],
        mode="markers",
        name="a bundle is split",
        marker={"symbol": "x", "size": 9, "color": "black"},
        text=[f"{one.bundle}: {one.parts} parts, by {one.by}" for one in trace.splits],
        hovertemplate="%{text}<extra></extra>",
    )


def _move_text(one: Transfer) -> str:
    return f"{one.source} to {one.destination}: {counted(one.bundles, 'bundle')}, {one.throughput / 1e6:,.1f} MB/s"


def _empty(trace: Trace, unit: str) -> graph_objects.Figure:
    end = max(float(_times(trace)[-1]), 1 / 60)
    layout: dict[str, Any] = {
        "template": "plotly_white",
        "height": 420,
        "margin": {"l": 60, "r": 20, "t": 40, "b": 50},
        "hovermode": "closest",
        "legend": {"tracegroupgap": 0},
        "xaxis": {
            "title": f"{'hours' if _in_hours(trace) else 'minutes'} since the beginning",
            "range": [-end / 100, end],
        },
        "yaxis": {"title": unit},
    }
    return graph_objects.Figure(layout=layout)


def _in_hours(trace: Trace) -> bool:
    return trace.seen[-1].seconds > MINUTES_UP_TO_HOURS * 3600


def _times(trace: Trace) -> FloatArray:
    return trace.seconds() / (3600 if _in_hours(trace) else 60)


# --- page

TEMPLATE = Path(__file__).with_name("report.html")
NOT_OF_A_SIMULATION = {"pulsar", "state_dir", "log", "in_broker_shedding", "restore_on_stop"}
"""Settings that no simulated turn asks for."""


def page(runs: Sequence[Finished]) -> str:
    """HTML with charts of the first run, and the figures of all."""
    first = runs[0]
    title = escape(f"lbd simulate {first.name}, seed {first.seed}")
    body = "\n".join((*_run_summary(first), *_charts(first), *_tables(runs), *_sources(first)))
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(title=title, script=get_plotlyjs(), body=body)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table; all but its first ``words`` columns are numbers."""
    lines = [_row("th", head, words), *(_row("td", row, words) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def _row(kind: str, cells: Sequence[str], words: int) -> str:
    marks = ("" if at < words else ' class="number"' for at in range(len(cells)))
    inner = (f"<{kind}{mark}>{escape(cell)}</{kind}>" for mark, cell in zip(marks, cells, strict=True))
    return f"<tr>{''.join(inner)}</tr>"


def _run_summary(run: Finished) -> Iterator[str]:
    yield f"<p>{escape(run.scenario.about)}</p>"
    if run.scenario.stock:
        yield f'<p class="dim">Pulsar alone: {escape(run.scenario.stock)}</p>'
    yield f"<p><b>In the end, by reports whose CPU is a noisy sample of a minute:</b> {escape(run.sentence)}</p>"


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


def _spread_row(figure: Figure, first: float | None, over: FigureSpread) -> tuple[str, ...]:
    return figure.label, *map(figure.told, (first, over.median, over.lowest, over.highest))


def _evenness(of: Mapping[str, float | None]) -> str:
    """The figures of several moments, side by side."""
    rows = [(one.label, *(one.told(of[f"{section}.{one.name}"]) for section in WHEN)) for one in EVENNESS]
    return table(("true scores", *WHEN.values()), rows)


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
