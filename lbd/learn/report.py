"""``report.html``: the evidence as charts, in one page that opens without a network."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from lbd.learn import proposal
from lbd.learn.candidates import PRESENT
from lbd.learn.choosing import cost, moves_per_day
from lbd.load.linear import CPU
from lbd.score.evenness import gaps
from lbd.simulate.report import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.learn.calibrate import Calibration

TEMPLATE = Path(__file__).parent.parent / "simulate" / "report.html"
MIB = 1024.0 * 1024.0
PAIRS = 5
"""Shown of the pairs of a round: the others are closer."""


def page(found: Calibration) -> str:
    """The page."""
    body = "\n".join((*_words(found), *_gap(found), *_lasting(found), *_day(found), *_front(found), *_fits(found)))
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title="lbd calibrate", script=get_plotlyjs(), body=body
    )


def _words(found: Calibration) -> Iterator[str]:
    yield from (f"<p>{escape(line)}</p>" for line in proposal.evidence(found))


def _chart(title: str, figure: go.Figure) -> Iterator[str]:
    options: dict[str, Any] = {"displaylogo": False, "responsive": True}
    yield f"<h2>{escape(title)}</h2>"
    yield figure.to_html(full_html=False, include_plotlyjs=False, default_height="420px", config=options)


def _gap(found: Calibration) -> Iterator[str]:
    """The last window: as it was, and as it would have been."""
    shown, figure = found.shown, go.Figure()
    at = shown.at.astype("datetime64[s]")
    lines = [("as recorded", shown.recorded), ("present settings", shown.present)]
    if shown.chosen is not None:
        lines.append((str(found.choice.recommended), shown.chosen))
    for name, points in lines:
        seen = np.isfinite(points).sum(axis=1) > 1
        figure.add_scatter(x=at[seen], y=gaps(points[seen]), name=name, mode="lines")
    thresholds = {"present": found.tried[PRESENT].settings.low_threshold}
    if found.recommended is not None:
        thresholds["proposed"] = found.recommended.settings.low_threshold
    for name, threshold in thresholds.items():
        figure.add_hline(y=threshold, line_dash="dot", annotation_text=f"low threshold, {name}")
    figure.update_layout(yaxis={"title": "points", "rangemode": "tozero"}, xaxis_title="UTC", showlegend=True)
    yield from _chart("Between the highest and the lowest score, in the last window", figure)


def _lasting(found: Calibration) -> Iterator[str]:
    """How often and how long brokers were far apart, and between which pairs."""
    yield "<h2>How often and how long brokers were apart, as recorded</h2>"
    rows = [
        (f"{one['threshold']:g} points", f"{one['times']:,}", f"{one['median']:.0f} min", f"{one['longest']:,} min",
         f"{one['share']:.1%}")
        for one in found.told.lasting
    ]  # fmt: skip
    yield table(("at least", "times", "median", "longest", "of the time"), rows)
    ranks = [(_pair(one["pair"]), f"{one['mean']:.1f}", f"{one['p95']:.1f}") for one in found.told.pairs[:PAIRS]]
    yield table(("pair", "mean gap, points", "p95 gap"), ranks)


def _pair(rank: int) -> str:
    return "most and least loaded" if rank == 1 else f"number {rank} from above and from below"


def _day(found: Calibration) -> Iterator[str]:
    """The profile of a day, over all days."""
    figure, daily = go.Figure(), found.told.daily
    for name, key in (("mean score of all brokers", "score"), ("mean gap", "gap"), ("p95 gap", "p95")):
        figure.add_scatter(x=[one["hour"] for one in daily], y=[one[key] for one in daily], name=name)
    figure.update_layout(yaxis={"title": "points", "rangemode": "tozero"}, xaxis_title="hour of the day, UTC")
    yield from _chart("The day", figure)


def _front(found: Calibration) -> Iterator[str]:
    """Moves against gap, of all that was tried."""
    figure = go.Figure()
    for label, chosen in (("others", False), ("none had both fewer moves and a smaller gap", True)):
        own = [one for one in found.choice.judged if one.front is chosen]
        figure.add_scatter(
            x=[moves_per_day(one.trained) for one in own],
            y=[one.trained.p95_gap for one in own],
            text=[one.name for one in own],
            name=label,
            mode="markers",
        )
    figure.update_layout(
        xaxis={"title": "moves a day", "rangemode": "tozero"},
        yaxis={"title": "p95 gap, points", "rangemode": "tozero"},
        legend={"orientation": "h", "y": 1.1},
    )
    yield from _chart("What was tried, on the time it was chosen on", figure)
    rows = [
        (one.name, *_cells(one.trained), *_cells(one.held_out))
        for one in sorted(found.choice.judged, key=lambda one: cost(one.trained))[:12]
    ]
    columns = ("moves a day", "p95 gap", "cost, points")
    head = ("settings", *(f"{name}, {part}" for part in ("chosen on", "judged on") for name in columns))
    yield table(head, rows)


def _cells(figures: Any) -> tuple[str, str, str]:  # noqa: ANN401 - Figures
    return f"{moves_per_day(figures):.1f}", f"{figures.p95_gap:.1f}", f"{cost(figures):.1f}"


def _fits(found: Calibration) -> Iterator[str]:
    yield "<h2>Brokers</h2>"
    model = found.model
    bytes_drive = model.measure == "throughput"
    factor, unit = (MIB, "MiB/s") if bytes_drive else (1000.0, "1,000 msg/s")
    rows = [
        (
            broker,
            f"{model.background[at, CPU]:.1f}",
            f"{model.slope[at, CPU] * factor:.2f}",
            f"{model.noise[at, CPU]:.1f}",
            model.sources[at][CPU].value,
            *_restless(found, broker),
            f"{model.samples[at]:,}",
        )
        for at, broker in enumerate(model.brokers)
    ]
    traffic = f"points for each {unit} in + out"
    head = ("broker", "CPU without traffic", traffic, "noise beside the fit", "known from", "noise of the score",
            "its time scale", "spikes", "samples")  # fmt: skip
    yield table(head, rows)


def _restless(found: Calibration, broker: str) -> tuple[str, str, str]:
    """Noise of the score, its time scale, and the number of spikes."""
    told = found.told.noise.get(broker)
    if told is None:
        return "", "", ""
    return f"{told['noise']:.1f}", f"{told['time_scale']:.1f} min", f"{told['spikes']:,}"
