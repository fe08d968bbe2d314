"""Turns of a live daemon beside a large cluster: seconds, CPU by part, and memory."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.load.daemon import Turned
    from tests.bench.load.stage import Stage

TURNS = 9
ROWS: dict[str, Callable[[Turned], float]] = {
    "a turn, s": lambda turn: turn.seconds,
    "until all reports are in columns, s": lambda turn: turn.observe_seconds,
    "CPU of the process, s": lambda turn: turn.process_seconds,
    "CPU of the turn's thread, s": lambda turn: turn.cpu_seconds,
    "of that: observe, s": lambda turn: turn.parts["observe"],
    "averages, samples, slopes, s": lambda turn: turn.parts["assess"] - turn.parts["observe"],
    "permit, s": lambda turn: turn.parts["permission"],
    "decide, s": lambda turn: turn.parts["decide"],
    "limits, store, status, s": lambda turn: (
        turn.cpu_seconds - turn.parts["assess"] - turn.parts["permission"] - turn.parts["decide"]
    ),
    "memory after it, MiB": lambda turn: turn.memory[1],
}


def measured(on: Stage, rounds: int) -> None:
    """A table: the first turn, the median and the highest value of the others."""
    first, *others = on.after(1 + TURNS * rounds, 120.0 * (1 + TURNS * rounds))
    print(f"| {len(on.admin_urls)} brokers | first turn | median of {len(others)} | highest |\n|---|---|---|---|")
    for name, value in ROWS.items():
        values = [value(turn) for turn in others]
        print(f"| {name} | {value(first):.3g} | {statistics.median(values):.3g} | {max(values):.3g} |")
    print(f"\nresident before the first turn {first.memory[0]:.0f} MiB, at most {on.memory()[1]:.0f} MiB")
