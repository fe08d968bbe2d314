"""The state of a fake cluster: live brokers, the leader, the owner of each bundle, noted destinations, and the clock.

Time is seconds of the run; only the clock itself reads this machine's. Its speed may change, and it can be set forward.
Events without a request, such as samples, ends of sessions and returning clients, happen in :meth:`Book.advance`, each
at its own time.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from lbd.model import bundle_namespace, bundle_range
from lbd.permit.policies import parse_isolation
from lbd.pulsar.admin import MODULAR
from lbd.pulsar.broker_configuration import is_extensible
from lbd.pulsar.paths import keys_destinations_by_range, parse_version
from lbd.simulate.cluster import FIRST_CPU, moved, process_cpu, split, step, topics_in
from lbd.simulate.world import STEP_SECONDS, WARM_UP_SECONDS, BusyDay, ClusterState, Counted, World
from lbd.split.plan import split_parts
from lbd.text import DAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lbd.model import BoolArray, ProcessCpu
    from lbd.split.plan import Topic


class FakeClock:
    """Epoch seconds, ``speed`` of them in a second of this machine. Thread-safe; it never goes back."""

    def __init__(self, speed: float = 1.0, begun_at: float | None = None) -> None:
        self._lock = threading.Lock()
        self._speed = _checked(speed)
        self._base = time.time() if begun_at is None else begun_at
        self._since = time.monotonic()

    def now(self) -> float:
        """The time that the clock shows, epoch seconds."""
        with self._lock:
            return self._now()

    @property
    def speed(self) -> float:
        """Seconds in a second."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        with self._lock:
            self._base, self._since = self._now(), time.monotonic()
            self._speed = _checked(speed)

    def forward(self, seconds: float) -> None:
        """Advance by ``seconds`` at once. Raises :class:`ValueError` for less than none."""
        if not seconds >= 0:
            raise ValueError(f"forward by {seconds} s: wanted 0 or more")
        with self._lock:
            self._base += seconds

    def _now(self) -> float:
        return self._base + (time.monotonic() - self._since) * self._speed


def _checked(speed: float) -> float:
    if not 0 < speed < float("inf"):
        raise ValueError(f"speed {speed}: wanted more than 0")
    return speed


# --- the model with unowned bundles, and brokers that come and go on command
# Unowned bundles belong to an extra last broker that cannot be reached: so the model's own steps count their traffic
# nowhere.

NOBODY = ""


def with_nobody(world: World, state: ClusterState, ids: Sequence[str]) -> tuple[World, ClusterState]:
    """The same cluster under these ids, and nobody as its last broker. Nobody leaves by a time-table any more."""
    brokers = len(ids)
    return replace(
        world,
        brokers=(*ids, NOBODY),
        background=np.append(world.background, 0.0),
        capacity=np.append(world.capacity, 1.0),
        joins_at=np.append(world.joins_at, -np.inf),
        leaves_at=np.full(brokers + 1, np.inf),
        outages=(),
        silences=(),
        allowed=np.pad(world.allowed, ((0, 0), (0, 1))),
        cpu_second=np.append(world.cpu_second, 0),
        stats_second=np.append(world.stats_second, 0),
    ), replace(
        state,
        cpu=np.append(state.cpu, FIRST_CPU),
        counted=(*state.counted, _nothing()),
        busy=np.append(state.busy, 0.0),
        spent=np.append(state.spent, 0.0),
        cold_seconds=np.append(state.cold_seconds, 0.0),
    )


def started(world: World, state: ClusterState, broker: int, seconds: float) -> tuple[World, ClusterState]:
    """A broker that started just now: it has sampled no CPU and counted no bundle."""
    joins_at, cpu, busy, spent = world.joins_at.copy(), state.cpu.copy(), state.busy.copy(), state.spent.copy()
    cold_seconds = state.cold_seconds.copy()
    joins_at[broker], cpu[broker], busy[broker], spent[broker] = seconds, FIRST_CPU, 0.0, 0.0
    cold_seconds[broker] = WARM_UP_SECONDS
    counted = (*state.counted[:broker], _nothing(), *state.counted[broker + 1 :])
    fresh = replace(state, cpu=cpu, busy=busy, spent=spent, cold_seconds=cold_seconds, counted=counted)
    return replace(world, joins_at=joins_at), fresh


def busy(first: World, world: World, rows: BoolArray, begin: float, day_seconds: float, peak: float) -> World:
    """The same with a busy day for the bundles in ``rows``, bool (N,), and for no other one.

    ``first`` is the world without any: each of its loads is there a second time, with the busy day.
    """
    loads = len(first.shapes)
    days = tuple((BusyDay(traffic, begin, day_seconds, peak), consumers) for traffic, consumers in first.shapes)
    return replace(
        world,
        load=(world.load % loads + rows * loads).astype(np.int32),
        shapes=first.shapes + days,
        allowed=np.vstack([first.allowed, first.allowed]),
    )


def _nothing() -> Counted:
    return Counted(np.zeros(0, dtype=np.int64), np.zeros((0, 4)))


# --- settings of the operators


@dataclass
class FakePolicies:
    """It may be changed at any time.

    ``isolation``: policies by name, as JSON; ``groups``: the anti-affinity group of a namespace; ``domains``: the
    brokers of a failure domain; ``properties``: those of a namespace.
    """

    isolation: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    domains: dict[str, list[str]] = field(default_factory=dict)
    properties: dict[str, dict[str, str]] = field(default_factory=dict)


# --- effective settings of brokers, and the overrides that all of them take

_FILE = Path(__file__).parent / "runtime-4.0.8.json"
"""The balancing part of ``configuration/runtime`` of a 4.0.8, with the brokers' own shedding, splitting and even
distribution turned off: nothing here does them."""

NOT_DYNAMIC = frozenset({"loadBalancerEnabled", "loadManagerClassName"})


@cache
def _defaults() -> dict[str, str]:
    return msgspec.json.decode(_FILE.read_bytes(), type=dict[str, str])


class Configuration:
    """Configuration of the brokers, and the dynamic overrides that all of them have.

    ``changes`` are the keys in which this cluster's broker.conf differs from the default, ``own`` those of one
    broker's; ``version`` is a broker's.
    """

    def __init__(
        self,
        cluster: str,
        version: Callable[[str], str],
        changes: Mapping[str, str],
        own: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self.cluster = cluster
        self._version, self._own = version, own
        self._file = {**_defaults(), "clusterName": cluster, **changes}
        self._deleted: dict[str, str] = {}
        self.overrides: dict[str, str] = {}

    def running(self, broker: str) -> dict[str, str]:
        """A broker's running configuration. A value that it cannot read changes nothing. Before 3.0 a deleted override
        stays in force.
        """
        host, _, port = broker.rpartition(":")
        address = {"advertisedAddress": host, "webServicePort": f"Optional[{port}]"}
        configuration = {**self._file, **address, **self._own(broker)}
        stale = self._deleted if parse_version(self._version(broker)) < (3, 0, 0) else {}
        for key, value in (*stale.items(), *self.overrides.items()):
            configuration[key] = _read(configuration.get(key, ""), value)
        return configuration

    def extensible(self, broker: str) -> bool:
        """Whether it runs the extensible load manager."""
        return is_extensible({**self._file, **self._own(broker)})

    def dynamic(self, key: str) -> bool:
        """Whether it can be overridden while brokers run."""
        return key.startswith("loadBalance") and key in self._file and key not in NOT_DYNAMIC

    def delete(self, key: str) -> None:
        """Take an override away."""
        if key in self.overrides:
            self._deleted[key] = self.overrides.pop(key)


def _read(before: str, value: str) -> str:
    """As Java reads it: of a boolean everything but true is false; what is no number leaves a number as it is."""
    if before in {"true", "false"}:
        return str(value.strip().lower() == "true").lower()
    return before if _is_number(before) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# --- load report as JSON, with the fields of brokers of 4.0

OWN_RANGE = "0x00000000_0xffffffff"
RATES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
_UNKNOWN_LIMIT = {"usage": 0.0, "limit": -1000.0}
"""Bandwidth that brokers report for a virtual network card without a speed."""


def heartbeats(cluster: str, broker: str) -> list[str]:
    """The bundles that a broker owns for its own health check."""
    return [f"pulsar/{cluster}/{broker}/{OWN_RANGE}", f"pulsar/{broker}/{OWN_RANGE}"]


def load_report(
    broker: str,
    cpu: float,
    rates: Mapping[str, Sequence[float]],
    topics: Mapping[str, int],
    *,
    version: str,
    cluster: str,
    started_at: float,
    at: float,
) -> dict[str, Any]:
    """The load report of a broker: CPU in percent, rates and topics of each bundle, and times in epoch seconds.

    Each topic has a producer and a consumer.
    """
    stats = {
        heartbeats(cluster, broker)[0]: _statistics([0.0] * 4, topics=1, clients=0),
        **{bundle: _statistics(row, topics[bundle], topics[bundle]) for bundle, row in rates.items()},
    }
    host, _, port = broker.rpartition(":")
    number = sum(topics[bundle] for bundle in rates)
    return {
        "webServiceUrl": f"http://{broker}",
        "pulsarServiceUrl": f"pulsar://{host}:{port}",
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        "cpu": {"usage": cpu, "limit": 100.0},
        "memory": {"usage": 84.5, "limit": 371.25},
        "directMemory": {"usage": 16.0, "limit": 256.0},
        "bandwidthIn": _UNKNOWN_LIMIT,
        "bandwidthOut": _UNKNOWN_LIMIT,
        **{rate: float(sum(row[at] for row in rates.values())) for at, rate in enumerate(RATES)},
        "lastUpdate": int(at * 1000),
        "lastStats": stats,
        "numTopics": 1 + number,
        "numBundles": len(stats),
        "numConsumers": number,
        "numProducers": number,
        "bundles": list(stats),
        "lastBundleGains": [],
        "lastBundleLosses": [],
        "brokerVersionString": version,
        "protocols": {},
        "advertisedListeners": {},
        "loadManagerClassName": MODULAR,
        "startTimestamp": int(started_at * 1000),
        "maxResourceUsage": max(cpu / 100.0, 0.0625),
        "loadReportType": "LocalBrokerData",
    }


def _statistics(rates: Sequence[float], topics: int, clients: int) -> dict[str, float]:
    counts = {"consumerCount": clients, "producerCount": clients, "topics": topics, "cacheSize": 0}
    return {**dict(zip(RATES, rates, strict=True)), **counts}


# --- book

CLOSED_AFTER_SECONDS = 0.024
"""When a part that is unloaded after the split is free: an unload takes as long (4.0.8, p50)."""

SESSION_SECONDS = 30.0
"""For so long a broker that died is listed, leads, and owns what it owned (metadataStoreSessionTimeoutMillis)."""


@dataclass
class Broker:
    """One broker. ``up``: it answers. ``listed``: its session lives. ``started_at`` is seconds of the run."""

    id: str
    row: int
    up: bool
    listed: bool
    started_at: float


@dataclass(frozen=True)
class OwnershipChange:
    """From ``seconds`` of the run on ``owner`` has the bundle; None: nobody."""

    seconds: float
    bundle: str
    owner: str | None


class Book:
    """Not thread-safe. ``on_free`` gets each bundle that has no owner any more, and whether its owner died."""

    def __init__(
        self,
        world: World,
        state: ClusterState,
        ids: Sequence[str],
        version: str,
        policies: FakePolicies,
    ) -> None:
        self.seconds = float(state.seconds)
        self.version, self.policies = version, policies
        self.brokers = {broker: _broker(broker, at, world) for at, broker in enumerate(ids)}
        self.world, self.state = with_nobody(world, state, ids)
        self.first = self.world
        self.nobody = len(ids)
        self._index()
        self.random = np.random.default_rng((world.seed, self.nobody))
        self.leader: str | None = None
        self.affinity: dict[str, str] = {}
        self.closing: set[str] = set()
        self.barred: dict[tuple[str, str], frozenset[str]] = {}
        self.history = [OwnershipChange(self.seconds, bundle, self.owner(bundle)) for bundle in self.bundles]
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

    def _index(self) -> None:
        self.bundles = {bundle: at for at, bundle in enumerate(self.world.bundles)}
        self.ranges = ranges(self.world.bundles)

    def owner(self, bundle: str) -> str | None:
        """The owner of a bundle; a broker that died owns it until its session ends."""
        return self.world.brokers[self.state.owner[self.bundles[bundle]]] or None

    def owned(self, broker: str) -> list[str]:
        """The bundles of a broker."""
        mine = np.flatnonzero(self.state.owner == self.brokers[broker].row)
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

    def close_later(self, bundle: str) -> None:
        """Its owner has begun to close it, and lets go a moment later."""
        self.closing.add(bundle)
        self.at(self.seconds + CLOSED_AFTER_SECONDS, partial(self.closed, bundle))

    def transfer(self, bundle: str, destination: str | None) -> None:
        """Its owner hands it over, as the extensible manager does: no client loses it."""
        self._give(bundle, destination)

    def acquire(self, bundle: str, broker: str) -> None:
        """The broker takes it, if nobody has it and the broker is there: who comes first wins."""
        if bundle in self.bundles and self.owner(bundle) is None and self.brokers[broker].up:
            self._give(bundle, broker)

    def topics(self, bundle: str) -> tuple[Topic, ...]:
        """The topics of a bundle, in the order of their hashes."""
        return topics_in(self.first, self.world, self.bundles[bundle])

    def split(self, bundle: str, positions: Sequence[int]) -> tuple[str, ...]:
        """Its parts, which belong to its owner; the history of the whole bundle ends."""
        owner, row, parts = self.owner(bundle), self.bundles[bundle], split_parts(bundle, positions)
        self.world, self.state = split(self.world, self.state, row, positions, self.topics(bundle))
        self._index()
        self.history += [OwnershipChange(self.seconds, part, owner) for part in parts]
        return parts

    def scale(self, factors: Mapping[str, float]) -> None:
        """Multiply the traffic of bundles by a factor each."""
        column = np.ones((len(self.bundles), 1))
        for bundle, factor in factors.items():
            column[self.bundles[bundle]] = factor
        self.world = replace(self.world, rates=self.world.rates * column)

    def begin_day(self, day_seconds: float, peak: float, number: int = 0) -> None:
        """Multiply the traffic of one broker's bundles by up to ``peak`` at midday; tomorrow that of another broker."""
        owners = [broker for broker in self.brokers.values() if broker.up and self.owned(broker.id)]
        if owners:
            rows = self.state.owner == owners[number % len(owners)].row
            self.world = busy(self.first, self.world, rows, self.seconds, day_seconds, peak)
        self.at(self.seconds + day_seconds, partial(self.begin_day, day_seconds, peak, number + 1))

    def place(self, bundle: str) -> str:
        """Where the leader wants a bundle that nobody owns: by its note, which is used up, or else at random.

        Empty where no broker may have it.
        """
        return self.affinity.pop(self.key(bundle), "") or self.at_random(bundle)

    def at_random(self, bundle: str) -> str:
        """Among the brokers that isolation policies allow, if there are any.

        Without policies, not among those that a leader takes for unable: ``barred``, by leader and bundle
        (``LoadManagerShared.applyNamespacePolicies``).
        """
        listed = self.listed
        allowed = parse_isolation(self.policies.isolation).brokers(bundle_namespace(bundle), listed)
        barred = self.barred.get((self.leader or "", bundle), frozenset()) if not self.policies.isolation else ()
        among = [broker for broker in listed if broker not in barred and (broker in allowed or not allowed)]
        return among[int(self.random.integers(len(among)))] if among else ""

    def note(self, bundle: str, destination: str) -> None:
        """The leader notes where the bundle shall go."""
        self.affinity[self.key(bundle)] = destination

    def key(self, bundle: str) -> str:
        """Key of a bundle's note: its range alone on many versions (#25518)."""
        return bundle_range(bundle) if keys_destinations_by_range(self.version) else bundle

    def _give(self, bundle: str, broker: str | None) -> None:
        owner = self.nobody if broker is None else self.brokers[broker].row
        self.state = moved(self.state, self.bundles[bundle], owner)
        self.history.append(OwnershipChange(self.seconds, bundle, broker))

    # -- brokers

    def version_of(self, broker: str) -> str:
        """The same for all."""
        del broker
        return self.version

    def up(self, broker: str) -> bool:
        """Whether it answers."""
        return self.brokers[broker].up

    def report(self, broker: str, cluster: str, begun_at: float) -> dict[str, Any]:
        """A broker's load report now; ``begun_at`` is when the run began, epoch seconds, by the broker's clock."""
        member, rates = self.brokers[broker], self.counted(broker)
        topics = {bundle: int(self.world.topics[self.bundles[bundle]]) for bundle in rates}
        cpu, started_at = float(self.state.cpu[member.row]), member.started_at
        began = begun_at + (started_at if np.isfinite(started_at) else -DAY_SECONDS)
        time = begun_at + self.seconds
        who = {"version": self.version, "cluster": cluster}
        return load_report(broker, cpu, rates, topics, **who, started_at=began, at=time)

    def clients(self, broker: str, bundle: str) -> float:
        """Since when clients are connected to a bundle's topics, seconds of the run."""
        return max(change.seconds for change in self.history if change.bundle == bundle and change.owner == broker)

    def process(self, broker: str) -> ProcessCpu:
        """The CPU counter of a broker's process."""
        member = self.brokers[broker]
        return process_cpu(self.state, member.row, member.started_at)

    def topic_rates(self, broker: str) -> dict[str, dict[str, list[float]]]:
        """Equal shares of the rates of each bundle that the broker has counted."""
        rates: dict[str, dict[str, list[float]]] = {}
        for bundle, row in self.counted(broker).items():
            topics = self.topics(bundle)
            rates[bundle] = {topic.name: [rate / len(topics) for rate in row] for topic in topics}
        return rates

    def counted(self, broker: str) -> dict[str, list[float]]:
        """Rates of each bundle that a broker has counted."""
        counted = self.state.counted[self.brokers[broker].row]
        names = [self.world.bundles[at] for at in counted.bundles.tolist()]
        return dict(zip(names, counted.rates.tolist(), strict=True))

    @property
    def listed(self) -> list[str]:
        """The brokers whose sessions live."""
        return [broker.id for broker in self.brokers.values() if broker.listed]

    def lead(self, broker: str | None) -> None:
        """Another leader, who knows of no note."""
        self.leader = broker
        self.affinity.clear()

    def lead_another(self) -> None:
        """Make another broker than now the leader, if there is one."""
        self.lead(next((other.id for other in self.brokers.values() if other.up and other.id != self.leader), None))

    def die(self, broker: str) -> None:
        """Kill -9: the broker answers no more, and stays listed until its session ends."""
        member = self.brokers[broker]
        if member.up:
            member.up = False
            self.closing.difference_update(self.owned(broker))
            started_at = member.started_at
            self.at(self.seconds + SESSION_SECONDS, lambda: self._expire(member, started_at))

    def leave(self, broker: str) -> None:
        """An orderly stop: the broker's session ends at once."""
        member = self.brokers[broker]
        member.up = False
        self._gone(member, died=False)

    def start(self, broker: str) -> None:
        """Start a broker, for the first time or anew. It has lost the bundles and the leadership that it had before."""
        member = self.brokers[broker]
        if not member.up:
            self._gone(member, died=True)
            member.up, member.listed, member.started_at = True, True, self.seconds
            self.world, self.state = started(self.world, self.state, member.row, self.seconds)
            if self.leader is None:
                self.lead(broker)

    def _plan_lives(self, world: World) -> None:
        """Schedule the brokers that join, leave or fail in the scenario."""
        for broker in self.brokers.values():
            joins, leaves = float(world.joins_at[broker.row]), float(world.leaves_at[broker.row])
            if joins > self.seconds:
                self.at(joins, lambda member=broker: self.start(member.id))  # type: ignore[misc]
            if np.isfinite(leaves):
                self.at(leaves, lambda member=broker: self.leave(member.id))  # type: ignore[misc]
        ids = tuple(self.brokers)
        for outage in world.outages:
            ends = self.die if outage.crashed else self.leave
            self.at(outage.begin, partial(ends, ids[outage.broker]))
            if np.isfinite(outage.end):
                self.at(outage.end, partial(self.start, ids[outage.broker]))

    def _expire(self, broker: Broker, started_at: float) -> None:
        """End the session of a broker that died and did not come back."""
        if not broker.up and broker.started_at == started_at:
            self._gone(broker, died=True)

    def _gone(self, broker: Broker, *, died: bool) -> None:
        broker.listed = False
        if self.leader == broker.id:
            self.lead_another()
        for bundle in self.owned(broker.id):
            self.free(bundle, died=died)


def ranges(bundles: Iterable[str]) -> dict[str, tuple[list[int], list[str]]]:
    """The lower ends and the names of each namespace's bundles, in order."""
    by_namespace: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for bundle in bundles:
        lower = int(bundle_range(bundle).partition("_")[0], 16)
        by_namespace[bundle_namespace(bundle)].append((lower, bundle))
    return {
        namespace: ([start for start, _ in sorted(ones)], [bundle for _, bundle in sorted(ones)])
        for namespace, ones in by_namespace.items()
    }


def _broker(broker: str, row: int, world: World) -> Broker:
    there = bool(world.present(0)[row])
    return Broker(broker, row, up=there, listed=there, started_at=float(world.joins_at[row]))


# --- clients: they lose their connections to an owner, and return by a lookup

RECONNECT_SECONDS = 0.1
"""A client's first wait; the new owner shows 127 to 137 ms after the 204 (4.0.8, p50, nobody nudges)."""

JITTER_SECONDS = 0.01
"""The first wait is up to a tenth shorter."""

LOOKUP_SECONDS = (0.0125, 0.0135)
"""From the leader's choice until the chosen broker owns the bundle: 13 ms (4.0.8, p50). The spread is a fit: of unloads
that nobody nudges six clients take 6 % elsewhere then, as there (9 of 140)."""

DEAD_OWNER_SECONDS = 18.0
"""After a dead owner's session has ended clients come within this: their waits have grown (4.0.8, one kill -9)."""


LATER_SECONDS = 5.0
"""Until a client looks again when nobody could place the bundle, in seconds of the cluster."""


class Clients:
    """Clients, ``number`` on each bundle. ``speed`` is the factor on the milliseconds that their steps take."""

    def __init__(self, book: Book, number: int, speed: Callable[[], float]) -> None:
        self._book, self._number, self._speed = book, number, speed
        book.on_free = self.lost

    def lost(self, bundle: str, died: bool) -> None:
        """Have each client of the bundle look it up again; of a dead owner (``died``) it takes notice later."""
        random, speed = self._book.random, self._speed()
        for _ in range(self._number):
            short = (RECONNECT_SECONDS - random.uniform(0, JITTER_SECONDS)) * speed
            self._again(bundle, random.uniform(0, DEAD_OWNER_SECONDS) if died else short)

    def _again(self, bundle: str, seconds: float) -> None:
        self._book.at(self._book.seconds + seconds, lambda: self._look_up(bundle))

    def _look_up(self, bundle: str) -> None:
        """The leader chooses; between that and the choice's taking the bundle another one may look it up (#24884)."""
        book = self._book
        if bundle not in book.bundles or book.owner(bundle) is not None:
            return
        leader = book.brokers.get(book.leader or "")
        chosen = book.place(bundle) if leader is not None and leader.up else ""
        if not chosen or not book.brokers[chosen].up:
            self._again(bundle, LATER_SECONDS)
            return
        takes = book.random.uniform(*LOOKUP_SECONDS) * self._speed()
        book.at(book.seconds + takes, lambda: book.acquire(bundle, chosen))
