"""Clusters of a wanted size, with CPU falling evenly from 95 to 10 % over the brokers, so that every pair fires."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.decide.strategies import build, strategy_settings
from lbd.load.scoring import Weights
from lbd.model import Averages, Brokers, Memory, Rows, Snapshot
from lbd.observe import averages
from lbd.observe.parse import build_snapshot, parse_report
from lbd.permit.policies import Groups, Isolation, Pattern, Policies, Policy
from lbd.place.picker import RunningLoads
from lbd.place.placements import PlaceMemory, broker_loads
from lbd.place.placements import build as build_placement
from tests.builders import permission

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.place.placements import BrokerLoads


def columns(brokers: int, bundles: int) -> Snapshot:
    """A snapshot made directly as columns: each broker's bundles have falling, unequal rates."""
    random = np.random.default_rng(1)
    each = bundles // brokers
    ids = tuple(f"broker-{at:04d}.example:8080" for at in range(brokers))
    cpu = np.linspace(95, 10, brokers)
    rates = random.lognormal(4, 1.2, size=(brokers * each, 4)) * np.repeat(cpu / 50, each)[:, None]
    usage, limit = np.zeros((brokers, 5)), np.full((brokers, 5), 100.0)
    usage[:, 0] = cpu
    owner = np.repeat(np.arange(brokers), each)
    totals = np.stack([np.bincount(owner, rates[:, column], brokers) for column in range(4)], axis=1)
    everywhere = np.ones(brokers * each, dtype=np.bool_)
    return Snapshot(
        0.0,
        Brokers(ids, usage, limit, totals, np.full(brokers, each), np.zeros(brokers), ("5.0.1",) * brokers),
        [
            f"tenant/ns-{at >> 8}/0x{(at & 255) << 24:08x}_0x{((at & 255) + 1 << 24) - 1:08x}"
            for at in range(brokers * each)
        ],
        Rows(
            np.arange(brokers + 1, dtype=np.int32) * each,
            np.arange(brokers * each, dtype=np.int32),
            rates,
            np.ones((brokers * each, 3), dtype=np.int64),
            everywhere,
            everywhere,
        ),
    )


FIRING: dict[str, dict[str, Any]] = {
    "avg-shedder": {
        "low_threshold": 0.5, "high_threshold": 0.5, "hit_count_low": 1, "hit_count_high": 1, "min_unload_message": 0,
    },
    "threshold-shedder": {"broker_threshold_shedder_percentage": 0, "bundle_unload_min_throughput_threshold": 0},
    "overload-shedder": {"broker_overloaded_threshold_percentage": 50},
    "uniform-load-shedder": {"min_unload_message": 0, "min_unload_message_throughput": 0},
    "transfer-shedder": {
        "broker_load_target_std": 0, "shedding_condition_hit_count_threshold": 0,
        "max_number_of_broker_shedding_per_cycle": 10_000, "max_number_of_bundles_in_bundle_load_report": 100,
    },
    "least-moves": {
        "low_threshold": 0.5, "high_threshold": 0.5, "hit_count_low": 1, "aim_points": 0.5, "min_unload_message": 0,
    },
}  # fmt: skip
"""Settings with which each strategy fires at once, and for as many brokers as it can."""


def decide(brokers: int, bundles: int, name: str = "avg-shedder", placement: str | None = None) -> Callable[[], object]:
    """A firing round with columns and averages in hand."""
    seen = columns(brokers, bundles)
    means = averages.update(Averages.empty(), seen)
    strategy = build(strategy_settings(name, FIRING[name]), Weights(), placement)
    allowed = permission(seen)

    def work() -> int:
        return len(strategy(seen, means, allowed, Memory()).unloads)

    assert work() > (0 if name == "uniform-load-shedder" else brokers // 4)
    return work


def bodies(brokers: int, bundles: int) -> dict[str, bytes]:
    """Load reports as JSON, of the size that real ones have."""
    seen = columns(brokers, bundles)
    return {broker: json.dumps(_report(seen, at)).encode() for at, broker in enumerate(seen.brokers.ids)}


def _report(seen: Snapshot, at: int) -> dict[str, Any]:
    own = seen.rows.of(at)
    names = seen.bundles[own]
    totals = dict(
        zip(
            ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut"),
            seen.brokers.rates[at].tolist(),
            strict=True,
        )
    )
    stats = {
        name: {
            "msgRateIn": row[0], "msgThroughputIn": row[2], "msgRateOut": row[1], "msgThroughputOut": row[3],
            "consumerCount": 3, "producerCount": 2, "topics": 4, "cacheSize": 0,
        }
        for name, row in zip(names, seen.rows.rates[own].tolist(), strict=True)
    }  # fmt: skip
    usage = {"usage": float(seen.brokers.usage[at, 0]), "limit": 100.0}
    unknown = {"usage": 0.0, "limit": -1000.0}
    return {
        "webServiceUrl": f"http://{seen.brokers.ids[at]}", "cpu": usage, "memory": usage, "directMemory": usage,
        "bandwidthIn": unknown, "bandwidthOut": unknown, **totals, "lastStats": stats, "bundles": names,
        "numTopics": 4 * len(names), "brokerVersionString": "4.0.8", "startTimestamp": 1,
        "loadReportType": "LocalBrokerData",
    }  # fmt: skip


def place(name: str, brokers: int, bundles: int) -> Callable[[], object]:
    """One answer of a placement, that of another bundle each time: candidates under policies, and the choice."""
    seen, standing, place = *look_around(brokers, bundles)(), build_placement(name)
    memory, number = PlaceMemory(), count()

    def work() -> None:
        nonlocal memory
        bundle = f"tenant/ns-1/0x{next(number) << 16:08x}_0xffffffff"
        memory = place(bundle, standing.candidates(bundle).brokers, seen, memory).memory

    return work


def look_around(brokers: int, bundles: int) -> Callable[[], tuple[BrokerLoads, RunningLoads]]:
    """What answers are made from, once for a round: loads, isolation policies and an anti-affinity group."""
    snapshot = columns(brokers, bundles)
    mean = averages.update(Averages.empty(), snapshot)
    every = Pattern(".*")
    rules = tuple(Policy(f"p{at}", (Pattern(f"tenant/ns-{at}"),), (every,)) for at in range(20))
    members = frozenset({"tenant/ns-1", "tenant/ns-2"})
    groups = Groups(grouped=dict.fromkeys(members, "g"), members={"g": members})
    doubted = np.zeros(brokers, dtype=np.int8)

    def work() -> tuple[BrokerLoads, RunningLoads]:
        policies = Policies(Isolation(rules), groups, snapshot.brokers.ids)
        return broker_loads(snapshot, mean, Weights(), to_place=2000), RunningLoads(snapshot, policies, doubted, 50_000)

    return work


def parse(brokers: int, bundles: int) -> Callable[[], object]:
    """All reports into columns, and the averages updated."""
    raw = bodies(brokers, bundles)
    state = [Averages.empty()]

    def work() -> Averages:
        seen = build_snapshot(0, {broker: parse_report(body, broker) for broker, body in raw.items()})
        state[0] = averages.update(state[0], seen)
        return state[0]

    work()
    return work


def averages_only(brokers: int, bundles: int) -> Callable[[], object]:
    """The averages updated, columns in hand."""
    seen = columns(brokers, bundles)
    state = [averages.update(Averages.empty(), seen)]

    def work() -> None:
        state[0] = averages.update(state[0], seen)

    return work


class _Broker(BaseHTTPRequestHandler):
    """Answers what the observer asks, from bodies made before."""

    protocol_version = "HTTP/1.1"
    answers: dict[str, bytes]

    def do_GET(self) -> None:
        host = self.headers["Host"]
        path = self.path.partition("?")[0]
        body = self.answers.get(f"{host}{path}") or self.answers.get(path, b"{}")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        del format, args


def _serve(raw: list[bytes], pipe: Any) -> None:
    servers = [ThreadingHTTPServer((f"127.0.0.{at + 1}", 0), _Broker) for at in range(len(raw))]
    hosts = [f"{server.server_address[0]}:{server.server_address[1]}" for server in servers]
    runtime = json.dumps(
        {"clusterName": "c", "loadManagerClassName": "x.ModularLoadManagerImpl", "loadBalancerSheddingEnabled": "false"}
        | {f"someOtherSetting{number}": "value" for number in range(500)}
    ).encode()
    _Broker.answers = {
        "/admin/v2/brokers/c": json.dumps(hosts).encode(),
        "/admin/v2/brokers/configuration/runtime": runtime,
        "/admin/v2/brokers/leaderBroker": json.dumps(
            {"serviceUrl": f"http://{hosts[0]}", "brokerId": hosts[0]}
        ).encode(),
        **{f"{host}/admin/v2/broker-stats/load-report": body for host, body in zip(hosts, raw, strict=True)},
    }
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(hosts[0])
    threading.Event().wait()


def observe(brokers: int, bundles: int) -> Callable[[], object]:
    """A whole observation over loopback HTTP; the brokers run in a process of their own."""
    import multiprocessing
    import time

    from lbd.observe.observer import Observer
    from lbd.pulsar.admin import Admin
    from lbd.pulsar.settings import PulsarSettings

    receiver, sender = multiprocessing.Pipe(duplex=False)
    raw = list(bodies(brokers, bundles).values())
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(raw, sender), daemon=True)
    process.start()
    del raw
    observer = Observer(Admin(PulsarSettings(admin_urls=(f"http://{receiver.recv()}",))), time.time)
    return observer.observe
