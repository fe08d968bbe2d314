"""What least-moves spends until a cluster is as even as AvgShedder left it, beside what it spends in all.

Its totals hold every move, also those after it was already as even as AvgShedder ever got. So they are told apart: what
it had spent when its gap first was, for two samples, no larger than AvgShedder's last one; and what AvgShedder had
spent by its own first such look. Beside both the floors: what no plan can do without for AvgShedder's last peak.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.score.gap import gaps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lbd.model import FloatArray, IntArray
    from lbd.score.bounds import BundleHistory
    from lbd.score.scorecard import Trace
    from tests.bench.suite import Ran

STAYS_SECONDS = 120.0
"""Two samples: a gap that is only passed through on the way is none that was reached."""


@dataclass(frozen=True, eq=False)
class Course:
    """Look by look, (T,): when, the gap in points, and moves and traffic (of what the cluster carries) until then.

    The gap is infinite while brokers are still to join, or to be lost.
    """

    seconds: FloatArray
    gaps: FloatArray
    moves: IntArray
    traffic: FloatArray


@dataclass(frozen=True)
class Spent:
    """So many moves, and so much traffic moved, as a fraction of what the cluster carries."""

    moves: int
    traffic: float


def course(trace: Trace) -> Course:
    """The course of a run."""
    seconds = trace.seconds()
    landed = np.searchsorted([move.seconds for move in trace.moves], seconds, side="right")
    carried = sum(one.throughput for one in trace.truths) / len(trace.truths)
    reached = np.concatenate(([0.0], np.cumsum([move.throughput for move in trace.moves]))) / carried
    found = gaps(trace.points())
    complete = [bool((one.present == trace.truths[-1].present).all()) for one in trace.truths]
    return Course(seconds, np.where(complete, found, np.inf), landed.astype(np.int32), reached[landed])


def spent(run: Course, gap_points: float) -> Spent | None:
    """What was spent when the gap first was no larger than this, and stayed so for two samples; None if never."""
    within = run.gaps <= gap_points
    until = np.minimum(np.searchsorted(run.seconds, run.seconds + STAYS_SECONDS), run.seconds.size - 1)
    found = next((at for at in np.flatnonzero(within).tolist() if within[at : int(until[at]) + 1].all()), None)
    return None if found is None else Spent(int(run.moves[found]), float(run.traffic[found]))


def least_traffic(placement: BundleHistory) -> float:
    """The share of all traffic that any plan moves at least for the last peak: what at first is beyond it."""
    room = placement.room(placement.peak(placement.last))
    too_much = np.maximum(placement.carried(placement.first) - room, 0.0)
    return float(too_much.sum() / placement.sizes.sum())


@dataclass(frozen=True)
class Pair:
    """One cluster on which AvgShedder moved and least-moves was as even at some time: until then, and in all.

    ``floor`` is what no plan can do without for AvgShedder's last peak; None where bounds are not told.
    """

    kind: str
    mine: Spent
    mine_in_all: Spent
    other: Spent
    other_in_all: Spent
    floor: Spent | None


def pairs(found: Sequence[Ran], mine: str = "least-moves", other: str = "AvgShedder") -> list[Pair]:
    """The pairs of these runs."""
    own = {(one.kind, one.number): one for one in found if one.candidate == mine}
    return list(_pairs((own[one.kind, one.number], one) for one in found if one.candidate == other and one.card.moves))


def _pairs(runs: Iterator[tuple[Ran, Ran]]) -> Iterator[Pair]:
    for one, two in runs:
        end = float(two.course.gaps[-1])
        mine, other = spent(one.course, end), spent(two.course, end) or _in_all(two)
        floor = None
        if two.card.fewest_moves is not None and two.least_traffic is not None:
            floor = Spent(two.card.fewest_moves, two.least_traffic)
        if mine is not None:
            yield Pair(one.kind, mine, _in_all(one), other, _in_all(two), floor)


def _in_all(run: Ran) -> Spent:
    return Spent(run.card.moves, run.card.traffic_moved)


HEAD = (
    "clusters", "as even", "AvgShedder", "least-moves until then", "of it", "on half or less", "least-moves in all",
    "of it", "no plan without",
)  # fmt: skip


def table(found: Sequence[Ran], mine: str = "least-moves", other: str = "AvgShedder") -> list[str]:
    """A row for each kind and one for all, as Markdown: sums of moves, and of traffic in clusters' worth."""
    chosen = pairs(found, mine, other)
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for kind in (*dict.fromkeys(one.kind for one in found), "all"):
        number = len({(one.kind, one.number) for one in found if kind in (one.kind, "all")})
        own = [one for one in chosen if kind in (one.kind, "all")]
        lines.append(f"| {kind} | {len(own)} of {number} | {' | '.join(_row(own))} |")
    return lines


def _row(own: Sequence[Pair]) -> Iterator[str]:
    then, whole, other = ([getattr(one, name) for one in own] for name in ("mine", "mine_in_all", "other"))
    yield _told(other)
    yield _told(then)
    yield _share(then, other)
    yield f"{sum(2 * one.mine.moves <= one.other.moves for one in own)} of {len(own)}"
    yield _told(whole)
    yield _share(whole, other)
    bounded = [(one.floor, one.other) for one in own if one.floor is not None]
    yield _share([floor for floor, _ in bounded], [against for _, against in bounded])


def _told(spent_on: Sequence[Spent]) -> str:
    return f"{sum(one.moves for one in spent_on)} moves, {sum(one.traffic for one in spent_on):.2f}"


def _share(mine: Sequence[Spent], other: Sequence[Spent]) -> str:
    """Moves and traffic beside those of others; a dash where there are none."""
    moves, traffic = ([sum(getattr(one, of) for one in side) for side in (mine, other)] for of in ("moves", "traffic"))
    return f"{moves[0] / moves[1]:.0%}, {traffic[0] / traffic[1]:.0%}" if moves[1] and traffic[1] else "-"
