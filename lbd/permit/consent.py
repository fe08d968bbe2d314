"""Consent of application teams, which they give by properties of their namespaces. Pure.

``lbd.balance`` is ``off``, ``low`` or ``normal``; ``lbd.quiet-hours`` has windows as
:func:`~lbd.permit.quiet_hours.parse_windows` reads them. A property that is meant for lbd and not understood counts as
``off``: its team wanted less to be moved, not more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from lbd.model import Skip
from lbd.permit.quiet_hours import parse_windows, quiet_until
from lbd.reason import Reason
from lbd.text import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lbd.permit.quiet_hours import QuietHours

BALANCE, QUIET_HOURS = "lbd.balance", "lbd.quiet-hours"
PREFIX = "lbd."
OFF, LOW, NORMAL = "off", "low", "normal"
LAST_READ = "those that were read last hold, and none where nothing was read"


@dataclass(frozen=True)
class Consent:
    """The consent that the properties of one namespace give.

    ``problem`` names the property that is not understood, and what would be right. ``unread`` says why the properties
    could not be read; the other fields are then as read last, or the defaults.
    """

    balance: str = NORMAL
    quiet_hours: tuple[QuietHours, ...] = ()
    problem: str = ""
    unread: str = ""

    def refusal(self, at: float) -> tuple[Reason, str] | None:
        """Why bundles of the namespace stay at a time (epoch seconds); None if they may move."""
        if self.problem:
            return Reason.PROPERTY_NOT_UNDERSTOOD, f"{self.problem}; its bundles stay until that is corrected"
        if self.balance == OFF:
            return Reason.BALANCE_OFF, f"namespace property {BALANCE}={OFF}"
        quiet = quiet_until(self.quiet_hours, at)
        return (Reason.NAMESPACE_QUIET, f"namespace property {QUIET_HOURS}={quiet[1]}") if quiet is not None else None


def parse_consent(properties: Mapping[str, str]) -> Consent:
    """Read the consent from all properties of a namespace; most of them are not for lbd."""
    consent, problems = Consent(), list[str]()
    for name, value in sorted(properties.items()):
        if name == BALANCE:
            consent = replace(consent, balance=value.strip().lower())
            if consent.balance not in {OFF, LOW, NORMAL}:
                problems.append(f"namespace property {BALANCE} is {shown(value)}, wanted {OFF}, {LOW} or {NORMAL}")
        elif name == QUIET_HOURS:
            try:
                consent = replace(consent, quiet_hours=parse_windows(value))
            except ValueError as error:
                problems.append(f"namespace property {QUIET_HOURS} is {shown(value)}: {error}")
        elif name.startswith(PREFIX):
            problems.append(f"namespace property {shown(name)} is not known, wanted {BALANCE} or {QUIET_HOURS}")
    return replace(consent, problem="; ".join(problems))


@dataclass(frozen=True)
class Consents:
    """The consents read so far, ``by_namespace``, and what they mean ``at`` the time of a turn (epoch seconds)."""

    by_namespace: Mapping[str, Consent] = field(default_factory=dict)
    at: float = 0.0

    def refusal(self, namespace: str) -> tuple[Reason, str] | None:
        """Why bundles of a namespace stay; None if they may move."""
        if namespace not in self.by_namespace:
            return Reason.POLICY_UNKNOWN, f"the properties of {namespace} were not read in this turn"
        return self.by_namespace[namespace].refusal(self.at)

    @cached_property
    def bars(self) -> dict[str, Reason]:
        """The namespaces whose bundles stay, and why."""
        refusals = ((name, consent.refusal(self.at)) for name, consent in self.by_namespace.items())
        return {name: refusal[0] for name, refusal in refusals if refusal is not None}

    @cached_property
    def low(self) -> frozenset[str]:
        """The namespaces whose bundles move only for what all others leave."""
        return frozenset(name for name, consent in self.by_namespace.items() if consent.balance == LOW)

    def skips(self, present: Collection[str], moving: Collection[str]) -> Iterator[Skip]:
        """The ``present`` namespaces whose properties keep bundles where they are, or could not be read.

        A namespace of low balance is among them unless bundles of it are ``moving``.
        """
        for name in sorted(self.by_namespace.keys() & set(present)):
            consent, refusal = self.by_namespace[name], self.refusal(name)
            if consent.unread:
                why = f"its properties cannot be read: {consent.unread}; {LAST_READ}"
                yield Skip(name, Reason.PROPERTY_UNREAD, why)
            if refusal is not None:
                yield Skip(name, *refusal)
            elif name in self.low and name not in moving:
                after = "its bundles move only for what all others of their broker leave"
                yield Skip(name, Reason.BALANCE_LOW, f"namespace property {BALANCE}={LOW}: {after}")
