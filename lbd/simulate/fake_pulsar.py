"""A simulated cluster behind Pulsar's admin REST API on loopback, one port per broker, opened while the broker lives.

The model (``cluster.py``) has the traffic and reports of brokers; ``fake_cluster.py`` has owners and destinations.
:class:`FakeBrokers` answers from any other state, too: that of the tests is set by hand.
Load, samples and sessions follow the cluster's clock, which may run faster than this machine's. Operations that take
milliseconds on real brokers (unloads, lookups, reconnects) take as long here at any speed.
"""

from __future__ import annotations

import errno
import re
import selectors
import socket
import socketserver
import sys
import threading
import time
import zlib
from bisect import bisect_right
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec

from lbd.bundles import range_in_name
from lbd.model import bundle_namespace, bundle_range
from lbd.pulsar.paths import knows_destinations
from lbd.simulate.answers import Reply, Request, crash, ok, page, refused, text
from lbd.simulate.fake_cluster import (
    RATES,
    Book,
    Clients,
    Configuration,
    FakeClock,
    FakePolicies,
    OwnershipChange,
    heartbeats,
)
from lbd.split.plan import (
    ALGORITHMS,
    SPECIFIED,
    inside,
    range_equally_divide,
    specified_positions_divide,
    topic_count_equally_divide,
)
from lbd.threads import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence

    from lbd.model import ProcessCpu
    from lbd.simulate.world import ClusterState, World
    from lbd.split.plan import Topic


_POLL_SECONDS = 0.02


class Door(ThreadingHTTPServer):
    """A broker's web port, which is held from the beginning, and listened at while the broker is up."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, answers: Callable[[Request], Reply]) -> None:
        super().__init__((host, port), BrokerExchange, bind_and_activate=False)
        self.answers = answers
        self.open = False
        self._connections: set[socket.socket] = set()
        self._connections_changed = threading.Condition()
        try:
            self.server_bind()
        except OSError:
            self.server_close()
            raise
        self.id = f"{host}:{self.server_address[1]}"

    def server_bind(self) -> None:
        """Without the reverse look-up that HTTPServer makes."""
        socketserver.TCPServer.server_bind(self)

    def shut(self) -> None:
        """Close the port as when the process ends: it listens no more, and its connections break."""
        self.open = False
        self.socket.close()
        with self._connections_changed:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def empty(self, seconds: float) -> bool:
        """Whether all its connections end within ``seconds``."""
        with self._connections_changed:
            return self._connections_changed.wait_for(lambda: not self._connections, seconds)

    def reopen(self) -> None:
        """Listen, for the first time or again at the same port."""
        if self.socket.fileno() < 0:
            self.socket = socket.socket(self.address_family, self.socket_type)
            self.server_bind()
        self.socket.settimeout(_POLL_SECONDS)  # a connection that is gone before it is accepted holds nobody up
        self.server_activate()
        self.open = True

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's types
        """Serve a connection in a thread of its own; it is known from now on."""
        with self._connections_changed:
            self._connections.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's types
        """Serve it to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._connections_changed:
                self._connections.discard(request)
                self._connections_changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's types
        """A client that gave up, or a broker that died, is no event; all else is a bug, and reported."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Ports(Protocol):
    """Where brokers are reached: sockets, or a network that only a simulation has."""

    def hold(self, number: int, port: int, answers: Callable[[Request], Reply]) -> Sequence[Port]: ...
    def start(self) -> None: ...
    def open(self, door: Any) -> None: ...  # noqa: ANN401 - each takes the ports that it holds
    def shut(self, door: Any) -> None: ...  # noqa: ANN401 - see open
    def stop(self) -> None: ...


class Port(Protocol):
    """A broker's web port; ``id`` is ``host:port``."""

    id: str
    open: bool

    def shut(self) -> None: ...
    def empty(self, seconds: float) -> bool: ...


class Doors:
    """Accepts for all brokers in one thread; each connection has a thread of its own."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._done = threading.Event()
        self._claims: list[socket.socket] = []
        self._thread: threading.Thread | None = None

    def hold(self, number: int, port: int, answers: Callable[[Request], Reply]) -> list[Door]:
        """A port for each broker, each at its own address where the system has them: isolation policies go by hosts."""
        with ExitStack() as undone:
            if port:
                # Two sockets may be bound to a port on which none listens yet; of a name there is one in the system.
                claim = undone.enter_context(socket.socket(socket.AF_UNIX))
                claim.bind(f"\0lbd-simulated-{port}")
                self._claims.append(claim)
            doors = []
            for index in range(number):
                doors.append(_door(f"127.0.{index // 250}.{index % 250 + 1}", port, answers))
                undone.callback(doors[-1].server_close)
            undone.pop_all()
        return doors

    def start(self) -> None:
        """Begin to accept."""
        self._thread = begin(self._accept, "fake-pulsar")

    def open(self, door: Door) -> None:
        """A broker is up."""
        door.reopen()
        self._selector.register(door.socket, selectors.EVENT_READ, door)

    def shut(self, door: Door) -> None:
        """A broker is gone."""
        self._selector.unregister(door.socket)
        door.shut()

    def stop(self) -> None:
        """Accept no more."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        self._selector.close()
        for claim in self._claims:
            claim.close()

    def _accept(self) -> None:
        while not self._done.is_set():
            for key, _ in self._selector.select(_POLL_SECONDS):
                door: Door = key.data
                with suppress(OSError):
                    door.process_request(*door.get_request())


class BrokerExchange(BaseHTTPRequestHandler):
    """Requests of one connection, and their answers."""

    server: Door
    _date: float | None = None
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        """Whoever wants to know what was asked keeps it."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query, length = dict(parse_qsl(url.query)), int(self.headers.get("Content-Length") or 0)
        body, authorization = self.rfile.read(length), self.headers.get("Authorization")
        request = Request(self.server.id, self.command, unquote(url.path), query, body, authorization)
        self.send(self.server.answers(request))

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the parent's names

    def send(self, reply: Reply) -> None:
        """Send all of an answer."""
        if reply.silent:
            self.rfile.read(1)
            self.close_connection = True
            return
        self._date = reply.date
        self.send_response(reply.status)
        if reply.location is not None:
            self.send_header("Location", reply.location)
        if reply.status != 204:
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)
        self.wfile.flush()

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The ``Date`` header, by the broker's clock."""
        return super().date_time_string(self._date if timestamp is None else timestamp)


# --- one bundle: its owner, its unload, and the lookup that places it
# Codes and redirects as on 4.0.8 under the modular load manager.

NO_NAMESPACE = refused(404, "Namespace does not exist")
NON_PERSISTENT = "enableNonPersistentTopics"


class Closing(Exception):  # noqa: N818 - no error, an unload under way
    """The owner closes the bundle's topics, which takes a moment, and lets go of it then."""

    def __init__(self, bundle: str) -> None:
        super().__init__(bundle)
        self.bundle = bundle


class BrokerState(Protocol):
    """State that the answers are made of: :class:`~lbd.simulate.fake_cluster.Book`, or what a test sets."""

    leader: str | None
    affinity: dict[str, str]
    closing: set[str]
    barred: dict[tuple[str, str], frozenset[str]]
    policies: FakePolicies

    @property
    def bundles(self) -> Collection[str]: ...
    @property
    def ranges(self) -> Mapping[str, tuple[list[int], list[str]]]: ...
    @property
    def listed(self) -> Sequence[str]: ...

    def advance(self, seconds: float) -> None: ...
    def up(self, broker: str) -> bool: ...
    def die(self, broker: str) -> None: ...
    def version_of(self, broker: str) -> str: ...
    def report(self, broker: str, cluster: str, begun_at: float) -> dict[str, Any]: ...
    def process(self, broker: str) -> ProcessCpu: ...
    def topic_rates(self, broker: str) -> Mapping[str, Mapping[str, Sequence[float]]]: ...
    def owner(self, bundle: str) -> str | None: ...
    def owned(self, broker: str) -> list[str]: ...
    def topics(self, bundle: str) -> tuple[Topic, ...]: ...
    def clients(self, broker: str, bundle: str) -> float: ...
    def note(self, bundle: str, destination: str) -> None: ...
    def place(self, bundle: str) -> str: ...
    def acquire(self, bundle: str, broker: str) -> None: ...
    def transfer(self, bundle: str, destination: str | None) -> None: ...
    def closed(self, bundle: str) -> bool: ...
    def close_later(self, bundle: str) -> None: ...
    def split(self, bundle: str, positions: Sequence[int]) -> tuple[str, ...]: ...


class FakeBundles:
    """The bundles of one cluster. Not thread-safe."""

    def __init__(self, book: BrokerState, configuration: Configuration) -> None:
        self._book, self._configuration = book, configuration

    @property
    def _ranges(self) -> Mapping[str, tuple[list[int], list[str]]]:
        return self._book.ranges

    def topics(self, _: Request, tenant: str, namespace: str) -> Reply:
        """All topics of a namespace."""
        if f"{tenant}/{namespace}" not in self._ranges:
            return NO_NAMESPACE
        bundles = self._ranges[f"{tenant}/{namespace}"][1]
        return ok([topic.name for bundle in bundles for topic in self._book.topics(bundle)])

    def boundaries(self, _: Request, tenant: str, namespace: str) -> Reply:
        """How a namespace is cut."""
        if f"{tenant}/{namespace}" not in self._ranges:
            return NO_NAMESPACE
        starts, bundles = self._ranges[f"{tenant}/{namespace}"]
        last = bundles[-1].rpartition("_")[2]
        return ok({"boundaries": [*(f"0x{start:08x}" for start in starts), last], "numBundles": len(bundles)})

    def positions(self, request: Request, tenant: str, namespace: str, span: str) -> Reply:
        """200 at the owner, 307 to it elsewhere, 412 when there is none."""
        bundle = f"{tenant}/{namespace}/{span}"
        if f"{tenant}/{namespace}" not in self._ranges:
            return NO_NAMESPACE
        wrong = self.unknown(bundle)
        if wrong is not None:
            return wrong
        owner = self._book.owner(bundle)
        if owner is None:
            return refused(412, f"Failed to find ownership for ServiceUnit:{bundle}")
        if owner != request.broker:
            return self.to_owner(owner, request)
        positions = {topic.name: topic.position for topic in self._book.topics(bundle)}
        return ok({"namespace": bundle_namespace(bundle), "bundle": span, "topicHashPositions": positions})

    def unload(self, request: Request, tenant: str, namespace: str, span: str) -> Reply:
        """The leader notes a destination before any other check; the owner closes the bundle.

        Raises :class:`Closing` when the bundle is to be closed: after that it is free, and the answer is 204.
        """
        bundle = f"{tenant}/{namespace}/{span}"
        if self._configuration.extensible(request.broker):
            return self.unknown(bundle) or self._hand_over(request, bundle, request.query.get("destinationBroker"))
        refused_or_sent_on = self._noted(request, bundle) or self.unknown(bundle)
        if refused_or_sent_on is not None:
            return refused_or_sent_on
        owner = self._book.owner(bundle)
        if owner is None:
            return Reply(204)
        return self._close(bundle) if owner == request.broker else self.to_owner(owner, request)

    def _hand_over(self, request: Request, bundle: str, destination: str | None) -> Reply:
        """The extensible manager's unload: the owner gives the bundle to the destination, and to no client."""
        owner = self._book.owner(bundle)
        if destination is not None and destination not in self._book.listed:
            return refused(409, "Not allowed unload namespace bundle to inactive destination broker")
        if owner is None:
            return Reply(204)
        if owner != request.broker:
            return _elsewhere(owner, request, destinationBroker=destination or "", authoritative="true")
        if owner == destination:
            return refused(500, f"Namespace bundle: {bundle} own by {owner}, cannot be transfer to same broker.")
        self._book.transfer(bundle, destination)
        return Reply(204)

    def to_owner(self, owner: str, request: Request) -> Reply:
        """Redirect to the owner; only the leader's redirect is authoritative."""
        return _elsewhere(owner, request, authoritative=str(request.broker == self._book.leader).lower())

    def _noted(self, request: Request, bundle: str) -> Reply | None:
        """Note a destination. None if the leader has noted it, or if there is none (brokers before 3.0 ignore it)."""
        book, named = self._book, request.query.get("destinationBroker")
        if named is None or not knows_destinations(book.version_of(request.broker)):
            return None
        destination = named.removeprefix("http://").removeprefix("https://")
        if destination not in book.listed:
            return refused(409, "Not allowed unload namespace bundle to inactive destination broker")
        if book.leader is None:
            return refused(412, "Couldn't find leader broker")
        if request.broker != book.leader:
            return _elsewhere(book.leader, request, destinationBroker=destination, authoritative="false")
        book.note(bundle, destination)
        return None

    def _close(self, bundle: str) -> Reply:
        if bundle in self._book.closing:
            return crash(f"Namespace bundle {bundle} is not active")
        self._book.closing.add(bundle)
        raise Closing(bundle)

    def look_up(self, request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Reply:
        """A bundle without an owner is placed by the leader, or taken by the broker of an authoritative request."""
        name = f"{domain}://{tenant}/{namespace}/{topic}"
        bundle = self._bundle_of(request.broker, name)
        if bundle is None:
            return _not_found()
        if domain == "persistent" and not self._may_be_created(request.broker, bundle, name):
            return refused(404, f"Topic not found {name}")
        if bundle in self._book.closing:
            return crash(f"Namespace bundle {bundle} is being unloaded")
        return self._placed(request, bundle, page(503)) or ok(_lookup_json(self._book.owner(bundle) or request.broker))

    def bundle(self, request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Reply:
        """Which bundle a topic falls into, whether or not there is such a topic."""
        bundle = self._bundle_of(request.broker, f"{domain}://{tenant}/{namespace}/{topic}")
        return _not_found() if bundle is None else text(bundle_range(bundle))

    def schema(self, request: Request, tenant: str, namespace: str, topic: str) -> Reply:
        """No topic here has one. The bundle is placed first, as by a lookup, and only its owner says so."""
        name = f"persistent://{tenant}/{namespace}/{topic}"
        bundle = self._bundle_of(request.broker, name)
        if bundle is None:
            return _not_found()
        if bundle in self._book.closing:
            return crash(f"Namespace bundle {bundle} is being unloaded")
        placed = self._placed(request, bundle, refused(412, f"Failed to find ownership for topic:{name}"))
        owner = self._book.owner(bundle)
        if placed is not None or owner in {None, request.broker}:
            return placed or refused(404, "Schema not found")
        return self.to_owner(owner or "", request)

    def _bundle_of(self, broker: str, topic: str) -> str | None:
        """The bundle of a topic; a broker keeps in mind that there are non-persistent ones in it."""
        bundle = self.bundle_of(bundle_namespace(topic.partition("://")[2]), topic)
        if bundle is not None and topic.startswith("non-persistent:"):
            book = self._book
            off = {name for name in book.listed if self._configuration.running(name).get(NON_PERSISTENT) == "false"}
            book.barred[broker, bundle] = frozenset(off)
        return bundle

    def _may_be_created(self, broker: str, bundle: str, topic: str) -> bool:
        created = self._configuration.running(broker).get("allowAutoTopicCreation") != "false"
        return created or any(existing.name == topic for existing in self._book.topics(bundle))

    def _placed(self, request: Request, bundle: str, nowhere: Reply) -> Reply | None:
        """None if somebody owns the bundle from now on; ``nowhere`` if no broker may have it."""
        if self._book.owner(bundle) is None:
            chosen = self.chosen(request, bundle, nowhere)
            if isinstance(chosen, Reply):
                return chosen
            self._book.acquire(bundle, chosen)
        return None

    def chosen(self, request: Request, bundle: str, nowhere: Reply) -> str | Reply:
        """The broker of the request if it may take the bundle; else a redirect, or ``nowhere``."""
        if self._configuration.extensible(request.broker):
            return self._book.place(bundle)
        if request.query.get("authoritative") == "true":
            return request.broker
        leader = self._book.leader
        if leader is None:
            return page(503)
        if request.broker != leader:
            return _elsewhere(leader, request, authoritative="false")
        chosen = self._book.place(bundle)
        if not chosen:
            return nowhere
        return chosen if chosen == leader else _elsewhere(chosen, request, authoritative="true")

    def unknown(self, bundle: str) -> Reply | None:
        """Why it is no bundle of this cluster."""
        if bundle in self._book.bundles:
            return None
        if bundle_namespace(bundle) not in self._ranges:
            return _not_found()
        strange = malformed(bundle_range(bundle))
        return crash(strange) if strange else refused(412, self._missing(bundle))

    def _missing(self, bundle: str) -> str:
        """The message for a range that is no bundle; it differs if the range begins where a bundle does."""
        starts, bundles = self._ranges[bundle_namespace(bundle)]
        lower = int(bundle_range(bundle).partition("_")[0], 16)
        if lower not in starts:
            return f"Cannot find bundle {bundle} in the bundles list"
        expected = bundles[starts.index(lower)]
        return f"Invalid upper boundary for bundle {bundle}. Expected upper boundary of {expected}"

    def bundle_of(self, namespace: str, topic: str) -> str | None:
        """The bundle of a topic: CRC32 of its full name, ranges are [lower, upper)."""
        starts, bundles = self._ranges.get(namespace, ([], []))
        index = bisect_right(starts, zlib.crc32(topic.encode())) - 1
        return bundles[index] if index >= 0 else None


def malformed(span: str) -> str:
    """The brokers' error for a text that is no range; empty for a range."""
    ends = span.split("_")
    if len(ends) != 2:
        return "Invalid bundle range"
    strange = next((end.removeprefix("0x") for end in ends if not _is_hex(end)), None)
    return "" if strange is None else f'For input string: "{strange}"'


def _is_hex(end: str) -> bool:
    try:
        int(end, 16)
    except ValueError:
        return False
    return True


def _not_found() -> Reply:
    return refused(404, "Namespace not found")


def _elsewhere(broker: str, request: Request, **query: str) -> Reply:
    return Reply(307, location=f"http://{broker}{request.path}?{urlencode(query)}")


def _lookup_json(broker: str) -> dict[str, str]:
    return {
        "brokerUrl": f"pulsar://{broker}",
        "httpUrl": f"http://{broker}",
        "nativeUrl": f"pulsar://{broker}",
        "brokerUrlSsl": "",
    }


# --- split: codes, messages and redirects as on 4.0.8

_UNSUPPORTED = f"Unsupported namespace bundle split algorithm, supported algorithms are [{', '.join(ALGORITHMS)}]"
_NO_POSITIONS = f"With {SPECIFIED} split algorithm, splitBoundaries must not be empty"
_OPTIONS = [f"org.apache.pulsar.common.naming.{kind}BundleSplitOption" for kind in ("", "FlowOrQpsEquallyDivide")]
_WRONG_OPTION = (
    f"class {_OPTIONS[0]} cannot be cast to class {_OPTIONS[1]} "
    f"({' and '.join(_OPTIONS)} are in unnamed module of loader 'app')"
)
"""Error of ``flow_or_qps_equally_divide`` where another algorithm is the broker's default."""


class FakeSplits:
    """Splits of one cluster's bundles. Not thread-safe."""

    def __init__(self, book: BrokerState, bundles: FakeBundles) -> None:
        self._book, self._bundles = book, bundles

    def split(self, request: Request, tenant: str, namespace: str, span: str) -> Reply:
        """204, also where nothing was cut. The parts stay with the bundle's owner, unless they are to be unloaded."""
        bundle, algorithm = f"{tenant}/{namespace}/{span}", request.query.get("splitAlgorithmName") or ALGORITHMS[0]
        try:
            positions = msgspec.json.decode(request.body or b"[]", type=list[int])
        except msgspec.MsgspecError as error:
            return Reply(400, f"Cannot deserialize value: {error}".encode(), content_type="text/plain")
        if algorithm not in ALGORITHMS:
            return refused(412, _UNSUPPORTED)
        if algorithm == SPECIFIED and not positions:
            return refused(412, _NO_POSITIONS)
        return (
            self._no_bundle(bundle)
            or self._elsewhere(request, bundle)
            or self._cut(request, bundle, algorithm, positions)
        )

    def _no_bundle(self, bundle: str) -> Reply | None:
        """As of an unload, but that ranges which are none are refused in words."""
        wrong, span = self._bundles.unknown(bundle), bundle_range(bundle)
        if wrong is None or wrong.status != 500:
            return wrong
        more = f": {span}" if span.count("_") != 1 else " under radix 16"
        return refused(412, malformed(span) + more)

    def _elsewhere(self, request: Request, bundle: str) -> Reply | None:
        """Redirects keep the whole query; a bundle without an owner is placed first, as by a lookup."""
        owner = self._book.owner(bundle)
        owner_or_reply = self._bundles.chosen(request, bundle, page(503)) if owner is None else owner
        if isinstance(owner_or_reply, Reply):
            return _keeping(request, owner_or_reply)
        if owner_or_reply != request.broker:
            return _keeping(request, self._bundles.to_owner(owner_or_reply, request))
        self._book.acquire(bundle, owner_or_reply)
        return None

    def _cut(self, request: Request, bundle: str, algorithm: str, requested: Sequence[int]) -> Reply:
        if bundle in self._book.closing:
            return crash(f"Namespace bundle {bundle} is being unloaded")
        topics = self._book.topics(bundle)
        if algorithm == "flow_or_qps_equally_divide":
            return crash(_WRONG_OPTION)
        if algorithm == SPECIFIED:
            positions = specified_positions_divide(*range_in_name(bundle), topics, requested)
        elif algorithm == "topic_count_equally_divide":
            positions = topic_count_equally_divide(topics)
        else:
            positions = range_equally_divide(*range_in_name(bundle))
        cuts = inside(bundle, set(positions or ()))
        if cuts:
            self._made(self._book.split(bundle, cuts), unload=request.query.get("unload") == "true")
        return Reply(204)

    def halve(self, bundle: str) -> tuple[str, ...]:
        """Split a bundle in two and return its parts; an owner that was closing it has nothing left to close."""
        self._book.closing.discard(bundle)
        parts = self._book.split(bundle, range_equally_divide(*range_in_name(bundle)))
        self._made(parts, unload=False)
        return parts

    def _made(self, parts: Sequence[str], *, unload: bool) -> None:
        for part in parts if unload else ():
            self._book.close_later(part)


def _keeping(request: Request, reply: Reply) -> Reply:
    own = {key: value for key, value in request.query.items() if key != "authoritative"}
    return replace(reply, location=f"{reply.location}&{urlencode(own)}") if own and reply.location else reply


def topic_stats(book: BrokerState, broker: str) -> dict[str, Any]:
    """Topics of each bundle that the broker has counted, and of other numbers than rates none."""
    stats = dict[str, Any]()
    for bundle, topics in book.topic_rates(broker).items():
        each = {name: {**dict(zip(RATES, rates, strict=True)), "producerCount": 1} for name, rates in topics.items()}
        stats.setdefault(bundle_namespace(bundle), {})[bundle_range(bundle)] = {"persistent": each}
    return stats


# --- responses to each request of the admin API that lbd makes, as brokers of 4.0.8 give them
# Paths and codes were read off real brokers; ``tests/e2e/test_agreement.py`` sends both the same requests.

if TYPE_CHECKING:
    Handler = Callable[..., Reply]


class FakeAdminApi:
    """Answers for all brokers of one cluster. Not thread-safe. ``begun_at`` is when the run began, epoch seconds."""

    def __init__(self, book: BrokerState, configuration: Configuration, begun_at: float) -> None:
        self._book, self._begun_at = book, begun_at
        self._configuration, self._policies = configuration, book.policies
        self._bundles = bundles = FakeBundles(book, configuration)
        self._splits = FakeSplits(book, bundles)
        self._routes = [(method, _pattern(path), handler) for method, path, handler in self._table(bundles)]
        self._matches = lru_cache(REMEMBERED_PATHS)(self._matching)

    def __call__(self, request: Request) -> Reply:
        """The usual answer. Raises :class:`~lbd.simulate.fake_pulsar.Closing` for an unload that has begun."""
        matches = self._matches(request.path)
        for method, names, handler in matches:
            if method == request.method:
                return handler(request, *names)
        return page(405 if matches else 404)

    def _matching(self, path: str) -> list[tuple[str, tuple[str, ...], Handler]]:
        """The routes of a path, each with the names that stand in it."""
        routes = ((method, matches(path), handler) for method, matches, handler in self._routes)
        return [(method, match.groups(), handler) for method, match, handler in routes if match]

    def split(self, bundle: str) -> tuple[str, ...]:
        """The halves of a bundle, which the brokers have cut by themselves."""
        return self._splits.halve(bundle)

    def _table(self, bundles: FakeBundles) -> Iterable[tuple[str, str, Handler]]:
        configuration, bundle = "/admin/v2/brokers/configuration", "/admin/v2/namespaces/{}/{}/{}"
        topic = "/admin/v2/persistent/{}/{}/{}"
        yield "GET", f"{configuration}/runtime", self._running
        yield "GET", f"{configuration}/values", lambda _: ok(self._configuration.overrides)
        yield "POST", f"{configuration}/{{}}/{{}}", self._override
        yield "DELETE", f"{configuration}/{{}}", self._delete
        yield "GET", "/admin/v2/brokers/ready", lambda _: text("ok")
        yield "GET", "/admin/v2/brokers/health", lambda _: text("ok")
        yield "GET", "/admin/v2/brokers/version", lambda request: text(self._book.version_of(request.broker))
        yield "GET", "/admin/v2/brokers/leaderBroker", self._leader
        yield "GET", "/admin/v2/brokers", self._listed
        yield "GET", "/admin/v2/brokers/{}", self._listed
        yield "GET", "/admin/v2/brokers/{}/{}/ownedNamespaces", self._owned
        yield "GET", "/admin/v2/broker-stats/load-report", self._load_report
        yield "GET", "/admin/v2/broker-stats/mbeans", self._mbeans
        yield "GET", "/admin/v2/broker-stats/topics", self._topics
        yield "GET", "/admin/v2/clusters", lambda _: ok([self._configuration.cluster])
        yield "GET", "/admin/v2/clusters/{}/failureDomains", self._domains
        yield "GET", "/admin/v2/clusters/{}/namespaceIsolationPolicies", self._isolation
        yield "GET", "/admin/v2/namespaces/{}/antiAffinity/{}", self._members
        yield "GET", "/admin/v2/namespaces/{}/{}/antiAffinity", self._group
        yield "GET", "/admin/v2/namespaces/{}/{}/properties", self._properties
        yield "GET", "/admin/v2/namespaces/{}/{}/bundles", bundles.boundaries
        yield "GET", "/admin/v2/namespaces/{}/{}/topics", bundles.topics
        yield "GET", f"{bundle}/topicHashPositions", bundles.positions
        yield "PUT", f"{bundle}/split", self._splits.split
        yield "PUT", f"{bundle}/unload", bundles.unload
        yield "GET", "/lookup/v2/topic/{}/{}/{}/{}/bundle", bundles.bundle
        yield "GET", "/lookup/v2/topic/{}/{}/{}/{}", bundles.look_up
        yield "GET", "/admin/v2/schemas/{}/{}/{}/schema", bundles.schema
        yield "PUT", topic, lambda *_: Reply(204)
        yield "GET", f"{topic}/stats", self._topic
        yield "PUT", f"{topic}/subscription/{{}}", lambda *_: Reply(204)
        yield "POST", f"{topic}/subscription/{{}}/expireMessages/{{}}", lambda *_: Reply(204)

    # -- brokers

    def _listed(self, _: Request, cluster: str = "") -> Reply:
        """In no order; the name of the cluster is not looked at."""
        del cluster
        return ok(self._book.listed[::-1])

    def _leader(self, _: Request) -> Reply:
        leader = self._book.leader
        if leader is None:
            return refused(404, "Couldn't find leader broker")
        return ok({"serviceUrl": f"http://{leader}", "brokerId": leader})

    def _owned(self, request: Request, cluster: str, broker: str) -> Reply:
        del cluster
        if broker not in self._book.listed:
            return refused(404, f"Broker id '{broker}' not found in available brokers.")
        if broker != request.broker:
            return Reply(307, location=f"http://{broker}{request.path}")
        shared = {"broker_assignment": "shared", "is_controlled": False}
        mine = [*heartbeats(self._configuration.cluster, broker), *self._book.owned(broker)]
        return ok({bundle: {**shared, "is_active": bundle not in self._book.closing} for bundle in mine})

    def _load_report(self, request: Request) -> Reply:
        """A broker's load report; under the extensible manager there is no such report."""
        if self._configuration.extensible(request.broker):
            return refused(500, "java.lang.UnsupportedOperationException")
        return ok(self._book.report(request.broker, self._configuration.cluster, self._begun_at))

    def _mbeans(self, request: Request) -> Reply:
        """Two of the beans of a broker's JVM, with the metrics of its CPU time."""
        spent, up = self._book.process(request.broker)
        beans = {
            "Runtime": {"SpecVersion": "17", "Uptime": int(up * 1e3)},
            "OperatingSystem": {"ProcessCpuTime": int(spent * 1e9), "AvailableProcessors": 1},
        }
        return ok(
            [{"metrics": metrics, "dimensions": {"MBean": f"java.lang:type={name}"}} for name, metrics in beans.items()]
        )

    def _topic(self, request: Request, tenant: str, namespace: str, topic: str) -> Reply:
        """The clients of a topic, which the owner of its bundle loads for this answer."""
        bundle = self._bundles.bundle_of(f"{tenant}/{namespace}", f"persistent://{tenant}/{namespace}/{topic}")
        if bundle is None or self._book.owner(bundle) != request.broker:
            return ok({"publishers": []})
        since = self._book.clients(request.broker, bundle)
        client = {"connectedSince": datetime.fromtimestamp(self._begun_at + since, UTC).isoformat()}
        return ok({"publishers": [client], "subscriptions": {"all": {"consumers": [client]}}})

    def _topics(self, request: Request) -> Reply:
        return ok(topic_stats(self._book, request.broker))

    def _running(self, request: Request) -> Reply:
        return ok(self._configuration.running(request.broker))

    def _override(self, _: Request, key: str, value: str) -> Reply:
        """Whatever the value is, it is stored and answered 200."""
        if not self._configuration.dynamic(key):
            return refused(412, "Can't update non-dynamic configuration")
        self._configuration.overrides[key] = value
        return Reply(200)

    def _delete(self, _: Request, key: str) -> Reply:
        if not self._configuration.dynamic(key):
            return refused(412, "Can't delete non-dynamic configuration")
        self._configuration.delete(key)
        return Reply(200)

    # -- policies

    def _isolation(self, _: Request, cluster: str) -> Reply:
        if not self._policies.isolation:
            return refused(404, f"NamespaceIsolationPolicies for cluster {cluster} does not exist")
        return ok(self._policies.isolation)

    def _domains(self, _: Request, cluster: str) -> Reply:
        del cluster
        return ok({name: {"brokers": brokers} for name, brokers in self._policies.domains.items()})

    def _group(self, _: Request, tenant: str, namespace: str) -> Reply:
        group = self._policies.groups.get(f"{tenant}/{namespace}")
        return Reply(204) if group is None else Reply(200, group.encode())

    def _properties(self, _: Request, tenant: str, namespace: str) -> Reply:
        return ok(self._policies.properties.get(f"{tenant}/{namespace}", {}))

    def _members(self, request: Request, cluster: str, group: str) -> Reply:
        del cluster
        own, groups = f"{request.query.get('tenant', '')}/", self._policies.groups
        return ok([name for name, its_group in groups.items() if its_group.lower() == group and name.startswith(own)])


def _pattern(path: str) -> Callable[[str], re.Match[str] | None]:
    """A matcher of paths in which ``{}`` stands for one part."""
    return re.compile("([^/]+)".join(map(re.escape, path.split("{}")))).fullmatch


# --- cluster

UNLOAD_SECONDS = 0.024
"""How long an owner closes a bundle with one topic before it answers 204 (4.0.8, p50)."""

REMEMBERED_REQUESTS, REMEMBERED_PATHS = 10_000, 1_000
CLOSED_WITHIN_SECONDS = 1.0


class FakeBrokers:
    """Brokers' web ports on loopback, and what is answered there, from ``with`` to its end. Thread-safe.

    ``on_request`` hears of each request as it comes, ``on_reply`` of its answer before it is sent, both from the thread
    that answers. ``authorization``: the header that every request must have; None: any.
    ``ports`` are sockets unless others are given. Raises :class:`OSError` when no port is to be had.
    """

    _book: BrokerState
    _answers: FakeAdminApi
    begun_at = 0.0

    def __init__(self, number: int, port: int = 0, ports: Ports | None = None) -> None:
        self.requests: MutableSequence[Request] = deque(maxlen=REMEMBERED_REQUESTS)
        self.on_request: Callable[[Request], None] = lambda _: None
        self.on_reply: Callable[[Request, Reply], None] = lambda *_: None
        self.authorization: str | None = None
        self.unload_seconds = UNLOAD_SECONDS
        self.lock, self._stopped = threading.RLock(), False
        self._doors: Ports = ports or Doors()
        self._ports = self._doors.hold(number, port, self.answer)

    def __enter__(self) -> Self:
        self._doors.start()
        with self.lock:
            self._open_and_shut()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close every port and connection: neither an answer under way nor who looks at it later opens one again."""
        with self.lock:
            self._stopped = True
        self._doors.stop()
        for door in self._ports:
            door.shut()
        for door in self._ports:
            door.empty(CLOSED_WITHIN_SECONDS)

    def now(self) -> float:
        """The time of the cluster, epoch seconds."""
        return time.time()

    def kill(self, broker: str) -> None:
        """Kill -9: it does not answer, and is listed, and leads if it led, until its session ends."""
        with self._lived():
            self._book.die(broker)

    # -- how it answers

    @contextmanager
    def _lived(self) -> Iterator[None]:
        """Hold the lock over a cluster that has caught up with its clock; what starts or ends in it is seen at once."""
        with self.lock:
            self._book.advance(self.now() - self.begun_at)
            self._open_and_shut()
            try:
                yield
            finally:
                self._open_and_shut()

    def _open_and_shut(self) -> None:
        for door in () if self._stopped else self._ports:
            up = self._book.up(door.id)
            if up and not door.open:
                self._doors.open(door)
            elif door.open and not up:
                self._doors.shut(door)

    def answer(self, request: Request) -> Reply:
        """The broker's answer, and the hooks around it."""
        self.requests.append(request)
        self.on_request(request)
        reply = self.reply(request)
        self.on_reply(request, reply)
        return reply

    def reply(self, request: Request) -> Reply:
        """The broker's answer, with its own idea of the time."""
        return replace(self._usual(request), date=self.now())

    def _usual(self, request: Request) -> Reply:
        if self.authorization not in {None, request.authorization}:
            return page(401) if request.path.endswith("/ready") else refused(401, "Unauthorized")
        try:
            with self._lived():
                return self._answers(request)
        except Closing as unload:
            return self.unloaded(request, unload.bundle)

    def unloaded(self, request: Request, bundle: str) -> Reply:
        """The answer to an unload, once its owner has closed the bundle."""
        del request
        time.sleep(self.unload_seconds)
        return Reply(204) if self._close(bundle) else Reply(silent=True)

    def _close(self, bundle: str) -> bool:
        with self._lived():
            return self._book.closed(bundle)


class FakePulsar(FakeBrokers):
    """A simulated cluster that answers over HTTP.

    ``state`` is of ``world``, at its beginning. The brokers get addresses on loopback, ``names`` says which of
    ``world.brokers`` each one is. ``speed`` is how many seconds pass in one of this machine, ``begun_at`` the first of
    them (epoch seconds; None: now), ``clients`` how many each bundle has, ``runtime`` what broker.conf says otherwise
    than the default.
    """

    book = Book

    def __init__(
        self,
        world: World,
        state: ClusterState,
        *,
        speed: float = 1.0,
        begun_at: float | None = None,
        clients: int = 1,
        cluster: str = "simulated",
        version: str = "4.0.8",
        runtime: Mapping[str, str] | None = None,
        port: int = 0,
        ports: Ports | None = None,
    ) -> None:
        self.clock = FakeClock(speed, begun_at)
        super().__init__(len(world.brokers), port, ports)
        self.policies = FakePolicies()
        self.begun_at = self.clock.now() - state.seconds
        self.names = dict(zip((door.id for door in self._ports), world.brokers, strict=True))
        self._book: Book = self.book(world, state, tuple(self.names), version, self.policies)
        Clients(self._book, clients, lambda: self.clock.speed)
        self.configuration = Configuration(cluster, self._book.version_of, runtime or {})
        self._answers = FakeAdminApi(self._book, self.configuration, self.begun_at)

    # -- what it is

    @property
    def brokers(self) -> tuple[str, ...]:
        """Ids of all brokers, also of those that are not there (yet): ``host:port``."""
        return tuple(self.names)

    @property
    def admin_urls(self) -> tuple[str, ...]:
        """Web addresses of the brokers that answer."""
        with self._lived():
            return tuple(f"http://{broker.id}" for broker in self._book.brokers.values() if broker.up)

    @property
    def speed(self) -> float:
        """Seconds of the cluster in one of this machine."""
        return self.clock.speed

    def now(self) -> float:
        """The time of the cluster, epoch seconds."""
        return self.clock.now()

    def model(self) -> tuple[World, ClusterState]:
        """The cluster as it is now; the last of its brokers stands for nobody."""
        with self._lived():
            return self._book.world, self._book.state

    def owners(self) -> dict[str, str | None]:
        """The owner of each bundle; None: nobody."""
        with self._lived():
            return {bundle: self._book.owner(bundle) for bundle in self._book.bundles}

    def history(self) -> tuple[OwnershipChange, ...]:
        """Each change of an owner, in order; seconds are those of the run, which began at ``begun_at``."""
        with self._lived():
            return tuple(self._book.history)

    @property
    def listed(self) -> frozenset[str]:
        """Brokers whose sessions live."""
        with self._lived():
            return frozenset(self._book.listed)

    @property
    def leader(self) -> str | None:
        """The broker that leads, or is believed to."""
        with self._lived():
            return self._book.leader

    @property
    def affinity(self) -> dict[str, str]:
        """Destinations that the leader has noted, by bundle or by range."""
        with self._lived():
            return dict(self._book.affinity)

    # -- what is done to it

    def forward(self, seconds: float) -> None:
        """Let ``seconds`` pass at once."""
        self.clock.forward(seconds)
        with self._lived():
            pass

    def leave(self, broker: str) -> None:
        """An orderly stop."""
        with self._lived():
            self._book.leave(broker)

    def start(self, broker: str) -> None:
        """Start one that is not there."""
        with self._lived():
            self._book.start(broker)

    def lead(self, broker: str | None) -> None:
        """Another leader, or none."""
        with self._lived():
            self._book.lead(broker)

    def scale(self, factors: Mapping[str, float]) -> None:
        """Multiply the traffic of bundles by a factor each."""
        with self._lived():
            self._book.scale(factors)

    def begin_days(self, day_seconds: float, peak: float) -> None:
        """From now on each day other bundles are busy: all that one broker owns when its day begins."""
        with self._lived():
            self._book.begin_day(day_seconds, peak)

    def split(self, bundle: str) -> tuple[str, ...]:
        """Cut a bundle in two, as the brokers do by themselves. Returns its parts."""
        with self._lived():
            return self._answers.split(bundle)


def _door(host: str, port: int, answers: Callable[[Request], Reply]) -> Door:
    try:
        return Door(host, port, answers)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        return Door("127.0.0.1", 0, answers)
