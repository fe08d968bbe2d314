"""The truth of a fake cluster: which brokers live, who leads, who owns each bundle, and what the leader has noted.

Time is seconds of the run; nothing here looks at a clock. What happens by itself, such as samples, sessions that end
and clients that come back, happens in :meth:`Book.advance`, each at its own time.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import bundle_namespace, bundle_range
from lbd.permit.policies import isolation_of
from lbd.pulsar.paths import keys_destinations_by_range
from lbd.simulate.cluster import STEP_SECONDS, State, World, moved, step
from lbd.simulate.fake_pulsar.faults import Fault, Faults
from lbd.simulate.fake_pulsar.life import started, with_nobody
from lbd.simulate.splitting import split
from lbd.simulate.topics import topics_in
from lbd.split.plan import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lbd.simulate.fake_pulsar.policies import Policies
    from lbd.split.algorithms import Topic

SESSION_SECONDS = 30.0
"""For so long a broker that died is listed, leads, and owns what it owned (metadataStoreSessionTimeoutMillis)."""


@dataclass
class Broker:
    """One broker. ``up``: it answers. ``listed``: its session lives. ``started_at`` is seconds of the run."""

    id: str
    at: int
    up: bool
    listed: bool
    started_at: float


@dataclass(frozen=True)
class Owned:
    """From ``seconds`` of the run on ``owner`` has the bundle; None: nobody."""

    seconds: float
    bundle: str
    owner: str | None


class Book:
    """Not thread-safe. ``on_free`` is told of each bundle that nobody owns any more, and whether its owner died."""

    def __init__(
        self, world: World, state: State, ids: Sequence[str], version: str, faults: Faults, policies: Policies
    ) -> None:
        self.seconds = float(state.seconds)
        self.version, self.faults, self.policies = version, faults, policies
        self.brokers = {broker: _broker(broker, at, world) for at, broker in enumerate(ids)}
        self.world, self.state = with_nobody(world, state, ids)
        self.first = self.world
        self.nobody = len(ids)
        self.bundles = {bundle: at for at, bundle in enumerate(world.bundles)}
        self.random = np.random.default_rng((world.seed, self.nobody))
        self.leader: str | None = None
        self.affinity: dict[str, str] = {}
        self.closing: set[str] = set()
        self.history = [Owned(self.seconds, bundle, self.owner(bundle)) for bundle in self.bundles]
        self.on_free: Callable[[str, bool], None] = lambda *_: None
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._number = count()
        self._plan_lives(world)
        self.lead(self.listed[min(1, len(self.listed) - 1)])

    # -- time

    def advance(self, seconds: float) -> None:
        """Let time pass until then, and what happens meanwhile happen in its order."""
        while True:
            due = self._events[0][0] if self._events else np.inf
            following = self.state.seconds + STEP_SECONDS
            if min(due, following) > seconds:
                break
            self.seconds = max(self.seconds, min(due, following))
            if due < following:
                heapq.heappop(self._events)[2]()
            else:
                self.state = step(self.world, self.state)
        self.seconds = max(self.seconds, seconds)

    def at(self, seconds: float, then: Callable[[], object]) -> None:
        """Have this happen at that second of the run."""
        heapq.heappush(self._events, (seconds, next(self._number), then))

    # -- bundles

    def owner(self, bundle: str) -> str | None:
        """Who owns a bundle; a broker that died owns it until its session ends."""
        return self.world.brokers[self.state.owner[self.bundles[bundle]]] or None

    def owned(self, broker: str) -> list[str]:
        """The bundles of a broker."""
        mine = np.flatnonzero(self.state.owner == self.brokers[broker].at)
        return [self.world.bundles[at] for at in mine.tolist()]

    def free(self, bundle: str, *, died: bool = False) -> None:
        """Nobody owns it any more."""
        self.closing.discard(bundle)
        self._give(bundle, None)
        self.on_free(bundle, died)

    def closed(self, bundle: str) -> bool:
        """Its owner has closed it and lets go, unless it died or restarted meanwhile; whether it has."""
        if bundle not in self.closing:
            return False
        self.free(bundle)
        return True

    def acquire(self, bundle: str, broker: str) -> None:
        """The broker takes it, if nobody has it and the broker is there: who comes first wins."""
        if self.owner(bundle) is None and self.brokers[broker].up:
            self._give(bundle, broker)

    def topics(self, bundle: str) -> tuple[Topic, ...]:
        """The topics of a bundle, in the order of their hashes."""
        return topics_in(self.first, self.world, self.bundles[bundle])

    def split(self, bundle: str, positions: Sequence[int]) -> tuple[str, ...]:
        """Its parts, which belong to its owner; the history tells no more of the whole."""
        owner, at, parts = self.owner(bundle), self.bundles[bundle], parts_of(bundle, positions)
        self.world, self.state = split(self.world, self.state, at, positions, self.topics(bundle))
        self.bundles = {name: at for at, name in enumerate(self.world.bundles)}
        self.history += [Owned(self.seconds, part, owner) for part in parts]
        return parts

    def place(self, bundle: str) -> str:
        """Where the leader wants a bundle that nobody owns: by its note, which is used up, or else at random."""
        noted = self._noted(self._key(bundle))
        if noted is None:
            return self._at_random(bundle)
        return noted if self.faults.take(Fault.LOST_TO_A_LOOKUP, noted) is None else self._at_random(bundle, noted)

    def _noted(self, key: str) -> str | None:
        """The leader's note, which is gone then."""
        noted = self.affinity.get(key)
        if noted is not None and self.faults.take(Fault.AFFINITY_LEFT, self.leader or "") is None:
            del self.affinity[key]
        return noted

    def _at_random(self, bundle: str, but: str = "") -> str:
        """Among the brokers that isolation policies allow, if there are any."""
        listed = self.listed
        allowed = isolation_of(self.policies.isolation).brokers(bundle_namespace(bundle), listed)
        among = [broker for broker in listed if broker != but and (broker in allowed or not allowed)]
        return among[int(self.random.integers(len(among)))] if among else but

    def note(self, bundle: str, destination: str) -> None:
        """The leader notes where the bundle shall go."""
        self.affinity[self._key(bundle)] = destination

    def _key(self, bundle: str) -> str:
        """Keyed by range alone on many versions (#25518)."""
        forced = self.faults.take(Fault.AFFINITY_BY_RANGE, self.leader or "") is not None
        return bundle_range(bundle) if forced or keys_destinations_by_range(self.version) else bundle

    def _give(self, bundle: str, broker: str | None) -> None:
        at = self.nobody if broker is None else self.brokers[broker].at
        self.state = moved(self.state, self.bundles[bundle], at)
        self.history.append(Owned(self.seconds, bundle, broker))

    # -- brokers

    @property
    def listed(self) -> list[str]:
        """The brokers whose sessions live."""
        return [broker.id for broker in self.brokers.values() if broker.listed]

    def lead(self, broker: str | None) -> None:
        """Another leader, who knows of no note."""
        self.leader = broker
        self.affinity.clear()

    def lead_another(self) -> None:
        """Another one than now, if there is one."""
        self.lead(next((one.id for one in self.brokers.values() if one.up and one.id != self.leader), None))

    def die(self, broker: str) -> None:
        """Kill -9: it answers no more, and is believed to live until its session ends."""
        found = self.brokers[broker]
        if found.up:
            found.up = False
            self.closing.difference_update(self.owned(broker))
            begun = found.started_at
            self.at(self.seconds + SESSION_SECONDS, lambda: self._expire(found, begun))

    def leave(self, broker: str) -> None:
        """An orderly stop: its session ends with it."""
        found = self.brokers[broker]
        found.up = False
        self._gone(found, died=False)

    def start(self, broker: str) -> None:
        """It starts, for the first time or anew. What it owned and led before it has lost."""
        found = self.brokers[broker]
        if not found.up:
            self._gone(found, died=True)
            found.up, found.listed, found.started_at = True, True, self.seconds
            self.world, self.state = started(self.world, self.state, found.at, self.seconds)
            if self.leader is None:
                self.lead(broker)

    def _plan_lives(self, world: World) -> None:
        """Those that join and leave by the scenario's time-table."""
        for broker in self.brokers.values():
            joins, leaves = float(world.joins_at[broker.at]), float(world.leaves_at[broker.at])
            if joins > self.seconds:
                self.at(joins, lambda found=broker: self.start(found.id))  # type: ignore[misc]
            if np.isfinite(leaves):
                self.at(leaves, lambda found=broker: self.leave(found.id))  # type: ignore[misc]
        ids = tuple(self.brokers)
        for outage in world.outages:
            ends = self.die if outage.crashed else self.leave
            self.at(outage.begin, partial(ends, ids[outage.broker]))
            if np.isfinite(outage.end):
                self.at(outage.end, partial(self.start, ids[outage.broker]))

    def _expire(self, found: Broker, begun: float) -> None:
        """The session of one that died and did not come back."""
        if not found.up and found.started_at == begun:
            self._gone(found, died=True)

    def _gone(self, found: Broker, *, died: bool) -> None:
        found.listed = False
        if self.leader == found.id:
            self.lead_another()
        for bundle in self.owned(found.id):
            self.free(bundle, died=died)


def _broker(broker: str, at: int, world: World) -> Broker:
    there = bool(world.present(0)[at])
    return Broker(broker, at, up=there, listed=there, started_at=float(world.joins_at[at]))
