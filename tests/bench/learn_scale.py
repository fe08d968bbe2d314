"""How long ``lbd calibrate`` takes, and how much memory, on a history of so many days, bundles and candidates.

    python -m tests.bench learn-scale [--days 7] [--brokers 20] [--bundles 2000] [--candidates 60] [--cores 2]
        [--keep DIR]

The history is that of brokers of the month scenario, each with its load there, under the default settings, a sample a
minute; each bundle's rates are scattered by a twentieth from one minute to the next, so that a third of them is stored
in each round. Memory is that of all processes together, by their proportional share, sampled each second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.config import Settings
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import Scenario, load
from lbd.store.history import HistoryWriter
from lbd.store.history_round import HistorySettings
from lbd.turn.record import history_round

if TYPE_CHECKING:
    from lbd.store.history_round import HistoryRound

SETTINGS = Settings.model_validate({"interval_seconds": 60})
SCATTER = 0.05
BROKERS, BUNDLES = 20, 2000
"""Of the scenario."""

MIB = 1024 * 1024


def scattered(found: HistoryRound, random: np.random.Generator) -> HistoryRound:
    """The same with each bundle's rates a little off."""
    rows = found.snapshot.rows
    off = 1 + SCATTER * random.standard_normal((len(rows.rates), 1))
    rows = replace(rows, rates=rows.rates * np.maximum(off, 0.0))
    return replace(found, snapshot=replace(found.snapshot, rows=rows))


def write(root: Path, days: float, brokers: int, bundles: int, seed: int = 1) -> None:
    """A history as the daemon would have kept it."""
    about: dict[str, Any] = load("month").model_dump(mode="json")
    about["hours"] = days * 24
    for namespace in about["load"]:
        namespace["bundles"] = round(namespace["bundles"] / BUNDLES * bundles)
        namespace["mib_per_second"] *= brokers / BROKERS
    about["brokers"][0]["number"] = brokers
    random, writer = np.random.default_rng(seed), HistoryWriter(root, HistorySettings())
    for turned in Simulation(Scenario.model_validate(about), SETTINGS, seed).turns():
        kept = history_round(turned.record, SETTINGS)
        assert kept is not None
        writer.add(scattered(kept, random))
    writer.flush()


@dataclass
class Use:
    """What a process and its children use: the most memory at one moment, in bytes, of all of them and of each kind
    (``lbd``, ``java``, ``workers``), and processor seconds of each.
    """

    process: int
    memory: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Processor seconds of all of them."""
        return sum(self.seconds.values())

    def watch(self, until: threading.Event) -> None:
        """Look each second."""
        while not until.wait(1.0):
            family = _family(self.process)
            shares = {process: _share(process) for process in family}
            self.memory = max(self.memory, sum(shares.values()))
            by_kind: Counter[str] = Counter()
            for process, share in shares.items():
                by_kind["lbd" if process == self.process else _kind(process)] += share
            self.kinds |= {kind: max(share, self.kinds.get(kind, 0)) for kind, share in by_kind.items()}
            self.seconds |= {one: max(_seconds(one), self.seconds.get(one, 0.0)) for one in family}


def _kind(process: int) -> str:
    """Spark's Java, or one of its Python workers."""
    try:
        return "java" if Path(f"/proc/{process}/comm").read_text().strip() == "java" else "workers"
    except OSError:
        return "workers"


def _seconds(process: int) -> float:
    try:
        told = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def _family(process: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(path.parent.name))
    found, waiting = [], [process]
    while waiting:
        found.append(waiting.pop())
        waiting += parents.get(found[-1], [])
    return found


def _share(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


@dataclass(frozen=True)
class Stage:
    """One stage: how long it took by the clock, and what processors gave to it, in seconds."""

    name: str
    took: float
    used: float


def calibrate(root: Path, out: Path, candidates: int, cores: int) -> tuple[list[Stage], Use]:
    """The stages of one run, and what it used."""
    words = ("--history", str(root), "--out", str(out), "--master", f"local[{cores}]", "--candidates", str(candidates))
    command = [sys.executable, "-m", "lbd", "calibrate", "--explain", *words]
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True) as process:
        over, use = threading.Event(), Use(process.pid)
        watching = threading.Thread(target=use.watch, args=(over,))
        watching.start()
        assert process.stderr is not None
        marks = [("start", begun, 0.0)]
        for line in process.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            if line.rstrip().endswith(" ..."):
                marks.append((line.rstrip().removesuffix(" ..."), time.perf_counter(), use.total))
    over.set()
    watching.join()
    if process.returncode:
        raise SystemExit(process.returncode)
    marks.append(("", time.perf_counter(), use.total))
    return [Stage(name, then - at, more - used) for (name, at, used), (_, then, more) in pairwise(marks)], use


def main() -> None:
    """Make a history, run the command on it, and print one line of a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench learn-scale", description=__doc__)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--brokers", type=int, default=BROKERS)
    parser.add_argument("--bundles", type=int, default=BUNDLES)
    parser.add_argument("--candidates", type=int, default=60)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the history is, or is to be, kept")
    asked = parser.parse_args(sys.argv[2:])
    with TemporaryDirectory() as folder:
        root = asked.keep or Path(folder) / "history"
        if not (root / "v1").is_dir():
            write(root, asked.days, asked.brokers, asked.bundles)
        size = sum(path.stat().st_size for path in root.glob("v1/*/*/*.parquet"))
        stages, use = calibrate(root, Path(folder) / "out", asked.candidates, asked.cores)
    for one in stages:
        print(f"{one.took:8.1f} s, {one.used:8.1f} s of processors: {one.name}")
    kinds = ", ".join(f"{kind} {memory / MIB:,.0f}" for kind, memory in sorted(use.kinds.items()))
    print("| days | brokers | bundles | candidates | history | time | processor time | memory, MiB | each at most |")
    print("|---|---|---|---|---|---|---|---|---|")
    print(
        f"| {asked.days:g} | {asked.brokers} | {asked.bundles:,} | {asked.candidates} | {size / MIB:.0f} MiB "
        f"| {sum(one.took for one in stages):.0f} s | {use.total:.0f} s | {use.memory / MIB:,.0f} | {kinds} |"
    )


if __name__ == "__main__":
    main()
