"""One view of a cluster outside a turn, for manual requests. Read-only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lbd.act.ownership import Ownership
from lbd.errors import AdminError
from lbd.place.picker import RunningLoads, without_doubted
from lbd.place.placements import broker_loads
from lbd.threads import Threads
from lbd.turn.assess import look

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lbd.act.ownership import ActClock
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

    def with_groups(self, parts: Parts, namespaces: Iterable[str]) -> Situation:
        """The situation with the anti-affinity groups of these namespaces."""
        names, facts = tuple(namespaces), self.facts
        tenants = frozenset(name.partition("/")[0] for name in (*facts.snapshot.namespaces.names, *names))
        policies = replace(facts.policies, groups=parts.policies.groups(names, tenants))
        return replace(self, facts=replace(facts, policies=policies))

    def loads(self, parts: Parts, to_place: int, bundles: tuple[str, ...]) -> BrokerLoads:
        """Loads for placements, with ``to_place`` of these bundles."""
        averages = self.facts.averages
        loads = broker_loads(self.facts.snapshot, averages, parts.planning.weights, to_place=to_place)
        chosen, long = set(bundles), averages.long
        rates = {name: float(long[row, :2].sum()) for row, name in enumerate(averages.bundles) if name in chosen}
        return without_doubted(replace(loads, bundle_rates=rates), self.facts.evidence.paired)

    def standing(self, parts: Parts) -> RunningLoads:
        """Present loads of the brokers, to which the answers are added."""
        limit = parts.planning.guardrails.max_topics_per_broker
        return RunningLoads(self.facts.snapshot, self.facts.policies, self.facts.evidence.paired, limit)


def observed(parts: Parts) -> Situation:
    """Observe one round, judged by the stored earlier ones. Raises :class:`~lbd.errors.ObserveError` as observing does.

    Properties of namespaces bind no order.
    """
    now = look(replace(parts, heeds_properties=False))
    return Situation(now.observation, now.facts)


@dataclass(frozen=True)
class OwnerMap:
    """The owner of each bundle, None if unowned, and the reason for each bundle whose owner is ``unknown``."""

    of: Mapping[str, str | None]
    unknown: Mapping[str, str] = field(default_factory=dict)


OWNER_PATIENCE_SECONDS = 2.0
"""Brokers answer with errors while a bundle changes hands, which takes a fraction of that."""

OWNERS_SECONDS = 20.0
"""Thousands of bundles take a few; where a broker hangs, whoever waits is to be answered all the same."""


def owners(admin: Admin, clock: ActClock, bundles: Iterable[str]) -> OwnerMap:
    """Owners of these bundles, by three requests for each that assign nothing.

    No broker is asked for all that it owns (``ownedNamespaces``): it can hang for good by that while it takes bundles
    over (docs/decisions/0018-landings-are-proven.md).
    """
    ownership, names, until = Ownership(admin, clock), list(bundles), clock.monotonic() + OWNERS_SECONDS

    def ask(bundle: str) -> str | AdminError | None:
        if clock.monotonic() > until:
            return AdminError(f"not asked: the owners of others took {OWNERS_SECONDS:.0f} s")
        try:
            return ownership.owner_within(bundle, 0.0, OWNER_PATIENCE_SECONDS)
        except AdminError as error:
            return error

    with Threads(admin.settings.concurrency, "lbd-owners") as pool:
        answers = dict(zip(names, pool.map(ask, names), strict=True))
    unknown = {bundle: str(answer) for bundle, answer in answers.items() if isinstance(answer, AdminError)}
    return OwnerMap(
        {bundle: answer for bundle, answer in answers.items() if not isinstance(answer, AdminError)}, unknown
    )
