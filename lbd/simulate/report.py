"""A page of simulated runs that opens without a network: charts, scorecard, moves, scenario and settings."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from lbd.charts.chart import COLOURS, Chart, Line, Mark, Marks, Threshold
from lbd.charts.page import page as html_page
from lbd.charts.page import table
from lbd.score.gap import gaps
from lbd.score.scorecard import EVENNESS, FIGURES, RUN, WHEN, clock, figures, spread, transfers
from lbd.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lbd.charts.chart import Colour
    from lbd.model import FloatArray
    from lbd.score.scorecard import Trace, Transfer
    from lbd.simulate.run import Finished


MINUTES_UP_TO_HOURS = 4
"""A longer run is drawn in hours."""


def score_chart(trace: Trace, title: str = "Score of each broker") -> Chart:
    """Score of each broker, with a mark on both ends of each transfer."""
    lines = _broker_lines(trace, trace.points())
    return Chart(title, _x_label(trace), "points", lines, tuple(_marks(trace)), y_reaches=100.0)


def traffic_chart(trace: Trace) -> Chart:
    """MB/s through each broker, in + out."""
    lines = _broker_lines(trace, trace.carried() / 1e6)
    return Chart("Traffic of each broker", _x_label(trace), "MB/s, in + out", lines)


def gap_chart(traces: Mapping[str, Trace], low_threshold: float, high_threshold: float) -> Chart:
    """Points between the highest and the lowest score of each trace, by name, and the two thresholds.

    A grey line is the gap of the first one had nothing moved.
    """
    first, *_ = traces.values()
    unmoved, lines = first.unmoved(), []
    if unmoved is not None and first.moves:
        lines.append(Line("had nothing moved", _times(first), gaps(unmoved), "grey", step=True))
    for index, (name, trace) in enumerate(traces.items()):
        colour = COLOURS[index % len(COLOURS)]
        lines.append(Line(name, _times(trace), gaps(trace.points()), colour, step=True))
    thresholds = (
        Threshold("low threshold", low_threshold, "orange"),
        Threshold("high threshold", high_threshold, "vermilion"),
    )
    title = "Between the highest and the lowest"
    return Chart(title, _x_label(first), "points", tuple(lines), thresholds=thresholds)


def _broker_lines(trace: Trace, values: FloatArray) -> tuple[Line, ...]:
    """A line for each broker: coloured and named where moves touched it (or where there are few), else grey."""
    colours, times = _colours(trace), _times(trace)
    order = sorted(range(len(trace.brokers)), key=lambda index: trace.brokers[index] in colours)
    return tuple(
        Line(
            broker,
            times,
            values[:, index],
            colours.get(broker, "grey"),
            step=True,
            group="" if broker in colours else "the others",
        )
        for index, broker in ((index, trace.brokers[index]) for index in order)
    )


def _colours(trace: Trace) -> dict[str, Colour]:
    """Colours for the brokers that gave or took most bundles, then for the first by name while there are any left."""
    touched = Counter(end for move in trace.moves for end in (move.source, move.destination))
    first = [broker for broker, _ in touched.most_common()]
    named = dict.fromkeys([*first, *(trace.brokers if len(trace.brokers) <= len(COLOURS) else ())])
    return dict(zip(sorted(list(named)[: len(COLOURS)]), COLOURS, strict=False))


def _marks(trace: Trace) -> Iterator[Marks]:
    """Both ends of each transfer, where the line of that end was at the turn before; and splits, on the owner's line at
    the turn that chose them.
    """
    position = {broker: at for at, broker in enumerate(trace.brokers)}
    times, points, colours = _times(trace), trace.points(), _colours(trace)

    def mark(look: int, broker: str, text: str) -> Mark:
        x, y = float(times[look]), float(points[look, position[broker]])
        return Mark(round(x, 3), round(y, 2), text, colours.get(broker, "grey"))

    moved = transfers(trace)
    if moved:
        texts = [_move_text(move) for move in moved]
        gives = (mark(move.look, move.source, text) for move, text in zip(moved, texts, strict=True))
        takes = (mark(move.look, move.destination, text) for move, text in zip(moved, texts, strict=True))
        yield Marks("gives bundles", "down", tuple(gives))
        yield Marks("takes bundles", "up", tuple(takes))
    if trace.splits:
        looks = np.searchsorted(trace.seconds(), [split.seconds for split in trace.splits], side="right") - 1
        marks = (
            mark(look, split.owner, f"{split.bundle}: {split.parts} parts, by {split.by}")
            for look, split in zip(looks.tolist(), trace.splits, strict=True)
        )
        yield Marks("a bundle is split", "cross", tuple(marks))


def _move_text(move: Transfer) -> str:
    carried = f"{counted(move.bundles, 'bundle')}, {move.throughput / 1e6:,.1f} MB/s"
    return f"{move.source} to {move.destination}: {carried}"


def _x_label(trace: Trace) -> str:
    return f"{'hours' if _in_hours(trace) else 'minutes'} since the beginning"


def _in_hours(trace: Trace) -> bool:
    return trace.truths[-1].seconds > MINUTES_UP_TO_HOURS * 3600


def _times(trace: Trace) -> FloatArray:
    return trace.seconds() / (3600 if _in_hours(trace) else 60)


# --- page

NOT_OF_A_SIMULATION = {"pulsar", "state_dir", "log", "in_broker_shedding", "restore_on_stop"}
"""Settings that no simulated turn asks for."""


def page(runs: Sequence[Finished]) -> str:
    """HTML with charts of the first run, and the figures of all."""
    first = runs[0]
    title = f"lbd simulate {first.label}, seed {first.seed}"
    return html_page(title, (*_run_summary(first), *_charts(first), *_tables(runs), *_sources(first)))


def _run_summary(run: Finished) -> Iterator[str]:
    yield f"<p><b>{escape(run.conclusion)}</b></p>"
    yield f"<p>{escape(run.scenario.about)}</p>"
    if run.scenario.stock:
        yield f'<p class="dim">Pulsar alone: {escape(run.scenario.stock)}</p>'


def _charts(run: Finished) -> Iterator[Chart]:
    limits = run.settings.avg_shedder
    yield score_chart(run.trace)
    yield gap_chart({"gap": run.trace}, limits.low_threshold, limits.high_threshold)
    yield traffic_chart(run.trace)


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
        return _evenness(first) + table(("", ""), [(row.label, row.text(first[row.name])) for row in RUN])
    head = ("", f"seed {runs[0].seed}", f"median of {len(runs)}", "lowest", "highest")
    rows = []
    for row in FIGURES:
        over = spreads[row.name]
        rows.append((row.label, *map(row.text, (first[row.name], over.median, over.lowest, over.highest))))
    return table(head, rows)


def _evenness(of: Mapping[str, float | None]) -> str:
    """The figures of several moments, side by side."""
    rows = [(row.label, *(row.text(of[f"{section}.{row.name}"]) for section in WHEN)) for row in EVENNESS]
    return table(("true scores", *WHEN.values()), rows)


def _moves(trace: Trace) -> str:
    if not trace.moves:
        return "<p>None.</p>"
    rows = [
        (move.clock, move.source, move.destination, str(move.bundles), f"{move.throughput / 1e6:,.1f}")
        for move in transfers(trace)
    ]
    return table(("at", "from", "to", "bundles", "MB/s"), rows, words=3)


def _splits(trace: Trace) -> str:
    rows = [(clock(row.seconds), row.bundle, row.owner, row.by, str(row.parts)) for row in trace.splits]
    return table(("at", "bundle", "on", "by", "parts"), rows, words=4)


def _sources(run: Finished) -> Iterator[str]:
    yield from _yaml("Scenario", run.scenario.model_dump(mode="json", exclude_defaults=True))
    yield from _yaml("Settings", run.settings.model_dump(mode="json", exclude=NOT_OF_A_SIMULATION))


def _yaml(title: str, values: dict[str, Any]) -> Iterator[str]:
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110)
    yield f"<h2>{title}</h2>"
    yield f"<details><summary>as YAML</summary><pre>{escape(text)}</pre></details>"
