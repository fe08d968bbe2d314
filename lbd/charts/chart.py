"""A chart as a value: lines, marks and thresholds. Its HTML is a place in a page and JSON for charts.js. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from lbd.model import FloatArray

Colour = Literal[
    "blue", "vermilion", "green", "pink", "orange", "sky", "purple", "brown", "olive", "text", "grey"
]  # fmt: skip
"""A name of the page's palette, which has one value for light and one for dark."""

COLOURS: tuple[Colour, ...] = (
    "blue", "vermilion", "green", "pink", "orange", "sky", "purple", "brown", "olive", "text",
)  # fmt: skip
"""For lines, in this order. The first six are near Okabe and Ito's, which people who see no red or green tell apart."""

MOST_POINTS = 1000
"""Most points of a line: more than the pixels of a screen's width."""


@dataclass(frozen=True, eq=False)
class Line:
    """``y`` over ``x``, float64 (T,) both, ``x`` ascending; NaN is a gap. ``step``: a value holds until the next one.

    Lines of one ``group`` share an entry in the legend, and are thin.
    """

    name: str
    x: FloatArray
    y: FloatArray
    colour: Colour
    step: bool = False
    group: str = ""


@dataclass(frozen=True)
class Mark:
    """A point, and the text that is shown when the pointer is on it. One whose ``y`` is NaN is not drawn."""

    x: float
    y: float
    text: str
    colour: Colour


@dataclass(frozen=True)
class Marks:
    """Marks of one kind, with one entry in the legend."""

    name: str
    symbol: Literal["up", "down", "cross", "dot"]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Threshold:
    """A horizontal line with its name."""

    name: str
    y: float
    colour: Colour


@dataclass(frozen=True, eq=False)
class Chart:
    """The y axis begins at 0 and reaches ``y_reaches`` at least. ``time``: x is seconds since 1970, shown in UTC.

    The x axis is as long as the data; ``x_from_zero`` has it begin at 0.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...] = ()
    marks: tuple[Marks, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    y_reaches: float = 0.0
    x_from_zero: bool = False
    time: bool = False

    def html(self, most_points: int) -> str:
        """Return a heading and the chart under it; its lines have at most ``most_points`` points together."""
        names = dict.fromkeys([line.group or line.name for line in self.lines] + [series.name for series in self.marks])
        label = f"{self.title}: {self.y_label} over {self.x_label}. {', '.join(names)}."
        return (
            f'<figure class="chart"><figcaption>{escape(self.title)}</figcaption>'
            f'<div class="plot" role="img" aria-label="{escape(label)}"></div>'
            f'<script type="application/json">{self._json(most_points)}</script></figure>'
        )

    def _json(self, most_points: int) -> str:
        """JSON in which nothing ends a script; lines with the same x share it."""
        most = min(MOST_POINTS, most_points // max(len(self.lines), 1))
        positions: dict[tuple[float | None, ...], int] = {}
        lines = []
        for line in self.lines:
            x, y = thinned(line.x, line.y, most)
            index = positions.setdefault(tuple(_numbers(x, 3)), len(positions))
            lines.append(
                {"name": line.name, "x": index, "y": _numbers(y, 2), "colour": line.colour, "step": line.step}
                | ({"group": line.group} if line.group else {})
            )
        values: dict[str, Any] = {
            "x_label": self.x_label,
            "y_label": self.y_label,
            "y_reaches": self.y_reaches,
            "x_from_zero": self.x_from_zero,
            "time": self.time,
            "xs": list(positions),
            "lines": lines,
            "marks": [
                {**asdict(series), "marks": [asdict(mark) for mark in series.marks if np.isfinite(mark.y)]}
                for series in self.marks
            ],
            "thresholds": [asdict(threshold) for threshold in self.thresholds],
        }
        return json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _numbers(values: FloatArray, digits: int) -> list[float | None]:
    """JSON has no NaN: null stands for it."""
    return [value if np.isfinite(value) else None for value in np.round(values, digits).tolist()]


def thinned(x: FloatArray, y: FloatArray, most: int = MOST_POINTS) -> tuple[FloatArray, FloatArray]:
    """The lowest and the highest value of each stretch of x, where there are more than ``most``; float64 (T,) both.

    The first and the last value stay as well: "now" is the same on a chart of an hour and of a week. A stretch without
    any value stays a gap in the line.
    """
    if y.size <= most:
        return x, y
    stretches = np.array_split(np.arange(y.size), max(most // 2 - 1, 1))
    low = [at[np.nan_to_num(y[at], nan=np.inf).argmin()] for at in stretches]
    high = [at[np.nan_to_num(y[at], nan=-np.inf).argmax()] for at in stretches]
    shown = np.unique(np.concatenate((low, high, [0, y.size - 1])))
    return x[shown], y[shown]
