"""Speed and memory of deciding and observing, and the ratio to Pulsar's own Java class.

    python -m tests.bench [decide] [shedders] [place] [parse] [observe] [--large]
    python -m tests.bench fit | least [--each N] [--last N] [--few] [...] | learn | learn-scale | drain

Each figure is measured in a process of its own: the median of several runs, and the peak of its resident memory. The
machine's speed drifts, so quote ratios rather than single figures. ``--large`` adds 1,000 brokers x 1,000,000 bundles.
``fit`` prints the simulated cluster beside the published charts instead, ``least`` least-moves beside Pulsar's own,
``learn`` whether a next week, which it did not see, is as ``lbd calibrate`` claims,
``learn-scale`` how long it takes, ``drain`` how long it takes to empty a broker.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import sys
import time
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbd.decide.strategies import STRATEGIES
from lbd.place.placements import PLACEMENTS
from tests.bench import drain, fit, learn, learn_scale, least, scenes
from tests.scenarios.clusters import EACH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1024 * 1024


@dataclass(frozen=True)
class Figure:
    """One line of the table; ``java_seconds`` are Pulsar 5.0.1's classes on 2 cores, from the vectors' own notes.

    A ``quantile`` other than the median is of CPU seconds: among thousands of runs some wait for another process.
    """

    name: str
    prepare: Callable[[], Callable[[], object]]
    runs: int
    budget_seconds: float
    java_seconds: float | None = None
    quantile: float = 0.5


def figures(*, large: bool) -> dict[str, list[Figure]]:
    """What is measured, by group."""
    decide = [
        Figure("decide, firing, 300 x 30,000", lambda: scenes.decide(300, 30_000), 9, 0.05, 1.223),
        Figure("decide, firing, 100 x 65,000", lambda: scenes.decide(100, 65_000), 9, 0.05, 2.215),
    ]
    if large:
        decide.append(
            Figure("decide, firing, 1,000 x 1,000,000", lambda: scenes.decide(1000, 1_000_000), 3, 0.6, 861.0)
        )
        least_moves = partial(scenes.decide, 1000, 1_000_000, "least-moves")
        decide.append(Figure("least-moves, with bounds, 1,000 x 1,000,000", least_moves, 3, 2.0))
    return {
        "decide": decide,
        "place": [
            Figure(f"p99 CPU of an answer, {name}", _placing(name), 2000, 0.01, quantile=0.99) for name in PLACEMENTS
        ]
        + [Figure("what answers are made from, 100 x 65,000", lambda: scenes.look_around(100, 65_000), 9, 0.5)],
        "shedders": list(_shedders()),
        "parse": [
            Figure("parse + averages, 100 x 65,000", lambda: scenes.parse(100, 65_000), 7, 0.12, 0.161),
            Figure("averages alone, 100 x 65,000", lambda: scenes.averages_only(100, 65_000), 7, 0.12, 0.015),
        ],
        "observe": [Figure("observe over HTTP, 100 x 65,000", lambda: scenes.observe(100, 65_000), 5, 1.5)],
    }


def _placing(name: str) -> Callable[[], Callable[[], object]]:
    return lambda: scenes.place(name, 100, 65_000)


def _shedders() -> Iterator[Figure]:
    """The strategies beside AvgShedder; Java's times are told of two of them."""
    java = {"threshold-shedder": (1.496, 2.184), "uniform-load-shedder": (0.0092, 0.049)}
    for name in [one for one in STRATEGIES if one != "avg-shedder"]:
        seconds = java.get(name, (None, None))
        sizes = zip(((300, 30_000), (100, 65_000)), seconds, strict=True)
        for (brokers, bundles), theirs in sizes:
            scene = partial(scenes.decide, brokers, bundles, name)
            budget = 0.2 if name == "least-moves" else 0.1
            yield Figure(f"{name}, {brokers} x {bundles:,}", scene, 9, budget, theirs)
    placed = partial(scenes.decide, 300, 30_000, "threshold-shedder", "least-long-term-message-rate")
    yield Figure("threshold-shedder, placed, 300 x 30,000", placed, 5, 0.3)


def measure(figure: Figure) -> tuple[float, float, float]:
    """Median (or another quantile) and fastest seconds, and peak MiB of a fresh process that does nothing else."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_measured, args=(figure, sender))
    process.start()
    found: tuple[float, float, float] = receiver.recv()
    process.join()
    return found


def _measured(figure: Figure, sender: Any) -> None:
    work = figure.prepare()
    seconds = []
    clock = time.perf_counter if figure.quantile == 0.5 else time.thread_time
    for _ in range(figure.runs):
        begun = clock()
        work()
        seconds.append(clock() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB
    slow = (
        sorted(seconds)[int(figure.quantile * len(seconds))] if figure.quantile != 0.5 else statistics.median(seconds)
    )
    sender.send((slow, min(seconds), peak))


ALONE = {
    "fit": fit.main,
    "learn": learn.main,
    "learn-scale": learn_scale.main,
    "drain": drain.main,
}
"""Tables of their own."""


def main() -> None:
    """Measure the groups asked for, or all; tables of their own have options of their own."""
    if sys.argv[1:] and sys.argv[1] in ALONE:
        ALONE[sys.argv[1]]()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=["decide", "shedders", "place", "parse", "observe", "least", []])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--each", type=int, default=EACH, metavar="N", help="of least: clusters of each kind")
    parser.add_argument("--last", type=int, default=EACH - 1, metavar="N", help="of least: the last of each kind")
    parser.add_argument("--few", action="store_true", help="of least: AvgShedder, the default and least-moves only")
    parser.add_argument("--minutes", type=float, default=inf, metavar="N", help="of least: for how long at most")
    parser.add_argument("--suite-only", action="store_true", help="of least: without the experiments")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="of least: where to draw the suite, SVG")
    chosen = parser.parse_args()
    if chosen.groups == ["least"]:
        least.main(least.Chosen(chosen.each, chosen.last, chosen.minutes, chosen.few, chosen.suite_only, chosen.chart))
        return
    table = figures(large=chosen.large)
    print(f"{'what':66} {'median s':>9} {'best s':>9} {'budget s':>9} {'peak MiB':>9} {'Java / lbd':>11}")
    for group in chosen.groups or list(table):
        for figure in table[group]:
            median, best, peak = measure(figure)
            ratio = f"{figure.java_seconds / median:10.1f}x" if figure.java_seconds else f"{'-':>11}"
            print(
                f"{figure.name:66} {median:9.4f} {best:9.4f} {figure.budget_seconds:9.2f} {peak:9.0f} {ratio}",
                flush=True,
            )


if __name__ == "__main__":
    main()
