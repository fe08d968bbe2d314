"""The life of the daemon: turns at their planned times, signals, reload of settings, and notifications to systemd."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sdnotify
import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler

from lbd import log
from lbd.clock import Steps
from lbd.daemon.api_backend import Serving
from lbd.daemon.recorder import AlarmLog
from lbd.daemon.status import build_status, log_level, move_line, served_line, split_line, turn_end, turn_line
from lbd.errors import LbdError, UsageError
from lbd.store.status import write_status
from lbd.text import utc

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.config import Loaded, Settings
    from lbd.daemon.engine import Engine
    from lbd.model import Outcome, Skip
    from lbd.permit.served import Landing, ServiceResult
    from lbd.split.plan import CutOutcome
    from lbd.store.status import Status
    from lbd.turn.parts import TurnResult


class Rereading:
    """Reads settings by ``read``: once at the start, and then as often as is asked for."""

    def __init__(self, read: Callable[[], Loaded]) -> None:
        self._read = read
        self._files = frozenset[str]()

    def __call__(self) -> Settings:
        """The settings now. Raises :class:`UsageError` as reading them does, and for a file that has said something and
        is gone, or empty, by now: that is a mishap, and would take guardrails away that nobody meant to give up.
        """
        loaded = self._read()
        for file in sorted(self._files - loaded.files):
            raise UsageError(f"{file}: gone, or without settings by now; only a restart goes on with defaults instead")
        self._files = loaded.files
        return loaded.settings


# --- service

INTERVALS_UNTIL_STUCK = 3
LEAST_PATIENCE_SECONDS = 60.0
"""The watchdog is fed while the last turn or move ended less than so many intervals ago, and never less than this: a
turn that waits for the time-outs of dead brokers is slow, not stuck."""

STOP_SECONDS = 60.0
"""How long a stop waits for the moves in flight; most of them take a second."""

LEAVE_SECONDS = 70.0
"""When it ends whatever is under way, which the journal hands over to the next start; systemd waits 90 s."""

DRAINS_EVERY_SECONDS = 0.5

SIGNALS_AFTER_SECONDS = 1.0


class Service:
    """Runs an engine until a signal, or :meth:`end`, ends it.

    ``read`` reads the settings again at SIGHUP; None: there are none, and SIGHUP ends it as well.
    ``on_turn`` and ``on_move`` hear of each turn and of each move as it ends, from the threads of the daemon.
    """

    def __init__(self, engine: Engine, read: Callable[[], Settings] | None) -> None:
        self._engine = engine
        self.on_turn: Callable[[TurnResult], None] = lambda _: None
        self.on_move: Callable[[Outcome | Skip], None] = lambda _: None
        self._read = read
        self._log = structlog.get_logger()
        self._systemd = sdnotify.SystemdNotifier()
        if self._systemd.socket is not None:
            self._systemd.socket.setblocking(False)  # a reader that has stopped must not stop the turns
        self._done = threading.Event()
        self._busy, self._showing = threading.Lock(), threading.Lock()
        self._alive_at, self._steps = time.monotonic(), Steps()
        self._turns = 0
        self._telling = AlarmLog()
        self._serving = Serving(engine, lambda: time.monotonic() - self._alive_at, lambda: self._patience_seconds)
        self._scheduler = BackgroundScheduler(timezone=UTC, executors={"default": ThreadPoolExecutor(6)})

    def run(self) -> None:
        """Turn until SIGTERM or SIGINT; what is under way then is brought to its end, or handed over."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        if self._read is not None:
            signal.signal(signal.SIGHUP, self._ask_reload)
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(signal.SIGHUP, self._signalled)
        self._engine.on_end = self._moved
        self._engine.requests.on_new = self._serve_soon
        self._engine.splitting.on_end = self._split
        self._engine.proof.on_end = self._served
        self._engine.leading.on_change = lambda words: self._log.info(words, leader=self._engine.leading.words)
        self._engine.leading.on_words = self._led
        self._scheduler.add_listener(self._job_went_wrong, EVENT_JOB_ERROR | EVENT_JOB_MAX_INSTANCES)
        self._plan_all()
        self._engine.leading.start()
        self._scheduler.start()
        self._serving.start()
        self._systemd.notify("READY=1")
        self._log.info("running", interval_seconds=self._engine.settings.interval_seconds, pid=os.getpid())
        while not self._done.wait(SIGNALS_AFTER_SECONDS):  # a signal that another thread was given is handled then, too
            self._follow_clock()
        self._stop()

    def end(self) -> None:
        """Begin no further turn; :meth:`run` returns when what is under way has ended."""
        self._done.set()

    @property
    def api(self) -> str | None:
        """Where the API listens, None where it does not."""
        return self._serving.url

    def plan_again(self) -> None:
        """Turn at once, and from then on at the pace that the engine's clock has now."""
        self._plan(first=datetime.now(UTC))

    def _stop(self) -> None:
        self._systemd.notify("STOPPING=1")
        last = threading.Timer(LEAVE_SECONDS, self._leave)
        last.daemon = True
        last.start()
        self._engine.halt()
        self._scheduler.shutdown(wait=False)
        with self._busy:
            self._engine.halt()
            finished = self._engine.wait(STOP_SECONDS)
            self._serving.stop()  # after the results of what was under way
            if finished:
                self._restore()
            self._flush()
        last.cancel()
        self._log.info("stopped", turns=self._turns, handed_over=self._engine.in_flight)

    def _restore(self) -> None:
        try:
            message = self._engine.restore()
        except LbdError as error:
            self._log.error("in-broker shedding was not given back; lbd release tries again", why=str(error))
        else:
            if message:
                self._log.info(message)

    def _flush(self) -> None:
        try:
            self._engine.flush()
        except LbdError as error:
            self._log.error("the last averages are lost", why=str(error))

    def _leave(self) -> None:
        """A broker that does not answer must not hold the process; what is open is closed by the next start."""
        self._log.warning("left without waiting any longer", handed_over=self._engine.in_flight)
        os._exit(0)

    def _follow_clock(self) -> None:
        """What is planned stands at times of the machine's clock: set back, nothing would be done until they come."""
        step = self._steps.since_last_look()
        if step:
            which = "ahead" if step > 0 else "back"
            self._log.warning(f"this machine's clock was set {which} by {abs(step):.0f} s; turns go on from now")
            self._plan_all()

    def _plan_all(self) -> None:
        self._plan(first=datetime.now(UTC))
        often = {"seconds": DRAINS_EVERY_SECONDS, "coalesce": True, "replace_existing": True}
        self._scheduler.add_job(self._serve, "interval", id="requests", **often)
        self._plan_watchdog()

    def _plan(self, first: datetime) -> None:
        """Turns at the interval, from planned time to planned time; one that is late is not run twice."""
        self._scheduler.add_job(
            self._turn,
            "interval",
            seconds=self._engine.timebase.takes(self._engine.settings.interval_seconds),
            id="turn",
            max_instances=1,
            coalesce=True,
            replace_existing=True,
            misfire_grace_time=None,
            next_run_time=first,
        )

    def _plan_watchdog(self) -> None:
        microseconds = int(os.environ.get("WATCHDOG_USEC", "0") or "0")
        if microseconds > 0:
            often = {"seconds": microseconds / 2e6, "misfire_grace_time": None, "coalesce": True}
            self._scheduler.add_job(self._feed, "interval", id="watchdog", replace_existing=True, **often)

    def _turn(self) -> None:
        with self._busy:
            if self._done.is_set():
                return
            record = self._engine.turn()
        self._tell(record)

    def _tell(self, record: TurnResult) -> None:
        self._alive()
        self._turns += 1
        self._systemd.notify(f"STATUS={record.sentence.encode('ascii', 'replace').decode()}")  # sdnotify drops others
        self._log.log(log_level(record), record.sentence, turn=record.number, **turn_line(record))
        for change, alarm in self._telling.news(self._engine.alarms, time.monotonic()):
            self._log.warning(alarm.text, alarm=alarm.kind, broker=alarm.broker, since=utc(alarm.since), change=change)
        status = self._write(record)
        if self._engine.notifier.enabled:
            self._engine.notifier.tell(turn_end(self._engine, record, status))
        self.on_turn(record)

    def _write(self, record: TurnResult) -> Status:
        job = self._scheduler.get_job("turn")
        due = job.next_run_time.timestamp() if job is not None and job.next_run_time is not None else None
        planned = self._engine.timebase.at(due) if due is not None else None
        with self._showing:
            status = build_status(self._engine, record, self._turns, planned)
            self._keep(self._serving.publish(record, status))
        return status

    def _led(self) -> None:
        """Another one leads, or this one: who asks need not wait for the next turn to be told."""
        with self._showing:
            status = self._serving.led()
            if status is not None:
                self._keep(status)

    def _keep(self, status: Status) -> None:
        try:
            write_status(self._engine.settings.state_dir, status)
        except LbdError as error:
            self._log.error("lbd status shows what was before", why=str(error))

    def _serve_soon(self) -> None:
        """A request has come: it need not wait for the next step of a drain."""
        with suppress(JobLookupError):  # not started yet, or ending
            self._scheduler.modify_job("requests", next_run_time=datetime.now(UTC))

    def _serve(self) -> None:
        """Requests of people, and the steps of drains; while a turn runs they wait for it."""
        with self._busy:
            if not self._done.is_set():
                self._engine.serve()

    def _moved(self, end: Outcome | Skip) -> None:
        """A move has ended, in a thread of its own."""
        self._alive()
        event, facts = move_line(end)
        self._log.info(event, **facts)
        self._serving.moved(end)
        self.on_move(end)

    def _served(self, landing: Landing, service: ServiceResult) -> None:
        """It is told whether a move's clients are back, in a turn or in a thread of its own."""
        event, facts = served_line(landing, service)
        self._log.log(logging.WARNING if service.served == "no" else logging.INFO, event, **facts)
        self._serving.served(landing, service)

    def _split(self, end: CutOutcome | LbdError) -> None:
        """A split has ended, in a thread of its own, or could not be tried."""
        self._alive()
        event, facts = split_line(end)
        self._log.info(event, **facts)

    def _alive(self) -> None:
        """A turn or a move has ended."""
        self._alive_at = time.monotonic()

    def _take_settings(self) -> None:
        """All of the new settings, or none of them."""
        assert self._read is not None
        self._systemd.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            with self._busy:
                settings, before = self._read(), self._engine.settings
                self._engine.take(settings)
                self._serving.take(before)
        except LbdError as error:
            self._log.error("settings stay as they were", why="; ".join(str(error).splitlines()))
        else:
            self._plan(first=datetime.now(UTC))
            log.set_up(settings.log.format, settings.log.level)
            self._log.info("settings read again", interval_seconds=settings.interval_seconds)
        finally:
            self._systemd.notify("READY=1")

    @property
    def _patience_seconds(self) -> float:
        return max(INTERVALS_UNTIL_STUCK * self._engine.settings.interval_seconds, LEAST_PATIENCE_SECONDS)

    def _feed(self) -> None:
        if time.monotonic() - self._alive_at < self._patience_seconds:
            self._systemd.notify("WATCHDOG=1")

    def _signalled(self, number: int, frame: object) -> None:
        del frame
        self.end()
        self._log.info("ending", signal=signal.Signals(number).name)

    def _ask_reload(self, number: int, frame: object) -> None:
        """Reload as soon as the turn that is running has ended, and have another one at once."""
        del number, frame
        self._scheduler.add_job(
            self._take_settings, id="reload", replace_existing=True, max_instances=2, misfire_grace_time=None
        )

    def _job_went_wrong(self, event: Any) -> None:  # noqa: ANN401 - apscheduler's events have no common type
        """A turn that overran its interval is said and not queued; one that raised is a bug, and the next one runs."""
        failure = getattr(event, "exception", None)
        if failure is not None:
            self._log.error("bug in lbd, please report it", failure=repr(failure))
        elif event.job_id == "turn":
            self._log.warning("turn left out: the one before is still running")
