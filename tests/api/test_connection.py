"""Clients that hold connections and neither ask nor read: the number stays limited, and probes are answered."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import requests

from lbd.api.connection import CONNECTIONS, network_of
from lbd.api.guard import REQUESTS
from lbd.api.published import WAITING_EVENTS, Events
from lbd.api.server import HEAD_BYTES
from tests.act.test_executor import no_thread
from tests.api.conftest import PATIENCE_SECONDS, TOKEN, serving
from tests.api.test_tls import OPENSSL, certify
from tests.daemon.test_service import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.api.conftest import Api
    from tests.fake_pulsar import FakePulsar

EVENTS = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
PROBE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
KEPT = b"GET /v1/strategy HTTP/1.1\r\nHost: localhost\r\n\r\n"

HOSTILE = {
    "silent": b"",
    "in a head": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ",
    "in a body": PROBE[:-2] + b"Content-Length: 10\r\n\r\n",
    "in a chunked body": PROBE[:-2] + b"Transfer-Encoding: chunked\r\n\r\n5\r\n",
    "kept alive after a probe": PROBE,
    "kept alive after a page": b"GET /static/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "kept alive after a question": KEPT,
    "does not read": b"GET /static/app.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40,
}
"""What a client without a token may send before it holds its connection."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit, shortened."""
    monkeypatch.setattr("lbd.api.connection.QUIET_SECONDS", 0.5)


@pytest.fixture
def secure(pulsar: FakePulsar, tmp_path: Path) -> Iterator[Api]:
    """An lbd that speaks https."""
    if OPENSSL is None:
        pytest.skip("openssl is not installed")
    with serving(pulsar, tmp_path, {"tls": certify(tmp_path, "localhost")}) as found:
        found.turn()
        yield found


def _connected(api: Api, source: str = "127.0.0.1") -> socket.socket:
    assert api.serving.url is not None
    parts = urlsplit(api.serving.url)
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.settimeout(PATIENCE_SECONDS)
    found.bind((source, 0))
    found.connect((parts.hostname, parts.port))
    return found


def _flood(api: Api, number: int, sent: bytes, held: ExitStack) -> list[socket.socket]:
    """So many connections that send this and stay."""
    found = []
    for _ in range(number):
        found.append(held.enter_context(_connected(api)))
        with suppress(ConnectionError):
            found[-1].sendall(sent)
    return found


def _open_of(connections: list[socket.socket]) -> int:
    """How many of them the server has not closed, whatever it sent before."""
    number = 0
    for one in connections:
        one.settimeout(0)
        try:
            while one.recv(1 << 16):
                pass
        except BlockingIOError:
            number += 1
        except ConnectionError:
            pass
    return number


def _probed(api: Api, path: str) -> int:
    """Status of a probe."""
    return requests.get(f"{api.serving.url}{path}", timeout=PATIENCE_SECONDS, verify=False).status_code


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE)
def test_probes_are_answered_beside_clients_that_hold_their_connections(api: Api, sent: bytes):
    """However many there are and wherever they have stopped: long before their time is over; and few stay open."""
    with ExitStack() as held:
        hostile = _flood(api, 1000, sent, held)
        for path in ("/healthz", "/readyz"):
            assert _probed(api, path) == 200
        assert _open_of(hostile) <= CONNECTIONS


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "in its first message"])
def test_probes_are_answered_beside_half_open_handshakes(secure: Api, sent: bytes):
    """They count from accept on: 1,100 of them do not take the file descriptors of the daemon."""
    with ExitStack() as held:
        hostile = _flood(secure, 1100, sent, held)
        assert _probed(secure, "/healthz") == 200
        assert _open_of(hostile) <= CONNECTIONS


def test_a_handshake_has_a_time(secure: Api, monkeypatch: pytest.MonkeyPatch):
    """However few there are."""
    monkeypatch.setattr("lbd.api.connection.HANDSHAKE_SECONDS", 0.5)
    with _connected(secure) as connection:
        assert _ended(connection)


def test_a_probe_keeps_no_connection(api: Api):
    """The next one comes on its own."""
    for path in ("/healthz", "/readyz"):
        assert api.get(path).headers["connection"] == "close"


def test_a_flood_from_one_address_takes_no_connection_of_another(api: Api):
    """A kept connection of a neighbour is older than all of the flood, and stays."""
    with ExitStack() as held:
        kept = held.enter_context(_connected(api, "127.0.0.2"))
        kept.sendall(KEPT)
        assert kept.recv(12) == b"HTTP/1.1 200"
        _flood(api, 500, KEPT, held)
        assert _probed(api, "/healthz") == 200  # accepted after all of them
        assert _open_of([kept]) == 1


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", b"\xc0\x00\x02\x07"),
        ("::ffff:192.0.2.7", b"\xc0\x00\x02\x07"),
        ("2001:db8::1", b"\x20\x01\x0d\xb8\0\0\0\0"),
        ("2001:db8::ffff:1", b"\x20\x01\x0d\xb8\0\0\0\0"),
        ("fe80::1%2", b"\xfe\x80\0\0\0\0\0\0"),
    ],
)
def test_one_client_has_a_network_to_itself(address: str, network: bytes):
    """An address of IPv4, also where it is written as one of IPv6; 64 bits of IPv6."""
    assert network_of(address) == network


def test_a_request_that_is_being_answered_is_not_broken_off(api: Api):
    """A stream stays, however many connections come after it."""
    with ExitStack() as held:
        stream = held.enter_context(_connected(api))
        stream.sendall(EVENTS)
        assert stream.recv(12) == b"HTTP/1.1 200"
        _flood(api, 500, KEPT, held)
        assert _probed(api, "/healthz") == 200
        assert api.serving.board.events.listening == 1
        assert _open_of([stream]) == 1


@pytest.mark.security("requests without a token that never end: no slot of anybody else is taken")
def test_incomplete_requests_take_no_slot(api: Api):
    """More of them than there are slots, some without rights: an administrator pauses and reads at once."""
    paths = ("/", "/healthz", "/static/style.css", "/v1/status", "/v1/drain/broker:1")
    with ExitStack() as held:
        for path in paths:
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
            _flood(api, REQUESTS // len(paths) + 1, head.encode(), held)
        answers = [api.post("/v1/pause", {"owner": "ann", "for_seconds": 60}) for _ in range(5)]
        assert [one.status_code for one in answers] == [200] * 5, answers[-1].text
        assert api.get("/v1/drains").status_code == 200


def test_a_request_has_a_time_to_become_complete(api: Api, monkeypatch: pytest.MonkeyPatch):
    """408 says what was missing, and the connection is closed."""
    monkeypatch.setattr("lbd.api.guard.BODY_SECONDS", 0.1)
    with _connected(api) as connection:
        connection.sendall(HOSTILE["in a body"])
        found = b""
        while piece := connection.recv(4096):
            found += piece
    assert found.startswith(b"HTTP/1.1 408")
    assert b"the request was not complete within 0.1 s" in found


def test_slots_for_orders_are_apart_from_those_for_reading(
    pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """While streams take all that one reader, then all readers may have, a pause is taken and a probe answered."""
    monkeypatch.setattr("lbd.api.guard.SLOTS", {"reading": (2, 1), "command": (1, 1), "change": (1, 1)})
    full = [
        (None, "1 reading requests of this caller are being answered already; ask again in a moment"),
        (f"Authorization: Bearer {TOKEN}\r\n", "2 reading requests are being answered already; ask again in a moment"),
    ]
    with serving(pulsar, tmp_path) as api, ExitStack() as held:
        api.turn()
        for header, words in full:
            stream = held.enter_context(_connected(api))
            stream.sendall(EVENTS.replace(b"\r\n\r\n", f"\r\n{header or ''}\r\n".encode()))
            assert stream.recv(12) == b"HTTP/1.1 200"
            found = api.get("/v1/status")
            assert (found.status_code, found.headers["content-type"]) == (503, "application/problem+json")
            assert (found.headers["retry-after"], found.headers["connection"]) == ("5", "close")
            assert found.json()["detail"] == words
            assert [api.get(path).status_code for path in ("/healthz", "/readyz", "/")] == [200] * 3
            assert api.post("/v1/pause", {"owner": "ann"}).status_code == 200
        held.close()
        eventually(lambda: api.get("/v1/status").status_code == 200)


def test_where_every_connection_is_being_answered_a_new_one_is_closed(api: Api, monkeypatch: pytest.MonkeyPatch):
    """None of them is broken off for it."""
    monkeypatch.setattr("lbd.api.connection.CONNECTIONS", 2)
    with ExitStack() as held:
        for _ in range(2):
            stream = held.enter_context(_connected(api))
            stream.sendall(EVENTS)
            assert stream.recv(12) == b"HTTP/1.1 200"
        assert _ended(held.enter_context(_connected(api)))
        assert api.serving.board.events.listening == 2


def test_requests_sent_ahead_are_answered_when_the_client_reads(api: Api, monkeypatch: pytest.MonkeyPatch):
    """Clients that never read cost one answer each, and take no place of an expensive request."""
    asked: list[object] = []

    def large(*_: object) -> str:
        asked.append(_)
        return "x" * (8 << 20)

    monkeypatch.setattr("lbd.api.read.snapshot", large)
    with ExitStack() as held:
        hostile = _flood(api, 8, b"GET /v1/snapshot HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5, held)
        eventually(lambda: len(asked) == len(hostile))
        assert api.get("/v1/snapshot").status_code == 200
        assert len(asked) == len(hostile) + 1
        while len(asked) == len(hostile) + 1:
            assert hostile[0].recv(1 << 20)


@pytest.mark.usefixtures("impatient")
def test_a_client_that_asks_nothing_is_closed(api: Api):
    """Where there is room, too."""
    with _connected(api) as connection:
        assert _ended(connection)


def _ended(connection: socket.socket) -> bool:
    """Whether the server has broken it off; waits for that."""
    try:
        return connection.recv(1 << 16) == b""
    except ConnectionError:
        return True


@pytest.mark.usefixtures("impatient")
def test_a_request_in_drops_is_not_waited_for(api: Api):
    """A byte now and then is no request."""
    with _connected(api) as connection:
        connection.settimeout(0.1)
        ended = False
        for byte in b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 2000:
            with suppress(TimeoutError):
                ended = _sent_to_nobody(connection, byte)
            if ended:
                break
        assert ended


def _sent_to_nobody(connection: socket.socket, byte: int) -> bool:
    try:
        connection.sendall(bytes([byte]))
    except ConnectionError:
        return True
    return _ended(connection)


@pytest.mark.usefixtures("impatient")
def test_a_listener_that_does_not_read_loses_its_place(api: Api):
    """Its connection is broken off, and the place is free for another."""
    events = api.serving.board.events
    with _connected(api) as connection:
        connection.sendall(EVENTS)
        assert connection.recv(12) == b"HTTP/1.1 200"
        events.tell("turn", "x" * (32 << 20))
        eventually(lambda: events.listening == 0)


@pytest.mark.usefixtures("impatient")
def test_a_listener_that_reads_stays(api: Api):
    """However long nothing happens."""
    with _connected(api) as connection:
        connection.sendall(EVENTS)
        found = b""
        while b"retry" not in found:
            found += connection.recv(4096)
        time.sleep(1.5)  # three times the limit
        api.serving.board.events.tell("turn", "here")
        while b"here" not in found:
            found += connection.recv(4096)
        assert api.serving.board.events.listening == 1


def test_a_listener_that_asks_on_and_goes_is_gone(api: Api, monkeypatch: pytest.MonkeyPatch):
    """What it asked for behind the stream waits for its end, and does not hide who has left."""
    monkeypatch.setattr("lbd.api.published.HEARTBEAT_SECONDS", 0.3)
    events = api.serving.board.events
    with _connected(api) as connection:
        connection.sendall(EVENTS)
        assert connection.recv(12) == b"HTTP/1.1 200"
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)  # so that it is read before the end
    eventually(lambda: events.listening == 0)


def test_a_listener_that_never_came_to_read_loses_its_place():
    """Its client was gone before its stream began; its place is another's once it has missed something."""

    async def lost() -> list[int]:
        events = Events()
        found = [events.listen()]
        before = events.listening
        for number in range(WAITING_EVENTS + 2):
            events.tell("turn", number)
            await asyncio.sleep(0)
        found.clear()
        return [before, events.listening]

    assert asyncio.run(lost()) == [1, 0]


def test_a_body_that_is_asked_for_is_asked_for_at_once(api: Api):
    """A client may wait for 100 before it sends one: that is no head that waits for anything."""
    with _connected(api) as connection:
        head = b"POST /v1/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
        connection.sendall(head + b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100")
        connection.sendall(b"{}")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 422")


POST_IN_CHUNKS = (
    b"POST /v1/pause HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
    + TOKEN.encode()
    + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
)
"""With the token: without one, 401 may come before the body has been looked at."""


@pytest.mark.security("a request line, head or body without an end: refused")
@pytest.mark.parametrize(
    "request_so_far",
    [
        b"GET / HTTP/1.1\r\nX: ",
        POST_IN_CHUNKS + b"2\r\n{}\r\n0\r\nX: ",
        POST_IN_CHUNKS + b"2;",
    ],
    ids=["head", "trailer", "chunk extension"],
)
def test_what_has_no_end_is_refused(api: Api, request_so_far: bytes):
    """And not kept: neither a head, nor what may follow a body, nor a word about a piece of it."""
    with _connected(api) as connection:
        connection.sendall(request_so_far)
        found = b""
        with suppress(ConnectionError):
            connection.sendall(b"x" * (16 * HEAD_BYTES))
            while piece := connection.recv(1 << 16):
                found += piece
    assert b"HTTP/1.1 400" in found or not found  # what was not read yet resets the connection


def test_what_is_no_http_is_refused_after_what_was_asked_before(api: Api):
    """In this order: a client that read 400 first would take it that nothing was done."""
    with _connected(api) as connection:
        connection.sendall(b"GET /v1/snapshot HTTP/1.1\r\nHost: localhost\r\n\r\nBREW\x00 coffee\r\n\r\n")
        found = b""
        while piece := connection.recv(4096):
            found += piece
    assert found.startswith(b"HTTP/1.1 200")
    assert found.count(b"HTTP/1.1 400") == 1


def test_large_bodies_one_after_the_other_are_no_endless_request(api: Api):
    """On one connection, each within its limit and all of them beyond it."""
    assert api.serving.url is not None
    headers = {**api.headers, "Content-Type": "application/json"}
    body = json.dumps({"owner": "ann", "for_seconds": 60}).ljust(60_000)
    with requests.Session() as session:
        for _ in range(4):
            found = session.post(f"{api.serving.url}/v1/pause", body, headers=headers, timeout=PATIENCE_SECONDS)
            assert found.status_code == 200, found.text


@pytest.mark.parametrize(
    "request_line_and_head",
    [
        b"BREW\x00 coffee\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere.example\r\n\r\n",
        b"POST /v1/pause HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["no line", "no host", "two hosts", "two lengths"],
)
def test_what_is_no_http_is_told_as_a_problem(api: Api, request_line_and_head: bytes):
    """And the connection is closed."""
    with _connected(api) as connection:
        connection.sendall(request_line_and_head)
        found = b""
        while piece := connection.recv(4096):
            found += piece
    assert found.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"application/problem+json" in found
    assert b'"status":400' in found


def test_without_a_thread_lbd_goes_on_without_its_api(
    pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The system has none left: it is said, as for a port that is taken, and who asks is not kept waiting."""
    no_thread(monkeypatch, "lbd-api")
    with serving(pulsar, tmp_path) as found:
        found.turn()
        status = found.serving.board.last.status
        assert (status.api, status.warnings[-2:]) == (None, ["the API is not served: can't start new thread"] * 2)
