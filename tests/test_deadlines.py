"""No exchange with anybody outside lasts longer than its one deadline, however little comes at a time."""

from __future__ import annotations

import ast
import socket
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

import lbd
from lbd.api.client import Client, LocalClient
from lbd.errors import LbdError, RefusedError
from lbd.notify.events import Event
from lbd.notify.message import WebhookMessage
from lbd.notify.sender import Notifier, Receiver
from lbd.notify.settings import NotifySettings
from lbd.pulsar.admin import AdminClient
from lbd.pulsar.client import Listening, SharedLog
from lbd.pulsar.leader_topic import LeaderTopic
from lbd.pulsar.oauth2 import AccessToken
from lbd.pulsar.settings import Oauth2Settings, PulsarSettings
from lbd.store.control import SOCKET, UnloadRequest
from tests.daemon.test_service import eventually
from tests.notify.test_sender import moved, receiving, settings
from tests.pulsar.issuer import key_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE_SECONDS = 0.6
LATEST_SECONDS = 60.0
"""An exchange whose deadline is ``DEADLINE_SECONDS`` has ended by then on any machine; one without never ends."""

DRIP_SECONDS = 0.05

HEAD = b"HTTP/1.1 200 OK\r\nX-A: "
BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"
REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 9000\r\n\r\n"
TLS = b"\x16\x03\x03\x40\x00"
"""A record of 16 KiB, of a handshake."""

FRAME = b"\x00\x00\x40\x00"
"""16 KiB of Pulsar's binary protocol."""


def _drip(connection: socket.socket, begin: bytes) -> None:
    with connection, suppress(OSError):
        connection.recv(1 << 16)
        connection.sendall(begin)
        while True:
            time.sleep(DRIP_SECONDS)
            connection.sendall(b"a")


@contextmanager
def dripping(listening: socket.socket, begin: bytes) -> Iterator[None]:
    """On each connection this answer begins, and never ends: a byte now and then, so that each read is in time."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=_drip, args=(connection, begin), daemon=True).start()

    with listening:
        listening.listen()
        accepting = threading.Thread(target=serve, daemon=True)
        accepting.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()  # the next socket may get the number of this one


def receiver(folder: Path, url: str) -> Receiver:
    """A webhook there."""
    (folder / "hook").write_text(f"{url}/hook")
    return Receiver(NotifySettings(url_file=folder / "hook"))


def brokers(url: str) -> PulsarSettings:
    """A cluster there."""
    service = url.replace("http:", "pulsar:")
    return PulsarSettings(admin_urls=(url,), service_url=service, read_timeout_seconds=DEADLINE_SECONDS)


def access_token(folder: Path, url: str) -> str:
    """Of an issuer there; raises when its renewal has ended."""
    oauth2 = Oauth2Settings.model_validate({"issuer_url": url, "private_key_file": key_file(folder / "key")})
    token = AccessToken(oauth2, DEADLINE_SECONDS)
    with suppress(LbdError):
        token.word()
    eventually(lambda: token._renewal is None)
    return token.word()


UNLOAD = UnloadRequest("id", "a/b/0x00000000_0xffffffff", None, None, "ann", 0.0, 0.0)
"""Its result is waited for as long as it has, and then as long as any other answer."""


def _failed(result: dict[str, object]) -> None:
    raise RefusedError(str(result["sentence"]))


PLACES: dict[str, tuple[tuple[bytes, ...], Callable[[str, Path], object]]] = {
    "webhook": (
        (HEAD, REDIRECT),
        lambda url, folder: receiver(folder, url).post(
            WebhookMessage("c", "h", 0.0, [Event("leader", 0.0, "b leads")])
        ),
    ),
    "webhook's TLS": (
        (TLS,),
        lambda url, folder: receiver(folder, url.replace("http:", "https:")).post_test(),
    ),
    "access token": ((HEAD, BODY), lambda url, folder: access_token(folder, url)),
    "admin request": ((HEAD, BODY), lambda url, _: AdminClient(brokers(url)).active_brokers()),
    "leader topic's stats": (
        (HEAD, BODY),
        lambda url, _: LeaderTopic(brokers(url), "persistent://pulsar/system/lbd-leader").writers(),
    ),
    "leader topic": (
        (FRAME,),
        lambda url, _: SharedLog(brokers(url), "persistent://pulsar/system/lbd-leader", "me"),
    ),
    "load data topics": ((FRAME,), lambda url, _: Listening(brokers(url), ["non-persistent://pulsar/system/x"])),
    "status over the API": ((HEAD, BODY), lambda url, _: Client(url, None).get("status")),
    "pause over the API": ((HEAD, BODY), lambda url, _: Client(url, None).post("pause", body={})),
    "command over the API": ((HEAD, BODY), lambda url, _: _failed(Client(url, None).command(UNLOAD))),
    "API's TLS": ((TLS,), lambda url, _: Client(url.replace("http:", "https:"), None).get("status")),
}
"""Everybody outside, with how an answer may begin that then drips, and what lbd asks for there."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines of a fraction of a second; the client library takes whole ones."""
    monkeypatch.setattr("lbd.api.client.TIMEOUT_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr("lbd.notify.sender.EXCHANGE_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr("lbd.pulsar.client.ACKNOWLEDGED_WITHIN_SECONDS", 1.0)


def ended(ask: Callable[[], object]) -> str:
    """The error with which it ends; what it is instead if it does not end in time."""
    errors = ["no end"]

    def asked() -> None:
        try:
            errors.append(f"no error: {ask()!r}")
        except LbdError as error:
            errors.append(f"{type(error).__name__}: {error}")

    asking = threading.Thread(target=asked, daemon=True)
    asking.start()
    asking.join(LATEST_SECONDS)
    return errors[-1]


@pytest.mark.security("an answer of a byte now and then, of everybody whom lbd asks: one deadline ends it")
@pytest.mark.parametrize(
    ("place", "begin"), [(place, begin) for place, (begins, _) in PLACES.items() for begin in begins]
)
def test_an_answer_in_drops_ends_at_the_deadline(place: str, begin: bytes, tmp_path: Path):
    """With an error in words, whatever comes in drops."""
    listening = socket.create_server(("127.0.0.1", 0))
    with dripping(listening, begin):
        error = ended(lambda: PLACES[place][1](f"http://127.0.0.1:{listening.getsockname()[1]}", tmp_path))
    assert "Error: " in error, error


def test_the_lbd_on_this_machine_has_a_deadline_too(tmp_path: Path):
    """On the socket in the state directory, also where it accepts no connection any more."""
    path = tmp_path / SOCKET
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    with dripping(listening, BODY):
        error = ended(lambda: LocalClient(tmp_path, "lbd").get("status"))
    assert error == "ObserveError: lbd: no answer in 1 s"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as deaf, socket.socket(socket.AF_UNIX) as waiting:
        deaf.bind(str(path))
        deaf.listen(0)
        waiting.connect(str(path))  # fills the line of those that wait
        assert ended(lambda: LocalClient(tmp_path, "lbd").get("status")) == (
            f"ObserveError: {tmp_path}: lbd accepts no connection at lbd.sock"
        )


def test_a_reload_frees_the_sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From a receiver that drips, whatever its deadline: what it did not take goes to the new one."""
    monkeypatch.setattr("lbd.notify.sender.EXCHANGE_SECONDS", 60.0)
    listening = socket.create_server(("127.0.0.1", 0))
    with dripping(listening, HEAD), receiving() as hook, capture_logs():
        notifier = Notifier(settings(tmp_path, f"http://127.0.0.1:{listening.getsockname()[1]}/hook"))
        notifier.tell(moved())
        eventually(lambda: notifier._sending)
        (tmp_path / "new").mkdir()
        notifier.take(settings(tmp_path / "new", hook.url))
        eventually(lambda: hook.bodies)
        notifier.close()


OUTSIDE = {
    "api/client.py": "the lbd of a command, in PLACES",
    "learn/spark.py": "a Connect server: one connection with a time, before Spark's own client",
    "notify/sender.py": "the webhook, in PLACES",
    "pulsar/client.py": "the client library, in PLACES",
    "pulsar/http.py": "brokers, in PLACES",
    "pulsar/oauth2.py": "the issuer, in PLACES",
}
"""The modules that speak to anybody outside."""

WIRES = frozenset({"requests", "urllib3", "http.client", "pulsar"})


def test_every_module_that_speaks_to_outside_is_in_the_table():
    """By what it imports: a new one belongs into PLACES."""
    folder = Path(lbd.__file__).parent
    speaking = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if _speaks(path.read_text())}
    assert speaking == set(OUTSIDE)


def _speaks(source: str) -> bool:
    for node in ast.walk(ast.parse(source)):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        if WIRES & set(names):
            return True
        if isinstance(node, ast.Attribute) and node.attr == "create_connection":
            return True
    return False
