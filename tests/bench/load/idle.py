"""What the machine gives a process that has nothing else to do: answers that take as long to work out as a placement's.

python -m tests.bench.load.idle
"""

from __future__ import annotations

import sys
import threading
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DRAWS = 700
"""A millisecond or so of a processor, as an answer of the API takes."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        body = b"".join(blake2b(b"%d" % at, digest_size=8).digest() for at in range(DRAWS))[:2000]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        del format, args


def main() -> None:
    """Its address on the first line; until the other end of standard input is closed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f'"http://127.0.0.1:{server.server_address[1]}"', flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
