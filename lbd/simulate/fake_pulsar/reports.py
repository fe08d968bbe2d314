"""A broker's load report as JSON, with the fields that brokers of 4.0 send. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.model import bundle_namespace, bundle_range
from lbd.pulsar.admin import MODULAR

if TYPE_CHECKING:
    from lbd.simulate.fake_pulsar.book import Book, Broker

DAY_SECONDS = 86_400.0
OWN_RANGE = "0x00000000_0xffffffff"
_RATES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
_UNKNOWN_LIMIT = {"usage": 0.0, "limit": -1000.0}
"""Of a virtual network card without a speed."""


def heartbeats(cluster: str, broker: str) -> list[str]:
    """The bundles that a broker owns for its own health check."""
    return [f"pulsar/{cluster}/{broker}/{OWN_RANGE}", f"pulsar/{broker}/{OWN_RANGE}"]


def load_report(book: Book, broker: Broker, cluster: str, begun_at: float) -> dict[str, Any]:
    """What the broker says of itself now; ``begun_at`` is when the run began, epoch seconds, by its clock."""
    counted = book.state.counted[broker.at]
    rows, numbers = counted.rates.tolist(), book.world.topics[counted.bundles].tolist()
    stats = {
        heartbeats(cluster, broker.id)[0]: _statistics([0.0] * 4, topics=1, clients=0),
        **{
            book.world.bundles[at]: _statistics(row, topics, topics)
            for at, row, topics in zip(counted.bundles.tolist(), rows, numbers, strict=True)
        },
    }
    cpu = float(book.state.cpu[broker.at])
    host, _, port = broker.id.rpartition(":")
    started_at = broker.started_at if np.isfinite(broker.started_at) else -DAY_SECONDS
    return {
        "webServiceUrl": f"http://{broker.id}",
        "pulsarServiceUrl": f"pulsar://{host}:{port}",
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        "cpu": {"usage": cpu, "limit": 100.0},
        "memory": {"usage": 84.5, "limit": 371.25},
        "directMemory": {"usage": 16.0, "limit": 256.0},
        "bandwidthIn": _UNKNOWN_LIMIT,
        "bandwidthOut": _UNKNOWN_LIMIT,
        **dict(zip(_RATES, counted.rates.sum(axis=0).tolist(), strict=True)),
        "lastUpdate": _milliseconds(begun_at + book.seconds),
        "lastStats": stats,
        "numTopics": 1 + sum(numbers),
        "numBundles": len(stats),
        "numConsumers": sum(numbers),
        "numProducers": sum(numbers),
        "bundles": list(stats),
        "lastBundleGains": [],
        "lastBundleLosses": [],
        "brokerVersionString": book.version,
        "protocols": {},
        "advertisedListeners": {},
        "loadManagerClassName": MODULAR,
        "startTimestamp": _milliseconds(begun_at + started_at),
        "maxResourceUsage": max(cpu / 100.0, 0.0625),
        "loadReportType": "LocalBrokerData",
    }


def _statistics(rates: list[float], topics: int, clients: int) -> dict[str, float]:
    counts = {"consumerCount": clients, "producerCount": clients, "topics": topics, "cacheSize": 0}
    return {**dict(zip(_RATES, rates, strict=True)), **counts}


def topic_stats(book: Book, broker: Broker) -> dict[str, Any]:
    """Topics of each bundle that the broker has counted: equal shares of its rates, and of other numbers none."""
    counted, found = book.state.counted[broker.at], dict[str, Any]()
    for at, rates in zip(counted.bundles.tolist(), counted.rates, strict=True):
        bundle, topics = book.world.bundles[at], book.topics(book.world.bundles[at])
        each = {**dict(zip(_RATES, (rates / max(len(topics), 1)).tolist(), strict=True)), "producerCount": 1}
        ranges = found.setdefault(bundle_namespace(bundle), {})
        ranges[bundle_range(bundle)] = {"persistent": {topic.name: each for topic in topics}}
    return found


def _milliseconds(epoch_seconds: float) -> int:
    return int(epoch_seconds * 1000)


def of_nan(found: object) -> Any:  # noqa: ANN401 - JSON
    """The same with every rate and usage NaN, as Jackson writes it: a text."""
    if isinstance(found, dict):
        return {key: of_nan(value) for key, value in found.items()}
    return "NaN" if isinstance(found, float) else found
