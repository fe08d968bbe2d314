"""The parts that live turns and dry-runs share, made from settings."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lbd.decide import build
from lbd.errors import AdminError
from lbd.model import Hits
from lbd.observe.observer import Observer
from lbd.permit.policies import Groups, Isolation, isolation_of
from lbd.pulsar.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.decide import Strategy
    from lbd.decide.avg_shedder.settings import AvgShedderSettings

SAMPLE_GAP_SECONDS = 3 * 60.0

NAMESPACES_A_TURN = 100
"""Namespaces whose policies are read at once; bundles of further ones count as ``policy-unknown`` in this turn."""


def gap_seconds(settings: Settings) -> float:
    """Silence after which hit counters start anew: three intervals, and never less than three CPU samples."""
    return max(3 * settings.interval_seconds, SAMPLE_GAP_SECONDS)


def effective(settings: Settings) -> AvgShedderSettings:
    """The strategy's settings with the profile applied."""
    return settings.avg_shedder.stock() if settings.profile == "stock" else settings.avg_shedder


def wanted_hits(settings: Settings) -> Hits:
    """Hit counts at which the strategy fires."""
    return Hits(settings.avg_shedder.hit_count_low, settings.avg_shedder.hit_count_high)


def strategy_of(settings: Settings, *, eager: bool = False) -> Strategy:
    """The configured strategy; ``eager`` takes hit counts as reached."""
    chosen = effective(settings)
    return build(chosen.eager() if eager else chosen, settings.weights)


def isolation(admin: Admin) -> Isolation:
    """The cluster's isolation policies; unknown where they cannot be read, and then nothing moves."""
    try:
        return isolation_of(admin.isolation_policies())
    except AdminError:
        return Isolation(known=False)


def groups(admin: Admin, namespaces: frozenset[str]) -> Groups:
    """Anti-affinity groups of the namespaces that a plan would touch; those that cannot be read stay unknown."""
    free: set[str] = set()
    grouped: dict[str, str] = {}
    for name in sorted(namespaces)[:NAMESPACES_A_TURN]:
        try:
            group = admin.anti_affinity_group(name)
        except AdminError:
            continue
        if group is None:
            free.add(name)
        else:
            grouped[name] = group
    return Groups(frozenset(free), grouped)


@contextmanager
def observing(settings: Settings, *, keep_raw: bool = False) -> Iterator[Observer]:
    """An observer of the configured cluster."""
    observer = Observer(Admin(settings.pulsar), time.time, keep_raw=keep_raw)
    try:
        yield observer
    finally:
        observer.close()


def broker_configuration(settings: Settings) -> dict[str, str]:
    """The effective configuration of the broker that answers."""
    return Admin(settings.pulsar).runtime_configuration()
