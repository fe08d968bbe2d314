"""Pulsar's admin REST API, as far as lbd uses it: one method per question, responses checked and translated.

Requests go to the first address that responds, or to a broker's own. Paths, side effects and status codes as verified
on 2.11.0 to 5.0.0-M1, and read of 5.0.1 (docs/compatibility.md).
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

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
"""How long it is told that a broker was passed over; it is not asked again before the others fail."""

LOOKED_AT_BYTES = 8192
"""What is shown of an answer is cut from so much of it, after secrets were taken out; more than any token has."""


class _ListenerAddresses(msgspec.Struct, rename="camel"):
    broker_http_url: str | None = None
    broker_https_url: str | None = None


class _Addresses(msgspec.Struct, rename="camel"):
    """``advertised_listeners`` by name; from 5.0 on a request to the port of one is redirected to the same of another
    broker (``LookupResult.toRedirectUri``, #25851).
    """

    web_service_url: str | None = None
    web_service_url_tls: str | None = None
    advertised_listeners: dict[str, _ListenerAddresses] | None = None

    def urls(self) -> Iterator[str | None]:
        """All for HTTP."""
        yield from (self.web_service_url, self.web_service_url_tls)
        for listener in (self.advertised_listeners or {}).values():
            yield from (listener.broker_http_url, listener.broker_https_url)


_HAS_PORT = re.compile(r":[0-9]+\Z")


class _TooOldError(AdminError):
    """A broker of a version that lbd refuses: this is no fault of one broker, and no other one is asked instead."""


class _Refusal(msgspec.Struct):
    reason: str = ""


class AdminClient:
    """A cluster's brokers, asked at the first of ``admin_urls`` that answers, or one by one.

    Several that share ``silences`` know of each other's brokers that do not answer.
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

    @property
    def cluster(self) -> str:
        """The cluster's name: the configured one, else what the broker that answers says of itself."""
        if self._cluster is None:
            self._cluster = self.runtime_configuration().get("clusterName") or self._only_cluster()
        return self._cluster

    @property
    def known_cluster(self) -> str:
        """The same, without asking; empty until a broker has said it."""
        return self._cluster or ""

    def runtime_configuration(self, broker: str | None = None) -> dict[str, str]:
        """Effective configuration of one broker (None: of the one that answers)."""
        path = paths.RUNTIME_CONFIGURATION
        wanted = dict[str, str | None]
        values = self._read_any(path, wanted) if broker is None else self._json(self._at(broker, path), wanted)
        return {key: value for key, value in values.items() if value is not None}

    @property
    def transfers(self) -> bool:
        """Whether brokers hand bundles over themselves (the extensible manager): no leader, no lookup places one."""
        if self._transfers is None:
            self._transfers = is_extensible(self.runtime_configuration())
        return self._transfers

    @transfers.setter
    def transfers(self, supported: bool) -> None:
        """Set by the observer each round, as the cluster's load manager may have been changed."""
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
        own = [base for broker, base in self._bases.items() if url_host(base) == url_host(broker)]
        self.http.trust([*brokers, *own], self._learn)
        self.http.silences.listed(brokers, [*brokers, *own])
        return brokers

    def _learn(self, host: str) -> None:
        """Trust the other addresses of a host's brokers, such as those for https, and those of further listeners.

        A leader of a version before 3.0.3 is known by one of these only.
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
        """Another host's address is not a broker's own, whoever tells it."""
        if url_host(url) == url_host(broker):
            self.http.trust_also(url)

    def base(self, broker: str) -> str:
        """Where to reach a broker. Over https its id still has the plain port, so the address is asked for once."""
        if not self._secure:
            return f"http://{broker}"
        if broker not in self._bases:
            self._bases[broker] = self._secure_base(broker)
        return self._bases[broker]

    def silent_since(self, broker: str) -> float | None:
        """Since when a broker answers nothing (epoch seconds); None for one that answers, or was not asked yet."""
        base = self._bases.get(broker, "") if self._secure else f"http://{broker}"
        return self.http.silences.since(base)

    def mistrust(self, broker: str) -> None:
        """Take a broker for silent that did not answer a lookup, though it may answer else."""
        self.http.silences.mistrust(self.base(broker), broker)

    def close(self) -> None:
        """End idle connections, and ask silent brokers no more; where others know of those, that is theirs to end."""
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
        """The broker's base URL: from its load report if one of ``admin_urls`` is the broker itself, else by redirect.

        Each of ``admin_urls`` is identified first, because the request that other brokers redirect must never reach the
        broker itself: it can hang it (see :meth:`~lbd.pulsar.admin.Admin.owned`).
        """
        others, failures = [], list[AdminError]()
        for url in self._urls:
            addresses = self._who_answers(url)
            if isinstance(addresses, AdminError):
                failures.append(addresses)
            elif broker in _ids(addresses):
                return self._preferred_base(addresses, url)
            else:
                others.append(url)
        if not others:
            why = f"where {broker} is reached over https cannot be found out: {failures[0]}"
            raise AdminError(why, status=failures[0].status, sent=False)
        return self._redirected(broker, others)

    def _who_answers(self, url: str) -> _Addresses | AdminError:
        """What the broker behind one of ``admin_urls`` is, asked for once for each list of active brokers."""
        with self._finding_out:
            if url not in self._answering:
                try:
                    self._answering[url] = self._addresses(url)
                except AdminError as error:
                    self._answering[url] = error
            return self._answering[url]

    def _redirected(self, broker: str, urls: list[str]) -> str:
        path = paths.owned_namespaces(self.cluster, broker)
        answer = self._first(urls, path, {200, 307}, hops=0)
        if answer.location:
            return answer.base_of(answer.location)
        if self.transfers and url_host(broker) == url_host(answer.base):
            return answer.base  # there is no load report; only an address on its own host is known to be its own
        addresses = self._addresses(answer.base)
        if broker not in _ids(addresses):
            raise ObserveError(
                f"{answer.base} stands before several brokers; pulsar.admin_urls wants the brokers' own addresses"
            )
        return self._preferred_base(addresses, answer.base)

    def _addresses(self, base: str) -> _Addresses:
        """The addresses that who answers there gives itself."""
        answer = self.http.send("GET", base + paths.LOAD_REPORT, hops=0)
        return self._json(self._expected(answer, None), _Addresses)

    @staticmethod
    def _preferred_base(addresses: _Addresses, base: str) -> str:
        return base_url(addresses.web_service_url_tls) if addresses.web_service_url_tls else base

    def _at(self, broker: str, path: str, expect: set[int] | None = None) -> Response:
        return self._expected(self.http.send("GET", self.base(broker) + path), expect)

    def _any(
        self,
        path: str,
        expect: set[int] | None = None,
        hops: int = 5,
        method: str = "GET",
        content: bytes | None = None,
        deadline: float | None = None,
    ) -> Response:
        """Ask the admin URLs in turn until one answers."""
        return self._first(self._urls, path, expect or {200}, hops, method, content, deadline)

    def _read_any(self, path: str, wanted: type[T], *, deadline: float | None = None) -> T:
        """What the first of the admin URLs says whose answer can be read."""
        return self._first_read(self._urls, path, {200}, partial(self._json, wanted=wanted), deadline=deadline)

    def _first(
        self,
        bases: list[str],
        path: str,
        expect: set[int],
        hops: int,
        method: str = "GET",
        content: bytes | None = None,
        deadline: float | None = None,
    ) -> Response:
        """The first good answer; see :meth:`_first_read`."""
        return self._first_read(bases, path, expect, lambda answer: answer, hops, method, content, deadline)

    def _first_read(
        self,
        bases: list[str],
        path: str,
        expect: set[int],
        read: Callable[[Response], T],
        hops: int = 5,
        method: str = "GET",
        content: bytes | None = None,
        deadline: float | None = None,
        ends_at: Collection[int] = (),
    ) -> T:
        """What ``read`` makes of the first good answer. Brokers that failed the last time they were asked come last.

        What one broker answers makes that broker doubtful, and never the round: one that cannot be reached, answers 5xx
        or, to a GET, anything that was not foreseen or cannot be read, is passed over. A refused token, and a status of
        ``ends_at``, is told at once.
        """
        failures: list[AdminError] = []
        for number, base in enumerate(sorted(bases, key=self._failed.__contains__), start=1):
            try:
                url, others = base + path, number < len(bases)
                sent = self.http.send(method, url, hops=hops, content=content, deadline=deadline, others=others)
                answer = read(self._expected(sent, expect, method))
            except AdminError as error:
                if _ends_it(error, method) or error.status in ends_at:
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
        """The answer, of an expected status. Raises :class:`AdminError` for any other one.

        A 404 says that there is no such thing only where Pulsar gives its reason. A broker without the endpoint, and a
        proxy, send a page: then nothing is known, and unknown is never no.
        """
        expected = expect or {200}
        if answer.status == 404 and 404 in expected and not error_reason(answer):
            raise self._without_endpoint(answer, expected - {404}, method)
        if answer.status not in expected:
            raise self._unexpected(answer, expected, method)
        return answer

    def _without_endpoint(self, answer: Response, expect: set[int], method: str) -> AdminError:
        """The error for a 404 without a reason; where the broker is too old for lbd, this is the error."""
        version = self.http.send("GET", answer.base + paths.VERSION)
        too_old = ""
        if version.status == 200:
            too_old = unsupported_versions({url_address(answer.base): self._version(version)})
        return _TooOldError(too_old, status=404) if too_old else self._unexpected(answer, expect, method)

    @staticmethod
    def _version(answer: Response) -> str:
        return answer.shown(answer.body.decode("utf-8", errors="replace")).strip().strip('"')

    def _unexpected(self, answer: Response, expect: set[int], method: str = "GET") -> AdminError:
        wanted = "/".join(str(status) for status in sorted(expect))
        message = f"HTTP {answer.status}{error_reason(answer)}, wanted {wanted}{_advice(answer, self.settings)}"
        return AdminError(f"{method} {answer.shown(answer.url.partition('?')[0])}: {message}", status=answer.status)

    def _found(self, path: str, wanted: type[T]) -> T | None:
        """What any broker answers; None where it says that there is no such thing (404)."""
        return self._first_read(self._urls, path, {200, 404}, partial(self._json_or_none, wanted=wanted))

    def _found_since_5(self, path: str, wanted: type[T]) -> T | None:
        """The same of an endpoint that came with 5.0: brokers without it have no such thing."""
        read = partial(self._json_or_none, wanted=wanted)
        try:
            return self._first_read(self._urls, path, {200, 404}, read, ends_at={404})
        except AdminError as error:
            if error.status == 404:
                return None
            raise

    @property
    def trouble(self) -> str:
        """Which broker was passed over lately, and why; empty if none was."""
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

    def _json_or_none(self, answer: Response, wanted: type[T]) -> T | None:
        return None if answer.status == 404 else self._json(answer, wanted)

    @staticmethod
    def _json(answer: Response, wanted: type[T]) -> T:
        try:
            return msgspec.json.decode(printable_json(answer.body), type=wanted)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            begins = answer.shown(answer.body[:LOOKED_AT_BYTES].decode(errors="replace"))[:40]
            message = f"the answer cannot be read, it begins with {begins!r}: {answer.shown(str(error))}"
            where = answer.shown(answer.url.partition("?")[0])
            raise AdminError(f"GET {where}: {message}; is this a broker's web address?") from error


def _ends_it(error: AdminError, method: str) -> bool:
    """Whether no other broker is to be asked: the token or the version is refused, or what was to be changed is."""
    if isinstance(error, _TooOldError) or error.status in {401, 403}:
        return True
    return method != "GET" and error.status is not None and error.status < 500


_ADVERTISED = ": advertisedAddress of that broker is a host alone, its port is webServicePort"


def _check_id(broker: str, answer: Response) -> None:
    """Raises :class:`AdminError` for a broker that nobody could be: what answered so is no broker of a cluster."""
    if paths.host_port(broker) is None or not _HAS_PORT.search(broker):
        name, where = answer.shown(broker)[:40], answer.shown(answer.url.partition("?")[0])
        raise AdminError(f"GET {where}: the answer names {name!r} as a broker; wanted host:port{_ADVERTISED}")


def _ids(addresses: _Addresses) -> set[str]:
    """The ids that a broker with these addresses may have."""
    return {url_address(url) for url in (addresses.web_service_url, addresses.web_service_url_tls) if url}


def error_reason(answer: Response) -> str:
    """The ``reason`` of an error body, first line, cut short; nothing for HTML and empty bodies.

    All else is skipped, not built: garbage that is collected deep in a nested answer has no stack left to close a
    connection by.
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
"""What tells who owns a bundle: this broker, another one, nobody as there is no such bundle, nobody."""

ASSIGNED = {200, 404}
"""What :meth:`Admin.assign` is answered by the owner of the bundle: the schema, or that there is none."""

UNREACHABLE_OWNER = b" URL configured for broker "
"""In a 412 of 5.0 and newer: somebody owns the bundle, but has no address for the scheme or listener of the request
(``LookupResult.toRedirectUri``).
"""


class _LeaderBroker(msgspec.Struct, rename="camel"):
    service_url: str
    broker_id: str | None = None


class _FailOver(msgspec.Struct):
    parameters: dict[str, Any] | None = None


class _IsolationPolicy(msgspec.Struct):
    """What every isolation policy has; whether its patterns are understood is another question."""

    namespaces: list[str]
    primary: list[str]
    secondary: list[str] | None = None
    auto_failover_policy: _FailOver | None = None


class _Ownership(msgspec.Struct):
    is_active: bool = True


class _HashPositions(msgspec.Struct, rename="camel"):
    """What only the owner of a bundle answers, whatever a proxy on the way says with 200."""

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

    It was created or sealed at ``changed_at``, epoch seconds.
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
"""A ``long`` of Java; what is larger is no counter, and no float could hold it."""


class _MBeanMetrics(msgspec.Struct):
    """What lbd reads of the two beans that it looks for; a JVM that cannot tell says -1."""

    process_cpu_nanoseconds: _Counter = msgspec.field(name="ProcessCpuTime", default=-1)
    uptime_milliseconds: _Counter = msgspec.field(name="Uptime", default=-1)


class _MBean(msgspec.Struct):
    metrics: msgspec.Raw
    dimensions: _MBeanName = _MBeanName()


@dataclass(frozen=True)
class Leader:
    """The leader broker: its id where the version tells (3.0.3+), and where to reach it."""

    broker: str | None
    base: str


class Admin(AdminClient):
    """A cluster's admin API.

    ``deadline`` is a value of :func:`lbd.clock.boot_seconds`: all that a method asks has ended by then.
    """

    def leader(self, *, deadline: float | None = None) -> Leader | None:
        """The leader; None while there is none. A dead leader is still named for a session time-out.

        It is reached by its id if the version returns one: ``serviceUrl`` is https as soon as TLS ports are open.
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

        For as long as the answer is kept, its bytes count among those in flight.
        """
        answer = self._at(broker, paths.LOAD_REPORT, expect={200, 204, 500})
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
        """What the broker's own process has used of its CPU so far: a counter, whose differences are exact.

        Of the beans of its JVM (a tenth of a megabyte, however many topics there are). Raises :class:`AdminError` also
        where it has no such counter.
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
        """What overrides broker.conf on all brokers, as it was given: it need not be a value that brokers can read."""
        return self._read_any(paths.DYNAMIC_CONFIGURATION, dict[str, str])

    def set_dynamic(self, key: str, value: str) -> None:
        """Override broker.conf. Only ``runtime_configuration`` proves it: nonsense is stored and answered 200, too."""
        self._any(paths.dynamic(key, value), {200, 204}, method="POST")

    def delete_dynamic(self, key: str) -> None:
        """Take an override away; no error when there is none. 2.11 keeps running with its value until a restart."""
        self._any(paths.dynamic(key), {200, 204}, method="DELETE")

    def check_health(self, broker: str, *, timeout_seconds: float | None = None) -> None:
        """Have a broker check itself: it writes and reads a message on a topic of its own (BrokersBase).

        Raises :class:`AdminError` where it is not healthy, or does not answer in time (None: as every request).
        """
        url = self.base(broker) + paths.HEALTH
        self._expected(self.http.send("GET", url, timeout_seconds=timeout_seconds), None)

    def owned(self, broker: str) -> dict[str, bool]:
        """Bundles that the broker owns, each with whether it is active. Empty when the broker is no longer known.

        Not to be asked of a broker that may be taking bundles over: it can hang for good (see :meth:`owns`).
        """
        answer = self._at(broker, paths.owned_namespaces(self.cluster, broker), expect={200, 404})
        if answer.status == 404:
            return {}
        return {bundle: state.is_active for bundle, state in self._json(answer, dict[str, _Ownership]).items()}

    def owns(self, broker: str, bundle: str, *, deadline: float | None = None) -> bool:
        """Whether a broker answers that it owns a bundle, and is not unloading it.

        The request is for this bundle alone. A request for all (``ownedNamespaces``) while a broker takes over a bundle
        makes its only metadata thread wait for further bundles that it began to take meanwhile, which that same thread
        would have to finish (``NamespaceService.getOwnedNameSpacesStatusAsync``, 2.11 to 5.0.0-M1; it was seen to hang
        4.0.8 and 4.2.4).
        """
        url = self.base(broker) + paths.topic_hash_positions(bundle)
        answer = self.http.send("GET", url, hops=0, deadline=deadline)
        expected = self._expected(answer, OWNERSHIP_STATUSES)
        return expected.status == 200 and bundle.endswith(f"/{self._json(expected, _HashPositions).bundle}")

    def topics_in(self, broker: str, bundle: str) -> list[str] | None:
        """Full names of all topics of a bundle, also those that are not loaded; None where the broker has no such
        bundle.
        """
        url = self.base(broker) + paths.topic_hash_positions(bundle)
        answer = self._expected(self.http.send("GET", url, hops=0), OWNERSHIP_STATUSES)
        return list(self._json(answer, _HashPositions).topic_hash_positions) if answer.status == 200 else None

    def connected_since(self, broker: str, topic: str) -> list[str] | None:
        """When each producer and consumer of a persistent topic connected, as its broker tells it, as ISO dates.

        The broker loads the topic for this answer, as for a client, and fails where a client would. None where there is
        no such topic, or it is another broker's.
        """
        answer = self.http.send("GET", self.base(broker) + paths.topic_stats(topic), hops=0)
        if self._expected(answer, {200, 307, 404}).status != 200:
            return None
        users = self._json(answer, _TopicUsers)
        readers = [one for subscription in users.subscriptions.values() for one in subscription.consumers]
        return [one.connected_since or "" for one in (*users.publishers, *readers)]

    def boundaries(self, namespace: str) -> list[str] | None:
        """Where a namespace is cut, ``["0x00000000", ..., "0xffffffff"]``; None when there is no such namespace."""
        layout = self._found(paths.bundles(namespace), _Bundles)
        return None if layout is None else layout.boundaries

    def owner_base(self, bundle: str, *, deadline: float | None = None) -> str | None:
        """``scheme://host:port`` of the bundle's owner; None when nobody owns it (412) or it is gone (404).

        Raises :class:`AdminError` also where the owner has no address of the kind that is asked.
        Assigns nothing. Brokers are asked at their own addresses: a 200 means that the one who answers owns it, and an
        admin URL may be another name of a broker, or stand before several.
        """
        own = [self.base(broker) for broker in self._active or self.active_brokers(deadline=deadline)]
        answer = self._first(own, paths.topic_hash_positions(bundle), OWNERSHIP_STATUSES, hops=0, deadline=deadline)
        if answer.status == 412 and UNREACHABLE_OWNER in answer.body:
            why = answer.shown(answer.body[:LOOKED_AT_BYTES].decode(errors="replace"))[:200]
            raise AdminError(f"{answer.base} cannot say where the owner of {bundle} is reached: {why!r}")
        if answer.status in {404, 412}:
            return None
        return answer.base_of(answer.location) if answer.location else answer.base

    def ready(self, broker: str) -> bool:
        """Whether a broker says of itself that it is ready."""
        return self.ready_at(self.base(broker))

    def ready_at(self, base: str) -> bool:
        """Whether whoever is reached at a base URL answers that it is ready."""
        try:
            return self.http.send("GET", base + paths.READY).status == 200
        except AdminError:
            return False

    def version_at(self, base: str) -> str:
        """The version that whoever is reached at a base URL says it runs."""
        return self._version(self._expected(self.http.send("GET", base + paths.VERSION), None))

    def version_and_date(self, broker: str) -> tuple[str, str | None]:
        """The version that a broker runs, and the ``Date`` header of that answer: what its clock says, in seconds."""
        answer = self._at(broker, paths.VERSION)
        return self._version(answer), answer.date

    def isolation_policies(self) -> dict[str, Any]:
        """Namespace isolation policies by name; empty when there are none."""
        return self._first_read(self._urls, paths.isolation_policies(self.cluster), {200, 404}, self._policies)

    def _policies(self, answer: Response) -> dict[str, Any]:
        known = self._json_or_none(answer, dict[str, _IsolationPolicy])
        return {} if known is None else self._json(answer, dict[str, Any])

    def anti_affinity_group(self, namespace: str) -> str | None:
        """The anti-affinity group of a namespace, in lower case, as Pulsar compares them; None when it has none.

        Brokers send the text as it was given to them: quotes are part of a name that was set with quotes.
        """
        answer = self._any(paths.anti_affinity(namespace), expect={200, 204, 404})
        group = answer.shown(answer.body.decode(errors="replace").strip()).lower()
        return group if answer.status == 200 and group not in {"", "null"} else None

    def anti_affinity_namespaces(self, group: str, tenant: str) -> list[str]:
        """The namespaces of one tenant that belong to a group."""
        return self._read_any(paths.anti_affinity_namespaces(self.cluster, group, tenant), list[str])

    def namespace_properties(self, namespace: str) -> dict[str, str]:
        """Properties of a namespace; none where there is no such namespace.

        Since 2.8.0 (#10015). Admins of its tenant and superusers may read and set them (``NamespacesBase``).
        """
        return self._found(paths.properties(namespace), dict[str, str]) or {}

    def failure_domains(self) -> dict[str, str]:
        """The failure domain of each broker that is in one; nothing where the brokers do not look at domains."""
        if not is_on(self.runtime_configuration(), "failureDomainsEnabled"):
            return {}
        domains = self._found(paths.failure_domains(self.cluster), dict[str, _FailureDomain]) or {}
        return {broker: name for name, domain in sorted(domains.items()) for broker in domain.brokers}

    def unload(
        self,
        bundle: str,
        destination: str | None,
        at: str,
        *,
        begin_by: float | None = None,
        before_hop: Callable[[str], None] | None = None,
    ) -> Response:
        """Ask for an unload at the base URL ``at`` (the leader's); the caller judges the status, whatever it is.

        ``before_hop`` and ``begin_by`` are as in :meth:`~lbd.pulsar.http.Http.send`: they may stop what the leader
        sends on to the owner.
        """
        return self.http.send(
            "PUT",
            at + paths.unload(bundle),
            params={"destinationBroker": destination} if destination else {},
            timeout_seconds=self.settings.unload_timeout_seconds,
            begin_by=begin_by,
            before_hop=before_hop,
        )

    def topics(self, namespace: str) -> list[str]:
        """Full names of all topics of a namespace, partitions one by one, also those that no broker has loaded."""
        return self._read_any(paths.topics(namespace), list[str])

    def scalable_topics(self, namespace: str) -> list[str]:
        """Full names of the scalable topics of a namespace; none before 5.0."""
        return self._found_since_5(paths.scalable_topics(namespace), list[str]) or []

    def segments(self, topic: str) -> list[Segment] | None:
        """The segments of a scalable topic, in the order of their keys; None when there is no such topic."""
        scalable = self._found_since_5(paths.scalable_topic(topic), _ScalableTopic)
        if scalable is None:
            return None
        return [
            Segment(
                one.legacy_topic_name or segment_name(topic, one.hash_range.start, one.hash_range.end, one.segment_id),
                one.state == "ACTIVE",
                max(one.created_at_ms, one.sealed_at_ms) / 1000.0,
            )
            for one in sorted(scalable.segments.values(), key=lambda one: (one.hash_range.start, one.segment_id))
        ]

    def topic_stats(self, broker: str) -> dict[str, dict[str, dict[str, dict[str, TopicStats]]]]:
        """Rates of the topics that a broker has loaded, up to a statistics interval old.

        By namespace, bundle range, ``persistent`` or ``non-persistent``, and full topic name.
        """
        return self._json(self._at(broker, paths.TOPIC_STATS), dict[str, dict[str, dict[str, dict[str, TopicStats]]]])

    def split(
        self,
        bundle: str,
        algorithm: str,
        positions: Sequence[int] | None,
        at: str,
        *,
        begin_by: float | None = None,
        before_hop: Callable[[str], None] | None = None,
    ) -> Response:
        """Ask for a split at the base URL ``at`` (the owner's); the caller judges the status, whatever it is.

        204 is no proof: a broker that finds nothing to cut answers so, too. The parts stay with the owner. A bundle
        that nobody owns is placed by the leader first.
        """
        params = {"unload": "false", "splitAlgorithmName": algorithm}
        content = msgspec.json.encode(positions) if positions is not None else None
        url = at + paths.split(bundle)
        return self.http.send("PUT", url, params=params, content=content, before_hop=before_hop, begin_by=begin_by)

    def topic_in(self, bundle: str, at: str) -> str:
        """The full name of a made-up topic that the broker at ``at`` puts into the bundle; nothing is assigned by it.

        The broker is asked, as the rule is a setting of its own. Raises :class:`AdminError` where none of the names
        falls into the bundle.
        """
        for topic in paths.made_up_topics(bundle):
            answer = self._expected(self.http.send("GET", at + paths.bundle_of(topic), hops=0), None)
            if answer.body.decode(errors="replace").strip().strip('"') == bundle_range(bundle):
                return topic
        raise AdminError(
            f"{at} puts none of {paths.NAMES_TRIED} topics into {bundle} (topicBundleAssignmentStrategy of this "
            "broker), so lbd could not have a broker take it"
        )

    def assign(
        self, topic: str, at: str, *, authoritative: bool, hops: int = MAX_HOPS, deadline: float | None = None
    ) -> Response:
        """Have the topic's bundle assigned if nobody owns it: by the leader, or, authoritative, to the broker asked.

        The request is for the schema of a persistent topic, which a broker looks for only once it owns the topic's
        bundle: an answer of :data:`ASSIGNED` says that it is done. It needs no topic to exist and loads none, whatever
        the brokers' settings are. Without ``hops`` the leader uses up its note of a destination and nobody takes the
        bundle, unless the leader itself does.
        """
        params = {"authoritative": "true"} if authoritative else {}
        return self.http.send("GET", at + paths.schema(topic), params=params, hops=hops, deadline=deadline)


MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"


def unsupported(broker: str, manager: str) -> str:
    """What to say of a cluster whose load manager lbd cannot work with."""
    return (
        f"{broker} runs {manager}, which lbd does not support yet; "
        f"set loadManagerClassName={MODULAR} in broker.conf, or let that manager balance by itself"
    )


def unsupported_versions(versions: Mapping[str, str]) -> str:
    """Why lbd does nothing on a cluster with brokers of these versions, by broker; empty where it supports them all.

    The one refusal of an old version, for turns, commands and ``lbd doctor`` alike. A version that is not known, empty
    or no number, is not refused by itself: such a broker shows it by lacking the endpoint.
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
    """The id of the broker that is reached at a base URL; None when it is none of them."""
    for broker in brokers:
        if bases.get(broker, f"http://{broker}").lower() == base.lower():
            return broker
    same_host = [broker for broker in brokers if url_host(broker) == url_host(base)]
    return same_host[0] if len(same_host) == 1 else None
