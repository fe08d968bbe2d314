"""Pulsar's admin REST API, as far as lbd uses it: one method per question, answers checked and translated.

Paths, side effects and status codes as proven on 2.11.0 to 5.0.0-M1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.errors import AdminError, ObserveError
from lbd.pulsar import paths
from lbd.pulsar.asking import Asking
from lbd.pulsar.http import base_of, host_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.pulsar.http import Answer


OWNERSHIP_TOLD = {200, 307, 404, 412}
"""What tells who owns a bundle: this broker, another one, nobody as there is no such bundle, nobody."""


class _LeaderBroker(msgspec.Struct, rename="camel"):
    service_url: str
    broker_id: str | None = None


class _Ownership(msgspec.Struct):
    is_active: bool = True


class _HashPositions(msgspec.Struct):
    """What only the owner of a bundle answers, whatever a proxy on the way says with 200."""

    bundle: str


class _Bundles(msgspec.Struct):
    boundaries: list[str]


class _FailureDomain(msgspec.Struct):
    brokers: list[str] = []


class TopicStats(msgspec.Struct, frozen=True, rename="camel"):
    """Rates of one topic, messages/s and bytes/s; the broker cuts them to three decimals."""

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0


@dataclass(frozen=True)
class Leader:
    """The leader broker: its id where the version tells (3.0.3+), and where to reach it."""

    broker: str | None
    base: str


class Admin(Asking):
    """A cluster's admin API."""

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
            raise ObserveError(f"{broker} runs the extensible load manager, and others the modular one")
        if answer.status == 500:
            raise self._unexpected(answer, {200})
        return answer.body

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
        """Bundles that the broker owns, each with whether it is active. Empty when the broker is no longer known.

        Not to be asked of a broker that may be taking bundles over: it can hang for good (see :meth:`owns`).
        """
        answer = self._at(broker, paths.owned_namespaces(self.cluster, broker), expect={200, 404})
        if answer.status == 404:
            return {}
        return {bundle: state.is_active for bundle, state in self._json(answer, dict[str, _Ownership]).items()}

    def owns(self, broker: str, bundle: str) -> bool:
        """Whether a broker says of itself that it owns a bundle, and is not letting it go.

        Asked for this bundle alone: who asks for all (``ownedNamespaces``) while a broker takes one bundle over has it
        wait, in its only metadata thread, for those that it began to take meanwhile, which that same thread would have
        to finish (``NamespaceService.getOwnedNameSpacesStatusAsync``, 2.11 to 5.0.0-M1; seen to hang 4.0.8 and 4.2.4).
        """
        answer = self.http.send("GET", self.base(broker) + paths.topic_hash_positions(bundle), hops=0)
        told = self._expected(answer, OWNERSHIP_TOLD)
        return told.status == 200 and bundle.endswith(f"/{self._json(told, _HashPositions).bundle}")

    def boundaries(self, namespace: str) -> list[str] | None:
        """Where a namespace is cut, ``["0x00000000", ..., "0xffffffff"]``; None when there is no such namespace."""
        answer = self._any(paths.bundles(namespace), expect={200, 404})
        return None if answer.status == 404 else self._json(answer, _Bundles).boundaries

    def owner_base(self, bundle: str) -> str | None:
        """``scheme://host:port`` of the bundle's owner; None when nobody owns it (412) or it is gone (404).

        Assigns nothing. Brokers are asked at their own addresses: a 200 means that the one who answers owns it, and an
        admin URL may be another name of a broker, or stand before several.
        """
        own = [self.base(broker) for broker in self._active or self.active_brokers()]
        answer = self._first(own, paths.topic_hash_positions(bundle), OWNERSHIP_TOLD, hops=0)
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

    def version_and_date(self, broker: str) -> tuple[str, str | None]:
        """The version that a broker runs, and the ``Date`` header of that answer: what its clock says, in seconds."""
        answer = self._at(broker, paths.VERSION)
        return answer.body.decode("utf-8", errors="replace").strip().strip('"'), answer.date

    def isolation_policies(self) -> dict[str, Any]:
        """Namespace isolation policies by name; empty when there are none."""
        answer = self._any(paths.isolation_policies(self.cluster), expect={200, 404})
        return {} if answer.status == 404 else self._json(answer, dict[str, Any])

    def anti_affinity_group(self, namespace: str) -> str | None:
        """The anti-affinity group of a namespace, in lower case, as Pulsar compares them; None when it has none.

        Brokers send the text as it was given to them: quotes are part of a name that was set with quotes.
        """
        answer = self._any(paths.anti_affinity(namespace), expect={200, 204, 404})
        group = answer.body.decode(errors="replace").strip().lower()
        return group if answer.status == 200 and group not in {"", "null"} else None

    def anti_affinity_namespaces(self, group: str, tenant: str) -> list[str]:
        """The namespaces of one tenant that belong to a group."""
        return self._json(self._any(paths.anti_affinity_namespaces(self.cluster, group, tenant)), list[str])

    def failure_domains(self) -> dict[str, str]:
        """The failure domain of each broker that is in one; nothing where the brokers do not look at domains."""
        if self.runtime_configuration().get("failureDomainsEnabled") != "true":
            return {}
        answer = self._any(paths.failure_domains(self.cluster), expect={200, 404})
        domains = {} if answer.status == 404 else self._json(answer, dict[str, _FailureDomain])
        return {broker: name for name, domain in sorted(domains.items()) for broker in domain.brokers}

    def unload(self, bundle: str, destination: str | None, at: str) -> Answer:
        """Ask for an unload at the base URL ``at`` (the leader's); the caller judges the status, whatever it is."""
        params = {"destinationBroker": destination} if destination else {}
        timeout = self.settings.unload_timeout_seconds
        return self.http.send("PUT", at + paths.unload(bundle), params=params, timeout_seconds=timeout)

    def topics(self, namespace: str) -> list[str]:
        """Full names of all topics of a namespace, partitions one by one, also those that no broker has loaded."""
        return self._json(self._any(paths.topics(namespace)), list[str])

    def topic_stats(self, broker: str) -> dict[str, dict[str, dict[str, dict[str, TopicStats]]]]:
        """Rates of the topics that a broker has loaded, up to a statistics interval old.

        By namespace, bundle range, ``persistent`` or ``non-persistent``, and full topic name.
        """
        return self._json(self._at(broker, paths.TOPIC_STATS), dict[str, dict[str, dict[str, dict[str, TopicStats]]]])

    def split(self, bundle: str, algorithm: str, positions: Sequence[int] | None, at: str) -> Answer:
        """Ask for a split at the base URL ``at`` (the owner's); the caller judges the status, whatever it is.

        204 is no proof: a broker that finds nothing to cut answers so, too. The parts stay with the owner. A bundle
        that nobody owns is placed by the leader first.
        """
        params = {"unload": "false", "splitAlgorithmName": algorithm}
        content = msgspec.json.encode(positions) if positions is not None else None
        return self.http.send("PUT", at + paths.split(bundle), params=params, content=content)

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


MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"


def unsupported(broker: str, manager: str) -> str:
    """What to say of a cluster whose load manager lbd cannot work with."""
    return (
        f"{broker} runs {manager}, which lbd does not support yet; "
        f"set loadManagerClassName={MODULAR} in broker.conf, or let that manager balance by itself"
    )


def broker_of(base: str, brokers: list[str], bases: dict[str, str]) -> str | None:
    """The id of the broker that is reached at a base URL; None when it is none of them."""
    for broker in brokers:
        if bases.get(broker, f"http://{broker}").lower() == base.lower():
            return broker
    same_host = [broker for broker in brokers if host_of(broker) == host_of(base)]
    return same_host[0] if len(same_host) == 1 else None
