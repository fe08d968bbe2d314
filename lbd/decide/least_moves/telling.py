"""What a plan comes to beside the best possible, and why there is none: in the strategy's words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.decide.least_moves.at_limit import other_work
from lbd.decide.least_moves.planning import ROUNDING
from lbd.reason import Group, Reason
from lbd.score.bounds import fewest_moves, fewest_removed
from lbd.score.filled import Taken, least_taken

if TYPE_CHECKING:
    from lbd.decide.candidates import Offers
    from lbd.decide.least_moves.counting import Far
    from lbd.decide.least_moves.ground import Ground
    from lbd.decide.least_moves.planning import Band, Plan
    from lbd.model import BoolArray, CodeArray, FloatArray, IntArray


def fewest(ground: Ground, moves: int, after: FloatArray, among: BoolArray) -> str:
    """How many of the moves any plan needs that leaves these brokers no higher, and none lower, than this one does.

    ``after`` is float64 (B,), their scores then.
    """
    peak, trough = float(after[among].max()), float(after[among].min())
    least = least_moves(ground, peak, trough, among)
    how = "; points estimated as usage/traffic, slopes are not known yet" if ground.estimated else ""
    rises = trough > float(ground.scores[among].min()) + ROUNDING
    lowest = f" and a lowest of {trough:.1f}" if rises else ""
    return f"{moves} planned, at least {least} needed for a highest score of {peak:.1f} points{lowest}{how}"


def least_moves(ground: Ground, peak: float, trough: float, among: BoolArray) -> int:
    """A floor under the moves of any plan with this highest score and this lowest one (``score/bounds.py``).

    The largest of three: each broker relieved in what makes its own score; in what makes the score of most, what leaves
    must fit in elsewhere; and who is too low takes in what it lacks, in whichever resource it lacks least.
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
    wanted = np.where(low[:, None], _traffic(ground, trough), 0.0)
    return max(leaving, fitting, _taken(drives, owner, room, wanted).fewest(leaving))


def _taken(drives: FloatArray, owner: IntArray, room: FloatArray, wanted: FloatArray) -> Taken:
    """What brokers take in at least, each in the resource in which it needs fewest; all but owners (., 3)."""
    each = [least_taken(size, owner, *of) for size, *of in zip(drives.T, room.T, wanted.T, strict=True)]
    nothing, something = (np.min([getattr(one, given) for one in each], axis=0) for given in ("nothing", "something"))
    return Taken(nothing, something, (0, 0))


def _traffic(ground: Ground, level: float) -> FloatArray:
    """What of each drive brings a broker to a level, float64 (B, 3); infinite where it costs nothing."""
    costly = ground.cost > 0
    spare = np.maximum(level - ground.idle, 0.0)
    return np.where(costly, spare / np.where(costly, ground.cost, 1.0), np.inf)


def nothing_fits(
    ground: Ground, offers: Offers, plan: Plan, verdicts: CodeArray, far: Far, band: Band
) -> tuple[Reason, str]:
    """Why nothing more moves to or from a broker that fired, and what would help instead."""
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
        told = f"{name} makes {size:.1f} points, and the guardrails foresee too much on each broker that could take it"
        return Reason.DESTINATION_OVERLOADED, told
    verdicts[ground.bundles[own]] = Reason.TOO_LARGE.code
    told = f"{name} makes {size:.1f} points and fits nowhere below {band.limit:.1f}"
    return Reason.TOO_LARGE, f"{told}; split it: lbd split {name} shows where"


def _background(ground: Ground, offers: Offers, broker: int, limit: float, has_any: bool) -> str:
    """What of a broker's load is not that of bundles that may move, where that alone is above the limit."""
    if not offers.own(broker):
        return "it has no bundles: its load is not theirs"
    idle = float(max(ground.idle[broker].max(), ground.other[broker]))
    not_theirs = "not those of bundles that may move: other work on its machine"
    if idle > limit or not has_any:
        return f"{idle:.1f} of its points are {not_theirs}, or bundles that stay"
    if (beside := other_work(ground, offers, broker)) > limit:
        told = f"it is at the limit of its CPU, and by what moves did to others like it {beside:.1f} points or more"
        return f"{told} are {not_theirs}"
    return ""


def _barred(offers: Offers, broker: int, verdicts: CodeArray) -> tuple[Reason, str]:
    """None of its bundles may move: by the policy that keeps most of them, if it is policies that do."""
    listed = offers.candidates(broker, "throughput", verdicts)
    told = offers.none_fits(broker, listed, verdicts)
    codes, numbers = np.unique(verdicts[offers.listed(broker)], return_counts=True)
    most = Reason.of(int(codes[numbers.argmax()]))
    return (most if most.group is Group.POLICY else Reason.NOTHING_FITS), told
