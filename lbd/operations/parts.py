"""The parts that live turns and dry-runs share, made from settings.

Isolation policies and anti-affinity groups are read for a plan, and again before each request.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.errors import AdminError, LbdError
from lbd.load.estimate import CPU
from lbd.load.fit import capacities
from lbd.load.summary import BrokerLoad, loads
from lbd.model import Skip, bundle_namespace
from lbd.observe.observer import Observer
from lbd.permit.consent import LAST_READ, Consent, parse_consent
from lbd.permit.policies import Groups, Isolation, Policies, parse_isolation
from lbd.pulsar.admin import Admin
from lbd.reason import Reason
from lbd.store.state import load_samples, save_samples
from lbd.turn.learning import Learning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lbd.config import Settings
    from lbd.model import Slopes, Snapshot, Unload
    from lbd.pulsar.broker_health import BrokerHealth


NAMED = 3
"""Namespaces with invalid properties that get a warning each."""

MEMBER_REQUESTS_A_TURN = 200
"""Requests for members of groups per turn: Pulsar returns them for one tenant at a time. Further groups are unknown."""


PROPERTIES_A_TURN = 100
"""Namespaces whose properties are read in one turn; bundles of further ones do not move in it."""

PROPERTIES_SECONDS = 600.0
"""Age at which properties are read again. A pair of brokers that counts eight samples is judged by those of its last
plan, so that namespaces that stay do not hide the others again.
"""


class PolicyReader:
    """Reads the policies of one cluster. Thread-safe: moves call it from their own threads.

    A turn costs one request for isolation policies, one for each namespace that its plan newly touches, for each group
    of those one per tenant, and two for failure domains. A move costs three. Where properties of namespaces bind turns,
    each namespace of a plan costs one more within :data:`PROPERTIES_SECONDS`. ``now`` is in seconds.
    """

    def __init__(self, admin: Admin, now: Callable[[], float] = time.monotonic) -> None:
        self._admin, self._now = admin, now
        self._consents: dict[str, tuple[float, Consent]] = {}
        self._properties_left, self._unread = PROPERTIES_A_TURN, dict[str, str]()
        self._silent = ""
        self._planned: dict[str, str] = {}
        self._members: dict[str, frozenset[str]] = {}
        self._member_requests = 0

    def isolation(self) -> Isolation:
        """The cluster's isolation policies, read at the begin of a turn; while they cannot be read nothing moves."""
        self._members, self._member_requests = {}, 0
        self._properties_left, self._unread, self._silent = PROPERTIES_A_TURN, {}, ""
        lately, consents = self._lately_read(), list(self._consents.items())
        self._consents = {name: last for name, last in consents if name in lately or last[1] != Consent()}
        try:
            return parse_isolation(self._admin.isolation_policies())
        except AdminError:
            return Isolation(is_known=False)

    def groups(self, namespaces: tuple[str, ...], tenants: frozenset[str]) -> Groups:
        """Groups of the namespaces that a plan would touch, in that order; unreadable ones stay unknown.

        After the first failure no more are requested: a turn must not wait for a timeout each.
        """
        group_of: dict[str, str | None] = {}
        try:
            for name in namespaces:
                group_of[name] = self._admin.anti_affinity_group(name)
        except AdminError:
            unread = frozenset({name})
        else:
            unread = frozenset()
        grouped = {name: group for name, group in group_of.items() if group is not None}
        others = {name: group for name, group in list(self._planned.items()) if name not in group_of}
        self._planned = {**others, **grouped}
        free = frozenset(group_of.keys() - grouped.keys())
        try:
            members, domains = self._spread(set(grouped.values()), tenants) if grouped else ({}, {})
        except AdminError:
            members, domains, unread = {}, {}, unread | grouped.keys()
        return Groups(free, grouped, members, domains, unread)

    def _spread(
        self, groups: Iterable[str], tenants: frozenset[str]
    ) -> tuple[dict[str, frozenset[str]], dict[str, str]]:
        """Members of the groups, as far as requests for them remain, and failure domains of the brokers."""
        for group in sorted(set(groups) - self._members.keys()):
            if self._member_requests + len(tenants) <= MEMBER_REQUESTS_A_TURN:
                self._member_requests += len(tenants)
                self._members[group] = self._namespaces(group, tenants)
        return dict(self._members), self._admin.failure_domains()

    def _namespaces(self, group: str, tenants: frozenset[str]) -> frozenset[str]:
        return frozenset(
            name for tenant in sorted(tenants) for name in self._admin.anti_affinity_namespaces(group, tenant)
        )

    def consents(self, namespaces: tuple[str, ...]) -> dict[str, Consent]:
        """Consents by properties: those of these namespaces, and all that were read lately.

        Where properties cannot be read, the last read ones hold, and none before the first success. After a request
        without a response no more are sent in this turn, which must not wait for a timeout each. A namespace beyond the
        turn's limit is not in the result.
        """
        unread = dict[str, Consent]()
        for name in namespaces:
            if why := self._read_properties(name):
                _, last = self._consents.get(name, (0.0, Consent()))
                unread[name] = replace(last, unread=why)
        return self._lately_read() | unread

    def _read_properties(self, namespace: str) -> str:
        """Store the consent in the properties of a namespace; returns the error, else nothing."""
        if self._silent or self._properties_left <= 0:
            return self._silent
        self._properties_left -= 1
        try:
            self._consents[namespace] = self._now(), parse_consent(self._admin.namespace_properties(namespace))
        except AdminError as error:
            self._unread[namespace] = why = str(error)
            self._silent = why if error.status is None else ""
            return why
        return ""

    def _lately_read(self) -> dict[str, Consent]:
        since = self._now() - PROPERTIES_SECONDS
        return {name: consent for name, (read_at, consent) in list(self._consents.items()) if read_at > since}

    @property
    def warnings(self) -> Iterator[str]:
        """Invalid properties that were read lately, and the reason why others cannot be read."""
        wrong = {name: consent.problem for name, consent in self._lately_read().items() if consent.problem}
        for name in sorted(wrong)[:NAMED]:
            yield f"{name}: {wrong[name]}; its bundles stay until that is corrected"
        if len(wrong) > NAMED:
            yield f"properties of {len(wrong) - NAMED} more namespaces are not understood: lbd dry-run names them"
        for name, why in sorted(self._unread.items())[:1]:
            more = f" and {len(self._unread) - 1} more" if len(self._unread) > 1 else ""
            yield f"properties of {name}{more} cannot be read: {why}; {LAST_READ}"

    def forbids(self, move: Unload, *, planned: bool) -> Skip | None:
        """Reason why a move may not happen any more. Raises :class:`AdminError` when that cannot be read.

        The brokers of the rest of a group were checked when the move was ``planned``; for a move that a killed process
        planned only isolation policies are read.
        """
        namespace, destination = bundle_namespace(move.bundle), move.destination or ""
        isolation = parse_isolation(self._admin.isolation_policies())
        policies = Policies(isolation, active=tuple(self._admin.active_brokers()))
        reason = policies.forbids(namespace, destination)
        if reason is not None:
            return Skip(move.bundle, reason[0], f"{reason[1]}; not sent")
        group = self._admin.anti_affinity_group(namespace) if planned else None
        if group is not None and self._planned.get(namespace) != group:
            changed = f"{namespace} belongs to anti-affinity group {group!r}, which was not so when it was planned"
            return Skip(move.bundle, Reason.ANTI_AFFINITY, f"{changed}; not sent")
        return None


# --- the cost of traffic on each broker, as a live lbd learns it, keeps it over restarts and shows it

SAVED_EVERY_SECONDS = 300.0
"""Interval of saves. A kill loses five samples of a broker at most, and minutes of an hour's peak; a stop none."""


class PeriodicSave:
    """Saves a live lbd's data in memory: every five minutes, at once on request, and at the end.

    Times are epoch seconds. ``trouble`` is the error of the last save; its data stays in memory, and is saved later.
    """

    def __init__(self, what: str, save: Callable[[], None], now: float) -> None:
        self._what, self._save = what, save
        self._saved_at, self._taken_at = now, 0.0
        self.trouble = ""

    def after(self, taken_at: float, *, at_once: bool = False) -> None:
        """Record that a round that was ``taken_at`` is in memory."""
        self._taken_at = taken_at
        if at_once or not 0 <= taken_at - self._saved_at < SAVED_EVERY_SECONDS:
            self._write()

    def close(self) -> None:
        """Save the rest."""
        if self._taken_at > self._saved_at:
            self._write()

    def _write(self) -> None:
        self._saved_at = self._taken_at
        try:
            self._save()
        except LbdError as error:
            self.trouble = f"{self._what} not kept: {error}"
        else:
            self.trouble = ""


class Learned(Learning):
    """Learns from every turn, whatever the strategy: destinations are judged by it, too. ``now`` is epoch seconds.

    Samples that cannot be written stay in memory, as ``saved`` reports.
    """

    def __init__(self, settings: Settings, now: float) -> None:
        super().__init__(settings.load, load_samples(settings.state_dir, now))
        self.saved = PeriodicSave(
            "what was learned of brokers is", lambda: save_samples(settings.state_dir, self.samples()), now
        )

    def __call__(self, snapshot: Snapshot) -> Slopes | None:
        """Slopes with one more round.

        Samples of a new fit are saved at once: a command beside the daemon fits what is saved, and says the same.
        """
        slopes = super().__call__(snapshot)
        self.saved.after(snapshot.taken_at, at_once=self.fitted_at == snapshot.taken_at)
        return slopes


def stored_learning(settings: Settings) -> Learning:
    """The stored samples of an lbd on this state directory, read-only; empty where they cannot be read.

    A broker that was restarted since, or has other limits, has none.
    """
    return Learning(settings.load, load_samples(settings.state_dir, time.time()))


def broker_loads(snapshot: Snapshot, slopes: Slopes | None, settings: Settings) -> list[BrokerLoad]:
    """Learned load of each broker of a round, with the capacity from settings or limits of CPU."""
    brokers = snapshot.brokers
    limits = dict(zip(brokers.ids, brokers.limit[:, CPU].tolist(), strict=True))
    return loads(brokers.ids, slopes, capacities(limits, settings.load))


# --- parts

ADDRESSES = 5
"""Addresses of brokers in a configuration: enough for one to respond."""


@contextmanager
def observing(
    settings: Settings, *, keep_raw: bool = False, silences: BrokerHealth | None = None
) -> Iterator[Observer]:
    """An observer of the configured cluster, for one look or a few; ``silences`` are those of its lbd."""
    observer = Observer(Admin(settings.pulsar, silences), time.time, keep_raw=keep_raw)
    observer.wait_to_hear(print_wait)
    try:
        yield observer
    finally:
        observer.close()


@contextmanager
def preview_observer(settings: Settings, daemons: Observer | None) -> Iterator[Observer]:
    """A new observer, or the daemon's where that listens on topics: a new one would have to listen for a minute."""
    if daemons is not None and daemons.listens:
        yield daemons
    else:
        with observing(settings, silences=None if daemons is None else daemons.admin.http.silences) as observer:
            yield observer


def print_wait(words: str) -> None:
    """Print on a terminal why a command waits; a program that reads the output of a command is not disturbed."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{words}\n")


def broker_addresses(settings: Settings) -> list[str]:
    """Web addresses of the configured brokers and, where available, of some others: any may be down."""
    admin, addresses = Admin(settings.pulsar), list(settings.pulsar.admin_urls)
    try:
        return list(dict.fromkeys([*addresses, *map(admin.base, admin.active_brokers())]))[
            : max(ADDRESSES, len(addresses))
        ]
    except LbdError:
        return addresses


def broker_configuration(settings: Settings) -> dict[str, str]:
    """Effective configuration of the first broker that responds."""
    return Admin(settings.pulsar).runtime_configuration()
