"""``python -m tests.nights --seeds 1-20``: nights in simulated time, each repeatable by its seed.

A night that fails is shortened to the faults that it needs, and its story is printed: what happened, in time order, one
line each. ``--trace`` prints the whole story of each night. A story and its digest are the same each time that its seed
is run with the same ``--minutes``. Exit code 1 if any night failed.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections import deque
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from tests.nights.scheduler import simulated

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tests.nights.night import Result

HASH_SEED = "0"
"""Sets have the same order in each run."""

MEMORY = Path("/dev/shm")
"""Where state directories are, if there is such a place: a real disk's syncs would take a third of a night."""

GARBAGE = 50_000, 20, 20
"""Objects after which cycles are looked for: with Python's own 700 that is a fourteenth of a night."""

LAST_LINES = 60
"""Of a story, where not all of it is wanted."""


def main() -> int:
    """Run the nights of the seeds that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.nights", description=(__doc__ or "").partition("\n")[2])
    parser.add_argument("--seeds", type=seeds, default=range(1, 21), help="such as 7, or 1-20 (default)")
    parser.add_argument("--minutes", type=float, help="how long faults go on in each night (default: 60)")
    parser.add_argument("--trace", action="store_true", help="print the whole story of each night")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first night that fails, as it is")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="nights at the same time")
    chosen = parser.parse_args()
    begin_alike("tests.nights")
    with simulated(0):
        from tests.nights import night  # locks and clocks of the modules under simulation are made within one
    gc.freeze()  # what all nights have in common is no garbage
    gc.set_threshold(*GARBAGE)
    minutes = chosen.minutes or night.MINUTES
    began_at, results = time.perf_counter(), []
    for night_of_seed in nights(chosen.seeds, minutes, chosen.at_once):
        keep = chosen.until_failure or not night_of_seed.failure
        results.append(night_of_seed if keep else _shortened(night_of_seed, minutes))
        _tell(results[-1], everything=chosen.trace)
        if chosen.until_failure and night_of_seed.failure:
            break
    seconds, failed = time.perf_counter() - began_at, [result.seed for result in results if result.failure]
    days = len(results) * (minutes + night.CALM_MINUTES) / (24 * 60)
    print(
        f"{len(results)} nights, {sum(result.unloads for result in results)} unloads, "
        f"{sum(result.turns for result in results)} turns, {sum(result.steps for result in results)} steps in "
        f"{seconds:.0f} s: {60 * len(results) / seconds:.1f} nights a minute, {60 * days / seconds:.2f} simulated days "
        f"a minute; failed: {failed or 'none'}"
    )
    return 1 if failed else 0


def seeds(text: str) -> Sequence[int]:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def begin_alike(module: str) -> None:
    """Begin this command anew where sets have another order than in other runs, or libraries threads of their own."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        alike = {"PYTHONHASHSEED": HASH_SEED, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], {**os.environ, **alike})


def nights(chosen: Sequence[int], minutes: float, at_once: int) -> Iterator[Result]:
    """The result of each seed, in their order; each night has a process of its own."""
    waiting, running = deque(chosen), deque[tuple[int, Connection]]()
    while waiting or running:
        while waiting and len(running) < at_once:
            seed = waiting.popleft()
            running.append((seed, _begin(seed, minutes)))
        seed, receiver = running.popleft()
        yield _received(seed, receiver)


def _shortened(result: Result, minutes: float) -> Result:
    """The same failure, or another one, with as few faults and orders as it needs: ever smaller parts are left out."""
    part = len(result.faults)
    while part := part // 2:
        start = 0
        while start < len(result.faults):
            numbers = sorted(result.faults)
            fewer = numbers[:start] + numbers[start + part :]
            shorter = _received(result.seed, _begin(result.seed, minutes, fewer))
            if shorter.failure:
                result = shorter
            else:
                start += part
    return result


def _begin(seed: int, minutes: float, numbers: Collection[int] | None = None) -> Connection:
    """Start a night in a copy of this process, which has all modules."""
    receiver, sender = get_context("fork").Pipe(duplex=False)
    if os.fork() == 0:
        _live(seed, minutes, numbers, sender)
    sender.close()
    return receiver


def _received(seed: int, receiver: Connection) -> Result:
    try:
        result: Result = receiver.recv()
    except EOFError:
        raise SystemExit(f"seed {seed}: the process of its night has died") from None
    os.wait()
    return result


def _live(seed: int, minutes: float, numbers: Collection[int] | None, sender: Connection) -> None:
    """One night; the tasks that still wait then end with the process."""
    from tests.nights import night

    code = 1
    try:
        with tempfile.TemporaryDirectory(prefix="lbd-night-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
            numbers = night.HAPPENINGS if numbers is None else numbers
            sender.send(night.live(seed, Path(folder) / "night", minutes, numbers))
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def _tell(result: Result, *, everything: bool) -> None:
    print(
        f"seed {result.seed} {'FAILED' if result.failure else 'holds'} ({result.digest}): "
        f"{result.unloads} unloads, {result.turns} turns, "
        f"{result.steps} steps, {result.requests} requests; {', '.join(result.faults.values())}",
        flush=True,
    )
    lines = result.story if everything else result.story[-LAST_LINES:] if result.failure else ()
    for line in lines:
        print(f"    {line}")
    if result.failure:
        print(f"    {result.failure}")


if __name__ == "__main__":
    sys.exit(main())
