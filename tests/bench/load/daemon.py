"""``lbd run`` with a stop watch: a line of JSON for each turn, ``Turned``, in the file named first.

python -m tests.bench.load.daemon TURNS run --config FILE
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.cli import main as lbd
from lbd.daemon.engine import Engine
from lbd.daemon.service import Service
from lbd.observe.observer import Observer
from lbd.turn import plan, turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.turn.parts import TurnResult

PARTS: tuple[tuple[Any, str], ...] = (
    (Observer, "observe"),
    (turn, "assess"),
    (turn, "plan"),
    (plan, "_permission"),
    (plan, "decide"),
)
"""Functions whose CPU is told: assessing includes observing, planning includes permission and decision."""


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


class Turned(msgspec.Struct, frozen=True):
    """One turn: ``begun`` and ``ended`` are epoch seconds.

    ``observe_seconds`` is until all reports were in columns, ``rest_seconds`` all after that until the turn was kept,
    ``cpu_seconds`` what the turn's own thread took of a processor: those that ask brokers are not in it, but in
    ``process_seconds``, as all else that ran meanwhile. ``parts`` are CPU seconds of the turn's thread by part; a part
    includes those within it. ``collected_seconds`` is the longest garbage collection since the turn before, in which
    every thread stands still. ``memory`` is the resident MiB before the turn and after it.
    """

    begun: float
    ended: float
    observe_seconds: float
    rest_seconds: float
    cpu_seconds: float
    process_seconds: float
    collected_seconds: float
    moves_under_way: int
    parts: dict[str, float]
    memory: tuple[float, float]

    @property
    def seconds(self) -> float:
        """All of it, until status.json was written."""
        return self.ended - self.begun


class _Watch:
    """Measures every turn of this process."""

    def __init__(self, path: Path) -> None:
        self._path, self._turn, self._whole = path, Engine.turn, Service._turn
        self._record: TurnResult | None = None
        self._turned = self._collecting = self._collected = 0.0
        self._parts: dict[str, float] = {}
        gc.callbacks.append(self._collection)
        for owner, name in PARTS:
            setattr(owner, name, self._part(name.strip("_"), getattr(owner, name)))

    def _part(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            cpu = time.thread_time()
            try:
                return work(*args, **kwargs)
            finally:
                self._parts[name] = self._parts.get(name, 0.0) + time.thread_time() - cpu

        return timed

    def _collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            self._collected = max(self._collected, time.perf_counter() - self._collecting)

    def turn(self, engine: Engine) -> TurnResult:
        """The turn itself."""
        self._record = self._turn(engine)
        self._turned = time.time()
        return self._record

    def whole(self, service: Service) -> None:
        """With all that is told of it."""
        self._parts, memory = {}, resident_mib()
        begun, cpu, process = time.time(), time.thread_time(), time.process_time()
        self._whole(service)
        ended, cpu, process = time.time(), time.thread_time() - cpu, time.process_time() - process
        if self._record is not None:
            seen = self._record.observation
            observe = seen.seconds if seen is not None else 0.0
            seconds = (observe, self._turned - begun - observe, cpu, process, self._collected)
            self._collected = 0.0
            with self._path.open("ab") as file:
                under_way, memory_after = len(self._record.moves.unfinished), (memory, resident_mib())
                found = Turned(begun, ended, *seconds, under_way, self._parts, memory_after)
                file.write(msgspec.json.encode(found) + b"\n")


def main() -> None:
    """The command line of lbd after the name of the file."""
    watch = _Watch(Path(sys.argv.pop(1)))
    Engine.turn = lambda *args: watch.turn(args[0])  # type: ignore[assignment, method-assign]
    Service._turn = lambda *args: watch.whole(args[0])  # type: ignore[assignment, method-assign]
    lbd()


if __name__ == "__main__":
    main()
