"""A webhook's receiver: a real server that takes, refuses, or hangs."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "/services/T0000/B0000/4xAmPl3S3cr3tOfTheTests"


@dataclass
class Hook:
    """``answers`` are the next status codes, the last one for good; with ``hangs`` nothing is answered.

    ``arrived`` is when each of the ``bodies`` came, in seconds of the monotonic clock.
    """

    port: int = 0
    answers: list[int] = field(default_factory=lambda: [200])
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Its secret address."""
        return f"http://127.0.0.1:{self.port}{SECRET}"


@contextmanager
def receiving() -> Iterator[Hook]:
    """A receiver on a port of its own."""
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.arrived.append(time.monotonic())
            hook.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if hook.hangs:
                hook.ended.wait(60)
                return
            self.send_response(hook.answers.pop(0) if len(hook.answers) > 1 else hook.answers[0])
            for name, value in hook.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hook
    finally:
        hook.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
