"""One view of a cluster outside a turn, for manual requests. Read-only."""

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
    """An observed round, its facts, and the policies of the requested namespaces."""

    observation: Observation
    facts: Facts

    def loads(self, parts: Parts, to_place: int, bundles: tuple[str, ...]) -> BrokerLoads:
        """Loads for placements, with ``to_place`` of these bundles."""
        averages = self.facts.averages
        loads = broker_loads(self.facts.snapshot, averages, parts.weights, to_place=to_place)
        chosen, long = set(bundles), averages.long
        rates = {name: float(long[row, :2].sum()) for row, name in enumerate(averages.bundles) if name in chosen}
        return without_doubted(replace(loads, bundle_rates=rates), self.facts.evidence.paired)

    def standing(self, parts: Parts) -> RunningLoads:
        """Present loads of the brokers, to which the answers are added."""
        limit = parts.guardrails.max_topics_per_broker
        return RunningLoads(self.facts.snapshot, self.facts.policies, self.facts.evidence.paired, limit)


def situation(parts: Parts, namespaces: tuple[str, ...]) -> Situation:
    """Observe one round, judged by the stored earlier ones. Raises :class:`~lbd.errors.ObserveError` as observing does.

    Properties of namespaces bind no order.
    """
    now = look(replace(parts, consents=None))
    tenants = frozenset(name.partition("/")[0] for name in (*now.facts.snapshot.namespaces.names, *namespaces))
    policies = replace(now.facts.policies, groups=parts.groups(namespaces, tenants))
    return Situation(now.observation, replace(now.facts, policies=policies))


@dataclass(frozen=True)
class OwnerMap:
    """The owner of each owned bundle, and the reason for each broker whose bundles are unknown."""

    of: Mapping[str, str]
    unasked: Mapping[str, str]


def owners(admin: Admin, busy: Mapping[str, str]) -> OwnerMap:
    """Bundles that each active broker says it owns; those of ``busy`` brokers, with their reasons, stay unknown."""

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
