"""``report.html``: the evidence as charts, in one page that opens without a network."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from plotly.offline import get_plotlyjs

from lbd.learn import charts, proposal
from lbd.learn.candidates import PRESENT
from lbd.learn.choosing import cost, moves_per_day
from lbd.load.linear import CPU
from lbd.simulate.report import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import plotly.graph_objects as go

    from lbd.learn.calibrate import Calibration
    from lbd.learn.scoring import Figures

TEMPLATE = Path(__file__).parent.parent / "simulate" / "report.html"
MIB = 1024.0 * 1024.0
PAIRS = 5
"""Shown of the pairs of a round: the others are closer."""

SHOWN = 12
"""Of what was tried, so many are in the table, the cheapest first; all are in the chart and in the file beside."""


def page(found: Calibration) -> str:
    """The page: what is recommended and how it did, then what that is built on."""
    parts = (_answer(found), _gap(found), _front(found), _lasting(found), _day(found), _fits(found), _words(found))
    body = "\n".join(line for part in parts for line in part)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title="lbd calibrate", script=get_plotlyjs(), body=body
    )


def _answer(found: Calibration) -> Iterator[str]:
    """The recommendation, what it changes, and what it did beside the present settings."""
    yield f"<p><b>{escape(proposal.answer(found))}</b></p>"
    if found.recommended is not None:
        changes = proposal.changes(found.recommended, found.tried[PRESENT])
        yield table(("setting", "present", "proposed"), [(key, str(was), str(now)) for key, was, now in changes])
    named = {found.choice.best: f"best: {found.choice.best}", PRESENT: "present settings"}
    if found.recommended is not None:
        named[found.choice.recommended] = "proposed settings"
    rows = [
        (f"{named[one.name]}, {when}", *_cells(figures), f"{figures.worst_hour_gap:.1f}", _twice(figures))
        for one in sorted(found.choice.judged, key=lambda one: one.name != PRESENT)
        if one.name in named
        for when, figures in (("chosen on", one.trained), ("judged on", one.held_out))
    ]
    if rows:
        yield table(("replayed", *COLUMNS, "worst hour's gap", "moved twice, bundles a day"), rows)


COLUMNS = ("moves a day", "mean gap, points", "p95 gap", "cost")


def _cells(figures: Figures) -> tuple[str, ...]:
    told = (moves_per_day(figures), figures.mean_gap, figures.p95_gap, cost(figures))
    return tuple(f"{one:,.1f}" for one in told)


def _twice(figures: Figures) -> str:
    return f"{proposal.a_day(figures, figures.moved_twice):.1f}"


def _words(found: Calibration) -> Iterator[str]:
    yield "<h2>What it is built on</h2>"
    yield from (f"<p>{escape(line)}</p>" for line in proposal.evidence(found))


def _chart(title: str, figure: go.Figure) -> Iterator[str]:
    options: dict[str, Any] = {"displayModeBar": False, "responsive": True}
    yield f"<h2>{escape(title)}</h2>"
    yield figure.to_html(full_html=False, include_plotlyjs=False, default_height="380px", config=options)


def _gap(found: Calibration) -> Iterator[str]:
    yield from _chart("Between the highest and the lowest score, in the last window", charts.gap(found))
    yield '<p class="dim">Single samples; the figures above are means of ten minutes. Dots: rounds with moves.</p>'


def _lasting(found: Calibration) -> Iterator[str]:
    """How often and how long brokers were far apart, and between which pairs."""
    yield "<h2>How often and how long brokers were apart, as recorded</h2>"
    rows = [
        (f"{one['threshold']:g} points", f"{one['times']:,}", f"{one['median']:,.0f} min", f"{one['longest']:,} min",
         f"{one['share']:.1%}")
        for one in found.told.lasting
    ]  # fmt: skip
    yield table(("at least", "times", "median", "longest", "of the time"), rows)
    ranks = [(_pair(one["pair"]), f"{one['mean']:.1f}", f"{one['p95']:.1f}") for one in found.told.pairs[:PAIRS]]
    yield table(("pair", "mean gap, points", "p95 gap"), ranks)


def _pair(rank: int) -> str:
    return "most and least loaded" if rank == 1 else f"number {rank} from above and from below"


def _day(found: Calibration) -> Iterator[str]:
    yield from _chart("The day, as recorded", charts.day(found))


def _front(found: Calibration) -> Iterator[str]:
    """Moves against gap, of all that was tried."""
    if not found.choice.judged:
        return
    yield from _chart("What was tried, on the time it was chosen on", charts.front(found))
    cheapest = sorted(found.choice.judged, key=lambda one: cost(one.trained))[:SHOWN]
    head = ("settings", *(f"{name}, {part}" for part in ("chosen on", "judged on") for name in COLUMNS))
    yield table(head, [(one.name, *_cells(one.trained), *_cells(one.held_out)) for one in cheapest])


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
