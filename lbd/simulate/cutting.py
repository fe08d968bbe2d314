"""Who splits bundles of a simulated cluster, and when: lbd by its rule, or the brokers' leader by Pulsar's own. Pure.

A split takes no time here and leaves clients connected: 0.05 to 0.1 s on 4.0.8, where no producer waited for more than
0.12 s. What brokers split they unload at once (loadBalancerAutoUnloadSplitBundlesEnabled), and it is placed anew.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.cycle.splitting import choose
from lbd.errors import RefusedError
from lbd.model import bundle_namespace
from lbd.score.trace import Split
from lbd.simulate.cluster import placed
from lbd.simulate.splitting import released, split
from lbd.simulate.topics import topics_in
from lbd.split.plan import plan
from lbd.split.settings import SplitSettings
from lbd.split.triggers import too_large, within_namespaces

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lbd.config import Settings
    from lbd.cycle import CycleRecord
    from lbd.cycle.splitting import Round
    from lbd.simulate.world import State, World
    from lbd.split.algorithms import Topic
    from lbd.split.plan import Plan

BROKERS = SplitSettings()
"""What brokers go by: the defaults of broker.conf."""


class Cutting:
    """A cluster whose bundles can be split; ``first`` is what it was at the beginning of the run.

    ``world`` and ``state`` are those of now, ``made`` is what was split in it.
    """

    def __init__(self, first: World, world: World, state: State) -> None:
        self._first = first
        self.world, self.state = world, state
        self.made: list[Split] = []

    def number_of_bundles(self, namespace: str) -> int:
        """How many a namespace has."""
        return sum(bundle_namespace(bundle) == namespace for bundle in self.world.bundles)

    def look(self, bundle: str, settings: SplitSettings) -> Plan:
        """Where it would be cut. Raises :class:`RefusedError` for what is no bundle, nobody's, or too small to cut."""
        at = self._position(bundle)
        if at is None or not self.state.owned[at]:
            raise RefusedError(f"{bundle}: {'split already' if at is None else 'nobody owns it'}")
        owner = self.world.brokers[self.state.owner[at]]
        return plan(owner, bundle, settings.algorithm, tuple(self._topics(at)), settings.flow)

    def by_lbd(self, seen: Round, settings: Settings) -> Iterator[tuple[Plan, str]]:
        """What lbd's rule splits, and why; the parts stay where they are."""
        for due, found in choose(self, settings, seen).plans:
            self._cut(found, "lbd")
            yield found, due.words

    def by_brokers(self, record: CycleRecord, closing: Collection[str]) -> None:
        """What the leader splits of what this turn saw, and places anew; not what its owner is ``closing``."""
        for found in self._due(record, closing):
            self._cut(found, "brokers")
            parts = [self.world.bundles.index(part.bundle) for part in found.parts]
            self.state = placed(self.world, released(self.state, np.array(parts)))

    def _due(self, record: CycleRecord, closing: Collection[str]) -> list[Plan]:
        """All that are too large, while their namespaces have room. lbd's averages are made as the leader's own."""
        found: list[Plan] = []
        seen = record.observation
        if seen is None or record.averages is None or seen.leader is None:
            return found
        due = [one for one in too_large(seen.snapshot, record.averages, BROKERS) if one.bundle not in closing]
        bundles = {name: self.number_of_bundles(name) for name in {bundle_namespace(one.bundle) for one in due}}
        for one in within_namespaces(due, bundles, BROKERS)[0]:
            with suppress(RefusedError):  # as a broker that finds nothing to cut, and answers 204
                found.append(self.look(one.bundle, BROKERS))
        return found

    def _cut(self, found: Plan, by: str) -> None:
        at = self.world.bundles.index(found.bundle)
        self.world, self.state = split(self.world, self.state, at, found.positions, found.whole.topics)
        ends = (found.bundle, found.owner, len(found.parts), by)
        self.made.append(Split(float(self.state.seconds), *ends))

    def _position(self, bundle: str) -> int | None:
        return self.world.bundles.index(bundle) if bundle in self.world.bundles else None

    def _topics(self, at: int) -> Iterator[Topic]:
        """Its topics, with equal shares of what its owner has counted; without rates where it has not yet."""
        counted = self.state.counted[self.state.owner[at]]
        rates = counted.rates[counted.bundles == at].sum(axis=0)
        known = topics_in(self._first, self.world, at)
        messages, volume = (rates[[0, 1]].sum(), rates[[2, 3]].sum()) if known else (0.0, 0.0)
        for topic in known:
            yield replace(topic, msg_rate=float(messages) / len(known), throughput=float(volume) / len(known))
