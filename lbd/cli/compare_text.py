"""Runs side by side as a person and as a program reads them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from lbd.cli import render
from lbd.compare.side_by_side import RECORDED
from lbd.load.linear import CPU, Source
from lbd.score.figures import FIGURES
from lbd.score.spread import figures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.compare.side_by_side import Compared, Run
    from lbd.load.error import ModelError
    from lbd.load.linear import LoadModel

MIB = 1024.0 * 1024.0
SAME = ("turns", "hours")
"""Figures that all runs share."""

UNRECORDED = ("turn_p50_seconds", "turn_p99_seconds", "unserved_bundle_seconds", "policy_violations")


def document(found: Compared) -> dict[str, Any]:
    """What JSON tells: a scorecard for each run, its moves, and the model with its error."""
    low, high = found.thresholds
    return {
        "over": found.name,
        "low_threshold": low,
        "high_threshold": high,
        "runs": [
            {
                "strategy": run.label,
                "scorecard": _card(run),
                "moves": [asdict(move) for move in run.trace.moves],
                "sentence": run.sentence,
            }
            for run in found.runs
        ],
        "model": None if found.model is None else _model(found.model),
        "model_error": None if found.error is None else _finite(asdict(found.error)),
    }


def _card(run: Run) -> dict[str, Any]:
    """The scorecard; of what was recorded nobody knows what no report says."""
    return {**asdict(run.card), **(dict.fromkeys(UNRECORDED) if run.label == RECORDED else {})}


def as_text(found: Compared) -> None:
    """Print a column for each run, and what the comparison rests on."""
    console = Console(highlight=False, soft_wrap=True, width=render.WIDE)
    low, high = found.thresholds
    card = found.runs[0].card
    told = f"{card.turns} turns in {card.hours:.1f} h, thresholds {low:g} and {high:g} points"
    console.print(Text(f"{found.name}: {told}", "bold"))
    table = render.table(("", "left"), *((run.label, "right") for run in found.runs))
    cards = [dict(figures(_card(run))) for run in found.runs]
    for figure in FIGURES:
        values = [own.get(figure.name) for own in cards]
        if figure.name not in SAME and any(value is not None for value in values):
            table.add_row(figure.label, *map(figure.told, values))
    console.print(table)
    for run in found.runs:
        if run.sentence:
            console.print(Text(f"{run.label}, in the end: {run.sentence}"))
    for line in _rests_on(found):
        console.print(Text(line))


def _rests_on(found: Compared) -> Iterator[str]:
    if found.model is None or found.error is None:
        return
    yield from _slopes(found.model)
    yield error_told(found.error)


def _slopes(model: LoadModel) -> Iterator[str]:
    """CPU is what mostly binds: its slope, background, and where the slope comes from."""
    unit, each = ("MiB/s", MIB) if model.measure == "throughput" else ("1,000 msg/s", 1000.0)
    yield f"load model, CPU in points (each for {unit} in + out):"
    for at, broker in enumerate(model.brokers):
        source, slope, half = model.sources[at][CPU], model.slope[at, CPU] * each, model.half_width[at, CPU] * each
        if source is Source.GIVEN:
            yield f"  {broker}: background as recorded, slope {slope:.3g} (given)"
        else:
            told = f"background {model.background[at, CPU]:.1f}, slope {slope:.3g} +- {half:.2g}"
            yield f"  {broker}: {told} ({source.value}, {model.samples[at]} samples)"


def error_told(error: ModelError) -> str:
    """How far the model was off, in one line."""
    if not error.number:
        more = f"; {error.unpredicted} came before anything told a slope" if error.unpredicted else ""
        return f"error of the model: not known, no recorded move changed a broker's load by a point or more{more}"
    return (
        f"error of the model on {error.number} changes that really happened: {error.mean_absolute:.1f} points on "
        f"average, {error.p95:.1f} at p95, bias {error.bias:+.1f} (taking scores to stay as they were: "
        f"{error.unchanged_mean_absolute:.1f})"
    )


def _model(model: LoadModel) -> dict[str, Any]:
    return {
        "measure": model.measure,
        "brokers": [
            {
                "broker": broker,
                "background_points": _number(model.background[at, CPU]),
                "slope": _number(model.slope[at, CPU]),
                "half_width": _number(model.half_width[at, CPU]),
                "source": model.sources[at][CPU].value,
                "samples": int(model.samples[at]),
            }
            for at, broker in enumerate(model.brokers)
        ],
    }


def _number(value: float) -> float | None:
    """JSON knows no infinity."""
    return float(value) if np.isfinite(value) else None


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {key: _number(value) if isinstance(value, float) else value for key, value in values.items()}
