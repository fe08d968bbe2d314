"""A small Pulsar whose owners, rates, samples and settings a test sets by hand, behind fake brokers.

Nothing happens by itself: no client comes back, and no time passes for the load. Faults are switched on by each test.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from lbd.bundles import holds, topic_hash, topic_namespace
from lbd.model import ProcessCpu, bundle_namespace
from lbd.simulate.answers import Reply, Request, ok, page
from lbd.simulate.fake_cluster import Configuration, FakePolicies, heartbeats, load_report, ranges
from lbd.simulate.fake_pulsar import FakeAdminApi
from lbd.split.plan import Topic, split_parts
from tests.simulate.faulty import INSTEAD, Fault, FaultyBrokers, Spoilt, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lbd.simulate.fake_pulsar import Door

CLUSTER = "c"
MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
SIMPLE = "org.apache.pulsar.broker.loadbalance.impl.SimpleLoadManagerImpl"
HTML_PAGE = page(200)
HTML = HTML_PAGE.body
HALF_A_JSON = INSTEAD[Fault.HALF_JSON]
SILENCE = Spoilt(hangs_up=True)
PATIENCE_SECONDS = 60.0


@dataclass
class FakeBroker:
    """One broker: its web port, its load, and how it is."""

    server: Door
    cpu: float = 10.0
    started_at: float = 1_700_000_000.0
    spent_seconds: float = 0.0
    up_seconds: float = 0.0
    version: str = "4.0.8"
    alive: bool = True
    runtime: dict[str, str] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """``host:port``."""
        return self.server.id

    @property
    def base(self) -> str:
        """Its web address."""
        return f"http://{self.id}"


class FakePulsar(FaultyBrokers):
    """A cluster: brokers, of which the second one leads, who owns which bundle, and the leader's affinities.

    ``topic_names`` are its topics, of which no broker has rates. ``steals`` are the brokers to which clients take a
    bundle at the very moment when it is closed (#24884), ``gone`` those that are not listed.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.requests: list[Request] = []
        self.unload_seconds = 0.0
        self._held: list[tuple[str, str, threading.Event]] = []
        self.brokers = [FakeBroker(door) for door in self._ports]
        self.gone: set[str] = set()
        self.owners: dict[str, str | None] = {}
        self.rates: dict[str, float] = {}
        self.topic_names: set[str] = set()
        self.affinity: dict[str, str] = {}
        self.steals: dict[str, list[str]] = {}
        self.closing: set[str] = set()
        self.barred: dict[tuple[str, str], frozenset[str]] = {}
        self.policies = FakePolicies()
        self.leader: str | None = self.ids[min(1, count - 1)]
        self.configuration = Configuration(CLUSTER, self.version_of, {}, lambda broker: self.broker(broker).runtime)
        self._book = self
        self._answers = FakeAdminApi(self, self.configuration, 0.0)

    @property
    def ids(self) -> list[str]:
        """Active brokers."""
        return [broker.id for broker in self.brokers if broker.id not in self.gone]

    @property
    def urls(self) -> list[str]:
        """Their web addresses."""
        return [f"http://{broker}" for broker in self.ids]

    @property
    def dynamic(self) -> dict[str, str]:
        """The overrides of all brokers."""
        return self.configuration.overrides

    @dynamic.setter
    def dynamic(self, values: dict[str, str]) -> None:
        self.configuration.overrides = values

    def broker(self, identity: str) -> FakeBroker:
        """The broker of this id."""
        return next(broker for broker in self.brokers if broker.id == identity)

    def own(self, owner: str | None, rates: Mapping[str, float]) -> None:
        """Give bundles with these message rates (in and out each) to a broker."""
        self.owners.update(dict.fromkeys(rates, owner))
        self.rates.update(rates)

    def sample(self, *cpu: float) -> None:
        """New CPU samples, one per broker."""
        for broker, usage in zip(self.brokers, cpu, strict=True):
            broker.cpu = usage

    def fault(
        self,
        part: str,
        reply: Reply,
        *,
        method: str | None = None,
        broker: str | None = None,
        times: int | None = None,
        after_acting: bool = False,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Answer like this where the path contains ``part``; see :class:`~tests.simulate.faulty.Switch`."""
        switch = Switch(
            Fault.OTHER_REPLY, broker, part, times, acts=after_acting, reply=reply, method=method, then=then
        )
        self.faults.on(switch)

    def hold(self, part: str, broker: str) -> threading.Event:
        """Carry out what a broker is asked where the path contains ``part``, and answer once the event is set."""
        go_on = threading.Event()
        self._held.append((part, broker, go_on))
        return go_on

    def asked(self, part: str, method: str | None = None) -> list[Request]:
        """The requests whose path contains ``part``, in their order."""
        return [one for one in self.requests if part in one.path and method in {None, one.method}]

    def answer(self, asked: Request) -> Reply:
        """One answer after the other."""
        with self.lock:
            reply = super().answer(asked)
        for part, broker, go_on in self._held:
            if broker == asked.broker and part in asked.path:
                go_on.wait(PATIENCE_SECONDS)
        return reply

    # -- what the answers are made of

    @property
    def bundles(self) -> dict[str, str | None]:
        """All bundles, with their owners."""
        return self.owners

    @property
    def ranges(self) -> dict[str, tuple[list[int], list[str]]]:
        """The bundles of each namespace."""
        return ranges(self.owners)

    @property
    def listed(self) -> list[str]:
        """Active brokers."""
        return self.ids

    def advance(self, seconds: float) -> None:
        """Nothing happens by itself."""

    def up(self, broker: str) -> bool:
        """Whether it answers."""
        return self.broker(broker).alive

    def die(self, broker: str) -> None:
        """It stays listed, and leads if it led."""
        self.broker(broker).alive = False

    def lead_another(self) -> None:
        """Another one than now."""
        self.leader = next(broker for broker in self.ids if broker != self.leader)

    def version_of(self, broker: str) -> str:
        """Each may have its own."""
        return self.broker(broker).version

    def report(self, broker: str, cluster: str = CLUSTER, begun_at: float = 0.0) -> dict[str, Any]:
        """A broker's load report, made from what it owns, and of fields that the test has set."""
        found = self.broker(broker)
        rates = {bundle: _row(self.rates[bundle]) for bundle in self.owned(broker)}
        topics = {bundle: max(len(self.topics(bundle)), 1) for bundle in rates}
        times = {"started_at": begun_at + found.started_at, "at": begun_at + time.time()}
        made = load_report(broker, found.cpu, rates, topics, version=found.version, cluster=cluster, **times)
        del made["lastStats"][heartbeats(cluster, broker)[0]]  # tests count bundles of their own only
        return {**made, "bundles": list(rates), "numBundles": len(rates), **found.report}

    def process(self, broker: str) -> ProcessCpu:
        """CPU that its process has spent, and how long it is up, in seconds, as the test has set them."""
        found = self.broker(broker)
        return ProcessCpu(found.spent_seconds, found.up_seconds)

    def topic_rates(self, broker: str) -> dict[str, dict[str, list[float]]]:
        """Rates of each loaded topic."""
        return {
            bundle: {
                topic.name: _row(topic.msg_rate / 2) for topic in self.topics(bundle) if topic.msg_rate is not None
            }
            for bundle in self.owned(broker)
        }

    def owner(self, bundle: str) -> str | None:
        """Who has it."""
        return self.owners[bundle]

    def owned(self, broker: str) -> list[str]:
        """Its bundles."""
        return [bundle for bundle, owner in self.owners.items() if owner == broker]

    def topics(self, bundle: str) -> tuple[Topic, ...]:
        """Those of its namespace whose hash lies in it."""
        names = (name for name in sorted(self.topic_names) if topic_namespace(name) == bundle_namespace(bundle))
        return tuple(Topic(name, topic_hash(name)) for name in names if holds(bundle, topic_hash(name)))

    def clients(self, broker: str, bundle: str) -> float:
        """There since the beginning."""
        del broker, bundle
        return 0.0

    def note(self, bundle: str, destination: str) -> None:
        """Whatever the version is, by the whole name of the bundle."""
        self.affinity[bundle] = destination

    def place(self, bundle: str) -> str:
        """Where it was noted to go, or else to the last broker that the leader takes for able; empty if none is."""
        barred = self.barred.get((self.leader or "", bundle), frozenset())
        able = [broker for broker in self.ids if broker not in barred]
        return self.affinity.pop(bundle, able[-1] if able else "")

    def acquire(self, bundle: str, broker: str) -> None:
        """Who comes first has it."""
        if self.owners[bundle] is None:
            self.owners[bundle] = broker

    def transfer(self, bundle: str, destination: str | None) -> None:
        """Its owner hands it over."""
        self.owners[bundle] = destination

    def closed(self, bundle: str) -> bool:
        """It is closed; a client whose lookup comes at that very moment may take it elsewhere."""
        self.closing.discard(bundle)
        self.owners[bundle] = None
        thieves = self.steals.get(bundle, [])
        if thieves:
            self.owners[bundle] = thieves.pop(0)
            self.affinity.pop(bundle, None)
        return True

    def close_later(self, bundle: str) -> None:
        """Now, in fact."""
        self.closed(bundle)

    def split(self, bundle: str, positions: Sequence[int]) -> tuple[str, ...]:
        """Its parts stay where it was, with equal shares of its rates."""
        owner, rate, parts = self.owners.pop(bundle), self.rates.pop(bundle), split_parts(bundle, positions)
        self.own(owner, dict.fromkeys(parts, rate / len(parts)))
        return parts


def _row(rate: float) -> list[float]:
    return [rate, rate, rate * 100, rate * 100]


Kind = TypeVar("Kind", bound=FakePulsar)


@contextmanager
def started(count: int = 3, kind: type[Kind] = FakePulsar) -> Iterator[Kind]:  # type: ignore[assignment]
    """A running cluster of ``count`` brokers on 127.0.0.1, .2, ...; the second one leads."""
    with kind(count) as cluster:
        yield cluster


def scalable_topic(active: Mapping[int, tuple[int, int]]) -> Reply:
    """What 5.0.0-M1 answers about a scalable topic: segment 0, which was split and is sealed, and these active ones."""
    sealed = _segment(0, (0, 0xFFFF), "SEALED")
    segments = {"0": sealed, **{str(number): _segment(number, ends, "ACTIVE") for number, ends in active.items()}}
    return ok({"epoch": 1, "nextSegmentId": len(segments), "segments": segments, "properties": {}})


def _segment(number: int, ends: tuple[int, int], state: str) -> dict[str, Any]:
    ids = {"segmentId": number, "parentIds": [0] if number else [], "childIds": [] if number else [1, 2]}
    since = {"createdAtEpoch": 0, "sealedAtEpoch": -1, "createdAtMs": 1795656153482, "sealedAtMs": -1}
    return {**ids, "hashRange": {"start": ends[0], "end": ends[1]}, "state": state, **since, "legacy": False}


HOT = [f"t/n/0x{number << 28:08x}_0x{(number + 1) << 28:08x}" for number in range(8)]
WARM, COLD = "t/n/0x80000000_0xc0000000", "t/n/0xc0000000_0xffffffff"


@contextmanager
def hot_broker() -> Iterator[FakePulsar]:
    """A cluster in which broker 1 is hot with eight equal bundles, broker 2 warm and broker 3 cold with one each."""
    with started() as cluster:
        first, second, third = cluster.ids
        cluster.own(first, dict.fromkeys(HOT, 1000.0))
        cluster.own(second, {WARM: 4000.0})
        cluster.own(third, {COLD: 100.0})
        cluster.sample(80.0, 45.0, 10.0)
        yield cluster
