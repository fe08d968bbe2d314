"""Pulsar's admin REST API, as far as lbd uses it: one method per question, answers checked and translated.

Paths, side effects and status codes as proven on 2.11.0 to 5.0.0-M1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from lbd.errors import AdminError, ObserveError
from lbd.pulsar import paths
from lbd.pulsar.http import Answer, Http, address_of, base_of, host_of

if TYPE_CHECKING:
    from lbd.pulsar.settings import PulsarSettings


Found = TypeVar("Found")


class _LeaderBroker(msgspec.Struct, rename="camel"):
    service_url: str
    broker_id: str | None = None


class _Addresses(msgspec.Struct, rename="camel"):
    web_service_url: str | None = None
    web_service_url_tls: str | None = None


class _Ownership(msgspec.Struct):
    is_active: bool = True


@dataclass(frozen=True)
class Leader:
    """The leader broker: its id where the version tells (3.0.3+), and where to reach it."""

    broker: str | None
    base: str


class Admin:
    """A cluster's admin API, asked at the first of ``admin_urls`` that answers."""

    def __init__(self, settings: PulsarSettings) -> None:
        self.settings = settings
        self.http = Http(settings)
        self._urls = list(settings.admin_urls)
        self._secure = self._urls[0].startswith("https:")
        self._cluster = settings.cluster
        self._active: list[str] = []
        self._failed: set[str] = set()
        self._bases: dict[str, str] = {}

    @property
    def cluster(self) -> str:
        """The cluster's name: the configured one, else what the broker that answers says of itself."""
        if self._cluster is None:
            self._cluster = self.runtime_configuration().get("clusterName") or self._only_cluster()
        return self._cluster

    def _only_cluster(self) -> str:
        names = [name for name in self._json(self._any(paths.CLUSTERS), list[str]) if name != "global"]
        if len(names) != 1:
            raise ObserveError(f"pulsar.cluster is not set and the brokers know {names}; set it to one of them")
        return names[0]

    def active_brokers(self) -> list[str]:
        """Ids (``host:webPort``) of all active brokers, sorted; from now on their hosts are trusted."""
        found = sorted(self._json(self._any(paths.brokers(self.cluster)), list[str]))
        self.http.trust({host_of(broker) for broker in found})
        self._active = found
        self._bases = {broker: base for broker, base in list(self._bases.items()) if broker in found}
        return found

    def leader(self) -> Leader | None:
        """Who leads; None while nobody does. A dead leader is still named for a session time-out.

        It is reached by its id where the version tells it: ``serviceUrl`` is https as soon as TLS ports are open.
        """
        answer = self._any(paths.LEADER, expect={200, 404})
        if answer.status == 404:
            return None
        found = self._json(answer, _LeaderBroker)
        return Leader(found.broker_id, self.base(found.broker_id) if found.broker_id else base_of(found.service_url))

    def load_report(self, broker: str) -> bytes:
        """The broker's live load report, unparsed. 204 (no load manager) and 500 (extensible) are translated."""
        answer = self._at(broker, paths.LOAD_REPORT, expect={200, 204, 500})
        if answer.status == 204:
            raise ObserveError(
                f"{broker} answers no load report (204): loadManagerClassName is NoopLoadManager, wanted {MODULAR}"
            )
        if answer.status == 500 and b"UnsupportedOperation" in answer.body:
            raise ObserveError(unsupported(broker, "the extensible load manager"))
        if answer.status == 500:
            raise self._unexpected(answer, {200})
        return answer.body

    def runtime_configuration(self, broker: str | None = None) -> dict[str, str]:
        """Effective configuration of one broker (None: of the one that answers)."""
        path = paths.RUNTIME_CONFIGURATION
        answer = self._any(path) if broker is None else self._at(broker, path)
        return {key: value for key, value in self._json(answer, dict[str, str | None]).items() if value is not None}

    def dynamic_configuration(self) -> dict[str, str]:
        """What overrides broker.conf on all brokers, as it was given: it need not be a value that brokers can read."""
        return self._json(self._any(paths.DYNAMIC_CONFIGURATION), dict[str, str])

    def set_dynamic(self, key: str, value: str) -> None:
        """Override broker.conf. Only ``runtime_configuration`` proves it: nonsense is stored and answered 200, too."""
        self._any(paths.dynamic(key, value), {200, 204}, method="POST")

    def delete_dynamic(self, key: str) -> None:
        """Take an override away; no error when there is none. 2.11 keeps running with its value until a restart."""
        self._any(paths.dynamic(key), {200, 204}, method="DELETE")

    def owned(self, broker: str) -> dict[str, bool]:
        """Bundles that the broker owns, each with whether it is active. Empty when the broker is no longer known."""
        answer = self._at(broker, paths.owned_namespaces(self.cluster, broker), expect={200, 404})
        if answer.status == 404:
            return {}
        return {bundle: state.is_active for bundle, state in self._json(answer, dict[str, _Ownership]).items()}

    def owner_base(self, bundle: str) -> str | None:
        """``scheme://host:port`` of the bundle's owner; None when nobody owns it (412) or it is gone (404).

        Assigns nothing. Brokers are asked at their own addresses: a 200 means that the one who answers owns it, and an
        admin URL may be another name of a broker, or stand before several.
        """
        own = [self.base(broker) for broker in self._active or self.active_brokers()]
        answer = self._first(own, paths.topic_hash_positions(bundle), {200, 307, 404, 412}, hops=0)
        if answer.status in {404, 412}:
            return None
        return base_of(answer.location) if answer.location else answer.base

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
        answer = self._expected(self.http.send("GET", base + paths.VERSION), None)
        return answer.body.decode("utf-8", errors="replace").strip().strip('"')

    def isolation_policies(self) -> dict[str, Any]:
        """Namespace isolation policies by name; empty when there are none."""
        answer = self._any(paths.isolation_policies(self.cluster), expect={200, 404})
        return {} if answer.status == 404 else self._json(answer, dict[str, Any])

    def anti_affinity_group(self, namespace: str) -> str | None:
        """The anti-affinity group of a namespace, a JSON string or bare text; None when it has none (204 or 404)."""
        answer = self._any(paths.anti_affinity(namespace), expect={200, 204, 404})
        group = answer.body.decode(errors="replace").strip().strip('"')
        return group if answer.status == 200 and group not in {"", "null"} else None

    def unload(self, bundle: str, destination: str | None, at: str) -> Answer:
        """Ask for an unload at the base URL ``at`` (the leader's); the caller judges the status, whatever it is."""
        params = {"destinationBroker": destination} if destination else {}
        timeout = self.settings.unload_timeout_seconds
        return self.http.send("PUT", at + paths.unload(bundle), params=params, timeout_seconds=timeout)

    def note(self, bundle: str, broker: str, at: str) -> bool:
        """Have the leader at ``at`` note ``broker`` for a bundle that it does not own itself; nothing is unloaded.

        It notes the destination before it sends the request on to the owner, and here nobody follows it there. Never to
        be asked of a leader that owns the bundle: it would unload.
        """
        params = {"destinationBroker": broker}
        return self.http.send("PUT", at + paths.unload(bundle), params=params, hops=0).status == 307

    def look_up(self, bundle: str, at: str, *, authoritative: bool) -> Answer:
        """Look up a made-up topic of the bundle: the leader assigns it, or, authoritative, who is asked takes it."""
        params = {"authoritative": "true"} if authoritative else {}
        return self.http.send("GET", at + paths.lookup(bundle), params=params)

    def base(self, broker: str) -> str:
        """Where to reach a broker. Over https its id still has the plain port, so the address is asked for once."""
        if not self._secure:
            return f"http://{broker}"
        if broker not in self._bases:
            self._bases[broker] = self._secure_base(broker)
        return self._bases[broker]

    def _secure_base(self, broker: str) -> str:
        answer = self._any(paths.owned_namespaces(self.cluster, broker), expect={200, 307}, hops=0)
        base = base_of(answer.location) if answer.location else self._own_base(broker, answer.base)
        if not base.startswith("https:"):
            raise ObserveError(f"{broker} is reached at {base}, wanted https: a token is not sent in the clear")
        return base

    def _own_base(self, broker: str, base: str) -> str:
        """The https address that a broker gives itself; ``base`` answered for it, and may stand before several."""
        report = self._json(self._expected(self.http.send("GET", base + paths.LOAD_REPORT), None), _Addresses)
        if broker not in {address_of(url) for url in (report.web_service_url, report.web_service_url_tls) if url}:
            raise ObserveError(
                f"{base} stands before several brokers; pulsar.admin_urls wants the brokers' own addresses"
            )
        return base_of(report.web_service_url_tls) if report.web_service_url_tls else base

    def _at(self, broker: str, path: str, expect: set[int] | None = None) -> Answer:
        return self._expected(self.http.send("GET", self.base(broker) + path), expect)

    def _any(self, path: str, expect: set[int] | None = None, hops: int = 5, method: str = "GET") -> Answer:
        """Ask the admin URLs in turn until one answers."""
        return self._first(self._urls, path, expect or {200}, hops, method)

    def _first(self, bases: list[str], path: str, expect: set[int], hops: int, method: str = "GET") -> Answer:
        """The first good answer, in the order given, but those that failed the last time they were asked come last.

        A broker that cannot be reached, or answers 5xx, is passed over.
        """
        failures: list[AdminError] = []
        for base in sorted(bases, key=self._failed.__contains__):
            try:
                answer = self._expected(self.http.send(method, base + path, hops=hops), expect, method)
            except AdminError as error:
                if error.status is not None and error.status < 500:
                    raise
                self._failed.add(base)
                failures.append(error)
            else:
                self._failed.discard(base)
                return answer
        if len(failures) == 1:
            raise failures[0]
        status = failures[0].status if failures else None
        raise AdminError("; ".join(str(error) for error in failures) or "no broker to ask", status=status)

    def _expected(self, answer: Answer, expect: set[int] | None, method: str = "GET") -> Answer:
        if answer.status not in (expect or {200}):
            raise self._unexpected(answer, expect or {200}, method)
        return answer

    def _unexpected(self, answer: Answer, expect: set[int], method: str = "GET") -> AdminError:
        wanted = "/".join(str(status) for status in sorted(expect))
        told = f"HTTP {answer.status}{reason_of(answer)}, wanted {wanted}{_advice(answer.status)}"
        return AdminError(f"{method} {answer.url.partition('?')[0]}: {told}", status=answer.status)

    @staticmethod
    def _json(answer: Answer, wanted: type[Found]) -> Found:
        try:
            return msgspec.json.decode(answer.body, type=wanted)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            begins = f"the answer cannot be read, it begins with {answer.body[:40]!r}: {error}"
            raise AdminError(f"GET {answer.url}: {begins}; is this a broker's web address?") from error


MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"


def unsupported(broker: str, manager: str) -> str:
    """What to say of a cluster whose load manager lbd cannot work with."""
    return (
        f"{broker} runs {manager}, which lbd does not support yet; "
        f"set loadManagerClassName={MODULAR} in broker.conf, or let that manager balance by itself"
    )


def reason_of(answer: Answer) -> str:
    """The ``reason`` of an error body, first line, cut short; nothing for HTML and empty bodies."""
    try:
        found = msgspec.json.decode(answer.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    reason = found.get("reason") if isinstance(found, dict) else None
    if not isinstance(reason, str):
        return ""
    lines = [line.strip() for line in reason.splitlines() if line.strip() and not line.strip().startswith("---")]
    return f" ({lines[0][:200]})" if lines else ""


def _advice(status: int) -> str:
    if status in {401, 403}:
        return "; the token is missing, wrong, or not a superuser's (pulsar.token_file)"
    return "; brokers take this setting only from broker.conf, with a restart" if status == 412 else ""


def broker_of(base: str, brokers: list[str], bases: dict[str, str]) -> str | None:
    """The id of the broker that is reached at a base URL; None when it is none of them."""
    for broker in brokers:
        if bases.get(broker, f"http://{broker}").lower() == base.lower():
            return broker
    same_host = [broker for broker in brokers if host_of(broker) == host_of(base)]
    return same_host[0] if len(same_host) == 1 else None
