"""What a plan comes to beside the best possible, and why there is none: in the strategy's words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.reason import Reason
from lbd.score.bounds import fewest_moves

if TYPE_CHECKING:
    from lbd.decide.candidates import Offers
    from lbd.decide.least_moves.counting import Far
    from lbd.decide.least_moves.ground import Ground
    from lbd.decide.least_moves.planning import Band, Plan
    from lbd.model import BoolArray, CodeArray


def fewest(ground: Ground, moves: int, peak: float, among: BoolArray) -> str:
    """How many of the moves any plan needs that leaves these brokers no higher, as the removal bound counts them."""
    least = least_moves(ground, peak, among)
    how = "; points estimated as usage/traffic, slopes are not known yet" if ground.estimated else ""
    return f"{moves} planned, at least {least} needed for a highest score of {peak:.1f} points{how}"


def least_moves(ground: Ground, peak: float, among: BoolArray) -> int:
    """A floor under the moves of any plan with this highest score, each broker counted in what makes its own score."""
    column = ground.points.argmax(axis=1)
    brokers = np.arange(len(column))
    on = among[ground.owner]
    owner = ground.owner[on]
    sizes = ground.drives[on, column[owner]] * ground.cost[owner, column[owner]]
    return fewest_moves(sizes, owner, np.maximum(peak - ground.idle()[brokers, column], 0.0))


def nothing_fits(
    ground: Ground, offers: Offers, plan: Plan, verdicts: CodeArray, far: Far, band: Band
) -> tuple[Reason, str]:
    """Why nothing moves to or from a broker that fired."""
    if far.points < 0:
        return Reason.NOTHING_FITS, f"no broker above {band.bottom:.1f} points has a bundle that fits"
    own = plan.candidates(far.broker)
    if not offers.own(far.broker):
        return Reason.BACKGROUND_LOAD, "it has no bundles: its load is not theirs"
    if not own.size:
        listed = offers.candidates(far.broker, "throughput", verdicts)
        return Reason.NOTHING_FITS, offers.none_fits(far.broker, listed, verdicts)
    idle = float(max(ground.idle()[far.broker].max(), ground.other[far.broker]))
    if idle > band.limit:
        return Reason.BACKGROUND_LOAD, f"{idle:.1f} of its points are not those of bundles that may move"
    verdicts[ground.bundles[own]] = Reason.TOO_LARGE.code
    size = float((ground.cost[far.broker] * ground.drives[own[0]]).max())
    name = offers.snapshot.bundles[ground.bundles[own[0]]]
    return Reason.TOO_LARGE, f"{name} makes {size:.1f} points and fits nowhere below {band.limit:.1f}; split it"
