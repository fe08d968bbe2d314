"""The daemon's schedule of a simulation, in place of ``lbd.daemon.schedule``: APScheduler asks C code for the time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SimulatedSchedule:
    """Jobs by name, one after the other in one thread; the verbs are those of :class:`lbd.daemon.schedule.Schedule`."""

    def __init__(self, on_failure: Callable[[BaseException], None], on_overrun: Callable[[str], None]) -> None:
        self._on_failure, self._on_overrun = on_failure, on_overrun
        self._jobs: dict[str, tuple[float, Callable[[], None]]] = {}
        self._due: dict[str, float] = {}
        self._changed, self._ended = threading.Condition(), False
        self._thread = threading.Thread(target=self._work, name="lbd-turns", daemon=True)

    def every(self, name: str, seconds: float, job: Callable[[], None], *, at_once: bool = False) -> None:
        """Plan a job from planned time to planned time, instead of one of its name."""
        with self._changed:
            self._jobs[name] = seconds, job
            self._due[name] = time.time() + (0.0 if at_once else seconds)
            self._changed.notify_all()

    def once(self, name: str, job: Callable[[], None]) -> None:
        """Run a job as soon as the running one has ended."""
        self.every(name, 0.0, job, at_once=True)

    def soon(self, name: str) -> None:
        """Run a planned job now."""
        with self._changed:
            if name in self._due:
                self._due[name] = time.time()
                self._changed.notify_all()

    def plan_anew(self) -> None:
        """Plan all jobs from now on."""
        for name, (seconds, job) in list(self._jobs.items()):
            self.every(name, seconds, job, at_once=True)

    def next_at(self, name: str) -> float | None:
        """The next planned time of a job, epoch seconds."""
        return self._due.get(name)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further job, and return when the running one has ended."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while (due := self._next()) is not None:
            name, job = due
            try:
                job()
            except Exception as error:  # noqa: BLE001 - the service tells it
                self._on_failure(error)
            self._leave_out(name)

    def _next(self) -> tuple[str, Callable[[], None]] | None:
        """Wait for the job that is due first; None: the end."""
        with self._changed:
            while not self._ended:
                name = min(self._due, key=self._due.__getitem__)
                early = self._due[name] - time.time()
                if early <= 0:
                    seconds, job = self._jobs[name]
                    self._due[name] += seconds
                    if not seconds:
                        del self._jobs[name], self._due[name]
                    return name, job
                self._changed.wait(early)
        return None

    def _leave_out(self, name: str) -> None:
        """Planned times that passed during a job."""
        with self._changed:
            seconds, now, overrun = self._jobs.get(name, (0.0, None))[0], time.time(), False
            while seconds and self._due[name] <= now:
                self._due[name], overrun = self._due[name] + seconds, True
        if overrun:
            self._on_overrun(name)
