"""What a split would do to one bundle of a live cluster, as its owner sees it now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lbd.act.ownership import Clock
from lbd.act.splitter import Splitter
from lbd.errors import ObserveError
from lbd.model import bundle_namespace
from lbd.observe.topics import topics_of
from lbd.split.plan import plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.pulsar.admin import Admin
    from lbd.split.algorithms import Algorithm
    from lbd.split.plan import Plan
    from lbd.split.settings import SplitSettings

CLOCK = Clock(time.monotonic, time.sleep)


def look(
    admin: Admin, bundle: str, algorithm: Algorithm, settings: SplitSettings, positions: Sequence[int] = ()
) -> Plan:
    """Where ``algorithm`` would cut the bundle, and what lies on each side.

    Raises :class:`~lbd.errors.RefusedError` for what is no bundle, nobody's, or has nothing to cut,
    :class:`~lbd.errors.UsageError` for positions outside of it, and :class:`~lbd.errors.ObserveError` where the brokers
    do not tell.
    """
    splitter = Splitter(admin, CLOCK)
    owner = splitter.owner(bundle, splitter.boundaries(bundle_namespace(bundle)))
    return plan(owner, bundle, algorithm, topics_of(admin, bundle, owner), settings.flow, positions)


class Brokers:
    """What lbd's rule asks of a live cluster."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def number_of_bundles(self, namespace: str) -> int:
        """Raises :class:`~lbd.errors.ObserveError` where its boundaries cannot be read, or it has none."""
        found = len(self._admin.boundaries(namespace) or ()) - 1
        if found < 1:
            raise ObserveError(f"{namespace}: no bundles are told of it")
        return found

    def look(self, bundle: str, settings: SplitSettings) -> Plan:
        """By the algorithm of ``split.algorithm``; raises as :func:`look` does."""
        return look(self._admin, bundle, settings.algorithm, settings)
