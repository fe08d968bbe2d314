"""All requests of the doctor to the cluster, with the refused ones. Read-only."""

from __future__ import annotations

from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from lbd.errors import AdminError, ObserveError
from lbd.operations.parts import PROPERTIES_A_TURN, PolicyReader, observing
from lbd.permit.policies import Isolation, parse_isolation
from lbd.threads import Threads
from lbd.turn.unmatched import unmatched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.config import Settings
    from lbd.observe.observer import Observation
    from lbd.permit.consent import Consent
    from lbd.pulsar.admin import Admin
    from lbd.turn.unmatched import Unmatched


T = TypeVar("T")

OBSERVING = "a round of load reports"
LIVE_CPU = "broker-stats/mbeans"
SUPERUSER, TENANT_ADMIN = "superuser", "tenant admin"
ROLES = {
    "brokers of the cluster": SUPERUSER,
    "configuration/runtime": SUPERUSER,
    "configuration/values": SUPERUSER,
    "leaderBroker": SUPERUSER,
    "load-report": SUPERUSER,
    "namespaceIsolationPolicies": SUPERUSER,
    "antiAffinity": TENANT_ADMIN,
}
"""Right that each call needs where authentication and authorization are on (BrokersBase, BrokerStatsBase, ClustersBase,
NamespacesBase). A superuser has all of them; an unload needs a superuser, too (docs/permissions.md).
"""


@dataclass(frozen=True)
class ClockOffset:
    """Seconds by which a broker's clock is ahead of this machine's, give or take ``unsure_seconds``.

    Measured against the ``Date`` header, which has whole seconds, halfway between request and response.
    """

    ahead_seconds: float
    unsure_seconds: float


@dataclass(frozen=True, eq=False)
class Survey:
    """Responses of the cluster.

    ``observation`` is None without a round, and ``failed`` has the reason of each call without a usable response.
    ``runtime``, ``versions`` and ``clocks`` are by broker, for those that gave them. ``live_cpu_seconds`` is the time
    that each took to return the CPU of its process; empty where lbd does not read it. ``consents`` are the permissions
    by properties of namespaces; None where the settings ignore them.
    """

    settings: Settings
    taken_at: float
    observation: Observation | None
    active: tuple[str, ...] = ()
    runtime: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    clocks: Mapping[str, ClockOffset] = field(default_factory=dict)
    dynamic: Mapping[str, str] | None = None
    isolation: Isolation = field(default_factory=lambda: Isolation(is_known=False))
    consents: Mapping[str, Consent] | None = None
    live_cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    failed: Mapping[str, ObserveError] = field(default_factory=dict)
    requests: int = 0

    @cached_property
    def unmatched(self) -> tuple[Unmatched, ...]:
        """Settings with names that match nothing; none are known without a round."""
        if self.observation is None:
            return ()
        namespaces = self.observation.snapshot.namespaces.names
        return tuple(unmatched(self.settings, namespaces, self.observation.active))

    @property
    def answered(self) -> bool:
        """Whether any broker responded to any request."""
        return self.observation is not None or _answered(self.failed[OBSERVING])

    @property
    def refused(self) -> tuple[str, ...]:
        """Calls with 401 or 403."""
        return tuple(call for call, error in self.failed.items() if call in ROLES and _refusal(error))


def survey(settings: Settings, now: Callable[[], float]) -> Survey:
    """Survey the cluster, all brokers in parallel.

    A healthy cluster gets at most 9 requests and 4 for each broker. Without a round, each call is tried by itself: at
    most 14, and 4 for each broker. Over https one more per broker reads its address. Where properties of namespaces
    bind turns, one more per namespace reads them, up to ``PROPERTIES_A_TURN``.

    Raises :class:`~lbd.errors.UsageError` for settings with which nothing can be sent, such as a missing token file.
    """
    with observing(settings, keep_raw=True) as observer:
        errors = _ErrorKeeper()
        admin, taken_at = observer.admin, now()
        observation = errors(OBSERVING, observer.observe)
        if observation is None and not _answered(errors.failed[OBSERVING]):
            return Survey(settings, taken_at, None, failed=errors.failed, requests=admin.http.sent)
        active = list(observation.active) if observation else errors("brokers of the cluster", admin.active_brokers)
        with Threads(settings.pulsar.concurrency, "lbd-doctor") as pool:
            met = list(pool.map(partial(_meet, errors, admin, now), active or ()))
            runtime = observation.runtime if observation else _runtime(errors, admin, pool, active or [])
            live = _live_cpu(errors, admin, now, pool, observation) if settings.asks_live_cpu else {}
        if observation is None:
            _try_alone(errors, admin, active or [])
        policies = errors("namespaceIsolationPolicies", admin.isolation_policies)
        if observation is not None and (namespace := next(iter(_namespaces(observation)), None)):
            errors("antiAffinity", partial(admin.anti_affinity_group, namespace))
        return Survey(
            settings=settings,
            taken_at=taken_at,
            observation=observation,
            active=tuple(active or ()),
            runtime=runtime,
            versions={broker: reply.version for broker, reply in zip(active or (), met, strict=True) if reply.version},
            clocks={broker: reply.clock for broker, reply in zip(active or (), met, strict=True) if reply.clock},
            dynamic=errors("configuration/values", admin.dynamic_configuration),
            isolation=Isolation(is_known=False) if policies is None else parse_isolation(policies),
            consents=_consents(admin, observation) if settings.guardrails.namespace_properties else None,
            live_cpu_seconds=live,
            failed=errors.failed,
            requests=admin.http.sent,
        )


class _ErrorKeeper:
    """Keeps the errors of calls, so that a failing call hides no other."""

    def __init__(self) -> None:
        self.failed: dict[str, ObserveError] = {}

    def __call__(self, call: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except ObserveError as error:
            self.failed[call] = error
            return None


@dataclass(frozen=True)
class _Met:
    version: str = ""
    clock: ClockOffset | None = None


def _meet(errors: _ErrorKeeper, admin: Admin, now: Callable[[], float], broker: str) -> _Met:
    sent_at = now()
    answer = errors(f"version of {broker}", partial(admin.version_and_date, broker))
    if answer is None:
        return _Met()
    return _Met(answer[0], _clock(answer[1], sent_at, now()))


def _live_cpu(
    errors: _ErrorKeeper,
    admin: Admin,
    now: Callable[[], float],
    pool: Threads,
    observation: Observation | None,
) -> Mapping[str, float]:
    """Seconds that each broker of the round took to return the CPU of its process, of those that did."""

    def ask(broker: str) -> float | None:
        asked_at = now()
        spent = errors(LIVE_CPU, partial(admin.process_cpu, broker))
        return None if spent is None else now() - asked_at

    brokers = observation.snapshot.brokers.ids if observation is not None else ()
    return {broker: took for broker, took in zip(brokers, pool.map(ask, brokers), strict=True) if took is not None}


def _clock(date: str | None, sent_at: float, answered_at: float) -> ClockOffset | None:
    try:
        server_time = parsedate_to_datetime(date or "").timestamp() + 0.5
    except (ValueError, OverflowError):
        return None
    return ClockOffset(server_time - (sent_at + answered_at) / 2, 0.5 + (answered_at - sent_at) / 2)


def _runtime(errors: _ErrorKeeper, admin: Admin, pool: Threads, active: list[str]) -> Mapping[str, Mapping[str, str]]:
    """The runtime configuration of each broker, needed where no round could be observed."""
    configurations = pool.map(
        lambda broker: errors("configuration/runtime", partial(admin.runtime_configuration, broker)), active
    )
    return {broker: runtime for broker, runtime in zip(active, configurations, strict=True) if runtime is not None}


def _try_alone(errors: _ErrorKeeper, admin: Admin, active: list[str]) -> None:
    """Try the calls of a round one by one, to name the refused ones."""
    errors("leaderBroker", admin.leader)
    if not active:
        errors("configuration/runtime", admin.runtime_configuration)
    else:
        errors("load-report", partial(admin.load_report, active[0]))


def _namespaces(observation: Observation) -> tuple[str, ...]:
    """The user namespaces of the cluster."""
    names = observation.snapshot.namespaces.names
    return tuple(name for name in names if name.count("/") == 1 and not name.startswith(("pulsar/", "sla-")))


def _consents(admin: Admin, observation: Observation | None) -> Mapping[str, Consent]:
    names = _namespaces(observation) if observation is not None else ()
    return PolicyReader(admin).consents(names[:PROPERTIES_A_TURN])


def _answered(error: ObserveError) -> bool:
    """Whether there was any response at all: without one no further request is useful."""
    return not isinstance(error, AdminError) or error.status is not None


def _refusal(error: ObserveError) -> bool:
    return isinstance(error, AdminError) and error.status in {401, 403}
