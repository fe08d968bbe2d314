"""Whether two daemons stay as they are: hours at a turn a second on three real brokers, with people who give orders.

Every minute one thing happens, by turns: a pause, a drain and its end, a reload of changed settings, a leader that
stands still until the other one leads. Each ten seconds both processes are looked at, and their metrics are read.

python -m tests.e2e.pair --minutes 120 [--samples FILE] [--plot docs/results/pair.svg]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import requests

from tests.e2e import naming, placing
from tests.e2e.balancing import run, write_config
from tests.e2e.cluster import Cluster
from tests.e2e.leaders import LED_SECONDS, TOPIC, Pair, at_once, until
from tests.e2e.settings import Spec
from tests.e2e.test_leader import OF_A_DRAIN
from tests.e2e.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.e2e.daemon import Daemon

OWN = {"api": {"listen": "127.0.0.1:0"}, "leader": {"enabled": True, "topic": TOPIC}}
SETTINGS: dict[str, Any] = {**OF_A_DRAIN, **OWN}
BUNDLES, RATE = 24, 48.0
SAMPLE_SECONDS, EVERY_SECONDS, PAUSED_SECONDS = 10.0, 60.0, 10.0
WARM_UP_SHARE, BLOCKS = 0.25, 8
"""Caches fill in the first quarter. Of each eighth of the rest the median counts: a slope's error is that of these."""

TOLERATED = {
    "RSS MB": 2.0,
    "files": 1.0,
    "threads": 1.0,
    "CPU ms a turn": 2.0,
    "WAL MB": 1.0,
    "store MB": 20.0,
    "history MB": 4.0,
}
"""Growth an hour. The store keeps turns up to 128 MiB, history its days: they may grow, at this pace."""

FONT = 'font-family="sans-serif" font-size="11"'
COLOURS = ("#d1495b", "#4f86c6")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 360, 190, 48, 26, 26

Series = dict[str, tuple[list[float], list[float]]]
"""Hours and values, by measure and which."""


@dataclass(frozen=True)
class Sample:
    """One daemon at one moment, ``hours`` after the start of the run."""

    which: str
    hours: float
    leads: bool
    turns: int
    cpu_seconds: float
    held: dict[str, float]


def sampled(daemon: Daemon, hours: float) -> Sample:
    """By the kernel, the sizes of its files and its own word on who leads."""
    proc, status = Path(f"/proc/{daemon.pid}"), _status(daemon)
    with suppress(requests.Timeout):  # it stands still
        assert requests.get(f"{status['api']}/metrics", timeout=2).ok
    lines = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    held = {
        "RSS MB": int(lines["VmRSS"].split()[0]) / 1024,
        "files": len(os.listdir(proc / "fd")),  # noqa: PTH208 - names are enough
        "threads": int(lines["Threads"]),
        "store MB": _megabytes(daemon.state.glob("lbd.db")),
        "WAL MB": _megabytes(daemon.state.glob("lbd.db-wal")),
        "history MB": _megabytes((daemon.state / "history").rglob("*")),
    }
    cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return Sample(daemon.directory.name, hours, _leads(daemon), status["turns"], cpu_seconds, held)


def _megabytes(files: Iterator[Path]) -> float:
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def _status(daemon: Daemon) -> dict[str, Any]:
    return json.loads((daemon.state / "status.json").read_bytes())


def _leads(daemon: Daemon) -> bool:
    return str(_status(daemon)["leader"]).startswith("this lbd leads")


# --- what becomes of samples


def series(samples: Sequence[Sample]) -> Series:
    """What each daemon held; and what a turn cost between two looks, of the one that led and of the other one."""
    found: Series = {}
    for which in sorted({sample.which for sample in samples}):
        own = [sample for sample in samples if sample.which == which]
        for name in own[0].held:
            found[f"{name}, {which}"] = [sample.hours for sample in own], [sample.held[name] for sample in own]
        for before, after in itertools.pairwise(own):
            turns = after.turns - before.turns
            if turns >= SAMPLE_SECONDS / 2 and before.leads == after.leads:  # it did not stand still meanwhile
                name = f"CPU ms a turn, {'leader' if after.leads else 'standby'}"
                hours, values = found.setdefault(name, ([], []))
                hours.append(after.hours)
                values.append(1000 * (after.cpu_seconds - before.cpu_seconds) / turns)
    return found


def slope(hours: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Growth an hour and its standard error, by the line through the medians of the blocks."""
    order = np.argsort(hours)
    late = [np.asarray(each)[order][np.sort(hours) >= max(hours) * WARM_UP_SHARE] for each in (hours, values)]
    x, y = ([np.median(block) for block in np.array_split(each, BLOCKS)] for each in late)
    line, covariance = np.polyfit(x, y, 1, cov=True)
    return float(line[0]), float(np.sqrt(covariance[0, 0]))


def grown(found: Series) -> list[str]:
    """The measures that grew by more than is tolerated, and by more than twice the error."""
    slopes = {name: slope(*points) for name, points in found.items()}
    return [name for name, (growth, error) in slopes.items() if growth > max(_tolerated(name), 2 * error)]


def _tolerated(name: str) -> float:
    return TOLERATED[name.rpartition(", ")[0]]


def table(found: Series) -> str:
    """The start, each half hour (of a short run each quarter), the end and the slope; medians of two minutes."""
    end = max(hours[-1] for hours, _ in found.values())
    step = min(0.5, end / 4)
    times = [*np.arange(0, end - step / 2, step), end]
    head = ["", *(f"{60 * hours:.0f} min" for hours in times), "slope an hour", "tolerated"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, (hours, values) in sorted(found.items()):
        x, y = np.asarray(hours), np.asarray(values)
        cells = [f"{np.median(y[np.argsort(abs(x - time))[:12]]):.1f}" for time in times]
        growth, error = slope(hours, values)
        lines.append(f"| {' | '.join([name, *cells, f'{growth:+.2f} ± {error:.2f}', f'{_tolerated(name):g}'])} |")
    return "\n".join(lines)


def drawn(found: Series) -> str:
    """A panel for each measure, a line for each daemon."""
    size = 2 * WIDTH, HEIGHT * -(-len(TOLERATED) // 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" {FONT}>',
        f'<rect width="{size[0]}" height="{size[1]}" fill="#fff"/>',
    ]
    for place, panel in enumerate(TOLERATED):
        own = {name: points for name, points in found.items() if name.startswith(f"{panel}, ")}
        lines.append(f'<g transform="translate({place % 2 * WIDTH} {place // 2 * HEIGHT})">')
        lines += [*(_panel(panel, own) if own else ()), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def _panel(title: str, own: Series) -> Iterator[str]:
    most_x, most_y = (max(max(points[axis]) for points in own.values()) or 1.0 for axis in (0, 1))
    low, right = HEIGHT - BOTTOM, WIDTH - 12
    yield f'<path d="M{LEFT} {TOP}V{low}H{right}" fill="none" stroke="#444"/>'
    yield f'<text x="{LEFT - 5}" y="{TOP + 4}" text-anchor="end">{most_y:.4g}</text>'
    yield f'<text x="{LEFT - 5}" y="{low + 4}" text-anchor="end">0</text>'
    yield f'<text x="{right}" y="{low + 15}" text-anchor="end">{60 * most_x:.0f} min</text>'
    yield f'<text x="{LEFT}" y="16" font-weight="bold">{title}</text>'
    for row, (name, (hours, values)) in enumerate(sorted(own.items())):
        points = sorted(zip(hours, values, strict=True))
        drawn_at = ((LEFT + (right - LEFT) * x / most_x, low - (low - TOP) * y / most_y) for x, y in points)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn_at)
        yield f'<polyline points="{path}" fill="none" stroke="{COLOURS[row]}"/>'
        yield f'<text x="{right - 110 + 60 * row}" y="16" fill="{COLOURS[row]}">{name.rpartition(", ")[2]}</text>'


# --- the run


@dataclass
class People:
    """They do one thing after the other; ``codes`` are the exit codes of their commands."""

    pair: Pair
    codes: Counter[str] = field(default_factory=Counter)
    rounds: int = 0

    def act(self) -> None:
        """The next thing, to its end."""
        kinds = (self.pause, self.drain, self.reload, self.change_the_leader)
        kinds[self.rounds % len(kinds)]()
        self.rounds += 1

    def pause(self) -> None:
        """A short one."""
        self._run("pause", "--reason", "a test")
        time.sleep(PAUSED_SECONDS)
        self._run("resume")

    def drain(self) -> None:
        """Each broker in its turn gives its bundles to the others."""
        target = self.pair.cluster.brokers[self.rounds // 4 % len(self.pair.cluster.brokers)]
        self._run("drain", target, "--apply", "--reason", "a test", "--override", "a test")
        self._run("drain", target, "--release")

    def reload(self) -> None:
        """Other settings, for both."""
        changed = {**SETTINGS["guardrails"], "max_unloads_per_turn": 10 + self.rounds // 4 % 2}
        for daemon in self.pair.daemons:
            write_config(self.pair.cluster, daemon.directory, {**SETTINGS, "guardrails": changed})
            os.kill(daemon.pid, signal.SIGHUP)

    def change_the_leader(self) -> None:
        """The leader stands still until the other one leads, and stays the process that it was."""
        leader = self._leader()
        os.kill(leader.pid, signal.SIGSTOP)
        until(lambda: _leads(self.pair.other(leader)), LED_SECONDS, self.pair.last_lines)
        os.kill(leader.pid, signal.SIGCONT)
        self.codes["leader changed"] += 1

    def _leader(self) -> Daemon:
        until(lambda: sum(map(_leads, self.pair.daemons)) == 1, LED_SECONDS, self.pair.last_lines)
        return max(self.pair.daemons, key=_leads)

    def _run(self, *words: str) -> None:
        done = run(self._leader().command(*words))
        self.codes[f"{words[0]}{' --release' * ('--release' in words)}: {done.returncode}"] += 1
        if done.returncode:
            print(words, done.returncode, (done.stdout + done.stderr)[-600:], flush=True)


def soak(cluster: Cluster, directory: Path, minutes: float, file: TextIO) -> list[Sample]:
    """Both daemons must live, end well, and leave no move open and none made twice."""
    bundles = placing.namespace(cluster, f"pair{time.time_ns()}", BUNDLES)
    rates = {naming.topic_in(bundle): RATE / BUNDLES for bundle in bundles}
    samples: list[Sample] = []
    over = threading.Event()
    with Traffic(cluster, rates), Pair.of(cluster, directory, SETTINGS) as pair, ThreadPoolExecutor(1) as pool:
        people = People(pair)
        pair.leader()
        time.sleep(SAMPLE_SECONDS)
        begun = time.monotonic()

        def look() -> None:
            while not over.wait(SAMPLE_SECONDS):
                for daemon in pair.daemons:
                    samples.append(sampled(daemon, (time.monotonic() - begun) / 3600))
                    print(json.dumps(asdict(samples[-1])), file=file)

        looking = pool.submit(look)
        try:
            while not looking.done() and (left := begun + 60 * minutes - time.monotonic()) > 0:
                until_next = EVERY_SECONDS - (time.monotonic() - begun) % EVERY_SECONDS
                time.sleep(min(left, until_next))
                if left > 2 * EVERY_SECONDS:
                    people.act()
        finally:
            over.set()
        looking.result()
        pair.settle()
        moves = pair.moves()
        codes = [daemon.terminate().code for daemon in pair.daemons]
        print(dict(people.codes), dict(Counter(str(move.result) for move in moves)), flush=True)
        assert codes == [0, 0], pair.last_lines()
        assert [line for daemon in pair.daemons for line in daemon.noise()] == []
        assert at_once(moves) == []
        assert len(moves) > 0
    return samples


def main(words: Sequence[str]) -> int:
    """Print the table; non-zero when something grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="4.2.4")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument(
        "--samples", type=argparse.FileType("w", 1), default=os.devnull, help="for each sample, a line of JSON"
    )
    parser.add_argument("--plot", type=Path, default=Path(os.devnull), help="an SVG")
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as directory, Cluster(Spec(chosen.version)) as cluster, chosen.samples as file:
        samples = soak(cluster, Path(directory), chosen.minutes, file)
    found = series(samples)
    print(table(found))
    chosen.plot.write_text(drawn(found))
    print("grew: " + "; ".join(grown(found)) if grown(found) else "flat")
    return int(bool(grown(found)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
