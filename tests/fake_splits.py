"""The small Pulsar of ``fake_pulsar.py`` with topics, boundaries and splits, as a real 4.0.8 answers them."""

from __future__ import annotations

import itertools
import json
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests import fake_pulsar
from tests.fake_pulsar import FakePulsar, Reply, ok, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fake_pulsar import Request

NAMESPACE = "shop/orders"
LOW, HIGH = f"{NAMESPACE}/0x00000000_0x80000000", f"{NAMESPACE}/0x80000000_0xffffffff"
UNOWNED = "shop/idle/0x00000000_0xffffffff"
ALGORITHMS = ("range_equally_divide", "topic_count_equally_divide", "specified_positions_divide")


def topic(number: int, namespace: str = NAMESPACE) -> str:
    """The number-th topic of a namespace."""
    return f"persistent://{namespace}/topic-{number}"


@dataclass
class SplittingPulsar(FakePulsar):
    """``topics`` are message rates in and out each; a topic without one is not loaded."""

    topics: dict[str, float | None] = field(default_factory=dict)
    cuts: dict[str, list[int]] = field(default_factory=dict)
    """What a broker cuts instead of what it is asked for, by bundle."""

    def within(self, bundle: str) -> dict[str, float | None]:
        """The topics of a bundle."""
        prefix, _, span = bundle.rpartition("/")
        lower, upper = (int(end, 16) for end in span.split("_"))
        own = {name: rate for name, rate in self.topics.items() if name.startswith(f"persistent://{prefix}/")}
        return {name: rate for name, rate in own.items() if lower <= zlib.crc32(name.encode()) < upper}

    def boundaries(self, namespace: str) -> list[int]:
        """Where the bundles of a namespace begin and end."""
        ranges = [name.rpartition("/")[2] for name in self.owners if name.rpartition("/")[0] == namespace]
        return sorted({int(end, 16) for span in ranges for end in span.split("_")})

    def cut(self, bundle: str, positions: list[int]) -> None:
        """Split a bundle: its parts stay where it was."""
        prefix, _, span = bundle.rpartition("/")
        lower, upper = (int(end, 16) for end in span.split("_"))
        owner, rate = self.owners.pop(bundle), self.rates.pop(bundle)
        ends = [lower, *sorted(positions), upper]
        for start, end in itertools.pairwise(ends):
            part = f"{prefix}/0x{start:08x}_0x{end:08x}"
            self.own(owner, {part: rate / (len(ends) - 1)})

    def report(self, identity: str) -> dict[str, Any]:
        """With as many topics as there are."""
        found = super().report(identity)
        for bundle, stats in found["lastStats"].items():
            stats["topics"] = max(len(self.within(bundle)), 1)
        return found

    def _usual(self, asked: Request) -> Reply:
        parts = asked.path.strip("/").split("/")
        if parts[:3] == ["admin", "v2", "namespaces"] and parts[-1] in {"bundles", "topics"}:
            return self._namespace("/".join(parts[3:5]), parts[-1])
        if parts[-2:] == ["broker-stats", "topics"]:
            return ok(self._stats(asked.broker))
        return super()._usual(asked)

    def _namespace(self, namespace: str, what: str) -> Reply:
        found = self.boundaries(namespace)
        if not found:
            return refused(404, "Namespace not found")
        if what == "topics":
            return ok([name for name in self.topics if name.startswith(f"persistent://{namespace}/")])
        return ok({"boundaries": [f"0x{end:08x}" for end in found], "numBundles": len(found) - 1})

    def _stats(self, broker: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for bundle in [bundle for bundle, owner in self.owners.items() if owner == broker]:
            namespace, _, span = bundle.rpartition("/")
            loaded = {name: _topic_stats(rate) for name, rate in self.within(bundle).items() if rate is not None}
            found.setdefault(namespace, {})[span] = {"persistent": loaded}
        return found

    def _bundle(self, asked: Request, bundle: str, what: str) -> Reply:
        if what != "split" or bundle not in self.owners:
            return super()._bundle(asked, bundle, what)
        if self.owners[bundle] not in {None, asked.broker}:
            return Reply(307, location=f"http://{self.owners[bundle]}{asked.path}?authoritative=true")
        self.owners[bundle] = asked.broker
        algorithm = asked.query.get("splitAlgorithmName") or ALGORITHMS[0]
        if algorithm not in ALGORITHMS:
            return refused(500, "\n --- An unexpected error occurred in the server ---\n\nMessage: class cast\n")
        wanted = self._wanted(bundle, algorithm, json.loads(asked.body or b"[]"))
        if wanted:
            self.cut(bundle, self.cuts.pop(bundle, wanted))
        return Reply(204)

    def _wanted(self, bundle: str, algorithm: str, given: list[int]) -> list[int]:
        lower, upper = (int(end, 16) for end in bundle.rpartition("/")[2].split("_"))
        if algorithm == ALGORITHMS[0]:
            return [(lower + upper) // 2]
        return [one for one in given if lower < one < upper] if len(self.within(bundle)) > 1 else []


def _topic_stats(rate: float) -> dict[str, Any]:
    traffic = {"msgRateIn": rate, "msgRateOut": rate, "msgThroughputIn": rate * 100, "msgThroughputOut": rate * 100}
    return {"publishers": [], "producerCount": 1, "averageMsgSize": 100.0, **traffic, "storageSize": 12345}


@contextmanager
def busy() -> Iterator[SplittingPulsar]:
    """Three brokers, two bundles with twelve topics, two of these not loaded, and a bundle that nobody owns."""
    with fake_pulsar.started(kind=SplittingPulsar) as cluster:
        cluster.own(cluster.ids[0], {LOW: 3000.0})
        cluster.own(cluster.ids[1], {HIGH: 3000.0})
        cluster.own(None, {UNOWNED: 0.0})
        cluster.topics = {topic(number): (600.0 if number < 10 else None) for number in range(12)}
        yield cluster
