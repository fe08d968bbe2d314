"""What a fake broker answers to each request of the admin API that lbd makes, as brokers of 4.0.8 do.

Paths, codes and redirects were read off real brokers; ``tests/e2e/test_agreement.py`` asks both the same.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from lbd.model import bundle_namespace
from lbd.pulsar.paths import bounds, knows_destinations
from lbd.simulate.fake_pulsar import reports
from lbd.simulate.fake_pulsar.faults import Fault
from lbd.simulate.fake_pulsar.http import Reply, Request, crash, ok, page, refused, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.simulate.fake_pulsar.book import Book
    from lbd.simulate.fake_pulsar.configuration import Configuration

NOT_FOUND = "Namespace not found"


@dataclass
class Policies:
    """What operators have set. Change it at any time.

    ``isolation``: policies by name, as JSON; ``groups``: anti-affinity group by namespace; ``domains``: brokers by
    failure domain.
    """

    isolation: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    domains: dict[str, list[str]] = field(default_factory=dict)


class Closing(Exception):  # noqa: N818 - no error, an unload under way
    """The owner closes the bundle's topics, which takes a moment, and lets go of it then."""

    def __init__(self, bundle: str) -> None:
        super().__init__(bundle)
        self.bundle = bundle


class Answers:
    """Answers for all brokers of one cluster. Not thread-safe."""

    def __init__(
        self, book: Book, cluster: str, configuration: Configuration, policies: Policies, begun_at: float
    ) -> None:
        self._book, self._cluster, self._begun_at = book, cluster, begun_at
        self._configuration, self._policies = configuration, policies
        self._ranges = _ranges(book.world.bundles)
        self._frozen: dict[str, Any] = {}

    def __call__(self, asked: Request) -> Reply:
        """The usual answer. Raises :class:`Closing` for an unload that the broker has begun."""
        match asked.method, asked.path.strip("/").split("/"):
            case method, ["admin", "v2", "brokers", *rest]:
                return self._brokers(asked, method, rest)
            case "GET", ["admin", "v2", "broker-stats", "load-report"]:
                return ok(self.load_report(asked.broker))
            case "GET", ["admin", "v2", "clusters", *rest]:
                return self._clusters(rest)
            case method, ["admin", "v2", "namespaces", tenant, namespace, bundle, what]:
                return self._bundle(asked, method, f"{tenant}/{namespace}/{bundle}", what)
            case "GET", ["admin", "v2", "namespaces", *rest]:
                return self._namespaces(asked, rest)
            case "GET", ["lookup", "v2", "topic", domain, tenant, namespace, topic]:
                return self._look_up(asked, domain, f"{tenant}/{namespace}", topic)
        return page(404)

    # -- brokers

    def _brokers(self, asked: Request, method: str, rest: list[str]) -> Reply:
        match method, rest:
            case "GET", ["ready"]:
                return text("ok")
            case "GET", ["health"]:
                return text("ok")
            case "GET", ["version"]:
                return text(self._book.version)
            case "GET", ["leaderBroker"]:
                return self._leader()
            case _, ["configuration", *keys]:
                return self._configured(asked, method, keys)
            case "GET", [] | [_]:
                return ok(self._book.listed[::-1])
            case "GET", [_, broker, "ownedNamespaces"]:
                return self._owned(asked, broker)
        return page(404)

    def _leader(self) -> Reply:
        leader = self._book.leader
        if leader is None:
            return refused(404, "Couldn't find leader broker")
        return ok({"serviceUrl": f"http://{leader}", "brokerId": leader})

    def _owned(self, asked: Request, broker: str) -> Reply:
        if broker not in self._book.listed:
            return refused(404, f"Broker id '{broker}' not found in available brokers.")
        if broker != asked.broker:
            return Reply(307, location=f"http://{broker}{asked.path}")
        mine = [*reports.heartbeats(self._cluster, broker), *self._book.owned(broker)]
        shared = {"broker_assignment": "shared", "is_controlled": False}
        return ok({bundle: {**shared, "is_active": bundle not in self._book.closing} for bundle in mine})

    def load_report(self, broker: str) -> Any:  # noqa: ANN401 - JSON
        """What a broker says of its load, faults included."""
        faults, path = self._book.faults, "/admin/v2/broker-stats/load-report"
        if faults.take(Fault.FROZEN_REPORT, broker, path) is None:
            self._frozen.pop(broker, None)
        elif broker in self._frozen:
            return self._frozen[broker]
        skew = faults.take(Fault.CLOCK_SKEW, broker)
        ahead = 0.0 if skew is None else skew.seconds
        found: Any = reports.load_report(self._book, self._book.brokers[broker], self._cluster, self._begun_at, ahead)
        if faults.take(Fault.NAN, broker, path) is not None:
            found = reports.of_nan(found)
        self._frozen[broker] = found
        return found

    def _configured(self, asked: Request, method: str, keys: list[str]) -> Reply:
        match method, keys:
            case "GET", ["runtime"]:
                return ok(self._configuration.running(asked.broker))
            case "GET", ["values"]:
                return ok(self._configuration.overrides)
            case "POST", [key, value] if self._configuration.dynamic(key):
                self._configuration.overrides[key] = value
                return Reply(200)
            case "DELETE", [key] if self._configuration.dynamic(key):
                self._configuration.delete(key)
                return Reply(200)
            case "POST", [_, _]:
                return refused(412, "Can't update non-dynamic configuration")
            case "DELETE", [_]:
                return refused(412, "Can't delete non-dynamic configuration")
        return page(404)

    # -- clusters and namespaces

    def _clusters(self, rest: list[str]) -> Reply:
        match rest:
            case []:
                return ok([self._cluster])
            case [_, "failureDomains"]:
                return ok({name: {"brokers": brokers} for name, brokers in self._policies.domains.items()})
            case [_, "namespaceIsolationPolicies"]:
                return ok(self._policies.isolation)
        return page(404)

    def _namespaces(self, asked: Request, rest: list[str]) -> Reply:
        groups = self._policies.groups
        match rest:
            case [tenant, namespace, "bundles"]:
                return self._boundaries(f"{tenant}/{namespace}")
            case [_, "antiAffinity", group]:
                own = f"{asked.query.get('tenant', '')}/"
                return ok([name for name, one in groups.items() if one.lower() == group and name.startswith(own)])
            case [tenant, namespace, "antiAffinity"]:
                group = groups.get(f"{tenant}/{namespace}")
                return Reply(204) if group is None else Reply(200, group.encode())
        return page(404)

    def _boundaries(self, namespace: str) -> Reply:
        if namespace not in self._ranges:
            return refused(404, NOT_FOUND)
        starts, bundles = self._ranges[namespace]
        last = bundles[-1].rpartition("_")[2]
        return ok({"boundaries": [*(f"0x{start:08x}" for start in starts), last], "numBundles": len(bundles)})

    # -- bundles

    def _bundle(self, asked: Request, method: str, bundle: str, what: str) -> Reply:
        if what not in {"unload", "topicHashPositions"}:
            return page(404)
        if method != ("PUT" if what == "unload" else "GET"):
            return page(405)
        if what == "unload":
            return self._unload(asked, bundle)
        wrong = self._unknown(bundle)
        return wrong if wrong is not None else self._positions(asked, bundle)

    def _unknown(self, bundle: str) -> Reply | None:
        """Why it is no bundle of this cluster."""
        namespace, span = bundle_namespace(bundle), bundle.rpartition("/")[2]
        if namespace not in self._ranges:
            return refused(404, NOT_FOUND)
        ends = span.split("_")
        if len(ends) != 2:
            return crash("Invalid bundle range")
        for end in ends:
            try:
                int(end, 16)
            except ValueError:
                return crash(f'For input string: "{end.removeprefix("0x")}"')
        known = bundle in self._book.bundles
        return None if known else refused(412, f"Cannot find bundle {bundle} in the bundles list")

    def _positions(self, asked: Request, bundle: str) -> Reply:
        owner = self._book.owner(bundle)
        if owner is None:
            return refused(412, f"Failed to find ownership for ServiceUnit:{bundle}")
        if owner != asked.broker:
            return _elsewhere(owner, asked, authoritative="false")
        return ok({"namespace": bundle_namespace(bundle), "bundle": bundle.rpartition("/")[2], "hashPositions": {}})

    def _unload(self, asked: Request, bundle: str) -> Reply:
        """The leader notes the destination before it looks at anything else; the owner closes the bundle."""
        book, destination = self._book, asked.query.get("destinationBroker")
        if destination is not None and knows_destinations(book.version):
            destination = destination.removeprefix("http://").removeprefix("https://")
            if destination not in book.listed:
                return refused(409, "Not allowed unload namespace bundle to inactive destination broker")
            if book.leader is None:
                return refused(412, "Couldn't find leader broker")
            if asked.broker != book.leader:
                return _elsewhere(book.leader, asked, destinationBroker=destination, authoritative="false")
            book.note(bundle, destination)
        wrong = self._unknown(bundle)
        if wrong is not None:
            return wrong
        owner = book.owner(bundle)
        if owner is None:
            return Reply(204)
        return self._close(bundle) if owner == asked.broker else _elsewhere(owner, asked, authoritative="true")

    def _close(self, bundle: str) -> Reply:
        if bundle in self._book.closing:
            return crash(f"Namespace bundle {bundle} is not active")
        self._book.closing.add(bundle)
        raise Closing(bundle)

    def _look_up(self, asked: Request, domain: str, namespace: str, topic: str) -> Reply:
        """A bundle that nobody owns is placed by the leader, or taken by whoever is asked authoritatively."""
        book, bundle = self._book, self._bundle_of(namespace, f"{domain}://{namespace}/{topic}")
        if bundle is None:
            return refused(404, NOT_FOUND)
        if bundle in book.closing:
            return crash(f"Namespace bundle {bundle} is being unloaded")
        if book.owner(bundle) is None:
            chosen = asked.broker
            if asked.query.get("authoritative") != "true":
                if book.leader is None:
                    return page(503)
                if asked.broker != book.leader:
                    return _elsewhere(book.leader, asked, authoritative="false")
                chosen = book.place(bundle) or asked.broker
            if chosen != asked.broker:
                return _elsewhere(chosen, asked, authoritative="true")
            book.acquire(bundle, chosen)
        return ok(_found(book.owner(bundle) or asked.broker))

    def _bundle_of(self, namespace: str, topic: str) -> str | None:
        starts, bundles = self._ranges.get(namespace, ((), ()))
        at = bisect_right(starts, zlib.crc32(topic.encode())) - 1
        return bundles[at] if at >= 0 else None


def _ranges(bundles: Sequence[str]) -> dict[str, tuple[list[int], list[str]]]:
    """The bundles of each namespace and their lower ends, in order."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for bundle in bundles:
        found[bundle_namespace(bundle)].append((bounds(bundle)[0], bundle))
    return {
        namespace: ([start for start, _ in sorted(ones)], [bundle for _, bundle in sorted(ones)])
        for namespace, ones in found.items()
    }


def _elsewhere(broker: str, asked: Request, **query: str) -> Reply:
    return Reply(307, location=f"http://{broker}{asked.path}?{urlencode(query)}")


def _found(broker: str) -> dict[str, str]:
    return {
        "brokerUrl": f"pulsar://{broker}",
        "httpUrl": f"http://{broker}",
        "nativeUrl": f"pulsar://{broker}",
        "brokerUrlSsl": "",
    }
