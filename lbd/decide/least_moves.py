"""The strategy ``least-moves``: brokers to the level at which their pool would be even, with as few moves as possible.

lbd's own; settings that it shares with AvgShedder have the same names. A broker that is too far from the level for some
samples in a row is relieved, or filled, in one turn and by as many others as needed. A bundle is sized in points: those
that it takes off its source, and those that it puts on its destination, which differ on unequal brokers. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, model_validator

from lbd.decide.cover import cheapest
from lbd.decide.load_estimate import other_work, survey
from lbd.decide.shedder import MOST_BYTES, MOST_HITS, MOST_MESSAGES, MOST_POINTS, HitSettings, progress, too_few
from lbd.load import scoring
from lbd.load.scoring import broker_conf
from lbd.model import Comparison, Decision, Hits, Memory, Pair, Skip
from lbd.permit.predicted import Predictor
from lbd.reason import Group, Reason
from lbd.score.bounds import IntakeBound, fewest_moves, fewest_removed, least_taken

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from lbd.decide.candidates import Offers
    from lbd.decide.load_estimate import Ground
    from lbd.load.scoring import Weights
    from lbd.model import BoolArray, CodeArray, FloatArray, IntArray, Permission, Unload


FULL_POINTS = 85.0
"""Level of a full cluster."""

FIRST_PART = (
    "Minimum to move for one broker, in messages/s in + out. It is a tenth of AvgShedder's, because estimated amounts "
    "move in parts"
)


class LeastMovesSettings(HitSettings):
    """Settings of ``strategy: least-moves``."""

    name = "least-moves"
    wants_slopes = True

    low_threshold: float = Field(
        7.5,
        ge=0.1,
        le=MOST_POINTS,
        description="Points between a broker and the level at which its pool would be even. The highest and "
        "the lowest broker must also be twice as far apart",
    )
    high_threshold: float = Field(
        20,
        ge=0.1,
        le=MOST_POINTS,
        description="Points from which a broker waits for few samples only. At least low_threshold",
    )
    hit_count_low: int = Field(8, ge=1, le=MOST_HITS, description="Samples in a row at low_threshold")
    hit_count_high: int = Field(2, ge=1, le=MOST_HITS, description="Samples in a row at high_threshold")
    aim_points: float = Field(
        3, ge=0, le=MOST_POINTS, description="Points above the level to which a plan brings brokers that are too high"
    )
    min_unload_message: float = Field(100, ge=0, le=MOST_MESSAGES, **broker_conf("minUnloadMessage", FIRST_PART))
    min_unload_message_throughput: float = Field(
        100 * 1024,
        ge=0,
        le=MOST_BYTES,
        **broker_conf(
            "minUnloadMessageThroughput", "Minimum in bytes/s in + out. Reaching one of the two minimums is enough"
        ),
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        """Refuse a high threshold below the low one: its few samples would count for the low one, too."""
        low, high = self.low_threshold, self.high_threshold
        if high < low:
            raise ValueError(f"high_threshold {high:g} is below low_threshold {low:g}; wanted at least as much")
        return self

    @property
    def gap_points(self) -> float:
        """Smallest highest - lowest at which anything moves, in proportion to AvgShedder's low threshold: 15 to 7.5."""
        return 2 * self.low_threshold


# --- hits: brokers that are too far from the level, and for how long; hit counts as AvgShedder's


@dataclass(frozen=True)
class Far:
    """A broker, by position, that is ``points`` above the level (or below it, less than 0)."""

    broker: int
    points: float
    hits: Hits
    fired: bool

    @property
    def relieved(self) -> bool:
        """Whether it is a source."""
        return self.fired and self.points > 0


def count(
    ids: tuple[str, ...],
    above: FloatArray,
    among: BoolArray,
    permission: Permission,
    memory: Memory,
    settings: LeastMovesSettings,
) -> tuple[list[Far], dict[str, Hits]]:
    """Brokers at or beyond the low threshold, the furthest first, and the counters after this round.

    ``above`` are points above the level, float64 (B,); ``among`` bool (B,) are the brokers of the level. A high broker
    counts only if it is ``gap_points`` above the lowest one, a low broker if the highest one is that much above it. A
    broker at the limit of its CPU counts as beyond ``high_threshold``.

    A counter advances with a new sample and ends when the broker is within the threshold. A broker that has joined
    lately needs only one, because it stays empty without moves. After firing it is one below its limit: if limits or
    wrong costs left something of a plan, the next plan follows with the first sample that shows it, not eight samples
    later. The remainder of what a broker gave lately needs neither hits nor a new sample.
    """
    counters, too_far = dict(memory.hits), list[Far]()
    highest, lowest = float(above[among].max(initial=0.0)), float(above[among].min(initial=0.0))
    for row in among.nonzero()[0].tolist():
        points, fresh = float(above[row]), bool(permission.counts[row])
        apart = points - lowest if points > 0 else highest - points
        if abs(points) < settings.low_threshold or apart < settings.gap_points:
            if fresh:
                counters.pop(ids[row], None)
            continue
        hits = counters.get(ids[row], Hits())
        if fresh:
            at_limit = points > 0 and permission.at_limit is not None and bool(permission.at_limit[row])
            hits = hits.one_more(high=abs(points) >= settings.high_threshold or at_limit)
        limits, held = settings.wanted_hits, permission.hold is not None
        goes_on = points > 0 and ids[row] in permission.goes_on
        fired = (goes_on or (fresh and (hits.reach(limits) or ids[row] in permission.joined))) and not held
        after = limits.below(limits) if fired else hits.below(limits) if held else hits
        if after == Hits():
            counters.pop(ids[row], None)
        else:
            counters[ids[row]] = after
        too_far.append(Far(row, points, hits, fired))
    return sorted(too_far, key=lambda far: -abs(far.points)), counters


# --- level: the points at which brokers would be even if traffic were divisible

STEPS = 50
"""Halvings of the range: below a millionth of a point."""

DECIMALS = 6
"""Digits that decide: sums in another order differ in their last bits, and plans must not."""


def water_level(ground: Ground, among: BoolArray) -> float:
    """Points at which these brokers together carry all that may move, each as much as it can; ``among`` is bool (B,).

    All traffic is assumed to be of one mix. A broker that is above the level without any of it stays there.
    """
    idle, load = ground.idle[among], ground.drives[among[ground.owner]].sum(axis=0)
    high = float(np.maximum(ground.points[among].max(axis=1), ground.other[among]).max())
    if not load.any():
        return round(float(ground.points[among].max(axis=1).mean()), DECIMALS)
    low = float(min(idle.min(), 0.0))
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = _share(idle, ground.cost[among] * load, middle).sum() >= 1
        low, high = (low, middle) if enough else (middle, high)
    return round(high, DECIMALS)


def brokers_missing(ground: Ground, among: BoolArray, level: float) -> int:
    """Number of further brokers of the mean capacity that would bring the level down to this one."""
    load = ground.drives[among[ground.owner]].sum(axis=0)
    carried = np.minimum(_share(ground.idle[among], ground.cost[among] * load, level), 1.0)
    mean = float(carried.mean())
    return math.ceil((1 - mean * carried.size) / mean) if mean > 0 else 0


def _share(idle: FloatArray, whole: FloatArray, level: float) -> FloatArray:
    """Share of the whole load that each broker carries at a level, (B,); ``whole`` (B, 3): points of all of it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(whole > 0, (level - idle) / whole, np.where(idle <= level, np.inf, 0.0))
    share: FloatArray = np.maximum(room.min(axis=1), 0.0)
    return share


# --- forecast: the guardrails' prediction of each destination, move by move, because they would refuse the rest
# The strategy's own points say where the brokers will end; the guardrails' are on the safe side without slopes
# of the destination's own (``permit/predicted.py``).


class Foreseen:
    """Predicted scores of one round, advanced by each move; without a limit nothing is refused.

    ``scores`` is float64 (B,), the points of the reports.
    """

    def __init__(self, offers: Offers, scores: FloatArray, weights: Weights) -> None:
        permission = offers.permission
        self._offers, self._ids = offers, offers.snapshot.brokers.ids
        self._limit, self._scores, self._predicted = permission.max_destination_score, scores, scores.copy()
        self._predictor = Predictor(offers.snapshot, scores, permission.slopes, weights)

    def allows(self, bundle: int, source: int, destination: int) -> bool:
        """Whether the destination would stay below the limit, and below the present score of its source."""
        if self._limit is None:
            return True
        reached = self._reached(bundle, source, destination)
        return bool(reached <= self._limit and reached < self._scores[source])

    def take(self, bundle: int, source: int, destination: int) -> None:
        """Count a planned move."""
        if self._limit is not None:
            self._predicted[destination] = self._reached(bundle, source, destination)

    def _reached(self, bundle: int, source: int, destination: int) -> float:
        before = float(self._predicted[destination])
        unload = self._offers.unload(bundle, (self._ids[source], self._ids[destination]), "")
        return before + self._predictor.rise(unload, before).points


# --- choice: from each broker above the level the cheapest sufficient set of bundles, to the lowest brokers
# Each broker's set is exact (``decide/cover.py``). It goes out the largest bundle first: placing by longest processing
# time is within 4/3 of the best level on equal machines (Graham 1969).

ROUNDING = 1e-6
"""Points by which two sums of the same numbers may differ."""

MOVE_COST = 4.0
"""Cost of a move beside the clients that it disconnects, in clients of a mean bundle: a lookup of every topic, a change
of owner, and a place in the budgets of moves. With 1, plans made 7 % more moves (docs/decisions/0008).
"""

POINT_COST = 1.0
"""Cost of a point that stays above the target, in clients of a mean bundle: three of them are less than a move."""

PRICE_COST = 1000.0
"""Cost of a point of ``guardrails.move_costs`` or ``topic_costs``, in clients of a mean bundle: it comes first."""

BEST_FOR_COST = 48
LARGEST = 16
"""Number of a broker's bundles to examine, with the most relief for their cost, and of its largest."""

EXCHANGED_AT_MOST = 16
"""Number of a source's largest bundles to try where no destination has room, and of repeated searches for the cheapest
bundles without one that fits nowhere.
"""


DESTINATIONS_AT_MOST = 8
"""Number of destinations to try until the guardrails would allow one."""


@dataclass(frozen=True)
class PlannedTransfer:
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
    """Limits in points: a high broker is brought to ``top``, but stays if it is below ``near``, a low one to
    ``bottom``; giving should leave none below ``floor``, and taking none above ``limit``, from where they would soon be
    too far again.
    """

    floor: float
    bottom: float
    level: float
    top: float
    limit: float
    near: float


class MovePlan:
    """Moves of one turn; each affects the next. ``may`` is bool (B,): brokers that may give and take."""

    def __init__(self, ground: Ground, names: list[str], band: Band, may: BoolArray, foreseen: Foreseen) -> None:
        self._ground, self._names, self._band, self._may, self._foreseen = ground, names, band, may, foreseen
        self._points = ground.points.copy()
        self._scores = ground.scores.copy()
        self._free = np.ones(ground.bundles.size, dtype=np.bool_)
        self._took = np.zeros_like(may)
        self.refused = set[int]()
        """Candidates without a destination only because of the guardrails' forecast."""
        self._own: dict[int, IntArray] = {}
        self._chosen: dict[int, list[int]] = {}
        self._stuck: dict[int, list[int]] = {}
        mean_clients = max(float(ground.clients.mean()), 1.0) if ground.clients.size else 1.0
        self._cost: FloatArray = MOVE_COST + ground.clients / mean_clients + PRICE_COST * ground.price
        self._by_owner = np.argsort(ground.owner, kind="stable").astype(np.int32)
        self._start = np.searchsorted(ground.owner[self._by_owner], np.arange(len(may) + 1))

    def scores_after(self, moves: Iterable[PlannedTransfer]) -> FloatArray:
        """Score of each broker, in points, after some of the planned moves, float64 (B,)."""
        points, ground = self._ground.points.copy(), self._ground
        for move in moves:
            points[move.source] -= ground.cost[move.source] * ground.drives[move.candidate]
            points[move.destination] += ground.cost[move.destination] * ground.drives[move.candidate]
        scores: FloatArray = np.maximum(points.max(axis=1), ground.other)
        return scores

    def score(self, broker: int) -> float:
        """Points of a broker after all moves so far."""
        return float(self._scores[broker])

    def is_within(self, broker: int) -> bool:
        """Whether a broker is within the band after all moves so far."""
        return bool(self._band.bottom <= self._scores[broker] <= self._band.limit)

    def relieve(self, sources: Iterable[int], along: Collection[int] = ()) -> Iterator[PlannedTransfer]:
        """Moves from the highest of these brokers, until each is within the band or has no bundle that fits.

        Brokers that are only taken ``along`` are dropped once a higher one has no bundle that fits: then they are not
        the peak.
        """
        remaining = np.array(sorted({*sources, *along}), dtype=np.int32)
        while remaining.size:
            source = int(remaining[self._scores[remaining].argmax()])
            done = self._scores[source] <= self._band.near
            move = None if done else self._relief(source)
            if move is not None:
                yield move
            else:
                remaining = remaining[remaining != source]
                if not done and (move := self._overshoot(source)) is not None:
                    yield move
                elif not done:
                    remaining = remaining[~np.isin(remaining, list(along))]

    def needed(self, moves: Sequence[PlannedTransfer], low: Collection[int]) -> list[PlannedTransfer]:
        """The moves without those that later ones made needless, the smallest first; ``low`` brokers keep what they
        need.

        A move is dropped if its source stays within the band with the bundle.
        """
        gone = set[int]()
        for move in sorted(moves, key=lambda move: move.taken):
            candidate = np.array([move.candidate], dtype=np.int32)
            back = float(self._after(move.source, candidate, 1.0)[0])
            without = float(self._after(move.destination, candidate, -1.0)[0])
            if back <= self._band.near and (move.destination not in low or without >= self._band.bottom):
                self._put_back(move, back, without)
                gone.add(move.candidate)
        return self._made([move for move in moves if move.candidate not in gone]) if gone else list(moves)

    def _made(self, moves: Sequence[PlannedTransfer]) -> list[PlannedTransfer]:
        """The moves anew, one after the other, each with the points of both ends after it."""
        self._points = self._ground.points.copy()
        self._scores = self._ground.scores.copy()
        return [self._moved(replace(self._again(move), back=move.back)) for move in moves]

    def _again(self, move: PlannedTransfer) -> PlannedTransfer:
        return self._move(move.candidate, move.source, move.destination)

    def _put_back(self, move: PlannedTransfer, source_after: float, destination_after: float) -> None:
        drives, cost = self._ground.drives[move.candidate], self._ground.cost
        self._points[move.source] += cost[move.source] * drives
        self._points[move.destination] -= cost[move.destination] * drives
        self._scores[move.source], self._scores[move.destination] = source_after, destination_after
        self._free[move.candidate] = True

    def fill(self, destination: int) -> Iterator[PlannedTransfer]:
        """Moves to a broker far below the level, each from the highest one with a bundle that fits."""
        while self._scores[destination] < self._band.bottom and (move := self._gift(destination)) is not None:
            yield move

    def _relief(self, source: int) -> PlannedTransfer | None:
        move = self._of_cheapest(source)
        if move is None:
            own, after, fits = self._worth_moving(source)
            gain = np.minimum(self._scores[source] - after, self._scores[source] - self._band.top)
            order = np.lexsort((-gain / self._cost[own], after < self._band.floor))
            move = self._first(own[order], own[order[fits[order]]], source)
        return move and self._take(move)

    def _of_cheapest(self, source: int) -> PlannedTransfer | None:
        """Next of the cheapest bundles that bring the source into the band; None where none of them fits elsewhere."""
        stuck = self._stuck.setdefault(source, [])
        while len(stuck) < EXCHANGED_AT_MOST:
            chosen = self._chosen.pop(source, None) or self._cheapest(source)
            if not chosen:
                return None
            if (move := self._lowest(chosen[0], source, self._band.limit)) is not None:
                self._chosen[source] = chosen[1:]
                return move
            stuck.append(chosen[0])
        return None

    def _cheapest(self, source: int) -> list[int]:
        """Cheapest bundles that bring a broker into the band, or the best if more are needed; largest first."""
        own, after, fits = self._worth_moving(source)
        fits &= ~np.isin(own, self._stuck[source])
        score, band = float(self._scores[source]), self._band
        own, gain = self._of_lowest_price(own[fits], score - after[fits], score - band.near)
        best = np.argsort(-gain / self._cost[own], kind="stable")[:BEST_FOR_COST]
        some = np.union1d(best, np.argsort(-gain, kind="stable")[:LARGEST])
        if gain[some].sum() > score - band.near:
            totals = (score - band.near, score - band.top, score - band.floor)
            best = some[cheapest(gain[some], self._cost[own[some]], totals, POINT_COST)]
        chosen: list[int] = own[best[np.argsort(-gain[best], kind="stable")]].tolist()
        return chosen

    def _of_lowest_price(self, own: IntArray, gain: FloatArray, points: float) -> tuple[IntArray, FloatArray]:
        """Candidates and their points without those of a price that ``points`` of relief do not need."""
        price = self._ground.price[own]
        by_price = np.argsort(price, kind="stable")
        last = int(np.searchsorted(np.cumsum(gain[by_price]), points, side="right"))
        paid = price <= (price[by_price[last]] if last < own.size else np.inf)
        return own[paid], gain[paid]

    def _worth_moving(self, source: int) -> tuple[IntArray, FloatArray, BoolArray]:
        """Bundles that lower its score; if all that fit elsewhere are not enough, only those that a sample can show.

        Each with the source's score without it, and whether it fits on any other broker.
        """
        own = self.candidates(source)
        after, fits = self._after(source, own, -1.0), self._fits(own, source)
        all_of_it = self._ground.drives[own[fits]].sum(axis=0) * self._ground.cost[source]
        enough = float((self._points[source] - all_of_it).max()) <= self._band.top
        worth = self._scores[source] - after > (ROUNDING if enough else self._ground.noise[source])
        return own[worth], after[worth], fits[worth]

    def _overshoot(self, source: int) -> PlannedTransfer | None:
        """The move that leaves the higher of both ends lowest, where nothing fits; None without a gain.

        Its destination is above the band then, and gives something small back when its samples have shown it.
        """
        own, *_ = self._worth_moving(source)
        tried = (self._lowest(candidate, source, np.inf) for candidate in own[:EXCHANGED_AT_MOST].tolist())
        best = min(filter(None, tried), key=lambda move: max(move.source_after, move.destination_after), default=None)
        least_gain = self._band.top - self._band.level + float(self._ground.noise[source])
        if best is None or max(best.source_after, best.destination_after) > self._scores[source] - least_gain:
            return None
        return self._take(replace(best, back=self._back(best)))

    def _back(self, move: PlannedTransfer) -> int | None:
        """Smallest bundle of the destination itself that brings both ends of a move into the band."""
        own = self.candidates(move.destination)
        drives, cost = self._ground.drives[own], self._ground.cost
        moved = self._ground.drives[move.candidate]
        there = self._points[move.destination] + cost[move.destination] * (moved - drives)
        here = self._points[move.source] - cost[move.source] * (moved - drives)
        fits = (there.max(axis=1) <= self._band.limit) & (here.max(axis=1) <= self._band.limit)
        return int(own[fits][-1]) if fits.any() else None

    def _first(self, candidates: IntArray, fitting: IntArray, source: int) -> PlannedTransfer | None:
        """First of these with a destination; after a failure, only the ``fitting`` ones are tried."""
        if not candidates.size:
            return None
        if (first := self._lowest(int(candidates[0]), source, self._band.limit)) is not None:
            return first
        moves = (self._lowest(candidate, source, self._band.limit) for candidate in fitting.tolist())
        return next((move for move in moves if move is not None), None)

    def _gift(self, destination: int) -> PlannedTransfer | None:
        """Move from the highest broker the bundle with most points for its cost, up to the band; both ends stay in it.

        Among equal ones, the one that leaves the destination lowest. If all of them together are not enough, only those
        count that a sample can show.
        """
        for source in np.argsort(-self._scores, kind="stable").tolist():
            if self._scores[source] <= max(self._band.bottom, self._scores[destination]):
                return None
            if self._may[source] and not self._took[source] and source != destination:
                own = self.candidates(source)
                source_after, filled = self._after(source, own, -1.0), self._after(destination, own, 1.0)
                top = min(self._band.limit, self._scores[source] - ROUNDING)
                fits = (
                    (source_after >= self._band.bottom)
                    & (filled <= top)
                    & (filled > self._scores[destination] + ROUNDING)
                )
                gain = np.minimum(filled, self._band.bottom) - self._scores[destination]
                if gain[fits].sum() < self._band.bottom - self._scores[destination]:
                    fits &= gain > self._ground.noise[destination]
                order = np.lexsort((filled, -gain / self._cost[own]))
                for candidate in own[order[fits[order]]][:DESTINATIONS_AT_MOST].tolist():
                    if self._foreseen.allows(int(self._ground.bundles[candidate]), source, destination):
                        return self._take(self._move(candidate, source, destination))
        return None

    def candidates(self, broker: int) -> IntArray:
        """Bundles that a broker may still give, the largest first in the resource of its score, then by name."""
        if broker not in self._own:
            ground, column = self._ground, int(self._ground.points[broker].argmax())
            own = self._by_owner[self._start[broker] : self._start[broker + 1]]
            sizes = ground.drives[own, column]
            order = np.argsort(-sizes, kind="stable")
            if not np.diff(sizes[order]).all():
                names = [self._names[bundle] for bundle in ground.bundles[own].tolist()]
                order = np.array(sorted(order.tolist(), key=lambda index: (-sizes[index], names[index])))
            self._own[broker] = own[order]
        candidates = self._own[broker]
        return candidates[self._free[candidates]]

    def _after(self, broker: int, candidates: IntArray, sign: float) -> FloatArray:
        """The broker's scores if each candidate alone were added (``sign`` 1) or removed (-1)."""
        points = self._points[broker] + sign * self._ground.cost[broker] * self._ground.drives[candidates]
        scores: FloatArray = np.maximum(points.max(axis=1, initial=-np.inf), self._ground.other[broker])
        return scores

    def _fits(self, candidates: IntArray, source: int) -> BoolArray:
        """Whether each candidate, in the driving traffic of every resource, fits on some other broker."""
        others = self._may.copy()
        others[source] = False
        spare = np.maximum(self._band.limit - self._points[others], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(self._ground.cost[others] > 0, spare / self._ground.cost[others], np.inf)
        most = room.max(axis=0, initial=0.0)
        fits: BoolArray = np.all(self._ground.drives[candidates] <= most * (1 + ROUNDING), axis=1)
        return fits

    def _lowest(self, candidate: int, source: int, top: float) -> PlannedTransfer | None:
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

    def _move(self, candidate: int, source: int, destination: int) -> PlannedTransfer:
        bundle = np.array([candidate], dtype=np.int32)
        source_after, filled = (
            float(self._after(source, bundle, -1.0)[0]),
            float(self._after(destination, bundle, 1.0)[0]),
        )
        return PlannedTransfer(
            candidate, source, destination, float(self._scores[source]) - source_after, source_after, filled
        )

    def _take(self, move: PlannedTransfer) -> PlannedTransfer:
        self._foreseen.take(int(self._ground.bundles[move.candidate]), move.source, move.destination)
        return self._moved(move)

    def _moved(self, move: PlannedTransfer) -> PlannedTransfer:
        drives, cost = self._ground.drives[move.candidate], self._ground.cost
        self._points[move.source] -= cost[move.source] * drives
        self._points[move.destination] += cost[move.destination] * drives
        self._scores[move.source], self._scores[move.destination] = move.source_after, move.destination_after
        self._free[move.candidate] = False
        self._took[move.destination] = True
        return move


# --- messages: a plan beside the best possible one, and the reason if there is none


def fewest(ground: Ground, moves: int, after: FloatArray, among: BoolArray) -> str:
    """Comparison of the plan with the fewest moves to as low a peak and as high a trough.

    ``after`` is float64 (B,), their scores then.
    """
    peak, trough = float(after[among].max()), float(after[among].min())
    least = least_moves(ground, peak, trough, among)
    how = "; points estimated as usage/traffic, slopes are not known yet" if ground.estimated else ""
    rises = trough > float(ground.scores[among].min()) + ROUNDING
    lowest = f" and a lowest of {trough:.1f}" if rises else ""
    return f"{moves} planned, at least {least} needed for a highest score of {peak:.1f} points{lowest}{how}"


def least_moves(ground: Ground, peak: float, trough: float, among: BoolArray) -> int:
    """Lower bound of the moves of any plan with this highest score and this lowest one (``score/bounds.py``).

    The largest of three: each broker is relieved in the resource of its score; in the resource of most scores the
    leaving bundles must fit elsewhere; and each low broker takes in what it lacks, in the resource in which it lacks
    least.
    """
    column, on = ground.points.argmax(axis=1), among[ground.owner]
    drives, owner = ground.drives[on], ground.owner[on]
    own = column[owner]
    sizes = drives[np.arange(owner.size), own] * ground.cost[owner, own]
    leaving = fewest_removed(sizes, owner, np.maximum(peak - ground.idle[np.arange(column.size), column], 0.0))
    most = int(np.bincount(column[among]).argmax())
    room = np.where(among[:, None], _traffic(ground, peak), 0.0)
    fitting = fewest_moves(drives[:, most], owner, room[:, most])
    low = among & (ground.scores < trough - ROUNDING)
    need = np.where(low[:, None], _traffic(ground, trough), 0.0)
    return max(leaving, fitting, _taken(drives, owner, room, need).fewest(leaving))


def _taken(drives: FloatArray, owner: IntArray, room: FloatArray, need: FloatArray) -> IntakeBound:
    """Fewest bundles that brokers must take in, each by the resource with the smallest bound; all but owners (., 3)."""
    each = [least_taken(size, owner, *of) for size, *of in zip(drives.T, room.T, need.T, strict=True)]
    nothing, something = (
        np.min([getattr(bound, field) for bound in each], axis=0) for field in ("nothing", "something")
    )
    return IntakeBound(nothing, something, (0, 0))


def _traffic(ground: Ground, level: float) -> FloatArray:
    """Traffic of each kind that brings a broker to a level, float64 (B, 3); infinite where it costs nothing."""
    costly = ground.cost > 0
    spare = np.maximum(level - ground.idle, 0.0)
    return np.where(costly, spare / np.where(costly, ground.cost, 1.0), np.inf)


def nothing_fits(
    ground: Ground, offers: Offers, plan: MovePlan, verdicts: CodeArray, far: Far, band: Band
) -> tuple[Reason, str]:
    """Reason why no further bundle moves to or from a broker that fired, and the remedy."""
    if far.points < 0:
        return Reason.NOTHING_FITS, f"no broker above {band.bottom:.1f} points has a bundle that fits"
    own = plan.candidates(far.broker)
    if offers.own(far.broker) and not (ground.owner == far.broker).any():
        return _barred(offers, far.broker, verdicts)
    if background := _background(ground, offers, far.broker, band.limit, bool(own.size)):
        return Reason.BACKGROUND_LOAD, background
    size = float((ground.cost[far.broker] * ground.drives[own[0]]).max())
    name = offers.snapshot.bundles[ground.bundles[own[0]]]
    if int(own[0]) in plan.refused:
        verdicts[ground.bundles[own[0]]] = Reason.DESTINATION_OVERLOADED.code
        message = (
            f"{name} makes {size:.1f} points, and the guardrails foresee too much on each broker that could take it"
        )
        return Reason.DESTINATION_OVERLOADED, message
    verdicts[ground.bundles[own]] = Reason.TOO_LARGE.code
    message = f"{name} makes {size:.1f} points and fits nowhere below {band.limit:.1f}"
    return Reason.TOO_LARGE, f"{message}; split it: lbd split {name} shows where"


def _background(ground: Ground, offers: Offers, broker: int, limit: float, has_any: bool) -> str:
    """The load of a broker that movable bundles do not cause, as a clause, if that alone is above the limit."""
    if not offers.own(broker):
        return "it has no bundles: its load is not theirs"
    idle = float(max(ground.idle[broker].max(), ground.other[broker]))
    not_theirs = "not those of bundles that may move: other work on its machine"
    if idle > limit or not has_any:
        return f"{idle:.1f} of its points are {not_theirs}, or bundles that stay"
    if (beside := other_work(ground, offers, broker)) > limit:
        message = f"it is at the limit of its CPU, and by what moves did to others like it {beside:.1f} points or more"
        return f"{message} are {not_theirs}"
    return ""


def _barred(offers: Offers, broker: int, verdicts: CodeArray) -> tuple[Reason, str]:
    """Reason why none of its bundles may move: the policy that holds most of them, if policies do."""
    listed = offers.candidates(broker, "throughput", verdicts)
    message = offers.none_fits(broker, listed, verdicts)
    codes, numbers = np.unique(verdicts[offers.listed(broker)], return_counts=True)
    most = Reason.of(int(codes[numbers.argmax()]))
    return (most if most.group is Group.POLICY else Reason.NOTHING_FITS), message


# --- decision

MOST_MOVES = 2000
"""Largest number of moves of a plan: more take longer than its reports stay valid."""

NEAR_POINTS = 3.0
"""Points above its aim at which a broker stays: a move for less costs as much, and gains little."""

MOST_NEAR_SHARE = 0.85
"""Share of the low threshold above which no broker stays: one that fires is too high whatever the settings."""

NEAR_SHARE = 0.75
"""Share of the low threshold up to which a destination may be filled; noise does not make it far again."""


def decide(offers: Offers, memory: Memory, settings: LeastMovesSettings, weights: Weights) -> Decision:
    """One round of least-moves.

    Brokers that have not settled are left out: their level is unreliable, and they do not take.
    """
    turn, ids = _PlanningRound(offers, settings, weights), offers.snapshot.brokers.ids
    if turn.too_few():
        return turn.decision(memory)
    far, counters = count(ids, turn.above, turn.among, offers.permission, memory, settings)
    return turn.decision(turn.remembered(counters, far, turn.answer(far)))


class _PlanningRound:
    """State and result of one round."""

    def __init__(self, offers: Offers, settings: LeastMovesSettings, weights: Weights) -> None:
        snapshot, permission = offers.snapshot, offers.permission
        self._snapshot, self._permission, self._settings = snapshot, permission, settings
        self._offers, self._ids = offers, snapshot.brokers.ids
        self.scores = scoring.scores(snapshot.brokers, weights)
        self._binding = scoring.binding(snapshot.brokers, weights)
        self.verdicts = permission.barred.copy()
        self.among = (permission.paired == 0) & permission.settled
        self._ground = survey(offers, weights, self.verdicts)
        self._level = water_level(self._ground, self.among) if self.among.any() else 0.0
        self.above = np.where(self.among, self._ground.scores - self._level, 0.0)
        foreseen = Foreseen(self._offers, self.scores, weights)
        self._plan = MovePlan(self._ground, snapshot.bundles, self._band(), self.among, foreseen)
        self._unloads: list[Unload] = []
        self._skips: list[Skip] = []
        self._pairs: list[Pair] = []
        self._lower_bound = ""
        self._is_full = False
        self._along: set[int] = set()

    def too_few(self) -> bool:
        """Whether there are fewer than two brokers to compare; if so, notes a skip."""
        comparable, settled = int((self._permission.paired == 0).sum()), int(self.among.sum())
        if settled >= 2:
            return False
        message = f"{comparable - settled} of {comparable} brokers were moved to, moved from or restarted lately"
        self._skips.append(too_few(self._permission.paired) or Skip("cluster", Reason.SETTLING, message))
        return True

    def answer(self, far: list[Far]) -> set[int]:
        """Plan for all that are too far, once one of them has fired; give the others a reason to wait.

        Returns the brokers that something moves off or to.
        """
        if not far:
            self._skips.append(Skip("cluster", Reason.BALANCED, self._balanced()))
        far = self._with_others(far) if any(broker.fired for broker in far) else far
        plan = list(islice(self._moves(far), MOST_MOVES))
        self._is_full = len(plan) == MOST_MOVES
        low = {broker.broker for broker in far if broker.fired and broker.points < 0}
        needed = {move.candidate: move for move in self._plan.needed([move for _, move in plan], low)}
        plan = [(row, needed[move.candidate]) for row, move in plan if move.candidate in needed]
        moves: dict[int, list[PlannedTransfer]] = {}
        for row, move in plan:
            moves.setdefault(row, []).append(move)
        fired_first = sorted(far, key=lambda broker: not broker.fired)
        served = {broker.broker for broker in fired_first if self._serves(broker, moves.get(broker.broker, []))}
        made = [move for row, move in plan if row in served]
        self._unloads = [self._unload(move) for move in made]
        if made:
            self._lower_bound = fewest(self._ground, len(made), self._plan.scores_after(made), self.among)
        return served | {end for move in made for end in (move.source, move.destination)}

    def _moves(self, far: list[Far]) -> Iterator[tuple[int, PlannedTransfer]]:
        """Each move of the plan, with its broker."""
        own = [broker.broker for broker in far if broker.relieved and broker.broker not in self._along]
        for move in self._plan.relieve(own, self._along):
            yield move.source, move
        for broker in far:
            if broker.fired and broker.points < 0:
                yield from ((broker.broker, move) for move in self._plan.fill(broker.broker))

    def remembered(self, counters: dict[str, Hits], far: list[Far], served: set[int]) -> Memory:
        """The counters without brokers that fired in vain, but with those of brokers for which the plan had no room."""
        hits = dict(counters)
        for distant in far:
            if distant.fired and distant.broker not in served:
                hits.pop(self._ids[distant.broker], None)
                if self._is_full:
                    hits[self._ids[distant.broker]] = distant.hits.below(self._settings.wanted_hits)
        return Memory(hits)

    def _with_others(self, far: list[Far]) -> list[Far]:
        """Add the brokers above the band to one to be relieved: else the plan comes only to the highest of them.

        With one that is only to be filled, those too far above are added, whatever they still wait for.
        """
        present = {broker.broker for broker in far if broker.fired}
        relieves = any(broker.relieved for broker in far)
        least = self._band().near - self._level if relieves else self._settings.low_threshold
        along = (self.above > least).nonzero()[0].tolist()
        hits = {broker.broker: broker.hits for broker in far}
        others = [
            Far(row, float(self.above[row]), hits.get(row, Hits()), fired=True) for row in along if row not in present
        ]
        self._along = added = {broker.broker for broker in others}
        return sorted(
            [broker for broker in far if broker.broker not in added] + others, key=lambda broker: -abs(broker.points)
        )

    def decision(self, memory: Memory) -> Decision:
        """The decision of the round."""
        comparison = Comparison(self.scores, self._binding, tuple(self._pairs), self._lower_bound, self.among)
        return Decision(tuple(self._unloads), tuple(self._skips), memory, comparison, self.verdicts)

    def _band(self) -> Band:
        low = self._settings.low_threshold
        aim = min(self._settings.aim_points, low)
        far = max(aim, NEAR_SHARE * low)
        near = max(aim, min(aim + NEAR_POINTS, MOST_NEAR_SHARE * low))
        level = self._level
        return Band(level - low, level - far, level, level + aim, level + far, level + near)

    def _balanced(self) -> str:
        furthest, settings = float(np.abs(self.above).max()), self._settings
        number = int(self.among.sum())
        of = f" of {number} settled brokers" if number < len(self._ids) else ""
        message = f"furthest from the level of {self._level:.1f} points{of}: {furthest:.1f}"
        condition = f", low threshold {settings.low_threshold:g}"
        if furthest >= settings.low_threshold:
            apart = float(np.ptp(self.above[self.among]))
            side = "above" if self.above.max() >= furthest else "below"
            condition = f" {side} it, and moved for once all are {settings.gap_points:g} points apart, {apart:.1f} now"
        return f"{message}{condition}{self._full()}"

    def _full(self) -> str:
        """Clause on a full cluster, in which moves only share out the excess; empty otherwise."""
        if self._level <= FULL_POINTS:
            return ""
        missing = brokers_missing(self._ground, self.among, FULL_POINTS)
        number = "1 broker" if missing == 1 else f"{missing} brokers"
        return f"; the cluster is full: add {number} of the mean capacity for a level of {FULL_POINTS:g}"

    def _serves(self, far: Far, moves: list[PlannedTransfer]) -> bool:
        """Whether these moves are to be made for a broker; notes its pair, and a skip if not.

        Nothing is noted for a low broker that got enough from high ones, nor for a waiting broker if the other end of
        its pair fired.
        """
        if far.fired and not moves and self._plan.is_within(far.broker):
            return False
        pair = self._pair(far)
        fired = [other.fired for other in self._pairs if other.ends == pair.ends]
        if not fired:
            self._pairs.append(pair)
        elif fired[0] and not far.fired:
            return False
        skip = self._waits(far) if not far.fired else self._too_little(far, moves)
        if skip is not None:
            self._skips.append(Skip(pair.ends, *skip))
        elif (shortfall := self._shortfall(far)) is not None:
            self._skips.append(Skip(pair.ends, *shortfall))
        return skip is None

    def _shortfall(self, far: Far) -> tuple[Reason, str] | None:
        """Reason why a broker is still too far from the level after its moves; None if it is not."""
        after, band = self._plan.score(far.broker), self._band()
        if band.floor <= after <= max(band.limit, band.near):
            return None
        why, detail = nothing_fits(self._ground, self._offers, self._plan, self.verdicts, far, band)
        return why, f"then still at {after:.1f} points: {detail}"

    def _pair(self, far: Far) -> Pair:
        """A high broker with the lowest one, or a low broker with the highest; ``why`` is its distance to the level."""
        side = "above" if far.points > 0 else "below"
        usual = self._ground.scores
        lowest = int(np.where(self.among, usual, np.inf).argmin())
        highest = int(np.where(self.among, usual, -np.inf).argmax())
        source, destination = (far.broker, lowest) if far.points > 0 else (highest, far.broker)
        distance = f"{self._ids[far.broker]} is {abs(far.points):.1f} points {side} the level of {self._level:.1f}"
        return Pair(
            self._ids[source],
            self._ids[destination],
            float(usual[source] - usual[destination]),
            far.hits,
            self._settings.wanted_hits,
            far.fired,
            why=f"{distance}{self._full()}",
        )

    def _waits(self, far: Far) -> tuple[Reason, str]:
        counted = progress(far.hits, self._settings.wanted_hits)
        if self._permission.hold is not None:
            return self._permission.hold, counted
        if not self._permission.counts[far.broker]:
            return Reason.NO_NEW_SAMPLE, f"no new sample since the last turn; {counted}"
        return Reason.WAITING, counted

    def _too_little(self, far: Far, moves: list[PlannedTransfer]) -> tuple[Reason, str] | None:
        """Reason why these moves are not worth it; None if they are."""
        if not moves and self._is_full:
            return Reason.TURN_UNLOADS, f"{MOST_MOVES} moves are planned for others; it comes next"
        if not moves:
            return nothing_fits(self._ground, self._offers, self._plan, self.verdicts, far, self._band())
        bundles = self._ground.bundles[[move.candidate for move in moves]]
        messages, volume = (self._offers.carried(bundles, measure) for measure in ("msg_rate", "throughput"))
        least = self._settings
        if messages <= least.min_unload_message and volume <= least.min_unload_message_throughput:
            least_messages = f"{messages:,.0f} msg/s to move, minimum {least.min_unload_message:,.0f}"
            least_bytes = f"{volume:.0f} bytes/s to move, minimum {least.min_unload_message_throughput:.0f}"
            return Reason.BELOW_MINIMUM, f"{least_messages}; {least_bytes}"
        points, noise = sum(move.taken for move in moves), float(self._ground.noise[far.broker])
        if points < noise:
            return Reason.BELOW_MINIMUM, f"{points:.1f} points to move, and samples differ by {noise:.1f} by themselves"
        return None

    def _unload(self, move: PlannedTransfer) -> Unload:
        ends = (self._ids[move.source], self._ids[move.destination])
        bundle = int(self._ground.bundles[move.candidate])
        self.verdicts[bundle] = Reason.MOVES.code
        how = "about " if self._ground.estimated else ""
        reason = (
            f"all even at {self._level:.1f}; {how}{move.taken:.1f} points off, {ends[0]} then {move.source_after:.1f}"
        )
        return self._offers.unload(bundle, ends, f"{reason}, {ends[1]} {move.destination_after:.1f}{self._back(move)}")

    def _back(self, move: PlannedTransfer) -> str:
        """Clause on the bundle that the destination would give back after this landing."""
        if move.back is None:
            return ""
        name = self._snapshot.bundles[int(self._ground.bundles[move.back])]
        return f"; too large alone, {name} is to go the other way when it has landed"
