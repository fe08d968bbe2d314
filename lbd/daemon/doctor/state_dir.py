"""What lbd keeps: whether one runs, and whether its state directory is whole."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from lbd import __version__
from lbd.act import shedding_note
from lbd.daemon.doctor.finding import Check, named
from lbd.daemon.taking_over import NOTE
from lbd.daemon.telling import utc
from lbd.errors import UsageError
from lbd.files import owner, user_name
from lbd.record.control import Control
from lbd.record.drains import told_of
from lbd.record.journal import KEEP_SECONDS, LIVE_NAME, read
from lbd.record.status import read_status, running
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.daemon.doctor.finding import Finding
    from lbd.daemon.doctor.survey import Survey
    from lbd.record.journal import Past
    from lbd.record.status import Status

LEAST_FREE_BYTES, FEW_FREE_BYTES = 16 * 1024**2, 512 * 1024**2
"""A journal is set aside at 8 MiB, averages of 100,000 bundles take 10; without room no intent can be written."""

LASTING_SECONDS = 4 * 3600.0
"""Longer than replacing a machine takes: a drain of that age was perhaps forgotten."""

DIRECTORY = Check("state-dir", "without it lbd forgets cool-downs and open moves, and unloads nothing")
RUNNING = Check("lbd", "only a running lbd moves anything")
PAUSED = Check("pause", "while paused lbd observes and counts, and moves nothing")
DRAINED = Check("drains", "a drained broker is in no pair, average or destination: the others carry its load")
TAKE_OVER = Check("take-over", "while it lasts no broker balances by itself, also when lbd is stopped")
JOURNAL = Check("journal", "it is the only truth about moves and cool-downs")


def check(seen: Survey) -> Iterator[Finding]:
    """The state directory of the settings, as far as this user may look into it."""
    directory = seen.settings.state_dir
    if not directory.is_dir():
        yield DIRECTORY.ok(f"{directory} is not there yet: lbd run makes it")
        yield RUNNING.ok("none has run on this state_dir")
        return
    if not os.access(directory, os.R_OK | os.X_OK):
        told = f"{directory} belongs to {owner(directory)}, this is user {user_name(os.geteuid())}"
        yield DIRECTORY.unknown(told, f"run lbd doctor as {owner(directory)} or root")
        return
    yield _directory(directory)
    yield from _guarded(RUNNING, _running(directory, seen.taken_at))
    yield from _guarded(DRAINED, drains(directory, seen.taken_at))
    yield from _guarded(TAKE_OVER, _taken_over(directory))


def journal(seen: Survey) -> tuple[Past | None, list[Finding]]:
    """What the journal says, and what there is to say of it; None where there is none to be read."""
    directory = seen.settings.state_dir
    if not os.access(directory, os.R_OK | os.X_OK):
        return None, []
    try:
        past = read(directory / LIVE_NAME, seen.taken_at, KEEP_SECONDS)
        return past, list(_journal(directory, past, seen.taken_at))
    except UsageError as error:
        return None, [JOURNAL.problem(str(error), "mend or remove the file; removing it forgets cool-downs")]


def _guarded(check: Check, findings: Iterator[Finding]) -> Iterator[Finding]:
    """A file that cannot be read is a finding."""
    try:
        yield from findings
    except UsageError as error:
        yield check.problem(str(error), "mend or remove that file, or run lbd doctor as a user who may read it")


def _directory(path: Path) -> Finding:
    found = path.stat()
    room = os.statvfs(path)
    free = room.f_bavail * room.f_frsize
    told = f"{path}, of user {owner(path)}, {free / 1e9:,.1f} GB free"
    if free < LEAST_FREE_BYTES:
        return DIRECTORY.problem(f"{told}: no room for the journal", "make room")
    if found.st_mode & stat.S_IWOTH:
        return DIRECTORY.problem(f"{told}, writable for everybody: anybody may order unloads", f"chmod o-w {path}")
    if free < FEW_FREE_BYTES:
        return DIRECTORY.warning(told, "make room")
    return DIRECTORY.ok(told)


def _running(directory: Path, now: float) -> Iterator[Finding]:
    pid = running(directory)
    if not (directory / "status.json").exists() and pid is None:
        yield RUNNING.ok("none runs on this state_dir, and none has ended a turn")
        return
    status = read_status(directory)
    yield _life(status, pid, now)
    for warning in status.warnings if pid is not None else ():
        yield RUNNING.warning(f"it says: {warning}", "see docs/runbook.md")
    pause = Control(directory).paused(now)
    if pause is not None:
        until = f"until {utc(pause.until)}" if pause.until is not None else "without end"
        yield PAUSED.warning(f"by {pause.by} {until}{pause.reason and f': {pause.reason}'}", "lbd resume ends it")


def drains(directory: Path, now: float) -> Iterator[Finding]:
    """The drains in force: one that lasts was perhaps forgotten, one that left bundles needs a person."""
    for drain, work in told_of(directory, now):
        reason = f": {drain.reason}" if drain.reason else ""
        told = f"{drain.broker} by {drain.by} since {utc(drain.since)}{reason}"
        todo = f"lbd drain {drain.broker} --release ends it"
        if work is not None and work.left:
            yield DRAINED.warning(f"{told}; {work.sentence.rstrip('.')}", f"lbd explain BUNDLE tells why; {todo}")
        elif now - drain.since > LASTING_SECONDS:
            yield DRAINED.warning(f"{told}, for {(now - drain.since) / 3600:.0f} h", todo)
        else:
            yield DRAINED.ok(told)


def _life(status: Status, pid: int | None, now: float) -> Finding:
    age = now - status.at
    last = f"last turn {_ago(age)}: {status.sentence}"
    if pid is None:
        return RUNNING.warning(f"none runs; {last}", "start it: lbd run, or systemctl start lbd")
    told = f"process {pid or '?'} runs{', observing only' if status.observe_only else ''}; {last}"
    if status.late(now):
        wanted = f"wanted every {status.interval_seconds:g} s"
        return RUNNING.problem(f"{told} ({wanted})", "see its log; restart it if it does not go on")
    if status.error is not None:
        return RUNNING.problem(f"{told} ({status.error})", "see its log")
    if status.version != __version__:
        return RUNNING.warning(f"{told} (version {status.version}, this is {__version__})", "restart it")
    return RUNNING.ok(told)


def _ago(seconds: float) -> str:
    """How long since; a clock that was set back makes it negative."""
    return f"{max(seconds, 0):.0f} s ago" if seconds < 7200 else f"{seconds / 3600:.0f} h ago"


def _taken_over(directory: Path) -> Iterator[Finding]:
    note = shedding_note.load(directory / NOTE)
    if note is None:
        return
    seen = f"shedding off since {utc(note.at)} by lbd, last seen off {utc(note.seen_at) if note.seen_at else 'never'}"
    if note.phase == "taken":
        yield TAKE_OVER.ok(f"{seen}; lbd release gives it back")
    else:
        half = note.phase.replace("taking", "take-over").replace("releasing", "release")
        yield TAKE_OVER.warning(f"{seen}; a {half} was not finished: some brokers may shed", "run lbd, or lbd release")


def _journal(directory: Path, past: Past, now: float) -> Iterator[Finding]:
    path = directory / LIVE_NAME
    if past.torn_lines:
        told = f"{path}: {counted(past.torn_lines, 'line')} cannot be read: cool-downs in them are lost"
        yield JOURNAL.warning(told, "check the disk; after a kill -9 one torn line is nothing")
    if past.open and running(directory) is None:
        bundles = named([unload.bundle for _, unload in past.open])
        yield JOURNAL.warning(
            f"no outcome yet: {bundles}; lbd ended in the middle", "the next lbd run asks who owns them"
        )
    elif not past.torn_lines:
        under_way = f", {len(past.open)} under way" if past.open else ""
        lately = sum(at > now - 86_400 for at in past.attempted_at.values())
        yield JOURNAL.ok(f"{counted(lately, 'bundle')} attempted in the last day{under_way}")
