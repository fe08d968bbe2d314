"""Skew that real traffic makes: one hot broker under a CPU quota, as the brokers' own load reports will show it."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.e2e import naming, placing
from tests.e2e.probe import true_gap
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.e2e.cluster import Cluster

__all__ = ["HOT", "Scenario", "Skew", "assignment", "skewed", "true_gap"]


@dataclass(frozen=True)
class Scenario:
    """How the load is laid out: one topic per bundle, and each broker's share of the bundles.

    The topics are equal, but for the first one when a part of the whole rate is set aside for it (``heavy``), and where
    those of each broker fall by their rank to the power of ``falling``: with :data:`FEW_CARRY_MOST` the four largest of
    24 carry half.
    """

    bundles: int = 32
    rate: float = 3000.0
    shares: tuple[float, ...] = (0.75, 0.125, 0.125)
    quotas: tuple[float, ...] = (0.4, 0.4, 0.4)
    warm_up_seconds: float = 10.0
    heavy: float = 0.0
    falling: float = 0.0

    def rates(self, topics: Mapping[str, str], placed: Mapping[str, str]) -> dict[str, float]:
        """Messages per second of each topic; ``topics`` and ``placed`` say the topic and the broker of each bundle."""
        if self.heavy:
            first, *others = topics.values()
            return {first: self.rate * self.heavy, **dict.fromkeys(others, self.rate * (1 - self.heavy) / len(others))}
        by_broker: defaultdict[str, list[str]] = defaultdict(list)
        for bundle, broker in placed.items():
            by_broker[broker].append(topics[bundle])
        rates: dict[str, float] = {}
        for own in by_broker.values():
            weights = [rank**-self.falling for rank in range(1, len(own) + 1)]
            unit = self.rate * len(own) / len(placed) / sum(weights)
            rates |= {topic: unit * weight for topic, weight in zip(own, weights, strict=True)}
        return rates


FEW_CARRY_MOST = 0.85

HOT = Scenario()
"""Scenario S1: three quarters of 3,000 messages a second on one of three equal brokers."""


@dataclass(frozen=True)
class Skew:
    """A running scenario: where each bundle was put, which topic is in it, and the traffic."""

    scenario: Scenario
    placed: dict[str, str]
    topics: dict[str, str]
    traffic: Traffic


@contextmanager
def skewed(cluster: Cluster, namespace: str = "", scenario: Scenario = HOT) -> Iterator[Skew]:
    """Build the scenario on a running cluster; on leaving, traffic ends and quotas are lifted."""
    bundles = placing.namespace(cluster, namespace or f"skew-{time.time_ns()}", scenario.bundles)
    placed = assignment(bundles, cluster.brokers, scenario.shares)
    topics = {bundle: naming.topic_in(bundle) for bundle in bundles}
    placing.place_all(cluster, placed)
    with Traffic(cluster, scenario.rates(topics, placed)) as traffic:
        time.sleep(scenario.warm_up_seconds)
        try:
            for index, cores in enumerate(scenario.quotas):
                cluster.set_quota(index, cores)
            yield Skew(scenario, placed, topics, traffic)
        finally:
            for index in range(len(scenario.quotas)):
                cluster.set_quota(index, None)


def assignment(bundles: Sequence[str], brokers: Sequence[str], shares: Sequence[float]) -> dict[str, str]:
    """Which broker each bundle goes to, so that the brokers' shares of the bundles come out as wanted."""
    placed, counts = {}, dict.fromkeys(brokers, 0)
    wanted = dict(zip(brokers, shares, strict=False))
    for number, bundle in enumerate(bundles, start=1):
        broker = max(wanted, key=lambda each: wanted[each] * number - counts[each])
        counts[broker] += 1
        placed[bundle] = broker
    return placed
