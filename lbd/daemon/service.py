"""The life of the daemon: turns at their planned times, signals, reload of settings, and notifications to systemd.

One thread turns, serves requests and reads settings again, one after the other (``schedule.py``). The main thread waits
for signals and feeds the watchdog.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import sdnotify
import structlog

from lbd import log
from lbd.clock import Steps
from lbd.daemon.api_backend import Serving
from lbd.daemon.recorder import AlarmLog
from lbd.daemon.schedule import Schedule
from lbd.daemon.status import build_status, log_level, move_line, served_line, split_line, turn_end, turn_line
from lbd.errors import LbdError, ThreadError, UsageError
from lbd.store.status import write_status
from lbd.text import utc
from lbd.threads import begin_after

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
        self._files = self._followed = frozenset[str]()
        self._contents: list[bytes | None] = []

    def __call__(self) -> Settings:
        """The settings now. Raises :class:`UsageError` as reading them does, and for a file that has said something and
        is gone, or empty, by now: that is a mishap, and would take guardrails away that nobody meant to give up.
        """
        loaded = self._read()
        for file in sorted(self._files - loaded.files):
            raise UsageError(f"{file}: gone, or without settings by now; only a restart goes on with defaults instead")
        self._files = loaded.files
        tls = loaded.settings.api.tls
        self._followed = self._files | {str(file) for file in (tls.cert_file, tls.key_file) if file is not None}
        self._contents = self._texts()
        for warning in loaded.warnings:
            structlog.get_logger().warning("a former setting has no effect", why=warning)
        return loaded.settings

    def changed(self) -> bool:
        """Whether a file, or the API's certificate or key, differs from what it was at the last call.

        One that cannot be read now has not changed.
        """
        before = self._contents
        contents = [old if new is None else new for new, old in zip(self._texts(), before, strict=True)]
        if contents == before:
            return False
        self._contents = contents
        return True

    def _texts(self) -> list[bytes | None]:
        """Content of each file, None for one that cannot be read."""
        return [_bytes(Path(name)) for name in sorted(self._followed)]


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


# --- service

INTERVALS_UNTIL_STUCK = 3
LEAST_PATIENCE_SECONDS = 60.0
"""Time after the last turn or move in which the watchdog is fed; the longer of the two counts. A turn that waits for
the time-outs of dead brokers is slow, not stuck."""

STOP_SECONDS = 60.0
"""How long a stop waits for the moves in flight; most of them take a second."""

LEAVE_SECONDS = 70.0
"""When it ends whatever is under way, which the journal hands over to the next start; systemd waits 90 s."""

DRAINS_EVERY_SECONDS = 0.5

FOLLOW_SECONDS = 10.0
"""How often settings files are read to see whether they have changed; Kubernetes takes a minute to bring a new one."""

SIGNALS_AFTER_SECONDS = 1.0
"""The main thread looks so often: a signal that another thread was given is handled then, too."""


class Service:
    """Runs an engine until a signal, or :meth:`end`, ends it.

    ``read`` reads the settings again at SIGHUP; None: there are none, and SIGHUP ends it as well. With ``follow`` they
    are read again when a file has changed, too.
    ``on_turn`` and ``on_move`` hear of each turn and of each move as it ends, from the threads of the daemon.
    """

    def __init__(self, engine: Engine, read: Rereading | None, *, follow: bool = False) -> None:
        self._engine = engine
        self.on_turn: Callable[[TurnResult], None] = lambda _: None
        self.on_move: Callable[[Outcome | Skip], None] = lambda _: None
        self._read, self._follow = read, follow
        self._log = structlog.get_logger()
        self._systemd = sdnotify.SystemdNotifier()
        if self._systemd.socket is not None:
            self._systemd.socket.setblocking(False)  # a reader that has stopped must not stop the turns
        self._showing = threading.Lock()
        self._done = threading.Event()
        self._schedule = Schedule(self._job_failed, self._job_left_out)
        self._alive_at, self._steps = time.monotonic(), Steps()
        self._turns = 0
        self._telling = AlarmLog()
        self._serving = Serving(engine, lambda: time.monotonic() - self._alive_at, lambda: self._patience_seconds)

    def run(self) -> None:
        """Turn until SIGTERM or SIGINT; what is under way then is brought to its end, or handed over."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        if self._read is not None:
            signal.signal(signal.SIGHUP, self._ask_reload)
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(signal.SIGHUP, self._signalled)
        self.live()

    def live(self) -> None:
        """Turn until :meth:`end`, in any thread, and without signals."""
        self._engine.on_end = self._moved
        self._engine.requests.on_new = self._serve_soon
        self._engine.splitting.on_end = self._split
        self._engine.proof.on_end = self._served
        self._engine.leading.on_change = lambda words: self._log.info(words, leader=self._engine.leading.words)
        self._engine.leading.on_words = self._led
        self._engine.leading.start()
        self.plan_again()
        self._schedule.every("requests", DRAINS_EVERY_SECONDS, self._serve)
        if self._follow:
            self._schedule.every("files", FOLLOW_SECONDS, self._follow_files)
        self._schedule.start()
        self._serving.start()
        self._systemd.notify("READY=1")
        self._log.info("running", interval_seconds=self._engine.settings.interval_seconds, pid=os.getpid())
        feeding = int(os.environ.get("WATCHDOG_USEC", "0") or "0") / 2e6 or inf
        while not self._done.wait(min(SIGNALS_AFTER_SECONDS, feeding)):
            self._follow_clock()
            if feeding < inf:
                self._feed()
        self._stop()

    def end(self) -> None:
        """Begin no further turn; :meth:`live` returns when what is under way has ended."""
        self._done.set()

    @property
    def api(self) -> str | None:
        """Where the API listens, None where it does not."""
        return self._serving.url

    def plan_again(self) -> None:
        """Turn at once, and from then on at the pace that the engine's clock has now."""
        seconds = self._engine.timebase.takes(self._engine.settings.interval_seconds)
        self._schedule.every("turn", seconds, self._turn, at_once=True)

    def _stop(self) -> None:
        self._systemd.notify("STOPPING=1")
        try:
            cancelled = begin_after(LEAVE_SECONDS, self._leave, "lbd-leave")
        except ThreadError as error:
            cancelled = threading.Event()
            self._log.warning("a stop that hangs does not end by itself", why=str(error))
        self._engine.halt()
        self._schedule.stop()
        self._finish()
        cancelled.set()
        self._log.info("stopped", turns=self._turns, handed_over=self._engine.in_flight)

    def _leave(self) -> None:
        """A broker that does not answer must not hold the process; what is open is closed by the next start."""
        self._log.warning("left without waiting any longer", handed_over=self._engine.in_flight)
        os._exit(0)

    def _job_failed(self, failure: BaseException) -> None:
        """Log a bug; it does not end the turns."""
        self._log.error("bug in lbd, please report it", failure=repr(failure))

    def _job_left_out(self, name: str) -> None:
        if name == "turn":
            self._log.warning("turn left out: the one before is still running")

    def _finish(self) -> None:
        self._engine.halt()
        finished = self._engine.wait(STOP_SECONDS)
        self._serving.stop()  # after the results of what was under way
        if finished:
            self._restore()
        self._flush()

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

    def _follow_clock(self) -> None:
        """Plan anew after a step of the machine's clock: set back, it would delay all that is planned by its times."""
        step = self._steps.since_last_look()
        if step:
            which = "ahead" if step > 0 else "back"
            self._log.warning(f"this machine's clock was set {which} by {abs(step):.0f} s; turns go on from now")
            self._schedule.plan_anew()

    def _turn(self) -> None:
        if not self._done.is_set():
            self._tell(self._engine.turn())

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
        due = self._schedule.next_at("turn")
        planned = None if due is None else self._engine.timebase.at(due)
        with self._showing:
            status = build_status(self._engine, record, self._turns, planned)
            self._keep(self._serving.publish(record, status))
        return status

    def _led(self) -> None:
        """Publish a change of leader at once, not only after the next turn."""
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
        self._schedule.soon("requests")

    def _serve(self) -> None:
        """Requests of people, and the steps of drains."""
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
        """Log and publish whether a move's clients are back, in a turn or in a thread of its own."""
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
            settings, before = self._read(), self._engine.settings
            self._engine.take(settings)
            self._serving.take(before)
        except LbdError as error:
            self._log.error("settings stay as they were", why="; ".join(str(error).splitlines()))
        else:
            self.plan_again()
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

    def _follow_files(self) -> None:
        if self._read is not None and self._read.changed():
            self._take_settings()

    def _ask_reload(self, number: int, frame: object) -> None:
        """Reload as soon as the turn that is running has ended, and have another one at once."""
        del number, frame
        self._schedule.once("reload", self._take_settings)
