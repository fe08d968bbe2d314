"""What a plan comes to beside the best possible, and why there is none: in the strategy's words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.reason import Group, Reason
from lbd.score.bounds import fewest_moves, fewest_removed

if TYPE_CHECKING:
    from lbd.decide.candidates import Offers
    from lbd.decide.least_moves.counting import Far
    from lbd.decide.least_moves.ground import Ground
    from lbd.decide.least_moves.planning import Band, Plan
    from lbd.model import BoolArray, CodeArray


def fewest(ground: Ground, moves: int, peak: float, among: BoolArray) -> str:
    """How many of the moves any plan needs that leaves these brokers no higher (``score/bounds.py``)."""
    least = least_moves(ground, peak, among)
    how = "; points estimated as usage/traffic, slopes are not known yet" if ground.estimated else ""
    why = "" if least else ": they fill brokers that are too low"
    return f"{moves} planned, at least {least} needed for a highest score of {peak:.1f} points{why}{how}"


def least_moves(ground: Ground, peak: float, among: BoolArray) -> int:
    """A floor under the moves of any plan with this highest score.

    The larger of two: each broker relieved in what makes its own score; and, in what makes the score of most, what
    leaves must fit in elsewhere.
    """
    column = ground.points.argmax(axis=1)
    brokers, on = np.arange(len(column)), among[ground.owner]
    owner = ground.owner[on]
    sizes = ground.drives[on, column[owner]] * ground.cost[owner, column[owner]]
    leaving = fewest_removed(sizes, owner, np.maximum(peak - ground.idle[brokers, column], 0.0))
    most = int(np.bincount(column[among]).argmax())
    spare, cost = np.maximum(peak - ground.idle[:, most], 0.0), ground.cost[:, most]
    room = np.where(cost > 0, spare / np.where(cost > 0, cost, 1.0), np.inf)
    return max(leaving, fewest_moves(ground.drives[on, most], owner, np.where(among, room, 0.0)))


def nothing_fits(
    ground: Ground, offers: Offers, plan: Plan, verdicts: CodeArray, far: Far, band: Band
) -> tuple[Reason, str]:
    """Why nothing more moves to or from a broker that fired, and what would help instead."""
    if far.points < 0:
        return Reason.NOTHING_FITS, f"no broker above {band.bottom:.1f} points has a bundle that fits"
    own = plan.candidates(far.broker)
    if not offers.own(far.broker):
        return Reason.BACKGROUND_LOAD, "it has no bundles: its load is not theirs"
    idle = float(max(ground.idle[far.broker].max(), ground.other[far.broker]))
    if not (ground.owner == far.broker).any():
        return _barred(offers, far.broker, verdicts)
    if idle > band.limit or not own.size:
        told = f"{idle:.1f} of its points are not those of bundles that may move"
        return Reason.BACKGROUND_LOAD, f"{told}: other work on its machine, or bundles that stay"
    size = float((ground.cost[far.broker] * ground.drives[own[0]]).max())
    name = offers.snapshot.bundles[ground.bundles[own[0]]]
    if int(own[0]) in plan.refused:
        verdicts[ground.bundles[own[0]]] = Reason.DESTINATION_OVERLOADED.code
        told = f"{name} makes {size:.1f} points, and the guardrails foresee too much on each broker that could take it"
        return Reason.DESTINATION_OVERLOADED, told
    verdicts[ground.bundles[own]] = Reason.TOO_LARGE.code
    told = f"{name} makes {size:.1f} points and fits nowhere below {band.limit:.1f}"
    return Reason.TOO_LARGE, f"{told}; split it: lbd split {name} shows where"


def _barred(offers: Offers, broker: int, verdicts: CodeArray) -> tuple[Reason, str]:
    """None of its bundles may move: by the policy that keeps most of them, if it is policies that do."""
    listed = offers.candidates(broker, "throughput", verdicts)
    told = offers.none_fits(broker, listed, verdicts)
    codes, numbers = np.unique(verdicts[offers.listed(broker)], return_counts=True)
    most = Reason.of(int(codes[numbers.argmax()]))
    return (most if most.group is Group.POLICY else Reason.NOTHING_FITS), told
