"""Whether a daemon's memory stays flat: hours at a short interval against real brokers with little traffic.

python -m tests.e2e.soak --minutes 60 --version 4.0.8 [--interval 1]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.e2e import naming, placing
from tests.e2e.cluster import Cluster
from tests.e2e.daemon import SETTINGS, Daemon
from tests.e2e.settings import Spec
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BUNDLES = 32
RATE = 64.0
SAMPLE_SECONDS = 30.0
SLOPE_LIMIT_MB_PER_HOUR = 2.0
SPREAD_LIMIT_MB = 4.0


@dataclass(frozen=True)
class Size:
    """What the daemon held at one moment."""

    at: float
    rss_mb: float
    threads: int
    files: int
    turns: int
    cpu: float


@dataclass(frozen=True)
class Growth:
    """How memory grew over the last three quarters of a run; the first one fills caches."""

    sizes: list[Size]

    @property
    def late(self) -> list[Size]:
        return self.sizes[len(self.sizes) // 4 :]

    @property
    def slope_mb_per_hour(self) -> float:
        """Of the line fitted to the samples."""
        hours = [size.at / 3600 for size in self.late]
        return float(np.polyfit(hours, [size.rss_mb for size in self.late], 1)[0])

    @property
    def spread_mb(self) -> float:
        """Largest minus smallest sample."""
        held = [size.rss_mb for size in self.late]
        return max(held) - min(held)

    def table(self, rows: int = 13) -> str:
        """So many samples, evenly over the run, and the verdict."""
        chosen = self.sizes[:: max(1, len(self.sizes) // rows)]
        lines = ["| minute | RSS MB | threads | open files | turns | CPU s |", "|---|---|---|---|---|---|"]
        lines += [
            f"| {one.at / 60:.1f} | {one.rss_mb:.2f} | {one.threads} | {one.files} | {one.turns} | {one.cpu:.1f} |"
            for one in [*chosen, self.sizes[-1]]
        ]
        verdict = f"last three quarters: {self.slope_mb_per_hour:+.2f} MB/h, largest - smallest {self.spread_mb:.2f} MB"
        return "\n".join([*lines, "", verdict])


def soak(
    cluster: Cluster, directory: Path, minutes: float, interval: float, tell: Callable[[str], None] = print
) -> Growth:
    """Run a daemon beside a little traffic and watch its size; the daemon must end well."""
    bundles = placing.namespace(cluster, f"soak{time.time_ns()}", BUNDLES)
    rates = {naming.topic_in(bundle): RATE / BUNDLES for bundle in bundles}
    sizes: list[Size] = []
    with Traffic(cluster, rates), Daemon(cluster, directory, {**SETTINGS, "interval_seconds": interval}) as daemon:
        begun = time.monotonic()
        while time.monotonic() - begun < minutes * 60:
            time.sleep(min(SAMPLE_SECONDS, minutes * 60 / 8))
            sizes.append(_size(daemon, time.monotonic() - begun))
            if len(sizes) % 10 == 0:
                tell(str(sizes[-1]))
        ended = daemon.terminate()
        assert ended.code == 0, daemon.last_lines()
        assert daemon.noise() == []
    return Growth(sizes)


def _size(daemon: Daemon, at: float) -> Size:
    proc = Path(f"/proc/{daemon.pid}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    turns = max((int(line["turn"]) for line in daemon.turns()), default=0)
    cpu = (int(fields[11]) + int(fields[12])) / 100
    files = sum(1 for _ in (proc / "fd").iterdir())
    return Size(at, int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), files, turns, cpu)


def main(words: Sequence[str]) -> int:
    """Print the table; non-zero when memory grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="4.0.8")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--interval", type=float, default=1)
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as directory, Cluster(Spec(chosen.version)) as cluster:
        found = soak(cluster, Path(directory), chosen.minutes, chosen.interval, lambda line: print(line, flush=True))
    print(found.table())
    flat = found.slope_mb_per_hour < SLOPE_LIMIT_MB_PER_HOUR and found.spread_mb < SPREAD_LIMIT_MB
    print("flat" if flat else "NOT flat")
    return int(not flat)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
