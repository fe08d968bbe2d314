"""The output of a calibration: settings with their evidence, the same as broker.conf, reasons, and a page. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from lbd.charts.chart import Chart, Line, Mark, Marks, Threshold
from lbd.charts.page import page as html_page
from lbd.charts.page import table
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.documents import flat
from lbd.fields import derived
from lbd.files import as_usage_error, replace
from lbd.learn.choose import COST, PRESENT, TUNABLE, claim_text, cost, cost_text, moves_per_day, split
from lbd.learn.incidents import RESOLUTION, TIMES, excess, mean
from lbd.learn.replay import Figures
from lbd.load.estimate import CPU, Source
from lbd.load.settings import UNIT
from lbd.score.gap import gaps
from lbd.store.calibration import PROPOSAL, REPORT, SUMMARY, CalibrationSummary, ChangedSetting, ReplayedFigures
from lbd.text import HOUR_SECONDS, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lbd.charts.chart import Colour
    from lbd.config import Settings
    from lbd.learn.calibrate import Calibration, WindowScores
    from lbd.learn.choose import Choice, Judged, SettingsCandidate
    from lbd.learn.replay import Scale
    from lbd.model import FloatArray


def settings_file(calibration: Calibration) -> str:
    """``proposal.yaml``: what differs from the present settings, with the evidence as comments, and what traffic costs
    each broker that showed it. ``lbd config check`` accepts it; where nothing is recommended no strategy's setting is
    in it.
    """
    lines = [f"# {line}" for line in evidence(calibration)]
    changed: dict[str, Any] = {}
    for key, _, value in _changes(calibration):
        section, _, name = key.rpartition(".")
        (changed.setdefault(section, {}) if section else changed)[name] = value
    if changed:
        lines += ["", yaml.safe_dump(changed, sort_keys=False).rstrip()]
    load = _load(calibration)
    if load:
        lines += ["", yaml.safe_dump({"load": load}, sort_keys=False).rstrip()]
    return "\n".join(lines) + "\n"


def _load(calibration: Calibration) -> dict[str, object]:
    """The ``load:`` section with the slopes that fit the own samples of brokers that are there still, in its units;
    empty without any.

    A slope that is not above zero comes from noise, and is left out.
    """
    model, there = calibration.model, calibration.history.last_brokers
    brokers = [
        {"broker": broker, "slope": float(f"{model.slope[index, CPU] * UNIT[model.measure]:.4g}")}
        for index, broker in enumerate(model.brokers)
        if broker in there and model.sources[index][CPU] is Source.FITTED and model.slope[index, CPU] > 0
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
        own = [key for key, *_ in _changes(calibration) if key.startswith("guardrails.")]
        lines += [f"# {key} is lbd's own: brokers do not have it." for key in own]
    return "\n".join(lines) + "\n"


def _before(calibration: Calibration) -> dict[str, Any]:
    """AvgShedder's settings in force, or its defaults where another strategy is."""
    present = calibration.tried[PRESENT].settings
    return (present if isinstance(present, AvgShedderSettings) else AvgShedderSettings()).model_dump(mode="json")


def evidence(calibration: Calibration) -> Iterator[str]:
    """The evidence for these numbers, one sentence a line, the recommendation last."""
    yield from caveats(calibration)
    covered, hours = calibration.history.days, calibration.history.seconds / HOUR_SECONDS
    yield f"{covered:.1f} days of history in windows of {hours:g} h, {len(calibration.tried)} settings tried."
    yield from _quality(calibration)
    yield _model_error(calibration)
    yield from calibration.remarks
    yield _scale(calibration.scale)
    for name, clause in calibration.choice.refused.items():
        yield f"{name} is not proposed: it {clause}."
    for judged in calibration.choice.judged:
        if judged.name in {PRESENT, calibration.choice.best}:
            yield from _judged(calibration, judged)
    yield answer(calibration)


def caveats(calibration: Calibration) -> Iterator[str]:
    """Caveats to the answer: days that are left out, brokers with hardly a sample, and present settings that are not
    those of lbd.yaml.
    """
    yield from (f"{day.text}." for day in calibration.history.lost)
    yield from (f"{broker.text}." for broker in calibration.borrowed)
    read = dict(flat(calibration.settings.model_dump(mode="json")))
    others = [
        f"{key} {value} (lbd.yaml: {read[key]})"
        for key, value in flat(calibration.tried[PRESENT].values)
        if value != read[key] and calibration.history.strategy in TUNABLE
    ]
    if others:
        yield f"The present settings are those of the last round of history: {', '.join(others)}."


def _quality(calibration: Calibration) -> Iterator[str]:
    """The samples read and used, and the results of the checks."""
    read, damaged = calibration.history.read, [check.text for check in calibration.history.checks if check.count]
    used = f"{read.samples_read:,} samples read, {read.samples_kept:,} used"
    yield f"{used}; checks found {', '.join(damaged) or 'nothing'}."
    if calibration.history.torn:
        yield f"First file left out: {calibration.history.torn[0]}."


def answer(calibration: Calibration) -> str:
    """The recommendation, or that there is none, and why."""
    choice = calibration.choice
    if choice.recommended is None:
        return f"Nothing is recommended: {choice.why}."
    return f"Recommended: {choice.recommended}; {claim(choice)}; {choice.why}."


TRIALS = "in eight unseen weeks such intervals held for all of 20 settings: a hint, and no forecast"
"""Nine of ten are aimed at (docs/results/calibrate.md, "Two weeks of history, and the week after")."""


def claim(choice: Choice) -> str:
    """The claim for the next week, gain and harm alike, and how many days it is built on."""
    days = choice.effects[COST].days
    return f"next week it {claim_text(choice.effects)} (from {days:.0f} independent days; {TRIALS})"


def _scale(scale: Scale) -> str:
    """How the cost to clients is measured."""
    return (
        f"A move costs its clients {scale.reconnect_seconds:.1f} s, in which they connect anew; "
        f"{scale.overload_minutes:g} minutes on a broker that is {scale.high:g} points above the lowest weigh as much "
        "as one minute without a connection (calibrate.overload_minutes)."
    )


def _changes(calibration: Calibration) -> list[tuple[str, object, object]]:
    """The settings that the recommended ones change; none where nothing is recommended."""
    best = calibration.recommended
    return changed_settings(best, calibration.tried[PRESENT], calibration.settings) if best is not None else []


def changed_settings(
    best: SettingsCandidate, present: SettingsCandidate, settings: Settings
) -> list[tuple[str, object, object]]:
    """Each setting that differs from the present ones, by its name in lbd.yaml: what it is, and what is proposed.

    So does one that only lbd.yaml (``settings``) has otherwise: the best ones were replayed with all of their values.
    """
    now, read = dict(flat(present.values)), dict(flat(settings.model_dump(mode="json")))
    changes: list[tuple[str, object, object]] = []
    for key, value in flat(best.values):
        before = now.get(key, "-")
        before = read[key] if before == value else before
        if before != value:
            changes.append((key, before, value))
    return changes


def _judged(calibration: Calibration, judged: Judged) -> Iterator[str]:
    for (when, figures), windows in zip(_parts(judged), split(calibration.history.numbers[1:]), strict=False):
        each = counted(figures.replays // max(len(windows), 1), "time")
        hours = calibration.history.seconds / HOUR_SECONDS
        yield (
            f"{judged.name}, {when} {counted(len(windows), 'window')} of {hours:g} h, each replayed {each}: "
            f"{figures_text(figures)}"
        )


def _parts(judged: Judged) -> Iterator[tuple[str, Figures]]:
    """Figures of settings on both parts of the time, as far as they were replayed there."""
    yield "chosen on", judged.trained
    if judged.held_out is not None:
        yield "judged on", judged.held_out


def figures_text(figures: Figures) -> str:
    """Figures in a line."""
    over, high = a_day(figures, figures.minutes_over), a_day(figures, figures.minutes_over_high)
    twice = a_day(figures, figures.moved_twice)
    return (
        f"{moves_per_day(figures):.1f} moves a day, brokers {figures.mean_gap:.1f} points apart on average, 95th "
        f"percentile {figures.p95_gap:.1f} in the mean window, worst hour {figures.worst_hour_gap:.1f}, {over:.0f} min "
        f"a day over the present low threshold and {high:.0f} over the high one, {twice:.1f} bundles a day moved "
        f"twice; cost {cost_text(figures)}"
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

RECORDED: Colour = "grey"
NOW: Colour = "blue"
PROPOSED: Colour = "green"
PARETO: Colour = "orange"


def gap(calibration: Calibration) -> Chart:
    """The last window: as it was, and as it would have been, with the rounds that moved something."""
    shown, present = calibration.shown, calibration.tried[PRESENT].settings
    lines = [
        _line(shown, shown.recorded, "as recorded", RECORDED),
        _line(shown, shown.present, "present settings", NOW),
    ]
    marks = [_moves(lines[1], shown.moves[0])]
    thresholds = [Threshold("low threshold, present", present.low_threshold, NOW)]
    if shown.chosen is not None and calibration.recommended is not None:
        lines.append(_line(shown, shown.chosen, f"proposed: {calibration.choice.recommended}", PROPOSED))
        marks.append(_moves(lines[2], shown.moves[1]))
        low = calibration.recommended.settings.low_threshold
        thresholds.append(Threshold("low threshold, proposed", low, PROPOSED))
    title = "Between the highest and the lowest score, in the last window"
    return Chart(title, "UTC", "points", tuple(lines), tuple(filter(None, marks)), tuple(thresholds), time=True)


def _line(shown: WindowScores, points: FloatArray, name: str, colour: Colour) -> Line:
    comparable = np.isfinite(points).sum(axis=1) > 1
    return Line(name, shown.at[comparable], gaps(points[comparable]), colour)


def _moves(line: Line, moves: Sequence[float]) -> Marks | None:
    """The rounds of a line that moved something; None if there are none."""
    moved = np.isin(line.x, np.asarray(moves))
    marks = (
        Mark(time, round(apart, 2), f"{line.name}: moves", line.colour)
        for time, apart in zip(line.x[moved].tolist(), line.y[moved].tolist(), strict=True)
    )
    return Marks(f"moves, {line.name}", "dot", tuple(marks)) if moved.any() else None


def day(calibration: Calibration) -> Chart:
    """The profile of a day, over all days."""
    daily = calibration.features.daily
    lines: tuple[tuple[str, str, Colour], ...] = (
        ("mean score of all brokers", "score", RECORDED),
        ("mean gap", "gap", NOW),
        ("p95 gap", "p95", PARETO),
    )
    hours = np.array([row.hour for row in daily], dtype=float)
    profile = tuple(
        Line(name, hours, np.array([getattr(row, key) for row in daily], dtype=float), colour)
        for name, key, colour in lines
    )
    return Chart("The day, as recorded", "hour of the day, UTC", "points", profile)


def front(calibration: Calibration) -> Chart:
    """Moves against gap of the candidates on the time to choose on; the Pareto front, the present and the proposed
    settings stand out.
    """
    candidates, proposed = calibration.choice.judged, calibration.choice.recommended
    groups: tuple[tuple[str, Colour, list[Judged]], ...] = (
        ("others", RECORDED, [judged for judged in candidates if not judged.front]),
        ("none had both fewer moves and a smaller gap", PARETO, [judged for judged in candidates if judged.front]),
        ("present", NOW, [judged for judged in candidates if judged.name == PRESENT]),
        ("proposed", PROPOSED, [judged for judged in candidates if judged.name == proposed]),
    )
    marks = (Marks(name, "dot", tuple(_mark(judged, colour) for judged in own)) for name, colour, own in groups if own)
    title = "Settings on the time to choose on"
    return Chart(title, "moves a day", "p95 gap, points", marks=tuple(marks), x_from_zero=True)


def _mark(judged: Judged, colour: Colour) -> Mark:
    name, moves, points = judged.name, moves_per_day(judged.trained), judged.trained.p95_gap
    return Mark(round(moves, 3), round(points, 2), f"{name}: {moves:.1f} moves a day, {points:.1f} points", colour)


# --- ``report.html``: the evidence as charts, in one page that opens without a network

PAIRS = 5
"""Pairs of a round that are shown: the others are closer."""

SHOWN = 12
"""Candidates in the table, the cheapest first; the chart has more, and the file beside it all that was tried."""


def page(calibration: Calibration) -> str:
    """The page: what is recommended and how it did, then what that is built on."""
    parts = (
        _answer(calibration),
        _incidents(calibration),
        _gap(calibration),
        _front(calibration),
        _lasting(calibration),
        [day(calibration)],
        _fits(calibration),
        _summary_lines(calibration),
    )
    return html_page("lbd calibrate", [element for part in parts for element in part])


def _answer(calibration: Calibration) -> Iterator[str]:
    """The recommendation, what it changes, and what it did beside the present settings."""
    yield from (f"<p>{escape(line)}</p>" for line in caveats(calibration))
    yield f"<p><b>{escape(answer(calibration))}</b></p>"
    if calibration.recommended is not None:
        changes = [(key, str(now), str(proposed)) for key, now, proposed in _changes(calibration)]
        yield table(("setting", "present", "proposed"), changes)
    named = {calibration.choice.best: f"best: {calibration.choice.best}", PRESENT: "present settings"}
    if calibration.recommended is not None:
        named[calibration.choice.recommended] = "proposed settings"
    rows = [
        (f"{named[judged.name]}, {when}", *_cells(figures), f"{figures.worst_hour_gap:.1f}", _twice(figures))
        for judged in sorted(calibration.choice.judged, key=lambda row: row.name != PRESENT)
        if judged.name in named
        for when, figures in _parts(judged)
    ]
    if rows:
        best = {*_lowest(rows, range(0, len(rows), 2)), *_lowest(rows, range(1, len(rows), 2))}
        yield table(("replayed", *COLUMNS, "worst hour's gap", "moved twice, bundles a day"), rows, best=best)
        if best:
            yield f'<p class="dim">{BEST} "Chosen on" and "judged on" are compared separately.</p>'


BEST = 'Marked in <b class="best">bold</b>: the lowest, which is the best, of a column in which not all are equal.'


def _lowest(rows: Sequence[Sequence[str]], compared: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Row and column of the lowest value of each column among these rows; none where all look equal."""
    for column in range(1, len(rows[0])):
        values = {index: float(rows[index][column].replace(",", "")) for index in compared}
        if len(set(values.values())) > 1:
            lowest = min(values.values())
            yield from ((index, column) for index, value in values.items() if value == lowest)


COLUMNS = ("moves a day", "mean gap, points", "p95 gap", "cost, client-minutes a day")


def _cells(figures: Figures) -> tuple[str, ...]:
    columns = (moves_per_day(figures), figures.mean_gap, figures.p95_gap, cost(figures))
    return tuple(f"{value:,.1f}" for value in columns)


def _twice(figures: Figures) -> str:
    return f"{a_day(figures, figures.moved_twice):.1f}"


def _summary_lines(calibration: Calibration) -> Iterator[str]:
    yield "<h2>What it is built on</h2>"
    yield from (f"<p>{escape(line)}</p>" for line in evidence(calibration))
    yield "<h2>Checks of the history</h2>"
    rows = [
        (check.name, f"{check.count:,}", f"{check.share:.1%} of the {check.whole}", check.limit_text, check.meaning)
        for check in calibration.history.checks
    ]
    yield table(("check", "found", "share", "limit", "meaning"), rows)


def _gap(calibration: Calibration) -> Iterator[str | Chart]:
    yield gap(calibration)
    yield '<p class="dim">Single samples; the figures above are means of ten minutes. Dots: rounds with moves.</p>'


INCIDENT_COLUMNS = (
    *("minutes too far apart", "minutes above the high threshold", "minutes above 85 points"),
    *("moves", "clients disconnected"),
)


def _incidents(calibration: Calibration) -> Iterator[str]:
    """Results of the settings in incidents that history did not have."""
    choice = calibration.choice
    if not any(choice.incidents.values()):
        return
    yield "<h2>In an emergency</h2>"
    yield (
        f'<p class="dim">Means over {TIMES} times of each incident, injected into the history and followed for an hour '
        "and a half. Too far apart is by the low threshold; both thresholds are the present ones. Settings that are "
        "worse than the present ones by more than noise are not proposed.</p>"
    )
    present = choice.incidents[PRESENT]
    rows = [
        (incident, "present settings" if name == PRESENT else name,
         *(f"{mean(own[incident])[measure]:,.1f}" for measure in RESOLUTION),
         "yes" if excess({incident: own[incident]}, {incident: present[incident]}) else "")
        for incident in present
        for name, own in choice.incidents.items()
    ]  # fmt: skip
    yield table(("incident", "settings", *INCIDENT_COLUMNS, "worse than the present"), rows)


def _lasting(calibration: Calibration) -> Iterator[str]:
    """How often and how long brokers were far apart, and between which pairs."""
    yield "<h2>How often and how long brokers were apart, as recorded</h2>"
    features = calibration.features
    rows = [
        (f"{row.threshold:g} points", f"{row.times:,}", f"{row.median:,.0f} min", f"{row.longest:,} min",
         f"{row.share:.1%}")
        for row in features.lasting
    ]  # fmt: skip
    yield table(("at least", "times", "median", "longest", "of the time"), rows)
    ranks = [(_pair(row.pair), f"{row.mean:.1f}", f"{row.p95:.1f}") for row in features.pairs[:PAIRS]]
    yield table(("pair", "mean gap, points", "p95 gap"), ranks)


def _pair(rank: int) -> str:
    return "most and least loaded" if rank == 1 else f"number {rank} from above and from below"


def _front(calibration: Calibration) -> Iterator[str | Chart]:
    """Moves against gap, on the time to choose on."""
    if not calibration.choice.judged:
        return
    yield front(calibration)
    cheapest = sorted(calibration.choice.judged, key=lambda judged: cost(judged.trained))[:SHOWN]
    rows = [(judged.name, *_cells(judged.trained)) for judged in cheapest]
    best = set(_lowest(rows, range(len(rows))))
    yield table(("settings, chosen on", *COLUMNS), rows, best=best)
    if best:
        yield f'<p class="dim">{BEST}</p>'


def _fits(calibration: Calibration) -> Iterator[str]:
    yield "<h2>Brokers</h2>"
    model = calibration.model
    unit, factor = model.shown_unit
    rows = [
        (
            broker,
            f"{model.background[index, CPU]:.1f}",
            f"{model.slope[index, CPU] * factor:.2f}",
            f"{model.noise[index, CPU]:.1f}",
            model.sources[index][CPU].value,
            *_restless(calibration, broker),
            f"{model.samples[index]:,}",
        )
        for index, broker in enumerate(model.brokers)
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
    return f"{noise.noise:.1f}", f"{noise.time_scale:.1f} min", f"{noise.spikes:,}"


# --- files

_FIGURES = tuple(field.name for field in fields(Figures))


def summary(calibration: Calibration, at: float) -> CalibrationSummary:
    """``summary.json``, of a calibration that ended ``at`` epoch seconds."""
    held_out = {judged.name: judged.held_out for judged in calibration.choice.judged}
    best = calibration.recommended
    return CalibrationSummary(
        at=at,
        recommended=calibration.choice.recommended,
        reason=calibration.choice.why,
        changes=[ChangedSetting(*change) for change in _changes(calibration)],
        present=_replayed(held_out.get(PRESENT)),
        proposed=_replayed(held_out.get(best.name)) if best is not None else None,
        load=calibration.load,
    )


def _replayed(figures: Figures | None) -> ReplayedFigures | None:
    if figures is None:
        return None
    return derived(ReplayedFigures, figures, moves_per_day=moves_per_day(figures), client_minutes_per_day=cost(figures))


def write(calibration: Calibration, result: CalibrationSummary, out: Path) -> None:
    """Write all of them into a directory. The summary, ``result``, comes last: with it the directory is complete."""
    rows = [
        {"name": judged.name, "front": judged.front, "settings": json.dumps(calibration.tried[judged.name].values)}
        | {f"trained_{key}": value for key, value in asdict(judged.trained).items()}
        | {f"held_out_{name}": getattr(judged.held_out, name, None) for name in _FIGURES}
        for judged in calibration.choice.judged
    ]
    incidents = [
        {"name": name, "incident": incident, "number": number, **asdict(resolution)}
        for name, own in calibration.choice.incidents.items()
        for incident, several in own.items()
        for number, resolution in enumerate(several)
    ]
    with as_usage_error(out):
        (out / PROPOSAL).write_text(settings_file(calibration), encoding="utf-8")
        (out / "broker.conf").write_text(broker_conf(calibration), encoding="utf-8")
        (out / REPORT).write_text(page(calibration), encoding="utf-8")
        pq.write_table(pa.Table.from_pylist(rows), out / "candidates.parquet")
        if incidents:
            pq.write_table(pa.Table.from_pylist(incidents), out / "incidents.parquet")
        pq.write_table(
            pa.Table.from_pylist([asdict(check) for check in calibration.history.checks]), out / "quality.parquet"
        )
        replace(out / SUMMARY, msgspec.json.format(msgspec.json.encode(result)) + b"\n")
