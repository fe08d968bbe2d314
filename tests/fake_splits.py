"""The small Pulsar of ``fake_pulsar.py`` with topics, boundaries and splits, as a real 4.0.8 answers them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lbd.bundles import holds, range_in_name, topic_hash, topic_namespace
from lbd.model import bundle_namespace
from lbd.split.plan import Topic
from tests import fake_pulsar
from tests.fake_pulsar import FakePulsar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAMESPACE = "shop/orders"
LOW, HIGH = f"{NAMESPACE}/0x00000000_0x80000000", f"{NAMESPACE}/0x80000000_0xffffffff"
UNOWNED = "shop/idle/0x00000000_0xffffffff"


def topic(number: int, namespace: str = NAMESPACE) -> str:
    """The number-th topic of a namespace."""
    return f"persistent://{namespace}/topic-{number}"


class SplittingPulsar(FakePulsar):
    """``rated`` are message rates in and out each, by topic; a topic without one is not loaded.

    ``cuts`` is what a broker cuts instead of what it is asked for, by bundle. ``segments`` are the same of loaded
    segments, which are in its statistics and in no list (5.0.0-M1).
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.rated: dict[str, float | None] = {}
        self.cuts: dict[str, list[int]] = {}
        self.segments: dict[str, float] = {}

    def topics(self, bundle: str) -> tuple[Topic, ...]:
        """The topics of a bundle."""
        prefix, (lower, upper) = f"persistent://{bundle_namespace(bundle)}/", range_in_name(bundle)
        found = [
            Topic(name, topic_hash(name), rate if rate is None else 2 * rate)
            for name, rate in self.rated.items()
            if name.startswith(prefix) and lower <= topic_hash(name) < upper
        ]
        return tuple(sorted(found, key=lambda one: one.position))

    def topic_rates(self, broker: str) -> dict[str, dict[str, list[float]]]:
        """Of the segments, too."""
        found = super().topic_rates(broker)
        for name, rate in self.segments.items():
            for bundle, topics in found.items():
                if bundle_namespace(bundle) == topic_namespace(name) and holds(bundle, topic_hash(name)):
                    topics[name] = [rate, rate, rate * 100, rate * 100]
        return found

    def split(self, bundle: str, positions: Sequence[int]) -> tuple[str, ...]:
        """As asked for, or otherwise."""
        return super().split(bundle, self.cuts.pop(bundle, positions))


@contextmanager
def busy() -> Iterator[SplittingPulsar]:
    """Three brokers, two bundles with twelve topics, two of these not loaded, and a bundle that nobody owns."""
    with fake_pulsar.started(kind=SplittingPulsar) as cluster:
        cluster.own(cluster.ids[0], {LOW: 3000.0})
        cluster.own(cluster.ids[1], {HIGH: 3000.0})
        cluster.own(None, {UNOWNED: 0.0})
        cluster.rated = {topic(number): (600.0 if number < 10 else None) for number in range(12)}
        yield cluster
