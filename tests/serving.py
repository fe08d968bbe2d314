"""A live lbd in this process that accepts commands on its socket, as the daemon does."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from lbd.daemon.api_backend import Serving
from lbd.daemon.engine import engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.daemon.engine import Engine


@contextmanager
def accepting(settings: Settings, turns: int = 0) -> Iterator[Engine]:
    """An engine whose requests are executed as they come; without the API on TCP."""
    local = settings.model_copy(update={"api": settings.api.model_copy(update={"enabled": False})})
    with capture_logs(), engine(local) as found:  # its log is no output of the commands
        for _ in range(turns):
            found.turn()
        api, done = Serving(found, lambda: 0.0, lambda: 60.0), threading.Event()
        api.start()

        def serve() -> None:
            while not done.wait(0.02):
                found.serve()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield found
        finally:
            done.set()
            thread.join()
            found.halt()
            found.wait(60)
            api.stop()
