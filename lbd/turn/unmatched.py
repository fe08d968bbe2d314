"""Names and patterns in the settings that match nothing in the cluster. Pure.

A misspelt name protects or permits nothing, and nothing else shows it. Rule: a setting that names namespaces or
brokers is an entry of :data:`NAMING_SETTINGS`. ``lbd config check``, doctor and status report the names of all of these
settings that match nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from lbd.text import first_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from lbd.config import Settings
    from lbd.permit.settings import Guardrails


@dataclass(frozen=True)
class NamingSetting:
    """A setting with names: its dotted key, its ``names`` or patterns, and those that match something.

    ``matching`` gets the settings and all names of its kind in the cluster.
    """

    key: str
    kind: Literal["namespace", "broker"]
    names: Callable[[Settings], Iterable[str]]
    matching: Callable[[Settings, Collection[str]], Collection[str]]


def _namespaces(key: str, names: Callable[[Guardrails], Iterable[str]]) -> NamingSetting:
    """A setting of the guardrails with names as tenant/namespace or tenant/*."""
    return NamingSetting(f"guardrails.{key}", "namespace", lambda settings: names(settings.guardrails), _covering)


def _covering(_: Settings, namespaces: Collection[str]) -> set[str]:
    return {*namespaces, *(f"{namespace.partition('/')[0]}/*" for namespace in namespaces)}


def _meaning_a_broker(settings: Settings, brokers: Collection[str]) -> set[str]:
    return {entry.broker for entry in settings.load.brokers if any(map(entry.means, brokers))}


def _fitting_a_host(settings: Settings, brokers: Collection[str]) -> set[str]:
    hosts = [broker.rpartition(":")[0] for broker in brokers]
    return {pattern for pattern in settings.spread.zones if any(fnmatchcase(host, pattern) for host in hosts)}


NAMING_SETTINGS = (
    _namespaces("excluded_namespaces", lambda guardrails: guardrails.excluded_namespaces),
    _namespaces("include_namespaces", lambda guardrails: guardrails.include_namespaces),
    _namespaces("canary.namespaces", lambda guardrails: guardrails.canary.namespaces if guardrails.canary else ()),
    _namespaces("move_costs", lambda guardrails: guardrails.move_costs),
    NamingSetting(
        "load.brokers", "broker", lambda settings: (entry.broker for entry in settings.load.brokers), _meaning_a_broker
    ),
    NamingSetting("spread.zones", "broker", lambda settings: settings.spread.zones, _fitting_a_host),
)
"""Every setting that names a namespace or a broker. ``pulsar.cluster`` is none: requests with a wrong name fail."""

KINDS = {"namespace": "no namespace with loaded bundles", "broker": "no broker"}


@dataclass(frozen=True)
class Unmatched:
    """A setting, and its names that match nothing."""

    key: str
    names: tuple[str, ...]
    kind: Literal["namespace", "broker"]

    @property
    def text(self) -> str:
        """One line for people."""
        return f"{self.key}: {first_names(self.names)} names {KINDS[self.kind]}"

    @property
    def todo(self) -> str:
        """The remedy."""
        written = "; a broker is written as lbd status shows it" if self.kind == "broker" else ""
        return f"see its spelling, or take it out of {self.key}{written}"


def names_anything(settings: Settings) -> bool:
    """Whether any setting names a namespace or a broker."""
    return any(tuple(setting.names(settings)) for setting in NAMING_SETTINGS)


def unmatched(settings: Settings, namespaces: Collection[str], brokers: Collection[str]) -> Iterator[Unmatched]:
    """The settings with names that match none of the ``namespaces`` with loaded bundles, or of the ``brokers``."""
    present = {"namespace": namespaces, "broker": brokers}
    for setting in NAMING_SETTINGS:
        if names := tuple(setting.names(settings)):
            matching = setting.matching(settings, present[setting.kind])
            if idle := tuple(name for name in names if name not in matching):
                yield Unmatched(setting.key, idle, setting.kind)
