"""Charts of a run: scores with the moves marked, traffic, and the gap against its thresholds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from plotly import graph_objects

from lbd.score.evenness import gaps
from lbd.score.transfers import transfers
from lbd.words import counted

if TYPE_CHECKING:
    from lbd.model import FloatArray
    from lbd.score.trace import Trace
    from lbd.score.transfers import Transfer

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
    kept = np.unique(np.concatenate((low, high)))
    return times[kept], np.round(values[kept], 2)


def _lines(trace: Trace, values: FloatArray, unit: str) -> graph_objects.Figure:
    """A line for each broker: coloured and named where moves touched it (or where there are few), else grey."""
    figure, colours = _empty(trace, unit), _colours(trace)
    for at in sorted(range(len(trace.brokers)), key=lambda at: trace.brokers[at] in colours):
        broker = trace.brokers[at]
        times, line = thinned(_times(trace), values[:, at])
        told = broker in colours
        figure.add_scatter(
            x=times,
            y=line,
            mode="lines",
            name=broker if told else "the others",
            showlegend=told or at == _first_other(trace, colours),
            legendgroup=broker if told else "the others",
            line={"color": colours.get(broker, OTHERS), "width": 2 if told else 1, "shape": "hv"},
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
        text=[_told(one) for one in marks],
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


def _told(one: Transfer) -> str:
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
