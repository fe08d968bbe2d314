"""A comparison in words and rows, for a terminal and for a page. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lbd.compare.recommend import recommended
from lbd.compare.side_by_side import RECORDED
from lbd.load.linear import CPU, Source
from lbd.score.figures import FIGURES
from lbd.score.spread import figures
from lbd.simulate.cluster import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.compare.side_by_side import Compared, Run
    from lbd.load.error import ModelError
    from lbd.load.linear import LoadModel

SAME = ("turns", "hours")
"""Figures that all runs share."""

UNRECORDED = ("turn_p50_seconds", "turn_p99_seconds", "unserved_bundle_seconds", "policy_violations")
"""Figures of what really happened that no report tells."""


def title(found: Compared) -> str:
    """What was compared, for how long, and by which thresholds."""
    card, (low, high) = found.runs[0].card, found.thresholds
    lasted = f"{card.hours:.1f} h" if card.hours >= 1 else f"{card.hours * 60:.0f} min"
    return f"{found.name}: {card.turns} turns in {lasted}, thresholds {low:g} and {high:g} points"


def card_of(run: Run) -> dict[str, Any]:
    """The scorecard; of what was recorded nobody knows what no report tells."""
    return {**asdict(run.card), **(dict.fromkeys(UNRECORDED) if run.label == RECORDED else {})}


def rows(found: Compared) -> Iterator[tuple[str, ...]]:
    """A label and a value for each run, of every figure that some run has."""
    cards = [_figures(run) for run in found.runs]
    for figure in FIGURES:
        values = [card[figure.name] for card in cards]
        if figure.name not in SAME and any(value is not None for value in values):
            yield (figure.label, *map(figure.told, values))


def _figures(run: Run) -> dict[str, float | None]:
    found = figures(run.card)
    return {**found, **dict.fromkeys(UNRECORDED)} if run.label == RECORDED else found


def sentences(found: Compared) -> Iterator[str]:
    """What the last turn of each run said."""
    return (f"{run.label}, in the end: {run.sentence}" for run in found.runs if run.sentence)


def advice(found: Compared) -> Iterator[str]:
    """Which to take, and why."""
    best = recommended(found)
    if best is not None:
        yield f"recommended: {best.told}"


def rests_on(found: Compared) -> Iterator[str]:
    """The load model behind a comparison over a recording, and its error."""
    if found.model is not None and found.error is not None:
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
            known = f"background {model.background[at, CPU]:.1f}, slope {slope:.3g} +- {half:.2g}"
            yield f"  {broker}: {known} ({source.value}, {model.samples[at]} samples)"


def error_told(error: ModelError) -> str:
    """How far the model was off, in one line."""
    early = f"; {error.unpredicted} more came before anything told a slope" if error.unpredicted else ""
    if not error.number:
        return f"error of the model: not known, no recorded move changed a broker's load by a point or more{early}"
    return (
        f"error of the model on {error.number} changes that really happened: {error.mean_absolute:.1f} points on "
        f"average, {error.p95:.1f} at p95, bias {error.bias:+.1f} (taking scores to stay as they were: "
        f"{error.unchanged_mean_absolute:.1f}){early}"
    )
