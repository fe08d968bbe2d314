"""Input of least-moves: points of each broker, cost of traffic, and bundles that may move. Pure.

For a broker without learned slopes, the cost of traffic is estimated from all brokers at one time. A broker's usage
over its traffic counts all background as traffic. Across similar brokers a line shows the background that they share;
the less they lie on one, the less of it is used. So a cost is rather too high than too low: a plan then moves too
little and continues, whereas an excess would have to come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lbd.load import scoring
from lbd.load.effects import together
from lbd.load.estimate import CPU, DRIVEN, Source, driving
from lbd.load.fit import OTHERS_SHARE, SATURATED_PERCENT, UNKNOWN, WIDTH, SlopeFit, line
from lbd.model import IMPOSSIBLE_NUMBER
from lbd.permit.evidence import IMPOSSIBLE_SHARE
from lbd.permit.predicted import OWN
from lbd.reason import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbd.decide.candidates import Offers
    from lbd.load.scoring import Weights
    from lbd.model import BoolArray, CodeArray, FloatArray, IntArray, Slopes, Snapshot


OWN_RATIO_SHARE = 0.1
"""Share of the mean traffic below which the usage of a broker shows its idle load, not the cost of traffic."""

UNUSUAL_POINTS = 25.0
"""Points of background above the median that other work on a broker's machine seldom makes (experiments: 1 to 37)."""

MOST_SHARED = 0.5
"""Share of the lowest usage that may count as shared background: no broker's traffic costs nothing."""


FEWEST_BROKERS = 3
UNLIKE_POINTS = 3.0
"""Usual difference of equal brokers, in points."""

SURPRISE = 1.5
SURE_DEVIATIONS = 2.0
"""Trust the measured effect of moves beyond this factor of the estimate and this many deviations from it. Nearer ones
change nothing, because brokers without moves have nothing but the estimate.
"""

ODD_ONES = 1
"""Number of brokers with a neighbour that is accepted, even among three."""

SHARED = (Source.CLASS.value, Source.POOLED.value)
"""Sources that are about other brokers. A slope of 0, as of one without a limit, proves nothing about others."""

LEAST_SHARE = 0.1
"""Share of an estimate that traffic costs at least, whatever a few noisy samples say."""


def estimate_slopes(snapshot: Snapshot, learned: Slopes | None) -> tuple[FloatArray, bool]:
    """Percent per unit of the driving traffic of each resource, float64 (B, 3), and whether some of it is estimated.

    An unknown slope is the estimate, times the median ratio of learned slopes to their estimates; a broker with too
    little traffic for an estimate gets the steepest learned slope. No slope exceeds usage over traffic, because no
    background is below zero. A slope learned from other brokers counts only among brokers that look alike, and only if
    it leaves no background that no other has; otherwise the estimate counts, because a slower machine is likelier than
    that much other work.
    """
    ratio, estimate = _ratios(snapshot, learned)
    if learned is None:
        return estimate, True
    slope = _believed(learned, estimate)
    is_known = np.isfinite(slope)
    with np.errstate(all="ignore"):
        share = np.where((slope > 0) & (estimate > 0), slope / estimate, np.nan)
    factors = [np.median(column[np.isfinite(column)]) if np.isfinite(column).any() else 1.0 for column in share.T]
    steepest = np.nan_to_num(np.where(is_known, slope, 0.0)).max(axis=0, initial=0.0)
    unknown = np.where(np.isinf(ratio) & (steepest > 0), steepest, np.array(factors) * estimate)
    unknown, estimate = _with_effect(unknown, learned), _with_effect(estimate, learned)
    slopes = np.where(is_known, np.where(slope > 0, np.minimum(slope, ratio), slope), unknown)
    doubted = _doubted(snapshot, learned, slopes)
    return np.where(doubted[:, None], np.maximum(slopes, estimate), slopes), bool(doubted.any()) or not is_known.all()


def _believed(learned: Slopes, estimate: FloatArray) -> FloatArray:
    """Slopes, (B, 3), without those of CPU from others alone, where the estimates of many are not in proportion.

    The broker with most traffic shapes a shared slope most. Among unlike machines that is the largest alone, and its
    slope is a fraction of the others'. A few that are out of proportion have a neighbour.
    """
    slope = learned.slope[:, list(DRIVEN)]
    if learned.sources is None:
        return slope
    of_others = np.isin(learned.sources, SHARED)
    with np.errstate(all="ignore"):
        share = (estimate[:, 0] / slope[:, 0])[of_others]
    share = share[np.isfinite(share)]
    middle = float(np.median(share)) if share.size else 1.0
    odd = int(((share > SURPRISE * middle) | (share * SURPRISE < middle)).sum())
    if odd > max(ODD_ONES, OTHERS_SHARE * share.size):
        slope[of_others, 0] = np.nan
    return slope


def _with_effect(estimate: FloatArray, learned: Slopes) -> FloatArray:
    """Estimates, (B, 3); for CPU the effect measured by moves where it clearly differs from the estimate."""
    if learned.effect is None:
        return estimate
    corrected, (measured, deviation) = estimate.copy(), learned.effect.T
    cpu = estimate[:, 0]
    far = (measured * SURPRISE < cpu) | (measured > SURPRISE * cpu)
    clear = far & (np.abs(measured - cpu) > SURE_DEVIATIONS * deviation)
    corrected[:, 0] = np.where(clear, np.maximum(measured, LEAST_SHARE * cpu), cpu)
    return corrected


def usual_percent(snapshot: Snapshot, learned: Slopes | None) -> FloatArray:
    """Percent of each resource, float64 (B, 5): the average of the latest samples, where there are any; 0 for none, and
    for an impossible value. The present CPU counts where it is known: samples may be from before a move.
    """
    used = scoring.percent(snapshot.brokers)
    if learned is not None and learned.usual is not None:
        is_usual = np.isfinite(learned.usual)
        is_usual[:, CPU] &= ~snapshot.brokers.shows_live
        used = np.where(is_usual, learned.usual, used)
    return np.where((used >= 0) & (used <= 100 * IMPOSSIBLE_SHARE), used, 0.0)


def _believable(snapshot: Snapshot) -> FloatArray:
    """Traffic of each broker, float64 (B, 4); 0 for impossible values, which must not bend the others' estimates."""
    rates = snapshot.brokers.rates
    return np.where((rates >= 0) & (rates <= IMPOSSIBLE_NUMBER), rates, 0.0)


def _doubted(snapshot: Snapshot, learned: Slopes, slope: FloatArray) -> BoolArray:
    """Brokers whose CPU slope is learned from others and would leave an unusual background; bool (B,)."""
    if learned.sources is None:
        return np.zeros(len(slope), dtype=np.bool_)
    used = usual_percent(snapshot, learned)[:, CPU]
    background = used - slope[:, 0] * driving(_believable(snapshot), learned.measure)[:, CPU]
    of_others = np.array([source not in OWN for source in learned.sources])
    doubted: BoolArray = of_others & (background - np.median(background) > UNUSUAL_POINTS)
    return doubted


def _ratios(snapshot: Snapshot, learned: Slopes | None) -> tuple[FloatArray, FloatArray]:
    """Percent over traffic of each broker, (B, 3), as it is, and without the background that all share."""
    measure = learned.measure if learned is not None else "throughput"
    used = usual_percent(snapshot, learned)[:, list(DRIVEN)]
    traffic = driving(_believable(snapshot), measure)[:, list(DRIVEN)]
    shared = np.array([shared_background(x, y) for x, y in zip(traffic.T, used.T, strict=True)])
    return _ratio(used, traffic, np.inf), _ratio(used - shared, traffic, 0.0)


def _ratio(used: FloatArray, traffic: FloatArray, without: float) -> FloatArray:
    """Usage over traffic; for brokers with little traffic the cluster's ratio, or ``without`` if that must not bind."""
    total = traffic.sum(axis=0)
    with np.errstate(all="ignore"):
        cluster = np.where(total > 0, used.sum(axis=0) / total, 0.0)
        own = used / traffic
    ratios: FloatArray = np.where(traffic > OWN_RATIO_SHARE * traffic.mean(axis=0), own, without or cluster)
    return ratios


def shared_background(traffic: FloatArray, used: FloatArray) -> float:
    """Percent that all brokers use without traffic, by the steepest line that their points allow; both float64 (B,)."""
    loaded = traffic > 0
    fitted = line([(traffic[loaded], used[loaded])])
    if not np.isfinite(fitted.half_width):
        fitted = _of_few(traffic[loaded], used[loaded])
    if not np.isfinite(fitted.half_width):
        return 0.0
    steepest = max(fitted.slope, 0.0) + fitted.half_width
    most = MOST_SHARED * float(used[loaded].min())
    return float(np.clip(np.median(used[loaded] - steepest * traffic[loaded]), 0.0, most))


def _of_few(traffic: FloatArray, used: FloatArray) -> SlopeFit:
    """A line through three to seven brokers. These are too few to show their distance from it, so the noise is at least
    the usual difference of equal brokers.
    """
    spread = float(((traffic - traffic.mean()) ** 2).sum()) if traffic.size >= FEWEST_BROKERS else 0.0
    if not spread > 0:
        return UNKNOWN
    slope = float(((traffic - traffic.mean()) * used).sum()) / spread
    residuals = used - used.mean() - slope * (traffic - traffic.mean())
    noise = max(float((residuals**2).sum() / (traffic.size - 2)) ** 0.5, UNLIKE_POINTS)
    return SlopeFit(slope, WIDTH * noise / spread**0.5, noise)


# --- planning input
# Usage is taken as linear in traffic (``load/estimate.py``), with the background that the latest samples leave: points
# before a move are a broker's usual usage (``load/samples.py``), and only differences are the model's.

USUAL_NOISE_POINTS = 1.0
"""Noise of a sample of CPU at rest, where it is unknown: balanced brokers vary by about two points."""

OTHERS = [column for column in scoring.SCORED if column not in DRIVEN]


@dataclass(frozen=True, eq=False)
class Ground:
    """``points`` is float64 (B, 3), weighted percent of the resources that follow traffic; ``other`` (B,) of the rest.

    ``cost`` is float64 (B, 3), points per unit of driving traffic. ``bundles`` int32 (C,) may move, with ``owner``
    int32 (C,) into the brokers, ``drives`` float64 (C, 3), and ``price`` float64 (C,): cheaper ones are to go first.
    ``clients`` is int64 (C,): topics, producers and consumers that a move disconnects. ``noise`` is float64 (B,), the
    usual error of a broker's points at rest; ``estimated``: the cost is usage/traffic alone.
    """

    points: FloatArray
    other: FloatArray
    cost: FloatArray
    bundles: IntArray
    owner: IntArray
    drives: FloatArray
    price: FloatArray
    clients: NDArray[np.int64]
    noise: FloatArray
    estimated: bool

    @cached_property
    def scores(self) -> FloatArray:
        """Usual score of each broker, float64 (B,)."""
        usual: FloatArray = np.maximum(self.points.max(axis=1), self.other)
        return usual

    @cached_property
    def idle(self) -> FloatArray:
        """Points of each broker without the bundles that may move, float64 (B, 3)."""
        carried = np.stack([np.bincount(self.owner, drive, len(self.points)) for drive in self.drives.T], axis=1)
        idle: FloatArray = self.points - self.cost * carried
        return idle


def survey(offers: Offers, weights: Weights, verdicts: CodeArray) -> Ground:
    """Build the ground of one round; bundles without statistics are marked in ``verdicts``."""
    columns, snapshot = list(DRIVEN), offers.snapshot
    slopes, costs = offers.permission.slopes, offers.permission.costs
    weighed = usual_percent(snapshot, slopes) * weights.row()
    measure = slopes.measure if slopes is not None else "throughput"
    slope, estimated = estimate_slopes(snapshot, slopes)
    bundles, owner, clients = _movable(offers, verdicts)
    noise = np.full(len(snapshot.brokers), USUAL_NOISE_POINTS)
    if slopes is not None:
        sample_noise = np.where(np.isfinite(slopes.noise), slopes.noise, USUAL_NOISE_POINTS)
        several = np.sqrt(np.maximum(slopes.samples, 1.0)) if slopes.samples is not None else 1.0
        noise = (sample_noise * weights.row())[:, columns].max(axis=1) / several
    return Ground(
        points=weighed[:, columns],
        other=weighed[:, OTHERS].max(axis=1, initial=0.0),
        cost=slope * weights.row()[columns],
        bundles=bundles,
        owner=owner,
        drives=driving(np.nan_to_num(offers.averages.short[bundles]), measure)[:, columns],
        price=np.zeros(bundles.size) if costs is None else costs[bundles],
        clients=clients,
        noise=noise,
        estimated=estimated,
    )


def _movable(offers: Offers, verdicts: CodeArray) -> tuple[IntArray, IntArray, NDArray[np.int64]]:
    """Listed bundles with an average that nothing bars, on brokers that take part; their owners, and their clients."""
    rows, averages, permission = offers.snapshot.rows, offers.averages, offers.permission
    owner = rows.owner()
    on = rows.listed & (permission.paired[owner] == 0)
    unknown = rows.bundle[on & (averages.samples[rows.bundle] == 0)]
    verdicts[unknown[verdicts[unknown] == 0]] = Reason.NO_STATISTICS.code
    free = on & (averages.samples[rows.bundle] > 0) & (permission.barred[rows.bundle] == 0)
    return rows.bundle[free], owner[free], rows.counts[free].sum(axis=1)


# --- other work: the usage of a broker at its CPU limit that no bundle causes
# While demand exceeds the limit, its own usage does not show its relief. Bundles that came to brokers with the
# same limit do.


def other_work(ground: Ground, offers: Offers, broker: int) -> float:
    """Points of a broker that movable bundles certainly do not cause; 0 below its CPU limit, or if unknown.

    The effect of moves on like brokers counts at the upper end of its 95 % interval.
    """
    snapshot, slopes = offers.snapshot, offers.permission.slopes
    used = float(usual_percent(snapshot, slopes)[broker, CPU])
    if slopes is None or slopes.effect is None or used < SATURATED_PERCENT:
        return 0.0
    limits = snapshot.brokers.limit[:, CPU]
    carried = float(ground.drives[ground.owner == broker, 0].sum())
    unexplained = used - together(slopes.effect[limits == limits[broker]]).interval[1] * carried
    return float(ground.points[broker, 0]) * max(unexplained, 0.0) / used
