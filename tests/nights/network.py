"""Requests from lbds to fake brokers without sockets: each takes a little time, may be lost, and may be answered late.

It stands where ``lbd.pulsar.http`` has its sessions. A broker works on a request in a task of its own, and finishes it
even when the lbd that sent it is killed meanwhile.
"""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass, field
from email.utils import formatdate
from random import Random
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import requests
from urllib3.exceptions import ProtocolError

from lbd.simulate.answers import Reply, Request
from tests.nights.scheduler import scheduler
from tests.simulate.faulty import Spoilt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.pulsar.http import BoundedExchange
    from lbd.pulsar.settings import PulsarSettings

FASTEST_SECONDS, SLOWEST_SECONDS = 0.0005, 0.005
"""How long one way takes within a data centre, and in a busy one."""

REDIRECT = 307
LATE_SECONDS = 90.0
"""Longer than anybody waits for an answer."""

GET_TRIES = 3
"""A GET is sent again when its connection broke, as ``lbd.pulsar.http`` has urllib3 do it."""


@dataclass(eq=False)
class VirtualPort:
    """A broker's web port. ``hung``: connections are accepted, and nothing is answered."""

    id: str
    answers: Callable[[Request], Reply]
    open: bool = False
    hung: bool = False

    def shut(self) -> None:
        """Refuse connections."""
        self.open = False

    def empty(self, seconds: float) -> bool:
        """There are no connections to wait for."""
        del seconds
        return True


@dataclass(eq=False)
class _Exchange:
    answered: threading.Event = field(default_factory=threading.Event)
    reply: Reply | None = None


class Network:
    """The ports of all brokers. ``on_request`` sees each request at the moment when it leaves a machine, and
    ``on_redirect`` when it is to be sent to another broker.

    ``cut`` are the machines that reach no broker. The next ``twice`` questions, and ``changes_twice`` changes, reach
    their brokers a second time. The next ``late`` changes are made at once, and answered when nobody waits any more; a
    redirect takes ``redirect_seconds``.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(f"network {seed}")
        self.ports: dict[str, VirtualPort] = {}
        self.cut: set[str] = set()
        self.twice = self.changes_twice = self.late = 0
        self.redirect_seconds = 0.0
        self.on_request: Callable[[str, Request], None] = lambda *_: None
        self.on_redirect: Callable[[Request], None] = lambda _: None
        self.requests = 0

    def heal(self) -> None:
        """Nothing fails any more."""
        self.cut.clear()
        self.twice = self.changes_twice = self.late = 0
        self.redirect_seconds = 0.0
        for port in self.ports.values():
            port.hung = False

    # -- as brokers see it

    def hold(self, number: int, port: int, answers: Callable[[Request], Reply]) -> list[VirtualPort]:
        """A port for each broker."""
        del port
        held = [VirtualPort(f"broker-{at}:8080", answers) for at in range(1, number + 1)]
        self.ports = {one.id: one for one in held}
        return held

    def start(self) -> None:
        """Ports are there from the beginning."""

    def open(self, port: VirtualPort) -> None:
        """A broker is up."""
        port.open = True

    def shut(self, port: VirtualPort) -> None:
        """A broker is gone."""
        port.open = False

    def stop(self) -> None:
        """Nothing is left behind."""

    # -- as lbds see it

    def ask(self, exchange: BoundedExchange, request: Request, connect_seconds: float) -> Reply:
        """The answer of a broker. Raises what ``requests`` raises, and the exchange's own errors past its deadline."""
        for number in range(GET_TRIES if request.method == "GET" else 1):
            try:
                return self._try(exchange, request, connect_seconds)
            except requests.exceptions.ConnectTimeout:
                raise
            except requests.exceptions.ConnectionError as error:
                failure = error
                scheduler().sleep(0.1 * 2**number)
        raise failure

    def _try(self, exchange: BoundedExchange, request: Request, connect_seconds: float) -> Reply:
        running = scheduler()
        assert running.current is not None
        machine, port = running.current.machine, self.ports.get(request.broker)
        self._travel()
        if machine in self.cut:
            running.sleep(min(connect_seconds, exchange.remaining_seconds()))
            raise requests.exceptions.ConnectTimeout("timed out")
        if port is None or not port.open:
            raise requests.exceptions.ConnectionError("Connection refused")
        self.requests += 1
        exchange.sent = True
        self.on_request(machine, request)
        under_way = _Exchange()
        name = f"{request.method} {request.path}"
        running.spawn(lambda: self._serve(port, request, under_way), name, "cluster")
        if self._comes_twice(request):
            running.spawn(lambda: self._repeat(port, request), f"{name} again", "cluster")
        if not under_way.answered.wait(exchange.remaining_seconds()) or machine in self.cut:
            running.sleep(exchange.ends_at - running.up())
            raise exchange.late() from TimeoutError()
        reply = under_way.reply
        assert reply is not None
        if reply.hangs_up:
            raise requests.exceptions.ConnectionError("Remote end closed connection without response")
        if reply.promised is not None:
            raise ProtocolError("the connection broke: an incomplete read")
        if reply.status == REDIRECT:
            self.on_redirect(request)
        return reply

    def _comes_twice(self, request: Request) -> bool:
        twice = bool(self.twice if request.method == "GET" else self.changes_twice)
        if twice and request.method == "GET":
            self.twice -= 1
        elif twice:
            self.changes_twice -= 1
        return twice

    def _serve(self, port: VirtualPort, request: Request, under_way: _Exchange) -> None:
        """The broker's side of it."""
        if port.hung:
            return
        self._travel()
        reply = port.answers(request)
        scheduler().sleep(reply.delay_seconds)
        if reply.status == REDIRECT:
            scheduler().sleep(self.redirect_seconds)
        elif self.late and request.method != "GET":
            self.late -= 1
            scheduler().sleep(LATE_SECONDS)
        self._travel()
        if port.hung or reply.silent:
            return
        if not port.open:
            reply = Spoilt(hangs_up=True)
        under_way.reply = reply
        under_way.answered.set()

    def _repeat(self, port: VirtualPort, request: Request) -> None:
        """The same request comes once more, and nobody waits for its answer."""
        scheduler().sleep(self._random.uniform(0.0, 10.0))
        self._serve(port, request, _Exchange())

    def _travel(self) -> None:
        scheduler().sleep(self._random.uniform(FASTEST_SECONDS, SLOWEST_SECONDS))


class _Body(io.BytesIO):
    def read(self, size: int | None = -1, decode_content: bool = False) -> bytes:  # noqa: FBT001, FBT002, RUF100 - urllib3's signature
        del decode_content
        return super().read(size)


class VirtualResponse:
    """An answer, as far as ``lbd.pulsar.http`` reads it."""

    def __init__(self, reply: Reply) -> None:
        self.status_code = reply.status
        headers = {
            "Content-Type": reply.content_type,
            "Location": reply.location,
            "Date": None if reply.date is None else formatdate(reply.date, usegmt=True),
        }
        self.headers: Mapping[str, str] = {name: value for name, value in headers.items() if value is not None}
        self.raw = _Body(reply.body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


def sessions(network: Network) -> type:
    """The class that takes the place of ``lbd.pulsar.http.Sessions``."""

    class VirtualSessions:
        def __init__(self, settings: PulsarSettings) -> None:
            self._settings = settings

        def send(
            self,
            exchange: BoundedExchange,
            method: str,
            url: str,
            params: Mapping[str, str] | None,
            headers: Mapping[str, str],
            content: bytes | None,
        ) -> VirtualResponse:
            exchange.remaining_seconds()
            parts = urlsplit(url)
            query = {**dict(parse_qsl(parts.query)), **(params or {})}
            request = Request(
                parts.netloc, method, unquote(parts.path), query, content or b"", headers.get("Authorization")
            )
            return VirtualResponse(network.ask(exchange, request, self._settings.connect_timeout_seconds))

        def close(self) -> None:
            """Nothing is open."""

    return VirtualSessions
