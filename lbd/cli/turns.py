"""``lbd run`` and ``lbd dry-run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lbd import log
from lbd.cli import render
from lbd.cli.options import format_option, settings_options
from lbd.cycle.document import document
from lbd.daemon.dry import dry_run as plan_once
from lbd.daemon.dry import dry_run_recording
from lbd.daemon.engine import engine
from lbd.daemon.rereading import Rereading
from lbd.daemon.service import Service
from lbd.daemon.telling import split_line, status_of
from lbd.errors import LbdError
from lbd.model import Result
from lbd.reason import Reason
from lbd.record.status import write_status

if TYPE_CHECKING:
    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.cycle import CycleRecord
    from lbd.record.status import Status

REFUSALS = {Reason.IN_BROKER_SHEDDING, Reason.PAUSED, Reason.NOT_LEADER}
PLANNED, MISSED, REFUSED = 6, 5, 4


@click.command("run")
@click.option(
    "--once", "single", is_flag=True, help="One turn, then exit; counters are kept in state_dir between turns."
)
@click.option("--observe", is_flag=True, help="Never unload; say once for each imbalance what would move.")
@format_option
@settings_options
@click.pass_context
def run(ctx: click.Context, read: Read, form: str, *, single: bool, observe: bool) -> None:
    """Balance the cluster: each turn observes, decides, unloads to named brokers, and proves each landing.

    Turns go on until SIGTERM or Ctrl-C; the unload in flight is brought to its end first. SIGHUP reads the settings
    again.

    \b
    Example: lbd run --once --admin-url http://127.0.0.1:8080
    """
    again = Rereading(read)
    settings = again()
    with engine(settings, observe_only=observe) as balancer:
        for warning in balancer.warnings:
            click.echo(f"Warning: {warning}", err=True)
        if not single:
            log.set_up(settings.log.format, settings.log.level)
            Service(balancer, again).run()
            return
        with render.progress(enabled=form == "text") as show:
            balancer.on_end = show.ended
            balancer.splitting.on_end = lambda ended: click.echo(split_line(ended)[0], err=True)
            record = balancer.once(show.plan)
        _keep(settings, status_of(balancer, record, 1, None))
    _tell(record, form, everything=False)
    ctx.exit(_exit_code(record))


@click.command("dry-run")
@click.option("--recording", type=click.Path(path_type=Path), help="Take the last round of a recording, no cluster.")
@click.option(
    "--all", "everything", is_flag=True, help="Name every bundle that stays, not only those of the hot brokers."
)
@click.option("--detailed-exitcode", is_flag=True, help="Exit 6 when unloads are planned.")
@format_option
@settings_options
@click.pass_context
def dry_run(
    ctx: click.Context, read: Read, form: str, recording: Path | None, *, everything: bool, detailed_exitcode: bool
) -> None:
    """Print what would be unloaded if the imbalance lasts; change nothing.

    Hit counts are taken as reached. Where the state directory of a running lbd can be read, the turns still to wait are
    shown beside each pair.

    \b
    Example: lbd dry-run --admin-url http://127.0.0.1:8080
    """
    settings = read().settings
    record = dry_run_recording(settings, recording) if recording else plan_once(settings)
    _tell(record, form, everything=everything)
    code = _exit_code(record, refusals=False)
    ctx.exit(PLANNED if detailed_exitcode and code == 0 and record.unloads else code)


def _keep(settings: Settings, status: Status) -> None:
    """For ``lbd status``, as after a daemon's turn."""
    try:
        write_status(settings.state_dir, status)
    except LbdError as error:
        click.echo(f"Warning: lbd status shows what was before: {error}", err=True)


def _tell(record: CycleRecord, form: str, *, everything: bool) -> None:
    """Print the turn, as far as it came; then its error, if it has one, ends the command."""
    if record.observation is not None and form == "json":
        render.json_out(document(record, everything=everything))
    elif record.observation is not None:
        render.as_text(record, everything=everything)
    if record.error is not None:
        raise record.error


def _exit_code(record: CycleRecord, *, refusals: bool = True) -> int:
    if any(outcome.result is not Result.LANDED for outcome in record.outcomes):
        return MISSED
    held = record.hold is not None and record.hold[0] in REFUSALS
    return REFUSED if refusals and (held or record.refused) else 0
