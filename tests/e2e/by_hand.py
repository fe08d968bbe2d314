"""The cluster command: bring one up, put load on it, look at it, take it down."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from typing import TYPE_CHECKING

from tests.e2e import artifacts, cgroups, naming, placing, probe, skew, state, traffic
from tests.e2e.cluster import Cluster, ClusterError
from tests.e2e.settings import LOAD_MANAGERS, Spec

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run one subcommand; errors are one line on standard error and exit code 1."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except (ClusterError, artifacts.Missing, probe.ProbeError, traffic.TrafficError) as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True)
    up = commands.add_parser("up", help="start a cluster that stays until `down`")
    up.set_defaults(run=_up)
    up.add_argument("--version", default=artifacts.VERSIONS[0])
    up.add_argument("--brokers", type=int, default=3)
    up.add_argument("--load-manager", default="modular", help=f"{', '.join(LOAD_MANAGERS)} or a class name")
    up.add_argument("--tokens", action="store_true", help="token authentication and authorization")
    up.add_argument("--tls", action="store_true", help="TLS ports beside the plain ones")
    up.add_argument("--full-jit", action="store_true", help="slower start, less CPU per message")
    up.add_argument("--quota", type=_numbers, metavar="0.4,0.4,0.4", help="CPU cores per broker")
    up.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a broker.conf line")
    load = commands.add_parser("load", help="place bundles by shares and put traffic on them")
    load.set_defaults(run=_load)
    load.add_argument("--rate", type=float, default=3000.0, help="messages per second, all topics together")
    load.add_argument("--topics", type=int, default=32, help="as many bundles, with one topic each")
    load.add_argument("--shares", type=_numbers, default=skew.HOT.shares, metavar=".75,.125,.125")
    load.add_argument(
        "--clients", type=int, default=1, help="separate clients, each with all topics; they share the rate"
    )
    load.add_argument("--seconds", type=float, default=60.0)
    commands.add_parser("status", help="owners, reported CPU, leader").set_defaults(run=_status)
    commands.add_parser("down", help="end it and remove its files").set_defaults(run=_down)
    return parser


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def _running() -> Cluster:
    if not state.file().is_file():
        raise ClusterError("no cluster was started by hand; start one: python -m tests.e2e.cluster up")
    return state.load()


def _up(options: argparse.Namespace) -> None:
    if state.file().is_file():
        raise ClusterError(f"a cluster was started by hand before ({state.file()}); take it `down` first")
    if options.quota and cgroups.find()[0] is None:
        raise artifacts.Missing(cgroups.find()[1])
    pairs = tuple((key, value) for key, _, value in (line.partition("=") for line in options.set))
    spec = Spec(
        options.version,
        options.brokers,
        options.load_manager,
        tokens=options.tokens,
        tls=options.tls,
        full_jit=options.full_jit,
        settings=pairs,
    )
    started = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what outlives this process must not outlive its failure
    cluster = Cluster(spec, outlive=True).start()
    state.save(cluster)
    for index, cores in enumerate(options.quota or ()):
        cluster.set_quota(index, cores)
    state.save(cluster)
    print(f"up in {time.monotonic() - started:.1f} s")
    print(f"admin    {' '.join(cluster.admin_urls)}\nservice  {cluster.service_url}\nfiles    {cluster.work}")


def _load(options: argparse.Namespace) -> int:
    cluster = _running()
    bundles = placing.namespace(cluster, f"load-{time.time_ns()}", options.topics)
    placed = skew.assignment(bundles, cluster.brokers, options.shares)
    placing.place_all(cluster, placed)
    rate = options.rate / len(bundles) / options.clients
    load = traffic.Traffic(cluster, {naming.topic_in(bundle): rate for bundle in bundles}, clients=options.clients)
    with load:
        print(f"{options.rate:.0f} msg/s on {len(bundles)} topics for {options.seconds:.0f} s", file=sys.stderr)
        try:
            time.sleep(options.seconds)
        except KeyboardInterrupt:
            print("stopping", file=sys.stderr)
        result = load.stop()
    print(json.dumps(result.to_json(), indent=1))
    return 1 if result.lost else 0


def _status(_: argparse.Namespace) -> None:
    cluster = _running()
    print(f"Pulsar {cluster.spec}, {'ready' if cluster.ready() else 'NOT ready'}, files in {cluster.work}")
    for name, process in cluster.processes.items():
        print(f"{name:<20} process {process.pid} {'runs' if process.alive() else 'HAS ENDED'}")
    alive = next((index for index in range(len(cluster.brokers)) if cluster.alive(index)), None)
    if alive is None:
        raise ClusterError("no broker is running")
    print(f"leader  {probe.leader(cluster, alive)}")
    owners = probe.owners(cluster)
    for broker, percent in probe.cpu_percent(cluster).items():
        print(f"{broker}  {percent:5.1f} % CPU  {sum(broker in each for each in owners.values())} bundles")


def _down(_: argparse.Namespace) -> None:
    _running().stop()
    state.file().unlink()
    print("down")
