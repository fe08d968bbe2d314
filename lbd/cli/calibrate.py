"""``lbd calibrate``, and what its newest scheduled run proposes."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from lbd.cli.options import format_option, new_directory, settings_options
from lbd.cli.progress import stages
from lbd.cli.render import change_table, json_out, plain, table
from lbd.cli.status_text import console
from lbd.errors import UsageError
from lbd.fields import derived
from lbd.store.calibration import (
    CALIBRATION_FOLDER,
    PROPOSAL,
    REPORT,
    SUMMARY,
    MeasuredFigures,
    ReplayedFigures,
    ShownProposal,
    newest,
    scheduled,
)
from lbd.store.history_round import HISTORY_FOLDER
from lbd.text import DAY_SECONDS, duration_text, zoned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.store.calibration import CalibrationSummary, PresentLoad

UNFINISHED = "unfinished"
"""Folder in the output directory of what has been computed, until all is (:mod:`lbd.learn.kept`)."""

TASKS_OF_WORKER = 2
"""Tasks for each of Spark's slots in a part of a run: the slots are idle while its last task ends."""

FILES = (PROPOSAL, "broker.conf", REPORT, "candidates.parquet", "incidents.parquet", "quality.parquet", SUMMARY)


@click.command("calibrate")
@click.option(
    "--history", "root", metavar="DIR", help="History to read; any path of Spark.  [default: history in state_dir]"
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Spark master or Connect server: local[*], spark://host:7077, sc://host:15002.",
)
@click.option(
    "--conf",
    "conf",
    metavar="KEY=VALUE",
    multiple=True,
    help="Setting of Spark, such as spark.driver.memory=8g; repeatable. It comes before spark-defaults.conf.",
)
@click.option(
    "--packages", metavar="LIST", help="Packages for Spark, as group:name:version, such as those for s3a: paths."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("calibration"),
    show_default=True,
    help="Output directory: new, empty, or of a run that was cut short.",
)
@click.option(
    "--candidates", type=click.IntRange(2, 1000), default=60, show_default=True, help="Number of settings to try."
)
@click.option(
    "--seeds", type=click.IntRange(1, 20), default=1, show_default=True, help="Noise resamples per candidate."
)
@click.option(
    "--strategy",
    "strategies",
    type=click.Choice(["avg-shedder", "least-moves"]),
    multiple=True,
    help="Also try settings of this strategy, beside the configured one; repeatable.",
)
@click.option(
    "--show", "shown", is_flag=True, help="Show the newest proposal in state_dir, and what came of it. Needs no Spark."
)
@click.option(
    "--estimate",
    "estimate_only",
    is_flag=True,
    help="Print the expected time, memory and bytes, by the footers of history's files, and end. Needs no Spark.",
)
@click.option("--explain", "explained", is_flag=True, help="Print why these values were chosen.")
@format_option
@settings_options
def calibrate(
    read: Read,
    root: str | None,
    master: str,
    conf: tuple[str, ...],
    packages: str | None,
    out: Path,
    candidates: int,
    seeds: int,
    strategies: tuple[str, ...],
    form: str,
    *,
    estimate_only: bool,
    explained: bool,
    shown: bool,
) -> None:
    """Learn from history which thresholds would have worked best, and write a proposal with its evidence.

    Replays the real strategy over the recorded history, closed loop, with many settings. Chooses on the first part of
    the time and evaluates on the last part. Proposes no settings that do worse than the present ones in incidents,
    such as a lost or a hot broker, which are injected into the history. Applies nothing. Exit code 3 if too much of
    the history is bad.

    \b
    Example: lbd calibrate --out calibration && lbd config check --config calibration/proposal.yaml
    """
    settings = read().settings
    if shown:
        proposal = _shown(settings, Path(root) if root else settings.state_dir / HISTORY_FOLDER)
        if form == "json":
            json_out(proposal)
        else:
            _show(proposal)
        return
    history = root or str(settings.state_dir / HISTORY_FOLDER)
    spark_settings = _spark_settings(conf, packages)
    if estimate_only:
        from lbd.learn.estimate import estimated  # noqa: PLC0415 - NumPy and pyarrow are loaded only here

        names = tuple(dict.fromkeys((settings.strategy, *strategies)))
        estimate = estimated(
            history, master, spark_settings, settings.history, candidates=candidates, deals=seeds, strategies=names
        )
        if form == "json":
            json_out(estimate)
        else:
            click.echo("\n".join(estimate.lines()))
        return
    from lbd.learn import report as written  # noqa: PLC0415 - Spark is loaded only here
    from lbd.learn.spark import parallel, parts, started  # noqa: PLC0415

    with new_calibration(out), _ending(out), started(history, master, spark_settings) as spark:
        from lbd.learn.calibrate import CalibrationRequest as Asked  # noqa: PLC0415
        from lbd.learn.calibrate import calibrate as run  # noqa: PLC0415
        from lbd.learn.document import document  # noqa: PLC0415
        from lbd.learn.job import SparkWorkers  # noqa: PLC0415 - needs PySpark
        from lbd.learn.kept import Done, KeptWorkers  # noqa: PLC0415

        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGTERM))  # Spark's own handler fails the job instead
        workers = KeptWorkers(SparkWorkers(spark, history), out / UNFINISHED, TASKS_OF_WORKER * parallel(spark))

        def counted() -> tuple[int, int, str]:
            done = workers.done or Done(*parts(spark), 0, 0.0)
            return done.done, done.total, done.words

        with stages(counted) as show_stage:
            request = Asked(history, settings, candidates, seeds, show_stage, strategies)
            calibration = run(workers, request)
        result = document(calibration, time.time())
        written.write(calibration, result.summary, out)
        shutil.rmtree(out / UNFINISHED)
    if form == "json":
        json_out(result)
    else:
        for line in result.lines(explained=explained):
            click.echo(line)
    click.echo(f"{', '.join(name for name in FILES if (out / name).exists())} in {out}", err=True)


def _spark_settings(conf: tuple[str, ...], packages: str | None) -> dict[str, str]:
    """Spark's settings by key, as named on the command line."""
    settings = {key: value for key, _, value in (setting.partition("=") for setting in conf)}
    wrong = [setting for setting in conf if not setting.partition("=")[0].startswith("spark.") or "=" not in setting]
    if wrong:
        raise UsageError(f"--conf {wrong[0]}: is no setting of Spark; wanted spark.NAME=VALUE")
    return {**settings, "spark.jars.packages": packages} if packages else settings


def _shown(settings: Settings, history: Path) -> ShownProposal:
    """The newest scheduled proposal, and once it is in force, what came of it."""
    calibration = newest(settings.state_dir, time.time())
    if calibration is None:
        folder = settings.state_dir / CALIBRATION_FOLDER
        raise UsageError(
            f"{folder}: no calibration has ended there; its unit or CronJob writes there (docs/calibrate.md)"
        )
    run, summary = calibration
    in_force = summary.in_force(settings)
    proposed = summary.present is not None and summary.proposed is not None
    measured = _measured(summary, history, settings) if proposed and in_force else None
    expired = summary.expired(_last_load(history, settings.state_dir)) if summary.load is not None else None
    return ShownProposal(folder=str(run), summary=summary, in_force=in_force, measured=measured, expired=expired)


def _last_load(history: Path, state_dir: Path) -> PresentLoad | None:
    """The load in the last minutes of history, and the mix of a running lbd."""
    from lbd.learn.drift import last_load  # noqa: PLC0415 - NumPy and pyarrow are loaded only here
    from lbd.observe.averages import settled_half_in  # noqa: PLC0415
    from lbd.store.state import StateDir  # noqa: PLC0415

    now = last_load(history, time.time())
    return now and now._replace(half_in=settled_half_in(StateDir(state_dir).load_averages(time.time())))


def _measured(summary: CalibrationSummary, history: Path, settings: Settings) -> MeasuredFigures | None:
    """The figures since the proposal is in force; None before its first round is in history."""
    from lbd.learn.choose import moves_per_day  # noqa: PLC0415 - NumPy and pyarrow are loaded only here
    from lbd.learn.drift import measure  # noqa: PLC0415

    drift = measure(history, summary.changes, summary.at, settings.weights, time.time())
    if drift is None:
        return None
    figures = derived(ReplayedFigures, drift.figures, moves_per_day=moves_per_day(drift.figures))
    return MeasuredFigures(since=drift.since, seconds=drift.figures.days * DAY_SECONDS, figures=figures)


def _show(proposal: ShownProposal) -> None:
    """Print its gain, what it changes, its figures, and those measured."""
    summary, measured, run = proposal.summary, proposal.measured, Path(proposal.folder)
    out = console()
    for words in filter(None, (summary.gain(), proposal.expired)):
        out.print(plain(f"{words[0].upper()}{words[1:]}."))
    if summary.present is not None and summary.proposed is not None:
        rows = [("settings of then, replayed", summary.present), ("proposed, replayed", summary.proposed)]
        if measured is not None:
            name = f"measured since {zoned(measured.since)} ({duration_text(measured.seconds)} seen)"
            rows.append((name, measured.figures))
        heads = ("client-minutes a day", "moves a day", "mean gap", "p95 gap")
        figures = table("", *(f">{head}" for head in heads))
        for name, row in rows:
            cost = "-" if row.client_minutes_per_day is None else f"{row.client_minutes_per_day:,.1f}"
            figures.add_row(name, cost, f"{row.moves_per_day:.1f}", f"{row.mean_gap:.1f}", f"{row.p95_gap:.1f}")
        out.print(figures)
        changes = ((change.key, change.now, change.proposed) for change in summary.changes)
        out.print(change_table(changes, before="then"))
    out.print(f"report:      {plain(str(run / REPORT))}")
    if proposal.in_force:
        out.print(f"in force:    all of its values{'' if measured is not None else NOT_MEASURED}")
    elif summary.recommended is not None and proposal.expired is None:
        out.print(f"to take it:  lbd config diff {plain(str(run / PROPOSAL))}")


NOT_MEASURED = "; history has no round since in which this lbd might move by itself"


@contextmanager
def _ending(out: Path) -> Iterator[None]:
    """End at once on SIGTERM, and Java with it; an exception would wait for Spark's answer to the last request."""

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        with suppress(OSError):
            out.rmdir()
        Console(stderr=True).show_cursor()
        if _unfinished(out):
            click.echo(f"\nInterrupted: {out} keeps what was computed; the same command goes on with it.", err=True)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    numbers = signal.SIGTERM, signal.SIGINT
    before = [signal.getsignal(number) for number in numbers]
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def new_calibration(out: Path) -> Iterator[None]:
    """A new or empty directory, removed again if nothing was written to it, or that of a run that did not end.

    Raises :class:`UsageError` while another calibration works there.
    """
    goes_on = _unfinished(out)
    if not goes_on:
        new_directory(out, "--out", parents=True)
    with _alone(out):
        _remove_unfinished(out)
        if goes_on:
            click.echo(f"{out} has what an earlier run computed; this one goes on with it", err=True)
        try:
            yield
        finally:
            with suppress(OSError):
                out.rmdir()


def _remove_unfinished(out: Path) -> None:
    """Remove what scheduled runs computed that were killed: each has a folder of its own, so none goes on with it."""
    runs = scheduled(out.absolute().parent)
    if out.absolute() not in runs:
        return
    for run in runs:
        if run != out.absolute() and _unfinished(run):
            try:
                with _alone(run):
                    shutil.rmtree(run / UNFINISHED)
                    with suppress(OSError):
                        run.rmdir()
            except (OSError, UsageError) as error:
                click.echo(f"{run / UNFINISHED} stays: {error}", err=True)


WITHOUT_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP})
"""Numbers of the errors of a file system, such as NFS, that cannot lock a directory."""


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UsageError(f"--out {out}: another lbd calibrate works there; name a new directory") from error
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
    try:
        yield
    finally:
        os.close(descriptor)


def _unfinished(out: Path) -> bool:
    """Whether an output directory is of a run that did not end: also of one that was killed as it wrote its files."""
    return (out / UNFINISHED).is_dir()
