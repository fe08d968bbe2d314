"""The daemon's jobs, planned by APScheduler, and run one after the other in one thread.

A simulation has a schedule of its own (tests/nights).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler

if TYPE_CHECKING:
    from collections.abc import Callable


class Schedule:
    """Jobs by name. No job runs beside another one, so what they share needs no lock.

    ``on_failure`` hears of a job that raised, ``on_overrun`` of one that was due before its last run had ended.
    """

    def __init__(self, on_failure: Callable[[BaseException], None], on_overrun: Callable[[str], None]) -> None:
        worker = ThreadPoolExecutor(1, {"thread_name_prefix": "lbd-turns"})
        self._scheduler = BackgroundScheduler(timezone=UTC, executors={"default": worker})
        self._scheduler.add_listener(lambda event: on_failure(event.exception), EVENT_JOB_ERROR)
        self._scheduler.add_listener(lambda event: on_overrun(event.job_id), EVENT_JOB_MAX_INSTANCES)
        self._jobs: dict[str, tuple[float, Callable[[], None]]] = {}
        self._running, self._stopped = threading.Lock(), False

    def every(self, name: str, seconds: float, job: Callable[[], None], *, at_once: bool = False) -> None:
        """Plan a job from planned time to planned time, instead of one of its name; a late one is not run twice."""
        self._jobs[name] = seconds, job
        first = {"next_run_time": _now()} if at_once else {}
        self._add(name, job, "interval", seconds=seconds, coalesce=True, **first)

    def once(self, name: str, job: Callable[[], None]) -> None:
        """Run a job as soon as the running one has ended. A signal's handler may call this."""
        self._add(name, job, max_instances=2)

    def soon(self, name: str) -> None:
        """Run a planned job now; its planned times stay."""
        with suppress(JobLookupError):  # the schedule has not begun, or ends
            self._scheduler.modify_job(name, next_run_time=_now())

    def plan_anew(self) -> None:
        """Plan all jobs from now on: times are the machine's clock's, which was set."""
        for name, (seconds, job) in list(self._jobs.items()):
            self.every(name, seconds, job, at_once=True)

    def next_at(self, name: str) -> float | None:
        """The next planned time of a job, epoch seconds."""
        job = self._scheduler.get_job(name)
        return None if job is None or job.next_run_time is None else float(job.next_run_time.timestamp())

    def start(self) -> None:
        """Begin."""
        self._scheduler.start()

    def stop(self) -> None:
        """Begin no further job, and return when the running one has ended. No job may call this."""
        self._stopped = True
        self._scheduler.shutdown(wait=False)  # one that waits holds a lock that the running job may need
        with self._running:
            pass

    def _run(self, job: Callable[[], None]) -> None:
        with self._running:
            if not self._stopped:
                job()

    def _add(self, name: str, job: Callable[[], None], *trigger: str, **options: Any) -> None:  # noqa: ANN401 - APScheduler's
        self._scheduler.add_job(
            partial(self._run, job), *trigger, id=name, replace_existing=True, misfire_grace_time=None, **options
        )


def _now() -> datetime:
    return datetime.now(UTC)
