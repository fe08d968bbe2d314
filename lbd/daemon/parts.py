"""The parts that live turns and dry-runs share, made from settings."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lbd.errors import LbdError
from lbd.observe.observer import Observer
from lbd.pulsar.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.pulsar.silence import Silences

ADDRESSES = 5
"""Addresses of brokers in a configuration: enough for one to answer."""


@contextmanager
def observing(settings: Settings, *, keep_raw: bool = False, silences: Silences | None = None) -> Iterator[Observer]:
    """An observer of the configured cluster, for one look or a few; ``silences`` are those of its lbd."""
    observer = Observer(Admin(settings.pulsar, silences), time.time, keep_raw=keep_raw)
    observer.wait_to_hear(say)
    try:
        yield observer
    finally:
        observer.close()


def say(words: str) -> None:
    """Tell a person at a terminal why a command waits; who reads only the output of a command is not disturbed."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{words}\n")


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
