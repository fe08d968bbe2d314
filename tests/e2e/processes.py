"""Starting, watching and ending single processes by their id, without ever hitting a stranger that inherited one."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAUNCHER = Path(__file__).with_name("launcher.py")
_PARENT_OUTLIVED = 0
_exit_codes: dict[int, int] = {}


@dataclass(frozen=True)
class Process:
    """One started process: its id, the kernel's start time that makes the id unmistakable, and its log file."""

    name: str
    pid: int
    started_ticks: int
    log: str

    def alive(self) -> bool:
        """Whether it still runs; an ended child of ours is reaped on the way."""
        with contextlib.suppress(ChildProcessError):  # not our child, or reaped before
            reaped, status = os.waitpid(self.pid, os.WNOHANG)
            if reaped:
                _exit_codes[reaped] = os.waitstatus_to_exitcode(status)
            return not reaped  # a JVM's state may be Z while its last threads run, so only this answer counts
        fields = _stat_fields(self.pid)
        return fields is not None and fields[0] != "Z" and int(fields[19]) == self.started_ticks

    def signal(self, number: int) -> None:
        """Send a signal to it and to its children; no error when it has ended."""
        if not self.alive():
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # it has not got its own session yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self, timeout_seconds: float = 10.0) -> None:
        """End it at once and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(timeout_seconds)

    def wait(self, timeout_seconds: float) -> None:
        """Wait until it has ended."""
        deadline = time.monotonic() + timeout_seconds
        while self.alive():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} (process {self.pid}) still runs after {timeout_seconds:.0f} s")
            time.sleep(0.01)

    @property
    def exit_code(self) -> int | None:
        """How a child of ours ended; None while it runs, or when somebody else has reaped it."""
        return None if self.alive() else _exit_codes.get(self.pid)

    def last_lines(self, count: int = 12) -> str:
        """The end of its log, for an error message."""
        lines = Path(self.log).read_text(errors="replace").splitlines()
        return f"last lines of {self.log}:\n  " + "\n  ".join(line[:300] for line in lines[-count:])


def start(
    name: str, command: Sequence[str], log: Path, process_files: Sequence[Path] = (), *, outlive: bool = False
) -> Process:
    """Start a command in a session of its own. Unless it may outlive this process, it dies with the calling thread."""
    parent = _PARENT_OUTLIVED if outlive else os.getpid()
    launcher = [sys.executable, "-S", "-E", str(_LAUNCHER), str(parent), *map(str, process_files), "--"]
    descriptors = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(sys.executable, [*launcher, *command], os.environ, file_actions=descriptors)
    _exit_codes.pop(pid, None)
    fields = _stat_fields(pid)
    if fields is None:
        raise RuntimeError(f"{name} ended as soon as it was started; see {log}")
    return Process(name, pid, int(fields[19]), str(log))


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on, or None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()
