"""Whatever a peer sends, a request ends in its time, takes no more than its memory, and shows no secret."""

from __future__ import annotations

import gc
import gzip
import shutil
import socket
import ssl
import subprocess
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING

import pytest

from lbd.clock import boot_seconds
from lbd.errors import AdminError
from lbd.observe.observer import Observer
from lbd.pulsar.admin import Admin
from lbd.pulsar.http import ANSWERS, Http, base_url
from lbd.pulsar.settings import PulsarSettings, TlsSettings
from lbd.simulate.answers import ok
from tests import fake_pulsar
from tests.daemon.test_service import eventually
from tests.silence import LIMIT_SECONDS, SHORT_SECONDS, be_short_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

MIB = 1024 * 1024
SHORT = {"read_timeout_seconds": SHORT_SECONDS}
"""Time-out of requests to a peer that would hold them for good."""

OPENSSL = shutil.which("openssl")
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = OK + b"Content-Encoding: gzip\r\n"


def dripping(text: bytes) -> Iterator[bytes]:
    """A byte each hundredth of a second, without end: each read of a socket is in time."""
    for byte in text:
        time.sleep(0.01)
        yield bytes([byte])


def sized(body: bytes, head: bytes = OK) -> bytes:
    """A whole answer; it says that the connection ends with it, so that nothing is sent on one about to be closed."""
    return head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@cache
def bomb(layers: int) -> bytes:
    """128 MiB of zeros, packed so often."""
    if layers > 1:
        return gzip.compress(bomb(layers - 1))
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(128)) + packer.flush()


@dataclass
class Peer:
    """A server that answers each request on its connections with what ``answer`` yields; it counts who came."""

    answer: Callable[[], Iterable[bytes]]
    base: str = ""
    requests: list[bytes] = field(default_factory=list)


@contextmanager
def listening(
    answer: Callable[[], Iterable[bytes]], *, asks_first: bool = True, tls: ssl.SSLContext | None = None
) -> Iterator[Peer]:
    """It sends until its answer ends or nobody takes it any more, and then closes."""
    peer, stop = Peer(answer), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while not stop.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=talk, args=(connection,), daemon=True).start()

        def talk(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                spoken = tls.wrap_socket(connection, server_side=True) if tls else connection
                with spoken:
                    if asks_first:
                        peer.requests.append(spoken.recv(65536))
                    for piece in peer.answer():
                        if stop.is_set():
                            return
                        spoken.sendall(piece)

        threading.Thread(target=serve, daemon=True).start()
        peer.base = f"{'https' if tls else 'http'}://127.0.0.1:{server.getsockname()[1]}"
        try:
            yield peer
        finally:
            stop.set()
            server.shutdown(socket.SHUT_RDWR)


def silence() -> Iterator[bytes]:
    """Nothing, and the connection stays open."""
    time.sleep(120)
    yield b""


def after(head: bytes, rest: Callable[..., Iterable[bytes]] = list, *args: object) -> Callable[[], Iterator[bytes]]:
    """A part at once, and then the rest, if any."""

    def answer() -> Iterator[bytes]:
        yield head
        yield from rest(*args)

    return answer


def zeros(head: bytes, *, layers: int) -> Callable[[], Iterator[bytes]]:
    """A body that is packed so often, made when somebody asks for it."""
    packed = b"Content-Encoding: " + b", ".join([b"gzip"] * layers) + b"\r\n"
    return lambda: iter([sized(bomb(layers), head + packed)])


ENDLESS = {
    "says nothing": silence,
    "drips the status line": after(b"", dripping, b"HTTP/1.1 200 " + b"O" * 5000),
    "drips headers": after(b"", dripping, OK + b"X-A: b\r\n" * 1000),
    "drips 100 Continue": after(b"", dripping, b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "drips the headers of a 100 Continue": after(b"HTTP/1.1 100 Continue\r\n", dripping, b"X-A: b\r\n" * 1000),
    "drips a redirect": after(b"HTTP/1.1 307 X\r\nLocation: ", dripping, b"http://127.0.0.1/" + b"a" * 5000),
    "drips the size of a chunk": after(CHUNKED, dripping, b"0" * 5000),
    "drips a chunk extension": after(CHUNKED, dripping, b"5;" + b"a=b;" * 1000),
    "drips chunks of a byte": after(CHUNKED, dripping, b"1\r\nx\r\n" * 1000),
    "drips the body": after(OK + b"Content-Length: 9000\r\n\r\n", dripping, b"x" * 9000),
    "drips a body that ends with the connection": after(OK + b"\r\n", dripping, b"x" * 9000),
    "drips the trailers": after(CHUNKED + b"0\r\n", dripping, b"X-A: b\r\n" * 1000),
    "drips one trailer": after(CHUNKED + b"0\r\n", dripping, b"X-A: " + b"b" * 5000),
    "stops within the status line": after(b"HTTP/1.1 2", silence),
    "stops within the headers": after(OK + b"X-A: ", silence),
    "stops within the body": after(OK + b"Content-Length: 9\r\n\r\nxxxx", silence),
    "stops within a chunk": after(CHUNKED + b"5\r\nxx", silence),
    "stops before the last chunk": after(CHUNKED + b"5\r\nxxxxx\r\n", silence),
    "stops within a packed body": after(GZIP + b"Content-Length: 99\r\n\r\n" + gzip.compress(b"x")[:15], silence),
}
"""What would hold a request for as long as the peer likes, were its time not over at some point."""

OUTRAGEOUS = {
    "a status line without end": after(b"", repeat, b"H" * 65536),
    "100 Continue without end": after(b"", repeat, b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a header without end": after(OK + b"X-A: ", repeat, b"a" * 65536),
    "headers without end": after(OK, repeat, b"X-A: b\r\n" * 8192),
    "a body without end": after(OK + b"\r\n", repeat, b"x" * 65536),
    "a chunk extension without end": after(CHUNKED + b"5;", repeat, b"a" * 65536),
    "a chunked body without end": after(CHUNKED, repeat, b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    "a chunk of more bytes than there are": after(CHUNKED + b"F" * 30 + b"\r\n", repeat, b"x" * 65536),
    "a trailer without end": after(CHUNKED + b"0\r\nX-A: ", repeat, b"a" * 65536),
    "trailers without end": after(CHUNKED + b"0\r\n", repeat, b"X-A: b\r\n" * 8192),
    "a length that is a lie": after(OK + b"Content-Length: 900\r\n\r\nshort"),
    "two lengths": after(OK + b"Content-Length: 3\r\nContent-Length: 900\r\n\r\nxyz"),
    "packed 128 MiB of zeros": zeros(OK, layers=1),
    "packed three times": zeros(OK, layers=3),
    "a redirect, packed three times": zeros(b"HTTP/1.1 307 X\r\nLocation: /x\r\n", layers=3),
    "a redirect, packed": zeros(b"HTTP/1.1 307 X\r\nLocation: /x\r\n", layers=1),
    "deflated": after(sized(zlib.compress(b"x" * 99), OK + b"Content-Encoding: deflate\r\n")),
    "said to be packed": after(sized(b"{}", GZIP)),
    "packed and broken off": after(sized(gzip.compress(b"x" * 99)[:-9], GZIP)),
    "packed, with more behind it": after(sized(gzip.compress(b"x") + b"more", GZIP)),
    "garbage": after(bytes(range(256)) * 20),
    "TLS where none is asked for": after(bytes.fromhex("15030100020246")),
    "another protocol": after(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "closed at once": after(b""),
    "closed within the status line": after(b"HTTP/1.1 20"),
    "closed after the status line": after(OK),
    "closed within the headers": after(OK + b"X-A"),
    "closed within a chunk": after(CHUNKED + b"5\r\nxx"),
    "a header without a colon": after(OK + b"X-A\r\nContent-Length: 2\r\n\r\n{}"),
    "a chunk of no number": after(CHUNKED + b"five\r\nxxxxx\r\n0\r\n\r\n"),
    "a status of no number": after(b"HTTP/1.1 ok OK\r\n\r\n"),
}
"""What is no answer and ends by itself, or is more than one may be."""


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A MiB for all answers."""
    monkeypatch.setattr("lbd.pulsar.http.MAX_RESPONSE_BYTES", MIB)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake of an innocent peer may be late."""
    monkeypatch.setattr(PulsarSettings, "connect_timeout_seconds", LIMIT_SECONDS)


def http(*bases: str, **changes: object) -> Http:
    """With time for whoever answers at all, unless changed."""
    return Http(PulsarSettings.model_validate({"admin_urls": bases, "read_timeout_seconds": LIMIT_SECONDS, **changes}))


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("answer", ENDLESS.values(), ids=ENDLESS)
def test_one_deadline_holds_over_the_whole_answer(
    answer: Callable[[], Iterable[bytes]], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told as a request that had no answer in time, and the broker is one that answers nothing.

    Time runs once the peer has the request: only its answer may be late.
    """
    with listening(answer) as peer:
        asking, begun = http(peer.base, **SHORT), boot_seconds()
        monkeypatch.setattr("lbd.pulsar.http.boot_seconds", lambda: boot_seconds() if peer.requests else begun)
        with pytest.raises(AdminError, match="in time") as late:
            asking.send(method, f"{peer.base}/x")
        assert late.value.sent
        assert (asking.silences.since(peer.base) is not None) is (method == "GET")


@pytest.mark.parametrize("answer", OUTRAGEOUS.values(), ids=OUTRAGEOUS)
def test_what_is_no_answer_is_told_in_one_line(answer: Callable[[], Iterable[bytes]]) -> None:
    """With an error of ours: the other brokers are asked as if nothing were."""
    refused = r"^PUT http://127\.0\.0\.1:\d+/x: [^\n]+$"
    with listening(answer) as peer, pytest.raises(AdminError, match=refused) as caught:
        http(peer.base).send("PUT", f"{peer.base}/x")
    assert "in time" not in str(caught.value)


class TestConnecting:
    def test_a_handshake_that_never_comes(self) -> None:
        """The port is open and nothing is sent; the request was not sent either."""
        with listening(silence, asks_first=False) as peer:
            base = peer.base.replace("http:", "https:")
            with pytest.raises(AdminError, match="in time") as late:
                http(base, **SHORT).send("PUT", f"{base}/x")
            assert not late.value.sent

    @pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
    def test_a_handshake_that_drips(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A real one, each byte of the server's flight by itself."""
        monkeypatch.setattr(PulsarSettings, "connect_timeout_seconds", SHORT_SECONDS)
        with listening(after(b"", dripping, _server_hello(tmp_path))) as peer:
            base = peer.base.replace("http:", "https:")
            with pytest.raises(AdminError, match="in time") as late:
                http(base).send("PUT", f"{base}/x")
            assert not late.value.sent

    @pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
    @pytest.mark.parametrize("name", ["drips headers", "drips the body", "drips the trailers", "drips 100 Continue"])
    def test_the_same_over_tls(self, name: str, tmp_path: Path) -> None:
        """What is read is bounded above TLS."""
        with listening(ENDLESS[name], tls=_context(tmp_path)) as peer:
            asking = http(peer.base, tls=TlsSettings(ca_file=tmp_path / "cert.pem"), **SHORT)
            with pytest.raises(AdminError, match="in time"):
                asking.send("GET", f"{peer.base}/x")

    def test_a_name_of_many_addresses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A headless service has an address for each broker; a network that swallows packets is tried for each."""
        monkeypatch.setattr(PulsarSettings, "connect_timeout_seconds", SHORT_SECONDS)
        with socket.socket() as full:  # a queue of one that nobody empties: further connections wait for good
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            port = full.getsockname()[1]
            taken = [_connecting(port) for _ in range(4)]
            untried = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))] * 50
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: iter(untried.pop, None))
            with pytest.raises(AdminError, match="no connection in time") as late:
                http("http://brokers:1", read_timeout_seconds=1.0).send("PUT", "http://brokers:1/x")
            assert untried != []
            assert not late.value.sent
            for one in taken:
                one.close()


def _connecting(port: int) -> socket.socket:
    found = socket.socket()
    found.setblocking(False)
    found.connect_ex(("127.0.0.1", port))
    return found


def _context(folder: Path) -> ssl.SSLContext:
    """Of a server with a certificate of its own for 127.0.0.1."""
    assert OPENSSL is not None
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([OPENSSL, *words, *names, "-out", cert, "-keyout", key], check=True, capture_output=True)
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(cert, key)
    return found


def _server_hello(folder: Path) -> bytes:
    """What a server sends first to a client of this machine, some hundred bytes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_in, client_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(client_in, client_out, server_hostname="127.0.0.1")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    incoming.write(client_out.read())
    server = _context(folder).wrap_bio(incoming, outgoing, server_side=True)
    with suppress(ssl.SSLWantReadError):
        server.do_handshake()
    return outgoing.read()


class TestMemory:
    """One limit for all answers together: what is read, and what was read and is still needed."""

    LARGE = 700 * 1024

    def test_of_two_that_are_too_much_the_larger_is_given_up(self) -> None:
        """It sends most of it and then drips: the other one is taken all the same, and need not wait."""
        slow = after(OK + b"Content-Length: 900000\r\n\r\n" + b"x" * self.LARGE, silence)
        with listening(slow) as first, listening(after(sized(b"y" * self.LARGE))) as second:
            asking = http(first.base, second.base)
            with ThreadPoolExecutor(1) as pool:
                given_up = pool.submit(asking.send, "PUT", f"{first.base}/x")
                eventually(lambda: ANSWERS.size_bytes > self.LARGE - (1 << 16))
                assert asking.send("GET", f"{second.base}/x").body == b"y" * self.LARGE
                with pytest.raises(AdminError, match="the largest of answers that together exceed 1048576 bytes"):
                    given_up.result()
            assert asking.silences.since(first.base) is None
        assert ANSWERS.size_bytes == 0

    def test_one_that_is_still_needed_counts(self) -> None:
        """It waits to be read by whoever asked, and cannot be given up; when it is dropped there is room again."""
        with listening(after(sized(b"y" * self.LARGE))) as peer:
            asking = http(peer.base)
            first = asking.send("GET", f"{peer.base}/x")
            with pytest.raises(AdminError, match="given up"):
                asking.send("PUT", f"{peer.base}/x")
            assert (len(first.body), ANSWERS.size_bytes) == (self.LARGE, self.LARGE)
            del first
            assert len(asking.send("PUT", f"{peer.base}/x").body) == self.LARGE
        assert ANSWERS.size_bytes == 0

    @pytest.mark.parametrize("answer", [*ENDLESS.values(), *OUTRAGEOUS.values()], ids=[*ENDLESS, *OUTRAGEOUS])
    def test_what_failed_takes_nothing(self, answer: Callable[[], Iterable[bytes]]) -> None:
        """Though somebody keeps the error."""
        with listening(answer) as peer, pytest.raises(AdminError) as kept:
            http(peer.base, **SHORT).send("PUT", f"{peer.base}/x")
        gc.collect()  # pytest keeps what it caught in the frame that it was caught in
        assert (ANSWERS.size_bytes, str(kept.value) != "") == (0, True)


@pytest.mark.parametrize("status", [429, 503])
def test_who_asks_to_wait_has_answered(status: int) -> None:
    """Nobody waits for an hour, and the reason is told."""
    head = b"HTTP/1.1 %d X\r\nRetry-After: 3600\r\n" % status
    with listening(after(sized(b"why", head))) as peer:
        answer = http(peer.base).send("GET", f"{peer.base}/x")
        assert (answer.status, answer.body, len(peer.requests)) == (status, b"why", 1)


def test_no_cookie_is_kept() -> None:
    """A broker sets none that lbd needs; one that sets many would have them kept, and sent to it, for good."""
    with listening(after(sized(b"", OK + b"Set-Cookie: a=b\r\n"))) as peer:
        asking = http(peer.base)
        for _ in range(2):
            asking.send("GET", f"{peer.base}/x")
        assert b"ookie" not in peer.requests[-1]


def test_packed_answers_are_asked_for() -> None:
    """A report shrinks to a tenth; packed in another way lbd could not take it in a bounded time."""
    with listening(after(sized(gzip.compress(b"{}"), GZIP))) as peer:
        assert http(peer.base).send("GET", f"{peer.base}/x").body == b"{}"
        assert b"\r\nAccept-Encoding: gzip\r\n" in peer.requests[0]


def test_a_turn_ends_with_brokers_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each sort at once: they are missing, the others' reports are read, and the next turn asks none of them."""
    with ExitStack() as stack:
        peers = [stack.enter_context(listening(answer)) for answer in ENDLESS.values()]
        be_short_with(monkeypatch, lambda url: base_url(url) in {peer.base for peer in peers})
        pulsar = stack.enter_context(fake_pulsar.started())
        bad = [peer.base.removeprefix("http://") for peer in peers]
        pulsar.fault("/v2/brokers/ours", ok([*bad, *pulsar.ids]))
        asked = PulsarSettings(admin_urls=tuple(pulsar.urls), cluster="ours", read_timeout_seconds=LIMIT_SECONDS)
        observer = Observer(Admin(asked), time.time)
        for _ in range(2):
            before = [len(peer.requests) for peer in peers]
            found = observer.observe()
            assert set(found.snapshot.brokers.ids) == set(pulsar.ids)
            assert set(found.silent) == set(found.missing) == set(bad)
        assert [len(peer.requests) for peer in peers] == before
        observer.close()
