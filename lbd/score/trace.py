"""What a scorecard is made of: the brokers look by look, the moves, and who owned what before and after. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.score.bounds import fewest_moves

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray
    from lbd.score.placement import Placement


@dataclass(frozen=True, eq=False)
class Seen:
    """The truth at one moment, ``seconds`` after the beginning.

    ``present`` is bool (B,), the brokers that are there; ``points`` float64 (P,), the score of each of those P;
    ``carried`` float64 (B,), what each carries in bytes/s, in + out. ``took_seconds`` is how long lbd's turn took.
    """

    seconds: float
    points: FloatArray
    present: BoolArray
    carried: FloatArray
    took_seconds: float = 0.0

    @property
    def throughput(self) -> float:
        """What all of them carry, bytes/s."""
        return float(self.carried.sum())


@dataclass(frozen=True)
class Moved:
    """A bundle that landed; ``throughput`` in bytes/s, in + out.

    ``unserved_seconds`` is how long nobody served it, and ``allowed`` whether policies let it be where it went.
    """

    seconds: float
    bundle: str
    source: str
    destination: str
    throughput: float
    unserved_seconds: float = 0.0
    allowed: bool = True


@dataclass(frozen=True, eq=False)
class Trace:
    """A run. ``brokers`` names all that were ever there. ``shown_at_seconds`` is when reports first showed the high
    threshold. ``placement`` is None where bundles changed hands by other means than lbd's moves, and
    ``lost_bundle_seconds`` for how long bundles were served by nobody for such reasons.
    """

    seen: tuple[Seen, ...]
    moves: tuple[Moved, ...]
    brokers: tuple[str, ...] = ()
    shown_at_seconds: float | None = None
    placement: Placement | None = None
    lost_bundle_seconds: float = 0.0

    @property
    def fewest_moves(self) -> int | None:
        """What any plan would have needed at least for as low a peak as at the end, from the first owners."""
        found = self.placement
        if found is None:
            return None
        return fewest_moves(found.sizes, found.first, found.room(found.peak(found.last)))

    def seconds(self) -> FloatArray:
        """When each look was, float64 (T,)."""
        return np.array([one.seconds for one in self.seen])

    def points(self) -> FloatArray:
        """Scores by look and broker, float64 (T, B); NaN for a broker that is away."""
        found = np.full((len(self.seen), self.seen[0].present.size), np.nan)
        for row, one in zip(found, self.seen, strict=True):
            row[one.present] = one.points
        return found

    def carried(self) -> FloatArray:
        """Bytes/s by look and broker, float64 (T, B)."""
        return np.array([one.carried for one in self.seen])
