"""Pulsar's admin REST API, as far as lbd uses it: one method per request, responses checked and translated.

Requests go to the first address that responds, or to a broker's own. Paths, side effects and status codes were verified
on 2.11.0 to 5.0.0-M1, and read in the sources of 5.0.1 (docs/compatibility.md).
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from lbd.bundles import segment_name
from lbd.clock import boot_seconds
from lbd.errors import AdminError, ObserveError
from lbd.foreign import printable_json
from lbd.model import ProcessCpu, bundle_range
from lbd.pulsar import paths
from lbd.pulsar.broker_configuration import is_extensible, is_on
from lbd.pulsar.http import MAX_HOPS, Http, Response, base_url, url_address, url_host
from lbd.pulsar.oauth2 import bearer_token
from lbd.text import first_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lbd.pulsar.broker_health import BrokerHealth
    from lbd.pulsar.settings import PulsarSettings


T = TypeVar("T")

PASSED_OVER_SECONDS = 60.0
"""Time for which a failed broker is reported as passed over."""

LOOKED_AT_BYTES = 8192
"""Bytes of a response that an error may quote, longer than any token: secrets are hidden before it is cut."""


class _ListenerAddresses(msgspec.Struct, rename="camel"):
    broker_http_url: str | None = None
    broker_https_url: str | None = None


class _Addresses(msgspec.Struct, rename="camel"):
    """Addresses of a broker. From 5.0 on a request to the port of one of the ``advertised_listeners`` is redirected to
    the same listener of another broker (``LookupResult.toRedirectUri``, #25851).
    """

    web_service_url: str | None = None
    web_service_url_tls: str | None = None
    advertised_listeners: dict[str, _ListenerAddresses] | None = None

    def urls(self) -> Iterator[str | None]:
        """All addresses for HTTP."""
        yield from (self.web_service_url, self.web_service_url_tls)
        for listener in (self.advertised_listeners or {}).values():
            yield from (listener.broker_http_url, listener.broker_https_url)


_HAS_PORT = re.compile(r":[0-9]+\Z")


class _TooOldError(AdminError):
    """The broker's version is not supported. No other broker is tried, because the fault is not that broker's."""


class _Refusal(msgspec.Struct):
    reason: str = ""


class AdminClient:
    """Requests to a cluster's brokers: to the first of ``admin_urls`` that responds, or to one broker.

    Clients that share ``silences`` share what they learn of unresponsive brokers.
    """

    def __init__(self, settings: PulsarSettings, silences: BrokerHealth | None = None) -> None:
        self.settings = settings
        self.http, self._shared = Http(settings, silences, bearer_token(settings)), silences is not None
        self._urls = list(settings.admin_urls)
        self._secure = self._urls[0].startswith("https:")
        self._cluster = settings.cluster
        self._active: list[str] = []
        self._failed: dict[str, tuple[float, str]] = {}
        self._bases: dict[str, str] = {}
        self._transfers: bool | None = None
        self._answering: dict[str, _Addresses | AdminError] = {}
        self._finding_out = threading.Lock()
        self.http.trust((), self._learn_first)

    @property
    def cluster(self) -> str:
        """Name of the cluster: the configured one, else the one that the responding broker gives."""
        if self._cluster is None:
            self._cluster = self.runtime_configuration().get("clusterName") or self._only_cluster()
        return self._cluster

    @property
    def known_cluster(self) -> str:
        """Name of the cluster without a request; empty until a broker has given it."""
        return self._cluster or ""

    def runtime_configuration(self, broker: str | None = None) -> dict[str, str]:
        """Effective configuration of one broker (None: of the first that responds)."""
        path = paths.RUNTIME_CONFIGURATION
        shape = dict[str, str | None]
        values = self._read_any(path, shape) if broker is None else self._json(self._ask(broker, path), shape)
        return {key: value for key, value in values.items() if value is not None}

    @property
    def transfers(self) -> bool:
        """Whether brokers hand over bundles themselves (the extensible manager): no leader and no lookup places one."""
        if self._transfers is None:
            self._transfers = is_extensible(self.runtime_configuration())
        return self._transfers

    @transfers.setter
    def transfers(self, supported: bool) -> None:
        """Set by the observer in each round, because the cluster's load manager may change."""
        self._transfers = supported

    def _only_cluster(self) -> str:
        names = [name for name in self._read_any(paths.CLUSTERS, list[str]) if name != "global"]
        if len(names) != 1:
            raise ObserveError(f"pulsar.cluster is not set and the brokers know {names}; set it to one of them")
        return names[0]

    def active_brokers(self, *, deadline: float | None = None) -> list[str]:
        """Ids (``host:webPort``) of all active brokers, sorted; from now on only these are trusted."""
        brokers = sorted(
            self._first_read(self._urls, paths.brokers(self.cluster), {200}, self._broker_ids, deadline=deadline)
        )
        self._active = brokers
        self._bases = {broker: base for broker, base in list(self._bases.items()) if broker in brokers}
        self._answering = {}
        bases = {*self._urls, *self._bases.values(), *(f"http://{broker}" for broker in brokers)}
        self._failed = {base: failure for base, failure in list(self._failed.items()) if base in bases}
        own = [base for broker, base in self._bases.items() if url_host(base) == url_host(broker)]
        self.http.trust([*brokers, *own], self._learn)
        self.http.silences.listed(brokers, [*brokers, *own])
        return brokers

    def _learn_first(self, host: str) -> None:
        """Trust the active brokers, before the first request to one that ``admin_urls`` do not name."""
        self.active_brokers()
        self._learn(host)

    def _learn(self, host: str) -> None:
        """Trust the other addresses of a host's brokers, such as those for https and of further listeners.

        Before 3.0.3 the leader is given by one of these only.
        """
        for broker in self._active:
            if url_host(broker) != host:
                continue
            try:
                base = self.base(broker)
                self._trust(broker, base)
                for url in self._addresses(base).urls():
                    self._trust(broker, url or "")
            except ObserveError:
                continue

    def _trust(self, broker: str, url: str) -> None:
        """Trust an address if it is on the broker's own host, whichever broker gave it."""
        if url_host(url) == url_host(broker):
            self.http.trust_also(url)

    def base(self, broker: str) -> str:
        """Base URL of a broker. Over https its id still has the plain port, so the address is requested once."""
        if not self._secure:
            return f"http://{broker}"
        if broker not in self._bases:
            self._bases[broker] = self._secure_base(broker)
        return self._bases[broker]

    def silent_since(self, broker: str) -> float | None:
        """Time since which a broker does not respond (epoch seconds); None if it responds, or had no request."""
        base = self._bases.get(broker, "") if self._secure else f"http://{broker}"
        return self.http.silences.since(base)

    def mistrust(self, broker: str) -> None:
        """Treat a broker as unresponsive that left a lookup unanswered, even if it answers other requests."""
        self.http.silences.mistrust(self.base(broker), broker)

    def close(self) -> None:
        """Close idle connections, and stop probing unresponsive brokers unless other clients share that."""
        self.http.close()
        if not self._shared:
            self.http.silences.close()

    def _secure_base(self, broker: str) -> str:
        base = self._redirected(broker, self._urls) if self.transfers else self._find_base(broker)
        if not base.startswith("https:"):
            raise ObserveError(f"{broker} is reached at {base}, wanted https: a token is not sent in the clear")
        self._trust(broker, base)
        return base

    def _find_base(self, broker: str) -> str:
        """The broker's base URL: the first of these that its load report confirms, else where another broker redirects.

        1. Its own host with the port of one of ``admin_urls``: also where that is an address of several brokers.
        2. One of ``admin_urls`` themselves.

        The request that is redirected must never reach the broker itself: it can hang it (see
        :meth:`~lbd.pulsar.admin.Admin.owned`). So each of ``admin_urls`` is identified before.
        """
        others, failures = [], list[AdminError]()
        for url in dict.fromkeys([*self._likely_bases(broker), *self._urls]):
            self._trust(broker, url)
            addresses = self._who_answers(url)
            if isinstance(addresses, AdminError):
                failures.append(addresses)
            elif broker in _ids(addresses):
                return self._preferred_base(addresses, url)
            elif url in self._urls:
                others.append(url)
        if not others:
            why = f"where {broker} is reached over https cannot be found out: {failures[0]}"
            raise AdminError(why, status=failures[0].status, sent=False)
        return self._redirected(broker, others)

    def _likely_bases(self, broker: str) -> list[str]:
        """URLs on the broker's own host, as brokers usually share a port."""
        ports = (urlsplit(url).port for url in self._urls)
        host = broker.rpartition(":")[0]
        return [f"https://{host}:{port}" if port else f"https://{host}" for port in ports]

    def _who_answers(self, url: str) -> _Addresses | AdminError:
        """Addresses of the broker behind one of ``admin_urls``, requested once per list of active brokers."""
        with self._finding_out:
            if url not in self._answering:
                try:
                    self._answering[url] = self._addresses(url)
                except AdminError as error:
                    self._answering[url] = error
            return self._answering[url]

    def _redirected(self, broker: str, urls: list[str]) -> str:
        path = paths.owned_namespaces(self.cluster, broker)
        answer = self._first_read(urls, path, {200, 307}, _as_it_is, hops=0)
        if answer.location:
            return answer.base_of(answer.location)
        if self.transfers and url_host(broker) == url_host(answer.base):
            return answer.base  # there is no load report; only an address on its own host is certainly its own
        addresses = self._addresses(answer.base)
        if broker not in _ids(addresses):
            raise ObserveError(
                f"{answer.base} stands before several brokers; pulsar.admin_urls wants the brokers' own addresses"
            )
        return self._preferred_base(addresses, answer.base)

    def _addresses(self, base: str) -> _Addresses:
        """Addresses that the broker at a base URL gives for itself."""
        answer = self.http.send("GET", base + paths.LOAD_REPORT, hops=0)
        return self._json(self._expected(answer, None), _Addresses)

    @staticmethod
    def _preferred_base(addresses: _Addresses, base: str) -> str:
        return base_url(addresses.web_service_url_tls) if addresses.web_service_url_tls else base

    def _ask(self, broker: str, path: str, expect: set[int] | None = None) -> Response:
        return self._expected(self.http.send("GET", self.base(broker) + path), expect)

    def _any(
        self, path: str, expect: set[int] | None = None, method: str = "GET", content: bytes | None = None
    ) -> Response:
        """Send a request to the admin URLs in turn until one responds."""
        return self._first_read(self._urls, path, expect or {200}, _as_it_is, method=method, content=content)

    def _read_any(self, path: str, shape: type[T]) -> T:
        """Response of the first admin URL whose response can be decoded."""
        return self._first_read(self._urls, path, {200}, partial(self._json, shape=shape))

    def _first_read(
        self,
        bases: list[str],
        path: str,
        expect: set[int],
        read: Callable[[Response], T],
        *,
        hops: int = MAX_HOPS,
        method: str = "GET",
        content: bytes | None = None,
        deadline: float | None = None,
        final: Collection[int] = (),
    ) -> T:
        """Result of ``read`` for the first good response. Brokers whose last request failed come last.

        A bad response discredits that broker, never the round: a broker is passed over if it cannot be reached, or
        answers 5xx or, to a GET, anything unexpected or unreadable. A refused token, and a ``final`` status, is raised
        at once.
        """
        failures: list[AdminError] = []
        for number, base in enumerate(sorted(bases, key=self._failed.__contains__), start=1):
            try:
                url, others = base + path, number < len(bases)
                sent = self.http.send(method, url, hops=hops, content=content, deadline=deadline, others=others)
                answer = read(self._expected(sent, expect, method))
            except AdminError as error:
                if _ends_it(error, method) or error.status in final:
                    raise
                self._failed[base] = boot_seconds(), str(error)
                failures.append(error)
            else:
                self._failed.pop(base, None)
                return answer
        if len(failures) == 1:
            raise failures[0]
        status = failures[0].status if failures else None
        raise AdminError(
            "; ".join(dict.fromkeys(str(error) for error in failures)) or "no broker to ask", status=status
        )

    def _expected(self, answer: Response, expect: set[int] | None, method: str = "GET") -> Response:
        """The response, if its status is expected. Raises :class:`AdminError` for any other.

        A 404 means that there is no such thing only where Pulsar gives its reason. A broker without the endpoint, and a
        proxy, send a page: that leaves the question open, and unknown never counts as no.
        """
        expected = expect or {200}
        if answer.status == 404 and 404 in expected and not error_reason(answer):
            raise self._without_endpoint(answer, expected - {404}, method)
        if answer.status not in expected:
            raise self._unexpected(answer, expected, method)
        return answer

    def _without_endpoint(self, answer: Response, expect: set[int], method: str) -> AdminError:
        """The error for a 404 without a reason: the unsupported version, where that explains it."""
        version = self.http.send("GET", answer.base + paths.VERSION)
        too_old = ""
        if version.status == 200:
            too_old = unsupported_versions({url_address(answer.base): self._version(version)})
        return _TooOldError(too_old, status=404) if too_old else self._unexpected(answer, expect, method)

    @staticmethod
    def _version(answer: Response) -> str:
        return answer.shown(answer.body.decode("utf-8", errors="replace")).strip().strip('"')

    def _unexpected(self, answer: Response, expect: set[int], method: str = "GET") -> AdminError:
        statuses = "/".join(str(status) for status in sorted(expect))
        message = f"HTTP {answer.status}{error_reason(answer)}, wanted {statuses}{_advice(answer, self.settings)}"
        return AdminError(f"{method} {answer.shown(answer.url.partition('?')[0])}: {message}", status=answer.status)

    def _read_optional(self, path: str, shape: type[T]) -> T | None:
        """Response of any broker; None where it says that there is no such thing (404)."""
        return self._first_read(self._urls, path, {200, 404}, partial(self._json_or_none, shape=shape))

    def _read_since_5(self, path: str, shape: type[T]) -> T | None:
        """Optional response of an endpoint that came with 5.0; None from brokers without it."""
        read = partial(self._json_or_none, shape=shape)
        try:
            return self._first_read(self._urls, path, {200, 404}, read, final={404})
        except AdminError as error:
            if error.status == 404:
                return None
            raise

    @property
    def trouble(self) -> str:
        """The broker that was passed over lately, and the reason; empty if none was."""
        since = boot_seconds() - PASSED_OVER_SECONDS
        lately = [(base, why) for base, (failed_at, why) in sorted(self._failed.items()) if failed_at > since]
        others = f", and {len(lately) - 1} more" if len(lately) > 1 else ""
        return (
            f"{url_address(lately[0][0])} was passed over, others were asked instead{others}: {lately[0][1]}"
            if lately
            else ""
        )

    def _broker_ids(self, answer: Response) -> list[str]:
        ids = self._json(answer, list[str])
        for broker in ids:
            _check_id(broker, answer)
        return ids

    def _json_or_none(self, answer: Response, shape: type[T]) -> T | None:
        return None if answer.status == 404 else self._json(answer, shape)

    @staticmethod
    def _json(answer: Response, shape: type[T]) -> T:
        try:
            return msgspec.json.decode(printable_json(answer.body), type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            begins = answer.shown(answer.body[:LOOKED_AT_BYTES].decode(errors="replace"))[:40]
            message = f"the answer cannot be read, it begins with {begins!r}: {answer.shown(str(error))}"
            where = answer.shown(answer.url.partition("?")[0])
            raise AdminError(f"GET {where}: {message}; is this a broker's web address?") from error


def _as_it_is(answer: Response) -> Response:
    """The response as it is."""
    return answer


def _ends_it(error: AdminError, method: str) -> bool:
    """Whether to try no other broker: token or version are refused, or a request to change something is."""
    if isinstance(error, _TooOldError) or error.status in {401, 403}:
        return True
    return method != "GET" and error.status is not None and error.status < 500


_ADVERTISED = ": advertisedAddress of that broker is a host alone, its port is webServicePort"


def _check_id(broker: str, answer: Response) -> None:
    """Raise :class:`AdminError` for an id that no broker can have: the response is not from a broker."""
    if paths.host_port(broker) is None or not _HAS_PORT.search(broker):
        name, where = answer.shown(broker)[:40], answer.shown(answer.url.partition("?")[0])
        raise AdminError(f"GET {where}: the answer names {name!r} as a broker; wanted host:port{_ADVERTISED}")


def _ids(addresses: _Addresses) -> set[str]:
    """Ids that a broker with these addresses may have."""
    return {url_address(url) for url in (addresses.web_service_url, addresses.web_service_url_tls) if url}


def error_reason(answer: Response) -> str:
    """The ``reason`` of an error body, first line, cut short; empty for HTML and empty bodies.

    Other fields are skipped and not built: collecting a deeply nested garbage response leaves no stack to close it.
    """
    try:
        reason = msgspec.json.decode(answer.body, type=_Refusal).reason
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    lines = [line.strip() for line in reason.splitlines() if line.strip() and not line.strip().startswith("---")]
    return f" ({answer.shown(lines[0][:LOOKED_AT_BYTES])[:200]})" if lines else ""


def _advice(answer: Response, settings: PulsarSettings) -> str:
    status = answer.status
    if status == 404 and answer.url.endswith(paths.RUNTIME_CONFIGURATION):
        return "; is this a broker's web address?"
    if status in {401, 403} and settings.oauth2 is not None:
        issuer = settings.oauth2.issuer_url
        return f"; the access token of {issuer} is for another audience, or not a superuser's (pulsar.oauth2)"
    if status in {401, 403}:
        return "; the token is missing, wrong, or not a superuser's (pulsar.token_file)"
    return "; brokers take this setting only from broker.conf, with a restart" if status == 412 else ""


# --- the API

OWNERSHIP_STATUSES = {200, 307, 404, 412}
"""Statuses that say who owns a bundle: 200 this broker, 307 another, 412 no broker, 404 there is no such bundle."""

ASSIGNED = {200, 404}
"""Statuses of :meth:`Admin.assign` from the bundle's owner: the schema, or that there is none."""

UNREACHABLE_OWNER = b" URL configured for broker "
"""Text in a 412 (from 5.0): the owner has no address for the scheme or listener (``LookupResult.toRedirectUri``)."""


class _LeaderBroker(msgspec.Struct, rename="camel"):
    service_url: str
    broker_id: str | None = None


class _FailOver(msgspec.Struct):
    parameters: dict[str, Any] | None = None


class _IsolationPolicy(msgspec.Struct):
    """Fields that every isolation policy has. Patterns are checked elsewhere."""

    namespaces: list[str]
    primary: list[str]
    secondary: list[str] | None = None
    auto_failover_policy: _FailOver | None = None


class _Ownership(msgspec.Struct):
    is_active: bool = True


class _HashPositions(msgspec.Struct, rename="camel"):
    """Response that only the owner of a bundle gives; a proxy on the way may answer 200 with anything else."""

    bundle: str
    topic_hash_positions: dict[str, int] = {}


class _Bundles(msgspec.Struct):
    boundaries: list[str]


class _KeyRange(msgspec.Struct):
    start: int
    end: int


class _Segment(msgspec.Struct, rename="camel"):
    """A segment of a scalable topic (SegmentInfo). A legacy one is the ``persistent://`` topic that was migrated."""

    segment_id: int
    hash_range: _KeyRange
    state: str
    created_at_ms: float = 0
    sealed_at_ms: float = 0
    legacy_topic_name: str | None = None


class _ScalableTopic(msgspec.Struct):
    segments: dict[str, _Segment]


class _FailureDomain(msgspec.Struct):
    brokers: list[str] = []


@dataclass(frozen=True)
class Segment:
    """A segment of a scalable topic by its full name. A sealed one, not ``is_active``, takes no more messages.

    ``changed_at`` is when it was created or sealed, epoch seconds.
    """

    name: str
    is_active: bool
    changed_at: float


class TopicStats(msgspec.Struct, frozen=True, rename="camel"):
    """Rates of one topic, messages/s and bytes/s; the broker cuts them to three decimals."""

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0


class _Client(msgspec.Struct, rename="camel"):
    """``connected_since`` is an ISO date with its zone."""

    connected_since: str | None = None


class _Subscription(msgspec.Struct):
    consumers: list[_Client] = []


class _TopicUsers(msgspec.Struct):
    publishers: list[_Client] = []
    subscriptions: dict[str, _Subscription] = {}


class _MBeanName(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="MBean", default="")


_Counter = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
"""A ``long`` of Java. A larger number is no counter, and no float could hold it."""


class _MBeanMetrics(msgspec.Struct):
    """Attributes that lbd reads from its two beans; a JVM without a value says -1."""

    process_cpu_nanoseconds: _Counter = msgspec.field(name="ProcessCpuTime", default=-1)
    uptime_milliseconds: _Counter = msgspec.field(name="Uptime", default=-1)


class _MBean(msgspec.Struct):
    metrics: msgspec.Raw
    dimensions: _MBeanName = _MBeanName()


@dataclass(frozen=True)
class Leader:
    """The leader broker: its id where the version gives it (3.0.3+), and its base URL."""

    broker: str | None
    base: str


class Admin(AdminClient):
    """A cluster's admin API.

    ``deadline`` is a value of :func:`lbd.clock.boot_seconds`: all requests of a method have ended by then.
    """

    def leader(self, *, deadline: float | None = None) -> Leader | None:
        """The leader; None while there is none. A dead leader is still named for a session timeout.

        Its address comes from its id if the version returns one: ``serviceUrl`` is https as soon as TLS ports are open.
        """
        return self._first_read(self._urls, paths.LEADER, {200, 404}, self._named_leader, deadline=deadline)

    def _named_leader(self, answer: Response) -> Leader | None:
        leader = self._json_or_none(answer, _LeaderBroker)
        if leader is None:
            return None
        if leader.broker_id is not None:
            _check_id(leader.broker_id, answer)
        base = self.base(leader.broker_id) if leader.broker_id else answer.base_of(leader.service_url)
        return Leader(leader.broker_id, base)

    def load_report(self, broker: str) -> Response:
        """The broker's live load report, unparsed. 204 (no load manager) and 500 (extensible) are translated.

        Its bytes count among those in flight for as long as the caller keeps the response.
        """
        answer = self._ask(broker, paths.LOAD_REPORT, expect={200, 204, 500})
        if answer.status == 204:
            raise ObserveError(
                f"{broker} answers no load report (204): loadManagerClassName is NoopLoadManager, wanted {MODULAR}"
            )
        if answer.status == 500 and b"UnsupportedOperation" in answer.body:
            raise ObserveError(f"{broker} runs the extensible load manager, and others the modular one")
        if answer.status == 500:
            raise self._unexpected(answer, {200})
        return answer

    def process_cpu(self, broker: str, *, deadline: float | None = None) -> ProcessCpu:
        """CPU time that the broker's process has used so far: a counter, whose differences are exact.

        It is read from the beans of the JVM (0.1 MB, however many topics there are). Raises :class:`AdminError` also
        where there is no such counter.
        """
        url = self.base(broker) + paths.MBEANS
        answer = self._expected(self.http.send("GET", url, deadline=deadline), None)
        beans = {bean.dimensions.name: bean.metrics for bean in self._json(answer, list[_MBean])}
        try:
            system, runtime = (
                msgspec.json.decode(beans[f"java.lang:type={name}"], type=_MBeanMetrics)
                for name in ("OperatingSystem", "Runtime")
            )
        except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            system = runtime = _MBeanMetrics()
        if system.process_cpu_nanoseconds < 0 or runtime.uptime_milliseconds < 0:
            raise AdminError(f"GET {answer.shown(url)}: no ProcessCpuTime or Uptime among the beans of this JVM")
        return ProcessCpu(system.process_cpu_nanoseconds / 1e9, runtime.uptime_milliseconds / 1e3)

    def dynamic_configuration(self) -> dict[str, str]:
        """Overrides of broker.conf on all brokers, as they were set: brokers may be unable to read a value."""
        return self._read_any(paths.DYNAMIC_CONFIGURATION, dict[str, str])

    def set_dynamic(self, key: str, value: str) -> None:
        """Override broker.conf. Only ``runtime_configuration`` proves it: Pulsar answers nonsense with 200, too."""
        self._any(paths.dynamic(key, value), {200, 204}, method="POST")

    def delete_dynamic(self, key: str) -> None:
        """Delete an override; no error when there is none. 2.11 keeps its value until a restart."""
        self._any(paths.dynamic(key), {200, 204}, method="DELETE")

    def check_health(self, broker: str, *, timeout_seconds: float | None = None) -> None:
        """Have a broker check itself: it writes and reads a message on a topic of its own (BrokersBase).

        Raises :class:`AdminError` where it is not healthy, or does not answer in time (None: the usual timeout).
        """
        url = self.base(broker) + paths.HEALTH
        self._expected(self.http.send("GET", url, timeout_seconds=timeout_seconds), None)

    def owned(self, broker: str) -> dict[str, bool]:
        """Bundles that the broker owns, each with whether it is active. Empty when the broker has left the cluster.

        Never call it for a broker that may be taking bundles over: the request can hang it for good (see :meth:`owns`).
        """
        answer = self._ask(broker, paths.owned_namespaces(self.cluster, broker), expect={200, 404})
        if answer.status == 404:
            return {}
        return {bundle: state.is_active for bundle, state in self._json(answer, dict[str, _Ownership]).items()}

    def owns(self, broker: str, bundle: str, *, deadline: float | None = None) -> bool:
        """Whether a broker says that it owns a bundle and is not unloading it.

        The request is for this bundle alone. A request for all (``ownedNamespaces``) while a broker takes over a bundle
        makes its only metadata thread wait for further bundles that it began to take, which that same thread would have
        to finish (``NamespaceService.getOwnedNameSpacesStatusAsync``, 2.11 to 5.0.0-M1; it hung 4.0.8 and 4.2.4).
        """
        url = self.base(broker) + paths.topic_hash_positions(bundle)
        answer = self.http.send("GET", url, hops=0, deadline=deadline)
        expected = self._expected(answer, OWNERSHIP_STATUSES)
        return expected.status == 200 and bundle.endswith(f"/{self._json(expected, _HashPositions).bundle}")

    def topics_in(self, broker: str, bundle: str) -> list[str] | None:
        """Full names of all topics of a bundle, loaded or not; None if the broker has no such bundle."""
        url = self.base(broker) + paths.topic_hash_positions(bundle)
        answer = self._expected(self.http.send("GET", url, hops=0), OWNERSHIP_STATUSES)
        return list(self._json(answer, _HashPositions).topic_hash_positions) if answer.status == 200 else None

    def connected_since(self, broker: str, topic: str) -> list[str] | None:
        """Times at which producers and consumers of a persistent topic connected, from its broker, as ISO dates.

        The broker loads the topic for this response, as for a client, and fails where a client would. None where there
        is no such topic, or it is on another broker.
        """
        answer = self.http.send("GET", self.base(broker) + paths.topic_stats(topic), hops=0)
        if self._expected(answer, {200, 307, 404}).status != 200:
            return None
        users = self._json(answer, _TopicUsers)
        readers = [consumer for subscription in users.subscriptions.values() for consumer in subscription.consumers]
        return [client.connected_since or "" for client in (*users.publishers, *readers)]

    def boundaries(self, namespace: str) -> list[str] | None:
        """Boundaries of a namespace's bundles, ``["0x00000000", ..., "0xffffffff"]``; None without such a namespace."""
        layout = self._read_optional(paths.bundles(namespace), _Bundles)
        return None if layout is None else layout.boundaries

    def owner_base(self, bundle: str) -> str | None:
        """``scheme://host:port`` of the bundle's owner; None when it has none (412) or there is no such bundle (404).

        Raises :class:`AdminError` also where the owner has no address of the requested kind. The request assigns
        nothing. It goes to brokers' own addresses: a 200 means that the responding broker is the owner, and an admin
        URL may be another name of a broker, or stand before several.
        """
        own = [self.base(broker) for broker in self._active or self.active_brokers()]
        answer = self._first_read(own, paths.topic_hash_positions(bundle), OWNERSHIP_STATUSES, _as_it_is, hops=0)
        if answer.status == 412 and UNREACHABLE_OWNER in answer.body:
            why = answer.shown(answer.body[:LOOKED_AT_BYTES].decode(errors="replace"))[:200]
            raise AdminError(f"{answer.base} cannot say where the owner of {bundle} is reached: {why!r}")
        if answer.status in {404, 412}:
            return None
        return answer.base_of(answer.location) if answer.location else answer.base

    def ready(self, broker: str) -> bool:
        """Whether a broker reports itself ready."""
        return self.ready_at(self.base(broker))

    def ready_at(self, base: str) -> bool:
        """Whether the broker at a base URL reports itself ready."""
        try:
            return self.http.send("GET", base + paths.READY).status == 200
        except AdminError:
            return False

    def version_at(self, base: str) -> str:
        """Version that the broker at a base URL gives."""
        return self._version(self._expected(self.http.send("GET", base + paths.VERSION), None))

    def version_and_date(self, broker: str) -> tuple[str, str | None]:
        """Version of a broker, and the ``Date`` header of that response: its clock, in whole seconds."""
        answer = self._ask(broker, paths.VERSION)
        return self._version(answer), answer.date

    def isolation_policies(self) -> dict[str, Any]:
        """Namespace isolation policies by name; empty when there are none."""
        return self._first_read(self._urls, paths.isolation_policies(self.cluster), {200, 404}, self._policies)

    def _policies(self, answer: Response) -> dict[str, Any]:
        policies = self._json_or_none(answer, dict[str, _IsolationPolicy])
        return {} if policies is None else self._json(answer, dict[str, Any])

    def anti_affinity_group(self, namespace: str) -> str | None:
        """Anti-affinity group of a namespace, in lower case, as Pulsar compares them; None when it has none.

        Brokers return the text as it was set: quotes are part of a name that was set with quotes.
        """
        answer = self._any(paths.anti_affinity(namespace), expect={200, 204, 404})
        group = answer.shown(answer.body.decode(errors="replace").strip()).lower()
        return group if answer.status == 200 and group not in {"", "null"} else None

    def anti_affinity_namespaces(self, group: str, tenant: str) -> list[str]:
        """The namespaces of one tenant that belong to a group."""
        return self._read_any(paths.anti_affinity_namespaces(self.cluster, group, tenant), list[str])

    def namespace_properties(self, namespace: str) -> dict[str, str]:
        """Properties of a namespace; empty where there is no such namespace.

        They exist since 2.8.0 (#10015). Admins of its tenant and superusers may read and set them (``NamespacesBase``).
        """
        return self._read_optional(paths.properties(namespace), dict[str, str]) or {}

    def failure_domains(self) -> dict[str, str]:
        """Failure domain of each broker that is in one; empty where the brokers do not use domains."""
        if not is_on(self.runtime_configuration(), "failureDomainsEnabled"):
            return {}
        domains = self._read_optional(paths.failure_domains(self.cluster), dict[str, _FailureDomain]) or {}
        return {broker: name for name, domain in sorted(domains.items()) for broker in domain.brokers}

    def unload(
        self,
        bundle: str,
        destination: str | None,
        base: str,
        *,
        begin_by: float | None = None,
        before_hop: Callable[[str], None] | None = None,
    ) -> Response:
        """Request an unload at the leader's ``base`` URL; the caller judges the status, whatever it is.

        ``before_hop`` and ``begin_by`` are as in :meth:`~lbd.pulsar.http.Http.send`: they may stop the request that the
        leader redirects to the owner.
        """
        return self.http.send(
            "PUT",
            base + paths.unload(bundle),
            params={"destinationBroker": destination} if destination else {},
            timeout_seconds=self.settings.unload_timeout_seconds,
            begin_by=begin_by,
            before_hop=before_hop,
        )

    def topics(self, namespace: str) -> list[str]:
        """Full names of all topics of a namespace, each partition listed, also those that no broker has loaded."""
        return self._read_any(paths.topics(namespace), list[str])

    def scalable_topics(self, namespace: str) -> list[str]:
        """Full names of the scalable topics of a namespace; none before 5.0."""
        return self._read_since_5(paths.scalable_topics(namespace), list[str]) or []

    def segments(self, topic: str) -> list[Segment] | None:
        """Segments of a scalable topic, in the order of their keys; None when there is no such topic."""
        scalable = self._read_since_5(paths.scalable_topic(topic), _ScalableTopic)
        if scalable is None:
            return None
        return [
            Segment(
                segment.legacy_topic_name
                or segment_name(topic, segment.hash_range.start, segment.hash_range.end, segment.segment_id),
                segment.state == "ACTIVE",
                max(segment.created_at_ms, segment.sealed_at_ms) / 1000.0,
            )
            for segment in sorted(
                scalable.segments.values(), key=lambda segment: (segment.hash_range.start, segment.segment_id)
            )
        ]

    def topic_stats(self, broker: str) -> dict[str, dict[str, dict[str, dict[str, TopicStats]]]]:
        """Rates of the topics that a broker has loaded, up to a statistics interval old.

        By namespace, bundle range, ``persistent`` or ``non-persistent``, and full topic name.
        """
        return self._json(self._ask(broker, paths.TOPIC_STATS), dict[str, dict[str, dict[str, dict[str, TopicStats]]]])

    def split(
        self,
        bundle: str,
        algorithm: str,
        positions: Sequence[int] | None,
        base: str,
        *,
        begin_by: float | None = None,
        before_hop: Callable[[str], None] | None = None,
    ) -> Response:
        """Request a split at the owner's ``base`` URL; the caller judges the status, whatever it is.

        204 is no proof: a broker that finds nothing to cut answers it, too. The parts stay with the owner. The leader
        first places a bundle without an owner.
        """
        params = {"unload": "false", "splitAlgorithmName": algorithm}
        content = msgspec.json.encode(positions) if positions is not None else None
        url = base + paths.split(bundle)
        return self.http.send("PUT", url, params=params, content=content, before_hop=before_hop, begin_by=begin_by)

    def topic_in(self, bundle: str, base: str) -> str:
        """Full name of a made-up topic that the broker at ``base`` puts into the bundle; the request assigns nothing.

        The rule is a broker's own setting, so the broker decides. Raises :class:`AdminError` where none of the names
        falls into the bundle.
        """
        for topic in paths.made_up_topics(bundle):
            answer = self._expected(self.http.send("GET", base + paths.bundle_of(topic), hops=0), None)
            if answer.body.decode(errors="replace").strip().strip('"') == bundle_range(bundle):
                return topic
        raise AdminError(
            f"{base} puts none of {paths.NAMES_TRIED} topics into {bundle} (topicBundleAssignmentStrategy of this "
            "broker), so lbd could not have a broker take it"
        )

    def assign(
        self, topic: str, base: str, *, authoritative: bool, hops: int = MAX_HOPS, deadline: float | None = None
    ) -> Response:
        """Have the topic's unowned bundle assigned: by the leader, or, authoritative, to the broker at ``base``.

        The request is for the schema of a persistent topic, which a broker looks for only once it owns the topic's
        bundle: a status in :data:`ASSIGNED` proves it. It needs no topic to exist and loads none, whatever the brokers'
        settings are. Without ``hops`` the leader uses up its note of a destination and no broker takes the bundle,
        unless the leader itself does.
        """
        params = {"authoritative": "true"} if authoritative else {}
        return self.http.send("GET", base + paths.schema(topic), params=params, hops=hops, deadline=deadline)


MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"


def unsupported(broker: str, manager: str) -> str:
    """The refusal of a cluster whose load manager lbd cannot work with."""
    return (
        f"{broker} runs {manager}, which lbd does not support yet; "
        f"set loadManagerClassName={MODULAR} in broker.conf, or let that manager balance by itself"
    )


def unsupported_versions(versions: Mapping[str, str]) -> str:
    """The refusal of a cluster with brokers of these versions, by broker; empty where lbd supports them all.

    Turns, commands and ``lbd doctor`` share it. A version that is unknown, empty or no number is not refused: the
    missing endpoint reveals such a broker.
    """
    old = {broker: version for broker, version in versions.items() if not paths.tells_owners(version)}
    if not old:
        return ""
    numbers = ", ".join(sorted(set(old.values())))
    return (
        f"{first_names(sorted(old))} {'runs' if len(old) == 1 else 'run'} Pulsar {numbers}; wanted 2.11 or newer: "
        "older brokers do not tell who owns a bundle (topicHashPositions), so lbd can prove no move and makes none"
    )


def broker_at(base: str, brokers: list[str], bases: dict[str, str]) -> str | None:
    """Id of the broker at a base URL; None when it is none of them."""
    for broker in brokers:
        if bases.get(broker, f"http://{broker}").lower() == base.lower():
            return broker
    same_host = [broker for broker in brokers if url_host(broker) == url_host(base)]
    return same_host[0] if len(same_host) == 1 else None
