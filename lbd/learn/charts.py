"""The charts of a calibration's page. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from lbd.learn.candidates import PRESENT
from lbd.learn.choosing import moves_per_day
from lbd.score.evenness import gaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.learn.calibrate import Calibration, Shown
    from lbd.model import FloatArray

RECORDED, NOW, PROPOSED, OTHERS = "#a0a0a0", "#4f86c6", "#2e7d4f", "#a0a0a0"
MARGIN = {"l": 60, "r": 20, "t": 30, "b": 50}
LEGEND = {"orientation": "h", "y": 1.02, "x": 0, "yanchor": "bottom"}


def _plain(x: str, y: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template="plotly_white",
        margin=MARGIN,
        legend=LEGEND,
        showlegend=True,
        xaxis={"title": x},
        yaxis={"title": y, "rangemode": "tozero"},
    )
    return figure


def gap(found: Calibration) -> go.Figure:
    """The last window: as it was, and as it would have been, with the rounds that moved something."""
    shown, figure = found.shown, _plain("UTC", "points")
    _line(figure, shown, shown.recorded, "as recorded", RECORDED)
    _line(figure, shown, shown.present, "present settings", NOW, shown.moves[0])
    thresholds = {"present": (found.tried[PRESENT].settings.low_threshold, NOW)}
    if shown.chosen is not None and found.recommended is not None:
        _line(figure, shown, shown.chosen, f"proposed: {found.choice.recommended}", PROPOSED, shown.moves[1])
        thresholds["proposed"] = (found.recommended.settings.low_threshold, PROPOSED)
    for name, (threshold, colour) in thresholds.items():
        side = "top left" if name == "proposed" else "top right"
        figure.add_hline(
            y=threshold,
            line={"dash": "dot", "color": colour, "width": 1},
            annotation={"text": f"low threshold, {name}", "font": {"color": colour}},
            annotation_position=side,
        )
    return figure


def _line(
    figure: go.Figure, shown: Shown, points: FloatArray, name: str, colour: str, moves: Sequence[float] = ()
) -> None:
    seen = np.isfinite(points).sum(axis=1) > 1
    at, apart = shown.at[seen], gaps(points[seen])
    figure.add_scatter(
        x=at.astype("datetime64[s]"), y=apart, name=name, mode="lines", line={"color": colour, "width": 1.5}
    )
    moved = np.isin(at, np.asarray(moves))
    if moved.any():
        figure.add_scatter(
            x=at[moved].astype("datetime64[s]"),
            y=apart[moved],
            mode="markers",
            marker={"color": colour, "size": 8},
            showlegend=False,
            hovertext="moves",
        )


def day(found: Calibration) -> go.Figure:
    """The profile of a day, over all days."""
    figure, daily = _plain("hour of the day, UTC", "points"), found.told.daily
    lines = (("mean score of all brokers", "score", OTHERS), ("mean gap", "gap", NOW), ("p95 gap", "p95", "#e9a23b"))
    for name, key, colour in lines:
        x, y = [one["hour"] for one in daily], [one[key] for one in daily]
        figure.add_scatter(x=x, y=y, name=name, line={"color": colour})
    return figure


def front(found: Calibration) -> go.Figure:
    """Moves against gap of all that was tried; those that none beat on both, the present and the proposed stand out."""
    figure, choice = _plain("moves a day", "p95 gap, points"), found.choice
    told = (
        ("others", OTHERS, 7, [one for one in choice.judged if not one.front]),
        ("none had both fewer moves and a smaller gap", "#e9a23b", 9, [one for one in choice.judged if one.front]),
        ("present", NOW, 14, [one for one in choice.judged if one.name == PRESENT]),
        ("proposed", PROPOSED, 14, [one for one in choice.judged if one.name == choice.recommended]),
    )
    for label, colour, size, own in told:
        figure.add_scatter(
            x=[moves_per_day(one.trained) for one in own],
            y=[one.trained.p95_gap for one in own],
            text=[one.name for one in own],
            name=label,
            mode="markers",
            marker={"color": colour, "size": size},
            cliponaxis=False,
        )
    figure.update_xaxes(rangemode="tozero")
    return figure
