"""A broker that answers nothing is waited for once; then it is asked beside everything else, until it answers."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from lbd.errors import AdminError
from lbd.pulsar.http import Http
from lbd.pulsar.settings import PulsarSettings
from lbd.pulsar.silence import Silences, in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_SECONDS = 30.0
ONE = "http://b1:8080"


@dataclass
class Broker:
    """One that answers only while ``speaks`` is set, but for what has ``always`` in its path."""

    speaks: threading.Event = field(default_factory=threading.Event)
    asked: list[str] = field(default_factory=list)
    always: str = "/nothing"
    base: str = ""


@contextmanager
def listening(broker: Broker) -> Iterator[Broker]:
    """It listens on a port of its own."""
    over = threading.Event()

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            broker.asked.append(self.path)
            while not (broker.speaks.wait(0.02) or broker.always in self.path):
                if over.is_set():
                    return
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_PUT(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        server.daemon_threads = True
        broker.base = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield broker
        over.set()
        server.shutdown()


def http(broker: Broker) -> Http:
    """Asks again every twentieth of a second."""
    found = Http(PulsarSettings(admin_urls=(broker.base,), read_timeout_seconds=0.3, connect_timeout_seconds=0.3))
    found.silences = Silences(found._answers, again_seconds=0.05)
    return found


def test_only_the_first_request_waits_for_it() -> None:
    """What follows is refused before it is sent, also a PUT, and says since when."""
    with listening(Broker()) as broker:
        asking = http(broker)
        with pytest.raises(AdminError, match="no answer in time"):
            asking.send("GET", f"{broker.base}/first")
        for method in ("GET", "PUT"):
            with pytest.raises(AdminError, match=r"does not answer since \d\d:\d\d:\d\d; not sent") as refused:
                asking.send(method, f"{broker.base}/second")
            assert not refused.value.sent
        asking.silences.close()
    assert "/second" not in broker.asked


def test_one_that_answers_again_is_asked_again() -> None:
    """Nobody but lbd itself asked it meanwhile."""
    with listening(Broker()) as broker:
        asking = http(broker)
        with pytest.raises(AdminError):
            asking.send("GET", f"{broker.base}/first")
        assert asking.silences.since(broker.base) is not None
        broker.speaks.set()
        for _ in range(600):
            if asking.silences.since(broker.base) is None:
                break
            threading.Event().wait(PATIENCE_SECONDS / 600)
        assert asking.send("GET", f"{broker.base}/second").status == 200


def test_one_that_is_slow_at_one_thing_is_not_silent() -> None:
    """It gives its load report: only that request has failed."""
    with listening(Broker(always="/load-report")) as broker:
        asking = http(broker)
        for _ in range(2):
            with pytest.raises(AdminError, match="no answer in time"):
                asking.send("GET", f"{broker.base}/large")
        assert asking.silences.since(broker.base) is None
    assert broker.asked.count("/large") == 2


def test_an_unload_that_takes_its_time_tells_nothing() -> None:
    """A source closes topics for a minute, and whoever asked for it may be given up on."""
    with listening(Broker()) as broker:
        asking = http(broker)
        with pytest.raises(AdminError):
            asking.send("PUT", f"{broker.base}/unload")
        assert asking.silences.since(broker.base) is None


def test_one_that_is_asked_by_many_is_told_once() -> None:
    """Requests time out side by side; the first of them counts, and one thread asks again."""
    asked: list[str] = []
    silences = Silences(lambda base: asked.append(base) is not None, again_seconds=3600)
    for begun_at in (100.0, 101.0):
        silences.unanswered(ONE, begun_at)
    assert (silences.since(ONE), asked) == (100.0, [ONE])
    silences.close()


def test_after_its_end_nothing_is_noted() -> None:
    """Settings were read again: whoever still works with the old ones asks as if nothing were known."""
    silences = Silences(lambda _: False)
    silences.close()
    silences.unanswered(ONE, 100.0)
    assert silences.since(ONE) is None


def test_the_day_is_told_where_it_is_another() -> None:
    """Weeks later a time of day would mislead."""
    assert re.fullmatch(r"does not answer since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", in_words(1.0))
