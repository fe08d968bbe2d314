"""Clients that hold a connection and neither ask nor read: they do not keep others out."""

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

from lbd.api.connection import CONNECTIONS, HEAD_BYTES
from lbd.api.events import WAITING_EVENTS, Events
from tests.api.conftest import PATIENCE_SECONDS, TOKEN
from tests.daemon.test_service import eventually

if TYPE_CHECKING:
    from tests.api.conftest import Api

EVENTS = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit, shortened."""
    monkeypatch.setattr("lbd.api.connection.QUIET_SECONDS", 0.5)


def _connected(api: Api) -> socket.socket:
    assert api.serving.url is not None
    parts = urlsplit(api.serving.url)
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.settimeout(PATIENCE_SECONDS)
    found.connect((parts.hostname, parts.port))
    return found


def _ended(connection: socket.socket) -> bool:
    """Whether the server has broken it off; waits for that."""
    try:
        return connection.recv(1 << 16) == b""
    except ConnectionError:
        return True


def test_connections_without_a_request_keep_nobody_out(api: Api):
    """As many as there may be, all silent: the probe is answered again."""
    with ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(_connected(api))
        eventually(lambda: api.get("/healthz").status_code == 200)


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


def test_a_listener_that_does_not_read_loses_its_place(api: Api):
    """Its connection is broken off, and the place is free for another."""
    events = api.serving.board.events
    with _connected(api) as connection:
        connection.sendall(EVENTS)
        assert connection.recv(12) == b"HTTP/1.1 200"
        events.tell("turn", "x" * (32 << 20))
        eventually(lambda: events.listening == 0)


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


def test_a_listener_that_asks_on_and_goes_is_gone(api: Api):
    """What it asked for behind the stream waits for its end, and does not hide who has left."""
    events = api.serving.board.events
    with _connected(api) as connection:
        connection.sendall(EVENTS)
        assert connection.recv(12) == b"HTTP/1.1 200"
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)  # so that it is read before the end
    eventually(lambda: events.listening == 0)


def test_one_too_many_is_told_as_a_problem(api: Api, monkeypatch: pytest.MonkeyPatch):
    """As every other error, and only while there are so many."""
    monkeypatch.setattr("lbd.api.connection.QUIET_SECONDS", 2 * PATIENCE_SECONDS)
    monkeypatch.setattr("lbd.api.connection.CONNECTIONS", 2)
    with _connected(api):
        found = api.get("/healthz")
    assert (found.status_code, found.headers["content-type"]) == (503, "application/problem+json")
    assert found.json()["detail"] == "there are 2 connections already; ask again in a moment"
    eventually(lambda: api.get("/healthz").status_code == 200)


def test_those_that_come_by_the_thousand_are_broken_off(api: Api, monkeypatch: pytest.MonkeyPatch):
    """Silent ones, and long before the process has no file left for brokers and its journal."""
    monkeypatch.setattr("lbd.api.connection.QUIET_SECONDS", 2 * PATIENCE_SECONDS)
    monkeypatch.setattr("lbd.api.connection.CONNECTIONS", 2)
    monkeypatch.setattr("lbd.api.connection.REFUSALS", 1)
    with ExitStack() as held:
        kept = [held.enter_context(_connected(api)) for _ in range(3)]
        for _ in range(20):
            with _connected(api) as one_more:
                assert _ended(one_more)
        kept[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept[0].recv(12) == b"HTTP/1.1 503"


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


def test_an_answer_is_one_packet(api: Api):
    """Its head waits for its body: whoever reads it has all of it at once."""
    with _connected(api) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = connection.recv(1 << 16)
    assert found.startswith(b"HTTP/1.1 200")
    assert found.rpartition(b"\r\n\r\n")[2].startswith(b'{"alive":true')


def test_a_body_that_is_asked_for_is_asked_for_at_once(api: Api):
    """A client may wait for 100 before it sends one: that is no head that waits for anything."""
    with _connected(api) as connection:
        head = b"POST /v1/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
        connection.sendall(head + b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100")
        connection.sendall(b"{}")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 422")


@pytest.mark.parametrize(
    "request_so_far",
    [
        b"GET / HTTP/1.1\r\nX: ",
        b"POST /v1/pause HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ",
        b"POST /v1/pause HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2;",
    ],
    ids=["head", "trailer", "chunk extension"],
)
def test_what_has_no_end_is_refused(api: Api, request_so_far: bytes, monkeypatch: pytest.MonkeyPatch):
    """And not kept: neither a head, nor what may follow a body, nor a word about a piece of it."""
    monkeypatch.setattr("lbd.api.connection.QUIET_SECONDS", 2 * PATIENCE_SECONDS)
    with _connected(api) as connection:
        connection.sendall(request_so_far)
        found = b""
        with suppress(ConnectionError):
            connection.sendall(b"x" * (16 * HEAD_BYTES))
            while piece := connection.recv(1 << 16):
                found += piece
    assert b"HTTP/1.1 400" in found or not found  # what was not read yet resets the connection


def test_what_is_no_http_is_not_the_answer_to_what_was_asked_before(api: Api):
    """Who reads 400 takes it that nothing was done."""
    with _connected(api) as connection:
        connection.sendall(b"GET /v1/snapshot HTTP/1.1\r\nHost: localhost\r\n\r\nBREW\x00 coffee\r\n\r\n")
        found = b""
        while piece := connection.recv(4096):
            found += piece
    assert b"HTTP/1.1 400" not in found


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
        b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
        b"GET ?x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["no line", "no host", "two hosts", "two lengths", "no carriage return", "no path"],
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
