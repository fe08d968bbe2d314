"""One view of a cluster outside a turn, from which manual requests are answered. Read-only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lbd.errors import AdminError
from lbd.place.picker import RunningLoads, without_doubted
from lbd.place.placements import broker_loads
from lbd.turn.assess import look

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.observe.observer import Observation
    from lbd.permit.facts import Facts
    from lbd.place.placements import BrokerLoads
    from lbd.pulsar.admin import Admin
    from lbd.turn.parts import Parts


@dataclass(frozen=True, eq=False)
class Situation:
    """A round as observed, and its facts, with what policies say of the namespaces asked about."""

    observation: Observation
    facts: Facts

    def loads(self, parts: Parts, to_place: int, bundles: tuple[str, ...]) -> BrokerLoads:
        """What placements may look at, for ``to_place`` of these bundles."""
        averages = self.facts.averages
        loads = broker_loads(self.facts.snapshot, averages, parts.weights, to_place=to_place)
        wanted, long = set(bundles), averages.long
        rates = {name: float(long[at, :2].sum()) for at, name in enumerate(averages.bundles) if name in wanted}
        return without_doubted(replace(loads, bundle_rates=rates), self.facts.evidence.paired)

    def standing(self, parts: Parts) -> RunningLoads:
        """How the brokers stand, to be moved along with the answers."""
        limit = parts.guardrails.max_topics_per_broker
        return RunningLoads(self.facts.snapshot, self.facts.policies, self.facts.evidence.paired, limit)


def situation(parts: Parts, namespaces: tuple[str, ...]) -> Situation:
    """One round, judged by what is kept of those before. Raises :class:`~lbd.errors.ObserveError` as observing does.

    Properties of namespaces bind no order.
    """
    now = look(replace(parts, consents=None))
    tenants = frozenset(name.partition("/")[0] for name in (*now.facts.snapshot.namespaces.names, *namespaces))
    policies = replace(now.facts.policies, groups=parts.groups(namespaces, tenants))
    return Situation(now.observation, replace(now.facts, policies=policies))


@dataclass(frozen=True)
class OwnerMap:
    """The owner of each owned bundle, and why some brokers could not be asked: what those own is not known."""

    of: Mapping[str, str]
    unasked: Mapping[str, str]


def owners(admin: Admin, busy: Mapping[str, str]) -> OwnerMap:
    """What each active broker says it owns; not what those do that are ``busy``, and why."""

    def ask(broker: str) -> dict[str, bool] | str:
        if broker in busy:
            return busy[broker]
        try:
            return admin.owned(broker)
        except AdminError as error:
            return str(error)

    active = admin.active_brokers()
    with ThreadPoolExecutor(admin.settings.concurrency, thread_name_prefix="lbd-owners") as pool:
        answers = dict(zip(active, pool.map(ask, active), strict=True))
    owned = {bundle: broker for broker, answer in answers.items() if not isinstance(answer, str) for bundle in answer}
    return OwnerMap(owned, {broker: answer for broker, answer in answers.items() if isinstance(answer, str)})
