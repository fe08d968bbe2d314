"""The parts that live turns and dry-runs share, made from settings."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lbd.decide import build
from lbd.errors import LbdError
from lbd.model import Hits
from lbd.observe.observer import Observer
from lbd.pulsar.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.decide import Strategy
    from lbd.decide.avg_shedder.settings import AvgShedderSettings

ADDRESSES = 5
"""Addresses of brokers in a configuration: enough for one to answer."""

SAMPLE_GAP_SECONDS = 3 * 60.0


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


@contextmanager
def observing(settings: Settings, *, keep_raw: bool = False) -> Iterator[Observer]:
    """An observer of the configured cluster."""
    observer = Observer(Admin(settings.pulsar), time.time, keep_raw=keep_raw)
    try:
        yield observer
    finally:
        observer.close()


def broker_addresses(settings: Settings) -> list[str]:
    """Web addresses of the configured brokers and, where they can be told, of some others: any may be down."""
    admin, given = Admin(settings.pulsar), list(settings.pulsar.admin_urls)
    try:
        return list(dict.fromkeys([*given, *map(admin.base, admin.active_brokers())]))[: max(ADDRESSES, len(given))]
    except LbdError:
        return given


def broker_configuration(settings: Settings) -> dict[str, str]:
    """The effective configuration of the broker that answers."""
    return Admin(settings.pulsar).runtime_configuration()
