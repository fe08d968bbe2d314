"""What a plan stands on: the points of each broker, what traffic costs there, and which bundles may move. Pure.

Usage is taken as linear in traffic (``load/linear.py``), with the background that the latest report leaves: so points
before a move are those of the report, and only differences are the model's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.load import scoring
from lbd.load.linear import DRIVEN, driving
from lbd.reason import Reason

if TYPE_CHECKING:
    from lbd.load.scoring import Weights
    from lbd.model import Averages, CodeArray, FloatArray, IntArray, Permission, Slopes, Snapshot

OWN_RATIO_SHARE = 0.1
"""Of the mean traffic; a broker that carries less tells by its usage what it is idle, not what traffic costs."""

OTHERS = [at for at in scoring.SCORED if at not in DRIVEN]


@dataclass(frozen=True, eq=False)
class Ground:
    """``points`` is float64 (B, 3), weighted percent of the resources that follow traffic; ``other`` (B,) of the rest.

    ``cost`` is float64 (B, 3), points for a unit of what drives each. ``bundles`` int32 (C,) may move, with ``owner``
    int32 (C,) into the brokers, ``drives`` float64 (C, 3), and ``price`` float64 (C,): cheaper ones are to go first.
    ``noise`` is float64 (B,), points; ``estimated``: nothing but usage/traffic tells the cost.
    """

    points: FloatArray
    other: FloatArray
    cost: FloatArray
    bundles: IntArray
    owner: IntArray
    drives: FloatArray
    price: FloatArray
    noise: FloatArray
    estimated: bool

    def idle(self) -> FloatArray:
        """Points of each broker without the bundles that may move, float64 (B, 3)."""
        carried = np.stack([np.bincount(self.owner, one, len(self.points)) for one in self.drives.T], axis=1)
        found: FloatArray = self.points - self.cost * carried
        return found


def survey(
    snapshot: Snapshot, averages: Averages, permission: Permission, weights: Weights, verdicts: CodeArray
) -> Ground:
    """The ground of one round; ``verdicts`` is told of bundles without statistics."""
    columns = list(DRIVEN)
    weighed = np.nan_to_num(scoring.percent(snapshot.brokers) * weights.row())
    slopes = permission.slopes
    measure = slopes.measure if slopes is not None else "throughput"
    slope, estimated = _slopes(snapshot, slopes)
    at, owner = _movable(snapshot, averages, permission, verdicts)
    costs = permission.costs
    noise = np.zeros(len(snapshot.brokers))
    if slopes is not None:
        known = np.where(np.isfinite(slopes.noise), slopes.noise, 0.0)
        noise = (known * weights.row())[:, columns].max(axis=1)
    return Ground(
        points=weighed[:, columns],
        other=weighed[:, OTHERS].max(axis=1, initial=0.0),
        cost=slope * weights.row()[columns],
        bundles=at,
        owner=owner,
        drives=driving(np.nan_to_num(averages.short[at]), measure)[:, columns],
        price=np.zeros(at.size) if costs is None else costs[at],
        noise=noise,
        estimated=estimated,
    )


def _movable(
    snapshot: Snapshot, averages: Averages, permission: Permission, verdicts: CodeArray
) -> tuple[IntArray, IntArray]:
    """Listed bundles with an average that nothing bars, on brokers that take part, and their owners."""
    rows = snapshot.rows
    owner = rows.owner()
    on = rows.listed & (permission.paired[owner] == 0)
    unknown = rows.bundle[on & (averages.samples[rows.bundle] == 0)]
    verdicts[unknown[verdicts[unknown] == 0]] = Reason.NO_STATISTICS.code
    free = on & (averages.samples[rows.bundle] > 0) & (permission.barred[rows.bundle] == 0)
    return rows.bundle[free], owner[free]


def _slopes(snapshot: Snapshot, known: Slopes | None) -> tuple[FloatArray, bool]:
    """Percent for a unit of traffic, (B, 3); an unknown one is that of the others, or usage/traffic where none is."""
    estimate = _ratios(snapshot, known)
    if known is None:
        return estimate, True
    slope = known.slope[:, list(DRIVEN)]
    told = np.isfinite(slope)
    pooled = [np.median(column[has]) if has.any() else np.nan for column, has in zip(slope.T, told.T, strict=True)]
    slope = np.where(told, slope, np.array(pooled))
    found = np.isfinite(slope)
    return np.where(found, slope, estimate), not found.all()


def _ratios(snapshot: Snapshot, known: Slopes | None) -> FloatArray:
    """Percent/traffic of each broker, (B, 3), all load taken for traffic's; the cluster's where it has little."""
    measure = known.measure if known is not None else "throughput"
    used = np.nan_to_num(scoring.percent(snapshot.brokers))[:, list(DRIVEN)]
    traffic = driving(np.nan_to_num(snapshot.brokers.rates), measure)[:, list(DRIVEN)]
    total = traffic.sum(axis=0)
    with np.errstate(all="ignore"):
        cluster = np.where(total > 0, used.sum(axis=0) / total, 0.0)
        own = used / traffic
    found: FloatArray = np.where(traffic > OWN_RATIO_SHARE * traffic.mean(axis=0), own, cluster)
    return found
