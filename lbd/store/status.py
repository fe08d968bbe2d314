"""``status.json``: the last turn of the daemon, for people and for probes; and whether a daemon runs."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from lbd.errors import UsageError
from lbd.files import At, as_usage_error, decoded, reading, refused, replace
from lbd.load.summary import BrokerLoad
from lbd.permit.budget import LastHour
from lbd.reason import Reason
from lbd.redaction import redacted_json
from lbd.remedy import NextStep, next_step
from lbd.store.control import Control, Pause, Resumption
from lbd.store.database import STORE_NAME
from lbd.store.drains import Drain, DrainStatus, Work
from lbd.store.journal import read
from lbd.store.proposal import PlannedScore, Proposal
from lbd.store.turn_record import Verdict
from lbd.text import duration_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path


Mode: TypeAlias = Literal["auto", "approve", "observe"]

FORMAT = 1
INTERVALS_UNTIL_LATE = 3
SECONDS_UNTIL_LATE = 30.0
"""A turn that has to wait for a broker, or for the disk, takes longer than three short intervals."""


class BrokerStatus(msgspec.Struct, frozen=True):
    """One broker: score in points, the resource behind it, messages/s and bytes/s in + out; None where unknown.

    ``load`` is what lbd has learned of it, ``doubt`` why its report is no ground to move on, as in
    :class:`~lbd.store.turn_record.BrokerRecord`.
    """

    id: str
    score: float | None
    binding: str | None
    msg_rate: float | None
    throughput: float | None
    bundles: int
    load: BrokerLoad | None = None
    doubt: str | None = None


class HitStatus(msgspec.Struct, frozen=True):
    """Hits of a pair so far, and at how many the strategy fires."""

    low: int
    low_wanted: int
    high: int
    high_wanted: int


class PairStatus(msgspec.Struct, frozen=True):
    """Two brokers that are compared, or one with something else; ``difference`` in points of score."""

    source: str
    destination: str | None
    difference: float | None
    hits: HitStatus


class UnfinishedStatus(msgspec.Struct, frozen=True):
    """A move without an outcome yet, under way ``since`` (epoch seconds); 0 while it waits for its turn."""

    bundle: str
    source: str
    destination: str | None
    since: At


class BudgetStatus(msgspec.Struct, frozen=True):
    """How much of a limit is used: ``of`` a broker or namespace, or of all; ``limit`` None: there is none."""

    name: str
    of: str
    used: int
    limit: int | None
    left: int | None


class CanaryStatus(msgspec.Struct, frozen=True):
    """The canary in force, and how many bundles of the last turn's plan of ``planned`` bundles it holds."""

    namespaces: tuple[str, ...]
    max_moves_per_hour: int
    planned: int
    held: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the daemon after a turn. Times are epoch seconds, ``seconds`` is how long observing took.

    ``turns`` is how many this process has ended, ``turn`` the number of the last one, for ``lbd explain``. ``hold`` is
    the label of what forbids moves, ``leader`` who leads where several lbds share a cluster, ``error`` why the turn
    could not be finished; None where there is none. ``api`` is where the API listens, None where it does not.
    ``mode`` is the one in force, ``observe`` also under ``lbd run --observe``.
    ``gap_points`` is the highest score minus the lowest, without drained brokers; None where fewer than two have one.
    ``mean_points`` is the mean score of the same brokers; None where none has one.
    ``proposal`` waits for approval, and ``plan_scores`` are the scores of all brokers now and after it,
    and ``gap_after_points`` is the gap then.
    ``calibration`` is a sentence on the settings that ``lbd calibrate`` proposes; None where it proposes none, or they
    are in force. ``canary`` is None where none is in force. ``budgets`` are those for an hour or a day; of those for
    brokers and namespaces, the one that is used most. ``ended_by_resume`` are the holds that ``lbd resume`` ends beside
    a pause, and ``resumed`` is the last time that somebody did that. ``steps`` are what a person should do, the most
    important first.
    """

    format: int = FORMAT
    pid: int
    version: str
    at: At
    interval_seconds: Annotated[float, msgspec.Meta(gt=0)]
    next_turn_at: At | None
    turns: int
    cluster: str
    sentence: str
    turn: int = 0
    verdict: Verdict | None = None
    hold: str | None = None
    observe_only: bool = False
    mode: Mode = "auto"
    leader: str | None = None
    brokers: list[BrokerStatus] = []
    pairs: list[PairStatus] = []
    unfinished: list[UnfinishedStatus] = []
    proposal: Proposal | None = None
    calibration: str | None = None
    gap_points: float | None = None
    mean_points: float | None = None
    last_hour: LastHour = LastHour()
    canary: CanaryStatus | None = None
    budgets: list[BudgetStatus] = []
    requests: int = 0
    seconds: float = 0.0
    warnings: list[str] = []
    error: str | None = None
    api: str | None = None
    ended_by_resume: list[str] = []
    resumed: Resumption | None = None
    steps: list[NextStep] = []
    plan_scores: list[PlannedScore] = []
    gap_after_points: float | None = None

    def age_text(self, now: float) -> str:
        """``last turn 2 min ago``, or how far it is ahead of a clock that was set back; not of a turn that has ended
        since ``now``.
        """
        if self.at > now and self.late(now):
            return f"last turn {duration_text(self.at - now)} ahead of this clock (was it set back?)"
        return f"last turn {duration_text(now - self.at)} ago"

    def late(self, now: float) -> bool:
        """Whether three turns should have followed by now, whatever one waited for; also when the clock was set back by
        as much.
        """
        return abs(now - self.at) > max(INTERVALS_UNTIL_LATE * self.interval_seconds, SECONDS_UNTIL_LATE)


class StatusResponse(Status, frozen=True, kw_only=True, rename={"is_late": "late"}):
    """The JSON of ``lbd status`` and of the API: ``running`` is the process id of the lbd that runs, null for none.

    ``verdict_text`` is the verdict as a person reads it, without its detail; null before the first turn has ended.
    ``todo`` is each of the ``steps`` as a line of text. ``nearest_limit`` is the budget with the largest used
    share; null without a limit.
    """

    running: int | None
    verdict_text: str | None
    is_late: bool
    age_seconds: float
    paused: Pause | None
    drains: list[DrainStatus]
    todo: list[str]
    nearest_limit: BudgetStatus | None


def document(
    status: Status, pid: int | None, pause: Pause | None, now: float, drains: Sequence[tuple[Drain, Work | None]] = ()
) -> StatusResponse:
    """The JSON of a status at ``now`` (epoch seconds)."""
    steps = steps_now(status, pid, pause, now, drains)
    return StatusResponse(
        **{**msgspec.structs.asdict(status), "steps": steps},
        running=pid,
        verdict_text=None if status.verdict is None else status.verdict.head,
        is_late=status.late(now),
        age_seconds=round(now - status.at, 1),
        paused=pause,
        drains=[DrainStatus.of(drain, work) for drain, work in drains],
        todo=[step.text(now) for step in steps],
        nearest_limit=_nearest_limit(status.budgets),
    )


def _nearest_limit(budgets: Sequence[BudgetStatus]) -> BudgetStatus | None:
    limited = [(budget.used / budget.limit, budget) for budget in budgets if budget.limit]
    return max(limited, key=lambda row: row[0])[1] if limited else None


RESUMED = {Reason.NOT_SERVED.label, Reason.CHANGED_HANDS.label}
"""Holds that ``lbd resume`` ends beside a pause."""

ENDED = Verdict("waiting", detail="what held the last turn has ended; the next turn decides")


def in_force(status: Status, control: Control, now: float) -> tuple[Status, Pause | None]:
    """The status without what orders have ended since its turn, and the pause in force at ``now`` (epoch seconds).

    Its ``sentence`` stays as the turn had it. Raises :class:`UsageError` where the store cannot be used.
    """
    pause, resumed = control.paused(now), control.resumed or status.resumed
    over = {Reason.PAUSED.label} if pause is None else set()
    if resumed != status.resumed:
        over |= RESUMED
        status = msgspec.structs.replace(status, resumed=resumed, ended_by_resume=[])
    return without_holds(status, over), pause


def without_holds(status: Status, over: Collection[str]) -> Status:
    """The status without the holds of these reasons, which have ended since its turn."""
    verdict, steps = status.verdict, [step for step in status.steps if step.reason not in over]
    if verdict is not None and verdict.kind in {"blocked", "held"} and verdict.reason in over:
        verdict = ENDED
    if status.steps and not steps:
        steps = [next_step(Reason.ROUND_STOPPED)]
    hold = None if status.hold in over else status.hold
    return msgspec.structs.replace(status, hold=hold, verdict=verdict, steps=steps)


NOT_RUNNING, LATE, EMPTIED, AWAY = "not-running", "late", "emptied", "away"
"""Reasons of steps that come of the process and its orders, whatever its last turn said."""


_AHEAD = "Set this clock right if it is behind; if lbd ends no turn within a minute, restart its service"
_LATE = "Find what lbd waits for, as it ends no turn; if nothing is found, restart its service"


def steps_now(
    status: Status, pid: int | None, pause: Pause | None, now: float, drains: Sequence[tuple[Drain, Work | None]] = ()
) -> list[NextStep]:
    """Next steps for a person at ``now``: first for a process that is gone or late, then a pause, then the turn's
    steps, then drained brokers that are empty or away. ``pid`` is None where no lbd runs.
    """
    if pid is None:
        text = "Read why lbd ended, then start its service: it moves nothing while it does not run"
        return [NextStep(reason=NOT_RUNNING, do=text, command="journalctl -u lbd -n 50")]
    if status.late(now):
        return [NextStep(reason=LATE, do=_AHEAD if status.at > now else _LATE, command="lbd doctor")]
    steps = [step for step in status.steps if step.reason != Reason.PAUSED.label]
    first = [] if pause is None else [_end_of(pause)]
    last = list(_of_drains(status, drains))
    if first or last:
        steps = [step for step in steps if step.do]
    return [*first, *steps, *last]


def _of_drains(status: Status, drains: Sequence[tuple[Drain, Work | None]]) -> Iterator[NextStep]:
    """Steps about drained brokers that are empty or away; the release of one in a rollout would stop the rollout."""
    reporting = {row.id for row in status.brokers}
    for drain, work in drains:
        name, is_away = drain.broker, bool(reporting) and drain.broker not in reporting
        is_empty = work is not None and work.ended_at is not None and work.owned == 0
        if drain.rollout:
            goes_on = f"Wait until {name} is back, or start it: it is away, and the rollout goes on then"
            restart = f"Restart {name}, unless somebody has or lbd rollout --exec does: it owns nothing"
            text = f"{goes_on if is_away else restart}; to stop the rollout instead"
        elif is_empty:
            text = f"{name} is empty: do your work on it; its restart ends the drain, and so does this"
        else:
            text = f"{name} is drained and gives no report; end its drain if it will not come back"
        command = "lbd rollout --stop" if drain.rollout else f"lbd drain {name} --release"
        if is_empty or is_away:
            yield NextStep(reason=EMPTIED if is_empty else AWAY, what=name, do=text, command=command)


def _end_of(pause: Pause) -> NextStep:
    step = next_step(Reason.PAUSED, ends_at=pause.until)
    return step if pause.until is not None else msgspec.structs.replace(step, by_itself="")


def standby_text(status: Status) -> str | None:
    """The leader if this lbd is a standby; None if it leads, or is alone."""
    return status.leader if status.hold == Reason.NOT_LEADER.label else None


class _StatusFormat(msgspec.Struct):
    format: int


def write_status(state_dir: Path, status: Status) -> None:
    """Replace the status at once or not at all; only the holder of the state directory may.

    Not synced to disk: after a power cut the next turn writes a new one. Raises :class:`UsageError`.
    """
    path = state_dir / "status.json"
    with as_usage_error(path):
        replace(path, redacted_json(msgspec.json.encode(status)) + b"\n", durable=False)


def read_status(state_dir: Path) -> Status:
    """The status of the last turn. Raises :class:`UsageError` when there is none, or none that this lbd reads."""
    path = state_dir / "status.json"
    header = decoded(path, _StatusFormat)
    if header is not None and header.format != FORMAT:
        question = "is the running lbd another version?"
        raise UsageError(f"{path}: format {header.format}, this lbd reads {FORMAT}; {question}")
    status = decoded(path, Status)
    if status is None:
        raise UsageError(
            f"{state_dir}: no lbd run has ended a turn on this state directory; "
            "name another with state_dir in --config FILE or LBD_STATE_DIR"
        )
    return status


def unwritable(state_dir: Path) -> str:
    """Why no status can be written on that file system, as text; empty if no reason is known."""
    try:
        stat = os.statvfs(state_dir)
    except OSError:
        return ""
    if stat.f_flag & os.ST_RDONLY:
        return "is mounted read-only"
    full = stat.f_bavail == 0 or (stat.f_files > 0 and stat.f_favail == 0)
    return "has no space left" if full else ""


def running(state_dir: Path) -> int | None:
    """Process id of the lbd that holds the state directory, 0 while it is not written yet; None when none does.

    The lock itself decides, because an id alone may be another process's by now. The shared lock is released at once;
    a reader needs no right to write. Raises :class:`UsageError` where the lock cannot be read.
    """
    path = state_dir / "lock"
    try:
        with reading(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                content = file.read(32).strip()
                return int(content) if content.isdigit() else 0
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(path, error, "read") from error
    return None


# --- the status of an ended lbd: only the journal knows the outcome of its moves in flight


def after_its_end(status: Status, state_dir: Path) -> Status:
    """The status with the open moves of the journal as unfinished; moves that were not requested yet never will be."""
    try:
        past = read(state_dir / STORE_NAME)
    except UsageError as error:
        return msgspec.structs.replace(status, warnings=[*status.warnings, f"what it left open is not known: {error}"])
    unfinished = [
        UnfinishedStatus(move.bundle, move.source, move.destination, past.attempted_at.get(move.bundle, status.at))
        for _, move in past.open
    ]
    return msgspec.structs.replace(status, unfinished=unfinished, proposal=None)
