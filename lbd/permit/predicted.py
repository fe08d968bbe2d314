"""Points that a move adds to its destination, from what was learned of it or from its source's share. Pure.

If a broker's own samples show the cost of traffic, the upper end of that slope's 95 % interval counts. Knowledge from
other brokers can only raise a prediction, never lower it. The same holds above :data:`LINEAR_UP_TO`, where CPU rises
faster than any line. If nothing is known, the source's share counts (``load/estimate.py``), or what the destination
uses for its own traffic, whichever is less. The share of a source with a neighbour is many times too high: it counts
within the measured effects of moves (``load/effects.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.load import estimate
from lbd.load.effects import Effect
from lbd.load.estimate import CPU, DRIVEN, Source
from lbd.load.scoring import SCORED, percent
from lbd.model import BYTES_IN, MSG_IN, RESOURCES, Unload
from lbd.permit.evidence import SAMPLE_INTERVAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lbd.load.scoring import Weights
    from lbd.model import BoolArray, Brokers, FloatArray, Slopes, Snapshot
    from lbd.permit.budget import Sent


LINEAR_UP_TO = 75.0
"""Points; above it published brokers rise faster than a line (docs/decisions/0007-simulated-cluster.md)."""

OWN = {Source.FITTED.value, Source.GIVEN.value}
"""Sources that speak of this very broker."""

SLOPE, MOVES, SHARE = "what traffic costs it", "what moves did to it", "its source's share"
OWN_USAGE = "what it uses for its own traffic"

OWN_USAGE_MARGIN = 1.5
"""Moved traffic may cost a destination more than its own does. On a real one of 1.2 cores a bundle added 15 points for
ten seconds and 8 after that, where its own usage over its traffic said 9.5, and its source of 0.4 cores 27
(docs/decisions/results/0004-real-clusters.md)."""

LEAST_OF_SHARE = 0.25
"""Least part of the source's share that a destination gains: few machines are four times as strong as others. A usage
that says less may be from before its traffic came."""

DIFFER_POINTS = 0.5
"""Two predictions that are closer than this say the same."""

TRAFFIC = np.isin(range(len(RESOURCES)), DRIVEN)
"""Resources that follow traffic, bool (5,). All bytes of a bundle count for each direction."""

ONLY_CPU = np.arange(len(RESOURCES)) == CPU
"""bool (5,)."""


@dataclass(frozen=True)
class Rise:
    """``points`` that a destination gains; ``share`` is by its source, ``learned`` by what is known of itself.

    ``learned`` is None where that is nothing; ``by`` says in words from what it comes.
    """

    points: float
    share: float
    learned: float | None = None
    by: str = SLOPE

    @property
    def words(self) -> str:
        """Which of the two counts, where they differ; else nothing."""
        if self.learned is None or not abs(self.learned - self.share) > DIFFER_POINTS:
            return ""
        is_learned = self.points == self.learned
        by, other = (self.by, SHARE) if is_learned else (SHARE, self.by)
        return f" (+{self.points:.1f} by {by}; by {other} +{self.share if is_learned else self.learned:.1f})"


def _near(predicted: float, safe: Rise) -> Rise:
    """The learned prediction counts as long as usage follows a line; above that, the safe side of both."""
    if safe.learned is not None and predicted + safe.learned <= LINEAR_UP_TO:
        return replace(safe, points=safe.learned)
    return safe


class Predictor:
    """Predicts for one round. ``scores`` float64 (B,) are the strategy's, in points."""

    def __init__(self, snapshot: Snapshot, scores: FloatArray, slopes: Slopes | None, weights: Weights) -> None:
        self._brokers, self._scores, self._slopes = snapshot.brokers, scores, slopes
        self._position = snapshot.brokers.index()
        self._weights = weights.row()
        self._used = np.where(snapshot.brokers.limit > 0, percent(snapshot.brokers), 0.0)

    def rise(self, unload: Unload, predicted: float | None) -> Rise:
        """Points that the unload adds to its destination, which all before it have brought to ``predicted`` points.

        Where ``predicted`` is None it has no destination yet, and the source's share counts.
        """
        share = estimate.points(unload, self._brokers, self._scores, self._position)
        slopes = self._slopes
        if predicted is None or slopes is None or slopes.sources is None or not np.isfinite(share):
            return Rise(share, share)
        slope = self._by_slope(unload)
        if slope is not None and slopes.sources[self._position[unload.destination or ""]] in OWN:
            return _near(predicted, Rise(max(slope, share), share, slope))
        own_usage = float(np.clip(self._by_own_usage(unload, predicted), LEAST_OF_SHARE * share, share))
        usual = Rise(share, share, slope)
        if own_usage < share:
            usual = _near(predicted, Rise(share, share, own_usage, OWN_USAGE))
        safe = usual if slope is None or slope < usual.points else Rise(slope, share, slope)
        moves = self._by_moves(unload, safe.points)
        return safe if moves is None else _near(predicted, Rise(max(moves, safe.points), share, moves, MOVES))

    def fall(self, unload: Unload) -> float:
        """Points that the unload takes from its source: by the source's own slope where it has one, else its share."""
        share = estimate.points(unload, self._brokers, self._scores, self._position)
        source, slopes = self._position[unload.source], self._slopes
        if slopes is None or slopes.sources is None or slopes.sources[source] not in OWN or not np.isfinite(share):
            return share
        return float(slopes.slope[source, CPU] * self._cpu(unload) * self._weights[CPU])

    def _by_own_usage(self, unload: Unload, predicted: float) -> float:
        """In proportion to the traffic that the destination has, as if all of its points were for that.

        A destination with little traffic gets many points; one whose points are not known, infinitely many.
        """
        added = estimate.share(unload, self._brokers, self._position[unload.destination or ""])
        return OWN_USAGE_MARGIN * predicted * added if predicted > 0 else math.inf

    def _by_slope(self, unload: Unload) -> float | None:
        """The most by the upper ends of the destination's slopes; None where that of its CPU is not known."""
        slopes, destination = self._slopes, self._position[unload.destination or ""]
        if slopes is None or slopes.half_width is None:
            return None
        steep = slopes.slope[destination] + slopes.half_width[destination]
        return self._most(unload, steep) if np.isfinite(steep[CPU]) else None

    def _by_moves(self, unload: Unload, otherwise: float) -> float | None:
        """``otherwise``, limited to the 95 % interval of what moves added to the destination; None if not limited."""
        slopes, destination = self._slopes, self._position[unload.destination or ""]
        if slopes is None or slopes.effect is None or not np.isfinite(slopes.effect[destination]).all():
            return None
        low, high = (
            self._most(unload, np.where(ONLY_CPU, max(cpu, 0.0), np.nan))
            for cpu in Effect(*slopes.effect[destination].tolist()).interval
        )
        bounded = float(np.clip(otherwise, low, high))
        return bounded if bounded != otherwise else None

    def _most(self, unload: Unload, steep: FloatArray) -> float:
        """The most that any weighted resource of the destination rises by slopes, float64 (5,); NaN: by the share."""
        source, destination = self._position[unload.source], self._position[unload.destination or ""]
        by_share = self._used[source] * self._share(unload) * self._larger(source, destination)
        by_slope = np.array([self._cpu(unload), 0.0, 0.0, unload.throughput, unload.throughput]) * steep
        by_own_slope = np.isfinite(steep) & TRAFFIC & (self._brokers.limit[destination] > 0)
        return float((np.where(by_own_slope, by_slope, by_share) * self._weights)[list(SCORED)].max())

    def _cpu(self, unload: Unload) -> float:
        by_messages = self._slopes is not None and self._slopes.measure == "msg_rate"
        return unload.msg_rate if by_messages else unload.throughput

    def _larger(self, source: int, destination: int) -> FloatArray:
        """How many times the destination's limit fits into the source's, float64 (5,), at least 1; 0: not known."""
        limits = self._brokers.limit
        with np.errstate(all="ignore"):
            return np.where(limits[destination] > 0, np.fmax(limits[source] / limits[destination], 1.0), 0.0)

    def _share(self, unload: Unload) -> float:
        """The share of its source's traffic that moves; at most 1."""
        return min(estimate.share(unload, self._brokers, self._position[unload.source]), 1.0)


# --- traffic that has moved since brokers counted theirs


def with_moved_traffic(snapshot: Snapshot, sent: Iterable[Sent]) -> Snapshot:
    """The round with what has moved where it is now, of brokers whose CPU of now is known.

    Brokers count rates once in a statistics interval: until then a moved bundle is on both reports, or on neither, and
    what its destination counts first is of a part of that interval. So the source's total loses what its report still
    has of the bundle, and the destination's gets what its report lacks of what the bundle carried when it was moved.
    """
    live = snapshot.brokers.shows_live
    landed = {move.bundle: move for move in sent if move.owner is not None and move.owner == move.destination}
    if not live.any() or not landed:
        return snapshot
    position, owner = snapshot.brokers.index(), snapshot.rows.owner()
    positions, rates = snapshot.positions_of(landed), snapshot.brokers.rates.copy()
    for bundle, move in landed.items():
        rows = np.flatnonzero((snapshot.rows.bundle == positions.get(bundle, -1)) & snapshot.rows.reported)
        shown = {int(owner[row]): snapshot.rows.rates[row] for row in rows.tolist()}
        source, destination = position.get(move.source), position.get(move.owner or "")
        if source is not None and live[source] and source in shown:
            rates[source] = np.maximum(rates[source] - shown[source], 0.0)
        if destination is not None and live[destination]:
            counted = shown.get(destination, np.zeros(4))
            rates[destination, MSG_IN] += max(move.msg_rate - float(counted[:2].sum()), 0.0)
            rates[destination, BYTES_IN] += max(move.throughput - float(counted[2:].sum()), 0.0)
    return snapshot.with_brokers(replace(snapshot.brokers, rates=rates))


# --- pending load: moves whose effect is not in the destination's report yet
# Brokers sample CPU once an interval of minutes, and count rates once a statistics interval.

UNSHOWN_SAMPLES = 2.5
"""CPU sample intervals after a request until reports show what was moved: two samples, and half of one for a landing
that took its time and for the statistics. 150 s where brokers sample once a minute, the default.
"""


def borne(sent: Iterable[Sent], since: float, snapshot: Snapshot, scores: FloatArray) -> FloatArray:
    """Points that each broker was given by moves from ``since`` (epoch seconds) on, float64 (B,).

    ``sent`` is ordered, oldest first. A bundle counts at its last proven owner. While a move is open, or its result is
    unknown, the bundle counts at the move's destination, once, and where it counted before. A move from a broker that
    reports no traffic counts nothing.
    """
    position = snapshot.brokers.index()
    moves = _carried((request for request in sent if request.at >= since), position)
    brokers = _before(moves, snapshot.brokers, position)
    points_by_broker = np.zeros(len(position))
    for move in moves:
        points = estimate.points(move, brokers, scores, position)
        points_by_broker[position[move.destination or ""]] += points if math.isfinite(points) else 0.0
    return points_by_broker


def _carried(sent: Iterable[Sent], position: Mapping[str, int]) -> list[Unload]:
    """From the broker where each bundle was at first, of those in ``position``, to each that may have it now."""
    by_bundle: dict[str, list[Unload]] = {}
    for request in sent:
        before = by_bundle.get(request.bundle, [])
        if not request.failed and request.owner is None:
            if request.destination not in {move.destination for move in before}:
                by_bundle[request.bundle] = [*before, _between(request, request.source, request.destination)]
        elif not request.failed:
            first = next((move.source for move in before if move.source in position), request.source)
            by_bundle[request.bundle] = [_between(request, first, request.owner)]
    moves = [move for several in by_bundle.values() for move in several if move.source != move.destination]
    return [move for move in moves if move.source in position and move.destination in position]


def _between(request: Sent, source: str, destination: str | None) -> Unload:
    return Unload(request.bundle, source, destination, request.msg_rate, request.throughput)


def _before(moves: Iterable[Unload], brokers: Brokers, position: Mapping[str, int]) -> Brokers:
    """The brokers with at least as much traffic as has left them.

    A report that shows the moves already has less, and each move would be too large a share of that.
    """
    departed = np.zeros((len(position), 2))
    for move in moves:
        departed[position[move.source]] += move.msg_rate, move.throughput
    rates = brokers.rates.copy()
    with np.errstate(invalid="ignore", over="ignore"):  # what a report may hold
        for first, gone in ((MSG_IN, departed[:, 0]), (BYTES_IN, departed[:, 1])):
            missing = gone - rates[:, first] - rates[:, first + 1]
            rates[:, first] += np.where(missing > 0, missing, 0.0)
    return replace(brokers, rates=rates)


def borne_lately(
    sent: Iterable[Sent], snapshot: Snapshot, scores: FloatArray, sample_interval_seconds: float
) -> FloatArray:
    """Points that each broker was given by moves which its report may not show yet, float64 (B,).

    ``sample_interval_seconds`` is that of most brokers.
    """
    return borne(sent, hidden_since(snapshot, sample_interval_seconds), snapshot, scores)


def hidden_since(snapshot: Snapshot, sample_interval_seconds: float) -> float:
    """From when on reports may not show what moved, epoch seconds."""
    return snapshot.taken_at - UNSHOWN_SAMPLES * sample_interval_seconds


def last_ended_at(sent: Iterable[Sent], since: float) -> dict[str, float]:
    """When the last move of each broker had ended, of those sent from ``since`` on; infinite while one has not.

    All in epoch seconds.
    """
    ended_at: dict[str, float] = {}
    for request in sent:
        end = math.inf if request.ended_at is None else request.ended_at
        for broker in {request.source, request.destination, request.owner} if request.at >= since else ():
            if broker is not None:
                ended_at[broker] = max(ended_at.get(broker, 0.0), end)
    return ended_at


LANDED_PART = 0.2
"""Share of the time since a wave began: CPU of all that time shows a wave that landed within it, in 0.3 to 4 s."""


def shown_since(began_at: float, ended_at: float, taken_at: float) -> float:
    """From when on the CPU of a round shows a wave that began and ended then; infinite while it has not ended.

    All in epoch seconds.
    """
    return began_at if ended_at - began_at <= LANDED_PART * (taken_at - began_at) else ended_at


def unshown(
    scores: FloatArray,
    sent: Collection[Sent],
    snapshot: Snapshot,
    settled: BoolArray,
    sample_interval_seconds: float = SAMPLE_INTERVAL_SECONDS,
) -> FloatArray:
    """Points that moves of late bring to brokers that have not settled since, float64 (B,).

    CPU of now shows them once all have ended, as it is of the time after that (:func:`shown_since`).
    """
    ended_at, ids = last_ended_at(sent, hidden_since(snapshot, sample_interval_seconds)), snapshot.brokers.ids
    has_ended = np.fromiter((ended_at.get(broker, 0.0) <= snapshot.taken_at for broker in ids), np.bool_, len(ids))
    shown = settled | (snapshot.brokers.shows_live & has_ended)
    return np.where(shown, 0.0, borne_lately(sent, snapshot, scores, sample_interval_seconds))
