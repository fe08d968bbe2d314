"""What a plan stands on: the points of each broker, what traffic costs there, and which bundles may move. Pure.

Usage is taken as linear in traffic (``load/linear.py``), with the background that the latest samples leave: so points
before a move are what a broker usually shows (``load/usual.py``), and only differences are the model's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.least_moves import estimating
from lbd.load import scoring
from lbd.load.linear import DRIVEN, driving
from lbd.reason import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbd.load.scoring import Weights
    from lbd.model import Averages, CodeArray, FloatArray, IntArray, Permission, Snapshot

USUAL_NOISE_POINTS = 1.0
"""Of a sample of CPU at rest, where nothing tells it: levelled brokers vary by two points or so."""

OTHERS = [at for at in scoring.SCORED if at not in DRIVEN]


@dataclass(frozen=True, eq=False)
class Ground:
    """``points`` is float64 (B, 3), weighted percent of the resources that follow traffic; ``other`` (B,) of the rest.

    ``cost`` is float64 (B, 3), points for a unit of what drives each. ``bundles`` int32 (C,) may move, with ``owner``
    int32 (C,) into the brokers, ``drives`` float64 (C, 3), and ``price`` float64 (C,): cheaper ones are to go first.
    ``clients`` is int64 (C,): topics, producers and consumers that a move disconnects. ``noise`` is float64 (B,),
    points by which what brokers usually show differs at rest; ``estimated``: nothing but usage/traffic tells the cost.
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
        """What each broker usually scores, float64 (B,)."""
        found: FloatArray = np.maximum(self.points.max(axis=1), self.other)
        return found

    @cached_property
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
    slopes = permission.slopes
    weighed = estimating.usual_percent(snapshot, slopes) * weights.row()
    measure = slopes.measure if slopes is not None else "throughput"
    slope, estimated = estimating.slopes(snapshot, slopes)
    at, owner, clients = _movable(snapshot, averages, permission, verdicts)
    costs = permission.costs
    noise = np.full(len(snapshot.brokers), USUAL_NOISE_POINTS)
    if slopes is not None:
        known = np.where(np.isfinite(slopes.noise), slopes.noise, USUAL_NOISE_POINTS)
        several = np.sqrt(np.maximum(slopes.samples, 1.0)) if slopes.samples is not None else 1.0
        noise = (known * weights.row())[:, columns].max(axis=1) / several
    return Ground(
        points=weighed[:, columns],
        other=weighed[:, OTHERS].max(axis=1, initial=0.0),
        cost=slope * weights.row()[columns],
        bundles=at,
        owner=owner,
        drives=driving(np.nan_to_num(averages.short[at]), measure)[:, columns],
        price=np.zeros(at.size) if costs is None else costs[at],
        clients=clients,
        noise=noise,
        estimated=estimated,
    )


def _movable(
    snapshot: Snapshot, averages: Averages, permission: Permission, verdicts: CodeArray
) -> tuple[IntArray, IntArray, NDArray[np.int64]]:
    """Listed bundles with an average that nothing bars, on brokers that take part; their owners, and their clients."""
    rows = snapshot.rows
    owner = rows.owner()
    on = rows.listed & (permission.paired[owner] == 0)
    unknown = rows.bundle[on & (averages.samples[rows.bundle] == 0)]
    verdicts[unknown[verdicts[unknown] == 0]] = Reason.NO_STATISTICS.code
    free = on & (averages.samples[rows.bundle] > 0) & (permission.barred[rows.bundle] == 0)
    return rows.bundle[free], owner[free], rows.counts[free].sum(axis=1)
