"""A recording of a real cluster in which traffic changes and bundles are moved by hand, for the model of `lbd.load`.

    python -m tests.e2e.moved FILE.jsonl.gz [--version 4.2.4] [--quotas 0.4,0.4,0.55]

Unequal brokers, 32 bundles with one topic each, of unlike sizes. Traffic goes up and down in five steps; then at three
times five bundles are moved from the busiest broker, with steps of traffic between. `lbd record` looks every 15 s.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e import naming, placing
from tests.e2e.balancing import write_config
from tests.e2e.cluster import Cluster
from tests.e2e.settings import Spec
from tests.e2e.skew import assignment
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BUNDLES = 32
RATE = 1800.0
SHARES = (0.5, 0.25, 0.25)
WARM_UP_SECONDS = 90.0
STEPS = (1.0, 0.4, 0.75, 0.2, 1.0)
STEP_SECONDS = 75.0
AFTER_A_MOVE = (0.8, 1.0, 0.6)
MOVE_SECONDS = 150.0
"""A second fresh sample of each broker comes within two minutes of a move."""

MOVED = 5
INTERVAL_SECONDS = 15.0


def sizes() -> list[float]:
    """Messages per second of each bundle, from 1 to 4 in proportion."""
    weights = [1.0 + 3.0 * (at * 7 % BUNDLES) / (BUNDLES - 1) for at in range(BUNDLES)]
    return [RATE * weight / sum(weights) for weight in weights]


def plan(placed: dict[str, str], brokers: Sequence[str]) -> Iterable[dict[str, str]]:
    """Three rounds of moves, each from the broker with most bundles: to the second, to the third, to both."""
    owner = dict(placed)
    for number in range(3):
        source = max(brokers, key=lambda broker: list(owner.values()).count(broker))
        others = [broker for broker in brokers if broker != source]
        own = [bundle for bundle, broker in owner.items() if broker == source][:MOVED]
        moves = {bundle: others[number if number < 2 else at % 2] for at, bundle in enumerate(own)}
        owner |= moves
        yield moves


def play(cluster: Cluster, traffic: Traffic, rates: dict[str, float], placed: dict[str, str]) -> None:
    """Everything that happens while the recording runs."""
    for factor in STEPS:
        _set(traffic, rates, factor)
        time.sleep(STEP_SECONDS)
    for moves, factor in zip(plan(placed, cluster.brokers), AFTER_A_MOVE, strict=True):
        print(f"{time.time():.0f}: {moves}", flush=True)
        placing.place_all(cluster, moves)
        _set(traffic, rates, factor)
        time.sleep(MOVE_SECONDS)


def _set(traffic: Traffic, rates: dict[str, float], factor: float) -> None:
    traffic.set_rates({topic: rate * factor for topic, rate in rates.items()})


def stage(cluster: Cluster, directory: Path, file: Path, quotas: Sequence[float]) -> str:
    """Run it all; what `lbd record` said in the end."""
    bundles = placing.namespace(cluster, f"moved{time.time_ns()}", BUNDLES)
    placed = assignment(bundles, cluster.brokers, SHARES)
    rates = dict(zip(map(naming.topic_in, bundles), sizes(), strict=True))
    placing.place_all(cluster, placed)
    with Traffic(cluster, rates) as traffic:
        for index, cores in enumerate(quotas):
            cluster.set_quota(index, cores)
        time.sleep(WARM_UP_SECONDS)
        lbd = record(cluster, directory, file)
        play(cluster, traffic, rates, placed)
        said, _ = lbd.communicate(timeout=2 * INTERVAL_SECONDS)
        traffic.stop()
    return said.strip()


def record(cluster: Cluster, directory: Path, file: Path) -> subprocess.Popen[str]:
    """`lbd record`, for as long as everything takes."""
    config = write_config(cluster, directory, {"interval_seconds": INTERVAL_SECONDS})
    seconds = len(STEPS) * STEP_SECONDS + len(AFTER_A_MOVE) * MOVE_SECONDS
    words = ["--rounds", str(int(seconds / INTERVAL_SECONDS)), "--config", str(config)]
    command = [sys.executable, "-m", "lbd", "record", str(file), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def main(words: Sequence[str]) -> int:
    """Write the recording."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--version", default="4.2.4")
    parser.add_argument("--quotas", default="0.4,0.4,0.55", help="cores of each broker")
    chosen = parser.parse_args(words)
    quotas = [float(cores) for cores in chosen.quotas.split(",")]
    with tempfile.TemporaryDirectory() as directory, Cluster(Spec(chosen.version, full_jit=True)) as cluster:
        print(stage(cluster, Path(directory), chosen.file, quotas))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
