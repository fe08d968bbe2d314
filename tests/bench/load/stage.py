"""A cluster and a daemon, each in a process of its own, from their start to their end."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from tests.bench.load.cluster import SIZE
from tests.bench.load.daemon import Turned

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 120.0
STOP_SECONDS = 90.0
TURNS = "turns.jsonl"
NEVER_SECONDS = 3600.0
"""Between turns: all measurements have ended before the second one."""


@dataclass(frozen=True)
class Stage:
    """What runs: where the cluster and the API are, and a process that is idle, the daemon's process, and its turns so
    far.
    """

    admin_urls: list[str]
    url: str
    idle: str
    pid: int
    turns_file: Path

    @property
    def turns(self) -> list[Turned]:
        """All turns that have ended, the oldest first."""
        lines = self.turns_file.read_bytes().splitlines() if self.turns_file.exists() else []
        return [msgspec.json.decode(line, type=Turned) for line in lines]

    def after(self, number: int, seconds: float = START_SECONDS) -> list[Turned]:
        """Wait until so many turns have ended."""
        until = time.monotonic() + seconds
        while len(self.turns) < number:
            if time.monotonic() > until:
                raise TimeoutError(f"{len(self.turns)} turns within {seconds:g} s, wanted {number}")
            time.sleep(0.1)
        return self.turns

    def next_turns(self, number: int) -> list[Turned]:
        """So many turns from now on; the one that may be under way is not counted."""
        before = len(self.turns) + 1
        return self.after(before + number, START_SECONDS * (1 + number))[before:]

    def memory(self) -> tuple[float, float]:
        """Resident MiB of the daemon, now and at most."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        found = {name: value for name, _, value in (line.partition(":") for line in lines)}
        return tuple(float(found[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


@contextmanager
def stage(interval_seconds: float, size: tuple[int, int] = SIZE) -> Iterator[Stage]:
    """A balancing daemon beside so many brokers and bundles, with an API on a port of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="lbd-bench-") as name,
        _beside("cluster", *map(str, size)) as admin_urls,
        _beside("idle") as idle,
        _daemon(Path(name), _settings(admin_urls, interval_seconds)) as (url, pid),
    ):
        yield Stage(admin_urls, url, idle, pid, Path(name, TURNS))


@contextmanager
def another(on: Stage) -> Iterator[str]:
    """Where the API of another lbd beside the same brokers is, which has made its only turn."""
    with (
        tempfile.TemporaryDirectory(prefix="lbd-bench-") as name,
        _daemon(Path(name), _settings(on.admin_urls, NEVER_SECONDS)) as (url, _),
    ):
        yield url


def _settings(admin_urls: list[str], interval_seconds: float) -> dict[str, object]:
    return {
        "pulsar": {"admin_urls": admin_urls[:3]},
        "interval_seconds": interval_seconds,
        "api": {"listen": "127.0.0.1:0"},
        "avg_shedder": {"hit_count_low": 2, "hit_count_high": 1},
        "guardrails": {"membership_settle_seconds": 0},
    }


@contextmanager
def _beside(name: str, *arguments: str) -> Iterator[Any]:
    """A process that tells on its first line where it is, and ends with its standard input."""
    command = [sys.executable, "-m", f"tests.bench.load.{name}", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(STOP_SECONDS)


@contextmanager
def _daemon(folder: Path, settings: dict[str, object]) -> Iterator[tuple[str, int]]:
    """A daemon with this folder to itself, once its first turn has ended: where its API is, and its process."""
    config, log, state = folder / "lbd.yaml", folder / "log", folder / "state"
    state.mkdir()
    config.write_text(yaml.safe_dump({**settings, "state_dir": str(state)}), encoding="utf-8")
    command = [sys.executable, "-m", "tests.bench.load.daemon", str(folder / TURNS), "run", "--config", str(config)]
    with log.open("wb") as told, subprocess.Popen(command, stderr=told, stdout=told) as process:
        try:
            yield _url(state / "status.json", log), process.pid
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)


def _url(status: Path, log: Path) -> str:
    """As soon as the first turn has told it."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if status.exists():
            return str(json.loads(status.read_bytes())["api"])
        time.sleep(0.1)
    raise TimeoutError(f"no turn within {START_SECONDS:g} s: {log.read_text(encoding='utf-8')[-2000:]}")
