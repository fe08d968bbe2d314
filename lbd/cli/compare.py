"""``lbd compare``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from rich.progress import TaskProgressColumn

from lbd.cli import compare_text, render
from lbd.cli.options import LONGEST_HOURS, Number, assignment, format_option, new_directory, settings_options
from lbd.cli.simulate_files import write_page
from lbd.cli.stages import passing
from lbd.compare.candidates import candidate
from lbd.compare.side_by_side import Asked, over_recording, over_scenario, recordings
from lbd.decide import STRATEGIES
from lbd.errors import UsageError
from lbd.load.linear import given
from lbd.simulate.cluster import MIB
from lbd.simulate.scenario import load, shipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.cli.options import Read
    from lbd.compare.side_by_side import Compared
    from lbd.load.linear import LoadModel
    from lbd.model import Snapshot

RECORDINGS = (".jsonl", ".jsonl.gz")


@click.command(epilog=f"Strategies: {', '.join(STRATEGIES)}. Scenarios: {', '.join(shipped())}.")
@click.argument("over", nargs=-1, required=True, metavar="SCENARIO|RECORDING...")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    required=True,
    metavar="NAME[:KEY=VALUE,...]",
    help="What to compare, with settings of its own; repeatable.",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting for all; as in config show.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of a scenario.")
@click.option("--hours", type=Number(0, LONGEST_HOURS, min_open=True), help="Of a scenario; default: its own.")
@click.option(
    "--points-per-mib",
    type=Number(0, 100),
    help="Points of CPU for each MiB/s (mean of in and out), instead of what a recording tells or a scenario says.",
)
@click.option("--report", type=click.Path(path_type=Path), metavar="DIR", help="A page of charts in a new directory.")
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
) -> None:
    """Strategies side by side: what lbd would have done with each, and how even the brokers would have been.

    Over a scenario the simulated cluster runs once for each strategy, with the same seed. Over a recording (.jsonl or
    .jsonl.gz, from lbd record) rates are as recorded, bundles are where the strategy put them, and scores follow a
    load model fitted to the recording; how far that was off on moves that really happened is printed with it.

    \b
    Example: lbd compare monday.jsonl.gz --strategy avg-shedder \\
                 --strategy avg-shedder:max_unload_percentage=0.2
    """
    chosen = tuple(candidate(text, assignment) for text in strategies)
    twice = sorted({one.label for one in chosen if [other.label for other in chosen].count(one.label) > 1})
    if twice:
        raise UsageError(f"--strategy {twice[0]}: given twice; wanted another strategy, or other settings of it")
    settings = read().settings
    if report is not None:
        new_directory(report, "--report")
    with passing(TaskProgressColumn()) as progress:
        task = progress.add_task("", total=1)

        def tell(label: str, done: float) -> None:
            progress.update(task, description=label, completed=done)

        asked = Asked(chosen, settings, dict(map(assignment, overrides)), time.perf_counter, tell)
        found = [one for name in over for one in _compared(asked, name, seed, hours, points_per_mib)]
    if report is not None:
        from lbd.compare.report import page  # noqa: PLC0415 - loads plotly, which nothing else needs

        write_page(report / "index.html", page(found))
    if form == "json":
        render.json_out([compare_text.document(one) for one in found])
        return
    for one in found:
        compare_text.as_text(one)


def _compared(
    asked: Asked, name: str, seed: int, hours: float | None, points_per_mib: float | None
) -> Iterator[Compared]:
    if name.endswith(RECORDINGS):
        for header, rounds in recordings(Path(name)):
            yield over_recording(asked, header, rounds, _given(rounds, points_per_mib))
        return
    changes = {"hours": hours, "points_per_mib": points_per_mib}
    scenario = load(name).model_copy(update={key: value for key, value in changes.items() if value is not None})
    yield over_scenario(asked, name, scenario, seed)


def _given(rounds: list[Snapshot], points_per_mib: float | None) -> LoadModel | None:
    """A model by decree, the same for all brokers."""
    if points_per_mib is None:
        return None
    brokers = sorted({broker for one in rounds for broker in one.brokers.ids})
    return given(brokers, np.zeros(len(brokers)), np.full(len(brokers), points_per_mib / 2 / MIB))
