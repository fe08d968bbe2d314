"""What a scorecard is made of: the brokers look by look, the moves, and who owned what before and after. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.score.bounds import fewest_moves, fewest_moves_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.model import BoolArray, FloatArray
    from lbd.score.placement import Placement


@dataclass(frozen=True, eq=False)
class Seen:
    """The truth at one moment, ``seconds`` after the beginning.

    ``present`` is bool (B,), the brokers that are there; ``points`` float64 (P,), the score of each of those P;
    ``unmoved`` the same had no bundle changed hands since the beginning; ``carried`` float64 (B,), what each broker
    carries in bytes/s, in + out. ``took_seconds`` is how long lbd's turn took.
    """

    seconds: float
    points: FloatArray
    unmoved: FloatArray
    present: BoolArray
    carried: FloatArray
    took_seconds: float = 0.0

    @property
    def throughput(self) -> float:
        """What all of them carry, bytes/s."""
        return float(self.carried.sum())


@dataclass(frozen=True)
class Moved:
    """A bundle that landed; ``throughput`` in bytes/s, in + out. ``allowed``: policies let it be where it went."""

    seconds: float
    bundle: str
    source: str
    destination: str
    throughput: float
    allowed: bool = True


@dataclass(frozen=True)
class Split:
    """A bundle that was split into so many ``parts`` while ``owner`` owned it, by ``lbd`` or by the ``brokers``."""

    seconds: float
    bundle: str
    owner: str
    parts: int
    by: str


@dataclass(frozen=True, eq=False)
class Trace:
    """A run. ``brokers`` names all that were ever there.

    ``shown_at_seconds`` is when reports first showed the high threshold. ``placement`` is under the heaviest load since
    the last move, and None where bundles changed hands by other means than lbd's moves; of what was split it has the
    parts. ``unserved_bundle_seconds`` is for how long, over all bundles, nobody served them.
    """

    seen: tuple[Seen, ...]
    moves: tuple[Moved, ...]
    brokers: tuple[str, ...] = ()
    shown_at_seconds: float | None = None
    placement: Placement | None = None
    unserved_bundle_seconds: float = 0.0
    splits: tuple[Split, ...] = ()

    @property
    def bounded(self) -> Placement | None:
        """What bounds on moves can be told of. Of splits there is none: a bundle that moves whole is a single move."""
        return None if self.splits else self.placement

    @property
    def fewest_moves(self) -> int | None:
        """What any plan would have needed at least from the first owners to as low a peak."""
        found = self.bounded
        if found is None:
            return None
        return fewest_moves(found.sizes, found.first, found.room(found.peak(found.last)))

    @property
    def fewest_moves_as_even(self) -> int | None:
        """The same to as low a peak and as high a trough."""
        found = self.bounded
        if found is None:
            return None
        room, wanted = found.room(found.peak(found.last)), found.wanted(found.trough(found.last))
        return fewest_moves_between(found.sizes, found.first, room, wanted)

    def seconds(self) -> FloatArray:
        """When each look was, float64 (T,)."""
        return np.array([one.seconds for one in self.seen])

    def points(self) -> FloatArray:
        """Scores by look and broker, float64 (T, B); NaN for a broker that is away."""
        return self._table([one.points for one in self.seen])

    def unmoved(self) -> FloatArray | None:
        """:meth:`points` had nothing moved; None where bundles would have changed hands all the same."""
        return None if self.placement is None else self._table([one.unmoved for one in self.seen])

    def carried(self) -> FloatArray:
        """Bytes/s by look and broker, float64 (T, B)."""
        return np.array([one.carried for one in self.seen])

    def _table(self, rows: Sequence[FloatArray]) -> FloatArray:
        found = np.full((len(self.seen), self.seen[0].present.size), np.nan)
        for row, one, points in zip(found, self.seen, rows, strict=True):
            row[one.present] = points
        return found
