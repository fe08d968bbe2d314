"""Reads isolation policies and anti-affinity groups: for a plan, and once more before each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.errors import AdminError
from lbd.model import Skip, bundle_namespace
from lbd.permit.policies import Groups, Isolation, Policies, isolation_of
from lbd.reason import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lbd.model import Unload
    from lbd.pulsar.admin import Admin

MEMBER_REQUESTS_A_TURN = 200
"""Pulsar tells the members of a group for one tenant at a time; groups beyond this count as unknown in this turn."""


class PolicyReader:
    """Asks one cluster. Thread-safe: moves ask from threads of their own.

    A turn costs one request for isolation policies, one for each namespace that its plan newly touches, and for each
    group among those one for each tenant, and two for failure domains. A move costs three.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._planned: dict[str, str | None] = {}
        self._members: dict[str, frozenset[str]] = {}
        self._asked = 0

    def isolation(self) -> Isolation:
        """The cluster's isolation policies, which begin a turn; where they cannot be read nothing moves."""
        self._members, self._asked = {}, 0
        try:
            return isolation_of(self._admin.isolation_policies())
        except AdminError:
            return Isolation(known=False)

    def groups(self, namespaces: tuple[str, ...], tenants: frozenset[str]) -> Groups:
        """Groups of the namespaces that a plan would touch, in that order; what cannot be read stays unknown.

        After the first that cannot be read no more are asked about: a turn must not wait for a time-out each.
        """
        found: dict[str, str | None] = {}
        try:
            for name in namespaces:
                found[name] = self._admin.anti_affinity_group(name)
        except AdminError:
            unread = frozenset({name})
        else:
            unread = frozenset()
        self._planned |= found
        grouped = {name: group for name, group in found.items() if group is not None}
        free = frozenset(found.keys() - grouped.keys())
        try:
            members, domains = self._spread(set(grouped.values()), tenants) if grouped else ({}, {})
        except AdminError:
            members, domains, unread = {}, {}, unread | grouped.keys()
        return Groups(free, grouped, members, domains, unread)

    def _spread(
        self, groups: Iterable[str], tenants: frozenset[str]
    ) -> tuple[dict[str, frozenset[str]], dict[str, str]]:
        """Members of the groups, as far as requests for them are left, and failure domains of the brokers."""
        for group in sorted(set(groups) - self._members.keys()):
            if self._asked + len(tenants) <= MEMBER_REQUESTS_A_TURN:
                self._asked += len(tenants)
                self._members[group] = self._namespaces(group, tenants)
        return dict(self._members), self._admin.failure_domains()

    def _namespaces(self, group: str, tenants: frozenset[str]) -> frozenset[str]:
        return frozenset(
            name for tenant in sorted(tenants) for name in self._admin.anti_affinity_namespaces(group, tenant)
        )

    def forbids(self, move: Unload, *, planned: bool) -> Skip | None:
        """Why a move may not happen any more. Raises :class:`AdminError` when that cannot be read.

        Where the rest of a group is was looked at when the move was ``planned``; of one that a killed process planned
        only isolation policies are asked for.
        """
        namespace, destination = bundle_namespace(move.bundle), move.destination or ""
        isolation = isolation_of(self._admin.isolation_policies())
        policies = Policies(isolation, active=tuple(self._admin.active_brokers()))
        reason = policies.forbids(namespace, destination)
        if reason is not None:
            return Skip(move.bundle, reason[0], f"{reason[1]}; not sent")
        group = self._admin.anti_affinity_group(namespace) if planned else None
        if group is not None and self._planned.get(namespace) != group:
            changed = f"{namespace} belongs to anti-affinity group {group!r}, which was not so when it was planned"
            return Skip(move.bundle, Reason.ANTI_AFFINITY, f"{changed}; not sent")
        return None
