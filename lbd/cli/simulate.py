"""``lbd simulate``."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from lbd.cli import render, simulate_text
from lbd.cli.options import assignment, format_option, loaded, settings_options
from lbd.errors import UsageError
from lbd.score.scorecard import scorecard
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import load, shipped
from lbd.simulate.settings import settled


@click.command(epilog=f"Scenarios: {', '.join(shipped())}.")
@click.argument("scenario")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Try a setting; dotted as in config show.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="The same seed, the same run.")
@click.option("--hours", type=click.FloatRange(0, 8784, min_open=True), help="Default: the scenario's.")
@format_option
@settings_options
@click.pass_context
def simulate(
    ctx: click.Context,
    config_file: str | None,
    admin_urls: tuple[str, ...],
    scenario: str,
    overrides: tuple[str, ...],
    seed: int,
    hours: float | None,
    form: str,
) -> None:
    """Run lbd on a simulated cluster, turn after turn over simulated time, and score what it did.

    SCENARIO is one of those below, or a YAML file of your own. It moves nothing anywhere. Your settings hold where you
    have any, over those of the scenario; a turn is made each minute unless interval_seconds is set.

    \b
    Example: lbd simulate scale-out --set avg_shedder.hit_count_low=4
    """
    chosen = load(scenario)
    if hours is not None:
        chosen = chosen.model_copy(update={"hours": _above_zero(hours)})
    settings = settled(chosen, loaded(ctx, config_file, admin_urls).settings, dict(map(assignment, overrides)))
    simulation = Simulation(chosen, settings, seed, time.perf_counter)
    told = simulate_text.Told(scenario, seed, chosen)
    with _progress() as progress:
        task = progress.add_task(scenario, total=chosen.hours)
        for turned in simulation.turns():
            told = told.after(turned)
            progress.update(task, completed=turned.seconds / 3600)
    trace = simulation.trace()
    card = scorecard(trace, settings.avg_shedder.low_threshold, settings.avg_shedder.high_threshold)
    if form == "json":
        moves = [asdict(move) for move in trace.moves]
        run = {"scenario": scenario, "seed": seed, "turn_seconds": told.turn_seconds, "moves": moves}
        render.json_out({**run, "scorecard": asdict(card), "sentence": told.last})
        return
    simulate_text.as_text(replace(told, card=card), settings)


def _above_zero(hours: float) -> float:
    """NaN is in every range."""
    if not hours > 0:
        raise UsageError(f"--hours {hours}: wanted a number above 0, up to 8784")
    return hours


def _progress() -> Progress:
    """Hours simulated so far, where somebody looks."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:g} h"),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
