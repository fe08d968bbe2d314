"""A small Pulsar in this process: the admin REST API of a few brokers over real HTTP, with one shared cluster state.

What it answers was read off real brokers (4.0.8, modular load manager): redirects of an unload to leader and owner, the
leader's affinity of a bundle to its destination, and who consumes it. Faults are switched on by each test.
"""

from __future__ import annotations

import json
import socketserver
import threading
import time
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from lbd.simulate.fake_pulsar import http

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CLUSTER = "c"
DYNAMIC = {"loadBalancerSheddingEnabled", "loadBalancerAutoBundleSplitEnabled"}
MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
SIMPLE = "org.apache.pulsar.broker.loadbalance.impl.SimpleLoadManagerImpl"
BALANCING = {
    "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder",
    "loadBalancerLoadPlacementStrategy": "org.apache.pulsar.broker.loadbalance.impl.LeastLongTermMessageRate",
    "loadBalancerDistributeBundlesEvenlyEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerHostUsageCheckIntervalMinutes": "1",
    "statsUpdateFrequencyInSecs": "60",
    "namespaceBundleUnloadingTimeoutMs": "60000",
}
"""Settings of a broker beside those that decide whether it sheds."""
HTML = b"<html>\n<head>\n<title>Error 404 Not Found</title>\n</head>\n<body><h2>HTTP ERROR 404 Not Found</h2></body>"


@dataclass(frozen=True)
class Reply(http.Reply):
    """One HTTP answer, that may come late."""

    delay_seconds: float = 0.0


def ok(found: object) -> Reply:
    """200 with JSON."""
    return Reply(200, json.dumps(found).encode())


def refused(status: int, reason: str) -> Reply:
    """An error as Pulsar tells it."""
    return Reply(status, json.dumps({"reason": reason}).encode())


HTML_PAGE = Reply(200, HTML, content_type="text/html")
HALF_A_JSON = Reply(200, b'{"cpu": {"usage": 1', promised=4096)
SILENCE = Reply(silent=True)


@dataclass(frozen=True)
class Request:
    """What a broker was asked."""

    broker: str
    method: str
    path: str
    query: Mapping[str, str]
    authorization: str | None
    body: bytes = b""


@dataclass
class Rule:
    """A fault: the reply instead of the usual one, where method, path and broker fit, so many times.

    ``after_acting``: the broker does what was asked, and then gives this reply instead of its own; redirects stay.
    ``then`` is what happens to the cluster at that very moment.
    """

    part: str
    reply: Reply
    method: str | None = None
    broker: str | None = None
    times: int | None = None
    after_acting: bool = False
    then: Callable[[], object] = lambda: None

    def fits(self, asked: Request) -> bool:
        """Whether this fault is for this request, and not used up."""
        return (
            self.part in asked.path
            and self.times != 0
            and self.method in {None, asked.method}
            and self.broker in {None, asked.broker}
        )


@dataclass
class FakeBroker:
    """One broker: its server, its load, and how it is."""

    id: str
    server: ThreadingHTTPServer
    cpu: float = 10.0
    started_at: float = 1_700_000_000.0
    version: str = "4.0.8"
    ready: bool = True
    alive: bool = True
    runtime: dict[str, str] = field(default_factory=dict)
    stuck: dict[str, str] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    clock_ahead_seconds: float = 0.0

    @property
    def base(self) -> str:
        """Its web address."""
        return f"http://{self.id}"


@dataclass
class FakePulsar:
    """A cluster: brokers, who leads, who owns which bundle, and the leader's affinities."""

    brokers: list[FakeBroker] = field(default_factory=list)
    leader: str | None = None
    owners: dict[str, str | None] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    affinity: dict[str, str] = field(default_factory=dict)
    steals: dict[str, list[str]] = field(default_factory=dict)
    isolation: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    domains: dict[str, list[str]] = field(default_factory=dict)
    dynamic: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    authorization: str | None = None
    rules: list[Rule] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def ids(self) -> list[str]:
        """Active brokers."""
        return [broker.id for broker in self.brokers if broker.id not in self.gone]

    @property
    def urls(self) -> list[str]:
        """Their web addresses."""
        return [f"http://{broker}" for broker in self.ids]

    def broker(self, identity: str) -> FakeBroker:
        """The broker of this id."""
        return next(broker for broker in self.brokers if broker.id == identity)

    def own(self, owner: str | None, rates: Mapping[str, float]) -> None:
        """Give bundles with these message rates (in and out each) to a broker."""
        self.owners.update(dict.fromkeys(rates, owner))
        self.rates.update(rates)

    def sample(self, *cpu: float) -> None:
        """New CPU samples, one per broker."""
        for broker, usage in zip(self.brokers, cpu, strict=True):
            broker.cpu = usage

    def fault(
        self,
        part: str,
        reply: Reply,
        *,
        method: str | None = None,
        broker: str | None = None,
        times: int | None = None,
        after_acting: bool = False,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Answer like this where the path contains ``part``; see :class:`Rule`."""
        self.rules.append(Rule(part, reply, method, broker, times, after_acting, then))

    def kill(self, identity: str) -> None:
        """kill -9: connections are refused, yet the broker stays listed, and leads if it led."""
        broker = self.broker(identity)
        broker.alive = False
        broker.server.shutdown()
        broker.server.server_close()

    def asked(self, part: str, method: str | None = None) -> list[Request]:
        """The requests whose path contains ``part``, in their order."""
        return [one for one in self.requests if part in one.path and method in {None, one.method}]

    def answer(self, asked: Request) -> Reply:
        """What a broker answers, faults included."""
        with self.lock:
            self.requests.append(asked)
            rule = next((rule for rule in self.rules if rule.fits(asked)), None)
            if rule is None:
                return self._usual(asked)
            if rule.after_acting:
                usual = self._usual(asked)
                if usual.location is not None:
                    return usual
            if rule.times is not None:
                rule.times -= 1
            rule.then()
            return rule.reply

    def _usual(self, asked: Request) -> Reply:
        if self.authorization is not None and asked.authorization != self.authorization:
            return Reply(401, HTML) if asked.path.endswith("/ready") else refused(401, "Unauthorized")
        parts = asked.path.strip("/").split("/")
        if parts[:3] == ["admin", "v2", "brokers"]:
            return self._brokers(asked, parts[3:])
        if parts[:3] == ["admin", "v2", "namespaces"] and len(parts) == 7:
            return self._bundle(asked, f"{parts[3]}/{parts[4]}/{parts[5]}", parts[6])
        if parts[:3] == ["lookup", "v2", "topic"]:
            return self._lookup(asked, "/".join(parts[4:6]), parts[-1])
        if "antiAffinity" in parts:
            return self._anti_affinity(asked, parts[3:])
        return self._plain(asked, parts[-1])

    def _plain(self, asked: Request, what: str) -> Reply:
        if what == "bundles":
            return self._boundaries("/".join(asked.path.split("/")[4:6]))
        if what == "load-report":
            unknown = refused(500, "java.lang.UnsupportedOperationException")
            return unknown if self.extensible else ok(self.report(asked.broker))
        if what == "clusters":
            return ok([CLUSTER])
        if what == "failureDomains":
            return ok({name: {"brokers": brokers} for name, brokers in self.domains.items()})
        if what == "namespaceIsolationPolicies":
            return ok(self.isolation) if self.isolation else refused(404, "NamespaceIsolationPolicies do not exist")
        return Reply(404, HTML, content_type="text/html")

    def _anti_affinity(self, asked: Request, rest: list[str]) -> Reply:
        if rest[-1] == "antiAffinity":
            group = self.groups.get("/".join(rest[:-1]))
            return Reply(204) if group is None else Reply(200, group.encode())
        own = f"{asked.query['tenant']}/"
        return ok([name for name, group in self.groups.items() if group.lower() == rest[-1] and name.startswith(own)])

    def _brokers(self, asked: Request, rest: list[str]) -> Reply:
        if rest[1:] and rest[2:] == ["ownedNamespaces"]:
            return self._owned(asked, rest[1])
        if rest[:1] == ["configuration"]:
            return self._configuration(asked, rest[1:])
        broker, what = self.broker(asked.broker), rest[-1]
        if what == "leaderBroker":
            return self._leader()
        if what == "version":
            return Reply(200, broker.version.encode(), content_type="text/plain")
        if what == "ready":
            return Reply(200, b"ok") if broker.ready else Reply(503, HTML)
        return ok(list(reversed(self.ids)))

    def _configuration(self, asked: Request, rest: list[str]) -> Reply:
        if asked.method != "GET":
            return self._override(*rest)
        return ok(self.dynamic if rest == ["values"] else self.running(self.broker(asked.broker)))

    def running(self, broker: FakeBroker) -> dict[str, str]:
        """What a broker runs with: its own configuration, and the overrides of all brokers on top."""
        own = {
            "clusterName": CLUSTER,
            "loadManagerClassName": MODULAR,
            **self._shedding(),
            **BALANCING,
            **broker.runtime,
        }
        return own | broker.stuck | {key: _as_boolean(value) for key, value in self.dynamic.items()}

    def _override(self, key: str, value: str | None = None) -> Reply:
        """Set or delete an override; 2.11 runs on with a deleted one. Whatever the value is, it is answered 200."""
        if key not in DYNAMIC:
            return refused(412, f"Can't {'delete' if value is None else 'update'} non-dynamic configuration")
        if value is not None:
            self.dynamic[key] = value
            return Reply(200)
        for broker in self.brokers:
            if broker.version.startswith("2.") and key in self.dynamic:
                broker.stuck[key] = _as_boolean(self.dynamic[key])
        self.dynamic.pop(key, None)
        return Reply(200)

    def _leader(self) -> Reply:
        if self.leader is None:
            return refused(404, "Couldn't find leader broker")
        return ok({"serviceUrl": f"http://{self.leader}", "brokerId": self.leader})

    @staticmethod
    def _shedding() -> dict[str, str]:
        return {"loadBalancerEnabled": "true", "loadBalancerSheddingEnabled": "false"}

    def _owned(self, asked: Request, whose: str) -> Reply:
        if whose not in self.ids:
            return refused(404, f"Broker id '{whose}' not found in available brokers.")
        if whose != asked.broker:
            return Reply(307, location=f"http://{whose}{asked.path}")
        state = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        mine = [bundle for bundle, owner in self.owners.items() if owner == whose]
        return ok(dict.fromkeys([f"pulsar/{whose}/0x00000000_0xffffffff", *mine], state))

    def _bundle(self, asked: Request, bundle: str, what: str) -> Reply:
        if bundle.rpartition("/")[0] not in {name.rpartition("/")[0] for name in self.owners}:
            return refused(404, "Namespace not found")
        if bundle not in self.owners:
            return refused(412, f"Cannot find bundle {bundle} in the bundles list")
        if what == "unload" and asked.method == "PUT":
            return self._unload(asked, bundle)
        if what == "topicHashPositions":
            return self._positions(asked, bundle)
        return Reply(405, HTML, content_type="text/html")

    def _boundaries(self, namespace: str) -> Reply:
        cuts = {end for bundle in self.owners if bundle.startswith(f"{namespace}/") for end in bundle[-21:].split("_")}
        return ok({"boundaries": sorted(cuts), "numBundles": len(cuts) - 1}) if cuts else refused(404, "Not found")

    def _positions(self, asked: Request, bundle: str) -> Reply:
        owner = self.owners[bundle]
        if owner is None:
            return refused(412, f"Failed to find ownership for ServiceUnit:{bundle}")
        if owner != asked.broker:
            return Reply(307, location=f"http://{owner}{asked.path}?authoritative=false")
        namespace, _, bounds = bundle.rpartition("/")
        return ok({"namespace": namespace, "bundle": bounds, "topicHashPositions": {}})

    @property
    def extensible(self) -> bool:
        """Whether its brokers run the extensible load manager, as their configuration says."""
        return any(broker.runtime.get("loadManagerClassName") == EXTENSIBLE for broker in self.brokers)

    def _hand_over(self, asked: Request, bundle: str, destination: str | None) -> Reply:
        """The extensible manager's unload: the owner gives the bundle to the destination, and to no client."""
        owner = self.owners[bundle]
        if destination is not None and destination not in self.ids:
            return refused(409, "Not allowed unload namespace bundle to inactive destination broker")
        if owner is not None and owner != asked.broker:
            query = urlencode({"destinationBroker": destination or "", "authoritative": "true"})
            return Reply(307, location=f"http://{owner}{asked.path}?{query}")
        if owner is not None and owner == destination:
            return refused(500, f"Namespace bundle: {bundle} own by {owner}, cannot be transfer to same broker.")
        self.owners[bundle] = destination if owner is not None else None
        return Reply(204)

    def _unload(self, asked: Request, bundle: str) -> Reply:
        destination = asked.query.get("destinationBroker")
        if self.extensible:
            return self._hand_over(asked, bundle, destination)
        if destination is not None and not self.broker(asked.broker).version.startswith("2."):
            if destination not in self.ids:
                return refused(409, "Not allowed unload namespace bundle to inactive destination broker")
            if asked.broker != self.leader:
                query = urlencode({"destinationBroker": destination, "authoritative": "false"})
                return Reply(307, location=f"http://{self.leader}{asked.path}?{query}")
            self.affinity[bundle] = destination
        owner = self.owners[bundle]
        if owner is not None and owner != asked.broker:
            return Reply(307, location=f"http://{owner}{asked.path}?authoritative=true")
        self._release(bundle)
        return Reply(204)

    def _release(self, bundle: str) -> None:
        """Close the bundle; a client whose lookup comes at that very moment may take it elsewhere (#24884)."""
        self.owners[bundle] = None
        thieves = self.steals.get(bundle, [])
        if thieves:
            self.owners[bundle] = thieves.pop(0)
            self.affinity.pop(bundle, None)

    def _lookup(self, asked: Request, namespace: str, topic: str) -> Reply:
        bundle = self._bundle_of(namespace, zlib.crc32(f"non-persistent://{namespace}/{topic}".encode()))
        if bundle is None:
            return refused(404, "Namespace not found")
        if self.owners[bundle] is None:
            if self.extensible:
                self.owners[bundle] = self.ids[-1]
            elif asked.query.get("authoritative") == "true":
                self.owners[bundle] = asked.broker
            elif asked.broker != self.leader:
                return Reply(307, location=f"http://{self.leader}{asked.path}?authoritative=false")
            else:
                self.owners[bundle] = self.affinity.pop(bundle, self.ids[-1])
        return ok({"httpUrl": f"http://{self.owners[bundle]}", "nativeUrl": ""})

    def _bundle_of(self, namespace: str, number: int) -> str | None:
        for bundle in self.owners:
            prefix, _, span = bundle.rpartition("/")
            lower, upper = (int(end, 16) for end in span.split("_"))
            if prefix == namespace and (lower <= number < upper or number == upper == 0xFFFFFFFF):
                return bundle
        return None

    def report(self, identity: str) -> dict[str, Any]:
        """A broker's load report, made from what it owns."""
        broker = self.broker(identity)
        stats = {bundle: _stats(self.rates[bundle]) for bundle, owner in self.owners.items() if owner == identity}
        total = sum(self.rates[bundle] for bundle in stats)
        return {
            "webServiceUrl": broker.base,
            "cpu": {"usage": broker.cpu, "limit": 100.0},
            "memory": {"usage": 84.6, "limit": 371.25},
            "directMemory": {"usage": 16.0, "limit": 256.0},
            "bandwidthIn": {"usage": 0.0, "limit": -1000.0},
            "bandwidthOut": {"usage": 0.0, "limit": -1000.0},
            "msgRateIn": total,
            "msgRateOut": total,
            "msgThroughputIn": total * 100,
            "msgThroughputOut": total * 100,
            "lastUpdate": int(time.time() * 1000),
            "lastStats": stats,
            "numTopics": len(stats),
            "numBundles": len(stats),
            "bundles": sorted(stats),
            "brokerVersionString": broker.version,
            "loadManagerClassName": MODULAR,
            "startTimestamp": int(broker.started_at * 1000),
            "loadReportType": "LocalBrokerData",
            **broker.report,
        }


def _as_boolean(text: str) -> str:
    """As Java reads it: what is not ``true`` is false."""
    return str(text.lower() == "true").lower()


def _stats(rate: float) -> dict[str, float]:
    traffic = {"msgRateIn": rate, "msgRateOut": rate, "msgThroughputIn": rate * 100, "msgThroughputOut": rate * 100}
    return {**traffic, "topics": 1, "producerCount": 1, "consumerCount": 1, "cacheSize": 0}


Kind = TypeVar("Kind", bound=FakePulsar)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, cluster: FakePulsar) -> None:
        super().__init__((host, 0), _Handler)
        self.cluster = cluster
        self.id = f"{host}:{self.server_address[1]}"

    def server_bind(self) -> None:
        """Without the reverse look-up that HTTPServer makes."""
        socketserver.TCPServer.server_bind(self)


class _Handler(http.Answering):
    server: _Server

    def _serve(self) -> None:
        cluster, identity, url = self.server.cluster, self.server.id, urlsplit(self.path)
        if not cluster.broker(identity).alive:
            self.close_connection = True
            return
        query, authorization = dict(parse_qsl(url.query)), self.headers.get("Authorization")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._send(cluster.answer(Request(identity, self.command, unquote(url.path), query, authorization, body)))

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the parent's names

    def _send(self, reply: Reply) -> None:
        time.sleep(reply.delay_seconds)
        if reply.silent:
            self.close_connection = True
            return
        self.send_reply(reply)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The ``Date`` header, by this broker's clock."""
        ahead = self.server.cluster.broker(self.server.id).clock_ahead_seconds
        return super().date_time_string((time.time() if timestamp is None else timestamp) + ahead)

    def handle(self) -> None:
        """A client that gave up is no event."""
        with suppress(ConnectionError):
            super().handle()


@contextmanager
def started(count: int = 3, kind: type[Kind] = FakePulsar) -> Iterator[Kind]:  # type: ignore[assignment]
    """A running cluster of ``count`` brokers on 127.0.0.1, .2, ...; the second one leads."""
    cluster = kind()
    threads: list[threading.Thread] = []
    for number in range(1, count + 1):
        server = _Server(f"127.0.0.{number}", cluster)
        cluster.brokers.append(FakeBroker(server.id, server))
        threads.append(threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True))
        threads[-1].start()
    cluster.leader = cluster.ids[min(1, count - 1)]
    try:
        yield cluster
    finally:
        for broker in cluster.brokers:
            if broker.alive:
                cluster.kill(broker.id)
        for thread in threads:
            thread.join()


def later(reply: Reply, seconds: float) -> Reply:
    """The same reply, later."""
    return replace(reply, delay_seconds=seconds)


HOT = [f"t/n/0x{number << 28:08x}_0x{(number + 1) << 28:08x}" for number in range(8)]
WARM, COLD = "t/n/0x80000000_0xc0000000", "t/n/0xc0000000_0xffffffff"


@contextmanager
def hot_broker() -> Iterator[FakePulsar]:
    """A cluster in which broker 1 is hot with eight equal bundles, broker 2 warm and broker 3 cold with one each."""
    with started() as cluster:
        first, second, third = cluster.ids
        cluster.own(first, dict.fromkeys(HOT, 1000.0))
        cluster.own(second, {WARM: 4000.0})
        cluster.own(third, {COLD: 100.0})
        cluster.sample(80.0, 45.0, 10.0)
        yield cluster
