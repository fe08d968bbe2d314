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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from lbd.act.executor import Execution, Executor
from lbd.act.ownership import ActClock, Ownership
from lbd.act.unload import PROOF_SECONDS, Nudge, Unloader
from lbd.model import Outcome, Result, Skip, Unload
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings, TlsSettings
from tests.e2e import naming, placing, probe, settings
from tests.e2e.cluster import Cluster
from tests.e2e.traffic import Traffic
from tests.limits import SameForAll

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUNDLES = 8
CLIENTS = 6


@dataclass(frozen=True)
class Landings:
    """What a number of moves came to. ``false`` are outcomes that the second observer contradicted.

    ``retried`` is how many landed at the second attempt, which follows when a bundle came back to its source.
    """

    results: Counter[Result]
    seconds: list[float]
    notes_left: int
    false: list[str]
    retried: int = 0

    def row(self) -> str:
        """Landed of all, at once and after a retry, elsewhere, unowned, failed or unknown, notes left, false, times."""
        total = sum(self.results.values())
        other = self.results[Result.FAILED] + self.results[Result.UNKNOWN]
        slow = sorted(self.seconds)[int(total * 0.9)]
        counts = (
            self.results[Result.ELSEWHERE],
            self.results[Result.UNOWNED],
            other,
            self.notes_left,
            len(self.false),
        )
        milliseconds = f"{statistics.median(self.seconds) * 1000:.0f} / {slow * 1000:.0f}"
        landed = self.results[Result.LANDED]
        tries = (landed - self.retried, self.retried)
        return " | ".join([f"{landed}/{total}", *map(str, (*tries, *counts)), milliseconds])


CLOCK = ActClock(time.monotonic, time.sleep)


def admin_of(cluster: Cluster) -> Admin:
    """The cluster as lbd itself asks it."""
    own = cluster.credentials
    tls = TlsSettings(ca_file=own.ca_file)
    return Admin(PulsarSettings(admin_urls=tuple(cluster.admin_urls), token_file=own.token_file, tls=tls))


def unloader(cluster: Cluster, nudge: Nudge) -> Unloader:
    """An unloader for the cluster, as lbd itself makes it."""
    return Unloader(admin_of(cluster), CLOCK, nudge)


def unloaded(mover: Unloader, move: Unload) -> Outcome:
    """Check and send; one that is refused fails here."""
    ready = mover.check(move)
    if isinstance(ready, Skip):
        raise probe.ProbeError(f"{move.bundle}: {ready.reason.label}: {ready.detail}")
    return mover.send(ready)


@dataclass
class Untold:
    """A journal for moves that need none."""

    open: tuple[tuple[str, Unload], ...] = ()
    attempted_at: dict[str, float] = field(default_factory=dict)
    sent: tuple[()] = ()

    def intend(self, unload: Unload, attempt: int) -> str:
        return f"{unload.bundle} {attempt}"

    def conclude(self, move: str, outcome: Outcome) -> None:
        """Nobody asks later."""

    def amend(self, move: str, outcome: Outcome) -> None:
        """Nobody asks later."""

    def confirm(self, move: str, again: bool) -> None:
        """There is no other lbd."""


def executed(mover: Unloader, move: Unload) -> Outcome:
    """One move with its retry, as the daemon makes it; a third broker is accepted."""
    executor = Executor(Untold(), time.time)
    executor.start([move], SameForAll(), Execution(mover))
    executor.wait()
    ended = executor.collect()
    if not ended.outcomes:
        raise probe.ProbeError(f"{move.bundle}: {ended.skips}, {ended.failure}")
    return ended.outcomes[0]


def moves(ownership: Ownership, bundles: Sequence[str], brokers: Sequence[str]) -> Iterator[Unload]:
    """One bundle after the other, each to the broker after its present one."""
    for bundle in itertools.cycle(bundles):
        source = ownership.owner_within(bundle, PROOF_SECONDS)
        if source is None:
            time.sleep(0.2)
            continue
        yield Unload(bundle, source, brokers[(brokers.index(source) + 1) % len(brokers)], 0.0, 0.0)


def measure(cluster: Cluster, bundles: Sequence[str], nudge: Nudge, count: int) -> Landings:
    """So many moves with one form of nudge; each outcome is checked at the brokers."""
    mover = unloader(cluster, nudge)
    outcomes: list[Outcome] = []
    false: list[str] = []
    for move in itertools.islice(moves(Ownership(admin_of(cluster), CLOCK), bundles, cluster.brokers), count):
        outcome = executed(mover, move)
        outcomes.append(outcome)
        seen = placing.owner(cluster, move.bundle)
        if seen != ({outcome.owner} if outcome.owner else set()):
            false.append(f"{move.bundle}: told {outcome.result.value} on {outcome.owner}, seen {seen or 'nobody'}")
    return Landings(
        Counter(outcome.result for outcome in outcomes),
        [outcome.seconds for outcome in outcomes],
        sum(outcome.noted not in {None, outcome.owner} for outcome in outcomes),
        false,
        sum(outcome.attempts > 1 and outcome.result is Result.LANDED for outcome in outcomes),
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
