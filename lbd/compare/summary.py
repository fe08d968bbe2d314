"""A comparison in words and rows, and its recommendation: as even as the best, with few moves. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lbd.compare.side_by_side import RECORDED
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.load.estimate import CPU, Source
from lbd.score.scorecard import FIGURES, figures
from lbd.text import HOUR_SECONDS, counted, minutes_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lbd.compare.side_by_side import Compared
    from lbd.load.estimate import LoadModel
    from lbd.load.model_error import ModelError
    from lbd.score.scorecard import Figure
    from lbd.simulate.run import Run


ALIKE_POINTS = 2.0
"""Gaps at the end that differ by less are alike: scores at rest vary by this."""

FEWER = 0.25
"""Another strategy replaces the default one, where both are even, if it needs fewer moves by this share, and two at
least. On like machines seeds differ by as much (docs/strategies.md, "Which when").
"""


@dataclass(frozen=True)
class Recommendation:
    """A candidate's label, and the reasons, each a clause: how even it ends, its moves, then what others did."""

    label: str
    reasons: tuple[str, ...]


def recommended(compared: Compared) -> Recommendation | None:
    """The candidate to take; None if there is only one.

    Considered are candidates that broke no policy and whose last gap is within :data:`ALIKE_POINTS` of the smallest
    one, or within the low threshold. The fewest moves win; then the least traffic moved, the least time above the
    threshold, and the order of the request. But the default strategy wins unless another one saves :data:`FEWER` of its
    moves.
    """
    runs = [run for run in compared.runs if run.label != RECORDED]
    if len(runs) < 2:
        return None
    lawful = [run for run in runs if not run.card.policy_violations] or runs
    enough = max(min(map(_gap, lawful)) + ALIKE_POINTS, compared.thresholds[0])
    even = sorted(
        (run for run in lawful if _gap(run) <= enough),
        key=lambda run: (run.card.moves, run.card.traffic_moved, run.card.minutes_over_low),
    )
    default = next((run for run in even if (run.label.partition(":")[0] == AvgShedderSettings.name)), even[0])
    best = even[0] if _clearly_fewer(even[0], default) else default
    return Recommendation(best.label, tuple(_reasons(best, runs, even, compared.thresholds[0])))


def _clearly_fewer(run: Run, default: Run) -> bool:
    """Whether a run saves more of the default's moves than chance explains."""
    saved = default.card.moves - run.card.moves
    return saved >= 2 and saved >= FEWER * default.card.moves


def _gap(run: Run) -> float:
    return run.card.last.gap_points


def _reasons(best: Run, runs: Sequence[Run], even: Sequence[Run], low: float) -> list[str]:
    reasons = [_choice_text(best, even, low), _moved(best), *_as_even(best, even)]
    unlawful = [run.label for run in runs if run.card.policy_violations]
    uneven = [f"{run.label} ({_gap(run):.1f})" for run in runs if run not in even and run.label not in unlawful]
    reasons += [f"less even in the end: {', '.join(uneven)}"] if uneven else []
    reasons += [f"against a policy: {', '.join(unlawful)}"] if unlawful else []
    kinds = {run.label.partition(":")[0] for run in runs}
    return [*reasons, *([f"which strategy when: {WHICH_WHEN}"] if len(kinds) > 1 else [])]


WHICH_WHEN = "docs/strategies.md#which-when"


def _choice_text(best: Run, even: Sequence[Run], low: float) -> str:
    nearest = min(map(_gap, even))
    if _gap(best) <= low:
        return f"ends {_gap(best):.1f} points apart, within the low threshold of {low:g}"
    beside = "no other ends nearer" if _gap(best) <= nearest else f"the nearest {nearest:.1f}"
    return f"ends {_gap(best):.1f} points apart, {beside}"


def _moved(best: Run) -> str:
    fewest = best.card.fewest_moves_as_even
    needed = f", at least {fewest} needed to be as even" if fewest else ""
    return f"{_moves(best)}{needed}"


def _moves(run: Run) -> str:
    if not run.card.moves:
        return "no move"
    return f"{counted(run.card.moves, 'move')} of {run.card.traffic_moved:.0%} of the traffic"


def _as_even(best: Run, even: Sequence[Run]) -> Iterator[str]:
    """The other candidates that end as even, and why one of them with fewer moves was not taken."""
    others = [f"{run.label} ({_moves(run)})" for run in even if run is not best]
    if others:
        yield f"as even: {', '.join(others)}"
    fewer = [run.label for run in even if run.card.moves < best.card.moves]
    if fewer:
        yield f"too few moves saved to leave the default: {', '.join(fewer)}"


# --- rows and words, for a terminal and for a page

SAME = ("turns", "hours")
"""Figures that all runs share."""

UNRECORDED = ("unserved_bundle_seconds", "policy_violations")
"""Figures of what really happened that no report tells."""


def title(compared: Compared) -> str:
    """A heading: what was compared, for how long, and with which thresholds."""
    card, (low, high) = compared.runs[0].card, compared.thresholds
    lasted = minutes_text(card.hours * HOUR_SECONDS)
    return f"{compared.name}: {card.turns} turns in {lasted}, thresholds {low:g} and {high:g} points"


def scorecard_json(run: Run) -> dict[str, Any]:
    """The scorecard; of what was recorded nobody knows what no report tells."""
    return {**asdict(run.card), **(dict.fromkeys(UNRECORDED) if run.label == RECORDED else {})}


DECIDING = (
    "unmoved.gap_points",
    "last.gap_points",
    "mean.gap_points",
    "minutes_over_low",
    "minutes_to_balance",
    "moves",
    "fewest_moves_as_even",
    "bundles_moved_twice",
    "traffic_moved",
    "policy_violations",
)
"""Figures that a choice rests on: all that a recommendation uses, and how even and how soon it became."""


@dataclass(frozen=True)
class Row:
    """A figure, its value for each run as text, and the positions of the best ones."""

    figure: Figure
    cells: tuple[str, ...]
    best: tuple[int, ...]


def rows(compared: Compared) -> Iterator[Row]:
    """Every figure that some run has."""
    cards = [_figures(run) for run in compared.runs]
    for figure in FIGURES:
        values = [card[figure.name] for card in cards]
        if figure.name not in SAME and any(value is not None for value in values):
            cells = tuple(map(figure.text, values))
            yield Row(figure, cells, _best(figure, values, cells))


def _best(figure: Figure, values: Sequence[float | None], cells: Sequence[str]) -> tuple[int, ...]:
    """Values that look equal are equally good; none is best where all look equal."""
    numbers = [value for value in values if value is not None]
    if not figure.lower_wins or len(set(cells)) < 2:
        return ()
    best = figure.text(min(numbers))
    return tuple(index for index, cell in enumerate(cells) if cell == best)


def _figures(run: Run) -> dict[str, float | None]:
    values = figures(run.card)
    return {**values, **dict.fromkeys(UNRECORDED)} if run.label == RECORDED else values


def sentences(compared: Compared) -> Iterator[str]:
    """The sentence of the last turn of each run."""
    return (f"{run.label}, in the end: {run.sentence}" for run in compared.runs if run.sentence)


def answer(compared: Compared) -> Iterator[str]:
    """The answer in one line, then the reasons for it; without a choice, how the only candidate ended."""
    best = recommended(compared)
    if best is None:
        (run,) = (run for run in compared.runs if run.label != RECORDED)
        ends = f"{run.label} ends {_gap(run):.1f} points apart, with {_moves(run)}"
        yield f"{compared.name}: {ends}. A second --strategy gives a recommendation."
        return
    even, moved, *others = best.reasons
    yield f"{compared.name}: {best.label} is recommended: {even}; {moved}."
    yield from (f"{reason[0].upper()}{reason[1:]}." for reason in others)


def rests_on(compared: Compared, *, everything: bool = True) -> Iterator[str]:
    """The error of the load model behind a comparison over a recording, after the model itself if ``everything``."""
    if compared.model is not None and compared.error is not None:
        yield from _slopes(compared.model) if everything else ()
        yield error_text(compared.error)


def _slopes(model: LoadModel) -> Iterator[str]:
    """CPU is what mostly binds: its slope, background, and where the slope comes from."""
    unit, each = model.shown_unit
    yield f"load model, CPU in points (each for {unit} in + out):"
    for row, broker in enumerate(model.brokers):
        source, slope, half = model.sources[row][CPU], model.slope[row, CPU] * each, model.half_width[row, CPU] * each
        if source is Source.GIVEN:
            yield f"  {broker}: background as recorded, slope {slope:.3g} (given)"
        else:
            learned = f"background {model.background[row, CPU]:.1f}, slope {slope:.3g} +- {half:.2g}"
            yield f"  {broker}: {learned} ({source.value}, {model.samples[row]} samples)"


def error_text(error: ModelError) -> str:
    """How far the model was off, in one line."""
    early = f"; {error.unpredicted} more came before a slope was known" if error.unpredicted else ""
    if not error.number:
        return f"error of the model: not known, no recorded move changed a broker's load by a point or more{early}"
    return (
        f"error of the model on {error.number} changes that really happened: {error.mean_absolute:.1f} points on "
        f"average, {error.p95:.1f} at p95, bias {error.bias:+.1f} (taking scores to stay as they were: "
        f"{error.unchanged_mean_absolute:.1f}){early}"
    )
