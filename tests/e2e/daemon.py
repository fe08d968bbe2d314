"""`lbd run` as its users run it: a process of its own with a configuration file, killed, ended and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lbd.errors import UsageError
from lbd.store.database import STORE_NAME, value
from lbd.store.state import MEMORY
from tests.e2e import journal, probe
from tests.e2e.balancing import write_config
from tests.e2e.witness import contradictions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.e2e.cluster import Cluster
    from tests.e2e.journal import Move
    from tests.e2e.witness import Witness

START_TIMEOUT_SECONDS = 90.0
END_TIMEOUT_SECONDS = 60.0
_LAUNCHER = Path(__file__).with_name("launcher.py")
_ROOT = Path(__file__).parents[2]

SHEDDER = {"hit_count_low": 3, "hit_count_high": 2, "min_unload_message": 50, "min_unload_message_throughput": 10_000}
"""Hit counts of the runs that Pulsar's own balancers were measured with; minimums that 3,000 msg/s can reach."""

SETTINGS: dict[str, Any] = {"interval_seconds": 5, "avg_shedder": SHEDDER, "log": {"format": "json"}}
"""A short interval; every guardrail is lbd's default."""


@dataclass(frozen=True)
class Ended:
    """How a daemon ended when it was asked to, and how long it took."""

    code: int
    seconds: float


class Daemon:
    """One state directory and the process that works on it, one after the other when it is started again.

    The process dies with the thread that started it. Everything it says goes to ``lbd.log``. ``prefix`` are words
    before its command, as for a network of its own.
    """

    def __init__(
        self, cluster: Cluster, directory: Path, settings: Mapping[str, Any] = SETTINGS, **environ: str
    ) -> None:
        self.cluster = cluster
        self.directory = directory
        self.state = directory / "state"
        self.log = directory / "lbd.log"
        self.config = write_config(cluster, directory, settings)
        self.kills: list[float] = []
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("LBD_")} | environ
        self.prefix: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    # -- life

    @property
    def pid(self) -> int:
        assert self._process is not None, "the daemon was not started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self, *words: str) -> list[str]:
        """A command line of lbd with the daemon's configuration."""
        return [sys.executable, "-m", "lbd", *words, "--config", str(self.config)]

    def background(self, *words: str) -> subprocess.Popen[str]:
        """A command of lbd that runs beside the test, with all that it says on one stream."""
        return subprocess.Popen(self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def start(self) -> Self:
        """Start it; returns when it says that it runs.

        A command that found no daemon works on the state directory itself. Until its end the daemon is refused, and
        started anew, as systemd does.
        """
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        self._launch()
        while not any(line.get("pid") == self.pid for line in self.lines()):
            refused = not self.alive and "works on this state directory" in self.last_lines(1)
            if time.monotonic() > deadline or not (self.alive or refused):
                raise AssertionError(f"lbd did not start; its log ends with\n{self.last_lines()}")
            time.sleep(0.5 if refused else 0.02)
            if refused:
                self._launch()
        return self

    def _launch(self) -> None:
        launcher = [sys.executable, "-S", "-E", str(_LAUNCHER), str(os.getpid()), "--"]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*launcher, *self.prefix, *self.command("run")],
                cwd=_ROOT,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        assert self._process is not None, "the daemon was not started"
        self._process.kill()
        self._process.wait()
        self.kills.append(time.time())

    def restart(self) -> Self:
        """kill -9 and start anew."""
        self.kill()
        return self.start()

    def terminate(self) -> Ended:
        """SIGTERM, as systemd ends it."""
        assert self._process is not None, "the daemon was not started"
        begun = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(END_TIMEOUT_SECONDS)
        return Ended(code, time.monotonic() - begun)

    # -- what it says

    def lines(self) -> list[dict[str, Any]]:
        """The structured log of all its lives; what is no JSON is in `noise`."""
        found: list[dict[str, Any]] = []
        for line in self._text():
            with suppress(ValueError):
                found.append(json.loads(line))
        return [line for line in found if isinstance(line, dict)]

    def noise(self) -> list[str]:
        """Lines that are no JSON: tracebacks, warnings, and what a kill tore."""
        return [line for line in self._text() if line.strip() and not line.startswith("{")]

    def turns(self) -> list[dict[str, Any]]:
        """The log line of each turn."""
        return [line for line in self.lines() if "turn" in line]

    def last_lines(self, count: int = 10) -> str:
        """The end of the log, for an error message."""
        return "\n".join(self._text()[-count:])

    def journal(self) -> list[dict[str, Any]]:
        """All lines of the journal."""
        return journal.entries(self.state)

    def moves(self) -> list[Move]:
        """What the journal says was attempted, and what came of it."""
        return journal.moves(self.journal())

    def served(self) -> dict[str, dict[str, Any]]:
        """What the journal says last of each move's clients."""
        return {line["move"]: line for line in self.journal() if line.get("event") == "served"}

    def hits(self) -> dict[str, dict[str, int]]:
        """The hit counters that are kept between turns, by broker."""
        try:
            return dict(json.loads(value(self.state / STORE_NAME, MEMORY) or b"{}").get("hits", {}))
        except UsageError:
            return {}

    def contradictions(self, witness: Witness, by_others: Mapping[str, float] | None = None) -> list[str]:
        """Lines of the journal that the brokers deny (see `witness.contradictions`)."""
        return contradictions(self.moves(), witness, probe.owners(self.cluster), self.cluster.kills, by_others)

    def _text(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
