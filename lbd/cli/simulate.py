"""``lbd simulate``."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.progress import TextColumn

from lbd.cli import render, simulate_text
from lbd.cli.options import LONGEST_HOURS, Number, assignment, format_option, settings_options
from lbd.cli.simulate_files import new_page, recorder
from lbd.cli.stages import passing
from lbd.decide import STRATEGIES
from lbd.errors import UsageError
from lbd.score.spread import spread
from lbd.simulate.finished import Finished, finish
from lbd.simulate.scenario import load, shipped
from lbd.simulate.settings import settled

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.simulate.run import Turned
    from lbd.simulate.scenario import Scenario

FILE = click.Path(path_type=Path)


@click.command(epilog=f"Scenarios: {', '.join(shipped())}.")
@click.argument("scenario")
@click.option("--strategy", type=click.Choice(list(STRATEGIES)), help="Instead of the one that is set.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Try a setting; dotted as in config show.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="The same seed, the same run.")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=1, help="So many runs from that seed on, and how far they differ."
)
@click.option("--hours", type=Number(0, LONGEST_HOURS, min_open=True), help="Default: the scenario's.")
@click.option("--report", type=FILE, metavar="DIR", help="Charts of the (first) run as a page in a new directory.")
@click.option("--record", type=FILE, metavar="FILE", help="Keep the reports (.jsonl or .jsonl.gz), for lbd replay.")
@format_option
@settings_options
def simulate(
    read: Read,
    scenario: str,
    strategy: str | None,
    overrides: tuple[str, ...],
    seed: int,
    seeds: int,
    hours: float | None,
    report: Path | None,
    record: Path | None,
    form: str,
) -> None:
    """Run lbd on a simulated cluster, turn after turn over simulated time, and score what it did.

    SCENARIO is one of those below, or a YAML file of your own. It moves nothing anywhere. Your settings hold where you
    have any, over those of the scenario; a turn is made each minute unless interval_seconds is set.

    \b
    Example: lbd simulate scale-out --set avg_shedder.hit_count_low=4 --report scale-out
    """
    chosen = load(scenario)
    if hours is not None:
        chosen = chosen.model_copy(update={"hours": hours})
    tried = dict(map(assignment, overrides)) | ({"strategy": strategy} if strategy else {})
    settings = settled(chosen, read().settings, tried)
    if settings.split.enabled and chosen.auto_bundle_split:
        click.echo(f"Note: {UNSPLIT}", err=True)
    if record is not None and seeds > 1:
        raise UsageError(f"--record keeps one run, --seeds {seeds} makes {seeds}: wanted one of the two")
    page = new_page(report)
    with recorder(record, scenario, chosen, settings, seed) as keep:
        runs = [_run(scenario, chosen, settings, one, keep) for one in range(seed, seed + seeds)]
    page(runs)
    (_as_json if form == "json" else simulate_text.as_text)(runs)


UNSPLIT = "split.enabled: lbd splits nothing, for the scenario's brokers do (auto_bundle_split)"


def _run(name: str, scenario: Scenario, settings: Settings, seed: int, keep: Callable[[Turned], None]) -> Finished:
    """One run, with a bar of the hours simulated so far where somebody looks."""
    with passing(TextColumn("{task.completed:.0f} of {task.total:g} h")) as progress:
        task = progress.add_task(f"{name}, seed {seed}", total=scenario.hours)

        def follow(turned: Turned) -> None:
            keep(turned)
            progress.update(task, completed=turned.seconds / 3600)

        return finish(name, scenario, settings, seed, time.perf_counter, follow)


def _as_json(runs: list[Finished]) -> None:
    first = runs[0]
    found = {"scenario": first.name, "turn_seconds": sum(run.turn_seconds for run in runs)}
    if len(runs) == 1:
        trace = {
            "moves": [asdict(move) for move in first.trace.moves],
            "splits": [asdict(one) for one in first.trace.splits],
        }
        render.json_out(
            {**found, "seed": first.seed, **trace, "scorecard": asdict(first.card), "sentence": first.sentence}
        )
        return
    cards = [{"seed": run.seed, "scorecard": asdict(run.card), "sentence": run.sentence} for run in runs]
    figures = spread([run.card for run in runs])
    render.json_out({**found, "runs": cards, "spread": {name: asdict(one) for name, one in figures.items()}})
