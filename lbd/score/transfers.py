"""The moves of a run put together: from where to where, between which two turns. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lbd.score.trace import Moved, Trace


@dataclass(frozen=True)
class Transfer:
    """Bundles that landed between two turns, all from one broker to one other; ``throughput`` in bytes/s, in + out.

    ``look`` is the position of the turn before, and ``seconds`` when it was.
    """

    look: int
    seconds: float
    source: str
    destination: str
    bundles: int
    throughput: float

    @property
    def clock(self) -> str:
        """When it was, in hours and minutes since the beginning."""
        return clock(self.seconds)


def clock(seconds: float) -> str:
    """Seconds since the beginning in hours and minutes."""
    minutes = int(seconds) // 60
    return f"{minutes // 60}:{minutes % 60:02d}"


def transfers(trace: Trace) -> tuple[Transfer, ...]:
    """All moves of a run, in the order in which the first of each transfer landed."""
    seconds = trace.seconds()
    looks = np.searchsorted(seconds, [move.seconds for move in trace.moves]) - 1
    found: dict[tuple[int, str, str], list[Moved]] = {}
    for look, move in zip(looks.clip(0).tolist(), trace.moves, strict=True):
        found.setdefault((look, move.source, move.destination), []).append(move)
    return tuple(
        Transfer(look, float(seconds[look]), source, destination, len(moves), sum(one.throughput for one in moves))
        for (look, source, destination), moves in found.items()
    )
