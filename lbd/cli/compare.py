"""``lbd compare``: run strategies side by side, and print the result as text or JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.progress import TaskProgressColumn
from rich.text import Text

from lbd.cli import render
from lbd.cli.options import LONGEST_HOURS, Number, assignment, format_option, new_directory, settings_options
from lbd.cli.progress import passing
from lbd.cli.simulate import write_page
from lbd.cli.status_text import console, fitted, room
from lbd.compare import summary
from lbd.compare.side_by_side import ComparisonRequest, candidate, over_recording, over_scenario, recordings
from lbd.compare.summary import recommended, scorecard_json
from lbd.decide.strategies import STRATEGIES
from lbd.errors import UsageError
from lbd.load.estimate import CPU, fixed_model
from lbd.simulate.scenario import load, shipped
from lbd.simulate.world import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.cli.options import Read
    from lbd.compare.side_by_side import Compared
    from lbd.load.estimate import LoadModel
    from lbd.model import Snapshot


def document(comparison: Compared) -> dict[str, Any]:
    """The result as JSON: each run's scorecard and moves, and the load model with its error."""
    low, high = comparison.thresholds
    return {
        "over": comparison.name,
        "low_threshold": low,
        "high_threshold": high,
        "runs": [
            {
                "strategy": run.label,
                "scorecard": scorecard_json(run),
                "moves": [asdict(move) for move in run.trace.moves],
                "sentence": run.sentence,
            }
            for run in comparison.runs
        ],
        "recommended": None if (best := recommended(comparison)) is None else asdict(best),
        "model": None if comparison.model is None else _model(comparison.model),
        "model_error": None if comparison.error is None else _finite(asdict(comparison.error)),
    }


def as_text(comparison: Compared, *, everything: bool) -> None:
    """Print the answer, a column for each run, and the basis of the comparison."""
    out = console()
    answer, *reasons = summary.answer(comparison)
    out.print(Text(fitted(answer, room()), "bold"))
    for line in reasons:
        out.print(Text(fitted(f"  {line}", room()), "dim"))
    out.print(Text(summary.title(comparison)))
    figures = list(summary.rows(comparison))
    shown = [row for row in figures if everything or row.figure.name in summary.DECIDING]
    table = render.table("", *(f">{_head(run.label)}" for run in comparison.runs))
    table.columns[0].no_wrap = False
    for row in shown:
        table.add_row(row.figure.label, *row.cells)
    out.print(table, width=max(room(), out.measure(table).minimum), soft_wrap=False)
    if len(shown) < len(figures):
        out.print(Text(f"--all shows {len(figures) - len(shown)} more figures.", "dim"))
    for line in (*summary.sentences(comparison), *summary.rests_on(comparison, everything=everything)):
        out.print(Text(fitted(line, room())))


def _head(label: str) -> str:
    """The column head: a strategy, and its settings below it."""
    name, _, settings = label.partition(":")
    return "\n".join((name, *filter(None, settings.split(","))))


def _model(model: LoadModel) -> dict[str, Any]:
    return {
        "measure": model.measure,
        "brokers": [
            {
                "broker": broker,
                "background_points": _number(model.background[row, CPU]),
                "slope": _number(model.slope[row, CPU]),
                "half_width": _number(model.half_width[row, CPU]),
                "source": model.sources[row][CPU].value,
                "samples": int(model.samples[row]),
            }
            for row, broker in enumerate(model.brokers)
        ],
    }


def _number(value: float) -> float | None:
    """None for infinity, which JSON does not have."""
    return float(value) if np.isfinite(value) else None


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {key: _number(value) if isinstance(value, float) else value for key, value in values.items()}


RECORDINGS = (".jsonl", ".jsonl.gz")


@click.command(epilog=f"Strategies: {', '.join(STRATEGIES)}. Scenarios: {', '.join(shipped())}.")
@click.argument("over", nargs=-1, required=True, metavar="SCENARIO|RECORDING...")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    required=True,
    metavar="NAME[:KEY=VALUE,...]",
    help="Strategy to compare, with its own settings; repeatable.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting for all strategies; key as in config show.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of the scenario.")
@click.option(
    "--hours", type=Number(0, LONGEST_HOURS, min_open=True), help="Simulated hours.  [default: of the scenario]"
)
@click.option(
    "--points-per-mib",
    type=Number(0, 100),
    help="CPU points per MiB/s (mean of in and out).  [default: of the recording or scenario]",
)
@click.option(
    "--report", type=click.Path(path_type=Path), metavar="DIR", help="Write a page of charts to a new directory."
)
@click.option("--all", "everything", is_flag=True, help="Show every figure of the scorecard, and the load model.")
@format_option
@settings_options
def compare(
    read: Read,
    over: tuple[str, ...],
    strategies: tuple[str, ...],
    overrides: tuple[str, ...],
    seed: int,
    hours: float | None,
    points_per_mib: float | None,
    report: Path | None,
    form: str,
    *,
    everything: bool,
) -> None:
    """Compare strategies side by side: the moves that lbd would have made with each, and how even the brokers would be.

    The first line is the recommendation; the ten figures that it rests on follow, all of them with --all.

    On a scenario, the simulated cluster runs once per strategy, with the same seed. On a recording (.jsonl or
    .jsonl.gz, from lbd record), rates are as recorded, bundles are where the strategy put them, and scores follow a
    load model fitted to the recording; its error on moves that really happened is printed.

    \b
    Example: lbd compare monday.jsonl.gz --strategy avg-shedder \\
                 --strategy avg-shedder:max_unload_percentage=0.2
    """
    chosen = tuple(candidate(text, assignment) for text in strategies)
    twice = sorted(label for label, number in Counter(strategy.label for strategy in chosen).items() if number > 1)
    if twice:
        raise UsageError(f"--strategy {twice[0]}: given twice; wanted another strategy, or other settings of it")
    settings = read().settings
    if report is not None:
        new_directory(report, "--report")
    with passing(TaskProgressColumn()) as progress:
        task = progress.add_task("", total=1)

        def show_progress(label: str, done: float) -> None:
            progress.update(task, description=label, completed=done)

        request = ComparisonRequest(chosen, settings, dict(map(assignment, overrides)), show_progress)
        comparisons = [each for name in over for each in _compared(request, name, seed, hours, points_per_mib)]
    if report is not None:
        from lbd.compare.report import page  # noqa: PLC0415 - only a report needs it

        write_page(report / "index.html", page(comparisons))
    if form == "json":
        render.json_out([document(comparison) for comparison in comparisons])
        return
    for comparison in comparisons:
        as_text(comparison, everything=everything)


def _compared(
    request: ComparisonRequest, name: str, seed: int, hours: float | None, points_per_mib: float | None
) -> Iterator[Compared]:
    if name.endswith(RECORDINGS):
        for header, rounds in recordings(Path(name)):
            yield over_recording(request, header, rounds, _fixed_model(rounds, points_per_mib))
        return
    changes = {"hours": hours, "points_per_mib": points_per_mib}
    scenario = load(name).model_copy(update={key: value for key, value in changes.items() if value is not None})
    yield over_scenario(request, name, scenario, seed)


def _fixed_model(rounds: list[Snapshot], points_per_mib: float | None) -> LoadModel | None:
    """The load model of ``--points-per-mib``, the same for all brokers."""
    if points_per_mib is None:
        return None
    brokers = sorted({broker for round_ in rounds for broker in round_.brokers.ids})
    return fixed_model(brokers, np.zeros(len(brokers)), np.full(len(brokers), points_per_mib / 2 / MIB))
