"""The output of a calibration: settings with their evidence, the same as broker.conf, reasons, and a page. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from plotly.offline import get_plotlyjs

from lbd.config import strategy_section
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.files import as_usage_error
from lbd.learn.choose import PRESENT, cost, moves_per_day
from lbd.load.estimate import CPU, Source
from lbd.load.settings import UNIT
from lbd.score.scorecard import gaps
from lbd.simulate.report import table
from lbd.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lbd.learn.calibrate import Calibration, WindowScores
    from lbd.learn.choose import Judged, SettingsCandidate
    from lbd.learn.replay import Figures
    from lbd.load.estimate import LoadModel
    from lbd.model import FloatArray


def settings_file(calibration: Calibration) -> str:
    """``proposal.yaml``: what differs from the present settings, with the evidence as comments, and what traffic costs
    each broker that showed it. ``lbd config check`` accepts it; where nothing is recommended no strategy's setting is
    in it.
    """
    lines = [f"# {line}" for line in evidence(calibration)]
    best = calibration.recommended
    if best is not None:
        lines += ["", yaml.safe_dump(_changed(best, calibration.tried[PRESENT]), sort_keys=False).rstrip()]
    known = _load(calibration.model)
    if known:
        lines += ["", yaml.safe_dump({"load": known}, sort_keys=False).rstrip()]
    return "\n".join(lines) + "\n"


def _changed(best: SettingsCandidate, present: SettingsCandidate) -> dict[str, Any]:
    """What differs from the present settings; all of another strategy's own where its defaults do not say it."""
    strategy = type(best.settings).name
    same = strategy == type(present.settings).name
    before = (present.settings if same else type(best.settings)()).model_dump(mode="json")
    values = {key: value for key, value in best.settings.model_dump(mode="json").items() if value != before[key]}
    section = {strategy_section(strategy): values} if values else {}
    return section if same else {"strategy": strategy, **section}


def _load(model: LoadModel) -> dict[str, object]:
    """The ``load:`` section with what brokers' own samples tell, in its units; empty where none tells anything.

    Traffic that costs nothing is told by noise, and no setting.
    """
    brokers = [
        {"broker": broker, "slope": float(f"{model.slope[at, CPU] * UNIT[model.measure]:.4g}")}
        for at, broker in enumerate(model.brokers)
        if model.sources[at][CPU] is Source.FITTED and model.slope[at, CPU] > 0
    ]
    return {"measure": model.measure, "brokers": brokers} if brokers else {}


def broker_conf(calibration: Calibration) -> str:
    """The same for clusters that balance with the brokers' own AvgShedder."""
    best = calibration.recommended
    lines = [f"# {line}" for line in evidence(calibration)]
    if best is not None and not isinstance(best.settings, AvgShedderSettings):
        lines.append(f"# {type(best.settings).name} is lbd's own: brokers do not have it.")
    elif best is not None:
        fields = type(best.settings).model_fields
        present = _before(calibration)
        for key, value in best.settings.model_dump(mode="json").items():
            extra = fields[key].json_schema_extra
            if value != present[key] and isinstance(extra, dict) and "broker_conf" in extra:
                lines.append(
                    f"{extra['broker_conf']}={value:g}"
                    if isinstance(value, float)
                    else f"{extra['broker_conf']}={value}"
                )
    return "\n".join(lines) + "\n"


def _before(calibration: Calibration) -> dict[str, Any]:
    """AvgShedder's settings in force, or its defaults where another strategy is."""
    present = calibration.tried[PRESENT].settings
    return (present if isinstance(present, AvgShedderSettings) else AvgShedderSettings()).model_dump(mode="json")


def evidence(calibration: Calibration) -> Iterator[str]:
    """The evidence for these numbers, one sentence a line."""
    history = f"{calibration.days:.1f} days of history in windows of {calibration.window_hours:g} h"
    yield f"{history}, {len(calibration.tried)} settings tried."
    yield from _read(calibration)
    if calibration.torn:
        yield f"{len(calibration.torn):,} files could not be read and are left out, the first: {calibration.torn[0]}."
    yield _model_error(calibration)
    yield from calibration.remarks
    yield answer(calibration)
    for one in calibration.choice.judged:
        if one.name in {PRESENT, calibration.choice.best}:
            yield from _judged(one)


def _read(calibration: Calibration) -> Iterator[str]:
    """What was read and left out."""
    read = calibration.read
    back = read["rounds_overtaken"]
    twice = read["rounds_read"] - read["rounds_kept"] - back
    yield (
        f"{read['samples_read']:,} samples read, {read['samples_kept']:,} used, {read['samples_doubted']:,} of them "
        f"not trusted; {twice:,} rounds were there twice, {read['gaps']:,} gaps."
    )
    if back:
        yield f"{back:,} rounds are left out: later turns have earlier times, as when a clock was set back."


def answer(calibration: Calibration) -> str:
    """What is recommended, or that nothing is, and why."""
    choice = calibration.choice
    if choice.recommended is None:
        return f"Nothing is recommended: {choice.why}."
    return f"Recommended: {choice.recommended}; {choice.why}."


def changed_settings(best: SettingsCandidate, present: SettingsCandidate) -> list[tuple[str, object, object]]:
    """Each setting that differs, by its name in lbd.yaml: what it is, and what is proposed."""
    strategy, before = type(best.settings).name, present.settings.model_dump(mode="json")
    changes: list[tuple[str, object, object]] = []
    if strategy != type(present.settings).name:
        changes.append(("strategy", type(present.settings).name, strategy))
    for key, value in best.settings.model_dump(mode="json").items():
        if value != before.get(key):
            changes.append((f"{strategy_section(strategy)}.{key}", before.get(key, "-"), value))
    return changes


def _judged(one: Judged) -> Iterator[str]:
    for when, figures in (("chosen on", one.trained), ("judged on", one.held_out)):
        yield f"{one.name}, {when} {figures.days:.1f} replayed days: {figures_text(figures)}"


def figures_text(figures: Figures) -> str:
    """Figures in a line."""
    over, twice = a_day(figures, figures.minutes_over), a_day(figures, figures.moved_twice)
    return (
        f"{moves_per_day(figures):.1f} moves a day, brokers {figures.mean_gap:.1f} points apart on average, 95 % of "
        f"the time at most {figures.p95_gap:.1f}, worst hour {figures.worst_hour_gap:.1f}, {over:.0f} min a day over "
        f"the present threshold, {twice:.1f} bundles a day moved twice, cost {cost(figures):.1f} points"
    )


def a_day(figures: Figures, total: float) -> float:
    """A sum over all replays, divided by their days: some settings were replayed five times, others once."""
    return total / figures.days if figures.days else 0.0


def _model_error(calibration: Calibration) -> str:
    error = calibration.error
    if not error.number:
        return "No move in this history tells how good the load model is."
    return (
        f"The load model was off by {error.mean_absolute:.1f} points on average ({error.p95:.1f} at most in 95 of 100) "
        f"on {counted(error.number, 'broker')} whose bundles really changed; taking nothing to change errs by "
        f"{error.unchanged_mean_absolute:.1f}."
    )


# --- charts

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


def gap(calibration: Calibration) -> go.Figure:
    """The last window: as it was, and as it would have been, with the rounds that moved something."""
    shown, figure = calibration.shown, _plain("UTC", "points")
    _line(figure, shown, shown.recorded, "as recorded", RECORDED)
    _line(figure, shown, shown.present, "present settings", NOW, shown.moves[0])
    thresholds = {"present": (calibration.tried[PRESENT].settings.low_threshold, NOW)}
    if shown.chosen is not None and calibration.recommended is not None:
        _line(figure, shown, shown.chosen, f"proposed: {calibration.choice.recommended}", PROPOSED, shown.moves[1])
        thresholds["proposed"] = (calibration.recommended.settings.low_threshold, PROPOSED)
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
    figure: go.Figure, shown: WindowScores, points: FloatArray, name: str, colour: str, moves: Sequence[float] = ()
) -> None:
    comparable = np.isfinite(points).sum(axis=1) > 1
    at, apart = shown.at[comparable], gaps(points[comparable])
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


def day(calibration: Calibration) -> go.Figure:
    """The profile of a day, over all days."""
    figure, daily = _plain("hour of the day, UTC", "points"), calibration.features.daily
    lines = (("mean score of all brokers", "score", OTHERS), ("mean gap", "gap", NOW), ("p95 gap", "p95", "#e9a23b"))
    for name, key, colour in lines:
        x, y = [one["hour"] for one in daily], [one[key] for one in daily]
        figure.add_scatter(x=x, y=y, name=name, line={"color": colour})
    return figure


def front(calibration: Calibration) -> go.Figure:
    """Moves against gap of all candidates; the Pareto front, the present and the proposed settings stand out."""
    figure, choice = _plain("moves a day", "p95 gap, points"), calibration.choice
    groups = (
        ("others", OTHERS, 7, [one for one in choice.judged if not one.front]),
        ("none had both fewer moves and a smaller gap", "#e9a23b", 9, [one for one in choice.judged if one.front]),
        ("present", NOW, 14, [one for one in choice.judged if one.name == PRESENT]),
        ("proposed", PROPOSED, 14, [one for one in choice.judged if one.name == choice.recommended]),
    )
    for label, colour, size, own in groups:
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


# --- ``report.html``: the evidence as charts, in one page that opens without a network

TEMPLATE = Path(__file__).parent.parent / "simulate" / "report.html"
MIB = 1024.0 * 1024.0
PAIRS = 5
"""Shown of the pairs of a round: the others are closer."""

SHOWN = 12
"""Of what was tried, so many are in the table, the cheapest first; all are in the chart and in the file beside."""


def page(calibration: Calibration) -> str:
    """The page: what is recommended and how it did, then what that is built on."""
    parts = (
        _answer(calibration),
        _gap(calibration),
        _front(calibration),
        _lasting(calibration),
        _day(calibration),
        _fits(calibration),
        _summary_lines(calibration),
    )
    body = "\n".join(line for part in parts for line in part)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title="lbd calibrate", script=get_plotlyjs(), body=body
    )


def _answer(calibration: Calibration) -> Iterator[str]:
    """The recommendation, what it changes, and what it did beside the present settings."""
    yield f"<p><b>{escape(answer(calibration))}</b></p>"
    if calibration.recommended is not None:
        changes = changed_settings(calibration.recommended, calibration.tried[PRESENT])
        yield table(("setting", "present", "proposed"), [(key, str(was), str(now)) for key, was, now in changes])
    named = {calibration.choice.best: f"best: {calibration.choice.best}", PRESENT: "present settings"}
    if calibration.recommended is not None:
        named[calibration.choice.recommended] = "proposed settings"
    rows = [
        (f"{named[one.name]}, {when}", *_cells(figures), f"{figures.worst_hour_gap:.1f}", _twice(figures))
        for one in sorted(calibration.choice.judged, key=lambda one: one.name != PRESENT)
        if one.name in named
        for when, figures in (("chosen on", one.trained), ("judged on", one.held_out))
    ]
    if rows:
        yield table(("replayed", *COLUMNS, "worst hour's gap", "moved twice, bundles a day"), rows)


COLUMNS = ("moves a day", "mean gap, points", "p95 gap", "cost")


def _cells(figures: Figures) -> tuple[str, ...]:
    columns = (moves_per_day(figures), figures.mean_gap, figures.p95_gap, cost(figures))
    return tuple(f"{one:,.1f}" for one in columns)


def _twice(figures: Figures) -> str:
    return f"{a_day(figures, figures.moved_twice):.1f}"


def _summary_lines(calibration: Calibration) -> Iterator[str]:
    yield "<h2>What it is built on</h2>"
    yield from (f"<p>{escape(line)}</p>" for line in evidence(calibration))


def _chart(title: str, figure: go.Figure) -> Iterator[str]:
    options: dict[str, Any] = {"displayModeBar": False, "responsive": True}
    yield f"<h2>{escape(title)}</h2>"
    yield figure.to_html(full_html=False, include_plotlyjs=False, default_height="380px", config=options)


def _gap(calibration: Calibration) -> Iterator[str]:
    yield from _chart("Between the highest and the lowest score, in the last window", gap(calibration))
    yield '<p class="dim">Single samples; the figures above are means of ten minutes. Dots: rounds with moves.</p>'


def _lasting(calibration: Calibration) -> Iterator[str]:
    """How often and how long brokers were far apart, and between which pairs."""
    yield "<h2>How often and how long brokers were apart, as recorded</h2>"
    features = calibration.features
    rows = [
        (f"{one['threshold']:g} points", f"{one['times']:,}", f"{one['median']:,.0f} min", f"{one['longest']:,} min",
         f"{one['share']:.1%}")
        for one in features.lasting
    ]  # fmt: skip
    yield table(("at least", "times", "median", "longest", "of the time"), rows)
    ranks = [(_pair(one["pair"]), f"{one['mean']:.1f}", f"{one['p95']:.1f}") for one in features.pairs[:PAIRS]]
    yield table(("pair", "mean gap, points", "p95 gap"), ranks)


def _pair(rank: int) -> str:
    return "most and least loaded" if rank == 1 else f"number {rank} from above and from below"


def _day(calibration: Calibration) -> Iterator[str]:
    yield from _chart("The day, as recorded", day(calibration))


def _front(calibration: Calibration) -> Iterator[str]:
    """Moves against gap, of all that was tried."""
    if not calibration.choice.judged:
        return
    yield from _chart("What was tried, on the time it was chosen on", front(calibration))
    cheapest = sorted(calibration.choice.judged, key=lambda one: cost(one.trained))[:SHOWN]
    head = ("settings", *(f"{name}, {part}" for part in ("chosen on", "judged on") for name in COLUMNS))
    yield table(head, [(one.name, *_cells(one.trained), *_cells(one.held_out)) for one in cheapest])


def _fits(calibration: Calibration) -> Iterator[str]:
    yield "<h2>Brokers</h2>"
    model = calibration.model
    bytes_drive = model.measure == "throughput"
    factor, unit = (MIB, "MiB/s") if bytes_drive else (1000.0, "1,000 msg/s")
    rows = [
        (
            broker,
            f"{model.background[at, CPU]:.1f}",
            f"{model.slope[at, CPU] * factor:.2f}",
            f"{model.noise[at, CPU]:.1f}",
            model.sources[at][CPU].value,
            *_restless(calibration, broker),
            f"{model.samples[at]:,}",
        )
        for at, broker in enumerate(model.brokers)
    ]
    traffic = f"points for each {unit} in + out"
    head = ("broker", "CPU without traffic", traffic, "noise beside the fit", "known from", "noise of the score",
            "its time scale", "spikes", "samples")  # fmt: skip
    yield table(head, rows)


def _restless(calibration: Calibration, broker: str) -> tuple[str, str, str]:
    """Noise of the score, its time scale, and the number of spikes."""
    noise = calibration.features.noise.get(broker)
    if noise is None:
        return "", "", ""
    return f"{noise['noise']:.1f}", f"{noise['time_scale']:.1f} min", f"{noise['spikes']:,}"


# --- files


def write(calibration: Calibration, out: Path) -> list[str]:
    """Write all of them into a directory; returns the evidence in words, the recommendation last."""
    rows = [
        {"name": one.name, "front": one.front, "settings": json.dumps(calibration.tried[one.name].values)}
        | {
            f"{part}_{key}": value
            for part in ("trained", "held_out")
            for key, value in asdict(getattr(one, part)).items()
        }
        for one in calibration.choice.judged
    ]
    with as_usage_error(out):
        (out / "proposal.yaml").write_text(settings_file(calibration), encoding="utf-8")
        (out / "broker.conf").write_text(broker_conf(calibration), encoding="utf-8")
        (out / "report.html").write_text(page(calibration), encoding="utf-8")
        pq.write_table(pa.Table.from_pylist(rows), out / "candidates.parquet")
    lines = list(evidence(calibration))
    last = next(at for at, line in enumerate(lines) if line.startswith(("Recommended", "Nothing is")))
    return [*lines[:last], *lines[last + 1 :], lines[last]]
