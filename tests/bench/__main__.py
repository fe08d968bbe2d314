"""Speed and memory of deciding and observing, and the ratio to Pulsar's own Java class.

    python -m tests.bench [decide] [parse] [observe] [--large]
    python -m tests.bench fit

Each figure is measured in a process of its own: the median of several runs, and the peak of its resident memory. The
machine's speed drifts, so quote ratios rather than single figures. ``--large`` adds 1,000 brokers x 1,000,000 bundles.
``fit`` prints the simulated cluster beside the published charts instead.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.bench import fit, scenes

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024


@dataclass(frozen=True)
class Figure:
    """One line of the table; ``java_seconds`` are Pulsar 5.0.1's classes on 2 cores, from the vectors' own notes."""

    name: str
    prepare: Callable[[], Callable[[], object]]
    runs: int
    budget_seconds: float
    java_seconds: float | None = None


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
    return {
        "decide": decide,
        "parse": [
            Figure("parse + averages, 100 x 65,000", lambda: scenes.parse(100, 65_000), 7, 0.12, 0.161),
            Figure("averages alone, 100 x 65,000", lambda: scenes.averages_only(100, 65_000), 7, 0.12, 0.015),
        ],
        "observe": [Figure("observe over HTTP, 100 x 65,000", lambda: scenes.observe(100, 65_000), 5, 1.5)],
    }


def measure(figure: Figure) -> tuple[float, float, float]:
    """Median and fastest seconds, and peak MiB of a fresh process that does nothing else."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_measured, args=(figure, sender))
    process.start()
    found: tuple[float, float, float] = receiver.recv()
    process.join()
    return found


def _measured(figure: Figure, sender: Any) -> None:
    work = figure.prepare()
    seconds = []
    for _ in range(figure.runs):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB
    sender.send((statistics.median(seconds), min(seconds), peak))


def main() -> None:
    """Measure the groups asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=["decide", "parse", "observe", "fit", []])
    parser.add_argument("--large", action="store_true")
    chosen = parser.parse_args()
    if chosen.groups == ["fit"]:
        fit.main()
        return
    table = figures(large=chosen.large)
    print(f"{'what':38} {'median s':>9} {'best s':>9} {'budget s':>9} {'peak MiB':>9} {'Java / lbd':>11}")
    for group in chosen.groups or list(table):
        for figure in table[group]:
            median, best, peak = measure(figure)
            ratio = f"{figure.java_seconds / median:10.1f}x" if figure.java_seconds else f"{'-':>11}"
            print(
                f"{figure.name:38} {median:9.4f} {best:9.4f} {figure.budget_seconds:9.2f} {peak:9.0f} {ratio}",
                flush=True,
            )


if __name__ == "__main__":
    main()
