"""A build of lbd that dies by kill -9 at a named step: a process that forks one turn for each job it is given.

Jobs come as JSON lines on stdin: ``settings``, ``die``: null, or the number of the journal write within whose
transaction it dies, and ``serves``: whether it executes one command instead of a turn. It answers
with the child's process id, and with its exit status at the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import structlog

from lbd.config import Settings
from lbd.daemon.api_backend import Serving
from lbd.daemon.engine import engine
from lbd.pulsar.settings import PulsarSettings
from lbd.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lbd.daemon.engine import Engine
    from lbd.store.control import RequestResult


def main() -> None:
    """Serve jobs until stdin ends; nothing but this thread exists when it forks."""
    import lbd.api.app
    import lbd.api.connection  # noqa: F401 - once for all of them

    PulsarSettings.concurrency = 1
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            _turn(job)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _turn(job: dict[str, Any]) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # stdout is for the answers
    if job["die"] is not None:
        _die_within(job["die"])
    with engine(Settings.model_validate(job["settings"])) as balancer:
        if job["serves"]:
            _serve(balancer)
        else:
            balancer.once()
    os._exit(0)


def _serve(balancer: Engine) -> None:
    """Execute one command that comes through the socket, and see it answered."""
    api, done, deliver = Serving(balancer, lambda: 0.0, lambda: 60.0), threading.Event(), balancer.requests.deliver

    def deliver_once(name: str, result: RequestResult) -> None:
        deliver(name, result)
        done.set()

    balancer.requests.deliver = deliver_once
    api.start()
    while not done.wait(0.01):
        balancer.serve()
    api.stop()


def _die_within(number: int) -> None:
    write, count = Database.write, [0]

    def deadly(store: Database, statement: str, rows: Iterable[Sequence[object]], *, durable: bool = True) -> None:
        count[0] += 1
        if count[0] != number:
            write(store, statement, rows, durable=durable)
            return
        store._connection.execute("BEGIN IMMEDIATE")
        store._connection.executemany(statement, rows)
        os.kill(os.getpid(), signal.SIGKILL)

    Database.write = deadly  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
