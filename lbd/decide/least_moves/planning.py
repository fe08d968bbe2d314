"""Which bundles go where: the largest of who is too high, the last as small as does it, onto who stays lowest. Pure.

Taking the largest first is what the fewest moves that any plan needs are counted by (``score/bounds.py``); placing by
longest processing time is within 4/3 of the best level on equal machines (Graham 1969).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from lbd.decide.least_moves.foreseen import Foreseen
    from lbd.decide.least_moves.ground import Ground
    from lbd.model import BoolArray, FloatArray, IntArray

ROUNDING = 1e-6
"""Points by which two sums of the same numbers may differ."""

SIZES_ALIKE = 1.1
"""Sizes within such a factor are one size: of these the bundle with the fewest clients goes."""

EXCHANGED_AT_MOST = 16
"""Of a source's largest bundles so many are tried where no destination has room; for the next ones it is no better."""


DESTINATIONS_AT_MOST = 8
"""So many are asked for until the guardrails would allow one."""


@dataclass(frozen=True)
class Move:
    """One bundle, a position in the ground's ``bundles``; points off the source, and those that both have after it.

    ``back``: a bundle of the destination's that would go the other way once this one has landed, and so bring both into
    the band; None where that is not needed, or none does it.
    """

    candidate: int
    source: int
    destination: int
    taken: float
    source_after: float
    destination_after: float
    back: int | None = None


@dataclass(frozen=True)
class Band:
    """Points: who is too high is brought to ``top``, but left where it is below ``near``, and who is too low to
    ``bottom``; giving should leave nobody below ``floor``, and taking nobody above ``limit``, from where they would
    soon be too far again.
    """

    floor: float
    bottom: float
    level: float
    top: float
    limit: float
    near: float


class Plan:
    """Moves of one turn; each changes what the next one sees. ``may`` is bool (B,): who may give and take."""

    def __init__(self, ground: Ground, names: list[str], band: Band, may: BoolArray, foreseen: Foreseen) -> None:
        self._ground, self._names, self._band, self._may, self._foreseen = ground, names, band, may, foreseen
        self._points = ground.points.copy()
        self._scores = ground.scores.copy()
        self._free = np.ones(ground.bundles.size, dtype=np.bool_)
        self._took = np.zeros_like(may)
        self.refused = set[int]()
        """Candidates that would have gone to some broker but for what the guardrails foresee there."""
        self._own: dict[int, IntArray] = {}
        self._by_owner = np.argsort(ground.owner, kind="stable").astype(np.int32)
        self._start = np.searchsorted(ground.owner[self._by_owner], np.arange(len(may) + 1))

    def scores_after(self, moves: Iterable[Move]) -> FloatArray:
        """The score of each broker, in points, after some of the moves planned, float64 (B,)."""
        points, ground = self._ground.points.copy(), self._ground
        for move in moves:
            points[move.source] -= ground.cost[move.source] * ground.drives[move.candidate]
            points[move.destination] += ground.cost[move.destination] * ground.drives[move.candidate]
        found: FloatArray = np.maximum(points.max(axis=1), ground.other)
        return found

    def score(self, broker: int) -> float:
        """Points of a broker after all moves so far."""
        return float(self._scores[broker])

    def is_within(self, broker: int) -> bool:
        """Whether a broker is within the band after all moves so far."""
        return bool(self._band.bottom <= self._scores[broker] <= self._band.limit)

    def relieve(self, sources: Iterable[int], along: Collection[int] = ()) -> Iterator[Move]:
        """Moves from the highest of these brokers, until each is within the band or has nothing that fits.

        Those that only go ``along`` stay, once one that is higher has nothing that fits: they are not the peak then.
        """
        left = np.array(sorted({*sources, *along}), dtype=np.int32)
        while left.size:
            source = int(left[self._scores[left].argmax()])
            done = self._scores[source] <= self._band.near
            move = None if done else self._relief(source)
            if move is not None:
                yield move
            else:
                left = left[left != source]
                if not done and (move := self._overshoot(source)) is not None:
                    yield move
                elif not done:
                    left = left[~np.isin(left, list(along))]

    def needed(self, moves: Sequence[Move], low: Collection[int]) -> list[Move]:
        """These without what later ones made needless, the smallest first; ``low`` ones are to get what they need.

        A move is taken back where its source stays within the band with it.
        """
        gone = set[int]()
        for move in sorted(moves, key=lambda one: one.taken):
            one = np.array([move.candidate], dtype=np.int32)
            back = float(self._after(move.source, one, 1.0)[0])
            left = float(self._after(move.destination, one, -1.0)[0])
            if back <= self._band.near and (move.destination not in low or left >= self._band.bottom):
                self._put_back(move, back, left)
                gone.add(move.candidate)
        return self._made([move for move in moves if move.candidate not in gone]) if gone else list(moves)

    def _made(self, moves: Sequence[Move]) -> list[Move]:
        """These, one after the other from the beginning, each with the points that both ends then have after it."""
        self._points = self._ground.points.copy()
        self._scores = self._ground.scores.copy()
        return [self._moved(replace(self._again(move), back=move.back)) for move in moves]

    def _again(self, move: Move) -> Move:
        return self._move(move.candidate, move.source, move.destination)

    def _put_back(self, move: Move, source_after: float, destination_after: float) -> None:
        drives, cost = self._ground.drives[move.candidate], self._ground.cost
        self._points[move.source] += cost[move.source] * drives
        self._points[move.destination] -= cost[move.destination] * drives
        self._scores[move.source], self._scores[move.destination] = source_after, destination_after
        self._free[move.candidate] = True

    def fill(self, destination: int) -> Iterator[Move]:
        """Moves to a broker far below the level, each from the highest one that has something that fits."""
        while self._scores[destination] < self._band.bottom and (move := self._gift(destination)) is not None:
            yield move

    def _relief(self, source: int) -> Move | None:
        own = self._worth_moving(source)
        after = self._after(source, own, -1.0)
        ends = after <= self._band.top
        neat = ends & (after >= self._band.floor)
        least_first = np.argsort(-after, kind="stable")
        one_does = own[least_first[neat[least_first]]]
        groups = (
            one_does[np.argsort(self._ground.clients[one_does], kind="stable")],
            self._by_size(own[~ends]),
            own[least_first[(ends & ~neat)[least_first]]],
        )
        order = np.concatenate(groups)
        order = order[np.argsort(self._ground.price[order], kind="stable")]
        found = self._first(order, source)
        return found and self._take(found)

    def _worth_moving(self, source: int) -> IntArray:
        """What lowers it; where not even all of it together is enough, only what a sample can show."""
        own = self.candidates(source)
        gain = self._scores[source] - self._after(source, own, -1.0)
        all_of_it = self._ground.drives[own].sum(axis=0) * self._ground.cost[source]
        enough = float((self._points[source] - all_of_it).max()) <= self._band.top
        found: IntArray = own[gain > (ROUNDING if enough else self._ground.noise[source])]
        return found

    def _overshoot(self, source: int) -> Move | None:
        """The move that leaves the higher of both ends lowest, where nothing fits; None where that is no gain.

        Its destination is above the band then, and gives something small back when its samples have shown it.
        """
        tried = (self._lowest(at, source, np.inf) for at in self._worth_moving(source)[:EXCHANGED_AT_MOST].tolist())
        best = min(filter(None, tried), key=lambda move: max(move.source_after, move.destination_after), default=None)
        least_gain = self._band.top - self._band.level + float(self._ground.noise[source])
        if best is None or max(best.source_after, best.destination_after) > self._scores[source] - least_gain:
            return None
        return self._take(replace(best, back=self._back(best)))

    def _back(self, move: Move) -> int | None:
        """The smallest bundle of a destination's own that brings both ends of a move into the band."""
        own = self.candidates(move.destination)
        drives, cost = self._ground.drives[own], self._ground.cost
        moved = self._ground.drives[move.candidate]
        there = self._points[move.destination] + cost[move.destination] * (moved - drives)
        here = self._points[move.source] - cost[move.source] * (moved - drives)
        fits = (there.max(axis=1) <= self._band.limit) & (here.max(axis=1) <= self._band.limit)
        return int(own[fits][-1]) if fits.any() else None

    def _by_size(self, own: IntArray) -> IntArray:
        """From the largest down; of sizes that are alike those with the fewest clients first."""
        sizes = np.maximum(self._ground.drives[own].max(axis=1, initial=1.0), 1.0)
        found: IntArray = own[np.lexsort((self._ground.clients[own], -np.floor(np.log(sizes) / np.log(SIZES_ALIKE))))]
        return found

    def _first(self, candidates: IntArray, source: int) -> Move | None:
        """The first of these that fits somewhere; after one that does not, those that cannot are passed over."""
        if not candidates.size:
            return None
        if (found := self._lowest(int(candidates[0]), source, self._band.limit)) is not None:
            return found
        fits = (self._ground.drives[candidates] <= self._room(source) * (1 + ROUNDING)).all(axis=1)
        moves = (self._lowest(at, source, self._band.limit) for at in candidates[fits].tolist())
        return next((move for move in moves if move is not None), None)

    def _gift(self, destination: int) -> Move | None:
        """Of the highest broker the smallest bundle that is enough, else the largest; both ends stay in the band."""
        for source in np.argsort(-self._scores, kind="stable").tolist():
            if self._scores[source] <= max(self._band.bottom, self._scores[destination]):
                return None
            if self._may[source] and not self._took[source] and source != destination:
                own = self.candidates(source)
                given, filled = self._after(source, own, -1.0), self._after(destination, own, 1.0)
                top = min(self._band.limit, self._scores[source] - ROUNDING)
                fits = (given >= self._band.bottom) & (filled <= top) & (filled > self._scores[destination] + ROUNDING)
                enough = filled >= self._band.bottom
                chosen = np.concatenate((own[fits & enough][::-1], own[fits & ~enough]))
                cheapest = chosen[np.argsort(self._ground.price[chosen], kind="stable")][:DESTINATIONS_AT_MOST]
                for candidate in cheapest.tolist():
                    if self._foreseen.allows(int(self._ground.bundles[candidate]), source, destination):
                        return self._take(self._move(candidate, source, destination))
        return None

    def candidates(self, broker: int) -> IntArray:
        """What it may still give, from the largest down in the resource that makes its score, then by name."""
        if broker not in self._own:
            ground, column = self._ground, int(self._ground.points[broker].argmax())
            own = self._by_owner[self._start[broker] : self._start[broker + 1]]
            sizes = ground.drives[own, column]
            order = np.argsort(-sizes, kind="stable")
            if not np.diff(sizes[order]).all():
                names = [self._names[at] for at in ground.bundles[own].tolist()]
                order = np.array(sorted(order.tolist(), key=lambda at: (-sizes[at], names[at])))
            self._own[broker] = own[order]
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
        spare = np.maximum(self._band.limit - self._points[others], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(self._ground.cost[others] > 0, spare / self._ground.cost[others], np.inf)
        found: FloatArray = room.max(axis=0, initial=0.0)
        return found

    def _lowest(self, candidate: int, source: int, top: float) -> Move | None:
        """The move to the broker that stays lowest with it; None where none stays below ``top`` and the source."""
        points = self._points + self._ground.cost * self._ground.drives[candidate]
        after = np.maximum(points.max(axis=1), self._ground.other)
        after[~self._may] = np.inf
        after[source] = np.inf
        for _ in range(DESTINATIONS_AT_MOST):
            destination = int(after.argmin())
            if not after[destination] <= min(top, self._scores[source] - ROUNDING):
                return None
            if self._foreseen.allows(int(self._ground.bundles[candidate]), source, destination):
                return self._move(candidate, source, destination)
            after[destination] = np.inf
            self.refused.add(candidate)
        return None

    def _move(self, candidate: int, source: int, destination: int) -> Move:
        one = np.array([candidate], dtype=np.int32)
        given, filled = float(self._after(source, one, -1.0)[0]), float(self._after(destination, one, 1.0)[0])
        return Move(candidate, source, destination, float(self._scores[source]) - given, given, filled)

    def _take(self, move: Move) -> Move:
        self._foreseen.take(int(self._ground.bundles[move.candidate]), move.source, move.destination)
        return self._moved(move)

    def _moved(self, move: Move) -> Move:
        drives, cost = self._ground.drives[move.candidate], self._ground.cost
        self._points[move.source] -= cost[move.source] * drives
        self._points[move.destination] += cost[move.destination] * drives
        self._scores[move.source], self._scores[move.destination] = move.source_after, move.destination_after
        self._free[move.candidate] = False
        self._took[move.destination] = True
        return move
