"""The daemon on real brokers in the situations of a cluster's life: one row of figures for each.

    python -m tests.e2e.scenarios --version 4.2.4 [s1] [s2] [s4] [s5] [unlike] [burner] [spike] [restart] [apart-30]
        [--max-traffic 0.35] [--strategy least-moves | --shedder AvgShedder] [--unequal] [--hits 1]
        [--minutes 10] [--warm-up 300] [--keep DIR]

s1 a hot broker; s2 a third broker joins; s4 a heavy topic whose consumers go off and on; s5 equal traffic on brokers of
which one has three times the quota; unlike: the same, and the operator has told what they carry (load.brokers); burner:
a noisy neighbour in the group of the broker with the least traffic (burner-cold), then of the one with the most
(burner-hot); spike: the same for one minute only; restart: three brokers one after the other, with lbd a rollout;
apart-N: brokers N points apart, until the first move, with the hit counts that are lbd's defaults. Guardrails are lbd's
defaults unless --max-traffic is given; hit counts 3 and 2 unless --hits is, minimums low. With --shedder lbd does not
run, and the brokers shed by themselves; with --unequal a handful of topics carries most of each broker's traffic.
Brokers are trusted before the clock starts, as those of days of age are; their JVMs go on warming up for minutes unless
--warm-up is long.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbd.store.rollouts import Rollouts
from tests.e2e import figures, placing, probe, settings, skew
from tests.e2e.cluster import Cluster
from tests.e2e.daemon import SETTINGS, SHEDDER, Daemon
from tests.e2e.meters import Meters
from tests.e2e.own_shedder import BROKER_SETTINGS, TRANSFER, OwnShedder
from tests.e2e.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WARM_UP_SECONDS = 60.0
TRUSTED_AGE_SECONDS = 150.0
"""lbd trusts a broker's samples after two sampling intervals and a bit; they are that old when the clock starts."""

CALM_SECONDS = 150.0
"""Without a move for so long, with the gap closed, a run has ended: two CPU samples and a bit."""

LONGEST_SECONDS = 15 * 60.0
LANDING_SECONDS = 15.0
DRAIN_SECONDS = 180.0
_WATCH_SECONDS = 0.25
LIKE, UNLIKE = (0.4, 0.4, 0.4), (0.9, 0.3, 0.3)
"""CPU quotas, cores."""

POINTS_PER_KMSG = 12.0
"""Of the broker with 0.3 cores, at a guess: in s1 30 points are 1,875 messages/s, in and out, on 0.4 cores."""

POINTS_OF_THE_RATE = 60.0
"""How far apart brokers of 0.4 cores are where one of three has all of 2,600 messages/s."""

TOLD = {
    "load": {
        "measure": "msg_rate",
        "brokers": [
            {"broker": settings.broker_id(at), "capacity": cores / 0.3, "slope": POINTS_PER_KMSG * 0.3 / cores}
            for at, cores in enumerate(UNLIKE)
        ],
    }
}
"""What an operator of the unlike brokers knows."""


@dataclass
class Stage:
    """Everything that runs in a scenario, and when what it is about began."""

    cluster: Cluster
    daemon: Daemon | OwnShedder
    running: skew.Skew
    meters: Meters
    witness: Witness
    longest_seconds: float = LONGEST_SECONDS
    begun: float = field(default_factory=time.time)

    def begin(self) -> None:
        """The clock starts anew."""
        self.begun = time.time()

    def until_calm(self) -> None:
        """Wait until moves have closed the gap and nothing was moved for a while, or for the longest time."""
        while time.time() < self.begun + self.longest_seconds:
            time.sleep(5)
            moved = [move.asked_at for move in self.daemon.moves()]
            closed = self.meters.true_gap(time.time(), 60) < 15 and self.meters.reported_gap() < 15
            if moved and closed and time.time() - max(moved) > CALM_SECONDS:
                return


@dataclass(frozen=True)
class Case:
    """A scenario: how the load is laid out, and what happens then."""

    load: skew.Scenario
    happens: Callable[[Stage], None]
    absent: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tried:
    """What lbd runs with: the strategy, guardrails that are not the default, for how long at most, and hit counts; and
    for how long traffic flows before brokers get their quotas. ``shedder``: the brokers' own, instead of lbd.
    """

    version: str = "4.2.4"
    strategy: str = "avg-shedder"
    guardrails: dict[str, Any] = field(default_factory=dict)
    longest_seconds: float = LONGEST_SECONDS
    hits: int | None = None
    warm_up_seconds: float = WARM_UP_SECONDS
    shedder: str = ""
    unequal: bool = False

    def settings(self, case: Case) -> dict[str, Any]:
        """The daemon's settings: what a strategy counts to, and how little it moves, is the same for each."""
        hits = {} if self.hits is None else {"hit_count_low": self.hits, "hit_count_high": self.hits}
        own = {self.strategy.replace("-", "_"): SHEDDER | hits}
        return {**SETTINGS, **own, "strategy": self.strategy, "guardrails": self.guardrails, **case.settings}

    def load(self, case: Case) -> skew.Scenario:
        """The scenario's load, with this warm-up."""
        falling = skew.FEW_CARRY_MOST if self.unequal else 0.0
        return replace(case.load, warm_up_seconds=self.warm_up_seconds, falling=falling)

    def cluster(self) -> Cluster:
        """Brokers that shed by themselves only where they are told to."""
        own = tuple(BROKER_SETTINGS[self.shedder].items()) if self.shedder else ()
        manager = "extensible" if self.shedder == TRANSFER else "modular"
        return Cluster(settings.Spec(self.version, load_manager=manager, full_jit=True, settings=own))


def _load(rate: float, *shares: float, heavy: float = 0.0, quotas: tuple[float, ...] = LIKE) -> skew.Scenario:
    return skew.Scenario(rate=rate, shares=shares, quotas=quotas, heavy=heavy)


def _hot(stage: Stage) -> None:
    stage.until_calm()


def _first_move(stage: Stage) -> None:
    """Wait for the first move and its landing, or for the longest time."""
    while time.time() < stage.begun + stage.longest_seconds:
        time.sleep(1)
        if stage.daemon.moves():
            time.sleep(LANDING_SECONDS)
            return


def _join(stage: Stage) -> None:
    stage.begin()
    stage.cluster.start_broker(2)
    stage.until_calm()


def _flap(stage: Stage) -> None:
    """Consumers of the heavy topic off and on, a minute each, six times."""
    stage.begin()
    heavy = next(iter(stage.running.topics.values()))
    for number in range(6):
        stage.running.traffic.set_consuming([heavy], consuming=number % 2 == 1)
        time.sleep(60)


def _burn(stage: Stage) -> None:
    stage.begin()
    stage.cluster.burn(0)
    time.sleep(stage.longest_seconds)


def _spike(stage: Stage) -> None:
    stage.begin()
    stage.cluster.burn(0)
    time.sleep(60)
    stage.cluster.quench(0)
    time.sleep(4 * 60)


def _restart(stage: Stage) -> None:
    """As soon as the one before is back; runs of the same length are compared, so it waits for the end of its time."""
    stage.begin()
    restarted = []
    for index in _due(stage):
        stage.cluster.kill_broker(index, signal.SIGTERM)
        stage.cluster.start_broker(index)
        restarted.append(round(time.time() - stage.begun))
    print(f"restarted after {restarted} s, all over after {time.time() - stage.begun:.0f} s", file=sys.stderr)
    time.sleep(max(0.0, stage.begun + stage.longest_seconds - time.time()))


def _due(stage: Stage) -> Iterator[int]:
    """The brokers by the time that each is to be restarted: at once, or where lbd rolls when it has drained one."""
    brokers = stage.cluster.brokers
    if not isinstance(stage.daemon, Daemon):
        yield from range(len(brokers))
        return
    rollouts, done = Rollouts(stage.daemon.state), set[str]()
    with stage.daemon.background("rollout", "--all") as rolling:
        while rolling.poll() is None:
            now = rollouts.under_way()
            if now is not None and now.phase == "restart" and now.broker not in done:
                done.add(now.broker)
                yield brokers.index(now.broker)
            time.sleep(0.2)
        if rolling.returncode != 0:
            raise AssertionError(f"lbd rollout ended with {rolling.returncode}: {rolling.communicate()[0]}")


def _apart(points: int) -> Case:
    """Two brokers alike and a third one that many points above them."""
    more = points / POINTS_OF_THE_RATE
    shares = (1 + 2 * more) / 3, (1 - more) / 3, (1 - more) / 3
    settings_ = {"avg_shedder": {name: value for name, value in SHEDDER.items() if not name.startswith("hit_count")}}
    return Case(_load(2600, *shares), _first_move, settings=settings_)


CASES = {
    "s1": Case(_load(3000, 0.75, 0.125, 0.125), _hot),
    "s2": Case(_load(3600, 0.5, 0.5, 0.0), _join, absent=2),
    "s5": Case(_load(3600, 0.34, 0.33, 0.33, quotas=UNLIKE), _hot),
    "unlike": Case(_load(3600, 0.34, 0.33, 0.33, quotas=UNLIKE), _hot, settings=TOLD),
    "s4": Case(_load(3000, 0.34, 0.33, 0.33, heavy=0.325), _flap),
    "burner-cold": Case(_load(2400, 0.2, 0.4, 0.4), _burn),
    "burner-hot": Case(_load(2400, 0.45, 0.275, 0.275), _burn),
    "spike": Case(_load(2400, 0.34, 0.33, 0.33), _spike),
    "restart": Case(_load(400, 0.34, 0.33, 0.33), _restart),
    **{f"apart-{points}": _apart(points) for points in (20, 30, 36, 45, 60)},
}


def run(name: str, tried: Tried, directory: Path) -> dict[str, Any]:
    """One scenario on a cluster of its own; the row of figures."""
    case = CASES[name]
    with ExitStack() as stack:
        cluster = stack.enter_context(tried.cluster())
        up_at = time.time()
        if case.absent is not None:
            _leave(cluster, case.absent)
        witness = stack.enter_context(Witness(cluster, _WATCH_SECONDS))
        time.sleep(max(0.0, up_at + TRUSTED_AGE_SECONDS - tried.warm_up_seconds - time.time()))
        running = stack.enter_context(skew.skewed(cluster, f"{name}-{time.time_ns()}", tried.load(case)))
        # not before: bundles that were placed under its eyes have changed hands without it, and rest
        daemon: Daemon | OwnShedder = (
            OwnShedder(cluster, witness) if tried.shedder else Daemon(cluster, directory, tried.settings(case))
        )
        stack.enter_context(daemon)
        meters = stack.enter_context(Meters(cluster))
        stage = Stage(cluster, daemon, running, meters, witness, tried.longest_seconds)
        case.happens(stage)
        ended = time.time()
        cluster.restore()  # a broker that is still held down would not deliver in time what it has
        result = running.traffic.stop(DRAIN_SECONDS)
        for log in cluster.work.glob("traffic-*.log"):
            shutil.copy(log, directory)
        row = figures.row(daemon, meters, running, result, (stage.begun, ended))
        denied = daemon.contradictions(witness)
        how: dict[str, Any] = {"scenario": name, "version": tried.version, "strategy": tried.shedder or tried.strategy}
        how |= {"guardrails": tried.guardrails, "hits": tried.hits, "warm_up_seconds": tried.warm_up_seconds}
        how |= {"unequal": tried.unequal, "changes of hands": len(witness.moves(stage.begun, f"{placing.TENANT}/"))}
        return {**how, **row, "denied by the brokers": denied}


def _leave(cluster: Cluster, index: int) -> None:
    """End a broker in good order, and wait until no other lists it."""
    cluster.kill_broker(index, signal.SIGTERM)
    others = [each for each in range(len(cluster.brokers)) if each != index]
    while cluster.brokers[index] in probe.get(cluster, others[0], f"/admin/v2/brokers/{settings.CLUSTER}"):
        time.sleep(0.5)


def main(words: Sequence[str]) -> int:
    """Print one line of JSON for each scenario."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join([*CASES, "burner"]))
    parser.add_argument("--version", default="4.2.4")
    parser.add_argument("--strategy", default="avg-shedder")
    parser.add_argument("--shedder", choices=BROKER_SETTINGS, default="", help="the brokers' own, instead of lbd")
    parser.add_argument("--unequal", action="store_true", help="a handful of topics carries most")
    parser.add_argument(
        "--minutes",
        type=float,
        default=LONGEST_SECONDS / 60,
        help="how long a burner burns; the longest that s1, s2, s5 and unlike go on",
    )
    parser.add_argument("--max-traffic", type=float, help="max_traffic_per_turn instead of lbd's default")
    parser.add_argument("--hits", type=int, help="hit counts, low and high alike, instead of 3 and 2")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS, help="seconds of traffic before the quotas")
    parser.add_argument("--keep", type=Path, help="keep each run's journal and logs in this directory")
    chosen = parser.parse_args(words)
    guardrails = {} if chosen.max_traffic is None else {"max_traffic_per_turn": chosen.max_traffic}
    how_long = chosen.minutes * 60, chosen.hits, chosen.warm_up
    tried = Tried(chosen.version, chosen.strategy, guardrails, *how_long, chosen.shedder, chosen.unequal)
    wanted = [
        name for word in chosen.scenarios or CASES for name in CASES if name in (word, f"{word}-cold", f"{word}-hot")
    ]
    with tempfile.TemporaryDirectory() as scratch:
        for name in wanted:
            directory = (chosen.keep or Path(scratch)) / f"{name}-{chosen.version}-{int(time.time())}"
            directory.mkdir(parents=True)
            print(json.dumps(run(name, tried, directory)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
