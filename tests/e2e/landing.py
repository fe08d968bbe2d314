"""Where unloads land under clients that reconnect at once, for each form of nudge.

    python -m tests.e2e.landing --version 4.0.8 [--moves 200] [--nudge leader --nudge none] [--broker-setting KEY=VALUE]

Six separate clients, each with a producer and a consumer on every topic, compete for each bundle that is unloaded.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from lbd.act.ownership import Clock
from lbd.act.unloader import Nudge, Unloader
from lbd.model import Outcome, Result, Unload
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings, TlsSettings
from tests.e2e import naming, placing, probe, settings
from tests.e2e.cluster import Cluster
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUNDLES = 8
CLIENTS = 6


@dataclass(frozen=True)
class Landings:
    """What a number of moves came to. ``false`` are outcomes that the second observer contradicted."""

    results: Counter[Result]
    seconds: list[float]
    affinities_left: int
    false: list[str]

    def row(self) -> str:
        """Landed of all, elsewhere, unowned, failed or unknown, affinities left, median and 90th percentile."""
        total = sum(self.results.values())
        other = self.results[Result.FAILED] + self.results[Result.UNKNOWN]
        slow = sorted(self.seconds)[int(total * 0.9)]
        counts = (
            self.results[Result.ELSEWHERE],
            self.results[Result.UNOWNED],
            other,
            self.affinities_left,
            len(self.false),
        )
        milliseconds = f"{statistics.median(self.seconds) * 1000:.0f} / {slow * 1000:.0f}"
        return " | ".join([f"{self.results[Result.LANDED]}/{total}", *map(str, counts), milliseconds])


def unloader(cluster: Cluster, nudge: Nudge) -> Unloader:
    """An unloader for the cluster, as lbd itself makes it."""
    own = cluster.credentials
    tls = TlsSettings(ca_file=own.ca_file)
    admin = Admin(PulsarSettings(admin_urls=tuple(cluster.admin_urls), token_file=own.token_file, tls=tls))
    return Unloader(admin, Clock(time.monotonic, time.sleep), nudge)


def moves(mover: Unloader, bundles: Sequence[str], brokers: Sequence[str]) -> Iterator[Unload]:
    """One bundle after the other, each to the broker after its present one."""
    for bundle in itertools.cycle(bundles):
        source = mover.owner(bundle)
        if source is None:
            time.sleep(0.2)
            continue
        yield Unload(bundle, source, brokers[(brokers.index(source) + 1) % len(brokers)], 0.0, 0.0)


def measure(cluster: Cluster, bundles: Sequence[str], nudge: Nudge, count: int) -> Landings:
    """So many moves with one form of nudge; each outcome is checked at the brokers."""
    mover = unloader(cluster, nudge)
    outcomes: list[Outcome] = []
    false: list[str] = []
    for move in itertools.islice(moves(mover, bundles, cluster.brokers), count):
        outcome = mover.unload(move)
        outcomes.append(outcome)
        seen = placing.owner(cluster, move.bundle)
        if seen != ({outcome.owner} if outcome.owner else set()):
            false.append(f"{move.bundle}: told {outcome.result.value} on {outcome.owner}, seen {seen or 'nobody'}")
    return Landings(
        Counter(outcome.result for outcome in outcomes),
        [outcome.seconds for outcome in outcomes],
        sum(outcome.affinity_left for outcome in outcomes),
        false,
    )


def main(words: Sequence[str]) -> int:
    """Print a table row for each form of nudge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", required=True)
    parser.add_argument("--moves", type=int, default=200)
    parser.add_argument("--nudge", action="append", choices=get_args(Nudge))
    parser.add_argument("--broker-setting", action="append", default=[], metavar="KEY=VALUE")
    chosen = parser.parse_args(words)
    extra = tuple(tuple(text.split("=", 1)) for text in chosen.broker_setting)
    with Cluster(settings.Spec(chosen.version, settings=extra)) as cluster:
        bundles = placing.namespace(cluster, "landing", BUNDLES)
        topics = [naming.topic_in(bundle) for bundle in bundles]
        for topic in topics:
            placing.create_topic(cluster, topic)
        with Traffic(cluster, dict.fromkeys(topics, 2.0), clients=CLIENTS) as traffic:
            probe.owners(cluster)
            for nudge in chosen.nudge or get_args(Nudge):
                found = measure(cluster, bundles, nudge, chosen.moves)
                label = " ".join([chosen.version, *chosen.broker_setting])
                print(f"| {label} | {nudge} | {found.row()} |", flush=True)
                for line in found.false[:5]:
                    print(f"  false: {line}", flush=True)
            print(f"lost messages: {traffic.stop().lost}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
