"""The scorecard of a run: evenness of the brokers, time out of balance, and the cost in moves. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from lbd.score.bounds import fewest_moves, fewest_moves_between
from lbd.score.gap import gaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.model import BoolArray, FloatArray
    from lbd.score.bounds import BundleHistory


@dataclass(frozen=True)
class Evenness:
    """Evenness of the scores of brokers.

    ``gap_points``: the highest minus the lowest (the range). ``std_points``: their standard deviation.
    ``max_over_mean``: the highest over their mean, without a unit.
    """

    gap_points: float
    std_points: float
    max_over_mean: float


def evenness(points: FloatArray) -> Evenness:
    """Evenness of scores, float64 (B,). An idle cluster is even."""
    return mean_evenness(points[None, :])


def mean_evenness(points: FloatArray) -> Evenness:
    """Mean of each figure over all looks; ``points`` is float64 (T, B), NaN for a broker that is away at that look."""
    mean = np.nanmean(points, axis=1)
    peak = np.where(mean > 0, np.nanmax(points, axis=1) / np.where(mean > 0, mean, np.inf), 1.0)
    figures = (np.nan_to_num(gaps(points)), np.nanstd(points, axis=1), peak)
    return Evenness(*(float(figure.mean()) for figure in figures))


def thrashing(points: FloatArray) -> float:
    """Back and forth of the most restless broker, as a fraction of the largest distance between brokers.

    ``points`` is float64 (T, B). A broker's distance from the mean of all is followed from look to look; its rises and
    its falls are summed, and the smaller sum counts twice: a trend is discounted. Two brokers that change places four
    times make 4 (400 %), a ramp 0; a distance below a point counts as one. The idea is CockroachDB's (trend-discounted
    total variation, pkg/kv/kvserver/asim/history), the formula a simpler one. Changes of the load itself count as well,
    as far as they do not affect all brokers.
    """
    away = points - np.nanmean(points, axis=1, keepdims=True)
    steps = np.diff(away, axis=0)
    rose, fell = np.nansum(np.maximum(steps, 0), axis=0), np.nansum(np.maximum(-steps, 0), axis=0)
    span = max(float(np.nanmax(away) - np.nanmin(away)), 1.0)
    return float(2 * np.minimum(rose, fell).max()) / span


# --- input: brokers at each look, the moves, and owners before and after


@dataclass(frozen=True, eq=False)
class ClusterTruth:
    """The truth at one time, ``seconds`` after the beginning.

    ``present`` is bool (B,), the brokers that are there; ``points`` float64 (P,), the score of each of those P;
    ``unmoved`` the same if no bundle had changed hands since the beginning; ``carried`` float64 (B,), the traffic of
    each broker in bytes/s, in + out.
    """

    seconds: float
    points: FloatArray
    unmoved: FloatArray
    present: BoolArray
    carried: FloatArray

    @property
    def throughput(self) -> float:
        """Traffic of all brokers, bytes/s."""
        return float(self.carried.sum())


@dataclass(frozen=True)
class Moved:
    """A bundle that landed; ``throughput`` in bytes/s, in + out. ``allowed``: policies allow its new broker."""

    seconds: float
    bundle: str
    source: str
    destination: str
    throughput: float
    allowed: bool = True


@dataclass(frozen=True)
class SplitEvent:
    """A bundle that was split into ``parts`` while ``owner`` owned it, by ``lbd`` or by the ``brokers``."""

    seconds: float
    bundle: str
    owner: str
    parts: int
    by: str


@dataclass(frozen=True, eq=False)
class Trace:
    """A run. ``brokers`` names all that were ever there.

    ``shown_at_seconds`` is when reports first showed the high threshold. ``placement`` is under the heaviest load since
    the last move, and None where bundles changed hands by other means than lbd's moves; of split bundles it has the
    parts. ``unserved_bundle_seconds`` is the time that bundles were without a broker, summed over all bundles.
    """

    truths: tuple[ClusterTruth, ...]
    moves: tuple[Moved, ...]
    brokers: tuple[str, ...] = ()
    shown_at_seconds: float | None = None
    placement: BundleHistory | None = None
    unserved_bundle_seconds: float = 0.0
    splits: tuple[SplitEvent, ...] = ()

    @property
    def bounded(self) -> BundleHistory | None:
        """Placement for bounds on moves; None with splits, because a bundle that moves whole is a single move."""
        return None if self.splits else self.placement

    @property
    def fewest_moves(self) -> int | None:
        """Lower bound of the moves from the first owners to as low a peak as at the end, for any plan."""
        placement = self.bounded
        if placement is None:
            return None
        return fewest_moves(placement.sizes, placement.first, placement.room(placement.peak(placement.last)))

    @property
    def fewest_moves_as_even(self) -> int | None:
        """Lower bound of the moves to as low a peak and as high a trough, for any plan."""
        placement = self.bounded
        if placement is None:
            return None
        room = placement.room(placement.peak(placement.last))
        need = placement.need(placement.trough(placement.last))
        return fewest_moves_between(placement.sizes, placement.first, room, need)

    def seconds(self) -> FloatArray:
        """Time of each look, float64 (T,)."""
        return np.array([truth.seconds for truth in self.truths])

    def points(self) -> FloatArray:
        """Scores by look and broker, float64 (T, B); NaN for a broker that is away."""
        return self._table([truth.points for truth in self.truths])

    def unmoved(self) -> FloatArray | None:
        """:meth:`points` if nothing had moved; None where bundles would have changed hands all the same."""
        return None if self.placement is None else self._table([truth.unmoved for truth in self.truths])

    def carried(self) -> FloatArray:
        """Bytes/s by look and broker, float64 (T, B)."""
        return np.array([truth.carried for truth in self.truths])

    def _table(self, rows: Sequence[FloatArray]) -> FloatArray:
        table = np.full((len(self.truths), self.truths[0].present.size), np.nan)
        for row, truth, points in zip(table, self.truths, rows, strict=True):
            row[truth.present] = points
        return table


# --- moves: source, destination, and the two turns around each


@dataclass(frozen=True)
class Transfer:
    """Bundles that landed between two turns, all from one broker to one other; ``throughput`` in bytes/s, in + out.

    ``look`` is the position of the turn before, and ``seconds`` its time.
    """

    look: int
    seconds: float
    source: str
    destination: str
    bundles: int
    throughput: float

    @property
    def clock(self) -> str:
        """Its time in hours and minutes since the beginning."""
        return clock(self.seconds)


def clock(seconds: float) -> str:
    """Seconds since the beginning in hours and minutes."""
    minutes = int(seconds) // 60
    return f"{minutes // 60}:{minutes % 60:02d}"


def transfers(trace: Trace) -> tuple[Transfer, ...]:
    """All moves of a run, in the order in which the first of each transfer landed."""
    seconds = trace.seconds()
    looks = np.searchsorted(seconds, [move.seconds for move in trace.moves]) - 1
    moves_of: dict[tuple[int, str, str], list[Moved]] = {}
    for look, move in zip(looks.clip(0).tolist(), trace.moves, strict=True):
        moves_of.setdefault((look, move.source, move.destination), []).append(move)
    return tuple(
        Transfer(look, float(seconds[look]), source, destination, len(moves), sum(move.throughput for move in moves))
        for (look, source, destination), moves in moves_of.items()
    )


# --- scorecard


@dataclass(frozen=True)
class Scorecard:
    """Result of a run. Scores are the true ones, in points.

    ``first``, ``last``, ``mean``: evenness of the brokers at the first and at the last look, and on average;
    ``unmoved``: on average, if nothing had moved. ``minutes_over_low``, ``minutes_over_high``: time with the gap at or
    above the thresholds. ``minutes_to_balance``: from the first time at or above the low threshold until it was below
    for good; 0 where it always was, None where it ended above. ``first_move_after_seconds``: from the first report that
    showed the high threshold until the next bundle landed. ``moves``: landed unloads; ``rounds``: number of bouts with
    a minute between them. ``splits``: bundles that were split, by lbd or by the brokers. ``peak_points``: the highest
    score of the last owners, under the heaviest load since the last move. ``fewest_moves``: lower bound for any plan,
    from the first owners to as low a peak (:func:`lbd.score.bounds.fewest_moves`). ``fewest_moves_as_even``: the same
    for as low a peak and as high a lowest score. ``bundles_moved_twice``: bundles that moved more than once.
    ``traffic_moved``: traffic of the moved bundles, as a fraction of the cluster's average. ``thrashing``: back and
    forth of a broker, a fraction (:func:`lbd.score.scorecard.thrashing`), including changes of the load itself.
    ``thrashing_unmoved``: the same if nothing had moved. ``policy_violations``: moves to brokers that policies forbid.
    ``unserved_bundle_seconds``: time that bundles were without a broker, summed, for moves and for lost brokers.

    The bounds, the peaks and ``unmoved`` figures are None where bundles changed hands without lbd; all
    of them but ``peak_points`` and the ``unmoved`` ones also where some were split.
    """

    hours: float
    turns: int
    first: Evenness
    last: Evenness
    mean: Evenness
    unmoved: Evenness | None
    minutes_over_low: float
    minutes_over_high: float
    minutes_to_balance: float | None
    first_move_after_seconds: float | None
    moves: int
    rounds: int
    splits: int
    peak_points: float | None
    fewest_moves: int | None
    fewest_moves_as_even: int | None
    bundles_moved_twice: int
    traffic_moved: float
    thrashing: float
    thrashing_unmoved: float | None
    policy_violations: int
    unserved_bundle_seconds: float


ROUND_SECONDS = 60.0
"""Moves with less than a minute between them belong to one round."""


def scorecard(trace: Trace, low_threshold: float, high_threshold: float) -> Scorecard:
    """The scorecard of a run with at least one look; thresholds in points."""
    points, unmoved, seconds = trace.points(), trace.unmoved(), trace.seconds()
    gap = gaps(points)
    return Scorecard(
        hours=trace.truths[-1].seconds / 3600,
        turns=len(trace.truths),
        first=evenness(trace.truths[0].points),
        last=evenness(trace.truths[-1].points),
        mean=mean_evenness(points),
        unmoved=None if unmoved is None else mean_evenness(unmoved),
        minutes_over_low=_minutes_over(seconds, gap, low_threshold),
        minutes_over_high=_minutes_over(seconds, gap, high_threshold),
        minutes_to_balance=_minutes_to_balance(seconds, gap, low_threshold),
        first_move_after_seconds=_first_move(trace),
        moves=len(trace.moves),
        rounds=_rounds(trace.moves),
        splits=len(trace.splits),
        peak_points=None if trace.placement is None else trace.placement.peak(trace.placement.last),
        fewest_moves=trace.fewest_moves,
        fewest_moves_as_even=trace.fewest_moves_as_even,
        bundles_moved_twice=sum(number > 1 for number in Counter(move.bundle for move in trace.moves).values()),
        traffic_moved=_traffic_moved(trace),
        thrashing=thrashing(points),
        thrashing_unmoved=None if unmoved is None else thrashing(unmoved),
        policy_violations=sum(not move.allowed for move in trace.moves),
        unserved_bundle_seconds=trace.unserved_bundle_seconds,
    )


def _minutes_over(seconds: FloatArray, gap: FloatArray, threshold: float) -> float:
    """Minutes at or above the threshold; each look holds until the next one."""
    return float(np.diff(seconds)[gap[:-1] >= threshold].sum()) / 60


def _minutes_to_balance(seconds: FloatArray, gap: FloatArray, threshold: float) -> float | None:
    over = np.flatnonzero(gap >= threshold)
    if not over.size:
        return 0.0
    if over[-1] == gap.size - 1:
        return None
    return float(seconds[over[-1] + 1] - seconds[over[0]]) / 60


def _rounds(moves: Sequence[Moved]) -> int:
    times = sorted(move.seconds for move in moves)
    return bool(times) + sum(later - earlier >= ROUND_SECONDS for earlier, later in pairwise(times))


def _traffic_moved(trace: Trace) -> float:
    carried = sum(truth.throughput for truth in trace.truths) / len(trace.truths)
    return sum(move.throughput for move in trace.moves) / carried if carried else 0.0


def _first_move(trace: Trace) -> float | None:
    """Seconds from the first report of the threshold to the next landing; moves of an earlier round do not count."""
    shown = trace.shown_at_seconds
    after = () if shown is None else (move.seconds - shown for move in trace.moves)
    return min((seconds for seconds in after if seconds >= 0), default=None)


# --- figures as text: label, unit and digits


@dataclass(frozen=True)
class Figure:
    """One figure of a :class:`~lbd.score.scorecard.Scorecard`, by its dotted name; times ``factor`` it has the unit.

    ``lower_wins``: a strategy with less of it is better; else it neither wins nor loses by it.
    """

    name: str
    label: str
    digits: int = 0
    unit: str = ""
    factor: float = 1.0
    lower_wins: bool = False

    def text(self, value: float | None) -> str:
        """The number in its unit; a dash where there is none."""
        return "-" if value is None else f"{value * self.factor:,.{self.digits}f}{self.unit}"

    def in_section(self, section: str, when: str) -> Figure:
        """The figure for one section of the scorecard."""
        wins = self.lower_wins and section in BY_MOVES
        return replace(self, name=f"{section}.{self.name}", label=f"{self.label}, {when}", lower_wins=wins)


EVENNESS = (
    Figure("gap_points", "highest - lowest, points", 1, lower_wins=True),
    Figure("std_points", "standard deviation, points", 1, lower_wins=True),
    Figure("max_over_mean", "highest / mean", 2, lower_wins=True),
)
"""Figures of the brokers' evenness, at one time or on average."""

WHEN = {"first": "at first", "last": "at last", "mean": "on average", "unmoved": "had nothing moved"}
"""Sections of a scorecard that have them."""

BY_MOVES = ("last", "mean")
"""Sections that moves change."""

RUN = (
    Figure("minutes_over_low", "apart by the low threshold", 0, " min", lower_wins=True),
    Figure("minutes_over_high", "apart by the high threshold", 0, " min", lower_wins=True),
    Figure("minutes_to_balance", "balanced after", 0, " min", lower_wins=True),
    Figure("first_move_after_seconds", "first move after it was shown", 0, " s", lower_wins=True),
    Figure("moves", "moves", lower_wins=True),
    Figure("rounds", "in rounds"),
    Figure("splits", "bundles split"),
    Figure("peak_points", "peak since the last move, points", 1, lower_wins=True),
    Figure("fewest_moves", "fewest moves that any plan needs for it"),
    Figure("fewest_moves_as_even", "fewest moves for that and as high a lowest score"),
    Figure("bundles_moved_twice", "bundles moved more than once", lower_wins=True),
    Figure("traffic_moved", "traffic moved", 1, " %", 100, lower_wins=True),
    Figure("thrashing", "thrashing", 0, " %", 100, lower_wins=True),
    Figure("thrashing_unmoved", "thrashing of the load alone", 0, " %", 100),
    Figure("policy_violations", "policy violations", lower_wins=True),
    Figure("unserved_bundle_seconds", "unserved, bundles x seconds", 1, lower_wins=True),
    Figure("turns", "turns"),
    Figure("hours", "simulated", 1, " h"),
)
"""Figures of a run as a whole."""

FIGURES = (*(figure.in_section(section, when) for section, when in WHEN.items() for figure in EVENNESS), *RUN)
"""Every figure, in the order of reports."""


# --- several seeds: median and extremes of each figure


@dataclass(frozen=True)
class FigureSpread:
    """One figure over several runs, in its own unit. ``runs`` is the number of runs that have it."""

    median: float | None
    lowest: float | None
    highest: float | None
    runs: int


def spread(cards: Sequence[Scorecard]) -> dict[str, FigureSpread]:
    """Each figure of at least one scorecard, by its dotted name."""
    runs = [figures(card) for card in cards]
    return {name: _spread_of([run[name] for run in runs]) for name in runs[0]}


def figures(card: Scorecard) -> dict[str, float | None]:
    """Every figure of a scorecard by its dotted name, as ``moves`` or ``last.gap_points``."""
    return {figure.name: _value(card, figure.name) for figure in FIGURES}


def _value(card: Scorecard, name: str) -> float | None:
    """The value of a figure; None also where its section is missing."""
    section, _, last = name.rpartition(".")
    value: float | None = getattr(getattr(card, section) if section else card, last, None)
    return value


def _spread_of(values: Sequence[float | None]) -> FigureSpread:
    present = [value for value in values if value is not None]
    if not present:
        return FigureSpread(None, None, None, 0)
    return FigureSpread(float(median(present)), min(present), max(present), len(present))
