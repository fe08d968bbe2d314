"""Which bundles go where: the largest of who is too high, the last as small as does it, onto who stays lowest. Pure.

Taking the largest first is what the fewest moves that any plan needs are counted by (``score/bounds.py``); placing by
longest processing time is within 4/3 of the best level on equal machines (Graham 1969).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lbd.decide.least_moves.ground import Ground
    from lbd.model import BoolArray, FloatArray, IntArray

ROUNDING = 1e-6
"""Points by which two sums of the same numbers may differ."""


@dataclass(frozen=True)
class Move:
    """One bundle, a position in the ground's ``bundles``; points off the source, and those that both have after it."""

    candidate: int
    source: int
    destination: int
    taken: float
    source_after: float
    destination_after: float


@dataclass(frozen=True)
class Band:
    """Points: no broker is filled above ``top``, one that gives should not fall below ``floor``."""

    floor: float
    level: float
    top: float

    @property
    def bottom(self) -> float:
        """As far below the level as the top is above it: who is there is no further off."""
        return 2 * self.level - self.top


class Plan:
    """Moves of one turn; each changes what the next one sees. ``may`` is bool (B,): who may give and take."""

    def __init__(self, ground: Ground, names: list[str], band: Band, may: BoolArray) -> None:
        self._ground, self._names, self._band, self._may = ground, names, band, may
        self._points = ground.points.copy()
        self._scores = np.maximum(self._points.max(axis=1), ground.other)
        self._free = np.ones(ground.bundles.size, dtype=np.bool_)
        self._took = np.zeros_like(may)
        self._own: dict[int, IntArray] = {}
        self._by_owner = np.argsort(ground.owner, kind="stable").astype(np.int32)
        self._start = np.searchsorted(ground.owner[self._by_owner], np.arange(len(may) + 1))

    def peak(self, among: BoolArray) -> float:
        """The highest score of these brokers after all moves so far, in points."""
        return float(self._scores[among].max())

    def is_within(self, broker: int) -> bool:
        """Whether a broker is within the band after all moves so far."""
        return bool(self._band.bottom <= self._scores[broker] <= self._band.top + ROUNDING)

    def relieve(self, sources: Iterable[int]) -> Iterator[Move]:
        """Moves from the highest of these brokers, until each is within the band or has nothing that fits."""
        left = np.array(sorted(sources), dtype=np.int32)
        while left.size:
            source = int(left[self._scores[left].argmax()])
            done = self._scores[source] <= self._band.top + ROUNDING
            move = None if done else self._relief(source)
            if move is None:
                left = left[left != source]
            else:
                yield move

    def fill(self, destination: int) -> Iterator[Move]:
        """Moves to a broker far below the level, each from the highest one that has something that fits."""
        while self._scores[destination] < self._band.bottom and (move := self._gift(destination)) is not None:
            yield move

    def _relief(self, source: int) -> Move | None:
        own = self.candidates(source)
        after = self._after(source, own, -1.0)
        gains = after < self._scores[source] - ROUNDING
        own, after = own[gains], after[gains]
        ends = after <= self._band.top
        neat = ends & (after >= self._band.floor)
        least_first = np.argsort(-after, kind="stable")
        groups = (least_first[neat[least_first]], np.flatnonzero(~ends), least_first[(ends & ~neat)[least_first]])
        order = np.concatenate(groups)
        order = order[np.argsort(self._ground.price[own[order]], kind="stable")]
        found = self._first(own[order], source)
        return found and self._take(found)

    def _first(self, candidates: IntArray, source: int) -> Move | None:
        """The first of these that fits somewhere; after one that does not, those that cannot are passed over."""
        if not candidates.size:
            return None
        if (found := self._lowest(int(candidates[0]), source)) is not None:
            return found
        fits = (self._ground.drives[candidates] <= self._room(source) * (1 + ROUNDING)).all(axis=1)
        moves = (self._lowest(at, source) for at in candidates[fits].tolist())
        return next((move for move in moves if move is not None), None)

    def _gift(self, destination: int) -> Move | None:
        """The largest bundle of the highest broker that leaves it above the floor and the destination in the band."""
        for source in np.argsort(-self._scores, kind="stable").tolist():
            if self._scores[source] <= max(self._band.bottom, self._scores[destination]):
                return None
            if self._may[source] and not self._took[source] and source != destination:
                own = self.candidates(source)
                given, filled = self._after(source, own, -1.0), self._after(destination, own, 1.0)
                top = min(self._band.top, self._scores[source] - ROUNDING)
                fits = (given >= self._band.bottom) & (filled <= top) & (filled > self._scores[destination] + ROUNDING)
                if fits.any():
                    chosen = own[fits]
                    best = int(np.argmin(self._ground.price[chosen]))
                    return self._take(self._move(int(chosen[best]), source, destination))
        return None

    def candidates(self, broker: int) -> IntArray:
        """What it may still give, from the largest down in the resource that makes its score, then by name."""
        if broker not in self._own:
            ground, column = self._ground, int(self._ground.points[broker].argmax())
            own = self._by_owner[self._start[broker] : self._start[broker + 1]].tolist()
            own.sort(key=lambda at: (-ground.drives[at, column], self._names[ground.bundles[at]]))
            self._own[broker] = np.array(own, dtype=np.int32)
        found = self._own[broker]
        return found[self._free[found]]

    def _after(self, broker: int, candidates: IntArray, sign: float) -> FloatArray:
        """The broker's score with each of the candidates alone taken off it, or put on it."""
        points = self._points[broker] + sign * self._ground.cost[broker] * self._ground.drives[candidates]
        found: FloatArray = np.maximum(points.max(axis=1, initial=-np.inf), self._ground.other[broker])
        return found

    def _room(self, source: int) -> FloatArray:
        """The most that some other broker could take, in what drives each resource, (3,)."""
        others = self._may.copy()
        others[source] = False
        spare = np.maximum(self._band.top - self._points[others], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(self._ground.cost[others] > 0, spare / self._ground.cost[others], np.inf)
        found: FloatArray = room.max(axis=0, initial=0.0)
        return found

    def _lowest(self, candidate: int, source: int) -> Move | None:
        """The move to the broker that stays lowest with it; None where it fits nowhere."""
        points = self._points + self._ground.cost * self._ground.drives[candidate]
        after = np.maximum(points.max(axis=1), self._ground.other)
        after[~self._may] = np.inf
        after[source] = np.inf
        destination = int(after.argmin())
        fits = after[destination] <= min(self._band.top, self._scores[source] - ROUNDING)
        return self._move(candidate, source, destination) if fits else None

    def _move(self, candidate: int, source: int, destination: int) -> Move:
        one = np.array([candidate], dtype=np.int32)
        given, filled = float(self._after(source, one, -1.0)[0]), float(self._after(destination, one, 1.0)[0])
        return Move(candidate, source, destination, float(self._scores[source]) - given, given, filled)

    def _take(self, move: Move) -> Move:
        drives, cost = self._ground.drives[move.candidate], self._ground.cost
        self._points[move.source] -= cost[move.source] * drives
        self._points[move.destination] += cost[move.destination] * drives
        self._scores[move.source], self._scores[move.destination] = move.source_after, move.destination_after
        self._free[move.candidate] = False
        self._took[move.destination] = True
        return move
