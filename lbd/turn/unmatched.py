"""Names and patterns in the settings that match nothing in the cluster. Pure.

A misspelt name protects or permits nothing, and nothing else shows it. Rule: a setting that names namespaces or
brokers is an entry of :data:`NAMING_SETTINGS`. ``lbd config check``, doctor and status report the names of all of these
settings that match nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from lbd.permit.settings import covers
from lbd.spread import host_fits
from lbd.text import first_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from lbd.config import Settings
    from lbd.permit.settings import Guardrails


@dataclass(frozen=True)
class NamingSetting:
    """A setting with ``names`` or patterns, each with the test that a name in the cluster has to pass."""

    key: str
    kind: Literal["namespace", "broker"]
    names: Callable[[Settings], Iterable[tuple[str, Callable[[str], bool]]]]


def _namespaces(key: str, names: Callable[[Guardrails], Iterable[str]]) -> NamingSetting:
    """A setting of the guardrails with names as tenant/namespace or tenant/*."""
    return NamingSetting(
        f"guardrails.{key}",
        "namespace",
        lambda settings: ((name, partial(covers, (name,))) for name in names(settings.guardrails)),
    )


NAMING_SETTINGS = (
    _namespaces("excluded_namespaces", lambda guardrails: guardrails.excluded_namespaces),
    _namespaces("include_namespaces", lambda guardrails: guardrails.include_namespaces),
    _namespaces("canary.namespaces", lambda guardrails: guardrails.canary.namespaces if guardrails.canary else ()),
    _namespaces("move_costs", lambda guardrails: guardrails.move_costs),
    NamingSetting(
        "load.brokers", "broker", lambda settings: ((entry.broker, entry.means) for entry in settings.load.brokers)
    ),
    NamingSetting(
        "spread.zones",
        "broker",
        lambda settings: ((pattern, partial(host_fits, pattern)) for pattern in settings.spread.zones),
    ),
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
        named = setting.names(settings)
        if idle := tuple(name for name, fits in named if not any(map(fits, present[setting.kind]))):
            yield Unmatched(setting.key, idle, setting.kind)
