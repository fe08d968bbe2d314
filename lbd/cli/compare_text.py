"""Runs side by side as a person and as a program reads them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from lbd.cli import render
from lbd.compare import told
from lbd.compare.recommend import recommended
from lbd.compare.told import card_of
from lbd.load.linear import CPU

if TYPE_CHECKING:
    from lbd.compare.side_by_side import Compared
    from lbd.load.linear import LoadModel


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
                "scorecard": card_of(run),
                "moves": [asdict(move) for move in run.trace.moves],
                "sentence": run.sentence,
            }
            for run in found.runs
        ],
        "recommended": None if (best := recommended(found)) is None else asdict(best),
        "model": None if found.model is None else _model(found.model),
        "model_error": None if found.error is None else _finite(asdict(found.error)),
    }


def as_text(found: Compared) -> None:
    """Print a column for each run, and what the comparison rests on."""
    console = Console(highlight=False, soft_wrap=True, width=render.WIDE)
    console.print(Text(told.title(found), "bold"))
    table = render.table(("", "left"), *((_head(run.label), "right") for run in found.runs))
    for row in told.rows(found):
        table.add_row(*row)
    console.print(table)
    for line in (*told.sentences(found), *told.advice(found), *told.rests_on(found)):
        console.print(Text(line))


def _head(label: str) -> str:
    """A strategy, and its settings below it."""
    name, _, settings = label.partition(":")
    return "\n".join((name, *filter(None, settings.split(","))))


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
