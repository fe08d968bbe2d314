"""What fake brokers answer to each request of the admin API that lbd makes, as brokers of 4.0.8 do.

Paths and codes were read off real brokers; ``tests/e2e/test_agreement.py`` asks both the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lbd.simulate.fake_pulsar import reports
from lbd.simulate.fake_pulsar.bundles import Bundles
from lbd.simulate.fake_pulsar.faults import LOAD_REPORT, Fault
from lbd.simulate.fake_pulsar.http import Reply, Request, ok, page, refused, text
from lbd.simulate.fake_pulsar.splits import Splits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lbd.simulate.fake_pulsar.book import Book
    from lbd.simulate.fake_pulsar.configuration import Configuration
    from lbd.simulate.fake_pulsar.policies import Policies

    Handler = Callable[..., Reply]


class Answers:
    """Answers for all brokers of one cluster. Not thread-safe. ``begun_at`` is when the run began, epoch seconds."""

    def __init__(self, book: Book, configuration: Configuration, policies: Policies, begun_at: float) -> None:
        self._book, self._begun_at = book, begun_at
        self._configuration, self._policies = configuration, policies
        self._frozen: dict[str, Any] = {}
        self._routes = [(method, _pattern(path), handler) for method, path, handler in self._table(Bundles(book))]

    def __call__(self, asked: Request) -> Reply:
        """The usual answer. Raises :class:`~lbd.simulate.fake_pulsar.bundles.Closing` for an unload that has begun."""
        found = [(method, match, handler) for method, path, handler in self._routes if (match := path(asked.path))]
        for method, match, handler in found:
            if method == asked.method:
                return handler(asked, *match.groups())
        return page(405 if found else 404)

    def _table(self, bundles: Bundles) -> Iterable[tuple[str, str, Handler]]:
        configuration, bundle = "/admin/v2/brokers/configuration", "/admin/v2/namespaces/{}/{}/{}"
        splits = Splits(self._book, bundles)
        yield "GET", f"{configuration}/runtime", self._running
        yield "GET", f"{configuration}/values", lambda _: ok(self._configuration.overrides)
        yield "POST", f"{configuration}/{{}}/{{}}", self._override
        yield "DELETE", f"{configuration}/{{}}", self._delete
        yield "GET", "/admin/v2/brokers/ready", lambda _: text("ok")
        yield "GET", "/admin/v2/brokers/health", lambda _: text("ok")
        yield "GET", "/admin/v2/brokers/version", lambda _: text(self._book.version)
        yield "GET", "/admin/v2/brokers/leaderBroker", self._leader
        yield "GET", "/admin/v2/brokers", self._listed
        yield "GET", "/admin/v2/brokers/{}", self._listed
        yield "GET", "/admin/v2/brokers/{}/{}/ownedNamespaces", self._owned
        yield "GET", "/admin/v2/broker-stats/load-report", self._load_report
        yield "GET", "/admin/v2/broker-stats/topics", self._topics
        yield "GET", "/admin/v2/clusters", lambda _: ok([self._configuration.cluster])
        yield "GET", "/admin/v2/clusters/{}/failureDomains", self._domains
        yield "GET", "/admin/v2/clusters/{}/namespaceIsolationPolicies", self._isolation
        yield "GET", "/admin/v2/namespaces/{}/antiAffinity/{}", self._members
        yield "GET", "/admin/v2/namespaces/{}/{}/antiAffinity", self._group
        yield "GET", "/admin/v2/namespaces/{}/{}/bundles", bundles.boundaries
        yield "GET", "/admin/v2/namespaces/{}/{}/topics", bundles.topics
        yield "GET", f"{bundle}/topicHashPositions", bundles.positions
        yield "PUT", f"{bundle}/split", splits.split
        yield "PUT", f"{bundle}/unload", bundles.unload
        yield "GET", "/lookup/v2/topic/{}/{}/{}/{}", bundles.look_up

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

    def _owned(self, asked: Request, cluster: str, broker: str) -> Reply:
        del cluster
        if broker not in self._book.listed:
            return refused(404, f"Broker id '{broker}' not found in available brokers.")
        if broker != asked.broker:
            return Reply(307, location=f"http://{broker}{asked.path}")
        shared = {"broker_assignment": "shared", "is_controlled": False}
        mine = [*reports.heartbeats(self._configuration.cluster, broker), *self._book.owned(broker)]
        return ok({bundle: {**shared, "is_active": bundle not in self._book.closing} for bundle in mine})

    def _load_report(self, asked: Request) -> Reply:
        """What a broker says of its load, faults included."""
        faults, broker = self._book.faults, asked.broker
        frozen = faults.take(Fault.FROZEN_REPORT, broker, LOAD_REPORT) is not None
        if not (frozen and broker in self._frozen):
            self._frozen[broker] = self._report(broker)
        found = self._frozen[broker]
        return ok(reports.of_nan(found) if faults.take(Fault.NAN, broker, LOAD_REPORT) else found)

    def _topics(self, asked: Request) -> Reply:
        return ok(reports.topic_stats(self._book, self._book.brokers[asked.broker]))

    def _report(self, broker: str) -> dict[str, Any]:
        skew = self._book.faults.take(Fault.CLOCK_SKEW, broker)
        begun_at = self._begun_at + (0.0 if skew is None else skew.seconds)
        return reports.load_report(self._book, self._book.brokers[broker], self._configuration.cluster, begun_at)

    def _running(self, asked: Request) -> Reply:
        return ok(self._configuration.running(asked.broker))

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

    def _members(self, asked: Request, cluster: str, group: str) -> Reply:
        del cluster
        own, groups = f"{asked.query.get('tenant', '')}/", self._policies.groups
        return ok([name for name, one in groups.items() if one.lower() == group and name.startswith(own)])


def _pattern(path: str) -> Callable[[str], re.Match[str] | None]:
    """What matches a path in which ``{}`` stands for one part."""
    return re.compile("([^/]+)".join(map(re.escape, path.split("{}")))).fullmatch
