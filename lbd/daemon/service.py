"""The life of the daemon: turns at their planned times, signals, reload, and what systemd wants to hear."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sdnotify
import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from lbd import log
from lbd.errors import LbdError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.config import Settings
    from lbd.cycle import CycleRecord
    from lbd.daemon.parts import Engine

INTERVALS_UNTIL_STUCK = 3
"""The watchdog is fed while the last turn or unload ended less than so many intervals, or two time-outs, ago."""


class Service:
    """Runs an engine until a signal ends it."""

    def __init__(self, engine: Engine, read: Callable[[], Settings]) -> None:
        self._engine = engine
        self._read = read
        self._log = structlog.get_logger()
        self._systemd = sdnotify.SystemdNotifier()
        self._done = threading.Event()
        self._busy = threading.Lock()
        self._alive_at = time.monotonic()
        self._turns = 0
        self._scheduler = BackgroundScheduler(timezone=UTC, executors={"default": ThreadPoolExecutor(3)})

    def run(self) -> None:
        """Turn until SIGTERM or SIGINT; a turn that is running is let finish."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, self._ask_reload)
        self._scheduler.add_listener(self._job_went_wrong, EVENT_JOB_ERROR | EVENT_JOB_MAX_INSTANCES)
        self._plan(first=datetime.now(UTC))
        self._plan_watchdog()
        self._scheduler.start()
        self._systemd.notify("READY=1")
        self._log.info("running", interval_seconds=self._engine.settings.interval_seconds, pid=os.getpid())
        self._done.wait()
        self._systemd.notify("STOPPING=1")
        self._scheduler.shutdown(wait=True)
        self._log.info("stopped", turns=self._turns)

    def _plan(self, first: datetime) -> None:
        """Turns at the interval, from planned time to planned time; one that is late is not run twice."""
        self._scheduler.add_job(
            self._turn,
            "interval",
            seconds=self._engine.settings.interval_seconds,
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
            self._scheduler.add_job(self._feed, "interval", seconds=microseconds / 2e6, id="watchdog")

    def _turn(self) -> None:
        with self._busy:
            record = self._engine.turn(on_outcome=lambda _: self._alive())
        self._alive()
        self._turns += 1
        self._systemd.notify(f"STATUS={record.sentence}")
        self._tell(record)

    def _alive(self) -> None:
        """A turn or an unload has ended."""
        self._alive_at = time.monotonic()

    def _tell(self, record: CycleRecord) -> None:
        """One line for each turn, with what a search would look for."""
        seen = record.observation
        self._log.log(
            40 if record.error is not None else 20,
            record.sentence,
            turn=self._turns,
            planned=len(record.unloads),
            outcomes=[f"{one.unload.bundle} {one.result.value} {one.owner}" for one in record.outcomes],
            hold=record.hold.label if record.hold is not None else None,
            brokers=len(seen.active) if seen is not None else None,
            requests=seen.requests if seen is not None else None,
            seconds=round(seen.seconds, 3) if seen is not None else None,
        )

    def _take_settings(self) -> None:
        """All of the new settings, or none of them."""
        self._systemd.notify("RELOADING=1")
        try:
            settings = self._read()
            with self._busy:
                self._engine.take(settings)
        except LbdError as error:
            self._log.error("settings stay as they were", why="; ".join(str(error).splitlines()))
        else:
            self._plan(first=datetime.now(UTC))
            log.set_up(settings.log.format, settings.log.level)
            self._log.info("settings read again", interval_seconds=settings.interval_seconds)
        finally:
            self._systemd.notify("READY=1")

    def _feed(self) -> None:
        settings = self._engine.settings
        patience = max(INTERVALS_UNTIL_STUCK * settings.interval_seconds, settings.pulsar.unload_timeout_seconds * 2)
        if time.monotonic() - self._alive_at < patience:
            self._systemd.notify("WATCHDOG=1")

    def _end(self, number: int, frame: object) -> None:
        del frame
        self._log.info("ending", signal=signal.Signals(number).name)
        self._engine.stop()
        self._done.set()

    def _ask_reload(self, number: int, frame: object) -> None:
        """Reload as soon as the turn that is running has ended, and have another one at once."""
        del number, frame
        self._scheduler.add_job(self._take_settings, misfire_grace_time=None)

    def _job_went_wrong(self, event: Any) -> None:  # noqa: ANN401 - apscheduler's events have no common type
        """A turn that overran its interval is said and not queued; one that raised is a bug, and the next one runs."""
        failure = getattr(event, "exception", None)
        if failure is not None:
            self._log.error("bug in lbd, please report it", failure=repr(failure))
        else:
            self._log.warning("turn left out: the one before is still running")
