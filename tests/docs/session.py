"""A session of an operator: a simulated cluster, a running lbd, a terminal and a browser, all on one clock.

The commands are the real ones, and so are the daemon's parts; of ``daemon/service.py`` only the thread that begins
turns is replaced. Time passes when the script or a command waits: the clock is then set forward from turn to turn. So
eight hours take a second, and the same seed gives the same screens.
"""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import re
import shlex
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from textwrap import fill
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import yaml
from click.testing import CliRunner
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import lbd.cli
from lbd import log
from lbd.act.executor import Pace
from lbd.act.ownership import ActClock
from lbd.api.client import Client
from lbd.cli import main
from lbd.clock import Timebase
from lbd.config import load
from lbd.daemon.api_backend import Serving
from lbd.daemon.engine import engine
from lbd.daemon.status import build_status
from lbd.demo import RUNTIME
from lbd.simulate.cluster import cluster as built
from lbd.simulate.fake_cluster import Clients
from lbd.simulate.fake_pulsar import FakePulsar
from lbd.simulate.scenario import load as scenario
from lbd.store.rollouts import Rollouts
from lbd.store.status import write_status
from tests.api.browser import sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result
    from selenium.webdriver import Chrome

    from lbd.daemon.engine import Engine
    from lbd.simulate.fake_cluster import Book

BEGIN = datetime(2026, 11, 26, 2, 0, 0, 500_000, UTC).timestamp()
STANDS_STILL = 1e-300
"""The speed of a clock that is only set forward: what takes long on a busy machine takes no longer here."""

INTERVAL_SECONDS, RESTART_SECONDS = 30.0, 20.0
ROLLOUT_POLL_SECONDS = 5.0
SAME_TIMES = 3
PATIENCE_SECONDS = 60.0
PORT, FREE_WITHIN_SECONDS = 28079, 300.0
"""Of every broker: lbd breaks ties by names, so other ports would show other moves. Another session's is waited for."""

LBD_YAML, STATE_DIR, PROCESS = "/etc/lbd/lbd.yaml", "/var/lib/lbd", "process 1180"

FENCE, PAGE_WIDTH = "```console", 120
PICTURE_SIZE = 960, 660

PROGRAMS = {
    "sudo": 'exec "$@"',
    "systemctl": 'touch "{orders}/$1 $2"',
    "ssh": 'touch "{orders}/$4 $1"',
}
"""What is typed beside lbd: ``sudo``, ``systemctl reload lbd``, and ``ssh HOST sudo systemctl VERB pulsar-broker``."""

sleep_really = time.sleep


class WorkClock:
    """What moves take: the brokers' work and lbd's pauses, and nothing of what this machine needs for them.

    One move is made after the other, so no other thread sleeps while one is measured.
    """

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        """Seconds of work so far."""
        return self._seconds

    def sleep(self, seconds: float) -> None:
        """So much more, at once."""
        self._seconds += seconds


class Terminal(threading.Thread):
    """One command in a terminal. When it sleeps, :attr:`wants` has the seconds, and :meth:`wake` ends the sleep."""

    def __init__(self, words: list[str]) -> None:
        super().__init__(name="terminal")
        self._words, self._woken = words, threading.Event()
        self.wants: float | None = None
        self.result: Result | None = None

    def run(self) -> None:
        """The command, from beginning to end."""
        self.result = CliRunner().invoke(main, self._words, prog_name="lbd")

    def sleep(self, seconds: float) -> None:
        """What ``time.sleep`` does within the command."""
        self._woken.clear()
        self.wants = seconds
        self._woken.wait()

    def wake(self) -> None:
        """The seconds have passed."""
        self.wants = None
        self._woken.set()


def sleep(seconds: float) -> None:
    """``time.sleep`` of this process while a session lasts."""
    thread = threading.current_thread()
    if isinstance(thread, Terminal):
        thread.sleep(seconds)
    else:
        sleep_really(seconds)


class Session:
    """What was typed and shown so far, in :attr:`text` (Markdown), and the world in which it was typed.

    ``browser`` shows pictures, which ``pictures`` keeps; None: none are made, or none are kept.
    """

    def __init__(
        self, cluster: FakePulsar, balancer: Engine, folder: Path, browser: Chrome | None, pictures: Path | None
    ) -> None:
        self.cluster, self.engine, self.folder = cluster, balancer, folder
        self.text: list[str] = []
        self._browser, self._pictures = browser, pictures
        self._at, self._due, self._turns = BEGIN, BEGIN, 0
        self.at_work = threading.Lock()
        self._serving = Serving(balancer, lambda: 0.0, lambda: PATIENCE_SECONDS)
        balancer.on_end = self._serving.moved

    @contextmanager
    def serving(self) -> Iterator[Session]:
        """The same with its API, and after its first turn."""
        self._serving.start()
        try:
            self.passes(0)
            yield self
        finally:
            self._serving.stop()

    # -- what the page has

    def says(self, text: str) -> None:
        """A paragraph for the reader."""
        self.text.append(fill(text, PAGE_WIDTH, break_long_words=False, break_on_hyphens=False))

    def types(self, line: str, during: tuple[Callable[[], bool], Callable[[], None]] | None = None) -> str:
        """A line in the terminal, and what is printed. Returns the latter.

        ``during``: while the command waits and the first one holds, the second one is done, once.
        """
        before, (command, _, rest) = len(self.text), line.partition(" | ")
        code, out, shown = self._lbd(command, during) if command.startswith("lbd ") else self._other(command)
        if rest:
            done = subprocess.run(["bash", "-c", rest], input=out, capture_output=True, text=True, check=True)
            code, shown = 0, done.stdout
        lines = [f"$ {line}", *(end.rstrip() for end in self._placed(shown).splitlines())]
        lines += ["$ echo $?", str(code)] if code else []
        self._prints(before, lines)
        return shown

    def _prints(self, before: int, lines: list[str]) -> None:
        """A block of the page, after so many paragraphs, or the end of the one that is there."""
        if before == len(self.text) and self.text[-1].startswith(FENCE):
            self.text[-1] = "\n".join([self.text[-1].removesuffix("\n```"), "", *lines, "```"])
        else:
            self.text.insert(before, "\n".join([FENCE, *lines, "```"]))

    def picture(self, name: str, about: str, *expected: str) -> None:
        """The dashboard, on which these texts are."""
        self.text.append(f"![{about}](tour/{name}.png)")
        if self._browser is None:
            return
        sized(self._browser, *PICTURE_SIZE)
        self._browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
        self._browser.get("about:blank")
        self._browser.get(f"{self._serving.url}/")
        waiting = WebDriverWait(self._browser, PATIENCE_SECONDS)
        for text in expected:
            waiting.until(lambda one, text=text: text in one.find_element(By.TAG_NAME, "body").text, text)
        if self._pictures is not None:
            waiting.until(lambda one: one.find_elements(By.CSS_SELECTOR, "#gap canvas"))
            self._browser.save_screenshot(str(self._pictures / f"{name}.png"))
        self._browser.get("about:blank")

    # -- time, and what happens

    def passes(self, seconds: float) -> None:
        """So many seconds, with the turns in them."""
        self._at += seconds
        while self._due <= self._at:
            self._forward(self._due)
            self._due += INTERVAL_SECONDS
            self._work()
            self._turn()
        self._forward(self._at)
        self._work()

    def hours(self, hours: float) -> None:
        """The same without turns, as if lbd had been suspended: what it sees later is the same, and there sooner."""
        self._at += hours * 3600
        self._due += hours * 3600
        self._forward(self._at)

    @property
    def restarted(self) -> int:
        """How many brokers of the rollout under way have been restarted."""
        found = Rollouts(self.engine.settings.state_dir).under_way()
        return len(found.done) if found is not None else 0

    def _forward(self, at: float) -> None:
        self.cluster.forward(max(at - self.cluster.now(), 0.0))

    def _turn(self) -> None:
        record = self.engine.turn()
        self._turns += 1
        self.engine.wait(PATIENCE_SECONDS)
        self.engine.proof.wait(PATIENCE_SECONDS)
        status = build_status(self.engine, record, self._turns, self._due)
        write_status(self.engine.settings.state_dir, self._serving.publish(record, status))

    def _work(self) -> None:
        """What was asked of machines, and of lbd."""
        for order in sorted((self.folder / "orders").iterdir()):
            order.unlink()
            self._obey(*order.name.split())
        with self.at_work:
            before, same = self._progress(), 0
            while same < (SAME_TIMES if before[0] or before[1] else 1):
                self.engine.serve()
                self.engine.wait(PATIENCE_SECONDS)
                self.engine.proof.wait(PATIENCE_SECONDS)
                now = self._progress()
                before, same = now, same + 1 if now == before else 0

    def _progress(self) -> tuple[object, ...]:
        """How far drains, fills and a rollout are. When it stays as it is, nothing more happens without time."""
        rollout, works = Rollouts(self.engine.settings.state_dir).under_way(), self.engine.draining.works
        jobs = [(work.kind, work.tried, work.ended_at is None) for work in (*works.drains.values(), works.fill) if work]
        phase = (rollout.phase, rollout.broker, rollout.tries) if rollout is not None else None
        return phase, self.engine.draining.busy, jobs, len(self.engine.journal.sent)

    def _obey(self, verb: str, host: str) -> None:
        if verb == "reload":
            self.engine.take(load(self.folder / "lbd.yaml", {}).settings)
            return
        (broker,) = (one for one in self.cluster.brokers if one.startswith(f"{host}:"))
        if verb == "restart":
            self.cluster.leave(broker)
            self._at += RESTART_SECONDS
            self._forward(self._at)
        self.cluster.start(broker)

    # -- typing

    def _lbd(self, line: str, during: tuple[Callable[[], bool], Callable[[], None]] | None) -> tuple[int, str, str]:
        """Exit code, stdout, and all that is printed, in its order."""
        terminal = Terminal(shlex.split(line)[1:])
        terminal.start()
        while terminal.is_alive():
            if terminal.wants is None:
                self._work()
                terminal.join(0.005)
                continue
            self._work()  # what it ordered just before it began to wait comes before time passes, not after
            self.passes(terminal.wants)
            if during is not None and during[0]():
                during, (_, then) = None, during
                then()
            terminal.wake()
        result = terminal.result
        assert result is not None
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.output

    def _other(self, line: str) -> tuple[int, str, str]:
        own = line.replace(LBD_YAML, str(self.folder / "lbd.yaml"))
        done = subprocess.run(["bash", "-c", own], capture_output=True, text=True, check=True)
        self._work()
        return done.returncode, done.stdout, done.stdout + done.stderr

    def _placed(self, shown: str) -> str:
        """The same on the machine of the page, where lbd is a service."""
        found = re.sub(r"\bprocess \d+", PROCESS, shown)
        return found.replace(str(self.folder / "lbd.yaml"), LBD_YAML).replace(str(self.folder / "state"), STATE_DIR)


@contextmanager
def session(folder: Path, browser: Chrome | None = None, pictures: Path | None = None) -> Iterator[Session]:
    """The demo's cluster, and an lbd with ``mode: approve`` that has ended one turn; ``folder`` is empty."""
    for name in ("orders", "bin"):
        (folder / name).mkdir()
    for name, does in PROGRAMS.items():
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{does.format(orders=folder / 'orders')}\n")
        program.chmod(0o755)
    for command in pkgutil.iter_modules(lbd.cli.__path__, "lbd.cli."):
        importlib.import_module(command.name)  # one that is imported below would keep the clock that is put there
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LBD_")}
    own = {"LBD_CONFIG": str(folder / "lbd.yaml"), "COLUMNS": "120", "TZ": "UTC", "SUDO_USER": "ann"}
    with ExitStack() as stack:
        stack.enter_context(mock.patch("lbd.simulate.fake_pulsar.Clients", _clients))
        cluster = stack.enter_context(_cluster())
        stack.enter_context(
            mock.patch.dict(os.environ, {**clean, **own, "PATH": f"{folder}/bin:{os.environ['PATH']}"}, clear=True)
        )
        stack.callback(time.tzset)
        time.tzset()
        stack.enter_context(mock.patch("time.time", cluster.now))
        stack.enter_context(mock.patch("time.sleep", sleep))
        terminals = SimpleNamespace(time=cluster.now, monotonic=cluster.now, sleep=sleep)
        stack.enter_context(mock.patch("lbd.cli.drain.time", terminals))
        at_once = lambda _, *more: Pace(0, *more)  # noqa: E731 - no pause between two unloads of a drain
        stack.enter_context(mock.patch("lbd.operations.drain.Pace", at_once))
        work = WorkClock()
        stack.enter_context(mock.patch("lbd.daemon.wiring.CLOCK", ActClock(work.monotonic, work.sleep)))
        brokers = SimpleNamespace(time=cluster.now, sleep=work.sleep)
        stack.enter_context(mock.patch("lbd.simulate.fake_pulsar.time", brokers))
        one_lane = lambda _, plan: [plan]  # noqa: E731 - one move after the other: the same in each session
        stack.enter_context(mock.patch.object(Pace, "lanes", one_lane))
        stack.enter_context(mock.patch("lbd.cli.rollout.POLL_SECONDS", ROLLOUT_POLL_SECONDS))
        wanted = {
            "pulsar": {"admin_urls": list(cluster.admin_urls)},
            "state_dir": str(folder / "state"),
            "mode": "approve",
            "interval_seconds": INTERVAL_SECONDS,
            "guardrails": {"unload_spacing_seconds": 0},
            "api": {"listen": "127.0.0.1:0"},
        }
        (folder / "lbd.yaml").write_text(yaml.safe_dump(wanted))
        stack.enter_context(log.written_to(stack.enter_context((folder / "lbd.log").open("w")), "info"))
        timebase = Timebase(cluster.now)
        balancer = stack.enter_context(engine(load(folder / "lbd.yaml", {}).settings, timebase=timebase))
        stack.callback(balancer.wait, PATIENCE_SECONDS)
        found = Session(cluster, balancer, folder, browser, pictures)

        def get(client: Client, *path: str, **query: object) -> dict[str, Any]:
            """What a command is told is how things are when lbd has done all that it can without time."""
            with found.at_work:
                return read_really(client, *path, **query)

        read_really = Client.get
        stack.enter_context(mock.patch.object(Client, "get", get))
        yield stack.enter_context(found.serving())


def _clients(book: Book, number: int, _: object) -> Clients:
    """They come back when the clock is set forward, so that none is faster than lbd's own look-up."""
    return Clients(book, number, lambda: 1.0)


def _cluster() -> FakePulsar:
    world, state = built(scenario("demo"), 1)
    until = time.monotonic() + FREE_WITHIN_SECONDS
    while True:
        try:
            return FakePulsar(world, state, speed=STANDS_STILL, begun_at=BEGIN, runtime=RUNTIME, port=PORT)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
        sleep_really(1)
