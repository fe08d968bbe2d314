"""A build of lbd that dies by kill -9 at a named step: a process that forks one turn for each job it is given.

Jobs come as JSON lines on stdin: ``settings``, and ``die``: null, or the number of a journal write and how far it
gets (``before``, ``half``, ``after``). It answers with the child's process id, and with its exit status at the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from lbd.config import Settings
from lbd.daemon.engine import engine
from lbd.record.journal.segments import Appender


def main() -> None:
    """Serve jobs until stdin ends; nothing but this thread exists when it forks."""
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            _turn(job)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _turn(job: dict[str, Any]) -> None:
    if job["die"] is not None:
        _die_at(*job["die"])
    with engine(Settings.model_validate(job["settings"])) as balancer:
        balancer.once()
    os._exit(0)


def _die_at(number: int, how: str) -> None:
    write, count = Appender.write, [0]

    def deadly(appender: Appender, lines: bytes) -> None:
        count[0] += 1
        if count[0] != number:
            write(appender, lines)
            return
        if how == "half":
            os.write(appender._descriptor, lines[: len(lines) // 2])
        if how == "after":
            write(appender, lines)
        os.kill(os.getpid(), signal.SIGKILL)

    Appender.write = deadly  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
