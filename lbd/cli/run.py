"""``lbd run`` and ``lbd dry-run``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lbd import log
from lbd.cli import render
from lbd.cli.options import format_option, settings_options
from lbd.daemon.engine import engine
from lbd.daemon.service import Rereading, Service
from lbd.daemon.status import build_status, split_line
from lbd.errors import LbdError
from lbd.model import Result
from lbd.operations.dry import dry_run as plan_once
from lbd.operations.dry import dry_run_recording
from lbd.reason import Reason
from lbd.store.status import write_status
from lbd.turn.record import document

if TYPE_CHECKING:
    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.store.status import Status
    from lbd.turn.parts import TurnResult


REFUSALS = {Reason.IN_BROKER_SHEDDING, Reason.PAUSED, Reason.NOT_LEADER, Reason.STATE_LOST}
PLANNED, MISSED, REFUSED = 6, 5, 4


@click.command("run")
@click.option("--once", "single", is_flag=True, help="Run one turn and exit. Counters are kept in state_dir.")
@click.option(
    "--observe", is_flag=True, help="Never unload (mode: observe). Report once per imbalance what would move."
)
@click.option(
    "--reload-on-change", "follow", is_flag=True, help="Reload the settings when their file changes, as SIGHUP does."
)
@click.option(
    "--new-journal",
    "new_journal",
    is_flag=True,
    help="Start a new journal if the old one is lost. Earlier cool-downs, budgets and open moves are forgotten.",
)
@format_option
@settings_options
@click.pass_context
def run(
    ctx: click.Context, read: Read, form: str, *, single: bool, observe: bool, follow: bool, new_journal: bool
) -> None:
    """Balance the cluster: each turn observes, decides, unloads to named brokers, and verifies each landing.

    Runs until SIGTERM or Ctrl-C; an unload in flight is completed first. SIGHUP reloads the settings.

    \b
    Example: lbd run --once --admin-url http://127.0.0.1:8080
    """
    again = Rereading(partial(read, mode="observe") if observe else read)
    settings = again()
    with engine(settings, new_journal=new_journal) as balancer:
        for warning in balancer.warnings:
            click.echo(f"Warning: {warning}", err=True)
        if not single:
            log.set_up(settings.log.format, settings.log.level)
            Service(balancer, again, follow=follow).run()
            return
        with render.progress(enabled=form == "text") as show:
            balancer.on_end = show.ended
            balancer.splitting.on_end = lambda split: click.echo(split_line(split)[0], err=True)
            record = balancer.once(show.plan)
        _keep(settings, build_status(balancer, record, 1, None))
    _print_turn(record, form, everything=False)
    ctx.exit(_exit_code(record))


@click.command("dry-run")
@click.option(
    "--recording", type=click.Path(path_type=Path), help="Use the last round of a recording instead of a cluster."
)
@click.option("--all", "everything", is_flag=True, help="List every skipped bundle, not only those of hot brokers.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 6 if unloads are planned.")
@format_option
@settings_options
@click.pass_context
def dry_run(
    ctx: click.Context, read: Read, form: str, recording: Path | None, *, everything: bool, detailed_exitcode: bool
) -> None:
    """Print the unloads that a turn would make if the imbalance lasts. Changes nothing.

    Each pair is taken to have as many samples above its threshold as it needs. If the state directory of a running lbd
    can be read, each pair shows the turns that remain to wait.

    \b
    Example: lbd dry-run --admin-url http://127.0.0.1:8080
    """
    settings = read().settings
    record = dry_run_recording(settings, recording) if recording else plan_once(settings)
    _print_turn(record, form, everything=everything)
    code = _exit_code(record, refusals=False)
    ctx.exit(PLANNED if detailed_exitcode and code == 0 and record.plan.unloads else code)


def _keep(settings: Settings, status: Status) -> None:
    """Write the status file, as the daemon does after a turn."""
    try:
        write_status(settings.state_dir, status)
    except LbdError as error:
        click.echo(f"Warning: lbd status shows what was before: {error}", err=True)


def _print_turn(record: TurnResult, form: str, *, everything: bool) -> None:
    """Print the turn as far as it went; then raise its error, if it has one."""
    if record.observation is not None and form == "json":
        render.json_out(document(record, everything=everything))
    elif record.observation is not None:
        render.as_text(record, everything=everything)
    if record.error is not None:
        raise record.error


def _exit_code(record: TurnResult, *, refusals: bool = True) -> int:
    if any(outcome.result is not Result.LANDED for outcome in record.moves.outcomes):
        return MISSED
    held = record.plan.hold is not None and record.plan.hold[0] in REFUSALS
    return REFUSED if refusals and (held or record.moves.skips) else 0
